"""Functions of blocks of rows for a union of transforms: each row counts for one of them.

A row is assigned to the transform with the lowest score, a weighted sum of what its code discards,
of the energy of its coefficients and of a constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kappaform.checks import Array, Float64Array
from kappaform.engines import blocks
from kappaform.engines.blocks import BITS, BlockEngine, Run
from kappaform.engines.codes import Inverse, Refits
from kappaform.engines.engine import (
    ScaledSums,
    ScaledTransform,
    Sparsity,
    scale_exponent,
    scaled_transform,
)
from kappaform.engines.union_kernels import GATHERED, accumulate_won, compete

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Union(NamedTuple):
    """Transforms, and how signals are assigned to them.

    The score of a signal with the coefficients z and the code x is
    ``weights[k] @ (‖z − x‖², ‖z‖², 1)``; the lowest one decides, of equal ones the first.
    """

    transforms: Float64Array  #: (K, n, n)
    weights: Float64Array  #: (K, 3)


class ScaledUnion(NamedTuple):
    """Transforms at one scale, so that scores can be compared, and their weights there."""

    transforms: tuple[ScaledTransform, ...]
    weights: Float64Array

    @property
    def exponent(self) -> int:
        return self.transforms[0].exponent


def scaled_union(union: Union, dtype: np.dtype) -> ScaledUnion:
    """A union as blocks are multiplied by it."""
    stacked, exponent = scaled_transform(np.concatenate(union.transforms), dtype)
    matrices = np.split(stacked, len(union.transforms), axis=1)
    weights = union.weights.copy()
    weights[:, 2] = np.ldexp(weights[:, 2], 2 * exponent)
    return ScaledUnion(
        tuple(ScaledTransform(np.ascontiguousarray(each), exponent) for each in matrices), weights
    )


@dataclass(eq=False)
class UnionSums:
    """Sums over the signals of each transform of a union."""

    grams: Float64Array  #: YᵀY, (K, n, n)
    crosses: Float64Array  #: XᵀY, (K, n, n)
    energies: Float64Array  #: ‖X‖², ‖Z − X‖² and the number of signals, (K, 3)
    exponent: int  #: of the scale of the transforms

    @classmethod
    def empty(cls, union: ScaledUnion, n_features: int) -> UnionSums:
        n_transforms = len(union.transforms)
        shape = n_transforms, n_features, n_features
        energies = np.zeros((n_transforms, 3))
        return cls(np.zeros(shape), np.zeros(shape), energies, union.exponent)

    def __add__(self, other: UnionSums) -> UnionSums:
        return UnionSums(
            self.grams + other.grams,
            self.crosses + other.crosses,
            self.energies + other.energies,
            self.exponent,
        )


class _Won(NamedTuple):
    """For each row of a block, the transform that won it, and the code there."""

    best: Float64Array  #: score, number of the transform, ‖x‖², ‖z − x‖²
    chosen: Array  #: where the entries of the code are
    counts: Array  #: how many they are
    values: Array  #: what they are


class UnionBlockEngine(BlockEngine):
    """An engine of blocks that also has the functions for a union."""

    def encode_union(self, union: Union, n_nonzero: Sparsity, refits: Refits, **how: Any) -> Any:
        width = len(union.transforms) * self.n_features
        return self._rows(encode, width, n_nonzero, union, refits, **how)

    def assign(self, union: Union, n_nonzero: Sparsity) -> Any:
        return self._rows(assign, 1, n_nonzero, union, dtype=np.dtype(np.intp))[:, 0]

    def _union_sums(self, union: Union, n_nonzero: Sparsity) -> UnionSums:
        number = len(union.transforms)
        options = {"n_sums": 2 * number, "n_guesses": number}
        return self._total(pass_over, n_nonzero, union, self.exponent, **options)

    def _union_energy_sums(
        self, union: Union, inverses: Sequence[Inverse], n_nonzero: Sparsity, refits: Refits
    ) -> ScaledSums:
        return self._total(energies, n_nonzero, union, inverses, refits)


def pass_over(run: Run, given: Union, exponent: int, thresholds: Array) -> UnionSums:
    """Sums of signals times 2**exponent, for the scaled transforms.

    `thresholds` as for `blocks.pass_over`, a row for each transform.
    """
    n, union = run.n_features, scaled_union(given, run.dtype)
    total = UnionSums.empty(union, n)
    gathered = blocks.buffer(run, "gathered", GATHERED, run.dtype)
    partials = blocks.buffer(run, "partials", 2 * blocks.padded(n), run.dtype)
    partials = partials.reshape(2, -1, blocks.padded(n))
    for rows, block in run.blocks:
        signals = blocks.scaled_rows(block, exponent, run.dtype, run)
        won = _competition(run, rows, signals, union, thresholds)
        sums = total.crosses, total.grams, total.energies
        accumulate_won(signals, *won, gathered, partials, *sums)
    total.grams = np.triu(total.grams) + np.triu(total.grams, 1).transpose(0, 2, 1)
    return total


def assign(run: Run, union: Union, numbers: Array) -> None:
    """Write the number of the transform of each row of signals as given, in a row of its own."""
    scaled = scaled_union(union, run.dtype)
    for rows, block in run.blocks:
        numbers[rows, 0] = _assigned(run, rows, block, scaled)


def encode(run: Run, union: Union, refits: Refits, codes: Array | None) -> list[csr_array]:
    """Codes of the signals as given: those of a row are in the columns of its transform.

    As `blocks.encode`: written into `codes`, or if that is None returned as sparse arrays.
    """
    from scipy.sparse import csr_array

    n, pieces = run.n_features, []
    scaled = scaled_union(union, run.dtype)
    for rows, block in run.blocks:
        shape = len(block), len(union.weights) * n
        wide = np.zeros(shape, run.dtype) if codes is None else codes[rows]
        for number, members, part in _parts(run, rows, block, scaled):
            own = np.zeros((len(members), n), run.dtype)
            blocks.encode(part, union.transforms[number], refits[number], own)
            wide[members, number * n : (number + 1) * n] = own
        if codes is None:
            pieces.append(csr_array(wide))
    return pieces


def energies(run: Run, union: Union, inverses: Sequence[Inverse], refits: Refits) -> ScaledSums:
    """Sums of `blocks.energies`, each row with its transform."""
    total, scaled = ScaledSums(np.zeros(4), run.dtype), scaled_union(union, run.dtype)
    for rows, block in run.blocks:
        for number, _, part in _parts(run, rows, block, scaled):
            transform, inverse = scaled.transforms[number], inverses[number]
            some = blocks.energies(part, transform, inverse, refits[number])
            total.add(some.peak, some.sums, some.exponent)
    return total


def _parts(
    run: Run, rows: slice, block: Array, union: ScaledUnion
) -> Iterator[tuple[int, Array, Run]]:
    """For each transform its number, its rows of a block, and a run of these."""
    numbers = _assigned(run, rows, block, union)
    for number, members in _members(numbers, len(union.weights)):
        mine, sparsity = slice(0, len(members)), run.sparsity[rows][members]
        yield number, members, run._replace(blocks=[(mine, block[members])], sparsity=sparsity)


def _assigned(run: Run, rows: slice, block: Array, union: ScaledUnion) -> Array:
    """Numbers of the transforms of the rows of a block. Rejects rows that are not finite."""
    exponent = scale_exponent(blocks.checked_peak(rows, block, run.name), run.dtype)
    signals = blocks.scaled_rows(block, exponent, run.dtype, run)
    unknown = np.zeros((len(union.weights), 0), BITS[run.dtype])
    return _competition(run, rows, signals, union, unknown).best[:, 1]


def _competition(
    run: Run, rows: slice, signals: Array, union: ScaledUnion, thresholds: Array
) -> _Won:
    sparsity = run.sparsity[rows].astype(np.int64)
    n_rows, most = len(signals), max(1, int(sparsity.max(initial=0)))
    won = _Won(
        np.full((n_rows, 4), math.inf),
        np.empty((n_rows, most), np.int32),
        np.empty(n_rows, np.int64),
        np.empty((n_rows, most), run.dtype),
    )
    for number, transform in enumerate(union.transforms):
        coefs = blocks.coefs_of(signals, transform, run)
        guesses = blocks.thresholds_of(rows, thresholds[number], run.workspace)
        bits = coefs.view(BITS[run.dtype])
        compete(coefs, bits, sparsity, guesses, union.weights[number], number, *won)
    return won


def _members(numbers: Array, n_transforms: int) -> Iterator[tuple[int, Array]]:
    """The rows of each transform that has any, in their order."""
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(n_transforms + 1))
    for number in range(n_transforms):
        if ends[number] < ends[number + 1]:
            yield number, order[ends[number] : ends[number + 1]]
