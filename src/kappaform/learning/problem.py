"""What does not change while learning: data, method, sparsity."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Engine, Statistics
from kappaform.learning.methods import Conditioned, LogDet, Method
from kappaform.learning.result import Record
from kappaform.learning.updates import Transform, as_matrix, own_steps, penalties, updater

# Rise of an objective, relative to its scale, that rounding explains.
_ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-6}


class Problem:
    """The pass, the update and the objective of one call of `learn`.

    Attributes
    ----------
    steps : str
        The steps that belong to the objective.
    monotone : bool
        Whether the method promises that the objective never rises.
    n_passes : int
        Passes over the data so far.
    """

    def __init__(
        self, engine: Engine, method: Method, n_nonzero: int | NDArray, tol: float
    ) -> None:
        self.engine, self.method, self.n_nonzero, self.tol = engine, method, n_nonzero, tol
        self.update = updater(method, engine.gram)
        self.steps = own_steps(method)
        self.monotone = not isinstance(method, Conditioned) or method.variant == "monotone"
        self._rounding = _ROUNDING[engine.dtype]
        self.n_passes = 0
        self._last: tuple[Transform, Statistics] | None = None

    def run_pass(self, transform: Transform) -> Statistics:
        """Pass over the data, unless the last pass was with the same transform."""
        if self._last is None or self._last[0] is not transform:
            self.n_passes += 1
            self._last = transform, self.engine.run_pass(as_matrix(transform), self.n_nonzero)
        return self._last[1]

    def rises(self, previous: Record, record: Record) -> bool:
        """Whether the objective rose by more than rounding explains."""
        if isinstance(self.method, LogDet):
            return record.loss - previous.loss > self._rounding * max(1.0, abs(previous.loss))
        # Rounding is a fraction of all the energy, not of the error, which may be much smaller.
        scale = 1.0 if self.steps == "relative" else previous.coef_norm
        new, old = record.loss / (scale or 1.0), previous.loss / (scale or 1.0)
        return new * new - old * old > self._rounding

    def is_exact(self, record: Record) -> bool:
        """Whether nothing but rounding is left of the error."""
        eps = float(np.finfo(self.engine.dtype).eps)
        return record.relative <= self.engine.n_features * eps

    def measure(self, transform: Transform, now: Statistics, before: Statistics | None) -> Record:
        """Errors of a transform with its own codes, and with those of the transform before it."""
        return measured(self.method, transform, now, before, 2.0**self.engine.exponent)


def measured(
    method: Method, transform: Transform, now: Statistics, before: Statistics | None, unit: float
) -> Record:
    """Errors on signals that were multiplied by `unit`: see `Problem.measure`."""
    error = math.sqrt(now.discarded_energy)
    coef_norm = math.sqrt(now.discarded_energy + now.code_energy)
    error_before = math.nan if before is None else error_with(before, transform)
    absolute, absolute_before = error / unit, error_before / unit
    relative, relative_before = error / (coef_norm or 1.0), error_before / (coef_norm or 1.0)
    loss = relative if own_steps(method) == "relative" else absolute
    if isinstance(method, LogDet):
        energy = float(np.trace(now.gram)) or 1.0
        loss = now.discarded_energy / energy + _penalty(method, transform)
    return Record(loss, absolute, relative, absolute_before, relative_before, coef_norm / unit)


def error_with(codes: Statistics, transform: Transform) -> float:
    """Error of any transform with the codes of the given statistics."""
    matrix = as_matrix(transform)
    fit = float(np.vdot(matrix @ codes.gram, matrix) - 2 * np.vdot(matrix, codes.cross))
    return math.sqrt(max(fit + codes.code_energy, 0.0))


def _penalty(method: LogDet, transform: Transform) -> float:
    """Penalty of the log-det method, per energy of the signals."""
    matrix = as_matrix(transform)
    log_det, frobenius = penalties(method)
    return float(frobenius * np.vdot(matrix, matrix) - log_det * np.linalg.slogdet(matrix)[1])
