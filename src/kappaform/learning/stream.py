"""The loop over the batches of a stream."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from kappaform.engines import SignalsUnreadable, engine_for
from kappaform.learning.evaluate import checked_sparsity
from kappaform.learning.learn import Callback, check_callback, checked_method
from kappaform.learning.methods import Method
from kappaform.learning.online import Forgetting, Stream, begin, result_of, step
from kappaform.learning.result import LearningInterrupted, LearnResult, StopReason
from kappaform.threads import single_threaded_blas


class BatchRefused(ValueError):  # noqa: N818 - as LearningInterrupted says what happened
    """A batch, after others were learned from, that cannot be.

    Attributes
    ----------
    result : LearnResult
        What was learned from the batches before; go on with ``init=result``.
    """

    def __init__(self, message: str, result: LearnResult) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.result)


def learn_stream(
    batches: Iterable[Any],
    method: Method | None = None,
    *,
    n_nonzero_coefs: int | None = None,
    init: Any = "auto",
    forgetting: Forgetting = "auto",
    n_updates: int = 5,
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
    method : Conditioned, LogDet or Orthonormal
        By default ``Conditioned()``.
    n_nonzero_coefs : int, optional
        Nonzero coefficients of a code. By default a tenth of n.
    init : {"auto", "dct", "identity", "least-squares", "procrustes"}, array, LearnResult or tuple
        Where to start, as for `learn`. Several starts ("auto" of the monotone conditioned method)
        are followed over the first batches, until 5 n^2 signals were seen; the best goes on. The
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
    """
    method = checked_method(method)
    check_forgetting(forgetting)
    if not isinstance(n_updates, numbers.Integral) or n_updates < 1:
        raise ValueError(f"n_updates={n_updates!r}: give a number of updates >= 1.")
    check_callback(callback)
    _check_batches(batches)
    follow = partial(
        _follow, init, method, one_sparsity(n_nonzero_coefs, "a stream"), forgetting, n_updates
    )
    return _run(batches, follow, callback)


def check_forgetting(forgetting: Any) -> None:
    is_number = isinstance(forgetting, numbers.Real) and not isinstance(forgetting, bool)
    if forgetting != "auto" and not (is_number and 0 <= forgetting <= 1):
        raise ValueError(
            f"forgetting={forgetting!r}: give 'auto', or what a batch leaves of the weight of the "
            "earlier ones, from 0 (nothing) to 1 (all)."
        )


def one_sparsity(value: Any, who: str) -> int | None:
    """The sparsity of signals yet to come: they can only share one."""
    if value is None or (isinstance(value, numbers.Integral) and not isinstance(value, bool)):
        return value if value is None else int(value)
    many = hasattr(value, "__len__") and not isinstance(value, str)
    what = f" has {len(value)} entries" if many else f"={value!r}"
    raise TypeError(
        f"n_nonzero_coefs{what}: {who} needs one integer, or None for a tenth of the features; one "
        "for each signal is for `learn`."
    )


def _check_batches(batches: Any) -> None:
    shape = getattr(batches, "shape", None)
    if shape is not None and len(shape) == 2:
        raise TypeError(
            f"batches is one array of shape {tuple(shape)}: cut it into batches of rows, or give "
            "it to `learn`."
        )
    try:
        iter(batches)
    except TypeError as error:
        raise TypeError(
            f"batches is of type {type(batches).__name__}: give an iterable of batches, each of "
            "them an array with one signal per row."
        ) from error


def _run(
    batches: Iterable[Any],
    follow: Callable[[Stream | None, Any, str], Stream],
    callback: Callback | None,
) -> LearnResult:
    stream, reason = None, StopReason.STREAM_END
    try:
        for index, batch in _numbered(batches):
            stream = follow(stream, batch, f"batches[{index}]")
            del batch  # before the next one is made
            if callback is not None and callback(result_of(stream, StopReason.RUNNING)):
                reason = StopReason.CALLBACK
                break
    except KeyboardInterrupt:
        if stream is None:
            raise
        raise LearningInterrupted(result_of(stream, StopReason.INTERRUPTED)) from None
    except SignalsUnreadable as error:
        if stream is not None:
            error.result = result_of(stream, StopReason.INTERRUPTED)
        raise
    if stream is None:
        raise ValueError("batches is empty: at least one batch is needed.")
    return result_of(stream, reason)


def _numbered(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    iterator = iter(batches)
    for index in itertools.count():
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except SignalsUnreadable:
            raise
        except Exception as error:
            raise SignalsUnreadable(
                f"batches[{index}] could not be read: {type(error).__name__}: {error}. If learning "
                "had begun, `.result` of this error is where to go on (init=...)."
            ) from error
        yield index, batch
        del batch


def _follow(
    init: Any,
    method: Method,
    n_nonzero: int | None,
    forgetting: Forgetting,
    n_updates: int,
    stream: Stream | None,
    batch: Any,
    name: str,
) -> Stream:
    """The stream after one more batch, or the first."""
    try:
        engine = engine_for(batch, name)
        with single_threaded_blas():
            if stream is None:
                start = begin(init, method, int(checked_sparsity(n_nonzero, engine)), engine)
                return step(start, engine, forgetting, n_updates)
            if engine.n_features != stream.n_features:
                raise ValueError(
                    f"{name} has {engine.n_features} features: the batches before it have "
                    f"{stream.n_features}, and all of a stream must have as many."
                )
            return step(stream, engine, forgetting, n_updates)
    except (TypeError, ValueError) as error:
        if stream is None:
            raise
        result = result_of(stream, StopReason.INTERRUPTED)
        raise BatchRefused(f"{error} What was learned before is `.result`.", result) from error
