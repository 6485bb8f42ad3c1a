"""What learning asks of an engine, and what an engine tells of the data: sums of size n x n."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kappaform.checks import Array
from kappaform.linalg import scaled_inverse

Float64Array = npt.NDArray[np.float64]


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


class Energies(NamedTuple):
    """Squared norms over signals, their codes and their errors, of which no scale is lost.

    They are those of signals times ``2**exponent`` and, for `codes` and `discarded`, of a transform
    times ``2**transform_exponent``. Both are 0 unless scales are out of the ordinary.
    """

    signals: float  #: ‖Y‖²
    codes: float  #: ‖X‖²
    discarded: float  #: ‖Z − X‖²
    lost: float  #: ‖Y − X W⁻ᵀ‖²
    exponent: int = 0
    transform_exponent: int = 0

    @classmethod
    def of(cls, sums: Float64Array, exponent: int, transform_exponent: int) -> Energies:
        """From the four in an array."""
        signals, codes, discarded, lost = sums.tolist()
        return cls(signals, codes, discarded, lost, exponent, transform_exponent)

    @property
    def absolute(self) -> float:
        """‖X − Y Wᵀ‖ of signals and transform as given; inf, where it is beyond float64."""
        with np.errstate(over="ignore", under="ignore"):
            shift = -(self.exponent + self.transform_exponent)
            return float(np.ldexp(math.sqrt(self.discarded), shift))

    @property
    def relative(self) -> float:
        """‖X − Y Wᵀ‖ / ‖Y Wᵀ‖, 0 for coefficients that are all zero."""
        energy = self.codes + self.discarded
        return math.sqrt(self.discarded / energy) if energy else 0.0

    @property
    def reconstruction(self) -> float:
        """‖Y − X W⁻ᵀ‖ / ‖Y‖, 0 for signals that are all zero."""
        return math.sqrt(self.lost / self.signals) if self.signals else 0.0


class Refit(NamedTuple):
    r"""What codes need in order to rebuild signals best, for one transform W.

    A signal is the sum of the columns of :math:`W^{-1}`, its *atoms*, times its coefficients. Codes
    are chosen among the coefficients of atoms of norm 1, and have the values of least squares
    (docs/mathematics.md, section 3).
    """

    transform: Float64Array  #: the rows of W, each times the norm of its atom
    atoms: Float64Array  #: of norm 1, one in each row
    gram: Float64Array  #: their inner products
    scale: Float64Array  #: (n,), times 2**exponent: from codes of this transform to those of W
    exponent: int


def refit_of(transform: Float64Array) -> Refit:
    """For a finite matrix. A singular one is refused."""
    atoms, exponent = scaled_inverse(transform)  # one in each row, times 2**exponent
    norms = np.linalg.norm(atoms, axis=1)
    atoms = atoms / norms[:, np.newaxis]
    rows = np.ldexp(transform, -exponent) * norms[:, np.newaxis]
    return Refit(rows, atoms, atoms @ atoms.T, 1 / norms, exponent)


class Engine(Protocol):
    """One pass over signals, wherever they live.

    An engine trusts its arguments: transforms are finite float64 matrices of the right shape,
    `n_nonzero` comes from `kappaform.checks.sparsity_of`. Signals are first read when they are
    needed; those that are not finite are refused then. Everything (n, n) is float64 and in the
    memory of the host; whatever has a row for each signal stays where the signals are.
    """

    n_signals: int
    n_features: int
    dtype: np.dtype  #: of coefficients and codes: float32 or float64

    @property
    def exponent(self) -> int:
        """Of the power of two that multiplies signals in all that is summed. Read with `gram`."""

    @property
    def gram(self) -> Float64Array:
        """G = YᵀY of the scaled signals: one read, the first time."""

    def run_pass(self, transform: Float64Array, n_nonzero: int | Array) -> Statistics:
        """Statistics of the scaled signals with their codes H_s(Y Wᵀ): one read.

        They are of the transform as given: for one of norm 1e150, squares of codes overflow.
        """

    def energies(
        self,
        transform: Float64Array,
        inverse: tuple[Float64Array, int],
        n_nonzero: int | Array,
        refit: Refit | None = None,
    ) -> Energies:
        """Squared norms of signals, codes and errors: one read, which needs no `gram`.

        `inverse` as for `decode`. With a refit, what is `lost` is that of codes that rebuild best.
        """

    def encode(
        self, transform: Float64Array, n_nonzero: int | Array, refit: Refit | None = None
    ) -> Any:
        """Codes of the signals as given (not scaled): one read.

        They are H_s(Y Wᵀ), or with the refit of the transform those that rebuild best.
        """

    def decode(self, inverse: tuple[Float64Array, int]) -> Any:
        """Rows times a matrix: signals, where the rows are codes.

        `inverse` is that of `kappaform.linalg.scaled_inverse`: the matrix times a power of two.
        """
