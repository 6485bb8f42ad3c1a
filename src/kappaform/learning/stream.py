"""Learning from a stream: each step sees one batch, keeps sums of size n x n, and forgets it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from kappaform.checks import check_count, is_number, sparsity_of
from kappaform.engines import Engine, engine_for
from kappaform.engines.engine import reading
from kappaform.learning.learn import (
    Callback,
    Options,
    asks_to_stop,
    checked_options,
    single_sparsity,
    warn_of_bound,
    warn_of_empty_codes,
)
from kappaform.learning.members import no_statistics
from kappaform.learning.method import Method
from kappaform.learning.race import (
    EXPLORING_STEPS,
    Candidate,
    Latest,
    Problem,
    Race,
    error_with_codes,
    errors_of,
    pass_with,
    result_of,
    resumable,
)
from kappaform.learning.result import BatchRefused, LearnResult, StopReason, learned
from kappaform.learning.starts import StartContext, starts_for
from kappaform.learning.updates import as_matrix
from kappaform.threads import single_threaded_blas

Forgetting = float | Literal["auto"]
N_UPDATES = 5  #: of the transform for each batch, at most (docs/scale.md)

# One candidate is chosen when the stream has brought so many signals per unknown of the transform
# (its first batches may differ from the others), and each candidate has made so many updates.
_SIGNALS_TO_CHOOSE = 5
_UPDATES_TO_CHOOSE = 25
# forgetting="auto": the weight of a signal is proportional to this power of the number of signals
# seen at its time. The newest part of the stream decides, and that part grows with the stream
# (docs/scale.md: measured against never forgetting).
_RECENCY = 4
# Records that are kept: the state of a stream does not grow with its length.
_MOST_RECORDS = 1000


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
    """Learn a square transform from signals that arrive in batches, each of them seen once.

    Only sums of size n x n are kept of the batches; their codes are those of the transform at the
    time. With ``forgetting="auto"`` the weight of a signal is proportional to the fourth power of
    the number of signals before it: old codes fade out, while the number of signals that count
    still grows. If signals arrive in random order, the transform tends to a fixed point of its
    update on all signals, as with `learn`. With ``forgetting=1`` it tends there too, but ever more
    slowly, because the codes of the first transforms always count. With a smaller factor it follows
    the last 1 / (1 - forgetting) batches, and so signals that change. None of this is proved; that
    the condition number obeys its bound after every batch is.

    A sorted stream should be shuffled, or seen several times.

    Parameters
    ----------
    batches : iterable of arrays of shape (m, n)
        Each is anything that `learn` accepts as signals, with any m: a list, or a generator, of
        which one batch is in memory at a time. To see signals again, give their batches again.
    method : Conditioned, LogDet, Orthonormal or custom method
        By default ``Conditioned()``. See :class:`kappaform.Method` for custom methods.
    n_nonzero_coefs : int, optional
        Number of nonzero coefficients of a code. By default a tenth of n.
    init : {"auto", "dct", "identity", "least-squares", "procrustes"}, array, LearnResult or tuple
        Initialisation, as for `learn`. Several starts ("auto" with the monotone conditioned method)
        race over the first batches, all of them until 5 n^2 signals were seen. The result of a
        stream of the same method and sparsity is resumed, as if it had never stopped.
    forgetting : "auto" or float from 0 to 1
        Factor by which each batch multiplies the weight of earlier signals: 1 never forgets.
    n_updates : int
        Most updates of the transform per batch: the first batch has that many, later ones fewer,
        but at least one.
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
        A ValueError, if a batch is not finite or does not match the batches before it.
    SignalsUnreadable
        An OSError, if a batch cannot be read. Both carry what was learned until then.

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
    options = checked_options(method, single_sparsity(n_nonzero_coefs, "a stream"), init, callback)
    check_forgetting(forgetting)
    check_count("n_updates", n_updates, "updates")
    _check_batches(batches)
    stream: Stream | None = None
    reason = StopReason.STREAM_END
    latest = Latest()
    try:
        for index, batch in _numbered(batches):
            name = f"batches[{index}]"
            stream = latest.race = _with_batch(stream, batch, name, options, forgetting, n_updates)
            del batch  # before the next one is made
            if asks_to_stop(options.callback, stream):
                reason = StopReason.CALLBACK
                break
        if stream is None:
            raise ValueError("batches is empty: at least one batch is needed.")
        return result_of(stream, reason)
    except (Exception, KeyboardInterrupt) as error:
        latest.carry(error)
        raise


@dataclass(frozen=True, eq=False)
class Stream(Race):
    """State of a stream: candidates have the sums over all batches, of which some may count less.

    Every batch is one iteration of each candidate.
    """

    n_signals: int = 0  #: seen so far
    n_updates: int = 0  #: of each candidate so far

    is_stream: ClassVar[bool] = True

    def loss_of(self, candidate: Candidate) -> float:
        """Loss on what is remembered of the batches."""
        return self.method.checked_loss(candidate.statistics, candidate.transform)


