"""The transforms of a union, and the statistics of their signals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Engine, Statistics
from kappaform.engines.union import Union
from kappaform.learning.updates import Transform, as_matrix


@dataclass(frozen=True, eq=False)
class Members:
    """The transforms of a union, and what else decides which signals are theirs."""

    each: tuple[Transform, ...]
    ratio: float = 0.0  #: of the relative objective: the squared relative error before
    trials: int = 0  #: of other transforms in place of those with hardly any signals

    @cached_property
    def matrix(self) -> NDArray:
        """All matrices, (K, n, n)."""
        return np.stack([as_matrix(transform) for transform in self.each])

    @property
    def union(self) -> Union:
        """As engines take it: a signal belongs where ‖z − x‖² − ratio · ‖z‖² is least."""
        return Union(self.matrix, np.tile([1.0, -self.ratio, 0.0], (len(self.each), 1)))

    def run_pass(self, engine: Engine, n_nonzero: Any) -> UnionStatistics:
        """Statistics of the signals of each transform."""
        if len(self.each) == 1:
            return UnionStatistics((engine.run_pass(as_matrix(self.each[0]), n_nonzero),))
        return UnionStatistics(engine.run_union_pass(self.union, n_nonzero))

    def with_member(self, number: int, transform: Transform) -> Members:
        each = (*self.each[:number], transform, *self.each[number + 1 :])
        return replace(self, each=each)


@dataclass(frozen=True, eq=False)
class UnionStatistics:
    """Statistics of the signals of each transform; energies are those of all together."""

    parts: tuple[Statistics, ...]

    @property
    def code_energy(self) -> float:
        return math.fsum(part.code_energy for part in self.parts)

    @property
    def discarded_energy(self) -> float:
        return math.fsum(part.discarded_energy for part in self.parts)

    @property
    def n_signals(self) -> float:
        return sum(part.n_signals for part in self.parts)

    @property
    def counts(self) -> NDArray:
        return np.array([part.n_signals for part in self.parts])

    @property
    def exponent(self) -> int:
        return self.parts[0].exponent

    @property
    def scale(self) -> float:
        return self.parts[0].scale

    @cached_property
    def gram(self) -> NDArray:
        return np.stack([part.gram for part in self.parts])

    @property
    def ratio(self) -> float:
        """The squared relative error."""
        energy = self.discarded_energy + self.code_energy
        return self.discarded_energy / energy if energy else 0.0

    def merge(self, other: UnionStatistics) -> UnionStatistics:
        merged = tuple(map(Statistics.merge, self.parts, other.parts))
        exponent = min(part.exponent for part in merged)
        return UnionStatistics(tuple(part.at_exponent(exponent) for part in merged))

    def decay(self, factor: float) -> UnionStatistics:
        return UnionStatistics(tuple(part.decay(factor) for part in self.parts))


def no_statistics(transform: Any) -> Any:
    """Statistics of no signals."""
    matrix = as_matrix(transform)
    nothing = Statistics.empty(matrix.shape[-1])
    return nothing if matrix.ndim == 2 else UnionStatistics((nothing,) * len(matrix))
