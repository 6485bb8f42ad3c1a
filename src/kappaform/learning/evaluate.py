"""The three errors of a transform."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import Coding, as_transform, checked_coding, sparsity_of
from kappaform.engines import Energies, Engine, engine_for, refit_of
from kappaform.learning.result import LearnResult, learned, transform_of
from kappaform.learning.union_result import UnionResult
from kappaform.linalg import scaled_inverse
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
    *,
    coding: Coding = "largest",
) -> Evaluation:
    """Absolute, relative and reconstruction error of a transform with its codes of `signals`.

    Parameters
    ----------
    signals : array of shape (m, n)
    transform : (n, n) array, LearnResult, UnionResult or fitted estimator
        It may have any scale, but must not be singular. With a union, each signal is coded in the
        transform that it belongs to.
    n_nonzero_coefs : int or array of shape (m,), optional
        By default a tenth of n.
    coding : {"largest", "refit"}
        Codes from which signals are reconstructed: the largest coefficients, or those that
        reconstruct best, as in the estimators. The other two errors are always those of the largest
        coefficients.

    Returns
    -------
    Evaluation
        A tuple of the three, by name: ``absolute`` is ‖X − YWᵀ‖_F, ``relative`` the same over
        ‖YWᵀ‖_F, and ``reconstruction`` is ‖Y − XW⁻ᵀ‖_F / ‖Y‖_F: what a user of the codes sees.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> errors = kf.evaluate(signals, kf.dct_basis(16), n_nonzero_coefs=4)
    >>> bool(np.isclose(errors.relative, errors.reconstruction))  # as this one is orthonormal
    True
    """
    coding = checked_coding(coding)
    engine = engine_for(signals)
    n_nonzero = sparsity_of(n_nonzero_coefs, engine.n_signals, engine.n_features)
    found = learned(transform, "transform")
    if not isinstance(found, UnionResult):
        found = as_transform(transform_of(found, "transform"), engine.n_features)
    elif found.transforms.shape[-1] != engine.n_features:
        raise ValueError(
            f"transform is a union of transforms of {found.transforms.shape[-1]} features: signals "
            f"have {engine.n_features}."
        )
    energies = energies_on(engine, found, n_nonzero, coding)
    return Evaluation(energies.absolute, energies.relative, energies.reconstruction)


def energies_on(
    engine: Engine, transform: NDArray | LearnResult, n_nonzero: int | NDArray, coding: Coding
) -> Energies:
    """The energies of the errors of a matrix or of what was learned, and of the signals."""
    refits = coding == "refit" and bool(np.min(n_nonzero) < engine.n_features)
    with single_threaded_blas():
        if isinstance(transform, UnionResult):
            each: Any = transform.refit if refits else [None] * len(transform.transforms)
            return engine.union_energies(transform.union, transform.inverses, n_nonzero, each)
        matrix: Any = getattr(transform, "transform", transform)
        refit = refit_of(matrix) if refits else None
        return engine.energies(matrix, scaled_inverse(matrix), n_nonzero, refit)
