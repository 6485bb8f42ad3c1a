"""How large signals are: whether they are finite, and the scale that keeps their squares so."""

from __future__ import annotations

import numpy as np

from kappaform.engines.blocks import Array, working_dtype

# Signals whose largest magnitude is between 2**-exponent and 2**exponent are left alone: sums of
# their squares, and squares of what rounding leaves of them, are within the range of the dtype.
_ORDINARY_EXPONENT = {np.dtype(np.float32): 30, np.dtype(np.float64): 200}
_LARGEST_SHIFT = 1022  # the scale and its inverse are normal numbers


def scale_exponent(peak: float, dtype: np.dtype) -> int:
    """Exponent of the power of two by which signals up to `peak` are multiplied in all sums."""
    exponent = int(np.frexp(peak)[1])
    if abs(exponent) <= _ORDINARY_EXPONENT[dtype]:
        return 0
    return -max(-_LARGEST_SHIFT, min(exponent, _LARGEST_SHIFT))


def max_magnitude(signals: Array) -> float:
    """Largest magnitude, NaN if one is."""
    return float(np.maximum(float(signals.max()), -float(signals.min())))


def first_bad_row(signals: Array) -> int | None:
    """First row that is not finite in the dtype of the engine."""
    good = (np.abs(signals) <= np.finfo(working_dtype(signals.dtype)).max).all(axis=1)
    return None if good.all() else int(good.argmin())


def not_finite(name: str, row: int) -> str:
    """What errors say of signals that are not finite."""
    return f"{name} contains NaN or inf, first in row {row}: drop such rows or fill them."
