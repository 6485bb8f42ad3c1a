"""The three errors of a transform on given signals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import as_sparsity, as_transform, check_at_most
from kappaform.engines import Engine, engine_for
from kappaform.learning.result import LearnResult, learned
from kappaform.linalg import inverse_factors
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
    given = transform.transform if isinstance(transform, LearnResult) else transform
    engine = engine_for(signals)
    matrix = as_transform(given, engine.n_features)
    sparsity = checked_sparsity(n_nonzero_coefs, engine)
    with single_threaded_blas():
        energies = engine.energies(matrix, inverse_factors(matrix), sparsity)
    return Evaluation(energies.absolute, energies.relative, energies.reconstruction)


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
    return int(sparsity[0]) if np.ndim(n_nonzero) == 0 else np.array(sparsity)
