"""Errors over a parameter: paths in general, and the one over the bound on the condition number."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import Coding, as_real_array, check_choice, checked_coding, sparsity_of
from kappaform.engines import Engine, engine_for
from kappaform.errors import warn
from kappaform.learning.evaluate import energies_on
from kappaform.learning.learn import (
    MAX_ITER,
    Callback,
    Options,
    checked_method,
    checked_options,
    learn_on,
    single_sparsity,
    warn_of_little,
)
from kappaform.learning.method import Method, parameters_of
from kappaform.learning.methods import Conditioned
from kappaform.learning.race import Latest, result_of
from kappaform.learning.result import LearnResult
from kappaform.learning.starts import WarmStart

_EQUAL = 1e-6  # relative difference of errors that is not significant

ErrorName = Literal["reconstruction", "relative", "sparsification"]
_ERRORS = ("absolute", "sparsification", "relative", "reconstruction")  # in a table
_ABSOLUTE = "absolute"  # the name of the sparsification error in version 0.2


@dataclass(frozen=True, eq=False)
class Path(ABC):
    """Results over the values of a parameter, and their errors."""

    table: dict[str, NDArray]
    results: tuple[LearnResult, ...] = field(repr=False)
    choose_by: ErrorName = "reconstruction"

    parameter: ClassVar[str]  #: the column of its values, ascending

    @property
    def chosen(self) -> Any:
        errors = self.table.get(f"validation_{self.choose_by}")
        return None if errors is None else self[self.parameter][number_of_least(errors)].item()

    @property
    def best(self) -> Any:
        """The result of the value that was chosen, if there is one."""
        at = np.flatnonzero(self[self.parameter] == self.chosen)
        return self.results[at[0]] if len(at) and self.results else None

    def __getitem__(self, column: str) -> NDArray:
        if column not in self.table:
            raise KeyError(f"{column!r} is not a column: choose one of {tuple(self.table)}.")
        return self.table[column]

    def __str__(self) -> str:
        names = [name for name in self.table if not name.endswith("absolute")]
        columns = [self.table[name] for name in names]
        rows = [[f"{value:.6g}" for value in row] for row in zip(*columns, strict=True)]
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in [names, *rows]]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class ConditionPath(Path):
    """Transforms over a range of bounds, and their errors.

    Attributes
    ----------
    results : tuple of LearnResult
        One for each bound, in ascending order; none, if the table is a mean over folds.
    table : dict of arrays
        ``max_condition``, ``condition_number``, ``n_iter``; ``absolute``, ``relative``,
        ``reconstruction`` and ``sparsification`` errors on the signals; the same with the prefix
        ``validation_`` on the validation signals. The sparsification error is the absolute one
        divided by the norm of the signals, to which the reconstruction error is relative, too.
        ``pandas.DataFrame(path.table)`` makes a data frame of it; ``print(path)`` shows it without
        the absolute errors, which grow with the number of signals.
    choose_by : {"reconstruction", "relative", "sparsification"}
        The error that chooses a bound.
    chosen : float or None
        The bound with the least such error on the validation signals; of several the smallest.
        None without validation.
    """

    parameter = "max_condition"


PathT = TypeVar("PathT", bound=Path)


def number_of_least(errors: NDArray) -> int:
    """Index of the least error; the first, of the tightest bound, of those equal up to rounding."""
    return int(np.flatnonzero(errors <= (1 + _EQUAL) * errors.min())[0])


def condition_path(
    signals: Any,
    max_conditions: Sequence[float] | NDArray,
    *,
    n_nonzero_coefs: int | None = None,
    validation: Any = None,
    method: Method | None = None,
    coding: Coding = "refit",
    choose_by: ErrorName = "reconstruction",
    max_iter: int = MAX_ITER,
    tol: float = 1e-4,
    callback: Callback | None = None,
) -> ConditionPath:
    """Learn a transform for each bound on the condition number, to choose one.

    A looser bound always allows a lower error; its cost shows in the reconstruction error and on
    held-out signals. Each bound starts from the previous solution and from fresh initialisations,
    and the best is kept: with the monotone variant the loss never rises along the path.

    Parameters
    ----------
    signals : array of shape (m, n)
    max_conditions : sequence of floats >= 1, ascending
    n_nonzero_coefs : int, optional
        By default a tenth of n.
    validation : array of shape (m', n), optional
        Held-out signals. Their errors choose a bound, ``path.chosen``.
    method : Conditioned or custom method with a field max_condition, optional
        Everything except the bound: norm, objective, variant.
    coding : {"refit", "largest"}
        Codes whose reconstruction error is measured, on both sets of signals: those of the
        estimators, which reconstruct signals best, or the largest coefficients.
    choose_by : {"reconstruction", "relative", "sparsification"}
        The error of the validation signals by which a bound is chosen.
    max_iter, tol, callback
        As for `learn`, for each bound; a callback that returns True ends the path after this bound.

    Raises
    ------
    LearningInterrupted
        On Ctrl-C, with the result of the current bound (or the last one) as ``.result`` and
        those of the completed bounds as ``.finished``.
    SignalsUnreadable
        If signals on disk or on a cluster fail, with the same two attributes.
    MethodFailed
        If a custom method fails, with the same two attributes.

    Returns
    -------
    ConditionPath
        ``path.results`` are the results, ``path.table`` a dict of arrays: ``max_condition``,
        ``condition_number``, ``n_iter``, the errors ``absolute``, ``relative``,
        ``reconstruction`` and ``sparsification`` (the absolute one divided by the norm of the
        signals), and the same with the prefix ``validation_``. ``path["relative"]`` is one of them,
        ``print(path)`` shows those that do not depend on the number of signals. With validation
        signals, ``path.chosen`` is the bound with the least error, of several the smallest, and
        ``path.best`` its result.

    Notes
    -----
    Signals are read once for each pass of all bounds together (``n_passes`` of the results), and
    once more; validation signals once for each bound.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> train, validation = signals[::2], signals[1::2]
    >>> path = kf.condition_path(train, [1, 1.5, 3], n_nonzero_coefs=4, validation=validation)
    >>> bool((np.diff(path["absolute"]) <= 0).all())
    True
    >>> path.best.condition_number <= path.chosen * (1 + 1e-9)
    True
    """
    methods = methods_over(max_conditions, method)
    sparsity = single_sparsity(n_nonzero_coefs, "a path")
    options = checked_options(methods[0], sparsity, "auto", callback, max_iter, tol)
    measured = checked_coding(coding), checked_error(choose_by)
    return watched_path(engine_for(signals), validation, methods, options, *measured)


def watched_path(
    engine: Engine,
    validation: Any,
    methods: Sequence[Method],
    options: Options,
    coding: Coding,
    choose_by: ErrorName,
    kind: type[PathT] = ConditionPath,  # type: ignore[assignment]
) -> PathT:
    """A path that ends when the callback of the options returns True."""
    warn_of_little(engine, options.n_nonzero)
    others = None if validation is None else validation_engine(validation, engine.n_features)
    engines, stopped = (engine, others), False

    def watch(result: LearnResult) -> bool:
        nonlocal stopped
        stopped = bool(options.callback and options.callback(result))
        return stopped

    watched = options._replace(callback=options.callback and watch)
    return path_on(engines, methods, watched, coding, choose_by, kind, after_each=lambda _: stopped)


def path_on(
    engines: tuple[Engine, Engine | None],
    methods: Sequence[Method],
    options: Options,
    coding: Coding,
    choose_by: ErrorName,
    kind: type[PathT] = ConditionPath,  # type: ignore[assignment]
    *,
    after_each: Callable[[dict[str, float]], bool] = lambda _: False,
) -> PathT:
    """A path of methods on the signals of an engine, and on validation signals.

    `after_each` receives the row of the table after each method; returning True ends the path.
    """
    engine, _ = engines
    n_nonzero = int(sparsity_of(options.n_nonzero, engine.n_signals, engine.n_features))
    rows: list[dict[str, float]] = []
    latest = Latest()
    try:
        for method in methods:
            init = WarmStart(latest.finished[-1]) if latest.finished else "auto"
            race, reason = learn_on(engine, options._replace(method=method, init=init))
            # Its errors cost one more pass over the signals.
            result = result_of(replace(race, n_passes=race.n_passes + 1), reason)
            latest.finished += (result,)
            value = getattr(method, kind.parameter, math.nan)
            rows.append({kind.parameter: value} | _row(result, engines, n_nonzero, coding))
            if after_each(rows[-1]):
                break
        table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return kind(table, latest.finished, choose_by)
    except (Exception, KeyboardInterrupt) as error:
        latest.carry(error)
        raise


def mean_path(paths: Sequence[ConditionPath]) -> ConditionPath:
    """Mean of the tables of several paths over the same bounds."""
    table = {name: np.mean([path[name] for path in paths], axis=0) for name in paths[0].table}
    table["max_condition"] = paths[0]["max_condition"]  # a mean of equal numbers may be another
    return ConditionPath(table, (), paths[0].choose_by)


def methods_over(max_conditions: Any, method: Any = None) -> list[Method]:
    """A method with each of the bounds."""
    method = Conditioned() if method is None else method
    if not isinstance(method, Method) or "max_condition" not in parameters_of(method):
        raise TypeError(
            f"method={method!r}: give Conditioned(...), or a custom method with a field "
            "max_condition; the path varies this bound."
        )
    bounds = values_of(max_conditions, "max_conditions", "bound").astype(np.float64)
    methods = [_bounded(method, bound) for bound in bounds.tolist()]
    check_ascending(bounds, "max_conditions", "bound")
    return methods


def values_of(given: Any, name: str, what: str) -> NDArray:
    """The values of a parameter along a path."""
    values = np.atleast_1d(as_real_array(given, name))
    if values.ndim != 1 or values.size == 0:
        how = "empty" if values.size == 0 else f"of shape {values.shape}"
        raise ValueError(f"{name} is {how}: give a sequence of at least one {what} >= 1.")
    return values


def check_ascending(values: NDArray, name: str, what: str) -> None:
    for before, value in pairwise(values):
        if value <= before:
            how = "repeats" if value == before else "is not above"
            raise ValueError(
                f"{name} has {value:g} after {before:g}, which it {how}: give each {what} "
                f"once, in ascending order, {np.unique(values).tolist()}."
            )


def _bounded(method: Any, bound: float) -> Method:
    try:
        return checked_method(replace(method, max_condition=bound))
    except ValueError as error:
        raise ValueError(f"max_conditions has {bound:g}: {error}") from error


def checked_error(choose_by: Any) -> ErrorName:
    """The name of an error, also by its former name."""
    if choose_by == _ABSOLUTE:
        warn(
            "choose_by='absolute' is now called 'sparsification': the absolute error divided by "
            "the norm of the signals. The former name will be removed.",
            DeprecationWarning,
        )
        return "sparsification"
    check_choice("choose_by", choose_by, get_args(ErrorName))
    return choose_by


def validation_engine(validation: Any, n_features: int) -> Engine:
    """The engine of validation signals.

    What is in memory is checked here: otherwise NaN would be found after everything was learned.
    """
    engine = engine_for(validation, "validation")
    if engine.n_features != n_features:
        raise ValueError(
            f"validation has {engine.n_features} features: its signals must have {n_features}, as "
            "the others."
        )
    engine.check_in_memory()
    return engine


def _row(
    result: LearnResult, engines: tuple[Engine, Engine | None], n_nonzero: int, coding: Coding
) -> dict[str, float]:
    """The row of the table for one result, without the parameter."""
    row: dict[str, float] = {
        "condition_number": result.condition_number,
        "n_iter": result.n_iter,
    }
    for prefix, data in zip(("", "validation_"), engines, strict=True):
        if data is not None:
            energies = energies_on(data, result, n_nonzero, coding)
            row |= {f"{prefix}{name}": getattr(energies, name) for name in _ERRORS}
    return row
