"""The three errors of a transform on given signals."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import as_sparsity, check_at_most
from kappaform.engines import Engine, engine_for
from kappaform.learning.result import LearnResult, learned
from kappaform.linalg import svd
from kappaform.threads import single_threaded_blas


class Evaluation(NamedTuple):
    """Errors of a transform on signals.

    `absolute` is ‖X − YWᵀ‖_F, `relative` the same over ‖YWᵀ‖_F, and `reconstruction` is
    ‖Y − XW⁻ᵀ‖_F / ‖Y‖_F: what a user of the codes sees.
    """

    absolute: float
    relative: float
    reconstruction: float


def evaluate(
    signals: Any,
    transform: Any,
    n_nonzero_coefs: int | NDArray | None = None,
) -> Evaluation:
    """Absolute, relative and reconstruction error of a transform with its codes of `signals`.

    Parameters
    ----------
    signals : array of shape (m, n)
    transform : (n, n) array, LearnResult or fitted estimator
    n_nonzero_coefs : int or array of shape (m,), optional
        By default a tenth of n.
    """
    transform = learned(transform, "transform")
    matrix = transform.transform if isinstance(transform, LearnResult) else np.asarray(transform)
    engine = engine_for(signals)
    sparsity = checked_sparsity(n_nonzero_coefs, engine)
    with single_threaded_blas():
        statistics = engine.run_pass(matrix, sparsity)
        inverse = _inverse(matrix.astype(np.float64))
        lost = math.sqrt(engine.lost_energy(matrix, inverse, sparsity))
    coef_energy = statistics.code_energy + statistics.discarded_energy
    signal_norm = math.sqrt(np.trace(statistics.gram))
    absolute = math.sqrt(statistics.discarded_energy)
    return Evaluation(
        absolute=absolute / engine.scale,
        relative=absolute / math.sqrt(coef_energy) if coef_energy else 0.0,
        reconstruction=lost / signal_norm if signal_norm else 0.0,
    )


def checked_sparsity(n_nonzero: Any, engine: Engine) -> int | NDArray:
    """Sparsity of the codes: the default where None is given, an error where none is possible."""
    if n_nonzero is None:
        return max(1, round(0.1 * engine.n_features))
    name = "n_nonzero_coefs"
    if np.ndim(n_nonzero) == 0 and np.asarray(n_nonzero).dtype.kind not in "iu":
        raise TypeError(
            f"{name}={n_nonzero!r}: give an integer, or None for a tenth of the features."
        )
    sparsity = as_sparsity(n_nonzero, engine.n_signals, name)
    check_at_most(sparsity, engine.n_features, name)
    return int(sparsity[0]) if np.ndim(n_nonzero) == 0 else np.array(n_nonzero)


def _inverse(matrix: NDArray) -> NDArray:
    spectrum = svd(matrix)[1]
    # Half of what the bound on a learned transform leaves at least.
    if spectrum[-1] <= 0.5 * len(matrix) * float(np.finfo(np.float64).eps) * spectrum[0]:
        raise ValueError(
            f"transform is singular (singular values from {spectrum[0]:.3g} to "
            f"{spectrum[-1]:.3g}): signals cannot be rebuilt from its codes, give a regular one."
        )
    return np.linalg.inv(matrix)
