"""First guess of missing pixels: averages of known ones nearby, or farther away if needed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, uniform_filter

_TRUST_IN_COARSER = 1e-2  # weight of the average at half the size


def first_guess(image: NDArray, known: NDArray) -> tuple[NDArray, float]:
    """Local averages of what is known, and their error at known pixels, each left out in turn."""
    values, weights = np.where(known, image, 0.0), known.astype(np.float64)
    centre = values.sum() / weights.sum()
    values = np.where(known, values - centre, 0.0)
    guess, sums, totals = _averages(values, weights)
    own = _weight_of_itself(image.ndim)
    others = totals - own
    counted = known & (others > own / 2)
    if not counted.any():
        return guess + centre, _root_mean_square(values[known])
    errors = values[counted] - (sums[counted] - own * values[counted]) / others[counted]
    return guess + centre, _root_mean_square(errors)


def _root_mean_square(values: NDArray) -> float:
    """Of values whose squares may be beyond float64: a power of two changes no digit."""
    exponent = int(np.frexp(np.abs(values).max())[1])
    return math.ldexp(math.sqrt(float(np.mean(np.ldexp(values, -exponent) ** 2))), exponent)


def start_without(
    given: NDArray, known: NDArray, held: NDArray, sizes: Sequence[int], joint: bool
) -> NDArray:
    """A first guess that uses nothing of the held-out pixels: else their first error is too small.

    Far from all known pixels the guess is kept: it comes from half the size, or hardly matters.
    So is that of a channel of which nothing else is known.
    """
    if joint:
        each = zip(given, known, held, strict=True)
        return np.stack([start_without(*some, sizes, False) for some in each])
    used = known & ~held
    if not used.any():
        return given
    guess = first_guess(given, used)[0].astype(given.dtype)
    return np.where(used | far_from_known(known, sizes), given, guess)


def far_from_known(known: NDArray, sizes: Sequence[int]) -> NDArray:
    """Pixels without a known one within half a patch, whose last sides these are."""
    sizes = sizes[len(sizes) - known.ndim :]
    return np.asarray(uniform_filter(known.astype(np.float64), sizes, mode="nearest") < 1e-9)


def guess_of(image: NDArray, known: NDArray, joint: bool) -> tuple[NDArray, float]:
    """A first guess and its error; with `joint`, of each part along the first axis alone."""
    if not joint:
        return first_guess(image, known)
    guesses, errors = zip(*map(first_guess, image, known), strict=True)
    return np.stack(guesses), _root_mean_square(np.array(errors))


def _averages(values: NDArray, weights: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Weighted averages, and the sums of values and of weights that they are the ratio of.

    Where next to nothing is known around a pixel, the average at half the size takes over.
    """
    sums, totals = (gaussian_filter(each, 1.0, mode="constant") for each in (values, weights))
    if totals.min() > _TRUST_IN_COARSER or max(values.shape) == 1:
        return sums / np.maximum(totals, np.finfo(float).tiny), sums, totals
    axes = range(values.ndim)
    half_values, half_weights = _halved(values, axes), _halved(weights, axes)
    most = np.maximum(half_weights, 1.0)
    coarse, *_ = _averages(half_values / most, half_weights / most)
    coarse = doubled(coarse, values.shape, axes)
    guess = (sums + _TRUST_IN_COARSER * coarse) / (totals + _TRUST_IN_COARSER)
    return guess, sums, totals


def from_other_frames(image: NDArray, known: NDArray, reach: int) -> tuple[NDArray, NDArray]:
    """The same pixels of the nearest frame that knows them, the previous one first, and which have.

    One frame, not a mean of two: where something moves, similar patches are found by a sharp guess.
    """
    values, found = np.zeros_like(image), np.zeros_like(known)
    for step in [sign * distance for distance in range(1, reach + 1) for sign in (-1, 1)]:
        here, there = _overlap(step, len(image)), _overlap(-step, len(image))
        new = known[there] & ~found[here]
        values[here] = np.where(new, image[there], values[here])
        found[here] |= new
    return values, found


def _overlap(step: int, n_frames: int) -> slice:
    """Frames that have another one a step away."""
    return slice(max(0, -step), max(0, n_frames - max(0, step)))


def known_halved(image: NDArray, known: NDArray, axes: Sequence[int]) -> tuple[NDArray, NDArray]:
    """An image at half its size along some axes, and which of its pixels are known.

    They are means of known neighbours; a pixel is known if one of these is.
    """
    sums, counts = _halved(np.where(known, image, 0.0), axes), _halved(known.astype(float), axes)
    return sums / np.maximum(counts, 1.0), counts > 0


def doubled(image: NDArray, shape: Sequence[int], axes: Sequence[int]) -> NDArray:
    """An image of half of this shape at full size, smoothed."""
    for axis in axes:
        image = np.repeat(image, 2, axis)[(slice(None),) * axis + (slice(shape[axis]),)]
    widths = [1.0 if axis in axes else 0.0 for axis in range(image.ndim)]
    return np.asarray(gaussian_filter(image, widths, mode="nearest"))


def _halved(values: NDArray, axes: Sequence[int]) -> NDArray:
    """Sums of neighbours, two along each of the axes."""
    for axis in axes:
        if values.shape[axis] % 2:
            values = np.pad(values, [(0, int(i == axis)) for i in range(values.ndim)])
        shape = values.shape
        values = values.reshape(*shape[:axis], -1, 2, *shape[axis + 1 :]).sum(axis + 1)
    return values


def _weight_of_itself(ndim: int) -> float:
    """The weight that a pixel has in its own average."""
    impulse = np.zeros(9)
    impulse[4] = 1.0
    return float(gaussian_filter(impulse, 1.0, mode="constant")[4]) ** ndim
