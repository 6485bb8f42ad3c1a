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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

from kappaform.checks import library_of
from kappaform.imaging.cleaning.fill_plan import (
    ENOUGH_HELD_OUT,
    HELD_OUT,
    HELD_OUT_OF_MISSING,
    LEAST_HELD_OUT,
    MOST_HELD_OUT,
    Plan,
    search_of,
)
from kappaform.imaging.cleaning.fill_rounds import FillCallback, GroupsOf, estimated, in_rounds
from kappaform.imaging.cleaning.first_guess import (
    doubled,
    far_from_known,
    from_other_frames,
    guess_of,
    known_halved,
    start_without,
)
from kappaform.imaging.cleaning.groups import Groups, Search, three_axes
from kappaform.imaging.cleaning.tiles import Tile, cast, tiles_of
from kappaform.imaging.options import Quality
from kappaform.imaging.progress import SILENT, Progress

# Noise: its variance is assumed to be smaller than it is, because a guide has lost some signal.
# Chosen with the constants of `masked`: the variance, and large patches.
_NOISE, _NOISY_SIDES, _NOISY_MEMBERS = 0.65, (10, 4), 64
# Small patches, not of volumes. Then how different an estimate may be to be trusted: its weight is
# zero where its squared distance is this multiple of the variance in a group, both around a pixel.
# Chosen on the middle of every other one of 16 photographs and of Barbara, with half of the pixels
# missing and sigma 20.
_SMALL_SIDE, _SMALL_MEMBERS = 4, 32
_MOST_OF_SMALL, _MOST_OF_GROUPS = 0.1, 0.5
_AROUND = 25  # side of what is around a pixel
_LEAST_VARIANCE = 1 / 400  # in a group, over that of the noise
_LEAST_DEEP = 0.01  # fraction of the missing pixels that are far from known ones
_SINGLE_PRECISION_PEAK = 1024  # distance from the centre over the least error


class Filling(NamedTuple):
    """How, and where, the components of an image are filled."""

    quality: Quality
    seed: int = 0  #: chooses the pixels that are held out
    frames: bool = False  #: patches lie in one frame of a movie each
    joint: bool = False  #: patches span the whole first axis: channels with different masks
    device: Any = None  #: of torch, where groups are made; None: the host
    callback: FillCallback | None = None
    noisy: bool = False  #: the known pixels have noise


def filled(
    images: Sequence[NDArray],
    known: Sequence[NDArray],
    how: Filling,
    progress: Progress = SILENT,
) -> list[NDArray]:
    """Components of an image with their missing pixels estimated, float64; known ones are kept.

    Groups are found in the first component. What an image holds at missing pixels is not used.
    """
    guesses, errors = zip(
        *[guess_of(*each, how.joint) for each in zip(images, known, strict=True)], strict=True
    )
    guesses = [
        np.where(is_known, *pair) for is_known, *pair in zip(known, images, guesses, strict=True)
    ]
    error = math.hypot(*errors)
    if error == 0 or all(is_known.all() for is_known in known):
        progress(1.0)
        return list(guesses)
    shape, places = images[0].shape, (how.frames, how.joint)
    plan = Plan.of(shape, known, error, how.quality, *places, noisy=how.noisy)
    of_half, progress = progress.sections([1, 4])
    guesses = _with_deep_holes_filled(guesses, known, plan, how, of_half)
    held = _held_out(known, plan, how.seed)
    outs = [guess.copy() for guess in guesses]
    tiles = _tiles(images[0].shape, plan.search)
    for tile, its in zip(tiles, progress.sections([1] * len(tiles)), strict=True):
        complete = all(is_known[tile.inner].all() for is_known in known)
        if complete or not all(is_known[tile.outer].any() for is_known in known):
            its(1.0)  # nothing to do, or nothing to go by
            continue
        here = partial(_parts, where=tile.outer)
        parts = _filled_tile(here(guesses), here(known), here(held), plan, how, its)
        for out, part in zip(outs, parts, strict=True):
            out[tile.inner] = part[tile.within]
    return [np.where(is_known, *pair) for is_known, *pair in zip(known, images, outs, strict=True)]


