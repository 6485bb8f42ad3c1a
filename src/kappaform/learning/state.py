"""The state of learning, and one step of it: over all signals, or over a batch of a stream.

A state holds one or more lines: each is a start and how its errors fell. Several lines race: the
one that promises most makes the next steps, and those that promise too little are dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Engine, Statistics
from kappaform.learning.method import Method, same_method
from kappaform.learning.methods import Forgetting
from kappaform.learning.result import LearnResult, Record, StopReason
from kappaform.learning.starts import Start
from kappaform.learning.updates import (
    Momentum,
    Steps,
    Transform,
    as_matrix,
    error_with,
    measure,
)

# Of a race (docs/mathematics.md, section 9, says what they were chosen on, and what they reach):
_FAR = 100  # times the lowest loss: a start that is not tried
_TURN = 12  # steps
_WORTHWHILE = 0.01  # fall of the loss, over the later half of all steps, that is worth more of them
_DOUBLINGS = 2  # of the steps of a line, which its forecast looks ahead
_MOST_DOUBLINGS = 6  # within which a line must be hoped to reach the lowest loss
_EXPLORING_STEPS = 20  # the first of a line that may explore

# A stream chooses a line when it has seen so many signals per unknown of the transform (its first
# batches need not be like the others), and each line has made so many updates.
_SIGNALS_TO_CHOOSE = 5
_UPDATES_TO_CHOOSE = 25
# forgetting="auto": a signal counts in proportion to this power of how many had been seen at its
# time. However long the stream, the newest part of it decides, and that part grows with it
# (docs/scale.md: measured against never forgetting).
_RECENCY = 4
# Records of a stream that are kept: its state does not grow with its length.
_MOST_RECORDS = 1000

# Rise of a loss, relative to its scale, that rounding explains. For float32 it was at most 5e-8 of
# the energy, in 8,900 updates for signals of 18 kinds at bounds up to 20.
_ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-7}
# Difference of a loss, relative to itself, that another engine or other blocks explain.
_SAME_LOSS = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4}


@dataclass(frozen=True, eq=False)
class Line:
    """One start: the transform it has led to, and how its errors fell."""

    transform: Transform
    explore: Steps | None = None  #: steps to begin with, None: those of the method
    records: tuple[Record, ...] = ()
    statistics: Statistics | None = None
    settled: StopReason | None = None  #: why it would stop if it were alone
    momentum: Momentum = field(default_factory=Momentum)

    @property
    def start(self) -> Start:
        """The same line without its history."""
        return Start(self.transform, self.explore)

    @property
    def loss(self) -> float:
        return self.records[-1].loss if self.records else math.inf

    @property
    def steps(self) -> Steps | None:
        """Steps to explore with now, None: those of the method."""
        return self.explore if len(self.records) <= _EXPLORING_STEPS else None

    @property
    def fall(self) -> float:
        """The factor by which the later half of the steps has lowered the loss, 1 at rest."""
        halfway = self.records[(len(self.records) - 1) // 2].loss
        if self.settled or min(self.loss, halfway) <= 0:
            return 1.0
        return min(1.0, self.loss / halfway)

    @property
    def falls(self) -> bool:
        return self.fall <= 1 - _WORTHWHILE

    def forecast(self, doublings: int = _DOUBLINGS) -> float:
        """The loss to hope for, if every doubling of its steps gains as much as the last one."""
        return self.loss * self.fall**doublings


@dataclass(frozen=True, eq=False)
class State:
    """Where learning is: the lines that race, one of them active, and what has been done."""

    method: Method
    n_nonzero: int | NDArray
    lines: tuple[Line, ...]
    active: int = 0
    n_iter: int = 0  #: steps of all lines, and starts measured but the first; of a stream, batches
    n_passes: int = 0
    turn: int = 0  #: steps of the active line in its turn
    n_signals: int | None = None  #: of a stream, seen so far; None: every step sees all signals
    n_updates: int = 0  #: of a stream, of each line so far

    @property
    def line(self) -> Line:
        return self.lines[self.active]

    @property
    def n_features(self) -> int:
        return len(as_matrix(self.lines[0].transform))

    @property
    def is_stream(self) -> bool:
        return self.n_signals is not None

    @property
    def races(self) -> bool:
        return len(self.lines) > 1

    @property
    def best(self) -> Line:
        """The line of lowest loss: of a stream, on what is remembered of its batches."""
        if len(self.lines) == 1:
            return self.lines[0]
        return min(self.lines, key=self.loss_of)

    def loss_of(self, line: Line) -> float:
        if not self.is_stream:
            return line.loss
        return measure(self.method, line.transform, _remembered(line)).loss


def result_of(state: State, reason: StopReason) -> LearnResult:
    """What learning returns. It is small: a pass finds the statistics of a batch run again."""
    transform = state.method.shown(state.best.transform)
    transform.setflags(write=False)
    if not state.is_stream:
        state = replace(state, lines=tuple(replace(line, statistics=None) for line in state.lines))
    return LearnResult(transform, reason, state)


# --- all signals in every step -------------------------------------------------------------------


class Problem:
    """What does not change in one call of `learn`: the signals and the method."""

    def __init__(
        self, engine: Engine, method: Method, n_nonzero: int | NDArray, tol: float = 0.0
    ) -> None:
        self.engine, self.method, self.n_nonzero, self.tol = engine, method, n_nonzero, tol
        self.update = method.updater(engine.gram)
        self.n_passes = 0  # those of a result that is resumed included
        self._exact = engine.n_features * float(np.finfo(engine.dtype).eps)
        self._last: tuple[Transform, Statistics] | None = None

    def run_pass(self, transform: Transform) -> Statistics:
        """Pass over the data, unless the last pass was with the same transform."""
        if self._last is None or self._last[0] is not transform:
            self.n_passes += 1
            self._last = transform, self.engine.run_pass(as_matrix(transform), self.n_nonzero)
        return self._last[1]

    def rises(self, previous: Record, record: Record) -> bool:
        """Whether the loss rose by more than rounding explains, where it must not."""
        if not self.method.monotone:
            return False
        rounding = _ROUNDING[self.engine.dtype]
        return self.method.rises(previous.loss, record.loss, previous.coef_norm, rounding)

    def is_exact(self, record: Record) -> bool:
        """Whether nothing but rounding is left of the error."""
        return record.relative <= self._exact

    def is_same(self, record: Record, measured: Record) -> bool:
        """Whether two records are of the same signals, perhaps summed in another order.

        A loss may not depend on the unit of the signals; the norm of the coefficients does.
        """
        rounding = _SAME_LOSS[self.engine.dtype]
        pairs = (record.loss, measured.loss), (record.coef_norm, measured.coef_norm)
        return all(abs(old - new) <= rounding * abs(new) for old, new in pairs)


def step(state: State, problem: Problem) -> State:
    """One iteration of the active line: an update of its transform, and the pass with it.

    The first iteration of a line that joins a race is the pass that measures its start.
    A step that would raise the loss is dropped. Such a step, and one that changes the loss by no
    more than the tolerance, ends momentum or exploring, or else settles the line.
    """
    old, n_iter = state.line, state.n_iter + 1
    if not old.records:
        state = _with_line(state, old, _measured(old, problem), problem, n_iter=n_iter)
        return evaluated(_joined(state), problem)
    assert old.statistics is not None  # `evaluated` has seen to it
    method = problem.method
    reached = problem.update(old.statistics, old.transform, old.steps or method.steps)
    transform = old.momentum.carry(reached, method)
    carried = transform is not reached
    statistics = problem.run_pass(transform)
    record = measure(method, transform, statistics, old.statistics)
    # Only an update is known not to raise the loss: what it rises by is rounding, if it is little.
    rises = record.loss > old.loss if carried else problem.rises(old.records[-1], record)
    settles = abs(old.loss - record.loss) <= problem.tol * abs(old.loss)
    stays = rises or settles
    new = old
    if not rises:
        momentum = old.momentum.after(reached, carried) if method.momentum else old.momentum
        records = (*old.records, record)
        new = Line(transform, old.explore, records, statistics, momentum=momentum)
    if stays and carried:
        new = replace(new, momentum=old.momentum.stopped(), settled=None)
    elif stays:
        reason = StopReason.TOLERANCE if settles else StopReason.ROSE
        new = replace(new, explore=None, settled=reason if old.steps is None else None)
    state = _with_line(state, old, new, problem, n_iter=n_iter, turn=state.turn + 1)
    return evaluated(_raced(state), problem) if state.races else state


def _joined(state: State) -> State:
    """The race with a start that was just measured: far behind, it is dropped."""
    if state.line.loss <= _FAR * state.best.loss or state.best.loss <= 0:
        return state
    lines = tuple(line for line in state.lines if line is not state.line)
    return _raced(replace(state, lines=lines, active=lines.index(state.best), turn=_TURN))


def _raced(state: State) -> State:
    """The race after a step: whose turn it is, and who still races.

    First each start has a turn; then, of the lines that fall, the one with the lowest forecast. A
    leader that no longer falls waits for those that do. Lines that do not fall, or are not hoped
    to reach the lowest loss, are dropped.
    """
    if state.turn < _TURN and not state.line.settled:
        return state
    for i, line in enumerate(state.lines):
        if not line.records:
            return replace(state, active=i, turn=0)
    leader = state.best
    falling = [
        line for line in state.lines if line.falls and line.forecast(_MOST_DOUBLINGS) <= leader.loss
    ]
    lines = tuple(line for line in state.lines if line is leader or line in falling)
    following = min(falling or [leader], key=Line.forecast)
    return replace(state, lines=lines, active=lines.index(following), turn=0)


def evaluated(state: State, problem: Problem) -> State:
    """The state with the statistics of its active line, which a first or resumed one lacks.

    Where the loss is another one, so are the signals, and all begins anew. A line that joins a race
    is measured by its first iteration; then the best line says whether signals are the same.
    """
    joins = state.n_iter > 0 and not state.line.records
    line = state.best if joins else state.line
    if line.statistics is not None:
        return state
    measured = _measured(line, problem)
    if line.records and problem.is_same(line.records[-1], measured.records[-1]):
        measured = replace(line, statistics=measured.statistics)
    elif line.records:
        return evaluated(_without_history(state), problem)
    return _with_line(state, line, measured, problem)


def _without_history(state: State) -> State:
    """The state on other signals, where no error of the old ones counts: the best line begins."""
    best = state.best
    others = (line for line in state.lines if line is not best)
    lines = tuple(Line(*line.start) for line in (best, *others))
    return replace(state, lines=lines, active=0, turn=0)


def _measured(line: Line, problem: Problem) -> Line:
    """A line that begins here: its statistics, and its error as its only record."""
    statistics = problem.run_pass(line.transform)
    record = measure(problem.method, line.transform, statistics)
    return Line(*line.start, (record,), statistics)


def _with_line(state: State, old: Line, new: Line, problem: Problem, **changes: Any) -> State:
    """The state with another line in place of one, and with all passes so far."""
    lines = tuple(new if line is old else line for line in state.lines)
    return replace(state, lines=lines, n_passes=problem.n_passes, **changes)


# --- a batch of a stream in every step -----------------------------------------------------------


def stream_from(
    starts: list[Start], method: Method, n_nonzero: int, n_features: int, n_passes: int
) -> State:
    """A stream of which no batch has been seen."""
    empty = Statistics.empty(n_features)
    lines = tuple(Line(*start, statistics=empty) for start in starts)
    return State(method, n_nonzero, lines, n_passes=n_passes, n_signals=0)


def as_stream(state: State) -> State:
    """The stream that goes on after `learn`, with its signals, if they are known, as one batch."""
    best = state.best
    statistics = best.statistics or Statistics.empty(state.n_features)
    return replace(
        state,
        lines=(Line(best.transform, statistics=statistics),),
        active=0,
        turn=0,
        n_signals=int(statistics.n_signals),
        n_updates=state.n_iter,
    )


def follow(state: State, engine: Engine, forgetting: Forgetting, n_updates: int) -> State:
    r"""Learn from one batch: older statistics decay, its own join them, the transform follows.

    .. math:: G \leftarrow \rho G + Y^T Y, \qquad C \leftarrow \rho C + X^T Y .

    The less the older signals count beside the batch, the more updates it is worth: `n_updates` if
    there are none, otherwise in proportion to the share of the batch, at least one. For each of
    them the batch is coded anew. Since codes that were the best for an older transform are some
    codes for a newer one, the sums bound the error of all that was seen from above.
    """
    seen = state.n_signals or 0
    n_seen = seen + engine.n_signals
    factor = (seen / n_seen) ** _RECENCY if forgetting == "auto" else float(forgetting)
    older = factor * _remembered(state.lines[0]).n_signals
    share = engine.n_signals / (older + engine.n_signals)
    n_done = max(1, math.ceil(n_updates * share))
    state = replace(
        state,
        lines=tuple(_followed(line, state, engine, factor, n_done) for line in state.lines),
        n_signals=n_seen,
        n_updates=state.n_updates + n_done,
        n_iter=state.n_iter + 1,
        n_passes=state.n_passes + n_done * len(state.lines),
    )
    enough = n_seen >= _SIGNALS_TO_CHOOSE * state.n_features**2
    if state.races and enough and state.n_updates >= _UPDATES_TO_CHOOSE:
        return replace(state, lines=(replace(state.best, explore=None),))
    return state


def _followed(line: Line, state: State, engine: Engine, factor: float, n_updates: int) -> Line:
    """A line after some updates; its new record is the error before them, on the whole batch."""
    method, transform = state.method, line.transform
    older = _remembered(line).decay(factor)
    batch = engine.run_pass(as_matrix(transform), int(state.n_nonzero))
    record = measure(method, transform, batch)
    statistics = older.merge(batch)
    update = method.updater(statistics.gram)
    for i in range(n_updates):
        if i > 0:
            statistics = older.merge(engine.run_pass(as_matrix(transform), int(state.n_nonzero)))
        moved = update(statistics, transform, method.steps)
        if line.explore is not None and state.n_updates + i < _EXPLORING_STEPS:
            explored = update(statistics, transform, line.explore)
            if error_with(statistics, explored) <= error_with(statistics, transform):
                moved = explored
        transform = moved
    records = (*line.records[1 - _MOST_RECORDS :], record)
    return Line(transform, line.explore, records, statistics)


def _remembered(line: Line) -> Statistics:
    assert line.statistics is not None  # those of a stream have some, if of no signals
    return line.statistics


def resumable(init: Any, kind: tuple[Any, ...], *, stream: bool) -> State | None:
    """The state of a result that goes on: of the same (method, n_nonzero, n_features), or None."""
    if not isinstance(init, LearnResult) or init.state.is_stream != stream:
        return None
    state, (method, n_nonzero, n_features) = init.state, kind
    same = same_method(state.method, method) and state.n_features == n_features
    return state if same and np.array_equal(state.n_nonzero, n_nonzero) else None
