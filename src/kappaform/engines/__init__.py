"""Engines: one pass over the data, wherever they live."""

from kappaform.engines.engine import Energies, Engine, Refit, Statistics, refit_of
from kappaform.engines.numpy import NumpyEngine, engine_for, hard_threshold
from kappaform.errors import SignalsUnreadable

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
