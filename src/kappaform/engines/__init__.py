"""Engines: one pass over the data, wherever they live."""

from kappaform.engines.engine import Energies, Engine, Statistics, engine_for
from kappaform.engines.numpy_engine import NumpyEngine, hard_threshold
from kappaform.engines.stores import SignalsUnreadable

__all__ = [
    "Energies",
    "Engine",
    "NumpyEngine",
    "SignalsUnreadable",
    "Statistics",
    "engine_for",
    "hard_threshold",
]
