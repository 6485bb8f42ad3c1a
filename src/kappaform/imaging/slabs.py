"""Cleaning an image a few rows at a time, so that memory does not grow with it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.adaptive import clean_image

_SLAB_PIXELS = 2**20
# Above this peak, in units of the noise, single precision would show.
_SINGLE_PRECISION_PEAK = 4096


def precision_for(lowest: float, highest: float, centre: float, sigma: float) -> np.dtype:
    """Single precision, unless values are so far from their mean that it would show."""
    peak = max(highest - centre, centre - lowest) / sigma
    return np.dtype(np.float32 if peak <= _SINGLE_PRECISION_PEAK else np.float64)


def clean_slabs(
    image: NDArray,
    out: NDArray,
    counts: NDArray,
    *,
    transform: NDArray,
    patch_shape: tuple[int, ...],
    sigma: float,
    centre: float,
    dtype: np.dtype,
    value_range: tuple[float, float],
) -> None:
    """Clean an image into `out`, and numbers of coefficients into `counts`.

    A slab is cleaned with as many rows around it as the patches of its patches reach: slabs do not
    show.
    """
    low, high = value_range
    bounds = (low - centre) / sigma, (high - centre) / sigma
    halo = reach(patch_shape)[0]
    height = max(4 * halo, _SLAB_PIXELS // math.prod(image.shape[1:]), 1)
    for start in range(0, len(image), height):
        stop = min(start + height, len(image))
        first, last = max(start - halo, 0), min(stop + halo, len(image))
        slab = ((image[first:last].astype(np.float64) - centre) / sigma).astype(dtype)
        cleaned, numbers = clean_image(slab, patch_shape, transform, bounds)
        inner = slice(start - first, stop - first)
        out[start:stop] = np.clip(cleaned[inner].astype(np.float64) * sigma + centre, low, high)
        counts[start:stop] = numbers[inner]


def reach(patch_shape: tuple[int, ...]) -> tuple[int, ...]:
    """How far away pixels matter, along each axis: two sweeps, each as far as a patch reaches."""
    return tuple(2 * (side - 1) for side in patch_shape)
