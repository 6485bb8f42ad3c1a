"""Learning: a pass over the data, an update of the transform, and again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import check_count, is_integer, is_number, sparsity_of
from kappaform.engines import Engine, engine_for
from kappaform.errors import warn
from kappaform.learning.method import Method
from kappaform.learning.methods import Conditioned
from kappaform.learning.race import (
    Candidate,
    Latest,
    Problem,
    Race,
    result_of,
    resumable,
    step,
    stop_reason,
    with_statistics,
)
from kappaform.learning.result import LearnResult, StopReason, learned
from kappaform.learning.starts import StartContext, starts_for
from kappaform.threads import single_threaded_blas, users_blas

Callback = Callable[[LearnResult], bool | None]  #: returning True stops

# Enough for a change of 1e-4: digits, patches and tables took 3 to 442 iterations at bounds from 2
# to 100 (docs/mathematics.md, section 9).
MAX_ITER = 500
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
    method : Conditioned, LogDet, Orthonormal or custom method
        By default ``Conditioned()``. See :class:`kappaform.Method` for custom methods.
    n_nonzero_coefs : int or array of shape (m,), optional
        Number of nonzero coefficients of a code, for all signals or for each. By default a tenth
        of n.
    init : {"auto", "dct", "identity", "least-squares", "procrustes"}, array, LearnResult or tuple
        Initialisation. "auto" is the DCT basis; with the monotone conditioned method it is a race
        of up to four starts, of which the best continues. An array, its largest entry between 1e-6
        and 1e6, is projected to a feasible transform near it. A LearnResult of the same method and
        sparsity, or a fitted estimator that has one, is resumed, bitwise as if it had never
        stopped; of any other result the transform is used. The entries of a tuple race, and the
        best continues.
    max_iter : int
        Maximum number of iterations of all starts together; each is one pass over the data. A
        resumed result has up to that many more, and its `n_iter` includes those before.
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
        An OSError, if signals on disk or on a cluster fail; it also carries what was learned.
    MethodFailed
        If a custom method raises, or returns what cannot be a transform; with the same.

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

    It resumes where it stopped, here with other signals:

    >>> result = kf.learn(signals[::2], result.method, n_nonzero_coefs=4, init=result)
    """
    return learn_with(
        signals, checked_options(method, n_nonzero_coefs, init, callback, max_iter, tol)
    )


def learn_with(signals: Any, options: Options) -> LearnResult:
    """`learn`, of a transform or of a union, with checked options."""
    engine = engine_for(signals)
    warn_of_little(engine, options.n_nonzero)
    latest = Latest()
    try:
        latest.race, reason = learn_on(engine, options)
        return result_of(latest.race, reason)
    except (Exception, KeyboardInterrupt) as error:  # after the last iteration, too
        latest.carry(error)
        raise


def learn_on(engine: Engine, options: Options) -> tuple[Race, StopReason]:
    """`learn` on the signals of an engine: the last state, with statistics, and why it ended."""
    n_nonzero = sparsity_of(options.n_nonzero, engine.n_signals, engine.n_features)
    warn_of_bound(engine, options.method)
    latest = Latest()
    try:
        with single_threaded_blas():
            problem = Problem(engine, options.method, n_nonzero, options.tol)
            race = _race_from(options.init, problem)
            if race.best.records:  # of a result that is resumed
                latest.race = race
                problem.n_passes += race.n_passes
            race = latest.race = with_statistics(race, problem)
            for _ in range(options.max_iter):
                race = latest.race = step(race, problem)
                reason = stop_reason(race, problem)
                if asks_to_stop(options.callback, race):
                    reason = reason or StopReason.CALLBACK
                if reason:
                    return race, reason
            # In a race the leader counts, whether or not others might still overtake it.
            return race, race.best.converged or StopReason.MAX_ITER
    except (Exception, KeyboardInterrupt) as error:
        latest.carry(error)
        raise


