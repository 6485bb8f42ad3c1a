"""All that a transform update needs to know of the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Statistics:
    r"""Sums over signals (rows of Y), with coefficients Z = Y Wᵀ and codes X = H_s(Z).

    For these codes, any transform V has :math:`\|X - Y V^T\|^2 = \mathrm{tr}(V G V^T) -
    2 \langle V, C \rangle + \|X\|^2`. All fields are float64 whatever the dtype of the signals.
    """

    gram: Float64Array  #: G = YᵀY, (n, n)
    cross: Float64Array  #: C = XᵀY, (n, n)
    code_energy: float  #: ‖X‖²
    discarded_energy: float  #: ‖Z − X‖², summed directly: no cancellation
    n_signals: float  #: rows of Y; a weight, not a count, after `decay`

    @classmethod
    def empty(cls, n_features: int) -> Statistics:
        """Statistics of no signals: the neutral element of `merge`."""
        shape = (n_features, n_features)
        return cls(np.zeros(shape), np.zeros(shape), 0.0, 0.0, 0)

    def add(self, signals: npt.ArrayLike, coefs: npt.ArrayLike, codes: npt.ArrayLike) -> Statistics:
        """Include more signals, given with their coefficients and codes (all three (m, n))."""
        y, z, x = (np.asarray(a, dtype=np.float64) for a in (signals, coefs, codes))
        dropped = z - x
        batch = Statistics(
            y.T @ y, x.T @ y, float(np.vdot(x, x)), float(np.vdot(dropped, dropped)), len(y)
        )
        return self.merge(batch)

    def merge(self, other: Statistics) -> Statistics:
        """Statistics of both sets of signals together."""
        return Statistics(
            self.gram + other.gram,
            self.cross + other.cross,
            self.code_energy + other.code_energy,
            self.discarded_energy + other.discarded_energy,
            self.n_signals + other.n_signals,
        )

    def decay(self, factor: float) -> Statistics:
        """Let every signal so far count `factor` times (0 ≤ factor ≤ 1): forgetting."""
        if not 0.0 <= factor <= 1.0:
            raise ValueError(
                f"factor={factor} is outside [0, 1]: 1 keeps everything, 0 forgets all."
            )
        return Statistics(
            factor * self.gram,
            factor * self.cross,
            factor * self.code_energy,
            factor * self.discarded_energy,
            factor * self.n_signals,
        )
