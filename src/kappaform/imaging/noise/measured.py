r"""A model of noise that is seen without an image: residuals of frames, and their brightness.

Its standard deviation s(x) at brightness x is measured first, in bins of brightness. In units of it
the noise u of channels a and b has the covariance

.. math:: c_{ab}(d) = \mathrm{mean}_p \; u_a(p) \, u_b(p + d)

at distance d. Rounding and few pixels make this function slightly indefinite: negative eigenvalues
of its spectrum, a Hermitian matrix of all channels for each frequency, are set to zero.

A simpler model replaces a more general one if its standard deviations are right within 5 %. Errors
are not symmetric: over four images of scikit-image (256 x 256 pixels, white noise of 10 and 25),
5 % too little cost 0.30 dB in the mean and 1.0 at most, 20 % too little 4.1; 5 % too much gained
0.07, 20 % too much cost 0.15. A fitted model is too low at one brightness and too high at another.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.imaging.noise.correlated import MOST_TOGETHER, Correlated
from kappaform.imaging.noise.kinds import Noise, Shot, Varying, White, per_channel, within_a_fifth

_SIMILAR = 0.05  # relative error of a standard deviation that does not matter
_N_FINE, _N_BINS = 1024, 24  # bins of brightness: as they are filled, and as they are used
_LEAST_IN_BIN = 1000  # pixels: their standard deviation is known to 2 %
_MOST_CLIPPED = 0.01  # of the pixels in a bin: more would lower its variance
_N_POINTS = 16  # of the curve of a channel
_N_ROUNDS = 5  # of reweighting
_MOST_DISTANCE = 15  # pixels: patches of up to 16 x 16 are described completely
#: Pixels, or channels, are independent if their correlation is below, beyond what chance explains.
#: On the images above, noise whose neighbours have a correlation of 0.05 was removed better as
#: white than with its covariance (by 0.11 dB in the mean), with 0.1 worse (by 0.19 dB).
_LEAST_CORRELATION = 0.05


class Field(NamedTuple):
    """Noise in a tile of a frame, and the brightness below it; channels last."""

    residual: Array
    brightness: Array
    clipped: Array  #: bool: values at the end of their range


class Curve(NamedTuple):
    """Variance over brightness, of one channel."""

    brightness: Array
    variances: Array
    counts: Array  #: of the pixels

    def is_similar(self, variances: Array) -> bool:
        """Whether standard deviations of these variances are right, or wrong by chance."""
        if np.any(variances < 0):
            return False
        allowed = _SIMILAR + 3 / np.sqrt(2 * self.counts)
        sigmas = np.sqrt(self.variances)
        return bool(np.all(np.abs(np.sqrt(variances) - sigmas) <= allowed * sigmas))


def model_of(fields: list[Field], offset: Array | None, evidence: str) -> Noise:
    """The simplest noise with the variances and correlations of these fields.

    `offset` is the brightness of each channel without light, if it is known.
    """
    n_channels = fields[0].residual.shape[-1]
    curves = [
        _curve([[each[..., c] for each in field] for field in fields]) for c in range(n_channels)
    ]
    n_pixels = sum(field.residual[..., 0].size for field in fields)
    error = 1 / math.sqrt(2 * min(float(curve.counts.sum()) for curve in curves))
    about: dict[str, Any] = {"confidence": within_a_fifth(error)}
    about["evidence"] = f"{evidence}, {n_pixels} pixels"
    if min(float(curve.variances.max()) for curve in curves) == 0:
        sigmas = [math.sqrt(np.average(each.variances, weights=each.counts)) for each in curves]
        return White(per_channel(sigmas), **about)
    levels = _levels(curves, offset)
    return _with_correlation(replace(levels, **about), _autocovariance(fields, levels), n_pixels)


# --- Over brightness


def _curve(fields: list[list[Array]]) -> Curve:
    """Variances of one channel in bins of brightness that are hardly clipped, if there are any."""
    low = min(float(brightness.min()) for _, brightness, _ in fields)
    high = max(float(brightness.max()) for _, brightness, _ in fields)
    step = (high - low) / _N_FINE or 1.0
    sums = np.zeros((4, _N_FINE))  # pixels, clipped ones, brightness, squares
    for residual, brightness, clipped in fields:
        bins = np.minimum(((brightness - low) / step).astype(int), _N_FINE - 1).ravel()
        for row, weights in zip(sums, (None, clipped, brightness - low, residual**2), strict=True):
            row += np.bincount(bins, None if weights is None else weights.ravel(), _N_FINE)
    usable = sums[1] <= _MOST_CLIPPED * sums[0]
    if sums[0, usable].sum() >= _LEAST_IN_BIN:
        sums = sums * usable
    edges, count = [0], 0.0
    least = max(_LEAST_IN_BIN, sums[0].sum() / 200)
    for number in range(1, _N_FINE + 1):
        count += sums[0, number - 1]
        if count >= least and number - edges[-1] >= _N_FINE / _N_BINS:
            edges.append(number)
            count = 0.0
    if len(edges) == 1:
        edges.append(_N_FINE)
    edges[-1] = _N_FINE  # the rest, too few for a bin, belongs to the last one
    binned = np.add.reduceat(sums, edges[:-1], axis=1)
    binned = binned[:, binned[0] > 0]
    return Curve(low + binned[2] / binned[0], binned[3] / binned[0], binned[0])


def _levels(curves: list[Curve], offset: Array | None) -> Noise:
    """White noise, shot noise, or any function of brightness, independent between pixels."""
    constants = [float(np.average(each.variances, weights=each.counts)) for each in curves]
    pairs = list(zip(curves, constants, strict=True))
    if all(curve.is_similar(np.full(len(curve.counts), value)) for curve, value in pairs):
        return White(per_channel([math.sqrt(value) for value in constants]))
    lines = [_line(curve) for curve in curves]
    fits = (
        curve.is_similar(a + b * curve.brightness)
        for curve, (a, b) in zip(curves, lines, strict=True)
    )
    if all(fits) and min(b for _, b in lines) > 0:
        zeros = [0.0] * len(curves) if offset is None else list(offset)
        shots = [_shot(*line, zero) for line, zero in zip(lines, zeros, strict=True)]
        return Shot(*(per_channel([each[n] for each in shots]) for n in range(3)))
    points = np.stack([_spaced(curve.brightness) for curve in curves])
    least = 1e-3 * max(curve.variances.max() for curve in curves)
    sigmas = [
        np.sqrt(np.maximum(np.interp(x, curve.brightness, curve.variances), least))
        for x, curve in zip(points, curves, strict=True)
    ]
    single = len(curves) == 1
    return Varying(points[0], sigmas[0]) if single else Varying(points, np.stack(sigmas))


def _spaced(brightness: Array) -> Array:
    low, high = brightness[0], brightness[-1]
    return np.linspace(low, high if high > low else low + 1, _N_POINTS)


def _line(curve: Curve) -> tuple[float, float]:
    """Variance without light and its slope: least squares of relative errors."""
    fit = np.maximum(curve.variances, 1e-3 * curve.variances.max())
    a, b = 0.0, 0.0
    if len(fit) < 2:
        return float(fit[0]), 0.0
    for _ in range(_N_ROUNDS):
        roots = np.sqrt(curve.counts) / fit
        terms = np.stack([roots, roots * curve.brightness], axis=-1)
        a, b = np.linalg.lstsq(terms, roots * curve.variances, rcond=None)[0].tolist()
        fit = np.maximum(a + b * curve.brightness, 1e-3 * curve.variances.max())
    return a, b


def _shot(a: float, gain: float, offset: float) -> tuple[float, float, float]:
    """Gain, read noise and offset of the variance a + gain * x."""
    square = a + gain * offset
    if square < 0:  # no light is where the line ends
        return gain, 0.0, -a / gain
    return gain, math.sqrt(square), offset


# --- Over distances


def _autocovariance(fields: list[Field], levels: Noise) -> Array:
    """Covariance (channels, channels, rows, columns) over distances, in units of the levels.

    More channels than those of colours are independent: each has its own, in (channels, ...).
    """
    n_channels = fields[0].residual.shape[-1]
    together = n_channels <= MOST_TOGETHER
    sides = np.min([field.residual.shape[:2] for field in fields], axis=0)
    reach = np.minimum(_MOST_DISTANCE, sides - 1).tolist()
    products = np.zeros((n_channels,) * (1 + together) + tuple(2 * r + 1 for r in reach))
    pairs = np.zeros(products.shape)
    for field in fields:
        sizes = _pixel_levels(levels, field.brightness)
        units = field.residual / np.maximum(sizes, 1e-3 * sizes.max() or 1.0)  # 0: all is clipped
        units[field.clipped] = 0
        size = [n + r for n, r in zip(units.shape[:2], reach, strict=True)]
        for values, total in ((units, products), (~field.clipped, pairs)):
            spectra = np.fft.rfft2(np.moveaxis(values, -1, 0).astype(np.float64), size)
            first = spectra[:, np.newaxis] if together else spectra
            lags = np.fft.irfft2(first.conj() * spectra, size)
            for axis, r in zip((-2, -1), reach, strict=True):
                lags = np.roll(lags, r, axis).take(range(2 * r + 1), axis)
            total += lags
    return _positive(products / np.maximum(pairs, 1.0), together)


def _pixel_levels(levels: Noise, brightness: Array) -> Array:
    if not isinstance(levels, Varying):
        return levels.level(brightness)
    n_channels = brightness.shape[-1]
    points, sigmas = (
        np.broadcast_to(each, (n_channels, np.shape(each)[-1]))
        for each in (levels.brightness, levels.sigma)
    )
    channels = [np.interp(brightness[..., c], points[c], sigmas[c]) for c in range(n_channels)]
    return np.stack(channels, axis=-1)


def _positive(array: Array, together: bool) -> Array:
    """The covariance without negative eigenvalues of its spectrum."""
    axes = (-2, -1)
    spectrum = np.fft.fft2(np.fft.ifftshift(array, axes))
    if together:
        matrices = np.moveaxis(spectrum, (0, 1), (-2, -1))
        matrices = (matrices + matrices.conj().swapaxes(-1, -2)) / 2
        values, vectors = np.linalg.eigh(matrices)
        lifted = vectors * np.maximum(values, 0)[..., np.newaxis, :]
        matrices = lifted @ vectors.conj().swapaxes(-1, -2)
        spectrum = np.moveaxis(matrices, (-2, -1), (0, 1))
    else:
        spectrum = np.maximum(spectrum.real, 0)
    found = np.fft.fftshift(np.fft.ifft2(spectrum).real, axes)
    mirrored = np.flip(found.swapaxes(0, 1) if together else found, axes)
    return (found + mirrored) / 2


def _with_correlation(levels: Noise, autocovariance: Array, n_pixels: int) -> Noise:
    """Noise of these levels, correlated if neighbours or channels are."""
    together = autocovariance.ndim == 4
    rows, columns = (n // 2 for n in autocovariance.shape[-2:])
    least = _LEAST_CORRELATION + 5 / math.sqrt(n_pixels)
    others = np.abs(autocovariance)
    others[..., rows, columns] = 0
    centre = autocovariance[..., rows, columns]
    if others.max() < least:
        if not together or np.abs(centre - np.diag(np.diag(centre))).max() < least:
            return levels
        if isinstance(levels, White):
            sizes = np.sqrt(np.diag(centre))
            return replace(levels, correlation=centre / np.outer(sizes, sizes))
        autocovariance = centre[..., np.newaxis, np.newaxis]
    about: dict[str, Any] = {"confidence": levels.confidence, "evidence": levels.evidence}
    if not together:  # the same for all channels, in units of their levels
        autocovariance = autocovariance.mean(axis=0)
        if isinstance(levels, White):
            sigmas = np.broadcast_to(levels.sigma, len(centre))[:, np.newaxis]
            levels = Varying(np.tile([0.0, 1.0], (len(centre), 1)), np.repeat(sigmas, 2, axis=1))
    elif len(centre) == 1:
        autocovariance = autocovariance[0, 0]
    if isinstance(levels, White):
        sigmas = np.broadcast_to(levels.sigma, len(centre))
        scale = np.outer(sigmas, sigmas)
        scale = scale[..., np.newaxis, np.newaxis] if len(centre) > 1 else scale[0, 0]
        return Correlated(autocovariance=scale * autocovariance, **about)
    stabiliser: Any = type(levels)(**levels.parameters)
    return Correlated(autocovariance=autocovariance, stabiliser=stabiliser, **about)
