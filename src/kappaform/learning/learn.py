"""The alternating minimisation: a pass over the data, an update of the transform, and again."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Engine, SignalsUnreadable, Statistics, engine_for
from kappaform.learning.evaluate import checked_sparsity
from kappaform.learning.methods import Conditioned, LogDet, Method, Orthonormal
from kappaform.learning.problem import Problem
from kappaform.learning.result import LearningInterrupted, LearnResult, StopReason, learned
from kappaform.learning.search import Descent, Search, evaluated, step, without_statistics
from kappaform.learning.starts import starts_for
from kappaform.learning.updates import as_matrix
from kappaform.threads import single_threaded_blas

Callback = Callable[[LearnResult], bool | None]


def learn(
    signals: Any,
    method: Method | None = None,
    *,
    n_nonzero_coefs: int | NDArray | None = None,
    init: Any = "auto",
    max_iter: int = 100,
    tol: float = 1e-4,
    callback: Callback | None = None,
) -> LearnResult:
    """Learn a square transform under which signals are sparse.

    Alternates between the codes, the largest coefficients of every signal, and the transform.

    Parameters
    ----------
    signals : array of shape (m, n)
        One signal per row, float32 or float64, in any memory layout: an array, also memory-mapped,
        a dataset of HDF5 or Zarr, a Dask array in blocks of whole rows, or a torch tensor.
    method : Conditioned, LogDet or Orthonormal
        By default ``Conditioned()``.
    n_nonzero_coefs : int or array of shape (m,), optional
        Nonzero coefficients of a code, for all signals or for each. By default a tenth of n.
    init : {"auto", "dct", "identity", "least-squares", "procrustes"}, array, LearnResult or tuple
        Where to start. "auto" is the cosine basis, but for the monotone conditioned method the
        best of two or three explored starts (for bounds above 16, within about 250
        iterations). An array, its largest entry between 1e-6 and 1e6, is moved to
        an admissible transform near it. A LearnResult of the same method and sparsity, or a fitted
        estimator that has one, is resumed, bitwise as if it had never stopped; any other gives its
        transform. A tuple of these: each is explored, the best goes on.
    max_iter : int
        Iterations at most, exploration included.
    tol : float
        Stop when the loss changes by no more than this fraction.
    callback : callable, optional
        Called after every iteration with the LearnResult so far; returning True stops.

    Returns
    -------
    LearnResult

    Raises
    ------
    LearningInterrupted
        On Ctrl-C: a KeyboardInterrupt that carries what was learned as ``.result``.
    SignalsUnreadable
        An OSError, if signals on disk or on a cluster fail: it too carries what was learned.
    """
    method = checked_method(method)
    check_options(max_iter, tol)
    check_callback(callback)
    return learn_on(
        engine_for(signals),
        method,
        n_nonzero_coefs=n_nonzero_coefs,
        init=init,
        max_iter=max_iter,
        tol=tol,
        callback=callback,
    )[0]


def learn_on(
    engine: Engine,
    method: Method,
    *,
    n_nonzero_coefs: int | NDArray | None,
    init: Any,
    max_iter: int,
    tol: float,
    callback: Callback | None,
) -> tuple[LearnResult, Statistics | None]:
    """`learn` on the signals of an engine, with checked options.

    Beside the result, which is small, the statistics of its transform: a stream can go on there.
    None, if a resumed search ended at a transform that it had found before.
    """
    n_nonzero = checked_sparsity(n_nonzero_coefs, engine)
    with single_threaded_blas():
        problem = Problem(engine, method, n_nonzero, float(tol))
        return _run(problem, _search_from(init, problem), int(max_iter), callback)


def checked_method(method: Any) -> Method:
    method = Conditioned() if method is None else method
    if not isinstance(method, Orthonormal | LogDet | Conditioned):
        raise TypeError(f"method={method!r}: give Conditioned(...), LogDet(...) or Orthonormal().")
    return method


def check_options(max_iter: Any, tol: float) -> None:
    if not isinstance(max_iter, numbers.Integral) or max_iter < 1:
        raise ValueError(f"max_iter={max_iter!r}: give a number of iterations >= 1.")
    if not isinstance(tol, numbers.Real) or not 0 <= tol < math.inf:
        raise ValueError(f"tol={tol!r}: give a finite number >= 0 (0 runs until nothing changes).")


def check_callback(callback: Any) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r}: give a function of a LearnResult, or None.")


def _search_from(init: Any, problem: Problem) -> Search:
    init = learned(init, "init")
    resumable = isinstance(init, LearnResult) and isinstance(init.search, Search)
    if resumable and init.method == problem.method:
        same_size = init.transform.shape == problem.engine.gram.shape
        if same_size and np.array_equal(init.n_nonzero_coefs, problem.n_nonzero):
            return init.search
    starts = starts_for(init, problem.method, problem.engine.n_features, problem.run_pass)
    return Search(tuple(Descent(*start) for start in starts))


def _run(
    problem: Problem, search: Search, max_iter: int, callback: Callback | None
) -> tuple[LearnResult, Statistics | None]:
    reason = StopReason.MAX_ITER
    try:
        search = evaluated(search, problem)
        for _ in range(max_iter):
            previous, search = search, step(search, problem)
            stop = _stop_reason(previous, search, problem)
            if callback is not None and callback(_result(problem, search, StopReason.RUNNING)):
                stop = stop or StopReason.CALLBACK
            if stop:
                reason = stop
                break
    except KeyboardInterrupt:
        if not search.best.records:
            raise
        raise LearningInterrupted(_result(problem, search, StopReason.INTERRUPTED)) from None
    except SignalsUnreadable as error:
        if search.best.records:
            error.result = _result(problem, search, StopReason.INTERRUPTED)
        raise
    return _result(problem, search, reason), search.best.statistics


def _stop_reason(previous: Search, search: Search, problem: Problem) -> StopReason | None:
    if problem.is_exact(search.best.records[-1]):
        return StopReason.EXACT
    if previous.explores:
        return None
    if search.rose:
        return StopReason.ROSE
    old, new = previous.descent.loss, search.descent.loss
    return StopReason.TOLERANCE if abs(old - new) <= problem.tol * abs(old) else None


def _result(problem: Problem, search: Search, reason: StopReason) -> LearnResult:
    best, n_passes = search.best, search.n_passes + problem.n_passes
    # A pass finds the statistics again: results are small without.
    lines = tuple(map(without_statistics, search.descents))
    return LearnResult(
        transform=as_matrix(best.transform),
        method=problem.method,
        n_nonzero_coefs=problem.n_nonzero,
        n_iter=search.n_iter,
        n_passes=n_passes,
        stop_reason=reason,
        records=best.records,
        search=replace(search, descents=lines, n_passes=n_passes),
    )
