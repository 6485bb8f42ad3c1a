"""The state of learning, and one step of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kappaform.engines import Statistics
from kappaform.learning.problem import Problem
from kappaform.learning.result import Record
from kappaform.learning.updates import Steps, Transform

# A start is explored as long as `_PATIENCE` iterations lower the loss by `_WORTHWHILE`, and not for
# ever. Starts take turns, so that none uses up a small budget alone.
_PATIENCE = 5
_WORTHWHILE = 0.01
_MAX_EXPLORATION = 100
_TURN = 25


@dataclass(frozen=True, eq=False)
class Descent:
    """One line of descent: where it stands, and what its errors were."""

    transform: Transform
    explore: Steps | None = None  #: steps of the exploration, None when that is over
    records: tuple[Record, ...] = ()
    statistics: Statistics | None = None

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
    assert old.statistics is not None
    transform = problem.update(old.statistics, old.transform, old.explore or problem.steps)
    statistics = problem.run_pass(transform)
    record = problem.measure(transform, statistics, old.statistics)
    rose = problem.monotone and problem.rises(old.records[-1], record)
    new = old if rose else Descent(transform, old.explore, (*old.records, record), statistics)
    if new.explore and (rose or _is_explored(new, problem.tol)):
        new = replace(new, explore=None)
    search = replace(_with_active(search, new), n_iter=search.n_iter + 1)
    if old.explore:
        return evaluated(_next_line(search), problem)
    return replace(search, rose=rose)


def evaluated(search: Search, problem: Problem) -> Search:
    """The search with the statistics of its active line, which a new or resumed one lacks."""
    descent = search.descent
    if descent.statistics is not None:
        return search
    measured = _measured(descent, problem)
    if descent.records and descent.loss == measured.loss:
        measured = replace(measured, records=descent.records)
    elif descent.records:
        search = _without_history(search, problem)
    return _with_active(search, measured)


def _measured(descent: Descent, problem: Problem) -> Descent:
    """A line that begins here: its statistics, and its error as its only record."""
    statistics = problem.run_pass(descent.transform)
    record = problem.measure(descent.transform, statistics, None)
    return replace(descent, statistics=statistics, records=(record,))


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
    n_lines = len(search.descents)
    n_done = len(search.descent.records) - 1
    if search.explores and n_done % _TURN:
        return search
    turns = ((search.active + i) % n_lines for i in range(1, n_lines + 1))
    waiting = [i for i in turns if search.descents[i].explore is not None]
    return replace(search, active=waiting[0] if waiting else search.descents.index(search.best))


def _is_explored(descent: Descent, tol: float) -> bool:
    losses = [record.loss for record in descent.records[-1 - _PATIENCE :]]
    if len(losses) <= _PATIENCE:
        return False
    worthwhile = max(_WORTHWHILE, _PATIENCE * tol)
    return losses[-1] > (1 - worthwhile) * losses[0] or len(descent.records) > _MAX_EXPLORATION


def _with_active(search: Search, descent: Descent) -> Search:
    i = search.active
    return replace(search, descents=(*search.descents[:i], descent, *search.descents[i + 1 :]))