def _with_deep_holes_filled(
    guesses: list[NDArray],
    known: Sequence[NDArray],
    plan: Plan,
    how: Filling,
    progress: Progress,
) -> list[NDArray]:
    """First guesses where a patch would have no known pixel: from half the size, or, in a movie,
    from other frames.
    """
    axes = range(int(how.frames or how.joint), guesses[0].ndim)
    side = max(plan.search.patch_shape[1:])
    deep = [far_from_known(is_known, _sizes(plan)) for is_known in known]
    if how.frames:
        reach = plan.search.radius[0]
        for i, pair in enumerate(zip(guesses, known, strict=True)):
            values, found = from_other_frames(*pair, reach)
            guesses[i] = np.where(deep[i] & found, values, guesses[i])
            deep[i] &= ~found
    n_missing = sum(int(np.count_nonzero(~is_known)) for is_known in known)
    n_deep = sum(int(np.count_nonzero(each)) for each in deep)
    small = min(guesses[0].shape[axis] for axis in axes) < 4 * side
    if small or n_deep < _LEAST_DEEP * n_missing:
        progress(1.0)
        return guesses
    halves = [known_halved(*each, axes) for each in zip(guesses, known, strict=True)]
    images, masks = ([half[i] for half in halves] for i in range(2))
    coarse = filled(images, masks, how, progress)
    return [
        np.where(is_deep, doubled(half, guess.shape, axes), guess)
        for is_deep, half, guess in zip(deep, coarse, guesses, strict=True)
    ]


def reestimated(
    noisy: Sequence[NDArray],
    known: Sequence[NDArray],
    guides: Sequence[NDArray],
    sigmas: Sequence[float],
    how: Filling,
    progress: Progress = SILENT,
) -> list[NDArray]:
    """Estimates of components, moved towards those from the known pixels of groups.

    These are one round with the noise of the image in place of the error of an estimate.
    """
    outs = [np.empty(guide.shape) for guide in guides]
    searches = _noisy_searches(guides[0].shape, how.frames)
    tiles = _tiles(guides[0].shape, searches[0])
    for tile, its in zip(tiles, progress.sections([1] * len(tiles)), strict=True):
        parts = [
            _volumes(_parts(every, tile.outer), how.device) for every in (noisy, known, guides)
        ]
        centres = [float(guide.mean()) for guide in parts[2]]
        # In units of the noise, single precision is enough to compare patches.
        compared = cast((parts[2][0] - centres[0]) / sigmas[0], np.float32)
        of_searches, *of_components = its.sections([1] * (1 + len(outs)))
        groups = [_groups_on(how.device)(parts[2][0], search) for search in searches]
        for each, one in zip(groups, of_searches.sections([1] * len(groups)), strict=True):
            each.find(compared, one)
        for c, (given, is_known, guide) in enumerate(zip(*parts, strict=True)):
            centre, shape = centres[c], outs[c][tile.outer].shape
            dtype = _precision(float(abs(guide - centre).max()) / sigmas[c])
            first, second = (cast((image - centre) / sigmas[c], dtype) for image in (guide, given))
            values = _moved_to_groups(groups, first, second, is_known, of_components[c])
            values = values.reshape(shape) * sigmas[c] + centre
            outs[c][tile.inner] = values[tile.within]
    return outs


def _noisy_searches(shape: tuple[int, ...], frames: bool) -> list[Search]:
    """Groups of large patches, and of small ones but in a volume."""
    large = search_of(shape, _NOISY_SIDES, 3, 1, frames, joint=False)
    large = large._replace(n_members=_NOISY_MEMBERS)
    if len(shape) == 3 and not frames:
        return [large]
    small = search_of(shape, (_SMALL_SIDE, _SMALL_SIDE), 2, 1, frames, joint=False)
    return [large, small._replace(n_members=_SMALL_MEMBERS)]


