"""Powers of two that keep sums of squares within the range of floating-point numbers."""

from __future__ import annotations

import math

import numpy as np

# Signals whose largest magnitude is between 2**-exponent and 2**exponent are left alone: sums of
# their squares, and squares of what rounding leaves of them, are within the range of the dtype.
_ORDINARY_EXPONENT = {np.dtype(np.float32): 30, np.dtype(np.float64): 200}


_LARGEST_NORM_EXPONENT = 1010  # of all signals: leaves 2**13 for the norm of a transform


_LARGEST_SHIFT = 1022  # the scale and its inverse are normal numbers


def scale_exponent(peak: float, dtype: np.dtype) -> int:
    """Exponent of the power of two by which signals up to `peak` are multiplied in all sums."""
    exponent = math.frexp(peak)[1]
    if abs(exponent) <= _ORDINARY_EXPONENT[dtype]:
        return 0
    return -max(-_LARGEST_SHIFT, min(exponent, _LARGEST_SHIFT))


def check_energy(energy: float, exponent: int, name: str) -> None:
    """Refuse signals whose norm, times that of a transform, would overflow.

    `energy` is the sum of their squares, each times 2**exponent.
    """
    if energy > 0 and 0.5 * math.log2(energy) - exponent > _LARGEST_NORM_EXPONENT:
        raise ValueError(
            f"{name} has a norm above 2**{_LARGEST_NORM_EXPONENT} (1e304), so that norms of "
            f"coefficients overflow: scale it, for instance {name} / 1e100."
        )
