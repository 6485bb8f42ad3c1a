"""Learning: a pass over the data, an update of the transform, and again.

Two loops over the same state: `learn` passes over all signals in every step, `learn_stream` sees,
uses and forgets one batch in each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import sparsity_of
from kappaform.engines import Engine, SignalsUnreadable, Statistics, engine_for
from kappaform.engines.engine import reading
from kappaform.errors import warn
from kappaform.learning.method import Method, MethodFailed, bound_of
from kappaform.learning.methods import (
    MAX_ITER,
    N_UPDATES,
    Callback,
    Forgetting,
    Options,
    checked_options,
    one_sparsity,
)
from kappaform.learning.result import (
    BatchRefused,
    LearningInterrupted,
    LearnResult,
    StopReason,
    learned,
)
from kappaform.learning.starts import Source, starts_for
from kappaform.learning.state import (
    Line,
    Problem,
    State,
    evaluated,
    follow,
    result_of,
    resumable,
    step,
    stream_from,
)
from kappaform.learning.updates import Transform, as_matrix
from kappaform.threads import single_threaded_blas, users_blas

# Bound beyond which coefficients may be rounding, by their dtype: the errors are then off by more
# than 1 % where signals have no energy in some directions (docs/mathematics.md, section 8).
_LARGEST_BOUND = {np.dtype(np.float32): 1e6, np.dtype(np.float64): 1e12}


def learn(
    signals: Any,
    method: Method | None = None,
    *,
    n_nonzero_coefs: int | NDArray | None = None,
    init: Any = "auto",
    max_iter: int = MAX_ITER,
    tol: float = 1e-4,
    callback: Callback | None = None,
) -> LearnResult:
    """Learn a square transform under which signals are sparse.

    Alternates between the codes, the largest coefficients of every signal, and the transform.

    Parameters
    ----------
    signals : array of shape (m, n)
        One signal per row, float32 or float64, in any memory layout: an array, also memory-mapped,
        a dataset of HDF5 or Zarr, a Dask array in blocks of whole rows, or a torch tensor. They are
        never centred or scaled.
    method : Conditioned, LogDet, Orthonormal, or one of your own
        By default ``Conditioned()``. :class:`kappaform.Method` says how to write one.
    n_nonzero_coefs : int or array of shape (m,), optional
        Nonzero coefficients of a code, for all signals or for each. By default a tenth of n.
    init : {"auto", "dct", "identity", "least-squares", "procrustes"}, array, LearnResult or tuple
        Where to start. "auto" is the cosine basis, but for the monotone conditioned method a race
        of up to four starts, of which the best goes on. An array, its largest entry between 1e-6
        and 1e6, is moved to an admissible transform near it. A LearnResult of the same method and
        sparsity, or a fitted estimator that has one, is resumed, bitwise as if it had never
        stopped; any other gives its transform. A tuple of these: they race, the best goes on.
    max_iter : int
        Iterations at most, those of all starts together: each is one pass over the data. A result
        that is resumed has up to that many more; its `n_iter` counts those before, too.
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
    MethodFailed
        If a method of your own raises, or gives what cannot be a transform; with the same.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> result = kf.learn(signals, kf.Conditioned(2.0), n_nonzero_coefs=4)
    >>> print(result.stop_reason)
    the relative change of the loss fell to tol
    >>> coefs = signals @ result.transform.T
    >>> codes = kf.hard_threshold(coefs, 4)
    >>> approximations = codes @ np.linalg.inv(result.transform).T

    It goes on where it stopped, here with other signals:

    >>> result = kf.learn(signals[::2], result.method, n_nonzero_coefs=4, init=result)
    """
    options = checked_options(method, n_nonzero_coefs, init, callback, max_iter=max_iter, tol=tol)
    engine = engine_for(signals)
    warn_of_little(engine, n_nonzero_coefs)
    state: State | None = None
    try:
        state, reason = learn_on(engine, options)
        return result_of(state, reason)
    except KeyboardInterrupt:
        if state is None:
            raise
        raise _interrupted(state) from None  # it came after the last iteration


def learn_on(engine: Engine, options: Options) -> tuple[State, StopReason]:
    """`learn` on the signals of an engine: the last state, with statistics, and why it ended."""
    n_nonzero = sparsity_of(options.n_nonzero, engine.n_signals, engine.n_features)
    _warn_of_bound(engine, options.method)
    latest: list[State] = []
    try:
        with single_threaded_blas():
            problem = Problem(engine, options.method, n_nonzero, options.tol)
            reason = _run(problem, _state_from(options.init, problem), options, latest)
        return latest[0], reason
    except KeyboardInterrupt:
        if not latest:
            raise
        raise _interrupted(latest[0]) from None
    except (SignalsUnreadable, MethodFailed) as error:
        if latest:
            error.result = result_of(latest[0], StopReason.INTERRUPTED)
        raise


def _state_from(init: Any, problem: Problem) -> State:
    n_features = problem.engine.n_features
    init = init if isinstance(init, str) else learned(init, "init")
    kind = problem.method, problem.n_nonzero, n_features
    state = resumable(init, kind, stream=False)
    if state is None:
        source = Source(problem.engine.gram, problem.n_nonzero, problem.run_pass)
        starts = starts_for(init, problem.method, source)
        lines = tuple(Line(*start) for start in starts)
        state = State(problem.method, problem.n_nonzero, lines)
    return state


def _run(problem: Problem, state: State, options: Options, latest: list[State]) -> StopReason:
    """Learn until there is a reason to stop. What was learned last is in `latest`, at any time."""
    if state.best.records:  # of a result that is resumed
        latest[:] = [state]
        problem.n_passes += state.n_passes
    state = evaluated(state, problem)
    latest[:] = [state]
    for _ in range(options.max_iter):
        state = step(state, problem)
        latest[:] = [state]
        reason = _stop_reason(state, problem)
        if options.callback is not None and _called(options.callback, state):
            reason = reason or StopReason.CALLBACK
        if reason:
            return reason
    # Of a race the leader counts, whether or not others might still overtake it.
    return state.best.settled or StopReason.MAX_ITER


def _interrupted(state: State) -> LearningInterrupted:
    return LearningInterrupted(result_of(state, StopReason.INTERRUPTED))


def _called(callback: Callback, state: State) -> bool:
    """What the callback says of a state. It runs with the BLAS threads of the user."""
    result = result_of(state, StopReason.RUNNING)
    with users_blas():
        return bool(callback(result))


def _stop_reason(state: State, problem: Problem) -> StopReason | None:
    if problem.is_exact(state.best.records[-1]):
        return StopReason.EXACT
    return None if state.races else state.line.settled


def warn_of_little(engine: Engine, n_nonzero: Any) -> None:
    """Warn of signals or codes from which little can be learned."""
    if np.ndim(n_nonzero) > 0:  # one for each signal: rows are signals for sure
        return
    _warn_of_empty_codes(n_nonzero)
    if engine.n_signals < engine.n_features:
        warn(
            f"signals has shape ({engine.n_signals}, {engine.n_features}), fewer signals than "
            "features: signals are rows; transpose them if yours are columns."
        )


def _warn_of_empty_codes(n_nonzero: Any) -> None:
    if n_nonzero == 0:
        warn("n_nonzero_coefs=0: all codes are zero, so nothing is learned; give at least 1.")


def _warn_of_bound(engine: Engine, method: Method) -> None:
    bound, largest = bound_of(method), _LARGEST_BOUND[engine.dtype]
    if largest < bound < math.inf:
        is_single = engine.dtype == np.float32
        warn(
            f"max_condition={bound:g} with {engine.dtype} signals: beyond {largest:g} the smallest "
            "coefficients are rounding, and so are the errors; give "
            + ("float64 signals." if is_single else "a smaller bound.")
        )


def learn_stream(
    batches: Iterable[Any],
    method: Method | None = None,
    *,
    n_nonzero_coefs: int | None = None,
    init: Any = "auto",
    forgetting: Forgetting = "auto",
    n_updates: int = N_UPDATES,
    callback: Callback | None = None,
) -> LearnResult:
    """Learn a square transform from signals that come in batches, each of them seen once.

    Of the batches only sums of size n x n are kept, in which the codes are those of the transform
    at the time. With ``forgetting="auto"`` a signal counts in proportion to the fourth power of the
    number of signals before it: old codes fade out, and what counts still grows with the stream. If
    signals come in random order, the transform tends to one that its own update on all signals
    leaves alone, as `learn` does. With ``forgetting=1`` it tends there too, but ever more slowly,
    because the codes of the first transforms count for ever; with a smaller factor it keeps moving
    with the last 1 / (1 - forgetting) batches, and follows signals that change. None of this is
    proved; the condition number obeys its bound after every batch, and that is.

    A stream that is sorted should be seen several times, or shuffled.

    Parameters
    ----------
    batches : iterable of arrays of shape (m, n)
        Whatever `learn` takes as signals, of any number m each: a list, or a generator, for which
        one batch is in memory at a time. To see signals again, give their batches again.
    method : Conditioned, LogDet, Orthonormal, or one of your own
        By default ``Conditioned()``. :class:`kappaform.Method` says how to write one.
    n_nonzero_coefs : int, optional
        Nonzero coefficients of a code. By default a tenth of n.
    init : {"auto", "dct", "identity", "least-squares", "procrustes"}, array, LearnResult or tuple
        Where to start, as for `learn`. Several starts ("auto" of the monotone conditioned method)
        race over the first batches, all of them until 5 n^2 signals were seen. The
        result of a stream of the same method and sparsity is resumed, as if it had never stopped.
    forgetting : "auto" or float from 0 to 1
        What each batch leaves of the weight of those before it: 1 never forgets.
    n_updates : int
        Updates of the transform per batch at most: that many for the first, fewer as more is known,
        and at least one.
    callback : callable, optional
        Called after every batch with the LearnResult so far; returning True stops.

    Returns
    -------
    LearnResult
        Its iterations are batches. Entries of `loss` and `errors` are measured on each batch with
        the transform before it: on signals from which that one has not been learned.

    Raises
    ------
    LearningInterrupted
        On Ctrl-C: a KeyboardInterrupt that carries what was learned as ``.result``.
    BatchRefused
        A ValueError, if a batch is not finite or does not fit to those before it.
    SignalsUnreadable
        An OSError, if a batch cannot be had. Both carry what was learned until then.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> batches = np.array_split(signals, 5)
    >>> result = kf.learn_stream(batches, kf.Conditioned(2.0), n_nonzero_coefs=4)
    >>> result.n_iter, result.condition_number <= 2.0
    (5, True)
    """
    sparsity = one_sparsity(n_nonzero_coefs, "a stream")
    options = checked_options(
        method, sparsity, init, callback, forgetting=forgetting, n_updates=n_updates
    )
    _check_batches(batches)
    state: State | None = None
    reason = StopReason.STREAM_END
    try:
        for index, batch in _numbered(batches):
            state = _with_batch(state, batch, f"batches[{index}]", options)
            del batch  # before the next one is made
            if options.callback is not None and _called(options.callback, state):
                reason = StopReason.CALLBACK
                break
        if state is None:
            raise ValueError("batches is empty: at least one batch is needed.")
        return result_of(state, reason)
    except KeyboardInterrupt:
        if state is None:
            raise
        raise _interrupted(state) from None
    except BatchRefused:
        raise
    except (
        Exception
    ) as error:  # whatever went wrong outside: it stays, and carries what was learned
        if state is not None:
            with suppress(AttributeError):
                error.result = result_of(state, StopReason.INTERRUPTED)  # type: ignore[attr-defined]
        raise


def begin_stream(options: Options, engine: Engine) -> State:
    """The stream that `init` is in the middle of, if it is of this kind; else a new one from it.

    Starts that depend on signals are made with those of the engine, the first batch.
    """
    init, method = learned(options.init, "init"), options.method
    _warn_of_bound(engine, method)
    _warn_of_empty_codes(options.n_nonzero)
    n_nonzero = int(sparsity_of(options.n_nonzero, engine.n_signals, engine.n_features))
    state = resumable(init, (method, n_nonzero, engine.n_features), stream=True)
    if state is not None:
        return state
    n_passes = 0

    def codes_of(transform: Transform) -> Statistics:
        nonlocal n_passes
        n_passes += 1
        return engine.run_pass(as_matrix(transform), n_nonzero)

    starts = starts_for(init, method, Source(engine.gram, n_nonzero, codes_of))
    return stream_from(starts, method, n_nonzero, engine.n_features, n_passes)


def _with_batch(state: State | None, batch: Any, name: str, options: Options) -> State:
    """The stream after one more batch, or the first."""
    refused: tuple[type[Exception], ...] = (TypeError, ValueError)
    try:
        engine = engine_for(batch, name)
        refused = (ValueError,)  # from here on, a TypeError is one of the batch's own code
        if state is not None and engine.n_features != state.n_features:
            raise ValueError(
                f"{name} has {engine.n_features} features: the batches before it have "
                f"{state.n_features}, and all of a stream must have as many."
            )
        with single_threaded_blas():
            before = begin_stream(options, engine) if state is None else state
            return follow(before, engine, options.forgetting, options.n_updates)
    except refused as error:
        if state is None:
            raise
        result = result_of(state, StopReason.INTERRUPTED)
        raise BatchRefused(f"{error} What was learned before is `.result`.", result) from error


def _check_batches(batches: Any) -> None:
    shape = getattr(batches, "shape", None)
    if shape is not None and len(shape) == 2:
        raise TypeError(
            f"batches is one array of shape {tuple(shape)}: cut it into batches of rows, or give "
            "it to `learn`."
        )
    if not hasattr(batches, "__iter__") and not hasattr(batches, "__getitem__"):
        raise TypeError(
            f"batches is of type {type(batches).__name__}: give an iterable of batches, each of "
            "them an array with one signal per row."
        )


def _numbered(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    iterator = iter(batches)
    for index in itertools.count():
        with reading(f"batches[{index}] could not be read"):
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield index, batch
        del batch
