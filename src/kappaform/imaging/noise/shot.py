r"""Shot noise: whether the variance grows with brightness, and how; photon counts.

The variance is a line over brightness, found by maximum likelihood. Blocks of 8 x 8
pixels that do not overlap are orthonormal to each other, so the likelihood counts every pixel once.
The cosine coefficients of block i, whose mean is x_i, are taken for independent normal numbers with
variances

.. math:: v_{ik} = a + b x_i + s_i^2 S_{m_i k}

The signal has one of a few spectra S (power laws) and any energy s. How frequent each of them is
may be different in dark and in bright places, so that texture that grows with brightness is not
taken for noise. Expectation maximisation finds these frequencies; each maximisation over the line
is one step of Fisher scoring. Coefficients of about one frequency count together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.imaging.noise.kinds import NO_EVIDENCE, Evidence, Shot
from kappaform.imaging.noise.wavelets import Details, Sample, deviation, quietest_fifth
from kappaform.linalg import dct_basis

# Chosen on images of scikit-image with Poisson and with white noise, 128 x 128 pixels and more; of
# those with white noise one was called shot (docs/mathematics.md, variance over brightness).
#: Nats, of a line that rises over a constant. By chance there are so many in one of 30,000 images
#: with white noise; errors of the model do not average out, so many blocks need more.
_LEAST_GAIN = 8.0
_GAIN_PER_BLOCK = 0.04
_LEAST_GAIN_ASKED = 2.0  # if shot noise is asked for: by chance, one of 44 images
#: Standard deviation of the quietest details in units of the line: texture may be in either.
_LEAST_QUIET, _LARGEST_QUIET = 0.8, 1.2
_LEAST_DETAILS = 50  # whose standard deviation is measured: off by 17 %
_LEAST_GROWTH = 1.25  # of the standard deviation, from dark to bright: of less, constant will do
_LEAST_STEPS = 1.5  # noise over the distance of two values: of less, rounding makes anything
_LEAST_RATIO = 2 / 3  # of a step and a gain that are taken for the same; texture adds to the gain
_LEAST_CLEAR = 0.3  # fraction of details away from limits, below which zeros may be photon counts
_MOST_LEVELS = 128  # of values that may be photon counts: fewer than 8 bit have
_N_VALUES = 2**16  # that are examined for levels


# Where shot noise is likely, but the noise is taken to be white.
_GROWS = Evidence(
    0.5,
    "the variance grows with brightness, but not that of the quietest details",
    alternative="shot",
)


class _Lattice(NamedTuple):
    """Values of an image that are whole numbers of steps apart."""

    step: float  #: as photons would be, if the values are photon counts; 0 if they cannot be
    rounding: float  #: least distance of two values


def shot_of(
    sample: Sample, details: Details, *, doubted: bool = True
) -> tuple[Shot | None, Evidence]:
    """The shot noise of an image, None if there is doubt that it is shot noise; the evidence."""
    counted = details.usable.mean() < _LEAST_CLEAR * details.clear.mean()
    # So many lowest values: clipped noise, or too few photons for some pixels to see one.
    blocks = blocks_of(sample, low=not counted, high=True)
    if blocks is None:
        return None, NO_EVIDENCE
    constant = fit_line(blocks)
    line = fit_line(blocks, start=constant)
    if line.slope <= 0:
        return None, NO_EVIDENCE
    needed = max(_LEAST_GAIN, _GAIN_PER_BLOCK * blocks.n_blocks)
    gain = line.log_likelihood - constant.log_likelihood
    if gain < _LEAST_GAIN_ASKED:
        return None, _evidence(gain, needed)
    lattice = _lattice(sample)
    counts = _counts(sample, blocks, lattice.step, line)
    if counts is not None:
        zero, log_likelihood = counts
        alike = line.log_likelihood - log_likelihood < needed
        alike = alike or _LEAST_RATIO < lattice.step / line.slope < 1 / _LEAST_RATIO
        if alike and log_likelihood > constant.log_likelihood:
            words = "values are as far apart as the photons that explain their noise"
            return Shot(lattice.step, 0.0, zero), Evidence(1.0, words)
    ratios = _quiet_ratios(details, line, counted)
    if doubted:
        dark, bright = np.sqrt(np.maximum(line.variances(blocks.means[[0, -1]]), 0.0))
        is_even = bright < _LEAST_GROWTH * dark
        if counted or is_even or _rms(blocks, line) < _LEAST_STEPS * lattice.rounding:
            return None, NO_EVIDENCE
        if gain < needed:
            return None, _evidence(gain, needed)
        if not all(_LEAST_QUIET <= ratio <= _LARGEST_QUIET for ratio in ratios):
            return None, _GROWS
    return _shot(sample, line, min(ratios[0], 1.0) ** 2), _evidence(gain, needed)


def _evidence(gain: float, needed: float) -> Evidence:
    """Probability that the kind is right: what is needed counts as two standard deviations."""
    confidence = 0.5 + 0.5 * math.erf(abs(gain - needed) / (needed / 2) / math.sqrt(2))
    words = (
        "noise that grows with brightness explains the image better than constant noise by "
        f"{gain:.1f} nats; {needed:.1f} are needed"
    )
    return Evidence(confidence, words)


def _shot(sample: Sample, line: Fit, scale: float) -> Shot:
    """Shot noise with `scale` times the variances of a line.

    Many offsets and read noises make the same line: the offset is 0, unless values are below it.
    """
    no_noise = -line.constant / line.slope
    offset = max(min(sample.lowest, 0.0), no_noise)
    gain = scale * line.slope
    return Shot(gain, math.sqrt(max(gain * (offset - no_noise), 0.0)), offset)


def _rms(blocks: Blocks, line: Fit) -> float:
    return math.sqrt(max(float(line.variances(blocks.means).mean()), 0.0))


def _quiet_ratios(details: Details, line: Fit, counted: bool) -> list[float]:
    """Standard deviation of the quietest details, in units of the line: all, dark, bright ones."""
    usable = details.clear & ~details.high & (~details.low | counted)
    brightness = details.brightness[usable]
    if len(brightness) < 2 * _LEAST_DETAILS:
        return [1.0]
    variances = line.variances(brightness)
    levels = np.sqrt(np.maximum(variances, 1e-3 * np.abs(variances).max()))
    coefs, texture = details.coefs[usable] / levels, details.texture[usable] / levels
    order = np.argsort(brightness, kind="stable")
    return [
        deviation(coefs[some][quietest_fifth(texture[some], _LEAST_DETAILS)])
        for some in (order, *np.array_split(order, 2))
    ]


# --- Photon counts


def _counts(sample: Sample, blocks: Blocks, step: float, line: Fit) -> tuple[float, float] | None:
    """The value of no photon, if each is a step, and the log-likelihood; None without a step."""
    if step == 0:
        return None
    found = fit_line(blocks, start=line, slope=step)
    no_noise = -found.constant / step
    zero = sample.lowest - step * max(round((sample.lowest - no_noise) / step), 0)
    return zero, found.log_likelihood


def _lattice(sample: Sample) -> _Lattice:
    values = np.concatenate([slab.ravel() for slab in sample.slabs])
    levels = np.unique(values[:: max(1, values.size // _N_VALUES)])
    if levels.size <= 2:
        return _Lattice(0.0, 0.0)
    distances = np.diff(levels)
    rounding = float(distances.min())
    if levels.size <= _MOST_LEVELS:
        common = levels[: 2 + 3 * levels.size // 4]  # of the highest some may be missing
        return _Lattice(float(common[-1] - common[0]) / (common.size - 1), rounding)
    return _Lattice(_common_step(np.ldexp(distances, sample.exponent), sample.exponent), rounding)


def _common_step(distances: Array, exponent: int) -> float:
    """Greatest common divisor of whole numbers above 1, times 2**-exponent; else 0."""
    if distances.max() >= 2**53 or np.any(distances != np.rint(distances)):
        return 0.0
    divisor = int(np.gcd.reduce(distances.astype(np.int64)))
    return math.ldexp(divisor, -exponent) if divisor > 1 else 0.0


# --- The variance as a line over brightness

_SIDE = 8  # of the blocks
_MOST_BLOCKS = 2048
_N_PARTS = 4  # of brightness, each with its own frequencies of the signals
_MOST_BINS = 8  # of each part, within which noise has one level
_LEAST_IN_BIN = 4  # blocks
_BANDS = np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.95])  # limits of radial frequency
_MIDDLE = slice(3, 6)  # of the bands
#: Exponents of the power laws of the signal, and how fast high frequencies are lost.
_SIGNALS = ((0.6, 0.0), (1.2, 0.0), (1.2, 3.0), (2.4, 0.0), (2.4, 3.0))
_N_ENERGIES = 16  # of the signal, besides none
#: Of the weights of neighbouring energies: single ones would imitate a level of noise.
_SMOOTHING = np.exp(-0.5 * (np.arange(-4, 5) / 1.5) ** 2)
_LEAST_WEIGHT = 0.01  # of the signals together
_N_STEPS = 40
#: Energy of middle over that of high frequencies: blocks with more show signal, and no noise.
_LARGEST_TILT = 8.0
_MOST_CHANGE = 3.0  # of a variance, in a step
_LEAST_VARIANCE = 1e-6  # of the noise, in units of the quietest fifth of the finest band


class Blocks(NamedTuple):
    """Blocks of an image, sorted by their means: bins of equally many."""

    means: Array  #: (bins,)
    energies: Array  #: (bins, blocks, bands)

    @property
    def n_blocks(self) -> int:
        return int(np.prod(self.energies.shape[:2]))


class Fit(NamedTuple):
    """Variance of the noise at brightness x, constant + slope * x."""

    slope: float
    constant: float
    log_likelihood: float  #: of all blocks
    weights: Array  #: of the signals (parts, signals)

    def variances(self, brightness: Array) -> Array:
        return self.constant + self.slope * brightness


def blocks_of(sample: Sample, low: bool, high: bool) -> Blocks | None:
    """Blocks of an image that are not constant; None if they are too few.

    Those with a pixel of the lowest value are left out if `low`, of the highest if `high`.
    """
    found = []
    for slab in sample.slabs:
        axes = np.sort(np.argsort(slab.shape, kind="stable")[-2:])
        if slab.ndim < 2 or min(slab.shape[axis] for axis in axes) < _SIDE:
            continue
        planes = np.moveaxis(slab, axes, (-2, -1))
        rows, columns = (n // _SIDE for n in planes.shape[-2:])
        planes = planes[..., : rows * _SIDE, : columns * _SIDE]
        tiled = planes.reshape(-1, rows, _SIDE, columns, _SIDE).swapaxes(2, 3)
        found.append(tiled.reshape(-1, _SIDE**2))
    if not found:
        return None
    pixels = np.concatenate(found)
    usable = np.ptp(pixels, axis=1) > 0
    usable &= ~((pixels == sample.lowest).any(axis=1) & low)
    usable &= ~((pixels == sample.highest).any(axis=1) & high)
    coefs = pixels[usable] @ dct_basis((_SIDE, _SIDE)).T
    bands, counts = _bands()
    energies = np.stack(
        [np.sum(coefs[:, 1:][:, bands == band] ** 2, axis=1) for band in range(len(counts))], axis=1
    )
    middle = energies[:, _MIDDLE].sum(axis=1) / counts[_MIDDLE].sum()
    numbers = np.flatnonzero(middle <= _LARGEST_TILT * energies[:, -1] / counts[-1])
    n_used = min(len(numbers), _MOST_BLOCKS)
    n_bins = _N_PARTS * min(_MOST_BINS, n_used // (_N_PARTS * _LEAST_IN_BIN))
    if n_bins == 0:
        return None
    n_in_bin = n_used // n_bins
    numbers = np.random.default_rng(0).choice(numbers, n_in_bin * n_bins, replace=False)
    means, energies = coefs[numbers, 0] / _SIDE, energies[numbers]
    order = np.argsort(means, kind="stable").reshape(n_bins, n_in_bin)
    return Blocks(means[order].mean(axis=1), energies[order])


def fit_line(blocks: Blocks, *, start: Fit | None = None, slope: float | None = None) -> Fit:
    """The likeliest constant; or line, from a `start`; or constant with a given slope."""
    _, counts = _bands()
    unit = max(float(np.quantile(blocks.energies[..., -1] / counts[-1], 0.2)), 1e-300)
    energies = blocks.energies / unit
    signals = _signals(energies.sum(axis=2) / counts.sum())
    ends = blocks.means[[0, -1]]
    places = (blocks.means - ends[0]) / max(ends[1] - ends[0], 1e-300)
    columns = np.stack([1 - places, places], axis=1)
    weights = np.full((_N_PARTS, len(signals)), 1 / len(signals))
    noise = np.ones(2)  # variances at the ends
    if start is not None:
        noise, weights = start.variances(ends) / unit, start.weights
    if slope is not None:
        noise = noise.mean() + slope * (ends - ends.mean()) / unit
    free = columns if start is not None and slope is None else np.ones((len(places), 1))
    log_likelihood = -math.inf
    for _ in range(_N_STEPS):
        noise = np.maximum(noise, _LEAST_VARIANCE)
        variances = (columns @ noise)[:, np.newaxis, np.newaxis] + signals
        shares, log_likelihood = _responsibilities(energies, variances, weights, counts)
        members = shares.sum(axis=1)
        weights = _weights(members, energies.shape[1])
        sums = shares.swapaxes(1, 2) @ energies
        step = _scoring_step(members, sums, variances, counts, free)
        noise = noise + np.clip(step, noise / _MOST_CHANGE - noise, noise * _MOST_CHANGE - noise)
    found = float((noise[1] - noise[0]) / max(ends[1] - ends[0], 1e-300)) * unit
    return Fit(found, float(noise[0]) * unit - found * float(ends[0]), log_likelihood, weights)


def _responsibilities(
    energies: Array, variances: Array, weights: Array, counts: Array
) -> tuple[Array, float]:
    """Posterior weights (bins, blocks, signals) and the log-likelihood of all blocks."""
    prior = np.log(np.repeat(weights, len(variances) // _N_PARTS, axis=0))
    prior -= 0.5 * np.log(variances) @ counts
    logs = energies @ (-0.5 / variances).swapaxes(1, 2) + prior[:, np.newaxis]
    largest = logs.max(axis=2, keepdims=True)
    shares = np.exp(logs - largest)
    totals = shares.sum(axis=2, keepdims=True)
    shares /= totals
    return shares, float(np.sum(largest + np.log(totals)))


def _weights(members: Array, n_in_bin: int) -> Array:
    """Frequencies of the signals in each part of brightness, smooth over energies."""
    of_parts = members.reshape(_N_PARTS, -1, members.shape[1]).mean(axis=1) / n_in_bin
    kinds = of_parts[:, 1:].reshape(-1, _N_ENERGIES)
    padded = np.pad(kinds, ((0, 0), (len(_SMOOTHING) // 2,) * 2), mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(_SMOOTHING), axis=1)
    smooth = windows @ _SMOOTHING
    sizes = kinds.sum(axis=1) / np.maximum(smooth.sum(axis=1), 1e-300)
    of_parts[:, 1:] = (smooth * sizes[:, np.newaxis]).reshape(_N_PARTS, -1)
    return (1 - _LEAST_WEIGHT) * of_parts + _LEAST_WEIGHT / members.shape[1]


def _scoring_step(
    members: Array, sums: Array, variances: Array, counts: Array, columns: Array
) -> Array:
    """A step of Fisher scoring on the expected log-likelihood."""
    expected = members[..., np.newaxis] * counts
    slopes = 0.5 * np.sum((sums / variances - expected) / variances, axis=(1, 2))
    information = 0.5 * np.sum(expected / variances**2, axis=(1, 2))
    hessian = (columns.T * information) @ columns
    step: Array = np.linalg.solve(hessian + 1e-9 * np.eye(len(hessian)), columns.T @ slopes)
    return step


def _bands() -> tuple[Array, Array]:
    """Band of each cosine but the constant, and the number of cosines of each band."""
    places = np.indices((_SIDE, _SIDE)).reshape(2, -1)[:, 1:] / _SIDE
    bands = np.digitize(np.sqrt(np.sum(places**2, axis=0)), _BANDS)
    return bands, np.bincount(bands)


def _signals(energies: Array) -> Array:
    """Variances (signals, bands) of signals of all kinds and energies; the first has none."""
    places = np.indices((_SIDE, _SIDE)).reshape(2, -1)[:, 1:] / _SIDE
    frequencies = np.sqrt(np.sum(places**2, axis=0))
    bands, counts = _bands()
    largest = max(2 * float(np.quantile(energies, 0.999)), 1.0)
    sizes = np.geomspace(0.05, largest, _N_ENERGIES)
    rows = [np.zeros((1, len(counts)))]
    for exponent, loss in _SIGNALS:
        power = frequencies ** (-2 * exponent) * np.exp(-loss * frequencies**2)
        spectrum = np.bincount(bands, power) / counts
        rows.append(np.multiply.outer(sizes, spectrum / power.mean()))
    return np.concatenate(rows)
