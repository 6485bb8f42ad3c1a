"""A sweep: clean every overlapping patch of an image and average what overlaps.

Patches are made, cleaned and put back block by block; an image's patches are never all in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.kernels import gather, scatter
from kappaform.threads import Workspace, mapped_in_order

_BLOCK_PATCHES = 2048
_PART_ROWS = 32

#: Cleans a block of mean-free patches in place; returns their weights and numbers of coefficients.
#: `guide` holds the same patches of another image, if there is one.
Cleaner = Callable[[NDArray, NDArray | None, Workspace], tuple[NDArray, NDArray]]


@dataclass(frozen=True)
class PatchGrid:
    """All positions of a patch in an image, as indices of the flattened image."""

    shape: tuple[int, ...]
    patch_shape: tuple[int, ...]

    @property
    def n_features(self) -> int:
        return math.prod(self.patch_shape)

    @property
    def positions(self) -> tuple[int, ...]:
        return tuple(a - p + 1 for a, p in zip(self.shape, self.patch_shape, strict=True))

    @cached_property
    def offsets(self) -> NDArray:
        """Where the pixels of a patch are, relative to its first one."""
        return np.ravel_multi_index(np.indices(self.patch_shape), self.shape).ravel()

    @cached_property
    def first_row(self) -> NDArray:
        """Where the patches of the first row begin."""
        grid = np.indices((1, *self.positions[1:]))
        return np.ravel_multi_index(grid, self.shape).ravel()


def patches_at(image: NDArray, patch_shape: tuple[int, ...], positions: NDArray) -> NDArray:
    """Mean-free patches at positions of the flattened grid of patch positions, float64."""
    grid = PatchGrid(image.shape, patch_shape)
    starts = np.ravel_multi_index(np.unravel_index(positions, grid.positions), grid.shape)
    patches = image.reshape(-1)[starts[:, np.newaxis] + grid.offsets].astype(np.float64)
    return patches - patches.mean(axis=1, keepdims=True)


def sweep(
    image: NDArray,
    patch_shape: tuple[int, ...],
    clean: Cleaner,
    guide: NDArray | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> tuple[NDArray, NDArray]:
    """The cleaned image, and for each pixel the mean number of coefficients of its patches.

    Patches are clipped to `bounds` before they are averaged.
    """
    grid = PatchGrid(image.shape, patch_shape)
    rows = range(0, grid.positions[0], _PART_ROWS)
    parts = [slice(row, min(row + _PART_ROWS, grid.positions[0])) for row in rows]
    limits = np.array(bounds, image.dtype)
    work = partial(_sweep_part, grid=grid, image=image, guide=guide, clean=clean, bounds=limits)
    sums = np.zeros((3, *image.shape), image.dtype)
    for part, some in zip(parts, mapped_in_order(work, parts), strict=True):
        sums[:, part.start : part.stop + patch_shape[0] - 1] += some
    return sums[0] / sums[1], sums[2] / overlaps(grid)


def overlaps(grid: PatchGrid) -> NDArray:
    """Number of patches over each pixel: a product of one factor for each axis."""
    total = np.ones((), np.float32)
    for size, side, n in zip(grid.shape, grid.patch_shape, grid.positions, strict=True):
        from_ends = np.minimum(np.arange(1, size + 1), np.arange(size, 0, -1))
        total = np.multiply.outer(total, np.minimum(from_ends, min(side, n)).astype(np.float32))
    return total


def _sweep_part(
    part: slice,
    workspace: Workspace,
    grid: PatchGrid,
    image: NDArray,
    guide: NDArray | None,
    clean: Cleaner,
    bounds: NDArray,
) -> NDArray:
    """Sums of values, weights and counts of the patches that begin in some rows."""
    pixels = slice(part.start, part.stop + grid.patch_shape[0] - 1)
    local = image[pixels].ravel()
    local_guide = None if guide is None else guide[pixels].ravel()
    sums = np.zeros((3, local.size), image.dtype)
    for starts in _blocks(grid, part.stop - part.start):
        patches, means = gathered(local, starts, grid.offsets, workspace, "patches")
        guides = None
        if local_guide is not None:
            guides, _ = gathered(local_guide, starts, grid.offsets, workspace, "guides")
        weights, counts = clean(patches, guides, workspace)
        scatter(patches, means, weights, counts, starts, grid.offsets, bounds, sums)
    return sums.reshape(3, -1, *grid.shape[1:])


def _blocks(grid: PatchGrid, n_rows: int) -> Iterator[NDArray]:
    """Where the patches of each block begin: a few rows, or a piece of a long one."""
    row_length = math.prod(grid.shape[1:])
    rows = max(1, _BLOCK_PATCHES // grid.first_row.size)
    for row in range(0, n_rows, rows):
        below = row_length * np.arange(row, min(row + rows, n_rows))
        starts = (below[:, np.newaxis] + grid.first_row).ravel()
        for first in range(0, starts.size, _BLOCK_PATCHES):
            yield starts[first : first + _BLOCK_PATCHES]


def gathered(
    image: NDArray, starts: NDArray, offsets: NDArray, workspace: Workspace, name: str
) -> tuple[NDArray, NDArray]:
    """Mean-free patches of a flat image and their means, in memory that is used again."""
    patches = block(workspace, name, starts.size, offsets.size, image.dtype)
    means = np.empty(starts.size, image.dtype)
    gather(image, starts, offsets, patches, means)
    return patches, means


def block(workspace: Workspace, name: str, n_rows: int, n: int, dtype: np.dtype) -> NDArray:
    """Memory for a block of patches or coefficients, used again by the same thread."""
    if name not in workspace:
        workspace[name] = np.empty((_BLOCK_PATCHES, n), dtype)
    return workspace[name][:n_rows]
