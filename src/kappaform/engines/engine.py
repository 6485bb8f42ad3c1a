"""What learning asks of an engine, and what an engine tells of the data: sums of size n x n."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

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


class Engine(Protocol):
    """One pass over signals, wherever they live.

    Everything (n, n) is float64 and in the memory of the host; whatever has a row for each signal
    stays where the signals are.
    """

    n_signals: int
    n_features: int
    dtype: np.dtype  #: of coefficients and codes: float32 or float64

    @property
    def scale(self) -> float:
        """Power of two that multiplies signals in all that is summed: squares stay finite."""

    @property
    def gram(self) -> Float64Array:
        """G = YᵀY of the scaled signals."""

    def run_pass(self, transform: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> Statistics:
        """Statistics of the scaled signals with their codes H_s(Y Wᵀ)."""

    def lost_energy(
        self, transform: npt.ArrayLike, inverse: Float64Array, n_nonzero: int | npt.ArrayLike
    ) -> float:
        """‖Y − X W⁻ᵀ‖² of the scaled signals: what codes do not give back."""

    def encode(self, transform: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> Any:
        """Codes H_s(Y Wᵀ) of the signals as given (not scaled)."""

    def apply(self, matrix: npt.ArrayLike) -> Any:
        """Product of every signal as given with a matrix: Y Mᵀ."""
