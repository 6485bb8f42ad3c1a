"""Rounds that fill holes, for arrays or for tensors on a device.

Images have three axes, and are in units of the error that is assumed at first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kappaform.imaging.cleaning.fill_plan import (
    LAST_ERROR,
    LEAST_GAIN,
    MANY_HELD_OUT,
    MOST_LOSS,
    ROUNDS_WITHOUT,
    Plan,
)
from kappaform.imaging.cleaning.groups import Search
from kappaform.imaging.cleaning.tiles import cast, chosen
from kappaform.imaging.progress import Progress

GroupsOf = Callable[[Any, Search], Any]


class InpaintRound(NamedTuple):
    """A round of `inpaint`, as its callback receives it.

    Attributes
    ----------
    number : int
        1 in the first round of an image; large images are filled tile by tile, each in rounds.
    assumed_error : float
        Standard deviation of the error that the previous estimate was assumed to have.
    error : float or None
        Root mean square error of the known pixels that are held out; None if too few are known.

    Examples
    --------
    >>> import numpy as np
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> picture, rounds = camera()[100:164, 200:264], []
    >>> mask = np.random.default_rng(0).random(picture.shape) < 0.3
    >>> filled = kf.inpaint(picture, mask, callback=rounds.append)
    >>> [each.number for each in rounds[:3]], rounds[3].error < rounds[0].error
    ([1, 2, 3], True)
    """

    number: int
    assumed_error: float
    error: float | None


FillCallback = Callable[[InpaintRound], bool | None]


def in_rounds(
    start: Sequence[Any],
    given: Sequence[Any],
    known: Sequence[Any],
    held: Sequence[Any] | None,
    plan: Plan,
    groups_of: GroupsOf,
    callback: FillCallback | None,
    progress: Progress,
) -> list[Any]:
    """Estimates of components from a first one, float64; `held` are left out of all but the end.

    `groups_of` makes the groups of arrays or of tensors like an image. The callback may end the
    rounds; those at the end are done in any case.
    """
    images = list(start)
    groups, *of_pair = (groups_of(images[0], search) for search in (plan.search, *plan.last))
    used = known if held is None else [k & ~h for k, h in zip(known, held, strict=True)]
    n_rounds = ROUNDS_WITHOUT if held is None else plan.n_rounds
    n_last = len(plan.last)
    *parts, trial, last = progress.sections([*[1] * n_rounds, plan.tried * n_last, 1 + 2 * n_last])
    watch, deviation = Watch(given, held, plan.least_rounds), 1.0
    n_pairs, repeats = 1, plan.tried and held is not None
    for i, part in enumerate(parts):
        n_members, assumed = plan.members_in(i), plan.factor**i
        better = _one_round(images, given, used, assumed, groups, part, n_members)
        if not watch.goes_on(better):
            break
        images = better
        if watch.n_worse == 0:
            deviation = assumed
        if callback and callback(_told(i, plan, watch)):
            repeats = False
            break
    pair = partial(_pair, given=given, deviation=LAST_ERROR * deviation, groups=of_pair)
    if repeats:
        mean, after = pair(images, known=used, progress=trial)
        if watch.squared_error(mean) <= MOST_LOSS * watch.least:
            images, n_pairs = after, 2
    images = [chosen(k, g, x) for k, g, x in zip(known, given, images, strict=True)]
    part, *rest = last.sections([1, *[n_last] * n_pairs])
    n_members = plan.members_in(n_rounds)
    images = _one_round(images, given, known, deviation, groups, part, n_members)
    for its in rest:
        mean, images = pair(images, known=known, progress=its)
    return mean


def _pair(
    images: list[Any],
    given: Sequence[Any],
    known: Sequence[Any],
    deviation: float,
    groups: Sequence[Any],
    progress: Progress,
) -> tuple[list[Any], list[Any]]:
    """Rounds with different patches in turn: the mean of their results, float64, and the last one.

    Without any, these are the given images.
    """
    results = []
    for each, part in zip(groups, progress.sections([1] * len(groups)), strict=True):
        images = _one_round(images, given, known, deviation, each, part)
        results.append(images)
    each = zip(*(results or [images]), strict=True)
    doubles = ([cast(image, np.float64) for image in some] for some in each)
    return [sum(some) / len(some) for some in doubles], images


def _told(i: int, plan: Plan, watch: Watch) -> InpaintRound:
    """What a callback receives, in units of the image."""
    error = None if watch.error is None else plan.first * watch.error
    return InpaintRound(i + 1, plan.first * plan.factor**i, error)


class Watch:
    """Ends the rounds when the error of the held-out pixels, if any, no longer decreases."""

    def __init__(self, given: Sequence[Any], held: Sequence[Any] | None, least_rounds: int) -> None:
        self.least_rounds = least_rounds
        self.held = None if held is None else list(zip(given, held, strict=True))
        self.least, self.n_worse, self.n_rounds = math.inf, 0, 0
        n_held = 0 if held is None else sum(int(each.sum()) for each in held)
        self.patience = 1 if n_held >= MANY_HELD_OUT else 2
        self.error: float | None = None  #: root mean square

    def goes_on(self, images: Sequence[Any]) -> bool:
        if self.held is None:
            return True
        error = self.squared_error(images)
        self.error = math.sqrt(error)
        if error <= (1 - LEAST_GAIN) * self.least:
            self.least, self.n_worse = error, 0
        else:
            self.n_worse += 1
        self.n_rounds += 1
        return self.n_worse < self.patience or self.n_rounds < self.least_rounds

    def squared_error(self, images: Sequence[Any]) -> float:
        """Mean over the held-out pixels."""
        pairs = zip(images, self.held or (), strict=True)
        errors = [cast(image[held] - given[held], np.float64) for image, (given, held) in pairs]
        return sum(float((each**2).sum()) for each in errors) / sum(map(len, errors))


def _one_round(
    images: Sequence[Any],
    given: Sequence[Any],
    known: Sequence[Any],
    deviation: float,
    groups: Any,
    progress: Progress,
    n_members: int | None = None,
) -> list[Any]:
    """The components after one more round."""
    of_search, *of_components = progress.sections([1] * (1 + len(images)))
    groups.find(images[0], of_search, known, n_members)
    each = zip(images, given, known, of_components, strict=True)
    return [estimated(groups, x, g, k, deviation**2, False, its) for x, g, k, its in each]


def estimated(
    groups: Any,
    guide: Any,
    given: Any,
    known: Any,
    variance: float,
    denoises: bool,
    progress: Progress,
) -> Any:
    """A component whose missing pixels (or all) are means of their estimates in all groups.

    Where there are none, it is as given, or, if it is denoised, as the guide.
    """
    values, weights = groups.filled(guide, given, known, variance, denoises, progress)
    means = values / (weights + (weights == 0))
    if denoises:
        return chosen(weights > 0, means, guide)
    return chosen((weights > 0) & ~known, means, chosen(known, given, guide))
