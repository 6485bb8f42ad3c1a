"""Engines: one pass over the data, wherever they live."""

from kappaform.engines.codes import Energies as Energies
from kappaform.engines.codes import Refit as Refit
from kappaform.engines.codes import refit_of as refit_of
from kappaform.engines.engine import Engine as Engine
from kappaform.engines.engine import Statistics as Statistics
from kappaform.engines.numpy import NumpyEngine as NumpyEngine
from kappaform.engines.numpy import engine_for as engine_for
from kappaform.engines.numpy import hard_threshold as hard_threshold
from kappaform.errors import SignalsUnreadable as SignalsUnreadable
