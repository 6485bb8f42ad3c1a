"""Groups of similar patches: block matching, and joint estimation of the patches of a group.

The iterative scheme follows LIChI. In every round, each group of similar patches is estimated from
itself: a patch becomes the linear combination of the noisy ones that would be the best estimate if
the previous estimate were the truth (ridge regression). Patches are searched in, and estimated
from, a partially denoised image that keeps less and less of the noise (docs/how-denoising-works.md,
step 5).

Images are float arrays of three axes in units of their noise; the first axis of a plane has length
1. Groups are found once for all components of an image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.cleaning.fill_kernels import fill_groups
from kappaform.imaging.cleaning.kernels import denoise_groups, nearest, set_farthest
from kappaform.imaging.cleaning.patchwise import each_over_pixels, over_patches, over_pixels
from kappaform.imaging.cleaning.vector_kernels import LANES, RUN
from kappaform.imaging.patches import Grid, grid_of, places_within
from kappaform.imaging.progress import SILENT, Progress
from kappaform.threads import Workspace, mapped_in_order

_BLOCK_COLUMNS = 126  # references in a row that are matched at once: with two blocks, 8 vectors
_STRIP_LAYERS = 8  # reference rows of a plane that one thread processes at a time
_SEARCH_COST = 0.7  # relative to denoising the groups, per round; only progress depends on it


class Search(NamedTuple):
    """How groups are made."""

    patch_shape: tuple[int, ...]
    stride: tuple[int, ...]
    radius: tuple[int, ...]  #: how far away similar patches are searched
    context: int  #: pixels around a patch that are compared as well
    n_members: int


class Rounds(NamedTuple):
    """How often an image is denoised with groups."""

    number: int
    per_search: int  #: rounds that use the same groups
    first_fraction: float  #: of the noise that is kept: it decreases to 0 in equal steps
    guided: float  #: weight of the estimate in the image in which groups are searched


def refined(
    noisy: Sequence[Any],
    estimates: list[Any],
    covariances: Sequence[NDArray | None],
    search: Search,
    rounds: Rounds,
    groups_of: Callable[[Any, Search], Any],
    progress: Progress = SILENT,
) -> list[Any]:
    """Better estimates of the components of a noisy image than the given ones.

    They replace these in their list, each as soon as it is there: memory. `groups_of` makes the
    groups of arrays or of tensors like an image.
    """
    shape = tuple(noisy[0].shape)
    noisy = [image.reshape(three_axes(shape)) for image in noisy]
    guides = estimates
    guides[:] = [image.reshape(three_axes(shape)) for image in guides]
    groups, partial = groups_of(noisy[0], search), list(noisy)
    for i, part in enumerate(progress.sections([1] * rounds.number)):
        of_search, *of_components = part.sections([_SEARCH_COST, *[1] * len(noisy)])
        if i % rounds.per_search == 0:
            groups.find((1 - rounds.guided) * partial[0] + rounds.guided * guides[0], of_search)
        fraction = rounds.first_fraction * (1 - (i + 1) / rounds.number)
        for c, its in enumerate(of_components):
            guides[c], partial[c] = groups.denoised(
                noisy[c], partial[c], guides[c], covariances[c], fraction, its
            )
    guides[:] = [image.reshape(shape) for image in guides]
    return guides


def three_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an image with a first axis of length 1, if it has two."""
    return (1,) * (3 - len(shape)) + shape


def noise_of_groups(
    covariance: NDArray | None, patch_shape: Sequence[int], sides: Sequence[int]
) -> NDArray | None:
    """Covariance of the noise in a smaller patch, as it counts in a group; None: white.

    Averaging overlapping patches removes less of correlated noise. It counts as stronger, by the
    square root of the number of correlated pixels: about the best factor for noise smoothed by
    Gaussians of 0.5, 0.7 and 1.2 pixels in two pictures.
    """
    if covariance is None:
        return None
    inner = sides[3 - len(patch_shape) :]
    within = places_within(patch_shape, inner)
    block = covariance[np.ix_(within, within)]
    block = block / np.diag(block).mean()
    return block * math.sqrt(np.abs(block).sum(axis=1).max())


