"""The three errors of a transform."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import Coding, as_transform, checked_coding, sparsity_of
from kappaform.engines import Engine, Refit, engine_for, refit_of
from kappaform.learning.result import LearnResult, transform_of
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
    transform : (n, n) array, LearnResult or fitted estimator
        It may have any scale, but must not be singular.
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
    return evaluate_on(
        engine,
        as_transform(transform_of(transform, "transform"), engine.n_features),
        sparsity_of(n_nonzero_coefs, engine.n_signals, engine.n_features),
        coding,
    )


def evaluate_on(
    engine: Engine, matrix: NDArray, n_nonzero: int | NDArray, coding: Coding
) -> Evaluation:
    with single_threaded_blas():
        some_are_left = np.min(n_nonzero) < engine.n_features
        refit = refit_of(matrix) if coding == "refit" and some_are_left else None
        energies = engine.energies(matrix, scaled_inverse(matrix), n_nonzero, refit)
    return Evaluation(energies.absolute, energies.relative, energies.reconstruction)


def errors_on(
    engine: Engine, result: LearnResult, n_nonzero: int | NDArray, coding: Coding
) -> Evaluation:
    """Errors of a result: with the transforms of a union, each signal in that of its own."""
    if not isinstance(result, UnionResult):
        return evaluate_on(engine, result.transform, n_nonzero, coding)
    with single_threaded_blas():
        some_are_left = np.min(n_nonzero) < engine.n_features
        nothing: list[Refit | None] = [None] * len(result.transform)
        refits = result.refit if coding == "refit" and some_are_left else nothing
        energies = engine.union_energies(result.union, result.inverses, n_nonzero, refits)
    return Evaluation(energies.absolute, energies.relative, energies.reconstruction)
