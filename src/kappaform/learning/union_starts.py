"""Starts of a union of transforms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kappaform.checks import Array, as_real_array
from kappaform.learning.race import Candidate, Problem, Race, step, with_statistics
from kappaform.learning.result import learned
from kappaform.learning.starts import Start, StartContext, starts_for
from kappaform.learning.union import Members, UnionOf, seed_for
from kappaform.learning.union_result import UnionResult
from kappaform.linalg import random_basis

# Steps of the first transform, and of the others together before the next one joins.
_FIRST_STEPS, _STEPS_OF_GROWTH = 60, 10
_GROWTH_TOL = 1e-3


class Auto(NamedTuple):
    """As `init`: one union that grows, and others that begin with random bases."""

    n_starts: int
    rng: np.random.Generator


def union_starts(init: Any, method: UnionOf, context: StartContext) -> list[Start]:
    """Starts to try, in order."""
    if isinstance(init, tuple) and not isinstance(init, Auto):
        if not init:
            raise ValueError("init=(): give at least one start, or 'auto'.")
        return [start for one in init for start in union_starts(one, method, context)]
    if method.is_single and not isinstance(init, UnionResult):
        init = "auto" if isinstance(init, Auto) else init
        starts = starts_for(init, method.method, context)
        return [Start(Members((start.transform,)), start.explore) for start in starts]
    if isinstance(init, Auto):
        first = Start(grown(method, context))
        return [first, *(random_start(method, context, init.rng) for _ in range(init.n_starts - 1))]
    found = learned(init, "init")
    if isinstance(found, UnionResult):
        found = found.transform
    return [Start(_feasible(as_union(found, method, context.n_features), method))]


def as_union(init: Any, method: UnionOf, n_features: int) -> Array:
    transforms = as_real_array(init, "init").astype(np.float64)
    wanted = method.n_transforms, n_features, n_features
    if transforms.shape != wanted:
        raise ValueError(
            f"init has shape {transforms.shape}: a union of {method.n_transforms} transforms for "
            f"{n_features} features has {wanted}."
        )
    largest = np.abs(transforms).max(axis=(1, 2))
    if not ((largest >= 1e-6) & (largest <= 1e6)).all():
        raise ValueError(
            "init has a transform that is zero, not finite, or has a largest entry outside 1e-6 to "
            "1e6: scale it."
        )
    return transforms


def _feasible(transforms: Array, method: UnionOf) -> Members:
    return Members(tuple(method.method.to_feasible(each) for each in transforms))


def random_start(method: UnionOf, context: StartContext, rng: np.random.Generator) -> Start:
    """Random orthonormal bases, as far as the method allows."""
    n_features = context.n_features
    bases = np.stack([random_basis(n_features, rng) for _ in range(method.n_transforms)])
    return Start(_feasible(bases, method))


def grown(method: UnionOf, context: StartContext) -> Members:
    """A union that begins as a single transform, and gets one after the other.

    The first is learned as `learn` does it. Each following one is made for the signals that fit
    worst so far; between two, all of them learn for a while.
    """
    whole, n_nonzero = context.problem, context.n_nonzero
    assert whole is not None
    starts = starts_for("auto", method.method, context)
    candidates = tuple(Candidate(Members((each.transform,)), each.explore) for each in starts)
    n_steps = _FIRST_STEPS
    for n_transforms in range(1, method.n_transforms):
        growing = replace(method, n_transforms=n_transforms)
        problem = Problem(whole.engine, growing, n_nonzero, _GROWTH_TOL)
        race = with_statistics(Race(growing, n_nonzero, candidates), problem)
        for _ in range(n_steps):
            race = step(race, problem)
            if race.candidate.converged and not race.races:
                break
        members, statistics = race.best.transform, race.best.statistics
        if statistics is None:
            statistics = problem.run_pass(members)
        seed = seed_for(method.method, whole.engine, n_nonzero, members, statistics)
        new = members.each[0] if seed is None else seed
        members = replace(members, each=(*members.each, new))
        candidates, n_steps = (Candidate(members),), _STEPS_OF_GROWTH
        whole.n_passes += problem.n_passes + 1
    return members
