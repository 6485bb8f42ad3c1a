"""Shot noise: whether the variance grows with brightness, and how; photon counts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.imaging.noise.kinds import Shot
from kappaform.imaging.noise.scale_mixture import NO_EVIDENCE, Evidence
from kappaform.imaging.noise.variance_line import Blocks, Fit, blocks_of, fit_line
from kappaform.imaging.noise.wavelets import Details, Sample, deviation, quietest_fifth

# Chosen on ten pictures of scikit-image with Poisson and with white noise, 128 x 128 pixels and
# more, so that none with white noise was called shot (benchmarks/bench_noise.py).
#: Nats, of a line over a constant. By chance there are so many in one of 30,000 images with white
#: noise; the errors of the model do not average out, so more are needed for many blocks.
_LEAST_GAIN = 8.0
_GAIN_PER_BLOCK = 0.04
_LEAST_GAIN_ASKED = 2.0  # if shot noise is asked for: by chance, one of 20 images
#: Standard deviation of the quietest details in units of the line: texture may be in either.
_LEAST_QUIET, _LARGEST_QUIET = 0.8, 1.2
_LEAST_DETAILS = 50  # whose standard deviation is measured: off by 17 %
_LEAST_GROWTH = 1.25  # of the standard deviation, from dark to bright: of less, constant will do
_LEAST_STEPS = 1.5  # noise over the distance of two values: of less, rounding makes anything
_LEAST_RATIO = 2 / 3  # of a step and a gain that are taken for the same; texture adds to the gain
_LEAST_CLEAR = 0.3  # share of details away from limits, below which zeros may be photon counts
_MOST_LEVELS = 128  # of values that may be photon counts: fewer than 8 bit have
_N_VALUES = 2**16  # that are looked at for levels


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
            words = "the variance grows with brightness, but not that of the quietest details"
            return None, Evidence(0.5, words)
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
