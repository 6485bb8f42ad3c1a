"""The estimator that chooses the bound on the condition number by data."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Literal, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.model_selection import check_cv

from kappaform.checks import Coding
from kappaform.engines import Engine, engine_for
from kappaform.engines.rows import take_rows
from kappaform.estimators.base import SparsifyingTransform
from kappaform.learning import (
    Conditioned,
    ConditionPath,
    LearningInterrupted,
    LearnResult,
    Method,
)
from kappaform.learning.learn import Callback, Options, warn_of_little
from kappaform.learning.methods import Objective, Variant
from kappaform.learning.path import (
    ErrorName,
    checked_error,
    mean_path,
    methods_over,
    path_on,
    validation_engine,
)
from kappaform.learning.starts import WarmStart
from kappaform.learning.stream import Forgetting
from kappaform.threads import at_most_threads, n_threads

BOUNDS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
# Folds only choose: they stop at this many times the tolerance, at most at this one, and never
# below the tolerance itself (docs/mathematics.md, section 9, has their errors with both).
_COARSER, _COARSEST = 5, 5e-4


@dataclass(eq=False, repr=False, kw_only=True)
class ConditionedTransformCV(SparsifyingTransform):
    """A :class:`ConditionedTransform` whose bound is chosen by cross-validation.

    For each fold a path over the bounds is learned from the other folds, each bound starting from
    the previous solution. The bound with the least mean error on the held-out folds is chosen, and
    the transform is learned from all signals, starting from the best solution of a fold and from
    fresh initialisations. Folds stop at five times `tol`, or at 5e-4 if that is less, but never
    below `tol` itself; no fold uses the solution of another.
    With ``fit(X, validation=others)`` these signals choose instead, and one path is learned.

    There is no `partial_fit`. A file holds the transform with its bound: `load` returns a
    :class:`ConditionedTransform`.

    Parameters
    ----------
    n_nonzero_coefs : int, optional
        Nonzero coefficients of a code. By default a tenth of the features, at least 1.
    max_conditions : sequence of floats >= 1, ascending
        Bounds to choose from.
    cv : int, splitter of scikit-learn or iterable, optional
        Number of folds, by default 5, of rows that follow one another; or how to split. Signals
        that are sorted are better shuffled, ``KFold(5, shuffle=True)``.
    choose_by : {"reconstruction", "relative", "sparsification"}
        The error on held-out signals that chooses: that of reconstructed signals; that of the codes
        relative to the coefficients; or that of the codes relative to the signals. The last two
        tend to decrease as long as the bound grows.
    norm, objective, variant, n_rounds, max_iter, tol
        As for :class:`ConditionedTransform`, for every bound.
    coding, sparse_output
        As for :class:`ConditionedTransform`. The reconstruction error that chooses is that of the
        same codes.
    n_jobs : int, optional
        Number of folds that are learned at the same time, in threads; -1 uses every core. Results
        have the same bits for any number.
    callback : callable, optional
        Called after every iteration of every bound and fold with the LearnResult so far; returning
        True ends learning with this bound. With several jobs it is called from their threads.
    verbose : int
        Above 0 a line is printed for every fold and bound, with its error, and for the choice;
        above 1 for every iteration, too.

    Attributes
    ----------
    max_condition_ : float
        The bound that was chosen.
    condition_path_ : ConditionPath
        Errors over the bounds, their means over the folds; :func:`kappaform.plots.plot_path` draws
        it and marks the choice.
    fold_paths_ : tuple of ConditionPath
        One for each fold, with the transforms that were learned.
    components_, singular_values_, condition_number_, loss_curve_, n_iter_, n_nonzero_coefs_, ...
        As of :class:`ConditionedTransform`, learned with the bound that was chosen.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> chooser = kf.ConditionedTransformCV(3, max_conditions=(1, 2, 4), cv=2, tol=1e-2)
    >>> chooser = chooser.fit(signals)
    >>> bool(chooser.condition_number_ <= chooser.max_condition_ * (1 + 1e-9))
    True
    >>> kf.plots.plot_path(chooser.condition_path_).savefig("choice.png")
    """

    max_conditions: Any = BOUNDS
    cv: Any = None
    choose_by: ErrorName = "reconstruction"
    norm: float | Literal["auto"] | None = "auto"
    objective: Objective = "absolute"
    variant: Variant = "monotone"
    n_rounds: int = 5
    coding: Coding = "refit"
    n_jobs: int | None = None
    init: Any = field(default="auto", init=False)  # no parameters here
    forgetting: Forgetting = field(default="auto", init=False)

    _specification = Conditioned
    _streams = False
    _prints_iterations = 2

    def fit(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:  # noqa: ARG002
        """Choose the bound, and learn the transform of signals, one per row.

        With `validation`, other signals to measure on, these choose: one path is learned, from all
        of `X`, and `cv` has no effect. Ctrl-C raises LearningInterrupted, which carries what one of
        the folds has learned (KeyboardInterrupt if no fold has done an iteration); once the choice
        is made, it carries the transform, which is kept. Until then the estimator stays as it was.
        """
        options = self._fit_options()
        methods = methods_over(self.max_conditions, options.method)
        error = checked_error(self.choose_by)
        n_jobs = self._jobs()
        signals, features = self._received(X, reset=True)
        engine = engine_for(signals)
        warn_of_little(engine, options.n_nonzero)
        if validation is not None:
            engines = engine, validation_engine(validation, engine.n_features)
            path = self._path(engines, methods, options, error, "validation")
            return self._take_best(path, engine, features)
        folds = self._folds(engine.n_signals)
        paths = self._paths(signals, folds, methods, options, error, min(n_jobs, len(folds)))
        mean = mean_path(paths)
        chosen = int(np.flatnonzero(mean["max_condition"] == mean.chosen)[0])
        if self.verbose:
            self._say(f"max_condition={mean.chosen:g} has the least {error} error")
        errors = [path[f"validation_{error}"][chosen] for path in paths]
        found = paths[int(np.argmin(errors))].results[chosen]
        options = options._replace(method=methods[chosen], init=WarmStart(found))
        return self._learn(engine, options, features | _choice(mean, paths))

    def _paths(
        self,
        signals: Any,
        folds: list[tuple[Any, Any]],
        methods: list[Method],
        options: Options,
        error: ErrorName,
        n_jobs: int,
    ) -> tuple[ConditionPath, ...]:
        """The path of each fold, in the order of the folds."""
        options = options._replace(tol=max(self.tol, min(_COARSER * self.tol, _COARSEST)))
        n_threads_each, is_over = max(1, n_threads() // n_jobs), Event()
        if n_jobs > 1:
            options = options._replace(callback=_until(is_over, options.callback))

        def work(number: int, rows: tuple[Any, Any]) -> ConditionPath:
            train, test = (engine_for(take_rows(signals, each)) for each in rows)
            with at_most_threads(n_threads_each):
                where = f"fold {number} of {len(folds)}"
                return self._path((train, test), methods, options, error, where, is_over)

        paths: list[ConditionPath] = []
        if n_jobs == 1:
            try:
                for each in enumerate(folds, 1):
                    paths.append(work(*each))
            except KeyboardInterrupt as interrupt:
                raise _carrying(interrupt, paths) from None
            return tuple(paths)
        with ThreadPoolExecutor(n_jobs, thread_name_prefix="kappaform") as pool:
            running: list[Future[ConditionPath]] = []
            try:
                running += (pool.submit(work, *each) for each in enumerate(folds, 1))
                for future in as_completed(running):
                    future.result()  # or its error, as soon as there is one
            except BaseException as error:  # Ctrl-C too: the others end with their iteration
                is_over.set()
                pool.shutdown(cancel_futures=True)
                if isinstance(error, KeyboardInterrupt):
                    raise _carrying(error, map(_outcome, running)) from None
                raise
        return tuple(future.result() for future in running)

    def _path(
        self,
        engines: tuple[Engine, Engine],
        methods: list[Method],
        options: Options,
        error: ErrorName,
        where: str,
        is_over: Event | None = None,
    ) -> ConditionPath:
        """The path of a fold, or of given validation signals."""

        def after_each(row: dict[str, float]) -> bool:
            if self.verbose:
                bound, value = row["max_condition"], row[f"validation_{error}"]
                self._say(f"{where}, max_condition={bound:g}: {error} error {value:.6g}")
            _end_if(is_over)
            return False

        return path_on(engines, methods, options, self.coding, error, after_each=after_each)

    def _jobs(self) -> int:
        """Folds to learn at the same time, as joblib counts them."""
        try:
            return int(effective_n_jobs(self.n_jobs))
        except (TypeError, ValueError):
            raise ValueError(
                f"n_jobs={self.n_jobs!r}: give a number of jobs >= 1, -1 for as many as there are "
                "cores, or None for one."
            ) from None

    def _take_best(self, path: ConditionPath, engine: Engine, features: dict[str, Any]) -> Self:
        result = path.best
        assert result is not None  # validation signals have chosen it
        self._take(result, result.state, engine.dtype, features | _choice(path, (path,)))
        self._warn_if_not_converged()
        return self

    def _folds(self, n_signals: int) -> list[tuple[Any, Any]]:
        """Numbers of the rows to learn from and of those to measure on, for each fold."""
        is_number = isinstance(self.cv, int | np.integer)
        folds = 5 if self.cv is None else self.cv
        if (self.cv is None or is_number) and not 2 <= folds <= n_signals:
            default = "" if is_number else ", 5 folds,"
            raise ValueError(
                f"cv={self.cv!r}{default} with {n_signals} sample(s): give at least 2 folds, and "
                "no more than there are signals."
            )
        splits = list(check_cv(folds).split(np.empty(n_signals)))
        if not splits or any(len(train) == 0 or len(test) == 0 for train, test in splits):
            raise ValueError(f"cv={self.cv!r} leaves a fold without signals: give other splits.")
        return [(np.sort(train), np.sort(test)) for train, test in splits]

    def _method(self) -> Method:
        """The method with the bound that was chosen, or before that with the default one."""
        bound = getattr(self, "max_condition_", 2.0)
        return Conditioned(bound, self.norm, self.objective, self.variant, self.n_rounds)


def _until(is_over: Event, callback: Callback | None) -> Callback:
    """The callback, which also interrupts its fold once an event has come."""

    def called(result: LearnResult) -> bool:
        stops = bool(callback and callback(result))
        _end_if(is_over)
        return stops

    return called


def _end_if(is_over: Event | None) -> None:
    if is_over is not None and is_over.is_set():
        raise KeyboardInterrupt


def _outcome(future: Future[ConditionPath]) -> ConditionPath | BaseException | None:
    """What a fold ended with; None if it was never begun."""
    return None if future.cancelled() else future.exception() or future.result()


def _carrying(interrupt: KeyboardInterrupt, outcomes: Iterable[Any]) -> KeyboardInterrupt:
    """An interrupt with the result of a fold: of the interrupted one, or of the first with one."""
    found = [interrupt, *outcomes]
    for one in found:
        if isinstance(one, LearningInterrupted):
            return one
    for one in found:
        if isinstance(one, ConditionPath):
            return LearningInterrupted(one.results[-1], one.results)
    return interrupt


def _choice(path: ConditionPath, folds: tuple[ConditionPath, ...]) -> dict[str, Any]:
    return {"max_condition_": path.chosen, "condition_path_": path, "fold_paths_": folds}
