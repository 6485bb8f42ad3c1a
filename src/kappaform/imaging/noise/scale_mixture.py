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
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kappaform.checks import Array

SIDE = 8  # of the patches
LEAST_PATCHES = 100
ROUNDING = 1 / 12  # in units of the distance of two levels
_N_STEPS = 20

#: Radial frequencies (1: one half of the sampling rate along an axis) where \log N is a parameter.
_KNOTS = np.array([0.15, 0.45, 0.9])
LEAST_FREQUENCY = 0.08  # below, the spectrum is constant
LARGEST_FREQUENCY = 1.24  # that of the finest cosine; above, it is constant, too
#: Exponents of the power laws of the signal, and how fast high frequencies are lost.
_SIGNALS = ((1.2, 0.0), (1.2, 3.0), (2.4, 0.0), (2.4, 3.0))
_N_ENERGIES = 8  # of the signal, besides none
_SMOOTHING = np.exp(-0.5 * np.arange(-2, 3) ** 2)  # of the weights of neighbouring energies
_LEAST_WEIGHT = 0.01  # of the signal, spread over all its kinds
_LEVELS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])  # log t in units of tau
_LEVEL_WEIGHTS = np.exp(-0.5 * _LEVELS**2) / np.exp(-0.5 * _LEVELS**2).sum()
FIRST_SPREAD, _LEAST_SPREAD, _LARGEST_SPREAD = 0.3, 0.05, 0.5

# Patches overlap and are not normal: each counts as a fraction of one against the prior, which says
# that noise falls with frequency, by factors of 2 and 3 from knot to knot, give or take as much.
COUNTED = 0.02
_DIFFERENCES = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
_FREE = np.array([1.4, 2.0]), np.array([1.4, 1.2])  # mean and deviation of differences of log N
WHITE = np.zeros(2), np.full(2, 0.03)


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
        return math.sqrt(
            float(np.mean(np.exp(self.log_variances @ parabolas(radial_frequencies()))))
        )

    @property
    def is_magnified(self) -> bool:
        """Whether high frequencies are missing, more than two deviations beyond the prior.

        No camera removes so much. Magnification does, and what it leaves may be texture.
        """
        drops, (means, deviations) = _DIFFERENCES @ self.log_variances, _FREE
        return bool(drops[-1] > means[-1] + 2 * deviations[-1])


def fit_spectrum(
    squares: Array, prior: tuple[Array, Array] = _FREE, groups: Array | None = None
) -> Spectrum | None:
    """Spectrum of the noise in squares (patches, coefficients) of one component of colour.

    Patches may belong to groups, numbers from 0 on, each of which has its own median level. None if
    next to all patches show nothing but rounding.
    """
    usable = squares.mean(axis=1) > ROUNDING / 2
    squares = squares[usable]
    groups = np.zeros(len(squares), int) if groups is None else groups[usable]
    members = np.bincount(groups)
    if len(squares) < LEAST_PATCHES:
        return None
    curves = parabolas(radial_frequencies())
    signal = _signal_spectra(squares)
    n_weights = math.prod(signal.shape[:2])
    signal, weights = signal.reshape(n_weights, -1), np.full(n_weights, 1 / n_weights)
    # 0.45 is the median of a squared normal number: some signal is expected in most patches.
    start = np.log(np.quantile(squares, 0.2, axis=0) / 0.45 + ROUNDING)
    log_variances = np.linalg.lstsq(curves.T, start, rcond=None)[0]
    spread, log_levels = FIRST_SPREAD, np.zeros(len(members))
    for _ in range(_N_STEPS):
        levels, noise = np.exp(2 * spread * _LEVELS)[:, None, None], np.exp(log_variances @ curves)
        variances = levels * (noise + ROUNDING) + signal
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
    frequencies = radial_frequencies()
    powers = [frequencies ** (-2 * a) * np.exp(-b * frequencies**2) for a, b in _SIGNALS]
    energies = squares.mean(axis=1)
    ends = max(0.1 * np.quantile(energies, 0.1), ROUNDING), 2 * np.quantile(energies, 0.999)
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
    gradient = COUNTED * (curves @ slopes)
    gradient -= precision @ (_DIFFERENCES @ log_variances - means)
    hessian = COUNTED * (curves * information) @ curves.T + precision @ _DIFFERENCES
    hessian += 1e-6 * np.eye(len(hessian))
    return np.asarray(np.clip(np.linalg.solve(hessian, gradient), -1.0, 1.0))


def radial_frequencies(patch_shape: tuple[int, ...] | None = None) -> Array:
    """Radial frequency of each cosine of a patch; by default, of all but the constant."""
    shape = patch_shape or (SIDE, SIDE)
    places = np.indices(shape).reshape(len(shape), -1) / np.array(shape)[:, np.newaxis]
    radial = np.sqrt(np.sum(places**2, axis=0))
    return np.maximum(radial, LEAST_FREQUENCY)[0 if patch_shape else 1 :]


def parabolas(frequencies: Array) -> Array:
    """The parabolas that are 1 at one knot and 0 at the others, at these frequencies."""
    powers = np.vander(_KNOTS, increasing=True)
    return np.asarray(np.linalg.solve(powers.T, np.vander(frequencies, 3, increasing=True).T))
