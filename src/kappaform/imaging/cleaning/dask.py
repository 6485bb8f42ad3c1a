"""The backend of Dask images: each tile is a chunk, with its margin from the neighbouring chunks.

The call computes the image three times: for its noise, for its extremes, and for the patches to
learn from, at every scale. The rest is done when the result is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import float_dtype
from kappaform.engines.dask import check_dask_array
from kappaform.imaging.cleaning.stages import Recipe
from kappaform.imaging.cleaning.tiles import (
    HostBackend,
    Outputs,
    cuts,
    ready_patches,
    sides_and_margins,
)
from kappaform.imaging.options import Quality
from kappaform.imaging.patches import DrawnPatches, Grid, grid_of, rows_at
from kappaform.imaging.progress import Progress
from kappaform.threads import at_most_threads, single_threaded_blas


def check_dask_image(image: Any, channel_axis: int | None) -> None:
    """Reject what needs the whole image in memory."""
    check_dask_array(image, "image")
    if channel_axis is not None:
        raise ValueError(
            f"channel_axis={channel_axis} with a Dask image: channels are decorrelated in memory "
            f"only, image.compute() brings all there; in denoise, stack_axis={channel_axis} "
            "denoises each on its own."
        )


class DaskBackend:
    """A Dask array, which is denoised to a Dask array."""

    def __init__(self, components: Sequence[Any]) -> None:
        (self.image,) = components  # channels are rejected

    def training_patches(
        self, _: int, rounds: DrawnPatches, patch_shape: tuple[int, ...], unit: float
    ) -> Iterator[NDArray]:
        """What `HostBackend` returns; the patches of all rounds are gathered at once."""
        rounds = list(rounds)
        for (grid, numbers), rows in zip(rounds, _gathered(self.image, rounds), strict=True):
            sides = (1,) * (3 - len(patch_shape)) + grid.patch_shape
            stacked = rows.reshape(-1, *sides[1:])  # patch above patch
            corners = np.zeros((len(numbers), 3), np.int64)
            corners[:, 0] = sides[0] * np.arange(len(numbers))
            shape = (1,) * (3 - len(patch_shape)) + patch_shape
            yield ready_patches(stacked, corners, sides, shape, unit)

    def denoised(self, recipes: Sequence[Recipe], quality: Quality, progress: Progress) -> Outputs:
        """Dask arrays, which are computed later: nothing is left to do in this call."""
        progress(1.0)
        from dask.array import map_overlap
        from dask.delayed import delayed

        layout = sides_and_margins(recipes[0].patch_shape)
        edges = [cuts(n, side) for n, (side, _) in zip(self.image.shape, layout, strict=True)]
        chunks = tuple(tuple(b - a for a, b in pairwise(along)) for along in edges)
        dtype = float_dtype(self.image.dtype)
        # Both results in one array: whoever wants both has them computed once.
        both = np.dtype([("image", dtype), ("counts", np.float32)])
        found = map_overlap(
            _denoised_chunk,
            self.image.rechunk(chunks),
            depth={a: margin for a, (_, margin) in enumerate(layout) if len(chunks[a]) > 1},
            boundary="none",
            job=delayed((recipes, quality), traverse=False),
            both=both,
            meta=np.empty((0,) * self.image.ndim, both),
        )
        return [found["image"]], [found["counts"]]


def _denoised_chunk(
    chunk: NDArray, job: tuple[Sequence[Recipe], Quality], both: np.dtype
) -> NDArray:
    whole = np.empty(chunk.shape, both)
    with at_most_threads(1), single_threaded_blas():
        found = HostBackend([chunk]).denoised_part((slice(None),) * chunk.ndim, *job)
    (whole["image"],), (whole["counts"],) = found
    return whole


def _gathered(image: Any, rounds: Sequence[tuple[Grid, NDArray]]) -> list[NDArray]:
    """For each round, patches of these numbers of a grid, from the chunks that hold them."""
    from dask.array.overlap import overlap
    from dask.base import compute

    sides = np.max([grid.patch_shape for grid, _ in rounds], axis=0).tolist()
    chunks = tuple(_merged(c, side - 1) for c, side in zip(image.chunks, sides, strict=True))
    beyond = {a: (0, side - 1) for a, side in enumerate(sides) if len(chunks[a]) > 1}
    blocks = overlap(image.rechunk(chunks), depth=beyond, boundary="none").to_delayed()
    bounds = [np.cumsum((0, *along)) for along in chunks]
    parts = [_parts(blocks, bounds, *each) for each in rounds]
    found = compute(*([patches for _, patches in each] for each in parts))
    gathered = []
    for (grid, numbers), each, arrays in zip(rounds, parts, found, strict=True):
        rows = np.empty((len(numbers), grid.offsets.size), image.dtype)
        for (which, _), patches in zip(each, arrays, strict=True):
            rows[which] = patches
        gathered.append(rows)
    return gathered


def _parts(
    blocks: NDArray, bounds: Sequence[NDArray], grid: Grid, numbers: NDArray
) -> list[tuple[NDArray, Any]]:
    """Which of some patches a block holds, and these, to be computed; for blocks that hold some."""
    from dask.delayed import delayed

    corners = np.stack(grid.corners(numbers), axis=1)
    owners = np.stack(
        [np.searchsorted(b, c, side="right") - 1 for b, c in zip(bounds, corners.T, strict=True)]
    )
    flat = np.ravel_multi_index(owners, blocks.shape)
    order = np.argsort(flat, kind="stable")
    parts = []
    for which in np.split(order, np.flatnonzero(np.diff(flat[order])) + 1):
        block = tuple(owners[:, which[0]])
        origin = [b[i] for b, i in zip(bounds, block, strict=True)]
        patches = delayed(_take)(blocks[block], corners[which] - origin, grid.patch_shape)
        parts.append((which, patches))
    return parts


def _take(chunk: NDArray, corners: NDArray, patch_shape: tuple[int, ...]) -> NDArray:
    """Patches of a chunk that begin at the given pixels, one per row."""
    grid = grid_of(chunk.shape, patch_shape)
    return rows_at(chunk, grid, np.ravel_multi_index(tuple(corners.T), grid.counts))


def _merged(chunks: tuple[int, ...], least: int) -> tuple[int, ...]:
    """Chunks merged with neighbours, so that none is empty or shorter than `least`, if possible."""
    least = max(least, 1)
    merged: list[int] = []
    for size in chunks:
        if merged and merged[-1] < least:
            merged[-1] += size
        else:
            merged.append(size)
    if len(merged) > 1 and merged[-1] < least:
        merged[-2:] = [merged[-2] + merged[-1]]
    return tuple(merged)
