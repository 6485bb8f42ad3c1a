"""The finest wavelet details of an image: where there is no texture, they are noise.

White noise is independent in the diagonal details and in the others, so the others may say where
the image is quiet without a bias of what the diagonal ones measure there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kappaform.checks import Array, float_dtype
from kappaform.imaging.axes import check_finite, computed
from kappaform.imaging.noise.kinds import Shot

# The orthonormal wavelet db2: (1 + r, 3 + r, 3 - r, 1 - r) / (4 sqrt(2)) with r = sqrt(3).
_LOW_PASS = tuple(
    (a + b * math.sqrt(3)) / (4 * math.sqrt(2)) for a, b in ((1, 1), (3, 1), (3, -1), (1, -1))
)
_HIGH_PASS = tuple(sign * w for sign, w in zip((1, -1, 1, -1), _LOW_PASS[::-1], strict=True))
WAVELET_LENGTH = 4  # along shorter axes details are not taken
_WINDOW = 5  # coefficients along each axis over which texture is averaged
_QUIET_FRACTION = 0.2  # of the coefficients, those with the least texture around them
_N_TEXTURES = 10  # groups with more and more texture around
_LARGEST_SLOPE = 0.5  # of variances over texture; 1 is that of noise whose level varies
_LEAST_CANDIDATES = 100  # details: with fewer, clipped places count too
_LEAST_CORRELATION = 0.25  # of channels: below, it may be texture (0.14 in a picture of coffee)
_LEAST_COEFS = 1000  # the median of so many absolute values is off by 4 %
_LARGEST_SAMPLE = 2**21  # pixels; of larger images evenly spread slabs are seen
_N_SLABS = 8
_FAR = 1e3  # times the range of common values: beyond, a value is not part of the picture

# What rounding makes of a detail that is zero, in units of eps times the pixels that it sees: that
# of sums in float64, and that of the pixels themselves, 2.8 / 2 at most in 2-D (2.8 is the sum of
# the magnitudes of the weights of db2).
_ROUNDING_OF_SUMS = 16 * float(np.finfo(np.float64).eps)
_ROUNDING_OF_PIXELS = 2
# The median absolute value of a standard normal variable.
_NORMAL_MEDIAN = 0.6744897501960817


class Sample(NamedTuple):
    """The part of an image of one channel that is examined: all of it, or some slabs."""

    slabs: list[Array]  #: float64, times 2**-exponent: no sum overflows or vanishes
    lowest: float  #: of the whole image, in the same units
    highest: float
    exponent: int
    eps: float  #: relative rounding of the pixels


class Details(NamedTuple):
    """Diagonal details and what is around each, flat."""

    coefs: Array
    texture: Array  #: mean magnitude of the other details
    brightness: Array  #: mean of the pixels
    clear: Array  #: neither flat nor rounded away around it
    low: Array  #: the lowest value of the image is near
    high: Array

    @property
    def usable(self) -> Array:
        return self.clear & ~self.low & ~self.high

    @property
    def are_doubtful(self) -> bool:
        """Whether too few details are away from flat areas and from clipped values."""
        return int(np.count_nonzero(self.usable)) < _LEAST_CANDIDATES


def sample_of(image: Array) -> Sample:
    """The part of an image of one channel (of any library) that is examined."""
    if image.size == 0:
        raise ValueError(f"image has shape {image.shape}: at least one pixel is needed.")
    lowest, highest, *slabs = computed(image.min(), image.max(), *_slabs(image))
    check_finite(lowest, highest)
    exponent = int(np.frexp(max(abs(float(lowest)), abs(float(highest))))[1])

    def scaled(values: Array) -> Array:
        return np.ldexp(np.asarray(values).astype(np.float64), -exponent)

    eps = float(np.finfo(float_dtype(image.dtype)).eps)
    ends = float(scaled(lowest)), float(scaled(highest))
    return Sample([scaled(slab) for slab in slabs], *ends, exponent, eps)


def details_of(sample: Sample) -> Details:
    """The details of all slabs."""
    measured = [_measure(slab, sample) for slab in sample.slabs]
    return Details(*(np.concatenate(parts) for parts in zip(*measured, strict=True)))


def quietest_fifth(texture: Array, least: int = _LEAST_COEFS) -> Array:
    """Which of the coefficients with this texture around them are the quietest fifth."""
    n_quiet = max(min(least, texture.size), int(_QUIET_FRACTION * texture.size))
    return texture <= np.partition(texture, n_quiet - 1)[n_quiet - 1]


def deviation(coefs: Array) -> float:
    """Standard deviation of normal numbers; a few large ones among them hardly matter."""
    return float(np.median(np.abs(coefs))) / _NORMAL_MEDIAN


def noise_in_texture(sigma: float, details: Details) -> float:
    r"""Standard deviation of white noise, if `sigma` is that of the quietest fifth of the details.

    In texture the variance v of diagonal details grows with the variance t of the other details
    around them, :math:`v = s^2 + c (t - s^2)`: noise of standard deviation s alone has v = t. The
    slope c is that of a line through groups with more and more texture. Where even the quietest
    fifth has t > v, it has texture, and s is where the line from it meets v = t.
    """
    coefs, around = details.coefs[details.usable], details.texture[details.usable]
    if len(coefs) < _LEAST_COEFS / _QUIET_FRACTION:  # all would be the quietest ones
        return sigma
    groups = np.array_split(np.argsort(around), _N_TEXTURES)[:-1]  # without edges
    # The variance of normal numbers is pi / 2 times their squared mean magnitude.
    t = np.array([np.mean(around[group]) ** 2 * math.pi / 2 for group in groups])
    v = np.array([deviation(coefs[group]) ** 2 for group in groups])
    weights = 1 / np.maximum(v, 1e-9 * v.max() + 1e-300) ** 2
    weights /= weights.sum()
    from_t, from_v = t - weights @ t, v - weights @ v
    slope = weights @ (from_t * from_v) / max(weights @ from_t**2, 1e-300)
    slope = min(max(slope, 0.0), _LARGEST_SLOPE)
    quiet = np.mean(around[quietest_fifth(around)]) ** 2 * math.pi / 2
    excess = slope / (1 - slope) * max(quiet - sigma**2, 0.0)
    return math.sqrt(max(sigma**2 - excess, 0.0))


def channel_correlation(details: list[Details], sigmas: list[float]) -> Array | None:
    """Correlation of the noise of channels, None if there is next to none.

    That of u and v of unit deviation follows from the deviations of u + v and u - v.
    """
    n_channels = len(details)
    usable = np.logical_and.reduce([each.usable for each in details])
    if n_channels == 1 or min(sigmas) == 0 or np.count_nonzero(usable) < _LEAST_CANDIDATES:
        return None
    texture = [each.texture[usable] / s for each, s in zip(details, sigmas, strict=True)]
    calm = quietest_fifth(np.sum(texture, axis=0))
    units = [e.coefs[usable][calm] / s for e, s in zip(details, sigmas, strict=True)]
    matrix = np.eye(n_channels)
    for a in range(n_channels):
        for b in range(a):
            plus, minus = (deviation(units[a] + sign * units[b]) ** 2 for sign in (1, -1))
            matrix[a, b] = matrix[b, a] = (plus - minus) / (plus + minus)
    if np.abs(matrix - np.eye(n_channels)).max() < _LEAST_CORRELATION:
        return None
    values, vectors = np.linalg.eigh(matrix)
    positive = (vectors * np.maximum(values, 0)) @ vectors.T
    sizes = np.sqrt(np.diag(positive))
    return positive / np.outer(sizes, sizes)


def _slabs(image: Array) -> Iterator[Array]:
    """The image, or evenly spread slabs across the longest axis of a large one."""
    if image.size <= _LARGEST_SAMPLE:
        yield image
        return
    axis = int(np.argmax(image.shape))
    length = image.shape[axis]
    thickness = max(16, length * _LARGEST_SAMPLE // (image.size * _N_SLABS))
    for start in np.linspace(0, max(0, length - thickness), _N_SLABS).astype(int):
        yield image[(slice(None),) * axis + (slice(start, start + thickness),)]


def _measure(image: Array, sample: Sample) -> tuple[Array, ...]:
    """The fields of `Details` of one slab."""
    from scipy.ndimage import maximum_filter, minimum_filter, uniform_filter

    axes = [axis for axis, n in enumerate(image.shape) if n >= WAVELET_LENGTH]
    means, *others, coefs = _wavelet_bands(image, axes)
    means /= math.sqrt(2) ** len(axes)
    texture = np.zeros_like(coefs)
    for band in others:
        texture += np.abs(band) / len(others)
    low, high = (_largest_seen(image == end, axes) for end in (sample.lowest, sample.highest))
    # Running sums would spread the rounding of a huge value, such as one for missing data.
    texture, means = _without_huge(texture), _without_huge(means)
    # Rounding depends on the pixels that a detail sees, not on larger ones elsewhere.
    magnitude = _largest_seen(np.abs(image), axes)
    coefs[np.abs(coefs) <= _ROUNDING_OF_SUMS * magnitude] = 0
    smooth = np.abs(coefs) <= _ROUNDING_OF_PIXELS * sample.eps * magnitude
    near_smooth = maximum_filter(minimum_filter(smooth, _WINDOW), 2 * _WINDOW - 1)
    clear = minimum_filter(coefs != 0, _WINDOW) & ~near_smooth
    around = [uniform_filter(values, _WINDOW) for values in (texture, means)]
    near = [maximum_filter(ends, _WINDOW) for ends in (low, high)]
    return tuple(values.ravel() for values in (coefs, *around, clear, *near))


def _wavelet_bands(image: Array, axes: Sequence[int]) -> list[Array]:
    """Approximation, mixed details, and details along all axes, of the wavelet db2.

    Coefficient k = 1, 2, ... sees the pixels 2k - 2, ..., 2k + 1, all of them inside of the image.
    """
    bands = [image]
    for axis in axes:
        halves: list[Array] = []
        for band in bands:
            along = np.moveaxis(band, axis, 0)
            n_pairs = len(along) // 2
            even, odd = along[: 2 * n_pairs : 2], along[1 : 2 * n_pairs : 2]
            taps = (even[:-1], odd[:-1], even[1:], odd[1:])
            for weights in (_LOW_PASS, _HIGH_PASS):
                half = weights[0] * taps[0]
                for weight, tap in zip(weights[1:], taps[1:], strict=True):
                    half += weight * tap
                halves.append(np.moveaxis(half, 0, axis))
        bands = halves
    return bands


def _without_huge(values: Array) -> Array:
    """Values clipped far outside of those that are common."""
    if np.abs(values).max() <= _FAR * np.abs(values).mean():
        return values
    low, high = np.percentile(values, (1, 99))
    return np.clip(values, low - _FAR * (high - low), high + _FAR * (high - low))


def _largest_seen(values: Array, axes: Sequence[int]) -> Array:
    """The largest value among the pixels 2k - 2, ..., 2k + 1 along each axis, for k = 1, 2, ..."""
    for axis in axes:
        along = np.moveaxis(values, axis, 0)
        n_pairs = len(along) // 2
        pairs = np.maximum(along[0 : 2 * n_pairs : 2], along[1 : 2 * n_pairs : 2])
        values = np.moveaxis(np.maximum(pairs[:-1], pairs[1:]), 0, axis)
    return values


def stabilised_slab(
    samples: list[Sample], units: list[float], shots: list[Shot] | None, number: int
) -> Array:
    """A slab (channels last) in units of its noise."""
    parts = [sample.slabs[number] for sample in samples]
    if shots is None:
        scales = [math.ldexp(u, -s.exponent) for u, s in zip(units, samples, strict=True)]
        channels = [part / scale for part, scale in zip(parts, scales, strict=True)]
    else:
        scaled = [
            h.scaled(math.ldexp(1.0, -s.exponent)) for h, s in zip(shots, samples, strict=True)
        ]
        pairs = zip(scaled, parts, strict=True)
        channels = [shot.stabilised(part[..., np.newaxis])[..., 0] for shot, part in pairs]
    return np.stack(channels, axis=-1)


def is_clipped(samples: list[Sample], of_photons: bool, number: int) -> Array:
    """Where a quarter of the channels of a slab, any one of colours, may be clipped."""
    n_ends = np.zeros(samples[0].slabs[number].shape, int)
    for sample in samples:
        slab = sample.slabs[number]
        n_ends += slab == sample.highest
        if not of_photons:  # no photon is not a clipped value
            n_ends += (slab == sample.lowest) & (sample.lowest < sample.highest)
    return 4 * n_ends >= len(samples)
