"""Learning from all signals: several candidates race, and each step continues one of them.

A candidate is one start with its history. The most promising candidate makes the next steps;
candidates that can no longer be expected to win are dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Engine
from kappaform.engines.kernels import FLUSH_ROWS
from kappaform.learning.members import Members, UnionStatistics
from kappaform.learning.method import Method, Updater, same_method
from kappaform.learning.result import LearningInterrupted, LearnResult, Record, StopReason
from kappaform.learning.starts import Start
from kappaform.learning.union_result import UnionResult
from kappaform.learning.updates import Steps, as_matrix

# Constants of the race (docs/mathematics.md, section 9: how they were chosen, what they reach).
_FAR = 100  # times the lowest loss: a start that is not tried
_TURN = 12  # steps
_WORTHWHILE = 0.01  # decrease of the loss over the later half of all steps that justifies more
_DOUBLINGS = 2  # of the number of steps of a candidate, which its forecast looks ahead
_MOST_DOUBLINGS = 6  # within which a candidate must be expected to reach the lowest loss
EXPLORING_STEPS = 20  #: the first steps of a candidate that explores

# Extrapolation (docs/mathematics.md, section 6.6): its first and its largest factor, and how the
# factor changes after a step that lowers the loss and after one that does not.
_FIRST_FACTOR, LARGEST_FACTOR, _LONGER, _SHORTER = 0.5, 30.0, 1.2, 0.5

# Rise of a loss, relative to its scale, that rounding explains. For float32 it was at most 5e-8 of
# the energy, in 8,900 updates for signals of 18 kinds at bounds up to 20.
LOSS_ROUNDING = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-7}
# Difference of a loss, relative to itself, that another engine or other blocks explain.
_SAME_LOSS = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4}


@dataclass(frozen=True, eq=False)
class Momentum:
    """How far the next step extrapolates beyond its update."""

    last: Any = None  #: result of the last update; None: no extrapolation
    factor: float = _FIRST_FACTOR  #: of the difference between the next update and the last one

    def extrapolate(self, updated: Any, method: Method) -> Any:
        """Where a step ends whose update gave `updated`."""
        return updated if self.last is None else method.extrapolate(self.last, updated, self.factor)

    def after(self, updated: Any, extrapolated: bool = True) -> Momentum:
        """Momentum of the next step, after one that lowered the loss."""
        change = 1.0 if self.last is None else _LONGER if extrapolated else _SHORTER
        return Momentum(updated, min(change * self.factor, LARGEST_FACTOR))

    def stopped(self) -> Momentum:
        """Momentum of the next step, after an extrapolation that gained nothing."""
        return Momentum(None, self.factor * _SHORTER)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One start: the transform it has led to, and its history."""

    transform: Any  #: a matrix, its factors, or the members of a union
    explore: Steps | None = None  #: kind of the first steps; None: those of the method
    records: tuple[Record, ...] = ()
    statistics: Any = None  #: `Statistics`, or those of a union
    converged: StopReason | None = None  #: why it would stop if it were alone
    momentum: Momentum = field(default_factory=Momentum)

    @property
    def start(self) -> Start:
        """The same candidate without its history."""
        return Start(self.transform, self.explore)

    @property
    def loss(self) -> float:
        return self.records[-1].loss if self.records else math.inf

    @property
    def steps(self) -> Steps | None:
        """Kind of the next step; None: that of the method."""
        return self.explore if len(self.records) <= EXPLORING_STEPS else None

    @property
    def decrease(self) -> float:
        """Factor by which the later half of the steps lowered the loss; 1 if converged."""
        halfway = self.records[(len(self.records) - 1) // 2].loss
        if self.converged or min(self.loss, halfway) <= 0:
            return 1.0
        return min(1.0, self.loss / halfway)

    @property
    def decreases(self) -> bool:
        return self.decrease <= 1 - _WORTHWHILE

    def forecast(self, doublings: int = _DOUBLINGS) -> float:
        """The loss to expect if every doubling of its steps gains as much as the last one."""
        return self.loss * self.decrease**doublings


@dataclass(frozen=True, eq=False)
class Race:
    """State of a run: the candidates still racing, the active one, and the work done so far."""

    method: Method
    n_nonzero: int | NDArray
    candidates: tuple[Candidate, ...]
    active: int = 0
    n_iter: int = 0  #: steps of all candidates, and evaluations of the starts except the first
    n_passes: int = 0
    turn: int = 0  #: steps of the active candidate in its turn

    is_stream: ClassVar[bool] = False  #: whether each step sees one batch only

    @property
    def candidate(self) -> Candidate:
        """The active candidate."""
        return self.candidates[self.active]

    @property
    def n_features(self) -> int:
        return as_matrix(self.candidates[0].transform).shape[-1]

    @property
    def races(self) -> bool:
        return len(self.candidates) > 1

    @property
    def best(self) -> Candidate:
        """The candidate of lowest loss."""
        return min(self.candidates, key=self.loss_of) if self.races else self.candidates[0]

    def loss_of(self, candidate: Candidate) -> float:
        return candidate.loss


def result_of(race: Race, reason: StopReason) -> LearnResult:
    """What learning returns. It is small: a pass recomputes the statistics on resuming."""
    transform = race.method.as_array(race.best.transform)
    transform.setflags(write=False)
    if not race.is_stream:
        bare = tuple(replace(candidate, statistics=None) for candidate in race.candidates)
        race = replace(race, candidates=bare)
    kind = LearnResult if transform.ndim == 2 else UnionResult
    return kind(transform, reason, race)


class Latest:
    """What has been learned so far, for an error to carry.

    It is not a context: Ctrl-C while a successful block is left would lose what was learned.
    """

    def __init__(self) -> None:
        self.race: Race | None = None
        self.finished: tuple[LearnResult, ...] = ()  #: results of the bounds that are done

    @property
    def result(self) -> LearnResult | None:
        if self.race is not None:
            return result_of(self.race, StopReason.INTERRUPTED)
        return self.finished[-1] if self.finished else None

    def carry(self, error: BaseException) -> None:
        """Ctrl-C becomes `LearningInterrupted`; any other exception gets the attribute `result`.

        And, for several bounds, `finished`. Errors that carry a result already keep it.
        """
        result = getattr(error, "result", None) or self.result
        if result is None:
            return
        if isinstance(error, KeyboardInterrupt) and not isinstance(error, LearningInterrupted):
            raise LearningInterrupted(result, self.finished) from None
        vars(error)["result"] = result
        if self.finished:
            vars(error)["finished"] = self.finished


class Problem:
    """What does not change during one call of `learn`: the signals and the method."""

    def __init__(
        self, engine: Engine, method: Method, n_nonzero: int | NDArray, tol: float = 0.0
    ) -> None:
        self.engine, self.method, self.n_nonzero, self.tol = engine, method, n_nonzero, tol
        self.n_passes = 0  # including those of a result that is resumed
        self._exact = engine.n_features * float(np.finfo(engine.dtype).eps)
        self._last: tuple[Any, Any] | None = None

    @cached_property
    def update(self) -> Updater:
        return self.method.updater(self.engine.gram)

    def run_pass(self, transform: Any) -> Any:
        """Pass over the data, unless the last pass was with the same transform."""
        if self._last is None or self._last[0] is not transform:
            self.n_passes += 1
            self._last = transform, pass_with(self.engine, transform, self.n_nonzero)
        return self._last[1]

    def reached(self, transform: Any) -> tuple[Any, Any]:
        """A transform with its statistics; a union may be replaced by one of lower loss."""
        statistics = self.run_pass(transform)
        if isinstance(transform, Members):
            union: Any = self.method
            return union.reseeded(transform, statistics, self)
        return transform, statistics

    def rises(self, old: Record, new: Record) -> bool:
        """Whether the loss of a monotone method rose by more than rounding usually explains."""
        return self.method.monotone and self._rise(old, new) > LOSS_ROUNDING[self.engine.dtype]

    def why_rejected(self, old: Candidate, new: Record) -> StopReason:
        """Whether coefficients that cancel explain a rise (docs/mathematics.md, section 8)."""
        signals = math.ldexp(math.sqrt(np.trace(self.engine.gram)), -self.engine.exponent)
        norm = np.atleast_1d(np.linalg.norm(as_matrix(old.transform), axis=(-2, -1)))
        cancelled = float(norm.max()) * (signals / (old.records[-1].coef_norm or 1.0))
        n_terms, eps = self.engine.n_features + FLUSH_ROWS, np.finfo(self.engine.dtype).eps
        factor = 2 + cancelled * (norm.size > 1)  # gram matrices of parts are rounded, too
        rounding = factor * math.sqrt(n_terms) * eps * cancelled
        is_rounding = self._rise(old.records[-1], new) <= rounding
        return StopReason.ROUNDING if is_rounding else StopReason.ROSE

    def _rise(self, old: Record, new: Record) -> float:
        power, scale = self.method.loss_power, self.method.loss_scale(old) or 1.0
        return float((new.loss / scale) ** power - (old.loss / scale) ** power)

    def is_exact(self, record: Record) -> bool:
        """Whether nothing but rounding is left of the error."""
        return record.relative <= self._exact

    def is_same(self, old: Record, new: Record) -> bool:
        """Whether two records are of the same signals, perhaps summed in another order.

        A loss may not depend on the unit of the signals; the norm of the coefficients does.
        """
        rounding = _SAME_LOSS[self.engine.dtype]
        pairs = (old.loss, new.loss), (old.coef_norm, new.coef_norm)
        return all(abs(one - other) <= rounding * abs(other) for one, other in pairs)


def pass_with(engine: Engine, transform: Any, n_nonzero: int | NDArray) -> Any:
    """Statistics of the signals of an engine with the codes of a transform or of a union."""
    if isinstance(transform, Members):
        return transform.run_pass(engine, n_nonzero)
    return engine.run_pass(as_matrix(transform), n_nonzero)


def errors_of(method: Method, transform: Any, now: Any, before: Any = None) -> Record:
    """Errors of a transform with its own codes, and with those of the transform before it."""
    error, scale = math.sqrt(now.discarded_energy), math.ldexp(1.0, now.exponent)
    coef_norm = math.sqrt(now.discarded_energy + now.code_energy)
    error_before = math.nan if before is None else error_with_codes(before, as_matrix(transform))
    absolute, absolute_before = error / scale, error_before / scale
    relative, relative_before = error / (coef_norm or 1.0), error_before / (coef_norm or 1.0)
    loss = method.checked_loss(now, transform)
    return Record(loss, absolute, relative, absolute_before, relative_before, coef_norm / scale)


def error_with_codes(codes: Any, matrix: NDArray) -> float:
    """Error of any transform, or union, with the codes of the given statistics, at their scale."""
    if isinstance(codes, UnionStatistics):
        return math.hypot(*map(error_with_codes, codes.parts, matrix))
    fit = float(np.vdot(matrix @ codes.gram, matrix) - 2 * np.vdot(matrix, codes.cross))
    return math.sqrt(max(fit + codes.code_energy, 0.0))


def step(race: Race, problem: Problem) -> Race:
    """One iteration of the active candidate: an update of its transform, and the pass with it.

    The first iteration of a candidate that joins a race is the pass that evaluates its start.
    A step that would raise the loss is rejected. A rejected step, or one that changes the loss by
    no more than the tolerance, first switches off extrapolation, then exploration; after that the
    candidate counts as converged.
    """
    old, n_iter = race.candidate, race.n_iter + 1
    if not old.records:
        race = _with_candidate(race, old, _evaluated(old, problem), problem, n_iter=n_iter)
        return with_statistics(_after_joining(race), problem)
    method = problem.method
    updated = problem.update(old.statistics, old.transform, old.steps or method.steps)
    proposed = old.momentum.extrapolate(updated, method)
    extrapolated = proposed is not updated
    transform, statistics = problem.reached(proposed)
    record = errors_of(method, transform, statistics, old.statistics)
    # Only an update is known not to raise the loss: a small rise after it is rounding.
    rises = record.loss > old.loss if extrapolated else problem.rises(old.records[-1], record)
    is_within_tol = abs(old.loss - record.loss) <= problem.tol * abs(old.loss)
    new = old
    if not rises:
        momentum = old.momentum.after(updated, extrapolated) if method.momentum else old.momentum
        if transform is not proposed and transform.each is not proposed.each:
            momentum = Momentum()  # a transform of a union is elsewhere now
        records = (*old.records, record)
        new = Candidate(transform, old.explore, records, statistics, momentum=momentum)
    if rises or is_within_tol:
        if extrapolated:
            new = replace(new, momentum=old.momentum.stopped(), converged=None)
        else:
            reason = StopReason.TOLERANCE if is_within_tol else problem.why_rejected(old, record)
            new = replace(new, explore=None, converged=reason if old.steps is None else None)
    race = _with_candidate(race, old, new, problem, n_iter=n_iter, turn=race.turn + 1)
    return with_statistics(_after_step(race), problem) if race.races else race


def stop_reason(race: Race, problem: Problem) -> StopReason | None:
    """Why to stop after a step, if at all."""
    if problem.is_exact(race.best.records[-1]):
        return StopReason.EXACT
    return None if race.races else race.candidate.converged


def _after_joining(race: Race) -> Race:
    """The race after a start was evaluated: a start that is far behind is dropped."""
    if race.candidate.loss <= _FAR * race.best.loss or race.best.loss <= 0:
        return race
    kept = tuple(each for each in race.candidates if each is not race.candidate)
    return _after_step(replace(race, candidates=kept, active=kept.index(race.best), turn=_TURN))


def _after_step(race: Race) -> Race:
    """The race after a step: whose turn it is, and who still races.

    First each start has a turn; then the candidate with the lowest forecast among those whose loss
    decreases. A leader whose loss no longer decreases waits for the others. Candidates whose loss
    does not decrease, or cannot be expected to reach the lowest one, are dropped.
    """
    if race.turn < _TURN and not race.candidate.converged:
        return race
    for i, candidate in enumerate(race.candidates):
        if not candidate.records:
            return replace(race, active=i, turn=0)
    leader = race.best
    hopeful = [
        candidate
        for candidate in race.candidates
        if candidate.decreases and candidate.forecast(_MOST_DOUBLINGS) <= leader.loss
    ]
    kept = tuple(each for each in race.candidates if each is leader or each in hopeful)
    following = min(hopeful or [leader], key=Candidate.forecast)
    return replace(race, candidates=kept, active=kept.index(following), turn=0)


def with_statistics(race: Race, problem: Problem) -> Race:
    """The race with the statistics of its active candidate, which a new or resumed one lacks.

    A different loss means different signals, and then all histories start again. A candidate that
    joins a race is evaluated by its first iteration; until then the best candidate shows whether
    the signals are the same.
    """
    joins = race.n_iter > 0 and not race.candidate.records
    candidate = race.best if joins else race.candidate
    if candidate.statistics is not None:
        return race
    evaluated = _evaluated(candidate, problem)
    if candidate.records and problem.is_same(candidate.records[-1], evaluated.records[-1]):
        evaluated = replace(candidate, statistics=evaluated.statistics)
    elif candidate.records:
        return with_statistics(_without_history(race), problem)
    return _with_candidate(race, candidate, evaluated, problem)


def _without_history(race: Race) -> Race:
    """The race on other signals, for which no old error counts: the best candidate begins."""
    best = race.best
    others = (candidate for candidate in race.candidates if candidate is not best)
    restarted = tuple(Candidate(*candidate.start) for candidate in (best, *others))
    return replace(race, candidates=restarted, active=0, turn=0)


def _evaluated(candidate: Candidate, problem: Problem) -> Candidate:
    """A candidate that begins here: its statistics, and its error as the only record."""
    statistics = problem.run_pass(candidate.transform)
    record = errors_of(problem.method, candidate.transform, statistics)
    return Candidate(*candidate.start, (record,), statistics)


def _with_candidate(
    race: Race, old: Candidate, new: Candidate, problem: Problem, **changes: Any
) -> Race:
    """The race with one candidate replaced, and with all passes so far."""
    candidates = tuple(new if each is old else each for each in race.candidates)
    return replace(race, candidates=candidates, n_passes=problem.n_passes, **changes)


def resumable(init: Any, method: Method, n_nonzero: int | NDArray, n_features: int) -> Race | None:
    """The state of a result of the same method, sparsity and features, to be resumed."""
    if not isinstance(init, LearnResult):
        return None
    race = init.state
    same = race.n_features == n_features and np.array_equal(race.n_nonzero, n_nonzero)
    return race if same and same_method(race.method, method) else None
