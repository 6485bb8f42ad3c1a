"""The trade-off curve: errors over the bound on the condition number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import as_real_array
from kappaform.engines import SignalsUnreadable, engine_for
from kappaform.learning.evaluate import Evaluation, checked_sparsity, evaluate
from kappaform.learning.learn import check_callback, learn
from kappaform.learning.methods import Conditioned
from kappaform.learning.result import LearningInterrupted, LearnResult


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
            raise KeyError(f"{column!r} is no column: choose one of {tuple(self.table)}.")
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
    """
    methods = _methods(method, max_conditions)
    check_callback(callback)
    engine = engine_for(signals)
    n_nonzero = checked_sparsity(n_nonzero_coefs, engine)
    if not isinstance(n_nonzero, int):
        raise ValueError("n_nonzero_coefs is an array: the path uses one sparsity for all signals.")
    if validation is not None:
        _check_validation(validation, engine.n_features)
    stopped = False

    def watch(result: LearnResult) -> bool:
        nonlocal stopped
        stopped = bool(callback(result)) if callback is not None else False
        return stopped

    limits: dict[str, Any] = {
        "n_nonzero_coefs": n_nonzero,
        "max_iter": max_iter,
        "tol": tol,
        "callback": watch,
    }
    results: list[LearnResult] = []
    try:
        for one in methods:
            init = (results[-1], "auto") if results else "auto"
            results.append(learn(signals, one, init=init, **limits))
            if stopped:
                break
        return ConditionPath(
            _table(results, methods, signals, validation, n_nonzero), tuple(results)
        )
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


def _check_validation(validation: Any, n_features: int) -> None:
    engine = engine_for(validation, "validation")
    if engine.n_features != n_features:
        raise ValueError(
            f"validation has {engine.n_features} features: its signals must have {n_features}, as "
            "the others."
        )
    _ = engine.gram  # refuses signals that are not finite


def _table(
    results: list[LearnResult],
    methods: list[Conditioned],
    signals: Any,
    validation: Any,
    n_nonzero: int,
) -> dict[str, NDArray]:
    columns: dict[str, list[Any]] = {
        "max_condition": [method.max_condition for method in methods[: len(results)]],
        "condition_number": [result.condition_number for result in results],
        "n_iter": [result.n_iter for result in results],
    }
    for prefix, data in (("", signals), ("validation_", validation)):
        if data is not None:
            errors = [evaluate(data, result, n_nonzero) for result in results]
            for name, values in zip(Evaluation._fields, zip(*errors, strict=True), strict=True):
                columns[prefix + name] = list(values)
    return {name: np.array(values) for name, values in columns.items()}
