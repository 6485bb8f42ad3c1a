"""The state of learning, and one step of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kappaform.engines import Statistics
from kappaform.learning.problem import Problem
from kappaform.learning.result import Record
from kappaform.learning.updates import Steps, Transform

# A start is explored as long as so many iterations lower the loss by `_WORTHWHILE`, and not for
# ever; nor after two turns, if it is then `_HOPELESS` times as bad as another. Two starts at a time
# take turns, so that none uses up a small budget alone.
_PATIENCE = 5
_PATIENCE_WANDERING = 30
_WORTHWHILE = 0.01
_HOPELESS = 1.5
_MAX_EXPLORATION = 100
_TURN = 25
_AT_A_TIME = 2

# Steps that go on where the loss rises: it may fall further than before.
_WANDERING: tuple[Steps, ...] = ("turn", "turn-exact")


@dataclass(frozen=True, eq=False)
class Descent:
    """One line of descent: the best it has reached, and how its errors fell to that."""

    transform: Transform
    explore: Steps | None = None  #: steps of the exploration, None when that is over
    records: tuple[Record, ...] = ()
    statistics: Statistics | None = None
    explored: tuple[float, ...] = ()  #: lowest loss after each step of the exploration
    wandering: tuple[Transform, Statistics | None] | None = None  #: where it is, if not at its best

    @property
    def loss(self) -> float:
        return self.records[-1].loss if self.records else math.inf


@dataclass(frozen=True, eq=False)
class Search:
    """Lines of descent from one or more starts, one of them active."""

    descents: tuple[Descent, ...]
    active: int = 0
    n_iter: int = 0
    n_passes: int = 0  #: of earlier calls, when resumed
    rose: bool = False  #: whether the last step was dropped because the loss would have risen

    @property
    def descent(self) -> Descent:
        return self.descents[self.active]

    @property
    def best(self) -> Descent:
        return min(self.descents, key=lambda descent: descent.loss)

    @property
    def explores(self) -> bool:
        return self.descent.explore is not None


def step(search: Search, problem: Problem) -> Search:
    """One iteration of the active line: update the transform, pass over the data.

    While starts are explored, the lines take turns; then the best one goes on with the steps of the
    method. A step that would raise the loss against the method's promise is dropped.
    """
    old = search.descent
    before, transform = _updated(old, problem)
    statistics = problem.run_pass(transform)
    record = problem.measure(transform, statistics, before)
    wanders = old.explore in _WANDERING
    rose = record.loss >= old.loss if wanders else _rises(old, record, problem)
    if not rose:
        new = replace(
            old,
            transform=transform,
            records=(*old.records, record),
            statistics=statistics,
            wandering=None,
        )
    else:
        new = replace(old, wandering=(transform, statistics)) if wanders else old
    search = replace(_with_active(search, new), n_iter=search.n_iter + 1)
    if old.explore is None:
        return replace(search, rose=rose)
    new = replace(new, explored=(*new.explored, new.loss))
    over = _is_explored(new, problem.tol) or _is_hopeless(new, search.best)
    if (rose and not wanders) or over:
        new = replace(new, explore=None, wandering=None)
    return evaluated(_next_line(_with_active(search, new)), problem)


def _updated(descent: Descent, problem: Problem) -> tuple[Statistics, Transform]:
    """The next transform of a line, and the statistics it was updated with."""
    transform, statistics = descent.wandering or (descent.transform, descent.statistics)
    if statistics is None:  # of a line that was resumed where it wandered
        statistics = problem.run_pass(transform)
    return statistics, problem.update(statistics, transform, descent.explore or problem.steps)


def _rises(descent: Descent, record: Record, problem: Problem) -> bool:
    return problem.monotone and problem.rises(descent.records[-1], record)


def evaluated(search: Search, problem: Problem) -> Search:
    """The search with the statistics of its active line, which a new or resumed one lacks."""
    descent = search.descent
    if descent.statistics is not None:
        return search
    measured = _measured(descent, problem)
    if descent.records and descent.loss == measured.loss:
        measured = replace(descent, statistics=measured.statistics)
    elif descent.records:
        search = _without_history(search, problem)
    return _with_active(search, measured)


def without_statistics(descent: Descent) -> Descent:
    """A line as small as it can be kept: a pass finds its statistics again."""
    wandering = descent.wandering and (descent.wandering[0], None)
    return replace(descent, statistics=None, wandering=wandering)


def _measured(descent: Descent, problem: Problem) -> Descent:
    """A line that begins here: its statistics, and its error as its only record."""
    statistics = problem.run_pass(descent.transform)
    record = problem.measure(descent.transform, statistics, None)
    return Descent(descent.transform, descent.explore, (record,), statistics)


def _without_history(search: Search, problem: Problem) -> Search:
    """The search on other signals than it comes from: no error of those compares with a new one.

    While starts are explored all are measured anew; afterwards the one that was chosen goes on.
    """
    active = search.descent
    if not search.explores:
        return replace(search, descents=(active,), active=0)
    lines = (line if line is active else _measured(line, problem) for line in search.descents)
    return replace(search, descents=tuple(lines))


def _next_line(search: Search) -> Search:
    """Whose turn it is: the next start still to be explored, or the best one after the last."""
    if search.explores and len(search.descent.explored) % _TURN:
        return search
    waiting = [i for i, line in enumerate(search.descents) if line.explore][:_AT_A_TIME]
    if not waiting:
        return replace(search, active=search.descents.index(search.best))
    later = [i for i in waiting if i > search.active]
    return replace(search, active=(later or waiting)[0])


def _is_explored(descent: Descent, tol: float) -> bool:
    wanders, n_steps = descent.explore in _WANDERING, len(descent.explored)
    patience = _PATIENCE_WANDERING if wanders else _PATIENCE
    if n_steps < (2 * _TURN if wanders else patience):
        return False
    losses = (descent.records[0].loss, *descent.explored)
    worthwhile = max(_WORTHWHILE, patience * tol)
    return losses[-1] > (1 - worthwhile) * losses[-1 - patience] or n_steps >= _MAX_EXPLORATION


def _is_hopeless(descent: Descent, best: Descent) -> bool:
    behind = descent.loss - best.loss > (_HOPELESS - 1) * abs(best.loss)
    return len(descent.explored) >= 2 * _TURN and behind


def _with_active(search: Search, descent: Descent) -> Search:
    i = search.active
    return replace(search, descents=(*search.descents[:i], descent, *search.descents[i + 1 :]))
