"""How strong the noise of an image is, and adding some."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kappaform.arrays import Array, as_real_array, float_dtype, generator, library_of
from kappaform.imaging.clean import representable
from kappaform.imaging.options import check_not_colour
from kappaform.imaging.patches import check_axis

_WAVELET = "db2"
_WAVELET_LENGTH = 4  # along shorter axes details are not taken
_WINDOW = 5  # coefficients along each axis over which texture is averaged
_QUIET_SHARE = 0.2  # of the coefficients, those with the least texture around them
_LEAST_COEFS = 1000  # the median of so many absolute values is off by 4 %
_LEAST_CANDIDATES = 100
_LARGEST_SAMPLE = 2**21  # pixels; of larger images evenly spread slabs are seen
_N_SLABS = 8

_LARGEST_VALUE = 1e300  # sums over a patch stay within float64
_LARGEST_PEAK = 2.0**52  # distance from the centre over noise: float64 has no more digits

# What rounding makes of a detail that is zero, in units of eps times the pixels that it sees: that
# of sums in float64, and that of the pixels themselves, 2.8 / 2 at most in 2-D (2.8 is the sum of
# the magnitudes of the weights of db2).
_ROUNDING_OF_SUMS = 16 * float(np.finfo(np.float64).eps)
_ROUNDING_OF_PIXELS = 2
# The median absolute value of a standard normal variable.
_NORMAL_MEDIAN = 0.6744897501960817


def estimate_sigma(image: npt.ArrayLike, channel_axis: int | None = None) -> float | Array:
    r"""Standard deviation of white Gaussian noise in an image, in the image's own units.

    .. math:: \hat\sigma = \mathrm{median}\{|d_k| : k \in Q\} \,/\, 0.6745

    where d are the finest diagonal coefficients of an orthonormal wavelet transform (db2) and Q
    those with the least texture around them: the quietest fifth by the magnitude of the other
    detail coefficients. White noise is independent in the two, so the choice alone does not bias
    the estimate, while the median over all of d (Donoho and Johnstone) takes texture for noise.
    Surroundings that hold the smallest or the largest value of the image do not count, because
    noise may be clipped there, nor do flat ones: a background set to a constant has no noise. Where
    next to nothing is left, as in a drawing of flat areas, all of d is used.

    Parameters
    ----------
    image : array of any number of dimensions
        Integers are taken as they are. Of very large images evenly spread parts are looked at; of
        a Dask array nothing more than these is brought together.
    channel_axis : int, optional
        The axis of the channels, each of which is estimated on its own.

    Returns
    -------
    float, or float64 array with one entry for each channel
        0.0 for a constant image; the standard deviation of one without an axis of 4 pixels.
    """
    array: Any = image if library_of(image) == "dask" else as_real_array(image, "image")
    if channel_axis is None:
        check_not_colour(array.shape, range(array.ndim))
        return _estimate(array)
    check_axis(channel_axis, array.shape, "channel_axis")
    return np.array([_estimate(channel) for channel in np.moveaxis(array, channel_axis, 0)])


def add_noise(
    image: npt.ArrayLike, sigma: float, rng: int | np.random.Generator | None = None
) -> Array:
    """Image plus white Gaussian noise of standard deviation `sigma`, not clipped.

    Parameters
    ----------
    image : array
    sigma : float
        In the image's own units; 0 or more.
    rng : int or numpy.random.Generator, optional
        One seed is one noise. None: 0, the same call gives the same result.

    Returns
    -------
    ndarray
        A new array of the image's shape and dtype; float64 for integers.
    """
    image = as_real_array(image, "image")
    if not (np.ndim(sigma) == 0 and 0 <= sigma < math.inf):
        raise ValueError(f"sigma={sigma} is not a noise level: give one finite number >= 0.")
    # Drawn in float64 for every dtype: one seed is one noise.
    noise = generator(rng).standard_normal(image.shape)
    noise *= sigma
    noise += image
    dtype = float_dtype(image.dtype)
    limits = representable((-math.inf, math.inf), dtype)
    return noise.clip(*limits, out=noise).astype(dtype, copy=False)


def deviations(sigma: npt.ArrayLike | None, stack: Array) -> Array:
    """Deviation of the noise for each slice and channel of a stack: as given, or estimated."""
    shape = n_slices, n_channels = stack.shape[0], stack.shape[-1]
    if sigma is None:
        return np.array([estimate_sigma(each, channel_axis=-1) for each in stack])
    values = as_real_array(sigma, "sigma").astype(np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"sigma={sigma!r}: a deviation is finite and >= 0; None estimates it.")
    if n_channels == 1 and values.shape == (n_slices,):
        values = values[:, np.newaxis]
    if values.shape not in ((), (n_channels,), shape, (n_slices, 1)):
        raise ValueError(
            f"sigma has shape {values.shape}: give one number, or one for each of the "
            f"{n_channels} channels or {n_slices} images of the stack."
        )
    return np.broadcast_to(values, shape)


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


def _estimate(image: Array) -> float:
    if image.size == 0:
        raise ValueError(f"image has shape {image.shape}: at least one pixel is needed.")
    lowest, highest, *slabs = computed(image.min(), image.max(), *_slabs(image))
    check_finite(lowest, highest)
    if lowest == highest:
        return 0.0
    # A power of two brings the largest magnitude near 1, so that no sum overflows or vanishes.
    exponent = int(np.frexp(max(abs(float(lowest)), abs(float(highest))))[1])
    scaled = [np.ldexp(slab.astype(np.float64), -exponent) for slab in slabs]
    if max(image.shape) < _WAVELET_LENGTH:
        return math.ldexp(float(np.std(scaled[0])), exponent)
    at_limit = [(slab == lowest) | (slab == highest) for slab in slabs]
    eps = float(np.finfo(float_dtype(image.dtype)).eps)
    measured = (_measure(*each, eps) for each in zip(scaled, at_limit, strict=True))
    sizes, texture, usable = (np.concatenate(parts) for parts in zip(*measured, strict=True))
    if np.count_nonzero(usable) >= _LEAST_CANDIDATES:
        sizes, texture = sizes[usable], texture[usable]
        n_quiet = max(min(_LEAST_COEFS, sizes.size), int(_QUIET_SHARE * sizes.size))
        sizes = sizes[texture <= np.partition(texture, n_quiet - 1)[n_quiet - 1]]
    return math.ldexp(float(np.median(sizes)) / _NORMAL_MEDIAN, exponent)


def _slabs(image: Array) -> Iterator[Array]:
    """The image, or evenly spread slabs across the longest axis of a large one."""
    if image.size <= _LARGEST_SAMPLE:
        yield image
        return
    image = np.moveaxis(image, int(np.argmax(image.shape)), 0)
    thickness = max(16, len(image) * _LARGEST_SAMPLE // (image.size * _N_SLABS))
    for start in np.linspace(0, max(0, len(image) - thickness), _N_SLABS).astype(int):
        yield image[start : start + thickness]


def _measure(image: Array, at_limit: Array, eps: float) -> tuple[Array, Array, Array]:
    """Magnitude of diagonal details, texture around each, and whether it may be used: all flat.

    `eps` is the relative rounding of the pixels.
    """
    import pywt
    from scipy.ndimage import maximum_filter, minimum_filter, uniform_filter

    axes = [axis for axis, n in enumerate(image.shape) if n >= _WAVELET_LENGTH]
    bands = pywt.dwtn(image, _WAVELET, axes=axes)
    # Coefficient k sees the pixels 2k - 2, ..., 2k + 1. At the borders some of these are mirrored
    # and not independent: only the others stay.
    whole = tuple(slice(1, n // 2) if n >= _WAVELET_LENGTH else slice(n) for n in image.shape)
    centres = tuple(slice(1, n - 2, 2) if n >= _WAVELET_LENGTH else slice(n) for n in image.shape)
    del bands["a" * len(axes)]
    sizes = np.abs(bands.pop("d" * len(axes))[whole])
    texture = np.zeros_like(sizes)
    for band in bands.values():
        texture += np.abs(band[whole])
    # Details that see the limits are not used: running sums would spread a huge value.
    texture[_largest_seen(at_limit, axes)] = 0
    # Rounding depends on the pixels that a detail sees, not on larger ones elsewhere.
    magnitude = _largest_seen(np.abs(image), axes)
    sizes[sizes <= _ROUNDING_OF_SUMS * magnitude] = 0
    smooth = minimum_filter(sizes <= _ROUNDING_OF_PIXELS * eps * magnitude, _WINDOW)
    near_smooth = maximum_filter(smooth, 2 * _WINDOW - 1)
    near_limit = maximum_filter(at_limit, 2 * _WINDOW + 3)[centres]
    usable = minimum_filter(sizes > 0, _WINDOW) & ~near_smooth & ~near_limit
    return sizes.ravel(), uniform_filter(texture, _WINDOW).ravel(), usable.ravel()


def _largest_seen(values: Array, axes: Sequence[int]) -> Array:
    """The largest value among the pixels 2k - 2, ..., 2k + 1 along each axis, for k = 1, 2, ..."""
    for axis in axes:
        along = np.moveaxis(values, axis, 0)
        n_pairs = len(along) // 2
        pairs = np.maximum(along[0 : 2 * n_pairs : 2], along[1 : 2 * n_pairs : 2])
        values = np.moveaxis(np.maximum(pairs[:-1], pairs[1:]), 0, axis)
    return values
