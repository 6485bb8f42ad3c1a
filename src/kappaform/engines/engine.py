"""What learning asks of an engine, and what an engine returns: sums of size n x n.

Sums are of signals and transforms that are multiplied by powers of two, which loses no digit, where
squares would be beyond the range of floating-point numbers otherwise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kappaform.checks import Array, Float64Array
from kappaform.engines.codes import Energies, Inverse, Refit, Refits
from kappaform.errors import SignalsUnreadable

if TYPE_CHECKING:
    from kappaform.engines.union import Union, UnionSums

Sparsity = int | Array  #: entries of a code that are kept, of all signals or of each

# Signals whose largest magnitude is between 2**-exponent and 2**exponent are left alone: sums of
# their squares, and squares of what rounding leaves of them, are within the range of the dtype.
_ORDINARY_EXPONENT = {np.dtype(np.float32): 30, np.dtype(np.float64): 200}
# A transform whose largest entry is between 2**-8 and 2**8 is left alone: with signals that are
# left alone, squares of coefficients are then within the range of float32.
_ORDINARY_TRANSFORM = 8
_LARGEST_SHIFT = 1022  # the scale and its inverse are normal numbers
_LARGEST_NORM_EXPONENT = 1010  # of all signals: leaves 2**13 for the norm of a transform

# Errors of a program, not of its data: they pass unchanged, as reading again would not help.
_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
)


def scale_exponent(peak: float, dtype: np.dtype) -> int:
    """Exponent of the power of two by which signals up to `peak` are multiplied in all sums."""
    exponent = math.frexp(peak)[1]
    if abs(exponent) <= _ORDINARY_EXPONENT[dtype]:
        return 0
    return -max(-_LARGEST_SHIFT, min(exponent, _LARGEST_SHIFT))


class ScaledTransform(NamedTuple):
    """A transposed transform times 2**exponent, in the dtype of coefficients."""

    matrix: Array  #: C-ordered: BLAS has faster kernels for it
    exponent: int


def scaled_transform(transform: Float64Array, dtype: np.dtype) -> ScaledTransform:
    """A transform as blocks are multiplied by it."""
    exponent = -math.frexp(float(np.abs(transform).max()))[1]
    if abs(exponent) <= _ORDINARY_TRANSFORM:
        exponent, scaled = 0, transform
    else:
        scaled = np.ldexp(transform, exponent)
    return ScaledTransform(np.ascontiguousarray(scaled.T, dtype), exponent)


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


@dataclass(eq=False)
class PassSums:
    """XᵀY and (‖X‖², ‖Z − X‖²) of some signals."""

    cross: Float64Array
    energies: Float64Array

    def __add__(self, other: PassSums) -> PassSums:
        return PassSums(self.cross + other.cross, self.energies + other.energies)


@dataclass(frozen=True, eq=False)
class Statistics:
    r"""Sums over signals (rows of Y), with coefficients Z = Y Wᵀ and codes X = H_s(Z).

    For these codes, any transform V has :math:`\|X - Y V^T\|^2 = \mathrm{tr}(V G V^T) -
    2 \langle V, C \rangle + \|X\|^2`. All fields are float64 whatever the dtype of the signals. The
    sums are of signals times ``2**exponent``, so that no square overflows or vanishes.
    """

    gram: Float64Array  #: G = YᵀY, (n, n)
    cross: Float64Array  #: C = XᵀY, (n, n)
    code_energy: float  #: ‖X‖²
    discarded_energy: float  #: ‖Z − X‖², summed directly: no cancellation
    n_signals: float  #: rows of Y; a weight, not a count, after `decay`
    exponent: int = 0

    @classmethod
    def empty(cls, n_features: int) -> Statistics:
        """Statistics of no signals: the neutral element of `merge`."""
        shape = (n_features, n_features)
        return cls(np.zeros(shape), np.zeros(shape), 0.0, 0.0, 0)

    @property
    def scale(self) -> float:
        """Power of two by which the signals were multiplied."""
        return 2.0**self.exponent

    def merge(self, other: Statistics) -> Statistics:
        """Statistics of both sets of signals together, at a scale where the sums of both fit."""
        both = [each.exponent for each in (self, other) if each.gram.any()]
        exponent = min(both, default=other.exponent)
        one, two = self.at_exponent(exponent), other.at_exponent(exponent)
        return Statistics(
            one.gram + two.gram,
            one.cross + two.cross,
            one.code_energy + two.code_energy,
            one.discarded_energy + two.discarded_energy,
            one.n_signals + two.n_signals,
            exponent,
        )

    def at_exponent(self, exponent: int) -> Statistics:
        """The same at another scale: no digit is lost, unless a sum vanishes there."""
        shift = 2 * (exponent - self.exponent)
        if shift == 0:
            return self
        return replace(
            self,
            gram=np.ldexp(self.gram, shift),
            cross=np.ldexp(self.cross, shift),
            code_energy=math.ldexp(self.code_energy, shift),
            discarded_energy=math.ldexp(self.discarded_energy, shift),
            exponent=exponent,
        )

    def decay(self, factor: float) -> Statistics:
        """Let every signal so far count `factor` times (0 ≤ factor ≤ 1): forgetting."""
        return replace(
            self,
            gram=factor * self.gram,
            cross=factor * self.cross,
            code_energy=factor * self.code_energy,
            discarded_energy=factor * self.discarded_energy,
            n_signals=factor * self.n_signals,
        )


def unreadable(what: str) -> SignalsUnreadable:
    """The error for signals that failed, with its remedy."""
    return SignalsUnreadable(
        f"{what}. Fix the source of the signals and call again; if learning had begun, resume "
        "from the `.result` of this error (init=...)."
    )


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn errors of what signals are read or computed from into `SignalsUnreadable`."""
    try:
        yield
    except (*_MISTAKES, SignalsUnreadable):
        raise
    except Exception as error:
        raise unreadable(f"{what}: {type(error).__name__}: {error}") from error


