"""Engines: one pass over the data, wherever they live."""

from kappaform.arrays import SignalsUnreadable
from kappaform.engines.engine import Energies, Engine, Refit, Statistics, refit_of
from kappaform.engines.numpy_engine import NumpyEngine, engine_for, hard_threshold

__all__ = [
    "Energies",
    "Engine",
    "NumpyEngine",
    "Refit",
    "SignalsUnreadable",
    "Statistics",
    "engine_for",
    "hard_threshold",
    "refit_of",
]