def begin_stream(options: Options, engine: Engine) -> Stream:
    """The stream to be resumed from `init`, if there is one; otherwise a new one.

    Starts that depend on signals are made with those of the engine, the first batch.
    """
    init, method, n_features = learned(options.init, "init"), options.method, engine.n_features
    warn_of_bound(engine, method)
    warn_of_empty_codes(options.n_nonzero)
    n_nonzero = int(sparsity_of(options.n_nonzero, engine.n_signals, n_features))
    resumed = resumable(init, method, n_nonzero, n_features)
    if isinstance(resumed, Stream):
        return resumed
    problem = Problem(engine, method, n_nonzero)
    context = StartContext(engine.gram, n_nonzero, problem.run_pass, problem=problem)
    starts = starts_for(init, method, context)
    candidates = tuple(
        Candidate(*start, statistics=no_statistics(start.transform)) for start in starts
    )
    return Stream(method, n_nonzero, candidates, n_passes=problem.n_passes)


def as_stream(race: Race) -> Stream:
    """The stream that continues a race; signals of `learn`, if they are known, count as a batch."""
    if isinstance(race, Stream):
        return race
    best = race.best
    statistics = best.statistics or no_statistics(best.transform)
    return Stream(
        race.method,
        race.n_nonzero,
        (Candidate(best.transform, statistics=statistics),),
        n_iter=race.n_iter,
        n_passes=race.n_passes,
        n_signals=int(statistics.n_signals),
        n_updates=race.n_iter,
    )


def follow(
    stream: Stream, engine: Engine, forgetting: Forgetting, n_updates: int = N_UPDATES
) -> Stream:
    r"""Learn from one batch: older statistics decay, its own are added, the transform is updated.

    .. math:: G \leftarrow \rho G + Y^T Y, \qquad C \leftarrow \rho C + X^T Y .

    The less the older signals count next to the batch, the more updates it is worth: `n_updates` if
    there are none, otherwise in proportion to the weight of the batch, at least one. The batch is
    coded anew for each update. Since codes that were the best for an older transform are some
    codes for a newer one, the sums are an upper bound of the error of all that was seen.
    """
    n_seen = stream.n_signals + engine.n_signals
    factor = (stream.n_signals / n_seen) ** _RECENCY if forgetting == "auto" else float(forgetting)
    older = factor * stream.candidates[0].statistics.n_signals
    fraction = engine.n_signals / (older + engine.n_signals)
    n_done = max(1, math.ceil(n_updates * fraction))
    candidates = tuple(
        _followed(candidate, stream, engine, factor, n_done) for candidate in stream.candidates
    )
    stream = replace(
        stream,
        candidates=candidates,
        n_signals=n_seen,
        n_updates=stream.n_updates + n_done,
        n_iter=stream.n_iter + 1,
        n_passes=stream.n_passes + n_done * len(candidates),
    )
    enough = n_seen >= _SIGNALS_TO_CHOOSE * stream.n_features**2
    if stream.races and enough and stream.n_updates >= _UPDATES_TO_CHOOSE:
        return replace(stream, candidates=(replace(stream.best, explore=None),))
    return stream


def _followed(
    candidate: Candidate, stream: Stream, engine: Engine, factor: float, n_updates: int
) -> Candidate:
    """A candidate after some updates; its new record is the error before them, on the batch."""
    method, n_nonzero, transform = stream.method, int(stream.n_nonzero), candidate.transform
    older = candidate.statistics.decay(factor)
    batch = pass_with(engine, transform, n_nonzero)
    record = errors_of(method, transform, batch)
    statistics = older.merge(batch)
    update = method.updater(statistics.gram)
    for i in range(n_updates):
        if i > 0:
            statistics = older.merge(pass_with(engine, transform, n_nonzero))
        updated = update(statistics, transform, method.steps)
        if candidate.explore is not None and stream.n_updates + i < EXPLORING_STEPS:
            explored = update(statistics, transform, candidate.explore)
            explored_error, error = (
                error_with_codes(statistics, as_matrix(each)) for each in (explored, transform)
            )
            if explored_error <= error:
                updated = explored
        transform = updated
    records = (*candidate.records[1 - _MOST_RECORDS :], record)
    return Candidate(transform, candidate.explore, records, statistics)


def _with_batch(
    stream: Stream | None, batch: Any, name: str, options: Options, *how: Any
) -> Stream:
    """The stream after one more batch, or the first."""
    rejected: tuple[type[Exception], ...] = (TypeError, ValueError)
    try:
        engine = engine_for(batch, name)
        rejected = (ValueError,)  # from here on, a TypeError comes from the batch's own code
        if stream is not None and engine.n_features != stream.n_features:
            raise ValueError(
                f"{name} has {engine.n_features} features: the batches before it have "
                f"{stream.n_features}, and all of a stream must have as many."
            )
        with single_threaded_blas():
            before = begin_stream(options, engine) if stream is None else stream
            return follow(before, engine, *how)
    except rejected as error:
        if stream is None:
            raise
        raise BatchRefused(f"{error} What was learned before is `.result`.") from error


def check_forgetting(forgetting: Any) -> None:
    if forgetting != "auto" and not (is_number(forgetting) and 0 <= forgetting <= 1):
        raise ValueError(
            f"forgetting={forgetting!r}: give 'auto', or the factor by which a batch multiplies "
            "the weight of earlier signals, from 0 (forget all) to 1 (forget nothing)."
        )


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
