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
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.imaging.noise.correlated import MOST_TOGETHER
from kappaform.imaging.noise.kinds import Shot, Varying
from kappaform.imaging.noise.wavelets import Sample, is_clipped, stabilised_slab
from kappaform.imaging.patches import grid_of, rows_at
from kappaform.linalg import dct_basis

_N_PATCHES = 10_000  # that are drawn
_LEAST_PATCHES = 1000  # of which a tenth says something
_QUIET_SHARE = 0.1
_LEAST_QUIET = 2000  # pixels of them, or as many as the covariance of a patch has entries
_N_DRAWS = 2000  # of normal vectors, to see what a ball leaves of them: within 3 %
_N_STEPS = 30
# Mean index of a cosine, in parts of the highest: borders of low, middle and high frequencies.
_LOW, _MIDDLE = 0.15, 0.4

# Chosen on pictures of scikit-image and 16 photographs with white, blurred and interpolated noise,
# so that none with white noise was called correlated (benchmarks/bench_noise.py). Tilts (deviation
# of middle over high frequencies, or the other way) from which on noise is not white, with the
# largest kurtosis of each: the nearer to white, the stricter.
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

    covariance: Array  #: (channels, channels, n, n); of many channels (channels, n, n)
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
        """Whether the patches show noise, beyond doubt; that of many channels is independent."""
        tilt = max(self.tilt, 1 / self.tilt)
        allowed = [kurtosis for least, kurtosis in _TILTS if tilt >= least]
        return (
            bool(allowed)
            and (self.covariance.ndim == 4 or self.has_own_colours)
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


#: Patches (patches, n, channels) of some neighbouring channels.
Patches = Callable[[slice], Array]


class Look(NamedTuple):
    """What the quiet patches of an image show, and the stabiliser that made them alike."""

    quiet: Quiet
    stabiliser: Varying | None
    is_large: bool  #: whether the quiet patches have enough pixels to be certain of anything


def look_at(
    samples: list[Sample],
    units: list[float],
    shots: list[Shot] | None,
    patch_shape: tuple[int, ...],
) -> Look | None:
    """What the quiet patches of an image show; None if too few are neither clipped nor constant.

    The few channels of colour are taken together, with the covariance of each pair of them. More
    channels are taken one after the other and count as independent, so that time and memory grow
    in proportion to their number; which patches are quiet is still decided by all of them.
    """
    size = len(samples) if len(samples) <= MOST_TOGETHER else 1
    groups = [slice(c, c + size) for c in range(0, len(samples), size)]
    patches = _drawn_patches(samples, units, shots, patch_shape, groups)
    if patches is None:
        return None
    n_pixels, n = sum(s.size for each in samples for s in each.slabs), math.prod(patch_shape)
    is_large = _QUIET_SHARE * n_pixels >= min(_LEAST_QUIET, math.comb(n + 1, 2))
    seen = _quiet_of(patches, groups, patch_shape)
    if shots is None and not seen.is_white and seen.has_own_colours:
        varying = _varying(patches, units)
        if varying is not None:
            even = _quiet_of(_evened(patches, varying, units), groups, patch_shape)
            if even.is_correlated_noise >= seen.is_correlated_noise:
                return Look(even, varying, is_large)
    return Look(seen, None, is_large)


def _varying(patches: Patches, units: list[float]) -> Varying | None:
    """Noise that depends on brightness, in most channels of some patches, in units of the image."""
    levels = [_curve_of(patches(slice(c, c + 1))[..., 0] * unit) for c, unit in enumerate(units)]
    known = [each for each in levels if each is not None]
    if 2 * len(known) <= len(levels):
        return None
    brightness, sigma = np.transpose([each or known[0] for each in levels], (1, 0, 2))
    return Varying(brightness, sigma)


def _evened(patches: Patches, varying: Varying, units: list[float]) -> Patches:
    """The same patches, with noise that does not depend on brightness."""

    def evened(group: slice) -> Array:
        its = Varying(varying.brightness[group], varying.sigma[group])
        return its.stabilised(patches(group) * units[group])

    return evened


def _drawn_patches(
    samples: list[Sample],
    units: list[float],
    shots: list[Shot] | None,
    patch_shape: tuple[int, ...],
    groups: list[slice],
) -> Patches | None:
    """Patches in units of their noise that are neither clipped nor constant, drawn at random.

    None if there are too few.
    """
    rng = np.random.default_rng(0)
    slabs = samples[0].slabs
    n_values = sum(slab.size for slab in slabs)
    drawn: list[tuple[int, Array]] = []  # of a slab, numbers of patches
    for number, slab in enumerate(slabs):
        if any(size < side for size, side in zip(slab.shape, patch_shape, strict=True)):
            continue
        grid = grid_of(slab.shape, patch_shape)
        wanted = min(grid.n_patches, math.ceil(_N_PATCHES * slab.size / n_values))
        numbers = rng.choice(grid.n_patches, wanted, replace=False)
        mask = is_clipped(samples, shots is not None, number)
        drawn.append((number, numbers[~rows_at(mask, grid, numbers).any(axis=1)]))

    def patches(group: slice) -> Array:
        found = []
        for number, numbers in drawn:
            slab = stabilised_slab(samples[group], units[group], shots and shots[group], number)
            grid = grid_of(slab.shape[:-1], patch_shape, n_channels=slab.shape[-1])
            shape = len(numbers), math.prod(patch_shape), slab.shape[-1]
            found.append(rows_at(slab, grid, numbers).reshape(shape))
        return np.concatenate(found)

    if not drawn:
        return None
    is_varied = np.logical_or.reduce(
        [(np.ptp(patches(group), axis=1) > 0).any(axis=1) for group in groups]
    )
    counts = np.cumsum([len(numbers) for _, numbers in drawn])[:-1]
    parts = zip(drawn, np.split(is_varied, counts), strict=True)
    drawn = [(number, numbers[some]) for (number, numbers), some in parts]
    return patches if np.count_nonzero(is_varied) >= _LEAST_PATCHES else None


def _quiet_of(patches: Patches, groups: list[slice], patch_shape: tuple[int, ...]) -> Quiet:
    """What the quietest patches show; covariances are those within groups of channels."""
    energies, spread, squared_range = np.zeros(()), 0.0, 0.0
    for group in groups:
        some = patches(group)
        n_patches, n, n_together = some.shape
        spread += some.reshape(-1, n_together).var(axis=0).sum()
        squared_range += np.sum(np.ptp(some, axis=(0, 1)) ** 2)
        energies = energies + _energies(_free(some).reshape(n_patches, -1))
    is_quiet, limit = _quietest(energies)
    chosen = [_free(patches(group)[is_quiet]) for group in groups]
    flat = [each.reshape(len(each), -1) for each in chosen]
    shown = [each.T @ each / len(each) for each in flat]
    moments, filling = _undone(shown, limit)
    basis = dct_basis(patch_shape)
    kurtosis = np.concatenate([_kurtosis(each @ basis.T) for each in chosen]).mean(axis=0)
    if len(groups) == 1:
        covariance = moments[0].reshape(n_together, n, n_together, n).transpose(0, 2, 1, 3)
        total, mixtures = np.einsum("aaij->ij", covariance), _mixtures(covariance)
        between = _largest_correlation(np.einsum("abii->ab", covariance))
        spectra = np.einsum("ij,ca,abjk,cb,ik->ci", basis, *mixtures, basis, optimize=True)
    else:
        covariance = np.stack(moments)
        total = covariance.sum(axis=0)
        rows = np.stack([each.ravel() for each in chosen])
        between = _largest_correlation(rows @ rows.T)
        spectra = np.einsum("ij,jk,ik->i", basis, total, basis, optimize=True)[np.newaxis]
    low, middle, high = _frequency_bands(patch_shape)
    spectrum_energies = spectra.sum(axis=1)
    seen = spectra[spectrum_energies >= _LEAST_COLOUR * spectrum_energies.max()]
    tilts = [math.sqrt(_mean(v[middle]) / max(_mean(v[high]), 1e-300)) for v in seen]
    energy_shown = sum(float(np.trace(each)) for each in shown)
    return Quiet(
        covariance,
        filling,
        sum(float(np.trace(each)) for each in moments) / energy_shown,
        _mean(kurtosis[middle]),
        _mean(kurtosis[low]),
        max(tilts, key=lambda tilt: abs(math.log(tilt)) if tilt > 0 else math.inf),
        between,
        math.sqrt(energy_shown / n / spread),
        math.sqrt(np.trace(total) / n / squared_range),
    )


def _free(patches: Array) -> Array:
    """Patches (patches, channels, n) without their means, from patches (patches, n, channels)."""
    return (patches - patches.mean(axis=1, keepdims=True)).transpose(0, 2, 1)


def _kurtosis(coefs: Array) -> Array:
    """Fourth moments of coefficients (patches, channels, n) over those of normal numbers."""
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN where all coefficients are zero
        return np.mean(coefs**4, axis=0) / (3 * np.maximum(np.mean(coefs**2, axis=0), 1e-300) ** 2)


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


def _largest_correlation(traces: Array) -> float:
    sizes = np.sqrt(np.diag(traces))
    others = traces / np.outer(sizes, sizes) - np.eye(len(sizes))
    return float(np.abs(others).max()) if len(sizes) > 1 else 1.0


def _curve_of(patches: Array) -> tuple[Array, Array] | None:
    """Deviations over brightness of the noise in patches (patches, n); None: about constant.

    Energies of the quietest patches of about one brightness are taken for those of a gamma
    distribution, whose shape is that of all of them together.
    """
    from scipy.special import gammainc

    means = patches.mean(axis=1)
    free = patches - means[:, np.newaxis]
    groups = np.array_split(np.argsort(means), _N_GROUPS)
    quietest = []
    for group in groups:
        is_quiet, limit = _quietest(_energies(free[group]))
        quietest.append((free[group][is_quiet], limit))
    if np.ptp(means) == 0 or min(limit for _, limit in quietest) == 0:  # flat areas, as of a JPEG
        return None
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
    return smooth_levels(brightness, sizes, weights, (patches.min(), patches.max()))


def smooth_levels(
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


def _energies(patches: Array) -> Array:
    return np.einsum("ij,ij->i", patches, patches)


def _quietest(energies: Array) -> tuple[Array, float]:
    """Which tenth of the patches has the least energy, and the largest energy among them."""
    last = int(_QUIET_SHARE * len(energies))
    limit = np.partition(energies, last)[last]
    return energies <= limit, float(limit)


def _undone(moments: list[Array], limit: float) -> tuple[list[Array], float]:
    """Covariances of independent normal vectors whose second moments within a ball are given.

    The squared radius of the ball, `limit`, is about all vectors together. Also the part of them
    that is within the ball.
    """
    rng = np.random.default_rng(0)
    squares = rng.standard_normal((_N_DRAWS, len(moments[0]))) ** 2
    # The same draws in another order are those of another vector.
    orders = [np.arange(_N_DRAWS), *(rng.permutation(_N_DRAWS) for _ in moments[1:])]
    spectra = [np.linalg.eigh(each) for each in moments]
    targets = [np.maximum(values, 1e-9 * values[-1]) for values, _ in spectra]
    found = [values.copy() for values in targets]

    def energies() -> Array:
        pairs = zip(found, orders, strict=True)
        return sum((squares @ values)[order] for values, order in pairs)

    for _ in range(_N_STEPS):
        within = np.flatnonzero(energies() <= limit)
        if len(within) < _N_DRAWS // 20:  # too few to go by: the quietest of them
            within = np.argsort(energies())[: _N_DRAWS // 20]
        for values, target, order in zip(found, targets, orders, strict=True):
            seen = squares[order[within]].mean(axis=0) * values
            values *= np.clip(target / seen, 0.5, 2.0) ** 0.7
    covariances = [
        (vectors * values) @ vectors.T for (_, vectors), values in zip(spectra, found, strict=True)
    ]
    return covariances, float(np.mean(energies() <= limit))


def _frequency_bands(patch_shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """Cosines of low (without the constant), middle and high frequency."""
    places = np.indices(patch_shape).reshape(len(patch_shape), -1)
    highest = np.maximum(np.array(patch_shape) - 1, 1)[:, np.newaxis]
    frequency = (places / highest).mean(axis=0)
    low = (frequency > 0) & (frequency <= _LOW)
    middle = (frequency > _LOW) & (frequency <= _MIDDLE)
    return low, middle, frequency > _MIDDLE
