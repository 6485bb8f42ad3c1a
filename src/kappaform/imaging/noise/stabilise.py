r"""Variance-stabilising transforms, and their unbiased inverses.

Shot noise: with z photons (Poisson, mean \lambda) and read noise of standard deviation s, values

.. math:: f(z) = 2 \sqrt{z + 3/8 + s^2}

have noise of standard deviation about 1 for every \lambda (generalised Anscombe transform). Below
z = 0, f is continued linearly, so that no value is lost. A denoiser estimates the mean of f(z), not
f of the mean. The inverse is therefore that of the function \lambda \mapsto E f(z), computed here
as a sum over the likely counts.

Noise of standard deviation s(x) at brightness x: f is the integral of 1 / s, and for normal noise
the mean of f is f(x) - s'(x) / 2, by the second derivative of f.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import library_of

_SHIFT = 3 / 8
# Above, E f(z) = 2 sqrt(lambda + 1/8 + s**2) except for 0.02 photons, where noise moves 14.
_MOST_PHOTONS = 200.0
_N_MEANS = 1000  # of the table, between which the inverse is linear
_BEYOND = 1e6  # how far the table extends beyond the given brightnesses, over their range
_SINGLE_PRECISION_LIMIT = 2**14  # float32 resolves the noise, which is 1, to 1/1000


def anscombe(image: Any, gain: Any, read_noise: Any, offset: Any) -> Any:
    """f of the photons behind the values of an image (channels last)."""
    gain = np.asarray(gain, np.float64)
    photons = (image - np.asarray(offset, np.float64)) / gain
    return _of_few_digits(_stabilised(photons, np.asarray(read_noise, np.float64) / gain))


def _stabilised(photons: Any, read: Any) -> Any:
    shift = _SHIFT + np.square(read)
    return 2 * np.sqrt(np.maximum(photons, 0.0) + shift) + np.minimum(photons, 0.0) / np.sqrt(shift)


def inverse_anscombe(image: Any, gain: Any, read_noise: Any, offset: Any) -> Any:
    """Mean values of an image (channels last), from the means of their stabilised values."""
    if library_of(image) == "dask":
        return image.map_blocks(
            inverse_anscombe, gain=gain, read_noise=read_noise, offset=offset, dtype=np.float64
        )
    parameters = np.broadcast_arrays(
        np.zeros(image.shape[-1]),
        *(np.asarray(value, float) for value in (gain, read_noise, offset)),
    )
    restored = np.empty(image.shape, np.float64)
    for channel, (_, unit, read, zero) in enumerate(zip(*parameters, strict=True)):
        photons = _photons(image[..., channel].astype(np.float64), float(read / unit))
        restored[..., channel] = unit * photons + zero
    return restored


def by_levels(image: Any, brightness: Any, sigma: Any) -> Any:
    """f of the values of an image (channels last) with noise of these standard deviations."""
    return _of_few_digits(_looked_up(image, brightness, sigma, inverse=False))


def inverse_by_levels(image: Any, brightness: Any, sigma: Any) -> Any:
    """Mean values of an image (channels last), from the means of their stabilised values."""
    return _looked_up(image, brightness, sigma, inverse=True)


def _of_few_digits(values: Any) -> Any:
    """Stabilised values in single precision if that resolves their noise.

    Chunks stay as they are: their precision depends on the extremes of the whole image.
    """
    if library_of(values) == "dask":
        return values
    small = np.abs(values).max() < _SINGLE_PRECISION_LIMIT
    return values.astype(np.float32 if small else np.float64, copy=False)


def _looked_up(image: Any, brightness: Any, sigma: Any, inverse: bool) -> Any:
    if library_of(image) == "dask":
        options = {"brightness": brightness, "sigma": sigma, "inverse": inverse}
        return image.map_blocks(_looked_up, **options, dtype=np.float64)
    n_channels = image.shape[-1]
    points, sizes = (
        np.broadcast_to(np.asarray(each, np.float64), (n_channels, np.shape(each)[-1]))
        for each in (brightness, sigma)
    )
    out = np.empty(image.shape, np.float64)
    for channel in range(n_channels):
        means, stabilised, unbiased = _levels_table(points[channel], sizes[channel])
        values = image[..., channel].astype(np.float64)
        table = (unbiased, means) if inverse else (means, stabilised)
        out[..., channel] = _interpolated(values, *table)
    return out


def _interpolated(values: NDArray, points: NDArray, heights: NDArray) -> NDArray:
    """Linear interpolation, with linear extrapolation of the first and the last segment."""
    first = (heights[1] - heights[0]) / (points[1] - points[0])
    last = (heights[-1] - heights[-2]) / (points[-1] - points[-2])
    below, above = np.minimum(values - points[0], 0), np.maximum(values - points[-1], 0)
    return np.interp(values, points, heights) + below * first + above * last


def _levels_table(points: NDArray, sizes: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Brightnesses, f of each, and the mean of f there, which increases."""
    inner = np.linspace(points[0], points[-1], _N_MEANS)
    beyond = _BEYOND * (points[-1] - points[0])
    means = np.concatenate([[inner[0] - beyond], inner, [inner[-1] + beyond]])
    levels = np.interp(means, points, sizes)
    steps = np.diff(means) * (1 / levels[1:] + 1 / levels[:-1]) / 2
    stabilised = np.concatenate([[0.0], np.cumsum(steps)])
    stabilised -= stabilised[len(means) // 2]  # small numbers, of many digits
    exponent = -np.frexp(points[-1] - points[0])[1]  # no product of distances overflows
    slopes = np.gradient(np.ldexp(levels, exponent), np.ldexp(means, exponent))
    return means, stabilised, np.maximum.accumulate(stabilised - slopes / 2)


def _photons(values: NDArray, read: float) -> NDArray:
    means, stabilised = _table(read)
    photons = np.interp(values, stabilised, means)
    bright = values > stabilised[-1]
    photons[bright] = np.square(values[bright] / 2) - (1 / 8 + read**2)
    dark = values < stabilised[0]
    slope = (means[1] - means[0]) / (stabilised[1] - stabilised[0])
    photons[dark] = slope * (values[dark] - stabilised[0])
    return photons


@lru_cache(maxsize=8)
def _table(read: float) -> tuple[NDArray, NDArray]:
    """Mean photons, and the means of their stabilised values, which increase with them."""
    from scipy.stats import norm, poisson

    # Evenly spaced in the square root, as the stabilised values are.
    means = np.linspace(0, math.sqrt(_MOST_PHOTONS), _N_MEANS) ** 2
    counts = np.arange(math.ceil(_MOST_PHOTONS + 12 * math.sqrt(_MOST_PHOTONS)))
    # Mean over the read noise, by the midpoint rule on quantiles of equal weight.
    errors = read * norm.ppf((np.arange(400) + 0.5) / 400) if read else np.zeros(1)
    stabilised = _stabilised(counts[:, np.newaxis] + errors, read).mean(axis=1)
    return means, poisson.pmf(counts, means[:, np.newaxis]) @ stabilised
