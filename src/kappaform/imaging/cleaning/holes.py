"""Missing pixels: a first guess by averages, then groups of similar patches with holes.

The patches of a group are samples of one normal distribution. Its mean and covariance are those of
the group in the estimate so far, plus white noise: the uncertainty of that estimate, which starts
at the error of the first guess and decreases from round to round. A patch becomes its conditional
mean given its known pixels (docs/mathematics.md, missing pixels).

The error is measured on known pixels that are held out; rounds end when it no longer decreases, and
a last one uses every known pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

from kappaform.imaging.cleaning.first_guess import (
    doubled,
    far_from_known,
    guess_of,
    known_halved,
    start_without,
)
from kappaform.imaging.cleaning.groups import Groups, Search, three_axes
from kappaform.imaging.cleaning.tiles import Tile, tiles_of
from kappaform.imaging.options import Quality
from kappaform.imaging.work import SILENT, Progress


class Effort(NamedTuple):
    """How carefully holes are filled."""

    fall: float  #: added to the factor by which the assumed error decreases in a round
    overlap: int  #: by how many pixels neighbouring reference patches overlap, at least


# Chosen on Barbara, Lena and Hill, of which 2, 50 and 80 % were missing (docs/inpainting.md).
_EFFORTS: dict[Quality, Effort] = {
    "fast": Effort(fall=0.35, overlap=1),
    "balanced": Effort(fall=0.5, overlap=2),
    "best": Effort(fall=0.6, overlap=3),
}
_FALL_BY_DENSITY = 0.35  # the more is missing around a hole, the slower the error may decrease
_FIRST_ERROR = 1.2  # assumed in the first round, over the measured one of the first guess
_LEAST_ERROR = 1 / 40  # over the same: the last round at the latest
_LAST_ERROR = 2.0  # assumed in the averaged last rounds, over that of the best round
_LEAST_GAIN = 2e-3  # by which a round reduces the squared error of held-out pixels: 0.01 dB
_HELD_OUT = 0.015  # fraction of the known pixels around holes
_LEAST_HELD_OUT, _MANY_HELD_OUT = 50, 500  # with fewer, one round without a gain may be chance
_LEAST_ROUNDS = 4  # the first ones may gain little
_ROUNDS_WITHOUT = 5  # where too little is known to hold anything out
_MEMBERS, _LEAST_MEMBERS, _FEWER = 100, 50, 0.95  # of a group: at first, at least, and the factor
_DENSE = 0.65  # missing around a hole: from here on patches are larger, and so is what is compared
_SPARSE = 0.3  # below, smaller patches are as good and faster
_PLANE_SIDES, _PLANE_RADIUS = (6, 7, 8), 20
_VOLUME_SIDES, _VOLUME_RADIUS = (3, 3, 4), 5
_MOVIE_RADIUS, _FRAMES = 14, 2
# Noise: its variance is assumed to be smaller than it is, because a guide has lost some signal.
_NOISE, _NOISY_SIDES, _NOISY_MEMBERS = 0.4, (8, 4), 64
_LEAST_DEEP = 0.01  # fraction of the missing pixels that are far from known ones
_SINGLE_PRECISION_PEAK = 1024  # distance from the centre over the least error


def filled(
    images: Sequence[NDArray],
    known: Sequence[NDArray],
    quality: Quality,
    seed: int = 0,
    *,
    frames: bool = False,
    joint: bool = False,
    progress: Progress = SILENT,
) -> list[NDArray]:
    """Components of an image with their missing pixels estimated, float64; known ones are kept.

    Groups are found in the first component. With `frames`, patches lie in one frame each; with
    `joint`, each spans the whole first axis (channels with different masks). What an image holds at
    missing pixels is not used.
    """
    guesses, errors = zip(
        *[guess_of(*each, joint) for each in zip(images, known, strict=True)], strict=True
    )
    guesses = [
        np.where(is_known, *pair) for is_known, *pair in zip(known, images, guesses, strict=True)
    ]
    error = math.sqrt(sum(each**2 for each in errors))
    if error == 0 or all(is_known.all() for is_known in known):
        progress(1.0)
        return list(guesses)
    plan = Plan.of(images[0].shape, known, error, quality, frames, joint)
    of_half, progress = progress.sections([1, 4])
    guesses = _with_deep_holes_filled(guesses, known, plan, quality, seed, frames, joint, of_half)
    held = _held_out(known, plan, seed)
    outs = [guess.copy() for guess in guesses]
    tiles = _tiles(images[0].shape, plan.search)
    for tile, its in zip(tiles, progress.sections([1] * len(tiles)), strict=True):
        complete = all(is_known[tile.inner].all() for is_known in known)
        if complete or not all(is_known[tile.outer].any() for is_known in known):
            its(1.0)  # nothing to do, or nothing to go by
            continue
        here = partial(_parts, where=tile.outer)
        parts = _filled_tile(here(guesses), here(known), here(held), plan, its)
        for out, part in zip(outs, parts, strict=True):
            out[tile.inner] = part[tile.within]
    return [np.where(is_known, *pair) for is_known, *pair in zip(known, images, outs, strict=True)]


def _with_deep_holes_filled(
    guesses: list[NDArray],
    known: Sequence[NDArray],
    plan: Plan,
    quality: Quality,
    seed: int,
    frames: bool,
    joint: bool,
    progress: Progress,
) -> list[NDArray]:
    """First guesses that come from half the size where a patch would have no known pixel."""
    axes = range(int(frames or joint), guesses[0].ndim)
    side = max(plan.search.patch_shape[1:])
    deep = [far_from_known(is_known, _sizes(plan)) for is_known in known]
    n_missing = sum(int(np.count_nonzero(~is_known)) for is_known in known)
    n_deep = sum(int(np.count_nonzero(each)) for each in deep)
    small = min(guesses[0].shape[axis] for axis in axes) < 4 * side
    if small or n_deep < _LEAST_DEEP * n_missing:
        progress(1.0)
        return guesses
    halves = [known_halved(*each, axes) for each in zip(guesses, known, strict=True)]
    images, masks = ([half[i] for half in halves] for i in range(2))
    coarse = filled(images, masks, quality, seed, frames=frames, joint=joint, progress=progress)
    return [
        np.where(is_deep, doubled(half, guess.shape, axes), guess)
        for is_deep, half, guess in zip(deep, coarse, guesses, strict=True)
    ]


def reestimated(
    noisy: Sequence[NDArray],
    known: Sequence[NDArray],
    guides: Sequence[NDArray],
    sigmas: Sequence[float],
    frames: bool = False,
    progress: Progress = SILENT,
) -> list[NDArray]:
    """Components of a noisy image estimated from their known pixels, guided by an estimate.

    This is one round with the noise of the image in place of the error of an estimate.
    """
    outs = [np.empty(guide.shape) for guide in guides]
    search = _search(guides[0].shape, _NOISY_SIDES, 3, 1, frames, joint=False)
    search = search._replace(n_members=_NOISY_MEMBERS)
    tiles = _tiles(guides[0].shape, search)
    for tile, its in zip(tiles, progress.sections([1] * len(tiles)), strict=True):
        parts = [_volumes(_parts(every, tile.outer)) for every in (noisy, known, guides)]
        groups = Groups(parts[2][0], search)
        of_search, *of_components = its.sections([1] * (1 + len(outs)))
        groups.find(parts[2][0].astype(np.float32), of_search)
        for c, (given, is_known, guide) in enumerate(zip(*parts, strict=True)):
            centre, shape = float(guide.mean()), outs[c][tile.outer].shape
            dtype = _precision(np.abs(guide - centre).max() / sigmas[c])
            first, second = (
                ((image - centre) / sigmas[c]).astype(dtype) for image in (guide, given)
            )
            values = _round(groups, first, second, is_known, _NOISE, True, of_components[c])
            outs[c][tile.inner] = (values.reshape(shape) * sigmas[c] + centre)[tile.within]
    return outs


class Plan(NamedTuple):
    """How the holes of an image are filled."""

    search: Search
    first: float  #: assumed error in the first round
    factor: float  #: by which it decreases
    n_rounds: int  #: at most
    last: tuple[Search, ...]  #: patches of the last rounds, whose results are averaged
    joint: bool

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        known: Sequence[NDArray],
        error: float,
        quality: Quality,
        frames: bool,
        joint: bool,
    ) -> Plan:
        density = max(density_around(is_known) for is_known in known)
        level = int(density > _SPARSE) + int(density > _DENSE)
        effort = _EFFORTS[quality]
        context = 2 if density > _DENSE else 0

        def search(more: int = 0) -> Search:
            sides = _PLANE_SIDES[level] + more, _VOLUME_SIDES[level]
            return _search(shape, sides, effort.overlap, context, frames, joint)

        flat = len(shape) == 2 or frames or joint
        last = (search(-1), search(1)) if flat and quality != "fast" else ()
        factor = min(effort.fall + _FALL_BY_DENSITY * density, 0.9)
        n_rounds = 1 + math.ceil(math.log(_LEAST_ERROR / _FIRST_ERROR) / math.log(factor))
        return cls(search(), _FIRST_ERROR * error, factor, n_rounds, last, joint)


def _search(
    shape: tuple[int, ...],
    sides: tuple[int, int],
    overlap: int,
    context: int,
    frames: bool,
    joint: bool,
) -> Search:
    """How groups are made; all axes are three."""
    flat = len(shape) == 2 or frames or joint
    side = sides[0] if flat else sides[1]
    depth = shape[0] if joint else 1 if flat else side
    step = max(1, side - overlap)
    radius = (_MOVIE_RADIUS if frames else _PLANE_RADIUS) if flat else _VOLUME_RADIUS
    ahead = (_FRAMES if frames else 0) if flat else radius
    return Search(
        patch_shape=tuple(map(min, (depth, side, side), three_axes(shape))),
        stride=(1 if flat else step, step, step),
        radius=(ahead, radius, radius),
        context=context,
        n_members=_MEMBERS,
    )


# --- Rounds


def density_around(known: NDArray) -> float:
    """Fraction of missing pixels around a missing pixel, in the mean."""
    missing = ~known
    if not missing.any():
        return 0.0
    around = uniform_filter(missing.astype(np.float32), 7, mode="nearest")
    return float(around[missing].mean(dtype=np.float64))


def _held_out(known: Sequence[NDArray], plan: Plan, seed: int) -> list[NDArray]:
    """Known pixels, near missing ones, that show how large the error is."""
    rng = np.random.default_rng(seed)
    drawn = rng.random(known[0].shape, np.float32) < _HELD_OUT
    size = 2 * max(plan.search.patch_shape[1:]) + 1
    held = []
    for is_known in known:
        near = uniform_filter((~is_known).astype(np.float32), size, mode="nearest") > 1e-6
        held.append(drawn & is_known & near)
    return held


def _filled_tile(
    guesses: Sequence[NDArray],
    known: Sequence[NDArray],
    held: Sequence[NDArray],
    plan: Plan,
    progress: Progress,
) -> list[NDArray]:
    """The components of a part of an image."""
    shape, unit = guesses[0].shape, plan.first
    centres = [float(guess.mean()) for guess in guesses]
    values = [(guess - c) / unit for guess, c in zip(guesses, centres, strict=True)]
    least = _LEAST_ERROR / _FIRST_ERROR
    dtype = _precision(max(float(np.abs(each).max()) for each in values) / least)
    given: list[NDArray] = [each.astype(dtype) for each in values]
    n_held = sum(int(np.count_nonzero(each)) for each in held)
    if n_held < _LEAST_HELD_OUT:
        estimates = _in_rounds(given, given, known, None, plan, progress)
    else:
        each = zip(given, known, held, strict=True)
        start = [start_without(*some, _sizes(plan), plan.joint) for some in each]
        estimates = _in_rounds(start, given, known, held, plan, progress)
    return [each.reshape(shape) * unit + c for each, c in zip(estimates, centres, strict=True)]


def _sizes(plan: Plan) -> list[int]:
    """Sides of a patch, of one channel."""
    depth, *sides = plan.search.patch_shape
    return [1 if plan.joint else depth, *sides]


def _in_rounds(
    start: Sequence[NDArray],
    given: Sequence[NDArray],
    known: Sequence[NDArray],
    held: Sequence[NDArray] | None,
    plan: Plan,
    progress: Progress,
) -> list[NDArray]:
    """Estimates of components from a first one, in units of the error that is assumed at first."""
    images, given, known = _volumes(start), _volumes(given), _volumes(known)
    held = None if held is None else _volumes(held)
    used = known if held is None else [k & ~h for k, h in zip(known, held, strict=True)]
    n_rounds = _ROUNDS_WITHOUT if held is None else plan.n_rounds
    *parts, last = progress.sections([*[1] * n_rounds, 1 + len(plan.last)])
    watch, deviation = _Watch(given, held), 1.0
    for i, part in enumerate(parts):
        better = _one_round(images, given, used, plan.factor**i, i, plan.search, part)
        if not watch.goes_on(better):
            break
        images = better
        if watch.n_worse == 0:
            deviation = plan.factor**i
    images = [np.where(k, g, x) for k, g, x in zip(known, given, images, strict=True)]
    part, *rest = last.sections([1] * (1 + len(plan.last)))
    images = _one_round(images, given, known, deviation, n_rounds, plan.search, part)
    ends = [
        _one_round(images, given, known, _LAST_ERROR * deviation, n_rounds, *each)
        for each in zip(plan.last, rest, strict=True)
    ] or [images]
    return [np.asarray(np.mean(each, 0, np.float64)) for each in zip(*ends, strict=True)]


class _Watch:
    """Ends the rounds when the error of the held-out pixels, if any, no longer decreases."""

    def __init__(self, given: Sequence[NDArray], held: Sequence[NDArray] | None) -> None:
        self.held = None if held is None else list(zip(given, held, strict=True))
        self.least, self.n_worse, self.n_rounds = math.inf, 0, 0
        n_held = 0 if held is None else sum(int(np.count_nonzero(each)) for each in held)
        self.patience = 1 if n_held >= _MANY_HELD_OUT else 2

    def goes_on(self, images: Sequence[NDArray]) -> bool:
        if self.held is None:
            return True
        pairs = zip(images, self.held, strict=True)
        errors = [(image[held] - given[held]).astype(np.float64) for image, (given, held) in pairs]
        error = sum(float(np.sum(each**2)) for each in errors)
        if error <= (1 - _LEAST_GAIN) * self.least:
            self.least, self.n_worse = error, 0
        else:
            self.n_worse += 1
        self.n_rounds += 1
        return self.n_worse < self.patience or self.n_rounds < _LEAST_ROUNDS


def _one_round(
    images: Sequence[NDArray],
    given: Sequence[NDArray],
    known: Sequence[NDArray],
    deviation: float,
    number: int,
    search: Search,
    progress: Progress,
) -> list[NDArray]:
    """The components after one more round."""
    n_members = max(_LEAST_MEMBERS, round(_MEMBERS * _FEWER**number))
    groups = Groups(images[0], search._replace(n_members=n_members))
    of_search, *of_components = progress.sections([1] * (1 + len(images)))
    groups.find(images[0], of_search)
    each = zip(images, given, known, of_components, strict=True)
    return [_round(groups, x, g, k, deviation**2, False, its) for x, g, k, its in each]


def _round(
    groups: Groups,
    guide: NDArray,
    given: NDArray,
    known: NDArray,
    variance: float,
    denoises: bool,
    progress: Progress,
) -> NDArray:
    """A component whose missing pixels (or all) are means of their estimates in all groups."""
    values, weights = groups.filled(guide, given, known, variance, denoises, progress)
    found = weights > 0 if denoises else (weights > 0) & ~known
    return np.where(found, values / np.maximum(weights, 1), np.where(known, given, guide))


def _precision(peak: float) -> type:
    """Of values whose largest is so many times the assumed error."""
    return np.float32 if peak <= _SINGLE_PRECISION_PEAK else np.float64


def _tiles(shape: tuple[int, ...], search: Search) -> list[Tile]:
    return list(tiles_of(shape, search.patch_shape[3 - len(shape) :]))


def _parts(images: Sequence[NDArray], where: tuple[slice, ...]) -> list[NDArray]:
    return [image[where] for image in images]


def _volumes(images: Sequence[NDArray]) -> list[NDArray]:
    return [image.reshape(three_axes(image.shape)) for image in images]
