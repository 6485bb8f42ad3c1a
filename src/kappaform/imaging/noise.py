"""How strong the noise of an image is, and adding some."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from kappaform.arrays import as_real_array, library_of, working_dtype

Array = npt.NDArray[Any]

_WAVELET = "db2"
_WINDOW = 5  # coefficients along each axis over which texture is averaged
_QUIET_SHARE = 0.2  # of the coefficients, those with the least texture around them
_LEAST_COEFS = 1000  # the median of so many absolute values is off by 4 %
_LEAST_CANDIDATES = 100
_LARGEST_SAMPLE = 2**21  # pixels; of larger images evenly spread slabs are seen
_N_SLABS = 8
_LEAST_LENGTH = 4  # the wavelet's; along shorter axes details are not taken

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

    See Also
    --------
    add_noise
    """
    array: Any = image if library_of(image) == "dask" else as_real_array(image, "image")
    if channel_axis is None:
        _refuse_forgotten_channels(array)
        return _estimate(array)
    if not -array.ndim <= channel_axis < array.ndim:
        raise ValueError(
            f"channel_axis={channel_axis} is no axis of an image of shape {array.shape}."
        )
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
        The same seed gives the same noise.

    Returns
    -------
    ndarray
        A new array of the image's shape and dtype; float64 for integers.

    See Also
    --------
    estimate_sigma
    """
    image = as_real_array(image, "image")
    if not (np.ndim(sigma) == 0 and 0 <= sigma < math.inf):
        raise ValueError(f"sigma={sigma} is no noise level: give one finite number, 0 or more.")
    dtype = image.dtype if image.dtype.kind == "f" else np.dtype(np.float64)
    # Drawn in float64 for every dtype: one seed is one noise.
    noise = np.random.default_rng(rng).standard_normal(image.shape)
    noise *= sigma
    noise += image
    return noise.astype(dtype, copy=False)


def _refuse_forgotten_channels(image: Array) -> None:
    if image.ndim == 3 and image.shape[-1] in (3, 4) and min(image.shape[:2]) > 4:
        raise ValueError(
            f"image has shape {image.shape}, which looks like colour: give channel_axis=-1 (or, "
            "for a volume of so few slices, move that axis to the front)."
        )


def _estimate(image: Array) -> float:
    if image.size == 0:
        raise ValueError(f"image has shape {image.shape}: at least one pixel is needed.")
    lowest, highest, *slabs = _computed(image.min(), image.max(), *_slabs(image))
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        raise ValueError("image contains NaN or inf: replace them, every pixel must be finite.")
    if lowest == highest:
        return 0.0
    if max(image.shape) < _LEAST_LENGTH:
        return float(np.std(slabs[0], dtype=np.float64))
    dtype = working_dtype(image.dtype)
    rounding = 16 * float(np.finfo(dtype).eps) * max(abs(float(lowest)), abs(float(highest)))
    measured = [
        _measure(slab.astype(dtype, copy=False), (slab == lowest) | (slab == highest), rounding)
        for slab in slabs
    ]
    sizes, texture, usable = (np.concatenate(parts) for parts in zip(*measured, strict=True))
    if np.count_nonzero(usable) >= _LEAST_CANDIDATES:
        sizes, texture = sizes[usable], texture[usable]
        n_quiet = max(min(_LEAST_COEFS, sizes.size), int(_QUIET_SHARE * sizes.size))
        sizes = sizes[texture <= np.partition(texture, n_quiet - 1)[n_quiet - 1]]
    return float(np.median(sizes)) / _NORMAL_MEDIAN


def _computed(*arrays: Array) -> tuple[Array, ...]:
    """The same arrays in memory, those of a Dask array together."""
    if library_of(arrays[0]) != "dask":
        return arrays
    from dask.base import compute

    return compute(*arrays)


def _slabs(image: Array) -> Iterator[Array]:
    """The image, or evenly spread slabs across the longest axis of a large one."""
    if image.size <= _LARGEST_SAMPLE:
        yield image
        return
    image = np.moveaxis(image, int(np.argmax(image.shape)), 0)
    thickness = max(16, len(image) * _LARGEST_SAMPLE // (image.size * _N_SLABS))
    for start in np.linspace(0, max(0, len(image) - thickness), _N_SLABS).astype(int):
        yield image[start : start + thickness]


def _measure(image: Array, at_limit: Array, rounding: float) -> tuple[Array, Array, Array]:
    """Magnitude of diagonal details, texture around each, and whether it may be used: all flat."""
    import pywt
    from scipy.ndimage import maximum_filter, minimum_filter, uniform_filter

    axes = [axis for axis, n in enumerate(image.shape) if n >= _LEAST_LENGTH]
    bands = pywt.dwtn(image, _WAVELET, axes=axes)
    # Coefficient k sees the pixels 2k - 2, ..., 2k + 1. At the borders some of these are mirrored
    # and not independent: only the others stay.
    whole = tuple(slice(1, n // 2) if n >= _LEAST_LENGTH else slice(n) for n in image.shape)
    centres = tuple(slice(1, n - 2, 2) if n >= _LEAST_LENGTH else slice(n) for n in image.shape)
    del bands["a" * len(axes)]
    sizes = np.abs(bands.pop("d" * len(axes))[whole])
    sizes[sizes <= rounding] = 0
    texture = np.zeros_like(sizes)
    for band in bands.values():
        texture += np.abs(band[whole])
    near_limit = maximum_filter(at_limit, 2 * _WINDOW + 3)[centres]
    usable = minimum_filter(sizes > 0, _WINDOW) & ~near_limit
    return sizes.ravel(), uniform_filter(texture, _WINDOW).ravel(), usable.ravel()
