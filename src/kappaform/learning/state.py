"""The state of learning, and one step of it: over all signals, or over a batch of a stream.

A state holds one or more lines: each is a start and how its errors fell. Several lines race: they
take turns, after every rung the better half stays, and the last one goes on alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Engine, Statistics
from kappaform.learning.methods import Conditioned, Forgetting, LogDet, Method, Orthonormal
from kappaform.learning.published import update_published
from kappaform.learning.result import LearnResult, Record, StopReason
from kappaform.learning.starts import Start, shown
from kappaform.learning.updates import (
    Steps,
    Transform,
    as_matrix,
    constraints_of,
    error_with,
    measure,
    own_steps,
    penalties,
    update_conditioned,
    update_log_det,
)
from kappaform.linalg import polar

# Of a race: steps of a line in the first rung (twice as many in each rung after it); how often a
# forecast repeats the fall of the loss; the first steps of a line, those it may explore with.
# Who chose them on what, and what they reach elsewhere: docs/mathematics.md, section 9.
_FIRST_RUNG = 8
_OPTIMISM = 2
_EXPLORING_STEPS = 20

# A stream drops no line before it has seen so many signals per unknown of the transform: its first
# batches need not be like the others.
_SIGNALS_TO_CHOOSE = 5
# forgetting="auto": a signal counts in proportion to this power of how many had been seen at its
# time. However long the stream, the newest part of it decides, and that part grows with it
# (docs/scale.md: measured against never forgetting).
_RECENCY = 4
# Records of a stream that are kept: its state does not grow with its length.
_MOST_RECORDS = 1000

# Rise of a loss, relative to its scale, that rounding explains.
_ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-6}
# Difference of a loss, relative to itself, that another engine or other blocks explain.
_SAME_LOSS = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4}


@dataclass(frozen=True, eq=False)
class Line:
    """One start: the transform it has led to, and how its errors fell."""

    transform: Transform
    explore: Steps | None = None  #: steps to begin with, None: those of the method
    records: tuple[Record, ...] = ()
    statistics: Statistics | None = None
    settled: bool = False  #: its last step changed little, or would have raised the loss
    waits: bool = False  #: it leads a race, and makes no steps while others might overtake it

    @property
    def loss(self) -> float:
        return self.records[-1].loss if self.records else math.inf

    @property
    def steps(self) -> Steps | None:
        """Steps to explore with now, None: those of the method."""
        return self.explore if len(self.records) <= _EXPLORING_STEPS else None

    @property
    def forecast(self) -> float:
        """The loss to hope for: what the later half of the steps gained, gained again and again."""
        halfway = self.records[(len(self.records) - 1) // 2].loss
        if self.settled or min(self.loss, halfway) <= 0:
            return self.loss
        return self.loss * min(1.0, self.loss / halfway) ** _OPTIMISM


@dataclass(frozen=True, eq=False)
class State:
    """Where learning is: the lines that race, one of them active, and what has been done."""

    method: Method
    n_nonzero: int | NDArray
    lines: tuple[Line, ...]
    active: int = 0
    n_iter: int = 0  #: steps of all lines, and starts measured but the first; of a stream, batches
    n_passes: int = 0
    rose: bool = False  #: whether the last step was dropped because the loss would have risen
    rung: int = 0  #: of the race: how often lines have been dropped
    turn: int = 0  #: steps of the active line in this rung; of a stream, of every line
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
    def rung_is_over(self) -> bool:
        """Whether the active line has made its steps of this rung."""
        return self.turn >= _FIRST_RUNG * 2**self.rung

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
    transform = shown(state.best.transform, state.method)
    transform.setflags(write=False)
    if not state.is_stream:
        state = replace(state, lines=tuple(replace(line, statistics=None) for line in state.lines))
    return LearnResult(transform, reason, state)


# --- all signals in every step -------------------------------------------------------------------


def updater(method: Method, gram: NDArray) -> Callable[[Statistics, Transform, Steps], Transform]:
    """The update of `method` for signals with this gram matrix, which is decomposed only once."""
    if isinstance(method, Orthonormal):
        return lambda statistics, transform, _: polar(statistics.cross, near=as_matrix(transform))
    if isinstance(method, LogDet):
        energy = float(np.trace(gram)) or 1.0
        log_det, frobenius = (energy * weight for weight in penalties(method))
        values, vectors = np.linalg.eigh(gram)
        root = np.sqrt(np.maximum(values, 0) + frobenius)
        roots = (vectors * root) @ vectors.T, (vectors / root) @ vectors.T
        return lambda statistics, transform, _: update_log_det(
            statistics, as_matrix(transform), *roots, log_det
        )
    constraints = constraints_of(method, gram)
    if method.variant != "monotone":
        return partial(update_published, method=method, constraints=constraints)
    return partial(update_conditioned, constraints=constraints, n_rounds=method.n_rounds)


class Problem:
    """What does not change in one call of `learn`: the signals and the method."""

    def __init__(
        self, engine: Engine, method: Method, n_nonzero: int | NDArray, tol: float = 0.0
    ) -> None:
        self.engine, self.method, self.n_nonzero, self.tol = engine, method, n_nonzero, tol
        self.update = updater(method, engine.gram)
        self.steps = own_steps(method)
        self.monotone = not isinstance(method, Conditioned) or method.variant == "monotone"
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
        """Whether the loss rose by more than rounding explains."""
        rounding = _ROUNDING[self.engine.dtype]
        if isinstance(self.method, LogDet):
            return record.loss - previous.loss > rounding * max(1.0, abs(previous.loss))
        # Rounding is a fraction of all the energy, not of the error, which may be much smaller.
        scale = 1.0 if self.steps == "relative" else previous.coef_norm
        new, old = record.loss / (scale or 1.0), previous.loss / (scale or 1.0)
        return new * new - old * old > rounding

    def is_exact(self, record: Record) -> bool:
        """Whether nothing but rounding is left of the error."""
        return record.relative <= self._exact

    def is_same(self, loss: float, measured: float) -> bool:
        """Whether two losses are of the same signals, perhaps summed in another order."""
        return abs(loss - measured) <= _SAME_LOSS[self.engine.dtype] * abs(measured)


def step(state: State, problem: Problem) -> State:
    """One iteration of the active line: an update of its transform, and the pass with it.

    The first iteration of a line that joins a race is the pass that measures its start.
    A step that would raise the loss is dropped: it ends exploring, or settles the line.
    """
    old = state.line
    if not old.records:
        return _with_active(state, _measured(old, problem), problem, n_iter=state.n_iter + 1)
    assert old.statistics is not None  # `evaluated` has seen to it
    transform = problem.update(old.statistics, old.transform, old.steps or problem.steps)
    statistics = problem.run_pass(transform)
    record = measure(problem.method, transform, statistics, old.statistics)
    rose = problem.monotone and problem.rises(old.records[-1], record)
    if rose:
        new = replace(old, explore=None, settled=old.steps is None)
    else:
        small = abs(old.loss - record.loss) <= problem.tol * abs(old.loss)
        new = replace(
            old,
            transform=transform,
            records=(*old.records, record),
            statistics=statistics,
            settled=small and old.steps is None,
        )
    state = _with_active(state, new, problem, n_iter=state.n_iter + 1, turn=state.turn + 1)
    if not state.races:
        return replace(state, rose=rose and new.settled)
    return evaluated(_raced(state), problem)


def _raced(state: State) -> State:
    """The race after a step: the same line goes on, or the next one; or the rung ends."""
    if not (state.line.settled or state.rung_is_over):
        return state
    following = _next_runner(state.lines, state.active + 1)
    if following is not None:
        return replace(state, active=following, turn=0)
    return _halved(state)


def _next_runner(lines: tuple[Line, ...], first: int) -> int | None:
    runners = (i for i in range(first, len(lines)) if not (lines[i].settled or lines[i].waits))
    return next(runners, None)


def _halved(state: State) -> State:
    """The race in its next rung: the half of the lines with the best prospects stays.

    So does the best one so far. If it is not in that half it waits, so that what was reached is
    never lost. Lines that have settled will not overtake it.
    """
    leader = state.best
    key = state.loss_of if state.is_stream else lambda line: line.forecast
    kept = sorted(state.lines, key=key)[: len(state.lines) // 2]
    lines = [replace(line, waits=False) for line in kept if line is leader or not line.settled]
    if leader not in kept:
        lines.append(replace(leader, waits=bool(lines)))
    active = _next_runner(tuple(lines), 0) or 0
    return replace(state, lines=tuple(lines), active=active, turn=0, rung=state.rung + 1)


def evaluated(state: State, problem: Problem) -> State:
    """The state with the statistics of its active line, which a first or resumed one lacks."""
    line = state.line
    if line.statistics is not None or (state.n_iter and not line.records):
        return state
    measured = _measured(line, problem)
    if line.records and problem.is_same(line.loss, measured.loss):
        measured = replace(line, statistics=measured.statistics)
    elif line.records:
        state = _without_history(state, problem)
    return _with_active(state, measured, problem)


def _measured(line: Line, problem: Problem) -> Line:
    """A line that begins here: its statistics, and its error as its only record."""
    statistics = problem.run_pass(line.transform)
    record = measure(problem.method, line.transform, statistics)
    return Line(line.transform, line.explore, (record,), statistics)


def _without_history(state: State, problem: Problem) -> State:
    """The state on other signals than it comes from: no error of those compares with a new one.

    Lines that race are measured anew, where they have been.
    """
    others = (line for line in state.lines if line is not state.line and line.records)
    anew = {id(line): _measured(line, problem) for line in others}
    lines = (anew.get(id(line), line) for line in state.lines)
    return replace(state, lines=tuple(lines))


def _with_active(state: State, line: Line, problem: Problem, **changes: Any) -> State:
    """The state with another active line, and with all passes so far."""
    i = state.active
    lines = (*state.lines[:i], line, *state.lines[i + 1 :])
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
        rose=False,
        rung=0,
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
        turn=state.turn + n_done,
        n_iter=state.n_iter + 1,
        n_passes=state.n_passes + n_done * len(state.lines),
    )
    enough = n_seen >= _SIGNALS_TO_CHOOSE * state.n_features**2
    return _halved(state) if state.races and enough and state.rung_is_over else state


def _followed(line: Line, state: State, engine: Engine, factor: float, n_updates: int) -> Line:
    """A line after some updates; its new record is the error before them, on the whole batch."""
    method, transform = state.method, line.transform
    older = _remembered(line).decay(factor)
    batch = engine.run_pass(as_matrix(transform), int(state.n_nonzero))
    record = measure(method, transform, batch)
    statistics = older.merge(batch)
    update = updater(method, statistics.gram)
    for i in range(n_updates):
        if i > 0:
            statistics = older.merge(engine.run_pass(as_matrix(transform), int(state.n_nonzero)))
        moved = update(statistics, transform, own_steps(method))
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
    same = state.method == method and state.n_features == n_features
    return state if same and np.array_equal(state.n_nonzero, n_nonzero) else None