def _race_from(init: Any, problem: Problem) -> Race:
    method, n_nonzero, gram = problem.method, problem.n_nonzero, problem.engine.gram
    init = init if isinstance(init, str) else learned(init, "init")
    resumed = resumable(init, method, n_nonzero, len(gram))
    if resumed is not None and not resumed.is_stream:
        return resumed
    context = StartContext(gram, n_nonzero, problem.run_pass, problem=problem)
    starts = starts_for(init, method, context)
    return Race(method, n_nonzero, tuple(Candidate(*start) for start in starts))


def asks_to_stop(callback: Callback | None, race: Race) -> bool:
    """Whether a callback asks to stop. It runs with the BLAS threads of the user."""
    if callback is None:
        return False
    result = result_of(race, StopReason.RUNNING)
    with users_blas():
        return bool(callback(result))


class Options(NamedTuple):
    """Options of `learn`, checked except for what depends on the signals."""

    method: Method
    n_nonzero: Any
    init: Any
    callback: Callback | None
    max_iter: int
    tol: float


def checked_options(
    method: Any, n_nonzero: Any, init: Any, callback: Any, max_iter: Any = MAX_ITER, tol: Any = 1e-4
) -> Options:
    method = checked_method(method)
    check_count("max_iter", max_iter, "iterations")
    if not is_number(tol) or not 0 <= tol < math.inf:
        raise ValueError(f"tol={tol!r}: give a finite number >= 0 (0 runs until nothing changes).")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r}: give a function of a LearnResult, or None.")
    return Options(method, n_nonzero, init, callback, int(max_iter), float(tol))


def checked_method(method: Any) -> Method:
    method = Conditioned() if method is None else method
    if isinstance(method, type) and issubclass(method, Method):
        raise TypeError(f"method={method!r} is a class: give an object of it, {method.__name__}().")
    if is_number(method):
        raise TypeError(f"method={method!r} is a number: give the bound as Conditioned({method}).")
    if not isinstance(method, Method):
        raise TypeError(
            f"method={method!r}: give Conditioned(...), LogDet(...) or Orthonormal(), or a custom "
            "method, derived from kappaform.Method."
        )
    bound = getattr(method, "max_condition", None)
    if bound is not None and not (is_number(bound) and bound >= 1):
        raise ValueError(
            f"method={method!r}: its max_condition={bound!r} must be a number >= 1, or None for "
            "no bound."
        )
    return method


def single_sparsity(value: Any, who: str) -> int | None:
    """The sparsity of signals yet to come: they can only have the same one."""
    if value is None or is_integer(value):
        return value if value is None else int(value)
    many = hasattr(value, "__len__") and not isinstance(value, str)
    what = f" has {len(value)} entries" if many else f"={value!r}"
    raise TypeError(
        f"n_nonzero_coefs{what}: {who} needs one integer, or None for a tenth of the features; one "
        "for each signal is for `learn`."
    )


def warn_of_little(engine: Engine, n_nonzero: Any) -> None:
    """Warn of signals or codes from which little can be learned."""
    if np.ndim(n_nonzero) > 0:  # one for each signal: rows are signals for sure
        return
    warn_of_empty_codes(n_nonzero)
    if engine.n_signals < engine.n_features:
        warn(
            f"signals has shape ({engine.n_signals}, {engine.n_features}), fewer signals than "
            "features: signals are rows; transpose them if yours are columns."
        )


def warn_of_empty_codes(n_nonzero: Any) -> None:
    if n_nonzero == 0:
        warn("n_nonzero_coefs=0: all codes are zero, so nothing is learned; give at least 1.")


def warn_of_bound(engine: Engine, method: Method) -> None:
    bound, largest = getattr(method, "max_condition", None), _LARGEST_BOUND[engine.dtype]
    if bound is not None and largest < bound < math.inf:
        remedy = "float64 signals" if engine.dtype == np.float32 else "a smaller bound"
        warn(
            f"max_condition={bound:g} with {engine.dtype} signals: beyond {largest:g} the smallest "
            f"coefficients are rounding, and so are the errors; give {remedy}."
        )
