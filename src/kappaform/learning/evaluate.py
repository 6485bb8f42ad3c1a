"""The three errors of a transform, and how they change with the bound on its condition number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import as_real_array, as_transform, sparsity_of
from kappaform.engines import Engine, SignalsUnreadable, engine_for
from kappaform.learning.learn import learn_on
from kappaform.learning.methods import Conditioned, checked_options, one_sparsity
from kappaform.learning.result import LearningInterrupted, LearnResult, learned
from kappaform.learning.state import result_of
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
) -> Evaluation:
    """Absolute, relative and reconstruction error of a transform with its codes of `signals`.

    Parameters
    ----------
    signals : array of shape (m, n)
    transform : (n, n) array, LearnResult or fitted estimator
        Of any scale, but not singular.
    n_nonzero_coefs : int or array of shape (m,), optional
        By default a tenth of n.

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
    given = learned(transform, "transform")
    matrix = given.transform if isinstance(given, LearnResult) else given
    engine = engine_for(signals)
    return _evaluated(
        engine,
        as_transform(matrix, engine.n_features),
        sparsity_of(n_nonzero_coefs, engine.n_signals, engine.n_features),
    )


def _evaluated(engine: Engine, matrix: NDArray, n_nonzero: int | NDArray) -> Evaluation:
    with single_threaded_blas():
        energies = engine.energies(matrix, scaled_inverse(matrix), n_nonzero)
    return Evaluation(energies.absolute, energies.relative, energies.reconstruction)


@dataclass(frozen=True, eq=False)
class ConditionPath:
    """Transforms over a range of bounds, and their errors.

    Attributes
    ----------
    results : tuple of LearnResult
        One for each bound, in ascending order.
    table : dict of arrays
        ``max_condition``, ``condition_number``, ``n_iter``; ``absolute``, ``relative`` and
        ``reconstruction`` errors on the signals; the same with the prefix ``validation_`` on the
        validation signals. The reconstruction error is relative to the norm of the signals.
        ``pandas.DataFrame(path.table)`` makes a data frame of it, ``print(path)`` shows it.
    """

    table: dict[str, NDArray]
    results: tuple[LearnResult, ...] = field(repr=False)

    def __getitem__(self, column: str) -> NDArray:
        if column not in self.table:
            raise KeyError(f"{column!r} is not a column: choose one of {tuple(self.table)}.")
        return self.table[column]

    def __str__(self) -> str:
        names = list(self.table)
        rows = [[f"{value:.6g}" for value in row] for row in zip(*self.table.values(), strict=True)]
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in [names, *rows]]
        return "\n".join(lines)


def condition_path(
    signals: Any,
    max_conditions: Sequence[float] | NDArray,
    *,
    n_nonzero_coefs: int | None = None,
    validation: Any = None,
    method: Conditioned | None = None,
    max_iter: int = 100,
    tol: float = 1e-4,
    callback: Callable[[LearnResult], bool | None] | None = None,
) -> ConditionPath:
    """Learn a transform for each bound on the condition number, to choose one.

    A looser bound always allows a lower error; what it costs shows in the reconstruction error and
    on signals that were not learned from. Bounds are taken in ascending order, and each explores
    what the one before it found beside fresh starts: with the monotone variant the loss never rises
    along the path.

    Parameters
    ----------
    signals : array of shape (m, n)
    max_conditions : sequence of floats >= 1
    n_nonzero_coefs : int, optional
        By default a tenth of n.
    validation : array of shape (m', n), optional
        Signals to measure on that are not learned from.
    method : Conditioned, optional
        Everything but the bound: norm, objective, variant.
    max_iter, tol, callback
        As for `learn`, for each bound; a callback that returns True ends the path after this bound.

    Raises
    ------
    LearningInterrupted
        On Ctrl-C, with the result of the bound it came at (or the last one) as ``.result`` and
        those of the bounds that were done as ``.finished``.
    SignalsUnreadable
        If signals on disk or on a cluster fail, with the same two.

    Returns
    -------
    ConditionPath
        ``path.results`` are the results, ``path.table`` a dict of arrays: ``max_condition``,
        ``condition_number``, ``n_iter``, the errors ``absolute``, ``relative`` and
        ``reconstruction``, and the same with the prefix ``validation_``. ``path["absolute"]`` is
        one of them, ``print(path)`` shows all.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> train, validation = signals[::2], signals[1::2]
    >>> path = kf.condition_path(train, [1, 1.5, 3], n_nonzero_coefs=4, validation=validation)
    >>> best = path.results[np.argmin(path["validation_reconstruction"])]
    >>> bool((np.diff(path["absolute"]) <= 0).all())
    True
    """
    methods = _methods(method, max_conditions)
    sparsity = one_sparsity(n_nonzero_coefs, "a path")
    stopped = False

    def watch(result: LearnResult) -> bool:
        nonlocal stopped
        stopped = bool(callback(result)) if callback is not None else False
        return stopped

    options = checked_options(methods[0], sparsity, "auto", callback, max_iter=max_iter, tol=tol)
    options = options._replace(callback=callback and watch)
    engine = engine_for(signals)
    n_nonzero = int(sparsity_of(sparsity, engine.n_signals, engine.n_features))
    others = None if validation is None else _validation_engine(validation, engine.n_features)
    results: list[LearnResult] = []
    rows: list[dict[str, float]] = []
    try:
        for one in methods:
            init = (results[-1], "auto") if results else "auto"
            state, reason = learn_on(engine, options._replace(method=one, init=init))
            # Its errors cost one more pass over the signals.
            result = result_of(replace(state, n_passes=state.n_passes + 1), reason)
            results.append(result)
            rows.append(_row(result, engine, others, n_nonzero))
            if stopped:
                break
        table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return ConditionPath(table, tuple(results))
    except KeyboardInterrupt as interrupt:
        current = getattr(interrupt, "result", results[-1] if results else None)
        if current is None:
            raise
        raise LearningInterrupted(current, tuple(results)) from None
    except SignalsUnreadable as error:
        error.result = error.result or (results[-1] if results else None)
        error.finished = tuple(results)
        raise


def _methods(method: Any, max_conditions: Any) -> list[Conditioned]:
    """The method with each of the bounds, in ascending order."""
    method = Conditioned() if method is None else method
    if not isinstance(method, Conditioned):
        raise TypeError(f"method={method!r}: give Conditioned(...), the path varies its bound.")
    bounds = np.unique(as_real_array(max_conditions, "max_conditions"))
    if bounds.size == 0:
        raise ValueError("max_conditions is empty: give at least one bound >= 1.")
    return [replace(method, max_condition=bound) for bound in bounds.astype(np.float64).tolist()]


def _validation_engine(validation: Any, n_features: int) -> Engine:
    engine = engine_for(validation, "validation")
    if engine.n_features != n_features:
        raise ValueError(
            f"validation has {engine.n_features} features: its signals must have {n_features}, as "
            "the others."
        )
    return engine


def _row(
    result: LearnResult, engine: Engine, others: Engine | None, n_nonzero: int
) -> dict[str, float]:
    """What a table says of one bound."""
    row = {
        "max_condition": getattr(result.method, "max_condition", math.nan),
        "condition_number": result.condition_number,
        "n_iter": result.n_iter,
    }
    for prefix, data in (("", engine), ("validation_", others)):
        if data is not None:
            errors = _evaluated(data, result.transform, n_nonzero)._asdict()
            row |= {f"{prefix}{name}": value for name, value in errors.items()}
    return row
