"""Noise of processed photographs: whether it is correlated, its covariance, its level.

The noise of brightness and of differences of colours is fitted in a Gaussian scale mixture
(`scale_mixture`). Whether it is correlated is decided by the likelihood of a free spectrum over
that of a constant one, in nats per patch: the model, not the number of patches, limits what it can
tell. The more direction there is where the noise should be alone (`direction`), the more is needed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.imaging.noise.correlated import Correlated
from kappaform.imaging.noise.direction import directedness
from kappaform.imaging.noise.kinds import NO_EVIDENCE, Evidence, Varying, within_a_fifth
from kappaform.imaging.noise.scale_mixture import (
    COUNTED,
    FIRST_SPREAD,
    LARGEST_FREQUENCY,
    LEAST_FREQUENCY,
    LEAST_PATCHES,
    ROUNDING,
    SIDE,
    WHITE,
    Spectrum,
    fit_spectrum,
    parabolas,
    radial_frequencies,
)
from kappaform.imaging.noise.wavelets import Sample, is_clipped
from kappaform.imaging.patches import grid_of, rows_at
from kappaform.linalg import dct_basis

_N_PATCHES = 3000
_MOST_CLIPPED = 0.5  # of the pixels of a patch, where its level is measured
_N_LEVELS = 255  # of 8 bits: rounding to them is a variance that is always there
_N_GROUPS = 8  # of brightness, whose levels are compared

# Chosen on real pictures with references and on simulated cameras (benchmarks/bench_noise.py).
_LEAST_GAIN = 0.5  # nats per patch, of correlated over white noise, if it has no direction
_POWER = 2.35  # of directedness, by which more is needed
_LEAST_LEVEL = 0.004  # over the range of values: less is not worth removing
#: Levels that are given: so many tau above the median. Noise is stronger in texture, where it is
#: hard to measure, and too high an estimate costs less than too low a one.
_ABOVE_MEDIAN = 1.5
#: Noise of colour differences over that of brightness, in log variances at the knots, that is left
#: at least when a JPEG halves the resolution of colours.
_LEAST_COLOUR = np.array([-3.0, -2.6, -1.4])
_MAGNIFIED = Evidence(0.5, "high frequencies are missing, as in a magnified image")


class Judged(NamedTuple):
    """What a component of colour shows, and whether it is noise."""

    spectrum: Spectrum
    gain: float  #: nats per patch, of its likelihood over that of white noise
    needed: float  #: of them, more if it has a direction

    @property
    def is_noise(self) -> bool:
        return self.gain >= self.needed


class MixtureNoise(NamedTuple):
    """Noise of the colour components of an image (`colour_components`), in units of the image."""

    spectra: list[Array]  #: log variances at the knots, of the stabilised image
    stabiliser: Varying | None  #: how its level depends on brightness

    def correlated(self, patch_shape: tuple[int, ...], evidence: Evidence) -> Correlated:
        return Correlated(
            self.covariance(patch_shape),
            stabiliser=self.stabiliser,
            confidence=evidence.confidence,
            evidence=evidence.evidence,
        )

    def covariance(self, patch_shape: tuple[int, ...]) -> Array:
        """Covariance (channels, channels, n, n) of the noise in a patch."""
        components = colour_components(len(self.spectra))
        basis, curves = dct_basis(patch_shape), parabolas(radial_frequencies(patch_shape))
        total = np.zeros((len(components),) * 2 + basis.shape)
        for row, spectrum in zip(components, self.spectra, strict=True):
            of_patch = (basis.T * np.exp(spectrum @ curves)) @ basis
            total += np.multiply.outer(np.outer(row, row), of_patch)
        return total


def colour_components(n_channels: int) -> Array:
    """Rows: brightness and differences of colours; for three, 1 1 1, 1 0 -1 and 1 -2 1."""
    return dct_basis((n_channels,))


def mixture_noise(samples: list[Sample]) -> tuple[MixtureNoise | None, Evidence]:
    """Correlated noise of a photograph, by its samples of three colours, and the evidence.

    None for volumes, if a channel is constant, if too few patches are neither clipped nor flat, and
    if white noise, or none, explains the patches nearly as well.
    """
    nothing = None, NO_EVIDENCE
    exponent = max(sample.exponent for sample in samples)
    scales = [math.ldexp(1.0, sample.exponent - exponent) for sample in samples]
    ranges = [(s.highest - s.lowest) * scale for s, scale in zip(samples, scales, strict=True)]
    if min(ranges) == 0 or samples[0].slabs[0].ndim != 2:
        return nothing
    unit = max(ranges) / _N_LEVELS
    scales = [scale / unit for scale in scales]
    coefs = _cosine_coefs(samples, scales)
    if coefs is None or not coefs[1:, :, 1:].any():  # grey that is stored as colour
        return nothing
    judged = _judged(0, samples, scales, coefs)
    if judged is None or judged.spectrum.level < _LEAST_LEVEL * _N_LEVELS:
        return nothing
    scale = math.ldexp(unit, exponent)
    if judged.spectrum.is_magnified or not judged.is_noise:
        evidence, shown = _evidence(judged), _shown_by_colours(judged, samples, scales, coefs)
        if shown is None:
            return None, evidence
        words = f"{evidence.evidence}; its colours show noise, and how strong it is"
        return _in_units(shown, scale), evidence._replace(evidence=words)
    more, drawn = (_cosine_coefs(samples, scales, most) for most in (_MOST_CLIPPED, 1.0))
    assert more is not None  # all of `coefs`, and others
    assert drawn is not None
    brightness, squares, curve = _evened(more, coefs)
    evidence = _evidence(judged, more.shape[1] / drawn.shape[1])
    spectra = [_raised(brightness)]
    for component in squares[1:]:
        found = fit_spectrum(component)
        least = spectra[0] + _LEAST_COLOUR
        spectra.append(least if found is None else np.maximum(found.log_variances, least))
    stabiliser = None if curve is None else Varying(curve[0] * scale, curve[1])
    return _in_units(spectra, scale, stabiliser), evidence


def _raised(found: Spectrum) -> Array:
    """Log variances at the level that is given."""
    return found.log_variances + 2 * _ABOVE_MEDIAN * found.spread


def _in_units(
    spectra: list[Array], scale: float, stabiliser: Varying | None = None
) -> MixtureNoise:
    return MixtureNoise([each + 2 * math.log(scale) for each in spectra], stabiliser)


def _judged(number: int, samples: list[Sample], scales: list[float], coefs: Array) -> Judged | None:
    """Whether a component of colour shows noise; None if it shows next to nothing."""
    squares = coefs[number, :, 1:] ** 2
    found, white = fit_spectrum(squares), fit_spectrum(squares, WHITE)
    if found is None or white is None:
        return None
    gain, needed = found.log_likelihood - white.log_likelihood, _LEAST_GAIN
    if gain >= needed:
        direction = _directedness(number, samples, scales, found)
        needed *= direction**_POWER
    return Judged(found, gain, needed)


def _shown_by_colours(
    brightness: Judged, samples: list[Sample], scales: list[float], coefs: Array
) -> list[Array] | None:
    """Spectra of the noise where brightness shows texture, but both differences of colours do not.

    Noise that is independent between channels is as strong in brightness as in the differences in
    the mean: its variance in each of the three is a third of the trace, in the mean. Demosaicing
    leaves this as it is at low frequencies. The spectrum of brightness is lowered to this variance.
    Red minus blue has at most three times the variance of the other difference; more is texture.
    """
    if brightness.gain < _LEAST_GAIN:
        return None
    colours = []
    for number in range(1, len(coefs)):
        judged = _judged(number, samples, scales, coefs)
        if judged is None or not judged.is_noise or judged.spectrum.spread > FIRST_SPREAD:
            return None
        colours.append(_raised(judged.spectrum))
    colours[0] = np.minimum(colours[0], colours[1] + math.log(3))  # else green would have none
    found = brightness.spectrum.log_variances
    excess = found[0] - math.log(np.mean([math.exp(each[0]) for each in colours]))
    lowered = found - max(excess, 0.0)
    if lowered[-1] < math.log(ROUNDING):  # magnified after all
        return None
    if brightness.spectrum._replace(log_variances=lowered).level < _LEAST_LEVEL * _N_LEVELS:
        return None
    return [lowered, *(np.maximum(each, lowered + _LEAST_COLOUR) for each in colours)]


def _evidence(judged: Judged, seen: float = 1.0) -> Evidence:
    """Probability that the kind of noise is right, and the level of correlated noise.

    The errors of the model do not average out: what is needed counts as two of their deviations.
    With less, texture may hide correlated noise. Where patches are not seen, because they are
    clipped, the level is as likely to be right as to be wrong.
    """
    found, gain, needed = judged
    if found.is_magnified:
        return _MAGNIFIED
    of_kind = 0.5 + 0.5 * math.erf(abs(gain - needed) / (needed / 2) / math.sqrt(2))
    error = found.spread / math.sqrt(COUNTED * found.n_patches)
    of_level = within_a_fifth(error) if gain >= needed else 1.0
    words = (
        f"correlated noise explains a patch better than white noise by {gain:.2f} nats; "
        f"{needed:.2f} are needed"
    )
    if needed > _LEAST_GAIN:
        words += ", because it has a direction, as texture has"
    if seen <= 0.995:
        words += f"; {1 - seen:.0%} of the image is clipped"
    most = 0.5 if _LEAST_GAIN <= gain < needed else 1.0
    return Evidence(min(of_kind * of_level * (1 + seen) / 2, most), words)


def _directedness(
    number: int, samples: list[Sample], scales: list[float], noise: Spectrum
) -> float:
    """How much more direction a component of colour has than this noise, at least 1."""
    weights = colour_components(len(samples))[number] * scales
    slabs = []
    for slab in range(len(samples[0].slabs)):
        channels = [sample.slabs[slab] for sample in samples]
        slabs.append((np.tensordot(weights, channels, axes=1), is_clipped(samples, False, slab)))

    def spectrum(frequencies: Array) -> Array:
        curves = parabolas(np.clip(frequencies.ravel(), LEAST_FREQUENCY, LARGEST_FREQUENCY))
        variances: Array = np.exp(noise.log_variances @ curves) + ROUNDING
        return variances.reshape(frequencies.shape)

    return max(1.0, directedness(slabs, spectrum))


def _evened(
    coefs: Array, unclipped: Array | None = None
) -> tuple[Spectrum, Array, tuple[Array, Array] | None]:
    """Spectrum of brightness and squares without the level curve, and this curve."""
    # The first component is a sum over channels and pixels, divided by the root of their number.
    means, squares = coefs[0, :, 0] / math.sqrt(len(coefs) * SIDE**2), coefs[..., 1:] ** 2
    brightness = fit_spectrum(squares[0])
    assert brightness is not None  # `mixture_noise` has seen noise in these patches
    curve = _level_curve(squares[0], means, brightness)
    if curve is not None:
        squares = squares / np.interp(means, *curve)[:, np.newaxis] ** 2
        brightness = fit_spectrum(squares[0]) or brightness
    if unclipped is not None and brightness.spread > FIRST_SPREAD:  # more than noise is clipped
        return _evened(unclipped)
    return brightness, squares, curve


def _level_curve(squares: Array, means: Array, alike: Spectrum) -> tuple[Array, Array] | None:
    """Level of the noise over brightness, about 1; None if there is no evidence that it depends.

    A parabola through the log levels of groups, constant beyond them: no patch has shown what is
    there. By chance alone, twice the log-likelihood ratio to a common level (`alike`) would be the
    number of additional levels in the mean. This fraction of the variation is removed.
    """
    numbers = np.empty(len(means), int)
    for number, group in enumerate(np.array_split(np.argsort(means), _N_GROUPS)):
        numbers[group] = number
    found = fit_spectrum(squares, groups=numbers)
    if found is None:
        return None
    centres = np.array([means[numbers == number].mean() for number in range(_N_GROUPS)])
    ratio = COUNTED * found.n_patches * (found.log_likelihood - alike.log_likelihood)
    by_chance = (_N_GROUPS - 1) / 2
    if ratio <= by_chance or not (np.diff(centres) > 0).all():
        return None
    places = (centres - centres.mean()) / np.ptp(centres)
    curve = np.polyval(np.polyfit(places, found.log_levels, 2), places)
    return centres, np.exp((1 - by_chance / ratio) * curve)


def _cosine_coefs(
    samples: list[Sample], scales: list[float], most_clipped: float = 0.0
) -> Array | None:
    """Cosine coefficients (components, patches, n); None if there are too few patches.

    Samples are multiplied by their scales. At most this fraction of a patch is clipped.
    """
    rng = np.random.default_rng(0)
    basis, components = dct_basis((SIDE, SIDE)), colour_components(len(samples))
    n_values = sum(slab.size for slab in samples[0].slabs)
    found = []
    for number, slab in enumerate(samples[0].slabs):
        if min(slab.shape) < SIDE:
            continue
        grid = grid_of(slab.shape, (SIDE, SIDE))
        wanted = min(grid.n_patches, math.ceil(_N_PATCHES * slab.size / n_values))
        numbers = np.sort(rng.choice(grid.n_patches, wanted, replace=False))
        clipped = rows_at(is_clipped(samples, False, number), grid, numbers).mean(axis=1)
        numbers = numbers[clipped <= most_clipped]
        patches = [rows_at(sample.slabs[number], grid, numbers) for sample in samples]
        found.append(np.stack([(r * k) @ basis.T for r, k in zip(patches, scales, strict=True)]))
    coefs = np.concatenate(found, axis=1) if found else np.empty((0, 0, 0))
    if not found or coefs.shape[1] < LEAST_PATCHES:
        return None
    return np.asarray(np.tensordot(components, coefs, axes=1))