class Engine(ABC):
    """One pass over signals, wherever they live.

    An engine trusts its arguments: transforms are finite float64 matrices of the right shape,
    `n_nonzero` comes from `kappaform.checks.sparsity_of`. Signals are first read when they are
    needed; those that are not finite are rejected then. Everything (n, n) is float64 and in the
    memory of the host; whatever has a row for each signal stays where the signals are.

    Attributes
    ----------
    signals : array, tensor or store of shape (n_signals, n_features)
        As given, never copied as a whole.
    name : str
        What errors call the signals.
    n_signals, n_features : int
    dtype : dtype
        Of coefficients and codes, float32 or float64.
    """

    def __init__(self, signals: Any, name: str, dtype: np.dtype) -> None:
        self.signals, self.name, self.dtype = signals, name, dtype
        self.n_signals, self.n_features = map(int, signals.shape)
        self._surveyed: ScaledSums | None = None

    @property
    def exponent(self) -> int:
        """Exponent of the power of two that multiplies signals in all sums. Read with `gram`."""
        return self._survey().exponent

    @property
    def gram(self) -> Float64Array:
        """G = YᵀY of the scaled signals: one read, the first time."""
        return self._survey().sums

    def _survey(self) -> ScaledSums:
        # No `cached_property`: in Python 3.11 it has one lock for all engines, in all threads.
        if self._surveyed is None:
            total = self._gram_sums()
            self._check_energy(float(np.trace(total.sums)), total.exponent)
            self._surveyed = total
        return self._surveyed

    def run_pass(self, transform: Float64Array, n_nonzero: Sparsity) -> Statistics:
        """Statistics of the scaled signals with their codes H_s(Y Wᵀ): one read.

        They are of the transform as given: for one of norm 1e150, squares of codes overflow.
        """
        gram, scaled = self.gram, scaled_transform(transform, self.dtype)
        sums = self._pass_sums(scaled, n_nonzero)
        cross, energies = self._unscaled(sums.cross, sums.energies, scaled.exponent)
        kept, discarded = energies.tolist()
        return Statistics(gram, cross, kept, discarded, self.n_signals, self.exponent)

    def run_union_pass(self, union: Union, n_nonzero: Sparsity) -> tuple[Statistics, ...]:
        """For each transform the statistics of the signals that are assigned to it: one read.

        The constants of the scores are at the scale of the statistics, `exponent`.
        """
        exponent, sums = self.exponent, self._union_sums(union, n_nonzero)
        energies, counts = sums.energies[:, :2], sums.energies[:, 2].astype(int)
        crosses, energies = self._unscaled(sums.crosses, energies, sums.exponent)
        each = zip(sums.grams, crosses, *energies.T.tolist(), counts.tolist(), strict=True)
        return tuple(
            Statistics(gram, cross, kept, discarded, count, exponent)
            for gram, cross, kept, discarded, count in each
        )

    def _unscaled(
        self, cross: Float64Array, energies: Float64Array, exponent: int
    ) -> tuple[Float64Array, Float64Array]:
        """Sums with a transform times 2**exponent, as those of the transform itself."""
        if not (np.isfinite(cross).all() and np.isfinite(energies).all()):
            raise unreadable(
                f"{self.name} gave NaN or inf in a pass, although they were finite before"
            )
        if not exponent:
            return cross, energies
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(cross, -exponent), np.ldexp(energies, -2 * exponent)

    def energies(
        self,
        transform: Float64Array,
        inverse: Inverse,
        n_nonzero: Sparsity,
        refit: Refit | None = None,
    ) -> Energies:
        """Squared norms of signals, codes and errors: one read, which needs no `gram`.

        `inverse` as for `decode`. With a refit, `lost` is that of the refitted codes.
        """
        scaled = scaled_transform(transform, self.dtype)
        return self._energies(self._energy_sums(scaled, inverse, n_nonzero, refit), scaled.exponent)

    def union_energies(
        self, union: Union, inverses: Sequence[Inverse], n_nonzero: Sparsity, refits: Refits
    ) -> Energies:
        """`energies`, of each signal with the transform that it is assigned to."""
        total = self._energy_sums(union, inverses, n_nonzero, refits)
        scaled = scaled_transform(np.concatenate(union.transforms), self.dtype)
        return self._energies(total, scaled.exponent)

    def _energies(self, total: ScaledSums, transform_exponent: int) -> Energies:
        self._check_energy(total.sums[0], total.exponent)
        signals, codes, discarded, lost = total.sums.tolist()
        return Energies(signals, codes, discarded, lost, total.exponent, transform_exponent)

    def _check_energy(self, energy: float, exponent: int) -> None:
        """Reject signals whose norm, times that of a transform, would overflow.

        `energy` is the sum of the squares of the scaled signals.
        """
        if energy > 0 and 0.5 * math.log2(energy) - exponent > _LARGEST_NORM_EXPONENT:
            raise ValueError(
                f"{self.name} has a norm above 2**{_LARGEST_NORM_EXPONENT} (1e304), so that norms "
                f"of coefficients overflow: scale it, for instance {self.name} / 1e100."
            )

    def check_in_memory(self) -> None:  # noqa: B027 - by default there is nothing to do
        """Reject signals that are not finite, if they are in memory: elsewhere it costs a read."""

    @abstractmethod
    def encode(
        self, transform: Float64Array, n_nonzero: Sparsity, refit: Refit | None = None
    ) -> Any:
        """Codes of the signals as given (not scaled): one read.

        They are H_s(Y Wᵀ), or with the refit of the transform the refitted ones.
        """

    @abstractmethod
    def assign(self, union: Union, n_nonzero: Sparsity) -> Any:
        """For each signal the number of its transform: one read."""

    @abstractmethod
    def encode_union(self, union: Union, n_nonzero: Sparsity, refits: Refits) -> Any:
        """Codes of the signals as given, K times as wide: `encode` with the transform of each.

        They are in the columns of that transform; all others are zero.
        """

    @abstractmethod
    def decode(self, inverse: Inverse) -> Any:
        """Rows times a matrix: signals, where the rows are codes.

        `inverse` is that of `kappaform.linalg.scaled_inverse`: the matrix times a power of two.
        """

    @abstractmethod
    def _gram_sums(self) -> ScaledSums:
        """YᵀY. Rejects signals that are not finite."""

    @abstractmethod
    def _pass_sums(self, transform: ScaledTransform, n_nonzero: Sparsity) -> PassSums:
        """Sums of the scaled signals with the scaled transform."""

    @abstractmethod
    def _energy_sums(
        self, transform: ScaledTransform | Union, inverse: Any, n_nonzero: Sparsity, refit: Any
    ) -> ScaledSums:
        """‖Y‖², ‖X‖², ‖Z − X‖² and ‖Y − X W⁻ᵀ‖². Rejects signals that are not finite.

        For a union, with the inverses and refits of all transforms: each signal with its own.
        """

    @abstractmethod
    def _union_sums(self, union: Union, n_nonzero: Sparsity) -> UnionSums:
        """Sums of the scaled signals with the scaled transforms."""
