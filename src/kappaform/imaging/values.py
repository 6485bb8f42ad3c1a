"""The values of an image: their limits, and whether float64 has room for them."""

from __future__ import annotations

import numpy as np

from kappaform.arrays import Array, library_of

_LARGEST_VALUE = 1e300  # sums over a patch stay within float64
_LARGEST_PEAK = 2.0**52  # distance from the centre over noise: float64 has no more digits


def limits(stack: Array) -> tuple[Array, Array]:
    """Lowest and highest value of each slice and channel of a stack, as float64."""
    space = tuple(range(1, stack.ndim - 1))
    lowest, highest = computed(stack.min(space), stack.max(space))
    check_finite(lowest, highest)
    return lowest.astype(np.float64), highest.astype(np.float64)


def check_finite(lowest: Array, highest: Array) -> None:
    """Refuse an image with such extreme values: NaN is one wherever it occurs."""
    if not (np.isfinite(lowest) & np.isfinite(highest)).all():
        raise ValueError("image contains NaN or inf: fill such pixels first.")


def check_scale(lowest: Array, highest: Array, sigmas: Array) -> None:
    """Refuse an image for which float64 has no room, or too few digits to see the noise."""
    too_large = np.maximum(-lowest, highest) > _LARGEST_VALUE
    too_far = ((highest / 2 - lowest / 2) / _LARGEST_PEAK > sigmas) & (sigmas > 0)
    for where in np.argwhere(too_large | too_far)[:1].tolist():
        at = tuple(where)
        raise ValueError(
            f"image has values from {lowest[at]:.3g} to {highest[at]:.3g}, and sigma is "
            f"{sigmas[at]:.3g}: more than the 16 digits of float64, or near its largest number. "
            "Fill outliers, such as pixels without data; scale huge values and sigma; give sigma=0 "
            "where there is no noise."
        )


def computed(*arrays: Array) -> tuple[Array, ...]:
    """The same arrays in memory, those of a Dask array together."""
    if library_of(arrays[0]) != "dask":
        return arrays
    from dask.base import compute

    return compute(*arrays)