def _moved_to_groups(
    groups: Sequence[Any], guide: Any, given: Any, known: Any, progress: Progress
) -> NDArray:
    """A guide, in units of the noise, moved towards its estimate from groups, all on the host.

    That of large patches is moved towards that of small ones before: these are better at edges, and
    worse where texture recurs, which they do not resolve. There the two differ by much of what
    patches of a group differ by.
    """
    *of_estimates, of_means = progress.sections([1] * (len(groups) + 1))
    estimates = [
        _on_host(estimated(each, guide, given, known, _NOISE, True, its)).astype(np.float64)
        for each, its in zip(groups, of_estimates, strict=True)
    ]
    # Without known pixels, patches are the means of their groups.
    means = estimated(groups[0], guide, given, known & ~known, _NOISE, True, of_means)
    start = _on_host(guide).astype(np.float64)
    size = [_AROUND if side > 1 else 1 for side in groups[0].layout.grid.patch_shape]
    around = partial(uniform_filter, size=size, mode="nearest")
    variance = around((start - _on_host(means)) ** 2) + _LEAST_VARIANCE

    def moved(one: NDArray, other: NDArray, most: float) -> NDArray:
        ratio = around((other - one) ** 2) / variance
        return one + (1 - ratio / most).clip(min=0) * (other - one)

    result = estimates[0]
    for small in estimates[1:]:
        result = moved(result, small, _MOST_OF_SMALL)
    return moved(start, result, _MOST_OF_GROUPS)


# --- Rounds


def _held_out(known: Sequence[NDArray], plan: Plan, seed: int) -> list[NDArray]:
    """Known pixels, near missing ones, that show how large the error is."""
    size = 2 * max(plan.search.patch_shape[1:]) + 1
    near = [
        is_known & (uniform_filter((~is_known).astype(np.float32), size, mode="nearest") > 1e-6)
        for is_known in known
    ]
    number = max(1, *(int(np.count_nonzero(each)) for each in near))
    n_missing = max(int(np.count_nonzero(~each)) for each in known)
    fraction = min(HELD_OUT, HELD_OUT_OF_MISSING * n_missing / number)
    fraction = min(max(ENOUGH_HELD_OUT / number, fraction), MOST_HELD_OUT)
    drawn = np.random.default_rng(seed).random(known[0].shape, np.float32) < fraction
    return [drawn & each for each in near]


def _filled_tile(
    guesses: Sequence[NDArray],
    known: Sequence[NDArray],
    held: Sequence[NDArray],
    plan: Plan,
    how: Filling,
    progress: Progress,
) -> list[NDArray]:
    """The components of a part of an image."""
    shape, unit, device = guesses[0].shape, plan.first, how.device
    centres = [float(guess.mean()) for guess in guesses]
    values = [(guess - c) / unit for guess, c in zip(guesses, centres, strict=True)]
    dtype = _precision(max(float(np.abs(each).max()) for each in values) * unit / plan.least)
    given: list[NDArray] = [each.astype(dtype) for each in values]
    start, without = given, None
    if sum(int(np.count_nonzero(each)) for each in held) >= LEAST_HELD_OUT:
        each = zip(given, known, held, strict=True)
        start = [start_without(*some, _sizes(plan), plan.joint) for some in each]
        without = _volumes(held, device)
    first, known = _volumes(start, device), _volumes(known, device)
    images = first, _volumes(given, device), known
    found = in_rounds(*images, without, plan, _groups_on(device), how.callback, progress)
    estimates = map(_on_host, found)
    return [each.reshape(shape) * unit + c for each, c in zip(estimates, centres, strict=True)]


def _sizes(plan: Plan) -> list[int]:
    """Sides of a patch, of one channel."""
    depth, *sides = plan.search.patch_shape
    return [1 if plan.joint else depth, *sides]


def _precision(peak: float) -> type:
    """Of values whose largest is so many times the assumed error."""
    return np.float32 if peak <= _SINGLE_PRECISION_PEAK else np.float64


def _tiles(shape: tuple[int, ...], search: Search) -> list[Tile]:
    return list(tiles_of(shape, search.patch_shape[3 - len(shape) :]))


def _parts(images: Sequence[NDArray], where: tuple[slice, ...]) -> list[NDArray]:
    return [image[where] for image in images]


# --- On a device


def _groups_on(device: Any) -> GroupsOf:
    """What makes the groups of arrays, or of tensors on a device."""
    if device is None:
        return Groups
    from kappaform.imaging.cleaning.torch_groups import TensorGroups

    return TensorGroups


def _volumes(images: Sequence[NDArray], device: Any) -> list[Any]:
    """Images with three axes, on a device."""
    volumes = [image.reshape(three_axes(image.shape)) for image in images]
    if device is None:
        return volumes
    from kappaform.imaging.tensors import to_device

    return [to_device(np.ascontiguousarray(each), device) for each in volumes]


def _on_host(image: Any) -> NDArray:
    if library_of(image) != "torch":
        return np.asarray(image)
    from kappaform.imaging.tensors import to_host

    return to_host(image)
