"""Groups of similar patches: where they are, and what they say together.

An image is cleaned little by little. In every round, each group of similar patches is estimated
from itself: a patch becomes that sum of the noisy ones which would give the best estimate if the
estimate so far were the truth (ridge regression). Patches are looked for in, and estimated from,
a mixture that keeps less and less of the noise (docs/denoising.md, step 5).

Images are float arrays of three axes in units of their noise; the first axis of a plane has length
1. Groups are found once for all components of an image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.cleaning.kernels import clean_groups, nearest
from kappaform.imaging.patches import Grid, grid_of
from kappaform.imaging.work import Progress, sections
from kappaform.threads import Workspace, mapped_in_order

_STRIP_LAYERS = 8  # reference rows of a plane that are the work of one thread
_SEARCH_COST = 0.7  # over that of cleaning groups, per round; it matters to progress only


class Search(NamedTuple):
    """How groups are made."""

    patch_shape: tuple[int, ...]
    stride: tuple[int, ...]
    radius: tuple[int, ...]  #: how far away similar patches are looked for
    context: int  #: pixels around a patch that are compared as well
    n_members: int


class Rounds(NamedTuple):
    """How often an image is cleaned with groups."""

    number: int
    per_search: int  #: rounds that use the same groups
    first_share: float  #: of the noise: what is kept falls from here to 0, in equal steps
    guided: float  #: part of the estimate in the image in which groups are looked for


def refined(
    noisy: Sequence[NDArray],
    estimates: Sequence[NDArray],
    covariances: Sequence[NDArray | None],
    search: Search,
    rounds: Rounds,
    progress: Progress | None = None,
) -> list[NDArray]:
    """Better estimates of the components of a noisy image than the given ones."""
    shape = noisy[0].shape
    groups = Groups(three_axes(shape), search)
    images, guides = (
        [np.ascontiguousarray(image).reshape(three_axes(shape)) for image in each]
        for each in (noisy, estimates)
    )
    found = in_rounds(groups, images, guides, covariances, rounds, progress)
    return [image.reshape(shape) for image in found]


def in_rounds(
    groups: Any,
    noisy: Sequence[Any],
    guides: Sequence[Any],
    covariances: Sequence[NDArray | None],
    rounds: Rounds,
    progress: Progress | None,
) -> Sequence[Any]:
    """The last estimates. `groups` are those of arrays, or those of tensors."""
    mixed = noisy
    for i, part in enumerate(sections(progress, [1] * rounds.number)):
        to_search, *to_clean = sections(part, [_SEARCH_COST, *[1] * len(noisy)])
        if i % rounds.per_search == 0:
            groups.find((1 - rounds.guided) * mixed[0] + rounds.guided * guides[0], to_search)
        # What is kept of the noise: less and less, and nothing in the end.
        share = rounds.first_share * (1 - (i + 1) / rounds.number)
        parts = zip(noisy, mixed, guides, covariances, to_clean, strict=True)
        results = [groups.cleaned(*each[:4], share, each[4]) for each in parts]
        guides, mixed = ([result[j] for result in results] for j in range(2))
    return guides


def three_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an image with a first axis of length 1, if it has two."""
    return (1,) * (3 - len(shape)) + shape


def noise_of_groups(
    covariance: NDArray | None, patch_shape: Sequence[int], sides: Sequence[int]
) -> NDArray | None:
    """Covariance of the noise in a smaller patch, as it counts in a group; None: white.

    Neighbours share the noise of overlapping patches, so that these take away less of it. It counts
    as stronger: by the root of the number of pixels that share it, which was about the best factor
    for noise smoothed by Gaussians of 0.5, 0.7 and 1.2 pixels in two pictures.
    """
    if covariance is None:
        return None
    inner = sides[3 - len(patch_shape) :]
    within = np.ravel_multi_index(np.indices(inner), tuple(patch_shape)).ravel()
    block = covariance[np.ix_(within, within)]
    block = block / np.diag(block).mean()
    return block * math.sqrt(np.abs(block).sum(axis=1).max())


class Layout(NamedTuple):
    """Where the patches are that groups are about, and where their members may be."""

    grid: Grid
    shifts: NDArray  #: from such a patch to a member, three indices each
    steps: NDArray  #: the same in the flat image
    n_members: int
    context: tuple[int, ...]  #: pixels that are compared beyond the patch, along each axis
    compared: tuple[int, ...]  #: sides of what is compared

    @classmethod
    def of(cls, shape: tuple[int, ...], search: Search) -> Layout:
        grid = grid_of(shape, search.patch_shape, search.stride)
        shifts = _shifts(search.radius)
        steps = shifts @ np.array([shape[1] * shape[2], shape[2], 1])
        n_members = min(search.n_members, _n_candidates(grid, search.radius))
        context = tuple(search.context if side > 1 else 0 for side in search.patch_shape)
        sides = zip(search.patch_shape, context, strict=True)
        compared = tuple(side + 2 * around for side, around in sides)
        return cls(grid, shifts, steps, n_members, context, compared)


