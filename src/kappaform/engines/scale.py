"""Scales: signals and transforms times powers of two, which loses no digit.

Squares would be beyond the range of floating-point numbers otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kappaform.checks import Array, Float64Array

# Signals whose largest magnitude is between 2**-exponent and 2**exponent are left alone: sums of
# their squares, and squares of what rounding leaves of them, are within the range of the dtype.
_ORDINARY_EXPONENT = {np.dtype(np.float32): 30, np.dtype(np.float64): 200}
# A transform whose largest entry is between 2**-8 and 2**8 is left alone: with signals that are
# left alone, squares of coefficients are then within the range of float32.
_ORDINARY_TRANSFORM = 8
_LARGEST_SHIFT = 1022  # the scale and its inverse are normal numbers


def scale_exponent(peak: float, dtype: np.dtype) -> int:
    """Exponent of the power of two by which signals up to `peak` are multiplied in all sums."""
    exponent = math.frexp(peak)[1]
    if abs(exponent) <= _ORDINARY_EXPONENT[dtype]:
        return 0
    return -max(-_LARGEST_SHIFT, min(exponent, _LARGEST_SHIFT))


class ScaledTransform(NamedTuple):
    """A transposed transform times 2**exponent, in the dtype of coefficients."""

    matrix: Array
    exponent: int


def scaled_transform(transform: Float64Array, dtype: np.dtype) -> ScaledTransform:
    """A transform as blocks are multiplied by it."""
    exponent = -math.frexp(float(np.abs(transform).max()))[1]
    if abs(exponent) <= _ORDINARY_TRANSFORM:
        exponent, scaled = 0, transform
    else:
        scaled = np.ldexp(transform, exponent)
    return ScaledTransform(scaled.astype(dtype, order="C", copy=False).T, exponent)


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
    matrices = np.split(stacked.T, len(union.transforms))
    weights = union.weights.copy()
    weights[:, 2] = np.ldexp(weights[:, 2], 2 * exponent)
    return ScaledUnion(tuple(ScaledTransform(each.T, exponent) for each in matrices), weights)


@dataclass(eq=False)
class ScaledSums:
    """Sums of squares and products of signals, at the scale that the largest so far requires."""

    sums: Float64Array  #: of signals times 2**exponent
    dtype: np.dtype  #: of the signals
    peak: float = 0.0  #: largest magnitude of the signals
    exponent: int = 0

    def add(self, peak: float, sums: Array, exponent: int) -> None:
        """Add sums of more signals. Powers of two lose no digit, unless a sum vanishes."""
        self.peak = max(self.peak, peak)
        common = scale_exponent(self.peak, self.dtype)
        if common != self.exponent:
            self.sums = np.ldexp(self.sums, 2 * (common - self.exponent))
            self.exponent = common
        self.sums += np.ldexp(sums, 2 * (common - exponent)) if common != exponent else sums

    def __add__(self, other: ScaledSums) -> ScaledSums:
        total = replace(self, sums=self.sums.copy())
        total.add(other.peak, other.sums, other.exponent)
        return total
