"""What learning asks of an engine."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kappaform.engines.statistics import Float64Array, Statistics


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
