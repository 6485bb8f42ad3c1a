"""Engines: one pass over the data, wherever they live."""

from kappaform.engines.codes import Energies, Refit, refit_of
from kappaform.engines.engine import Engine, Statistics
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
