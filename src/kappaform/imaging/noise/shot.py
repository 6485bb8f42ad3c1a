"""Shot noise: how the variance grows with brightness."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.imaging.noise.kinds import Shot
from kappaform.imaging.noise.wavelets import Details, Sample, deviation, quietest_fifth

# Chosen on pictures of scikit-image and 16 photographs with Poisson and with white noise, so that
# none with white noise was called shot (benchmarks/bench_noise.py).
_LEAST_GROWTH = 1.25  # of the deviation, from the darkest to the brightest quiet area


_LEAST_SLOPES = 6.0  # slope of the line over its own uncertainty


_LIKELY_SLOPES = 3.0  # the same, if values are as far apart as the slope says that photons are


_LARGEST_MISFIT = 0.6  # of the line, over that of a constant


_LARGEST_BUSY = 1.2  # texture, over that of white noise


_MOST_GROUPS = 16  # of brightness


_LEAST_QUIET = 50  # coefficients of a group whose deviation is measured: off by 17 %


_GROUP_QUIET = 250  # and how many are wanted: off by 7 %


_LEAST_CLEAR = 0.3  # share of details away from limits, below which zeros may be photon counts


_MOST_LEVELS = 128  # of values that may be photon counts: fewer than 8 bit have


_DARK = 10.0  # photons: where there are so few, some pixels of many see next to none


_N_VALUES = 2**16  # that are looked at for levels


_N_REWEIGHTINGS = 20


_WELL_WITHIN = 1.5  # deviations that a robust fit does not doubt


_NORMAL_MEAN = np.sqrt(2 / np.pi)  # magnitude of a standard normal variable


class _Curve(NamedTuple):
    """Deviation of the noise over brightness."""

    brightness: Array
    deviations: Array
    weights: Array  #: of the groups: their size, and how free of texture they are
    busy: float  #: texture of most groups, in units of that which white noise has


class _Line(NamedTuple):
    """Variance over brightness."""

    slope: float
    constant: float
    certain: bool  #: whether noise that grows is beyond doubt
    likely: bool  #: whether it is, if there is other evidence


def shot_of(sample: Sample, details: Details, *, doubted: bool = True) -> Shot | None:
    """The shot noise of an image; None if there is doubt that it is shot noise."""
    used = details.usable
    counted = used.mean() < _LEAST_CLEAR * details.clear.mean()
    if counted:
        # So many lowest values: clipped noise, or too few photons for some pixels to see one.
        used = details.clear & ~details.high
        used = used if used.mean() >= _LEAST_CLEAR else np.ones_like(used)
    curve = _curve(details, used)
    if curve is None:
        return None
    line = _line(curve)
    if line.slope <= 0:
        return None
    step = _step(sample)
    are_counts = 2 / 3 < step / line.slope < 3 / 2
    if doubted and not (line.certain or (are_counts and line.likely)):
        return None
    if are_counts:
        return Shot(step, 0.0, _zero(sample.lowest, step, line, curve))
    if counted and doubted:
        return None
    # Many offsets and read noises make the same line: the offset is 0, unless values are below it.
    no_noise = -line.constant / line.slope
    offset = max(min(sample.lowest, 0.0), no_noise)
    return Shot(line.slope, float(np.sqrt(line.slope * (offset - no_noise))), offset)


def _zero(lowest: float, step: float, line: _Line, curve: _Curve) -> float:
    """The value of no photon: the lowest of a dark image, or a whole number of steps below it."""
    if curve.brightness.min() - lowest < _DARK * step:
        return lowest
    return lowest - step * max(round((lowest + line.constant / line.slope) / step), 0)


def _step(sample: Sample) -> float:
    """Distance of the few values that an image of photon counts has; 0 if they are many."""
    values = np.concatenate([slab.ravel() for slab in sample.slabs])
    levels = np.unique(values[:: max(1, values.size // _N_VALUES)])
    if not 2 < levels.size <= _MOST_LEVELS:
        return 0.0
    common = levels[: 2 + 3 * levels.size // 4]  # of the highest some may be missing
    return float(common[-1] - common[0]) / (common.size - 1)


def _curve(details: Details, used: Array) -> _Curve | None:
    """Deviations of the quietest details of groups of about one brightness."""
    coefs, texture, brightness = (
        values[used] for values in (details.coefs, details.texture, details.brightness)
    )
    n_groups = min(_MOST_GROUPS, coefs.size // (5 * _GROUP_QUIET))
    if n_groups < 4:
        return None
    rows = []
    for group in np.array_split(np.argsort(brightness), n_groups):
        chosen = group[quietest_fifth(texture[group], _LEAST_QUIET)]
        size = deviation(coefs[chosen])
        if size > 0:
            busy = texture[chosen].mean() / (_NORMAL_MEAN * size)
            rows.append((brightness[chosen].mean(), size, chosen.size, busy))
    if len(rows) < 4:
        return None
    means, sizes, numbers, busy = np.array(rows).T
    # Groups with more texture than most weigh little, steeply so.
    calm = np.minimum(1, 1.2 * np.quantile(busy, 0.25) / busy) ** 4
    return _Curve(means, sizes, numbers * calm, float(np.median(busy)))


def _line(curve: _Curve) -> _Line:
    """The line through the variances of a curve, and whether it grows beyond doubt."""
    variances = curve.deviations**2
    columns = np.stack([curve.brightness, np.ones_like(variances)], axis=1)
    (slope, constant), fitted, inverse = _robust_fit(columns, variances, curve.weights)
    _, flat, _ = _robust_fit(columns[:, 1:], variances, curve.weights)
    misfit, misfit_of_constant = (_misfit(curve, values) for values in (fitted, flat))
    relative = (variances - fitted) / fitted
    noise = np.average(relative**2, weights=curve.weights) * curve.weights.mean()
    uncertainty = np.sqrt(inverse[0, 0] * noise)
    growth = np.sqrt(fitted[-1] / fitted[0])
    certain = (
        curve.busy <= _LARGEST_BUSY
        and growth >= _LEAST_GROWTH
        and slope >= _LEAST_SLOPES * uncertainty
        and misfit <= _LARGEST_MISFIT * misfit_of_constant
    )
    likely = slope >= _LIKELY_SLOPES * uncertainty
    return _Line(float(slope), float(constant), bool(certain), bool(likely))


def _robust_fit(columns: Array, values: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Coefficients, fitted values and inverse of the normal equations of relative errors."""
    fitted, trust = np.full_like(values, np.average(values, weights=weights)), np.ones_like(values)
    for _ in range(_N_REWEIGHTINGS):
        scale = weights * trust / fitted**2
        inverse = np.linalg.pinv((columns.T * scale) @ columns)
        coefs = inverse @ (columns.T @ (scale * values))
        fitted = np.maximum(columns @ coefs, 0.05 * values)
        errors = np.abs(values - fitted) / fitted
        usual = max(1.4826 * float(np.median(errors)), 0.05)
        trust = np.minimum(1, _WELL_WITHIN * usual / np.maximum(errors, 1e-12))
    return coefs, fitted, inverse


def _misfit(curve: _Curve, variances: Array) -> float:
    errors = np.log(curve.deviations / np.sqrt(variances))
    return float(np.sqrt(np.average(np.minimum(np.abs(errors), 0.5) ** 2, weights=curve.weights)))
