"""Starts of a union of transforms: one that grows, and random bases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kappaform.engines import Engine
from kappaform.engines.union import Union
from kappaform.learning.members import Members, UnionStatistics
from kappaform.learning.method import Method
from kappaform.learning.race import (
    Candidate,
    Latest,
    Problem,
    Race,
    resumable,
    step,
    with_statistics,
)
from kappaform.learning.result import LearnResult, StopReason
from kappaform.learning.starts import StartContext, starts_for
from kappaform.learning.updates import Steps, Transform, as_matrix
from kappaform.linalg import random_basis

if TYPE_CHECKING:
    from kappaform.learning.union import UnionOf

# Steps of the first transform, and of all together before the next one joins; and the relative
# change of the loss below which these are enough.
_FIRST_STEPS, _STEPS, _TOL = 60, 10, 1e-3


def random_members(method: UnionOf, context: StartContext, rng: np.random.Generator) -> Members:
    """Random orthonormal bases, as far as the method allows."""
    bases = [random_basis(context.n_features, rng) for _ in range(method.n_transforms)]
    return Members(tuple(method.method.to_feasible(basis) for basis in bases))


def grown(method: UnionOf, context: StartContext) -> Members:
    """A union that begins as a single transform, and gets one after the other.

    The first is learned as `learn` does it. Each following one is made for the signals that fit
    worst so far; between two, all of them learn for a while.
    """
    starts = starts_for("auto", method.method, context)
    candidates = tuple(Candidate(Members((each.transform,)), each.explore) for each in starts)
    return _grown_from(Race(_with(method, 1), context.n_nonzero, candidates), method, context)


def grown_on(method: UnionOf, context: StartContext, found: LearnResult) -> Members | None:
    """A union that goes on growing where `grown` was interrupted; None if it was not, or not so."""
    if found.stop_reason is not StopReason.INTERRUPTED:
        return None
    smaller = _with(method, len(found.transform))
    race = resumable(found, smaller, context.n_nonzero, context.n_features)
    return None if race is None or race.is_stream else _grown_from(race, method, context)


def grown_further(method: UnionOf, context: StartContext, members: Members) -> Members:
    """A union of fewer transforms that has been learned, and more transforms.

    Its loss is not above that of `members`: they are all among the competitors.
    """
    smaller = _with(method, len(members.each))
    race = Race(smaller, context.n_nonzero, (Candidate(members),))
    return _grown_from(race, method, context, n_steps=0)


def _grown_from(
    race: Race, method: UnionOf, context: StartContext, n_steps: int | None = None
) -> Members:
    """The best candidate of a race, with as many more transforms as the method has.

    The race has `n_steps` first, those it has behind it included; by default as many as `grown`
    gives it. An error carries the last state, from which `grown_on` continues.
    """
    whole, n_nonzero, latest = context.problem, context.n_nonzero, Latest()
    assert whole is not None
    try:
        while True:
            n_transforms = len(race.candidates[0].transform.each)
            if n_transforms == method.n_transforms:
                return race.candidates[0].transform
            problem = Problem(whole.engine, race.method, n_nonzero, _TOL)
            if race.best.records:  # as `learn` resumes: histories are kept, statistics are not
                latest.race = race
            race = with_statistics(race, problem)
            if n_steps is None:
                n_steps = _FIRST_STEPS if n_transforms == 1 else _STEPS
            while race.n_iter < n_steps and not (race.candidate.converged and not race.races):
                race = latest.race = step(race, problem)
            race = _with_one_more(race, method, problem)
            whole.n_passes += problem.n_passes + 1
            n_steps = None
    except (Exception, KeyboardInterrupt) as error:
        latest.carry(error)
        raise


def _with_one_more(race: Race, method: UnionOf, problem: Problem) -> Race:
    """The race of the best candidate and a transform for the signals that fit it worst."""
    members: Members = race.best.transform
    statistics: Any = race.best.statistics or problem.run_pass(members)
    seed = seed_for(method.method, problem.engine, race.n_nonzero, members, statistics)
    each = (*members.each, members.each[0] if seed is None else seed)
    larger = Candidate(replace(members, each=each))
    return Race(_with(method, len(each)), race.n_nonzero, (larger,))


def _with(method: UnionOf, n_transforms: int) -> UnionOf:
    return replace(method, n_transforms=n_transforms)


def seed_for(
    method: Method, engine: Engine, n_nonzero: Any, members: Members, statistics: UnionStatistics
) -> Transform | None:
    """A transform for the signals that fit worst: those whose score is above the mean.

    Their codes, for the first update, are those of the transform with the largest error. None, if
    there is no such signal.
    """
    energy = statistics.discarded_energy + statistics.code_energy
    mean = (statistics.discarded_energy - members.ratio * energy) / max(1.0, statistics.n_signals)
    worst = max(range(len(members.each)), key=lambda k: statistics.parts[k].discarded_energy)
    member = members.each[worst]
    # One more transform competes: its score is the mean for every signal.
    transforms, weights = members.union
    pseudo = Union(
        np.concatenate([transforms, as_matrix(member)[np.newaxis]]),
        np.concatenate([weights, [[0.0, 0.0, mean]]]),
    )
    part = engine.run_union_pass(pseudo, n_nonzero)[-1]
    if not part.n_signals or not part.gram.any():
        return None
    steps: Steps = "exact" if method.steps == "relative" else method.steps
    return method.updater(part.gram)(part, member, steps)
