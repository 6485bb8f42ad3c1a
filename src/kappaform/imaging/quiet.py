r"""Noise in the quietest patches of an image: its covariance, and how it depends on brightness.

Patches that were chosen because their energy is below a limit show less than the noise has. For
normal noise that is known: the chosen ones are normal vectors within a ball, their second moments
have the same eigenvectors, and each eigenvalue is smaller than it should be by an amount that can
be computed and undone. How much of the noise lies within the ball also tells whether there is
noise at all: of noise, a tenth of an image is a small part of what could be quieter; of structure,
the quietest tenth already fills the ball.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kappaform.arrays import Array
from kappaform.imaging.patches import grid_of, rows_at
from kappaform.linalg import dct_basis

_N_PATCHES = 10_000  # that are drawn
_LEAST_PATCHES = 1000  # of which a tenth says something
_QUIET_SHARE = 0.1
_N_DRAWS = 2000  # of normal vectors, to see what a ball leaves of them: within 3 %
_N_STEPS = 30
# Mean index of a cosine, in parts of the highest: borders of low, middle and high frequencies.
_LOW, _MIDDLE = 0.15, 0.4

# Chosen on pictures of scikit-image and 16 photographs with white, blurred and interpolated noise,
# so that none with white noise was called correlated (benchmarks/bench_noise.py).
#: Tilts (deviation of middle over high frequencies, or the other way) from which on noise is not
#: white, with the largest kurtosis of each: the nearer to white, the stricter.
_TILTS = ((1.4, 1.04), (2.0, 1.18), (5.0, math.inf))
_FILLING = 0.55
_FILLING_OF_COLOURS = 0.85  # where channels share little, and colours of structure share much
_BETWEEN = 0.5
_LOW_KURTOSIS = 1.1
_INFLATION = 2.4  # of noise that is shared over two pixels 2.3, of slopes 100
_LEAST_SHARE = 0.01  # of noise in the range of values: less is not told from grain
_STRUCTURE = 0.45  # deviation of the quietest patches over that of the image
_WARNING = 0.35  # the same, from which on it is said
_LEAST_COLOUR = 1e-3  # of the energy: the colours of a grey picture are rounding
_STEEP = 5.0  # tilt, more than structure has
_NOISE_EVERYWHERE = 0.16  # filling; 0.1, the share that is chosen, of an image that is only noise

_N_GROUPS = 10  # of brightness
_LEAST_RANGE = 1.4  # of the deviations over brightness, for noise that depends on it
_LARGEST_MISFIT = 0.6  # of a curve, over that of a constant
_MOST_CHANGE = math.log(2)  # how much deviations change, at most, beyond what was seen


class Quiet(NamedTuple):
    """What the quietest patches of an image show."""

    covariance: Array  #: (channels, channels, n, n)
    filling: float  #: part of the noise that lies within the ball
    inflation: float  #: of the energy, by undoing the choice
    kurtosis: float  #: fourth moments of middle frequencies over those of normal numbers
    low_kurtosis: float
    tilt: float  #: deviation of middle frequencies over that of high ones, of brightness or colour
    between: float  #: largest correlation of two channels; 1 if there is only one
    share: float  #: deviation of these patches over that of the image
    of_range: float  #: deviation of the noise over the range of the values

    @property
    def is_white(self) -> bool:
        return not max(self.tilt, 1 / self.tilt) >= _TILTS[0][0]

    @property
    def is_correlated_noise(self) -> bool:
        """Whether the patches show noise, beyond doubt, and it is not white."""
        tilt = max(self.tilt, 1 / self.tilt)
        allowed = [kurtosis for least, kurtosis in _TILTS if tilt >= least]
        return (
            bool(allowed)
            and self.filling <= (_FILLING_OF_COLOURS if self.has_own_colours else _FILLING)
            and self.kurtosis <= allowed[-1]
            and self.low_kurtosis <= _LOW_KURTOSIS
            and self.inflation <= _INFLATION
            and (self.share <= _STRUCTURE or self.filling <= _NOISE_EVERYWHERE or tilt >= _STEEP)
            and self.of_range >= _LEAST_SHARE
        )

    @property
    def has_own_colours(self) -> bool:
        """Whether channels share so little that it is not the structure of a picture."""
        return self.between <= _BETWEEN

    @property
    def is_structure(self) -> bool:
        """Whether even the quietest patches are full of something that may not be noise."""
        is_noise = self.is_white or self.is_correlated_noise
        return self.tilt > 1 and not is_noise and self.share > _WARNING


def drawn_patches(
    slabs: list[Array], clipped: list[Array], patch_shape: tuple[int, ...]
) -> Array | None:
    """Patches (patches, n, channels) of slabs (channels last) that are not clipped nor constant.

    They are drawn at random. None if there are too few.
    """
    rng = np.random.default_rng(0)
    n_channels, n_values = slabs[0].shape[-1], sum(slab.size for slab in slabs)
    found = []
    for slab, mask in zip(slabs, clipped, strict=True):
        if any(size < side for size, side in zip(slab.shape, patch_shape, strict=False)):
            continue
        grid = grid_of(slab.shape[:-1], patch_shape, n_channels=n_channels)
        wanted = min(grid.n_patches, math.ceil(_N_PATCHES * slab.size / n_values))
        numbers = rng.choice(grid.n_patches, wanted, replace=False)
        rows = rows_at(slab, grid, numbers).reshape(wanted, -1, n_channels)
        usable = ~rows_at(mask, grid_of(mask.shape, patch_shape), numbers).any(axis=1)
        found.append(rows[usable & (np.ptp(rows, axis=1) > 0).any(axis=1)])
    patches = np.concatenate(found) if found else np.empty((0, 0, 0))
    return patches if len(patches) >= _LEAST_PATCHES else None


def quiet_of(patches: Array, patch_shape: tuple[int, ...]) -> Quiet:
    """What the quietest of some patches (patches, n, channels) show."""
    n_patches, n, n_channels = patches.shape
    spread = patches.reshape(-1, n_channels).var(axis=0).sum()
    free = (patches - patches.mean(axis=1, keepdims=True)).transpose(0, 2, 1)
    chosen, limit = _quietest(free.reshape(n_patches, -1))
    shown = chosen.T @ chosen / len(chosen)
    moments, filling = _undone(shown, limit)
    covariance = moments.reshape(n_channels, n, n_channels, n).transpose(0, 2, 1, 3)
    basis = dct_basis(patch_shape)
    coefs = chosen.reshape(-1, n_channels, n) @ basis.T
    squares = np.maximum(np.mean(coefs**2, axis=0), 1e-300)
    kurtosis = (np.mean(coefs**4, axis=0) / (3 * squares**2)).mean(axis=0)
    total = np.einsum("aaij->ij", covariance)
    low, middle, high = _frequency_bands(patch_shape)
    spectra = np.einsum("ij,ca,abjk,cb,ik->ci", basis, *_mixtures(covariance), basis, optimize=True)
    energies = spectra.sum(axis=1)
    seen = spectra[energies >= _LEAST_COLOUR * energies.max()]
    tilts = [math.sqrt(_mean(v[middle]) / max(_mean(v[high]), 1e-300)) for v in seen]
    return Quiet(
        covariance,
        filling,
        float(np.trace(moments) / np.trace(shown)),
        _mean(kurtosis[middle]),
        _mean(kurtosis[low]),
        max(tilts, key=lambda tilt: abs(math.log(tilt)) if tilt > 0 else math.inf),
        _between(covariance),
        math.sqrt(np.trace(shown) / n / spread),
        math.sqrt(np.trace(total) / n / np.sum(np.ptp(patches, axis=(0, 1)) ** 2)),
    )


def _mixtures(covariance: Array) -> tuple[Array, Array, Array]:
    """Brightness and the differences of three colours; of other channels, all together."""
    if len(covariance) == 3:
        mixtures = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
    else:
        mixtures = np.ones((1, len(covariance)))
        covariance = covariance * np.eye(len(covariance))[..., np.newaxis, np.newaxis]
    return mixtures, covariance, mixtures


def _mean(values: Array) -> float:
    """NaN, which no rule accepts, of a band that small patches do not have."""
    return float(values.mean()) if values.size else math.nan


def _between(covariance: Array) -> float:
    """Largest correlation of two channels, of all pixels of a patch together."""
    traces = np.einsum("abii->ab", covariance)
    sizes = np.sqrt(np.diag(traces))
    others = traces / np.outer(sizes, sizes) - np.eye(len(sizes))
    return float(np.abs(others).max()) if len(sizes) > 1 else 1.0


def curve_of(patches: Array) -> tuple[Array, Array] | None:
    """Deviations over brightness of the noise in patches (patches, n); None: about constant.

    Energies of the quietest patches of about one brightness are taken for those of a gamma
    distribution, whose shape is that of all of them together.
    """
    from scipy.special import gammainc

    means = patches.mean(axis=1)
    free = patches - means[:, np.newaxis]
    groups = np.array_split(np.argsort(means), _N_GROUPS)
    quietest = [_quietest(free[group]) for group in groups]
    shape = _gamma_shape(sum(each.T @ each / np.sum(each**2) for each, _ in quietest))
    # The mean energy below a limit, over the limit, falls as the limit rises.
    limits = shape * np.geomspace(0.02, 20, 400)  # in units of the scale of the distribution
    ratios = shape * gammainc(shape + 1, limits) / gammainc(shape, limits) / limits
    rows = []
    for group, (chosen, limit) in zip(groups, quietest, strict=True):
        ratio = np.mean(np.sum(chosen**2, axis=1)) / limit
        scaled = np.interp(-ratio, -ratios, limits)
        filling = gammainc(shape, scaled)
        size = math.sqrt(shape * limit / scaled / patches.shape[1])
        # Groups that seem full are texture.
        rows.append((means[group].mean(), size, np.clip((0.8 - filling) / 0.3, 0.02, 1)))
    brightness, sizes, weights = np.array(rows).T
    return _smooth_levels(brightness, sizes, weights, (patches.min(), patches.max()))


def _smooth_levels(
    means: Array, sizes: Array, weights: Array, ends: tuple[float, float]
) -> tuple[Array, Array] | None:
    """A parabola through the logarithms of the deviations, if it says more than a constant.

    From the outer groups to the ends of all values it goes on straight, but not far.
    """
    centred = (means - means.mean()) / np.ptp(means)
    logs, trust = np.log(sizes), weights
    for _ in range(10):
        curve = np.polyval(np.polyfit(centred, logs, 2, w=np.sqrt(trust)), centred)
        errors = np.abs(logs - curve)
        trust = weights * np.minimum(
            1, 1.5 * max(np.median(errors), 0.03) / np.maximum(errors, 1e-9)
        )
    constant = np.average(logs, weights=weights)
    misfits = [
        np.average(np.minimum((logs - c) ** 2, 0.25), weights=weights) for c in (curve, constant)
    ]
    varies = np.ptp(curve) >= math.log(_LEAST_RANGE)
    if not varies or misfits[0] > _LARGEST_MISFIT**2 * misfits[1]:
        return None
    slopes = np.diff(curve)[[0, -1]] / np.diff(means)[[0, -1]]
    beyond = np.clip(slopes * (np.array(ends) - means[[0, -1]]), -_MOST_CHANGE, _MOST_CHANGE)
    curve = np.concatenate([[curve[0] + beyond[0]], curve, [curve[-1] + beyond[1]]])
    return np.concatenate([ends[:1], means, ends[1:]]), np.exp(curve)


def _gamma_shape(moments: Array) -> float:
    """Shape of the gamma distribution nearest to the energies of normal vectors."""
    return float(np.trace(moments) ** 2 / (2 * np.sum(moments**2)))


def _quietest(patches: Array) -> tuple[Array, float]:
    """The tenth of the patches (rows) of least energy, and the largest energy among them."""
    energies = np.einsum("ij,ij->i", patches, patches)
    last = int(_QUIET_SHARE * len(energies))
    limit = np.partition(energies, last)[last]
    return patches[energies <= limit], float(limit)


def _undone(moments: Array, limit: float) -> tuple[Array, float]:
    """Covariance of normal vectors whose second moments within a ball are given.

    Also the part of them that is within the ball, whose squared radius is `limit`.
    """
    values, vectors = np.linalg.eigh(moments)
    values = np.maximum(values, 1e-9 * values[-1])
    squares = np.random.default_rng(0).standard_normal((_N_DRAWS, len(values))) ** 2
    found = values.copy()
    for _ in range(_N_STEPS):
        within = squares @ found <= limit
        if np.count_nonzero(within) < _N_DRAWS // 20:  # too few to go by: the quietest of them
            within = np.argsort(squares @ found)[: _N_DRAWS // 20]
        seen = squares[within].mean(axis=0) * found
        found *= np.clip(values / seen, 0.5, 2.0) ** 0.7
    return (vectors * found) @ vectors.T, float(np.mean(squares @ found <= limit))


def _frequency_bands(patch_shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Cosines of low (without the constant), middle and high frequency."""
    places = np.indices(patch_shape).reshape(len(patch_shape), -1)
    highest = np.maximum(np.array(patch_shape) - 1, 1)[:, np.newaxis]
    frequency = (places / highest).mean(axis=0)
    low = (frequency > 0) & (frequency <= _LOW)
    middle = (frequency > _LOW) & (frequency <= _MIDDLE)
    return low, middle, frequency > _MIDDLE