def least_variance(covariance: NDArray) -> float:
    """Of the noise in any direction."""
    return max(float(np.linalg.eigvalsh(covariance)[0]), 0.0)


class Layout(NamedTuple):
    """Where the reference patches of groups are, and where their members may be."""

    grid: Grid
    shifts: NDArray  #: from a reference to a member, three indices each
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
    """The groups of an image, for arrays of the shape of that image."""

    def __init__(self, image: NDArray, search: Search) -> None:
        self.search, self.layout = search, Layout.of(image.shape, search)
        self.members: list[NDArray] = []
        self.found = np.zeros(self.layout.grid.n_patches, bool)  # which groups the members are of
        # Work is divided along the first axis that is longer than 1: a strip is contiguous then.
        self.axis = 0 if image.shape[0] > 1 else 1
        self.strips = self._strips()

    def _strips(self) -> list[slice]:
        """Numbers of the references, strip by strip."""
        per_layer = math.prod(self.layout.grid.counts[self.axis + 1 :])
        size = per_layer * (_STRIP_LAYERS if self.axis == 1 else 1)
        n = self.layout.grid.n_patches
        return [slice(i, min(i + size, n)) for i in range(0, n, size)]

    def find(
        self,
        image: NDArray,
        progress: Progress = SILENT,
        known: Sequence[NDArray] | None = None,
        n_members: int | None = None,
    ) -> None:
        """Find the groups in an image, of so many members or as many as the search allows.

        With the known pixels of each component, groups about patches that know all are left out.
        """
        grid, sides, shifts = self.layout.grid, self.layout.compared, self.layout.shifts
        n_members = min(n_members or self.layout.n_members, self.layout.n_members)
        n_columns = grid.counts[2]
        around = [(width, width) for width in self.layout.context]
        padded = np.pad(image, around, mode="edge")
        run = 2 * self.search.radius[2] + 1
        columns = _Columns.of(padded, grid.places[2], self.search.stride[2], self.search.radius[2])
        wanted = np.ones(grid.n_patches, bool) if known is None else self._with_holes(known)
        farthest_of = self._farthest(padded, wanted, n_members)
        self.members = self.members or [np.empty(0)] * len(self.strips)

        def find_strip(number: int, _: Workspace) -> None:
            strip = self.strips[number]
            n_rows = (strip.stop - strip.start) // n_columns
            farthest = farthest_of(number).reshape(n_rows, n_columns)
            members = np.zeros((n_rows, n_columns, n_members), np.uint16)
            layers, rows = grid.corners(strip.start + n_columns * np.arange(n_rows))[:2]
            for part in _regular_parts(rows, self.search.stride[1], _STRIP_LAYERS):
                for some in columns:
                    limits = farthest[part, some.which]
                    if not limits.any():  # none is wanted
                        continue
                    first = int(layers[0]), int(rows[part.start]), some.first
                    limits = np.ascontiguousarray(limits)  # slices would be compiled for anew
                    block = np.empty((*limits.shape, n_members), np.uint16)
                    nearest(
                        some.planes, padded.shape, sides, self.search.stride[1], first, some.lane,
                        shifts, run, limits, block,
                    )  # fmt: skip
                    members[part, some.which] = block
            self.members[number] = members.reshape(-1, n_members)

        numbers = range(len(self.strips))
        mapped_in_order(find_strip, numbers, progress.over(len(numbers)))
        self.found = wanted

    def _with_holes(self, known: Sequence[NDArray]) -> NDArray:
        """The reference patches that lack a pixel of a component."""
        grid = self.layout.grid
        starts = grid.starts(np.arange(grid.n_patches))
        numbers = [over_patches(~each, grid.patch_shape).reshape(-1)[starts] for each in known]
        return np.any(numbers, axis=0)

    def _farthest(
        self, padded: NDArray, wanted: NDArray, n_members: int
    ) -> Callable[[int], NDArray]:
        """For each reference of a strip, a distance that enough patches are below; or infinity.

        These patches are the members of the last search, however the image has changed. No patch is
        below the distance of references that are not wanted.
        """
        members, sides, corners_of = self.members, self.layout.compared, self.layout.grid.corners
        enough = bool(members) and members[0].shape[1] >= n_members and sides[2] <= LANES
        seen = wanted & self.found & enough
        compared = grid_of(padded.shape, sides).offsets.reshape(-1, sides[2])
        runs = np.ascontiguousarray(compared[:, 0])
        steps = self.layout.shifts @ np.array([padded[0].size, padded.shape[2], 1])
        flat = np.append(padded, np.zeros(LANES, padded.dtype))

        def farthest_of(number: int) -> NDArray:
            strip = self.strips[number]
            farthest = np.where(wanted[strip], np.inf, 0).astype(padded.dtype)
            some = np.flatnonzero(seen[strip])
            if len(some):
                corners = corners_of(strip.start + some)
                starts = np.ravel_multi_index(corners, padded.shape)
                bounds = np.empty(len(some), padded.dtype)
                set_farthest(flat, starts, members[number][some], steps, runs, sides[2], bounds)
                farthest[some] = bounds
            return farthest

        return farthest_of

    def denoised(
        self,
        noisy: NDArray,
        partial: NDArray,
        guide: NDArray,
        covariance: NDArray | None,
        fraction: float,
        progress: Progress = SILENT,
    ) -> tuple[NDArray, NDArray]:
        """An estimate of an image, and the image with this fraction of its noise."""
        grid = self.layout.grid
        n = grid.offsets.size
        covariance = (np.eye(n) if covariance is None else covariance).astype(noisy.dtype)
        rounding = n * float(np.finfo(noisy.dtype).eps)
        least = noisy.dtype.type(least_variance(covariance))
        width = grid.patch_shape[2]
        runs = np.ascontiguousarray(grid.offsets[::width])
        images = [np.append(image, np.zeros(RUN, image.dtype)) for image in (noisy, partial, guide)]
        values, marks = (np.zeros((2, *noisy.shape), noisy.dtype) for _ in range(2))

        def add_groups(
            parts: Sequence[NDArray], starts: NDArray, members: NDArray, out: NDArray
        ) -> None:
            denoise_groups(
                *parts, covariance, starts, members, self.layout.steps, runs, width,
                fraction, rounding, least, *out,
            )  # fmt: skip

        self._add(images, add_groups, noisy.shape, (values, marks), progress)
        del images  # copies: memory for the weights
        total, kept = each_over_pixels(marks, grid.patch_shape)
        values[1] += np.multiply(kept, partial, out=kept)
        values /= total
        return values[0], values[1]

    def filled(
        self,
        guide: NDArray,
        given: NDArray,
        known: NDArray,
        variance: float,
        denoises: bool,
        progress: Progress = SILENT,
    ) -> tuple[NDArray, NDArray]:
        """Sum of the estimates of each pixel from the known ones of its patches, and their number.

        Known pixels have white noise of this variance; they are estimated if `denoises`.
        """
        grid, shape = self.layout.grid, guide.shape
        n_known = over_patches(known, grid.patch_shape)
        images = [
            np.ascontiguousarray(image).reshape(-1) for image in (guide, given, known, n_known)
        ]
        rounding = grid.offsets.size * float(np.finfo(guide.dtype).eps)
        values, marks = np.zeros((2, *shape), guide.dtype)

        def add_groups(
            parts: Sequence[NDArray], starts: NDArray, members: NDArray, out: NDArray
        ) -> None:
            fill_groups(
                *parts, starts, members, self.layout.steps, grid.offsets,
                guide.dtype.type(variance), guide.dtype.type(rounding), denoises, *out[:, 0],
            )  # fmt: skip

        self._add(images, add_groups, shape, (values[np.newaxis], marks[np.newaxis]), progress)
        weights = over_pixels(marks, grid.patch_shape)
        return (values, weights) if denoises else (values * ~known, weights * ~known)

    def _add(
        self,
        images: Sequence[NDArray],
        add_groups: Callable[[Sequence[NDArray], NDArray, NDArray, NDArray], None],
        shape: tuple[int, ...],
        sums: Sequence[NDArray],
        progress: Progress,
    ) -> None:
        """Add what a kernel adds for the groups of each strip to sums, some images each."""
        layer = math.prod(shape[self.axis + 1 :])
        reach, side = self.search.radius[self.axis], self.search.patch_shape[self.axis]

        def sums_of(number: int, _: Workspace) -> tuple[slice, NDArray]:
            strip = self.strips[number]
            starts = self.layout.grid.starts(np.arange(strip.start, strip.stop))
            first = max(int(starts[0]) // layer - reach, 0)
            last = min(int(starts[-1]) // layer + reach + side, shape[self.axis])
            part = slice(first * layer, last * layer)
            some = np.zeros((len(sums), len(sums[0]), part.stop - part.start + RUN), sums[0].dtype)
            parts = [image[part] for image in images]
            add_groups(parts, starts - part.start, self.members[number], some)
            return part, some

        def add(result: tuple[slice, NDArray]) -> None:
            part, some = result
            for total, more in zip(sums, some, strict=True):
                total.reshape(len(total), -1)[:, part] += more[:, :-RUN]

        numbers = range(len(self.strips))
        mapped_in_order(sums_of, numbers, progress.over(len(numbers)), add)


class _Columns(NamedTuple):
    """Some columns of references with the same distances, and an image for their comparison."""

    which: slice
    planes: NDArray  #: (stride, *axes): every so many columns of the image, with margins
    first: int  #: column of the first reference
    lane: int  #: its place in a plane

    @classmethod
    def of(cls, image: NDArray, places: NDArray, stride: int, radius: int) -> list[_Columns]:
        """All columns of references, in parts."""
        reach = radius // stride + 2  # in a plane, of shifts and of a patch
        width = -(-image.shape[2] // stride) + 2 * reach + 2 * LANES
        found: list[_Columns] = []
        for which in _regular_parts(places, stride, _BLOCK_COLUMNS):
            first = int(places[which.start])
            before = -first % stride  # columns before the image, so that a block begins at `first`
            if not found or (first - found[0].first) % stride:
                planes = np.zeros((stride, *image.shape[:2], width), image.dtype)
                for plane in range(stride):
                    column = (plane - before) % stride
                    some = image[..., column::stride]
                    start = reach + (column + before) // stride
                    planes[plane, ..., start : start + some.shape[2]] = some
            found.append(cls(which, planes, first, reach + (first + before) // stride))
        return found


def _regular_parts(places: NDArray, stride: int, most: int) -> list[slice]:
    """Parts of places that are a stride apart, with so many places at most."""
    jumps = np.flatnonzero(np.diff(places) != stride) + 1
    ends = [0, *jumps.tolist(), len(places)]
    return [
        slice(i, min(i + most, stop))
        for start, stop in pairwise(ends)
        for i in range(start, stop, most)
    ]


def _shifts(radius: Sequence[int]) -> NDArray:
    """All shifts within a radius; along each axis the smallest first."""
    along = [sorted(range(-r, r + 1), key=lambda step: (abs(step), step)) for r in radius]
    return np.stack(np.meshgrid(*along, indexing="ij"), -1).reshape(-1, len(radius))


def _n_candidates(grid: Grid, radius: Sequence[int]) -> int:
    """How many patches there are within the radius of one in a corner."""
    sizes = zip(grid.shape, grid.patch_shape, radius, strict=True)
    return math.prod(min(size - side, reach) + 1 for size, side, reach in sizes)
