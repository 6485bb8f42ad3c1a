"""Starts of a union of transforms: one that grows, and random bases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kappaform.engines import Engine
from kappaform.engines.union import Union
from kappaform.learning.members import Members, UnionStatistics
from kappaform.learning.method import Method
from kappaform.learning.race import Candidate, Problem, Race, step, with_statistics
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
    return _grown_from(candidates, method, context, _FIRST_STEPS)


def grown_further(method: UnionOf, context: StartContext, members: Members) -> Members:
    """A union of fewer transforms that has been learned, and more transforms.

    Its loss is not above that of `members`: they are all among the competitors.
    """
    return _grown_from((Candidate(members),), method, context, 0)


def _grown_from(
    candidates: tuple[Candidate, ...], method: UnionOf, context: StartContext, n_steps: int
) -> Members:
    """The best candidate with as many more transforms as the method has; `n_steps` come first."""
    whole, n_nonzero = context.problem, context.n_nonzero
    assert whole is not None
    for n_transforms in range(len(candidates[0].transform.each), method.n_transforms):
        growing = replace(method, n_transforms=n_transforms)
        problem = Problem(whole.engine, growing, n_nonzero, _TOL)
        race = with_statistics(Race(growing, n_nonzero, candidates), problem)
        for _ in range(n_steps):
            race = step(race, problem)
            if race.candidate.converged and not race.races:
                break
        members: Members = race.best.transform
        statistics: Any = race.best.statistics or problem.run_pass(members)
        seed = seed_for(method.method, whole.engine, n_nonzero, members, statistics)
        new = members.each[0] if seed is None else seed
        candidates = (Candidate(replace(members, each=(*members.each, new))),)
        whole.n_passes += problem.n_passes + 1
        n_steps = _STEPS
    return candidates[0].transform


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
