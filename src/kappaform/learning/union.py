r"""A union of transforms: every signal is coded in the one that fits it best.

.. math:: \min_{W_1, \dots, W_K} \sum_i \min_k \|x_i - W_k y_i\|^2
          \quad \text{s.t.} \quad \kappa(W_k) \le \kappa, \; \|W_k\|_F = \tau

`UnionOf` makes a method of this, with the transforms `Members` and the statistics
`UnionStatistics`, so that `learn` learns it as it learns a single transform
(docs/mathematics.md, section 15).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Statistics
from kappaform.learning.growth import grown, grown_further, grown_on, random_members, seed_for
from kappaform.learning.members import Members, UnionStatistics
from kappaform.learning.method import Method, Updater, same_method
from kappaform.learning.race import Problem
from kappaform.learning.starts import Start, StartContext, starts_for
from kappaform.learning.updates import Steps, Transform

if TYPE_CHECKING:
    from kappaform.learning.result import Record

_MOST_TRIALS = 3  # of a new transform in place of one that has hardly any signals


@dataclass(frozen=True, eq=False)
class UnionOf(Method):
    """Several transforms, each learned by the same method from the signals that it fits best."""

    method: Method
    n_transforms: int
    n_starts: int = 3  #: matters at the start only, as the seed: equality ignores both
    seed: int = 0

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, UnionOf)
            and self.n_transforms == other.n_transforms
            and same_method(self.method, other.method)
        )

    __hash__ = None  # type: ignore[assignment] # a method may have fields that have none

    @property
    def max_condition(self) -> float | None:
        """The bound on the condition number of each transform."""
        return getattr(self.method, "max_condition", None)

    @property
    def monotone(self) -> bool:
        return bool(self.method.monotone)

    @property
    def momentum(self) -> bool:
        return bool(self.method.momentum)

    @property
    def steps(self) -> Steps:
        return self.method.steps

    @property
    def loss_power(self) -> int:  # type: ignore[override]
        return self.method.loss_power

    @property
    def union_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.n_transforms,)

    @property
    def is_single(self) -> bool:
        return self.n_transforms == 1

    @property
    def is_relative(self) -> bool:
        return self.method.steps == "relative" and not self.is_single

    def loss_scale(self, record: Record) -> float:
        return self.method.loss_scale(record)

    def checked_loss(self, statistics: UnionStatistics, transform: Members) -> float:
        """The loss of the method for the energies of all signals.

        A custom method with a loss of its own has its mean over the transforms, weighted by the
        energy of their signals.
        """
        if self.is_single:
            return self.method.checked_loss(statistics.parts[0], transform.each[0])
        if not has_own_loss(self.method):
            return self.method.loss(statistics, transform)  # type: ignore[arg-type]
        energies = [float(np.trace(part.gram)) for part in statistics.parts]
        total = math.fsum(energies) or 1.0
        return math.fsum(
            energy / total * self.method.checked_loss(part, member)
            for energy, part, member in zip(energies, statistics.parts, transform.each, strict=True)
            if energy
        )

    def updater(self, gram: NDArray) -> Updater:  # noqa: ARG002 - each has its own
        def update(statistics: UnionStatistics, members: Members, steps: Steps) -> Members:
            if self.is_relative:
                return self._relative_update(statistics, members)
            pairs = zip(statistics.parts, members.each, strict=True)
            return replace(members, each=tuple(self._updated(*pair, steps) for pair in pairs))

        return update

    def _relative_update(self, statistics: UnionStatistics, members: Members) -> Members:
        r"""Update for :math:`\|X - Y W^T\|^2 - \rho \|Y W^T\|^2`, rho the ratio of the two so far.

        It is :math:`1 - \rho` times the absolute error for the codes :math:`X / (1 - \rho)`, up to
        a constant. Where it falls below 0, the ratio falls below rho.
        """
        ratio = statistics.ratio
        if ratio >= 1:  # all codes are zero
            return members
        pairs = zip(statistics.parts, members.each, strict=True)
        each = tuple(
            self._updated(replace(part, cross=part.cross / (1 - ratio)), member, "exact")
            for part, member in pairs
        )
        return replace(members, each=each, ratio=ratio)

    def _updated(self, part: Statistics, member: Transform, steps: Steps) -> Transform:
        """A transform after its update; one without signals stays."""
        if not part.n_signals or not part.gram.any():
            return member
        return self.method.updater(part.gram)(part, member, steps)

    def extrapolate(self, last: Members, updated: Members, factor: float) -> Members:
        pairs = zip(last.each, updated.each, strict=True)
        each = tuple(self.method.extrapolate(old, new, factor) for old, new in pairs)
        return replace(updated, each=each)

    def reseeded(
        self, transform: Members, statistics: UnionStatistics, problem: Problem
    ) -> tuple[Members, UnionStatistics]:
        """A transform with fewer signals than features is tried elsewhere: where signals fit worst.

        It moves if that lowers the loss, and is tried so a few times at most.
        """
        few = statistics.counts < problem.engine.n_features
        if self.is_single or not few.any() or transform.trials >= _MOST_TRIALS:
            return transform, statistics
        tried = replace(transform, trials=transform.trials + 1)
        seed = seed_for(self.method, problem.engine, problem.n_nonzero, transform, statistics)
        if seed is None:
            return tried, statistics
        moved = tried.with_member(int(statistics.counts.argmin()), seed)
        new: Any = problem.run_pass(moved)
        if self.checked_loss(new, moved) < self.checked_loss(statistics, transform):
            return moved, new
        return tried, statistics

    def to_feasible(self, transform: Any) -> Members:
        members = isinstance(transform, Members)
        each = transform.each if members else transform
        ratio = transform.ratio if members else 0.0
        return Members(tuple(self.method.to_feasible(one) for one in each), ratio)

    def starts(self, context: StartContext) -> list[Start]:
        """Those of the method, for one transform; otherwise one that grows, and random bases."""
        assert context.problem is not None
        n_signals = context.problem.engine.n_signals
        if self.n_transforms > n_signals:
            raise ValueError(
                f"n_transforms={self.n_transforms} exceeds the {n_signals} signals "
                f"(n_samples={n_signals}): each transform needs some, give fewer transforms."
            )
        if self.is_single:
            starts = starts_for("auto", self.method, context)
            return [Start(Members((start.transform,)), start.explore) for start in starts]
        rng = np.random.default_rng(self.seed)
        others = (random_members(self, context, rng) for _ in range(self.n_starts - 1))
        return [Start(self._grown(context)), *map(Start, others)]

    def _grown(self, context: StartContext) -> Members:
        """A union that has grown: from a warm start, which may have fewer transforms, or afresh."""
        if context.warm is None:
            return grown(self, context)
        going_on = grown_on(self, context, context.warm)
        if going_on is not None:
            return going_on
        members: Members = context.warm.state.best.transform
        each = tuple(map(self.method.to_feasible, members.each))
        return grown_further(self, context, replace(members, each=each, trials=0))

    def as_array(self, transform: Members) -> NDArray:
        return np.stack([self.method.as_array(each) for each in transform.each])


def has_own_loss(method: Method) -> bool:
    """Whether a custom method defines what it minimises; the absolute error is that of all."""
    built_in = type(method).__module__.startswith("kappaform.")
    return not built_in and type(method).loss is not Method.loss