class Groups:
    """The groups of an image of some shape."""

    def __init__(self, shape: tuple[int, ...], search: Search) -> None:
        self.search = search
        self.layout = Layout.of(shape, search)
        self.grid = self.layout.grid
        self.members: list[NDArray] = []
        # Work is cut along the first axis that is longer than 1; a strip is a flat part then.
        self.axis = 0 if shape[0] > 1 else 1
        self.strips = self._strips()

    def _strips(self) -> list[slice]:
        """Numbers of the references, strip by strip."""
        per_layer = math.prod(self.grid.counts[self.axis + 1 :])
        size = per_layer * (_STRIP_LAYERS if self.axis == 1 else 1)
        n = self.grid.n_patches
        return [slice(i, min(i + size, n)) for i in range(0, n, size)]

    def find(self, image: NDArray, progress: Progress | None = None) -> None:
        """Find the groups in an image."""
        context, columns = self.layout.context, self.grid.places[2]
        padded = np.pad(image, [(around, around) for around in context], mode="edge")
        sides, shifts, n_members = self.layout.compared, self.layout.shifts, self.layout.n_members

        def found(strip: slice, _: Workspace) -> NDArray:
            n_rows = (strip.stop - strip.start) // len(columns)
            members = np.zeros((n_rows, len(columns), n_members), np.uint16)
            for i, row in enumerate(members):
                a, b, _column = self.grid.corners(np.array(strip.start + i * len(columns)))
                nearest(padded, sides, (int(a), int(b)), columns, shifts, row)
            return members.reshape(-1, n_members)

        watch = None if progress is None else lambda n: progress(n / len(self.strips))
        self.members = mapped_in_order(found, self.strips, watch)

    def cleaned(
        self,
        noisy: NDArray,
        mixed: NDArray,
        guide: NDArray,
        covariance: NDArray | None,
        share: float,
        progress: Progress | None = None,
    ) -> tuple[NDArray, NDArray]:
        """An estimate of an image, and the image with this share of its noise."""
        n = self.grid.offsets.size
        if covariance is None:
            covariance = np.eye(n)
        covariance = covariance.astype(noisy.dtype)
        rounding = n * float(np.finfo(noisy.dtype).eps)
        layer = math.prod(noisy.shape[self.axis + 1 :])
        reach = self.search.radius[self.axis]
        side = self.search.patch_shape[self.axis]
        flat = [np.ascontiguousarray(image).reshape(-1) for image in (noisy, mixed, guide)]
        values = np.zeros((2, noisy.size), noisy.dtype)
        weights = np.zeros((2, noisy.size), noisy.dtype)

        def sums_of(number: int, _: Workspace) -> tuple[slice, NDArray, NDArray]:
            strip = self.strips[number]
            corners = self.grid.corners(np.array([strip.start, strip.stop - 1]))[self.axis]
            first = max(int(corners[0]) - reach, 0)
            last = min(int(corners[1]) + reach + side, noisy.shape[self.axis])
            part = slice(first * layer, last * layer)
            sums, marks = np.zeros((2, 2, part.stop - part.start), noisy.dtype)
            starts = self.grid.starts(np.arange(strip.start, strip.stop)) - part.start
            clean_groups(
                *(image[part] for image in flat), covariance, starts, self.members[number],
                self.layout.steps, self.grid.offsets, share, rounding, sums, marks,
            )  # fmt: skip
            return part, sums, marks

        def add(result: tuple[slice, NDArray, NDArray]) -> None:
            part, sums, marks = result
            values[:, part] += sums
            weights[:, part] += marks

        numbers = range(len(self.strips))
        watch = None if progress is None else lambda n: progress(n / len(numbers))
        mapped_in_order(sums_of, numbers, watch, add)
        shape = (2, *noisy.shape)
        total, kept = (spread(w, self.grid.patch_shape) for w in weights.reshape(shape))
        clean, less = values.reshape(shape)
        return clean / total, (less + kept * mixed) / total


def spread(weights: Any, patch_shape: Sequence[int]) -> Any:
    """Sum of the weights of the patches over each pixel, given where each begins.

    An array, or a tensor.
    """
    for axis, side in enumerate(patch_shape):
        total, others = weights * 1, (slice(None),) * axis
        for offset in range(1, side):
            total[(*others, slice(offset, None))] += weights[(*others, slice(-offset))]
        weights = total
    return weights


def _shifts(radius: Sequence[int]) -> NDArray:
    """All shifts within a radius; along each axis the smallest first."""
    along = [sorted(range(-r, r + 1), key=lambda step: (abs(step), step)) for r in radius]
    return np.stack(np.meshgrid(*along, indexing="ij"), -1).reshape(-1, len(radius))


def _n_candidates(grid: Grid, radius: Sequence[int]) -> int:
    """How many patches there are within the radius of one in a corner."""
    sizes = zip(grid.shape, grid.patch_shape, radius, strict=True)
    return math.prod(min(size - side, reach) + 1 for size, side, reach in sizes)
