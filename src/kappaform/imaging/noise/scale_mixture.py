r"""Noise of processed photographs, by maximum likelihood in a Gaussian scale mixture.

Demosaicing and JPEG leave next to nothing of the noise in the finest frequencies, and they leave
less of it in flat places than in textured ones. So neither the finest details nor the quietest
patches tell how strong it is. Here all patches are used. The cosine coefficients of patch i, of one
colour component, are taken for independent normal numbers with variances

.. math:: v_{ik} = t_i^2 N_k + s_i^2 S_{m_i k}

The signal has one of a few spectra S (power laws, with and without a loss of high frequencies) and
any energy s. The noise has a smooth spectrum, \log N a parabola of the radial frequency, and a
level whose logarithm \log t is normal with standard deviation \tau: its strength depends on
brightness and on what the camera does, but not on the energy of the signal. Expectation
maximisation finds N, \tau and the distribution of the signal; each maximisation is one step of
Fisher scoring. Compare Portilla, Full blind denoising through noise covariance estimation using
Gaussian scale mixtures in the wavelet domain, 2004.

Whether noise is correlated is decided by the likelihood of a free spectrum over that of a constant
one, in nats per patch: the model, not the number of patches, limits what it can tell. The more
direction there is where the noise should be alone (`direction`), the more is needed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.imaging.noise.correlated import Correlated
from kappaform.imaging.noise.direction import directedness
from kappaform.imaging.noise.kinds import NO_EVIDENCE, Evidence, Varying, within_a_fifth
from kappaform.imaging.noise.wavelets import Sample, is_clipped
from kappaform.imaging.patches import grid_of, rows_at
from kappaform.linalg import dct_basis

_SIDE = 8  # of the patches
_N_PATCHES = 3000
_LEAST_PATCHES = 100
_MOST_CLIPPED = 0.5  # of the pixels of a patch, where its level is measured
_N_LEVELS = 255  # of 8 bits: rounding to them is a variance that is always there
_ROUNDING = 1 / 12  # in units of the distance of two levels
_N_STEPS = 20
_N_GROUPS = 8  # of brightness, whose levels are compared

#: Radial frequencies (1: one half of the sampling rate along an axis) where \log N is a parameter.
_KNOTS = np.array([0.15, 0.45, 0.9])
_LEAST_FREQUENCY = 0.08  # below, the spectrum is constant
_LARGEST_FREQUENCY = 1.24  # that of the finest cosine; above, it is constant, too
#: Exponents of the power laws of the signal, and how fast high frequencies are lost.
_SIGNALS = ((1.2, 0.0), (1.2, 3.0), (2.4, 0.0), (2.4, 3.0))
_N_ENERGIES = 8  # of the signal, besides none
_SMOOTHING = np.exp(-0.5 * np.arange(-2, 3) ** 2)  # of the weights of neighbouring energies
_LEAST_WEIGHT = 0.01  # of the signal, spread over all its kinds
_LEVELS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])  # log t in units of tau
_LEVEL_WEIGHTS = np.exp(-0.5 * _LEVELS**2) / np.exp(-0.5 * _LEVELS**2).sum()
_FIRST_SPREAD, _LEAST_SPREAD, _LARGEST_SPREAD = 0.3, 0.05, 0.5

# Patches overlap and are not normal: each counts as a fraction of one against the prior, which says
# that noise falls with frequency, by factors of 2 and 3 from knot to knot, give or take as much.
_COUNTED = 0.02
_DIFFERENCES = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
_FREE = np.array([1.4, 2.0]), np.array([1.4, 1.2])  # mean and deviation of differences of log N
_WHITE = np.zeros(2), np.full(2, 0.03)

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


class Spectrum(NamedTuple):
    """The noise of one component of colour."""

    log_variances: Array  #: at the knots, at the median level
    spread: float  #: deviation of the logarithm of its level from place to place
    log_likelihood: float  #: mean of the patches
    n_patches: int  #: that show more than rounding
    log_levels: Array  #: of groups of patches, relative to the median level

    @property
    def level(self) -> float:
        """Standard deviation of a pixel."""
        return math.sqrt(float(np.mean(np.exp(self.log_variances @ _parabolas(_frequencies())))))

    @property
    def is_magnified(self) -> bool:
        """Whether high frequencies are missing, more than two deviations beyond the prior.

        No camera removes so much. Magnification does, and what it leaves may be texture.
        """
        drops, (means, deviations) = _DIFFERENCES @ self.log_variances, _FREE
        return bool(drops[-1] > means[-1] + 2 * deviations[-1])


_MAGNIFIED = Evidence(0.5, "high frequencies are missing, as in a magnified image")


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
        basis, curves = dct_basis(patch_shape), _parabolas(_frequencies(patch_shape))
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
    squares = coefs[..., 1:] ** 2
    brightness, white = fit_spectrum(squares[0]), fit_spectrum(squares[0], _WHITE)
    if brightness is None or white is None:
        return nothing
    if brightness.level < _LEAST_LEVEL * _N_LEVELS:
        return nothing
    if brightness.is_magnified:
        return None, _MAGNIFIED
    gain = brightness.log_likelihood - white.log_likelihood
    needed = _LEAST_GAIN
    if gain >= needed:
        direction = _directedness(samples, scales, brightness)
        needed *= direction**_POWER
    evidence = _evidence(gain, needed, brightness)
    if gain < needed:
        return None, evidence
    more = _cosine_coefs(samples, scales, _MOST_CLIPPED)
    assert more is not None  # all of them, and others
    brightness, squares, curve = _evened(more, coefs)
    spectra = [brightness.log_variances + 2 * _ABOVE_MEDIAN * brightness.spread]
    for component in squares[1:]:
        found = fit_spectrum(component)
        least = spectra[0] + _LEAST_COLOUR
        spectra.append(least if found is None else np.maximum(found.log_variances, least))
    scale = math.ldexp(unit, exponent)
    stabiliser = None if curve is None else Varying(curve[0] * scale, curve[1])
    return MixtureNoise([each + 2 * math.log(scale) for each in spectra], stabiliser), evidence


def _evidence(gain: float, needed: float, found: Spectrum) -> Evidence:
    """Probability that the kind of noise is right, and the level of correlated noise.

    The errors of the model do not average out: what is needed counts as two of their deviations.
    With less, texture may hide correlated noise.
    """
    of_kind = 0.5 + 0.5 * math.erf(abs(gain - needed) / (needed / 2) / math.sqrt(2))
    error = found.spread / math.sqrt(_COUNTED * found.n_patches)
    of_level = within_a_fifth(error) if gain >= needed else 1.0
    words = (
        f"correlated noise explains a patch better than white noise by {gain:.2f} nats; "
        f"{needed:.2f} are needed"
    )
    if needed > _LEAST_GAIN:
        words += ", because it has a direction, as texture has"
    most = 0.5 if _LEAST_GAIN <= gain < needed else 1.0
    return Evidence(min(of_kind * of_level, most), words)


def _directedness(samples: list[Sample], scales: list[float], noise: Spectrum) -> float:
    """How much more direction brightness has than this noise, at least 1."""
    weights = colour_components(len(samples))[0] * scales
    slabs = []
    for number in range(len(samples[0].slabs)):
        channels = [sample.slabs[number] for sample in samples]
        slabs.append((np.tensordot(weights, channels, axes=1), is_clipped(samples, False, number)))

    def spectrum(frequencies: Array) -> Array:
        curves = _parabolas(np.clip(frequencies.ravel(), _LEAST_FREQUENCY, _LARGEST_FREQUENCY))
        variances: Array = np.exp(noise.log_variances @ curves) + _ROUNDING
        return variances.reshape(frequencies.shape)

    return max(1.0, directedness(slabs, spectrum))


def _evened(
    coefs: Array, unclipped: Array | None = None
) -> tuple[Spectrum, Array, tuple[Array, Array] | None]:
    """Spectrum of brightness and squares without the level curve, and this curve."""
    # The first component is a sum over channels and pixels, divided by the root of their number.
    means, squares = coefs[0, :, 0] / math.sqrt(len(coefs) * _SIDE**2), coefs[..., 1:] ** 2
    brightness = fit_spectrum(squares[0])
    assert brightness is not None  # `mixture_noise` has seen noise in these patches
    curve = _level_curve(squares[0], means, brightness)
    if curve is not None:
        squares = squares / np.interp(means, *curve)[:, np.newaxis] ** 2
        brightness = fit_spectrum(squares[0]) or brightness
    if unclipped is not None and brightness.spread > _FIRST_SPREAD:  # more than noise is clipped
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
    ratio = _COUNTED * found.n_patches * (found.log_likelihood - alike.log_likelihood)
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
    basis, components = dct_basis((_SIDE, _SIDE)), colour_components(len(samples))
    n_values = sum(slab.size for slab in samples[0].slabs)
    found = []
    for number, slab in enumerate(samples[0].slabs):
        if min(slab.shape) < _SIDE:
            continue
        grid = grid_of(slab.shape, (_SIDE, _SIDE))
        wanted = min(grid.n_patches, math.ceil(_N_PATCHES * slab.size / n_values))
        numbers = np.sort(rng.choice(grid.n_patches, wanted, replace=False))
        clipped = rows_at(is_clipped(samples, False, number), grid, numbers).mean(axis=1)
        numbers = numbers[clipped <= most_clipped]
        patches = [rows_at(sample.slabs[number], grid, numbers) for sample in samples]
        found.append(np.stack([(r * k) @ basis.T for r, k in zip(patches, scales, strict=True)]))
    coefs = np.concatenate(found, axis=1) if found else np.empty((0, 0, 0))
    if not found or coefs.shape[1] < _LEAST_PATCHES:
        return None
    return np.asarray(np.tensordot(components, coefs, axes=1))


def fit_spectrum(
    squares: Array, prior: tuple[Array, Array] = _FREE, groups: Array | None = None
) -> Spectrum | None:
    """Spectrum of the noise in squares (patches, coefficients) of one component of colour.

    Patches may belong to groups, numbers from 0 on, each of which has its own median level. None if
    next to all patches show nothing but rounding.
    """
    usable = squares.mean(axis=1) > _ROUNDING / 2
    squares = squares[usable]
    groups = np.zeros(len(squares), int) if groups is None else groups[usable]
    members = np.bincount(groups)
    if len(squares) < _LEAST_PATCHES:
        return None
    curves = _parabolas(_frequencies())
    signal = _signal_spectra(squares)
    n_weights = math.prod(signal.shape[:2])
    signal, weights = signal.reshape(n_weights, -1), np.full(n_weights, 1 / n_weights)
    # 0.45 is the median of a squared normal number: some signal is expected in most patches.
    start = np.log(np.quantile(squares, 0.2, axis=0) / 0.45 + _ROUNDING)
    log_variances = np.linalg.lstsq(curves.T, start, rcond=None)[0]
    spread, log_levels = _FIRST_SPREAD, np.zeros(len(members))
    for _ in range(_N_STEPS):
        levels, noise = np.exp(2 * spread * _LEVELS)[:, None, None], np.exp(log_variances @ curves)
        variances = levels * (noise + _ROUNDING) + signal
        single = (squares / np.exp(2 * log_levels[groups])[:, np.newaxis]).astype(np.float32)
        shares, log_likelihood = _responsibilities(single, variances, weights)
        counts = shares.sum(axis=0, dtype=np.float64).reshape(variances.shape[:2])
        energies = (shares.T @ single).astype(np.float64).reshape(variances.shape)
        weights = _smooth_weights(counts.sum(axis=0) / len(squares))
        log_variances = log_variances + _scoring_step(
            counts, energies, variances, levels * noise, curves, prior, log_variances
        )
        # The median level and its spread, of all patches and of groups.
        of_levels = shares.reshape(len(squares), len(_LEVELS), -1).sum(axis=2)
        means = np.bincount(groups, of_levels @ _LEVELS) / np.maximum(members, 1)
        middle = float(means @ members) / len(squares)
        log_variances = log_variances + 2 * spread * middle
        log_levels = log_levels + spread * (means - middle)
        deviations = (_LEVELS - means[groups][:, np.newaxis]) ** 2
        spread *= math.sqrt(float(np.mean(np.sum(of_levels * deviations, axis=1))))
        spread = min(max(spread, _LEAST_SPREAD), _LARGEST_SPREAD)
    return Spectrum(log_variances, spread, log_likelihood, len(squares), log_levels)


def _signal_spectra(squares: Array) -> Array:
    """Variances (kinds of signal, energies, coefficients); the first energy is none."""
    frequencies = _frequencies()
    powers = [frequencies ** (-2 * a) * np.exp(-b * frequencies**2) for a, b in _SIGNALS]
    energies = squares.mean(axis=1)
    ends = max(0.1 * np.quantile(energies, 0.1), _ROUNDING), 2 * np.quantile(energies, 0.999)
    grid = np.concatenate([[0.0], np.geomspace(*ends, _N_ENERGIES)])
    return np.stack([grid[:, np.newaxis] * power / power.mean() for power in powers])


def _responsibilities(squares: Array, variances: Array, weights: Array) -> tuple[Array, float]:
    """Posterior weights (patches, levels x signals), and the mean log-likelihood of the patches."""
    flat = variances.reshape(-1, variances.shape[-1])
    prior = np.log(np.multiply.outer(_LEVEL_WEIGHTS, weights)).ravel()
    logs = squares @ (-0.5 / flat.T).astype(np.float32)
    logs += (prior - 0.5 * np.log(flat).sum(axis=1)).astype(np.float32)
    largest = logs.max(axis=1, keepdims=True)
    shares = np.exp(logs - largest)
    totals = shares.sum(axis=1, keepdims=True)
    shares /= totals
    return shares, float(np.mean(largest + np.log(totals), dtype=np.float64))


def _smooth_weights(weights: Array) -> Array:
    """Weights of the signals: smooth over energies, so that they do not imitate a noise level."""
    kinds = weights.reshape(len(_SIGNALS), -1).copy()
    for row in kinds:
        padded = np.pad(row[1:], len(_SMOOTHING) // 2, mode="edge")
        smooth = np.convolve(padded, _SMOOTHING, mode="valid")
        row[1:] = smooth * row[1:].sum() / max(smooth.sum(), 1e-300)
    kinds /= kinds.sum()
    return ((1 - _LEAST_WEIGHT) * kinds + _LEAST_WEIGHT / kinds.size).ravel()


def _scoring_step(
    counts: Array,
    energies: Array,
    variances: Array,
    noise: Array,
    curves: Array,
    prior: tuple[Array, Array],
    log_variances: Array,
) -> Array:
    """A step of Fisher scoring on the expected log-likelihood and the prior."""
    numbers = counts[..., np.newaxis]
    parts = noise / variances  # derivative of the log variance by that of the noise
    slopes = np.sum(0.5 * parts * (energies / variances - numbers), axis=(0, 1))
    information = np.sum(0.5 * numbers * parts**2, axis=(0, 1))
    means, deviations = prior
    precision = _DIFFERENCES.T / deviations**2
    gradient = _COUNTED * (curves @ slopes)
    gradient -= precision @ (_DIFFERENCES @ log_variances - means)
    hessian = _COUNTED * (curves * information) @ curves.T + precision @ _DIFFERENCES
    hessian += 1e-6 * np.eye(len(hessian))
    return np.asarray(np.clip(np.linalg.solve(hessian, gradient), -1.0, 1.0))


def _frequencies(patch_shape: tuple[int, ...] | None = None) -> Array:
    """Radial frequency of each cosine of a patch; by default, of all but the constant."""
    shape = patch_shape or (_SIDE, _SIDE)
    places = np.indices(shape).reshape(len(shape), -1) / np.array(shape)[:, np.newaxis]
    radial = np.sqrt(np.sum(places**2, axis=0))
    return np.maximum(radial, _LEAST_FREQUENCY)[0 if patch_shape else 1 :]


def _parabolas(frequencies: Array) -> Array:
    """The parabolas that are 1 at one knot and 0 at the others, at these frequencies."""
    powers = np.vander(_KNOTS, increasing=True)
    return np.asarray(np.linalg.solve(powers.T, np.vander(frequencies, 3, increasing=True).T))
