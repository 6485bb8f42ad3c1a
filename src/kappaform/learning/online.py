r"""Learning from a stream: every batch is seen, used and let go.

What remains of the batches are sums over their signals, of which the older count less. A batch is
coded with the transform of its time, and

.. math:: G \leftarrow \rho G + Y^T Y, \qquad C \leftarrow \rho C + X^T Y .

The next transform is an update on these sums. Since codes that were the best for an older transform
are some codes for a newer one, the sums bound the error of all that was seen from above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from kappaform.engines import Engine, Statistics
from kappaform.learning.methods import Method
from kappaform.learning.problem import error_with, measured
from kappaform.learning.result import LearnResult, StopReason, learned
from kappaform.learning.search import Descent
from kappaform.learning.starts import explores_blindly, starts_for
from kappaform.learning.updates import Transform, as_matrix, own_steps, updater

Forgetting = float | Literal["auto"]

# "auto": a signal counts in proportion to this power of how many had been seen at its time. However
# long the stream, the newest part of it decides, and that part grows with it.
_RECENCY = 4
# Starts are explored for this many updates at least, and for so many signals per unknown of the
# transform: the first batches of a stream need not be like the others.
_EXPLORING_UPDATES = 25
_EXPLORING_SIGNALS = 5


@dataclass(frozen=True, eq=False)
class Stream:
    """The state of learning from a stream: all that is left of the batches."""

    method: Method
    n_nonzero: int
    descents: tuple[Descent, ...]  #: of one or more starts, each with its statistics
    scale: float = 1.0  #: of the statistics, as that of an engine
    n_signals: int = 0  #: seen so far
    n_updates: int = 0  #: of each line so far
    n_iter: int = 0  #: batches, and before them the iterations of a fit that goes on here
    n_passes: int = 0  #: over batches, and before them over the signals of that fit

    @property
    def n_features(self) -> int:
        return len(as_matrix(self.descents[0].transform))

    @property
    def best(self) -> Descent:
        """The line of lowest loss on what is remembered."""
        losses = [
            measured(self.method, line.transform, statistics_of(line), None, self.scale).loss
            for line in self.descents
        ]
        return self.descents[int(np.argmin(losses))]

    @property
    def explores(self) -> bool:
        return any(line.explore is not None for line in self.descents)


def begin(
    init: Any, method: Method, n_nonzero: int, engine: Engine, stream: Stream | None = None
) -> Stream:
    """The given stream or that of `init`, if it is of this kind; else a new one from `init`.

    Starts that depend on signals are made with those of the engine, the first batch.
    """
    n_features, n_passes = engine.n_features, 0
    stream = stream or _stream_of(init)
    kind = method, n_nonzero, n_features
    if stream is not None and (stream.method, stream.n_nonzero, stream.n_features) == kind:
        return stream

    def codes_of(transform: Transform) -> Statistics:
        nonlocal n_passes
        n_passes += 1
        return engine.run_pass(as_matrix(transform), n_nonzero)

    if isinstance(init, str) and init == "auto" and explores_blindly(method):
        init = "dct"  # the codes of earlier batches lead blind steps astray
    starts = starts_for(init, method, n_features, codes_of)
    empty = Statistics.empty(n_features)
    lines = tuple(Descent(*start, statistics=empty) for start in starts)
    return Stream(method, n_nonzero, lines, n_passes=n_passes)


def goes_on(
    result: LearnResult, statistics: Statistics | None = None, scale: float = 1.0
) -> Stream:
    """The stream that goes on after `learn`, with its signals, if they are known, as one batch."""
    if statistics is None:
        statistics = Statistics.empty(len(result.transform))
    return Stream(
        result.method,
        int(result.n_nonzero_coefs),
        (Descent(result.search.best.transform, statistics=statistics),),
        scale,
        n_signals=int(statistics.n_signals),
        n_updates=result.n_iter,
        n_iter=result.n_iter,
        n_passes=result.n_passes,
    )


def step(
    stream: Stream, engine: Engine, forgetting: Forgetting = "auto", n_updates: int = 5
) -> Stream:
    """Learn from one batch: older statistics decay, its own join them, the transform follows.

    The less the older signals count beside the batch, the more updates it is worth: `n_updates` if
    there are none, otherwise in proportion to the share of the batch, at least one. For each of
    them the batch is coded anew.
    """
    factor = _decay_factor(forgetting, stream.n_signals, engine.n_signals)
    older = factor * statistics_of(stream.descents[0]).n_signals
    share = engine.n_signals / (older + engine.n_signals)
    n_done = max(1, math.ceil(n_updates * share))
    scale = _common_scale(stream, engine)
    lines = tuple(
        _followed(line, stream, engine, factor, scale, n_done) for line in stream.descents
    )
    stream = replace(
        stream,
        descents=lines,
        scale=scale,
        n_signals=stream.n_signals + engine.n_signals,
        n_updates=stream.n_updates + n_done,
        n_iter=stream.n_iter + 1,
        n_passes=stream.n_passes + n_done * len(lines),
    )
    return _with_best_line(stream) if _is_explored(stream) else stream


def result_of(stream: Stream, reason: StopReason) -> LearnResult:
    best = stream.best
    return LearnResult(
        transform=as_matrix(best.transform),
        method=stream.method,
        n_nonzero_coefs=stream.n_nonzero,
        n_iter=stream.n_iter,
        n_passes=stream.n_passes,
        stop_reason=reason,
        records=best.records,
        search=stream,
    )


def statistics_of(line: Descent) -> Statistics:
    assert line.statistics is not None  # those of a stream have some, if of no signals
    return line.statistics


def _stream_of(init: Any) -> Stream | None:
    """The stream that a result, or the result of an estimator, is in the middle of."""
    init = learned(init, "init")
    found = init.search if isinstance(init, LearnResult) else None
    return found if isinstance(found, Stream) else None


def _followed(
    line: Descent, stream: Stream, engine: Engine, factor: float, scale: float, n_updates: int
) -> Descent:
    """A line after some updates; its new record is the error before them, on the whole batch."""
    method, transform = stream.method, line.transform
    older = _rescaled(statistics_of(line).decay(factor), stream.scale, scale)
    batch = engine.run_pass(as_matrix(transform), stream.n_nonzero)
    record = measured(method, transform, batch, None, 2.0**engine.exponent)
    statistics = older.merge(_rescaled(batch, 2.0**engine.exponent, scale))
    update = updater(method, statistics.gram)
    for i in range(n_updates):
        if i > 0:
            batch = engine.run_pass(as_matrix(transform), stream.n_nonzero)
            statistics = older.merge(_rescaled(batch, 2.0**engine.exponent, scale))
        moved = update(statistics, transform, line.explore or own_steps(method))
        if line.explore == "rescale" and _rises(statistics, transform, moved):
            moved = update(statistics, transform, own_steps(method))
        transform = moved
    return Descent(transform, line.explore, (*line.records, record), statistics)


def _rises(statistics: Statistics, transform: Transform, moved: Transform) -> bool:
    return error_with(statistics, moved) > error_with(statistics, transform)


def _decay_factor(forgetting: Forgetting, n_before: int, n_new: int) -> float:
    if forgetting == "auto":
        return (n_before / (n_before + n_new)) ** _RECENCY
    return float(forgetting)


def _common_scale(stream: Stream, engine: Engine) -> float:
    """Scale at which the sums of both are finite; signals that are all zero have none."""
    if not statistics_of(stream.descents[0]).gram.any():
        return 2.0**engine.exponent
    return min(stream.scale, 2.0**engine.exponent) if engine.gram.any() else stream.scale


def _rescaled(statistics: Statistics, _: float, new: float) -> Statistics:
    """Statistics at another scale. Both are powers of two, so that no digit is lost."""
    return statistics.at_exponent(math.frexp(new)[1] - 1)


def _is_explored(stream: Stream) -> bool:
    n_wanted = _EXPLORING_SIGNALS * stream.n_features**2
    return stream.n_updates >= _EXPLORING_UPDATES and stream.n_signals >= n_wanted


def _with_best_line(stream: Stream) -> Stream:
    if not stream.explores:
        return stream
    return replace(stream, descents=(replace(stream.best, explore=None),))
