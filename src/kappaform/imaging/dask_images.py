"""Denoising of Dask images: chunk by chunk, each with as much around it as its patches reach.

At the call an image is computed three times at most: for its noise, for its mean and limits, and
for the patches to learn from. The rest is done when the result is asked for.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.engines.dask_engine import check_dask_array
from kappaform.imaging.adaptive import learn_rounds, training_positions
from kappaform.imaging.axes import axis_order, given_or_estimated, with_stack
from kappaform.imaging.denoise import DenoiseResult
from kappaform.imaging.slabs import clean_slabs, precision_for, reach
from kappaform.imaging.sweep import PatchGrid
from kappaform.imaging.task import Task, make_task
from kappaform.learning import LearnResult
from kappaform.threads import at_most_threads, single_threaded_blas

#: A lazy image with its lazy numbers of coefficients, the transform used and how it was learned.
_Denoised = tuple[Any, Any, NDArray | None, list[LearnResult]]


def denoise_dask(
    image: Any,
    sigma: Any,
    *,
    channel_axis: int | None,
    stack_axis: int | None,
    preset: str | None,
    **options: Any,
) -> DenoiseResult:
    """`denoise_with_details` of a Dask array: image and sparsity map of the result are lazy."""
    _refuse_what_needs_it_whole(image, channel_axis, preset)
    order, _ = axis_order(image, None, stack_axis)
    stack = image.transpose(order) if stack_axis is not None else image[np.newaxis]
    task = make_task(stack.shape[1:], preset=None, sigma_given=sigma is not None, **options)
    sigmas = given_or_estimated(sigma, stack[..., np.newaxis])
    each = [
        _denoise_one(one, sigma, limits, task)
        for one, sigma, limits in zip(stack, sigmas[:, 0].tolist(), _limits(stack), strict=True)
    ]
    images, counts, transforms, histories = zip(*each, strict=True)
    if stack_axis is None:
        (cleaned,), (sparsity_map,) = images, counts
    else:
        cleaned = _stacked(images).transpose(np.argsort(order).tolist())
        sparsity_map = with_stack(_stacked(counts), order, None)
    return DenoiseResult(
        image=cleaned,
        sigma=float(sigmas[0, 0]) if sigmas.size == 1 else np.squeeze(sigmas),
        patch_shape=task.patch_shape,
        transforms=tuple(matrix for matrix in transforms if matrix is not None),
        sparsity_map=sparsity_map,
        history=tuple(result for history in histories for result in history),
    )


def _refuse_what_needs_it_whole(image: Any, channel_axis: int | None, preset: str | None) -> None:
    check_dask_array(image, "image")
    if channel_axis is not None:
        raise ValueError(
            f"channel_axis={channel_axis} with a Dask image: channels are decorrelated in memory "
            f"only; stack_axis={channel_axis} denoises each on its own, image.compute() brings all "
            "into memory."
        )
    if preset is not None:
        raise ValueError(
            f"preset={preset!r} with a Dask image: the settings of the paper are for images in "
            "memory, image.compute()."
        )


def _limits(stack: Any) -> list[tuple[float, float, float]]:
    """Lowest value, highest value and mean of every image."""
    from dask.base import compute

    space = tuple(range(1, stack.ndim))
    found = compute(stack.min(space), stack.max(space), stack.mean(space, dtype=np.float64))
    if not np.isfinite(found[:2]).all():
        raise ValueError("image contains NaN or inf: fill such pixels first.")
    return list(zip(*(values.astype(np.float64).tolist() for values in found), strict=True))


def _denoise_one(
    image: Any, sigma: float, limits: tuple[float, float, float], task: Task
) -> _Denoised:
    lowest, highest, centre = limits
    dtype = image.dtype if image.dtype.kind == "f" else np.dtype(np.float64)
    if sigma == 0 or lowest == highest:
        return image.astype(dtype), (0 * image).astype(np.float32), None, []
    history: list[LearnResult] = []
    transform = task.transform
    if transform is None:
        positions = list(training_positions(image.shape, task.patch_shape, task.rng))
        drawn = _patches_at(image, task.patch_shape, positions)
        history = learn_rounds(drawn, sigma, task.patch_shape, task.method, task.callback)
        transform = history[-1].transform
    cleaned = _cleaned(
        image,
        transform,
        _result_type(dtype),
        patch_shape=task.patch_shape,
        sigma=sigma,
        centre=centre,
        dtype=precision_for(lowest, highest, centre, sigma),
        value_range=task.value_range,
    )
    return cleaned["image"], cleaned["counts"], transform, history


def _cleaned(image: Any, transform: NDArray, result_type: np.dtype, **settings: Any) -> Any:
    """Pixels of the cleaned image, each with its number of coefficients."""
    from dask.array import map_overlap
    from dask.delayed import delayed

    # Chunks have the neighbours that patches reach, so they must not be smaller than that.
    depths = reach(settings["patch_shape"])
    chunks = tuple(map(_merged, image.chunks, depths))
    return map_overlap(
        _clean_chunk,
        image.rechunk(chunks),
        depth={axis: d for axis, d in enumerate(depths) if len(chunks[axis]) > 1},
        boundary="none",
        transform=delayed(transform),
        result_type=result_type,
        settings=settings,
        meta=np.empty((0,) * image.ndim, result_type),
    )


def _clean_chunk(
    chunk: NDArray, transform: NDArray, result_type: np.dtype, settings: dict[str, Any]
) -> NDArray:
    cleaned = np.empty(chunk.shape, result_type)
    with at_most_threads(1), single_threaded_blas():
        clean_slabs(chunk, cleaned["image"], cleaned["counts"], transform=transform, **settings)
    return cleaned


def _result_type(dtype: np.dtype) -> np.dtype:
    """Both results of cleaning in one array: whoever wants both has them cleaned once."""
    return np.dtype([("image", dtype), ("counts", np.float32)])


def _patches_at(image: Any, patch_shape: tuple[int, ...], rounds: list[NDArray]) -> list[NDArray]:
    """`sweep.patches_at` of a Dask image for several sets of positions, gathered at once."""
    from dask.array.overlap import overlap
    from dask.base import compute
    from dask.delayed import delayed

    grid = PatchGrid(image.shape, patch_shape)
    places = np.stack(np.unravel_index(np.concatenate(rounds), grid.positions), axis=1)
    chunks = tuple(_merged(c, p - 1) for c, p in zip(image.chunks, patch_shape, strict=True))
    beyond = {a: (0, p - 1) for a, p in enumerate(patch_shape) if len(chunks[a]) > 1}
    blocks = overlap(image.rechunk(chunks), depth=beyond, boundary="none").to_delayed()
    bounds = [np.cumsum((0, *along)) for along in chunks]
    owners = np.stack(
        [np.searchsorted(b, p, side="right") - 1 for b, p in zip(bounds, places.T, strict=True)]
    )
    flat = np.ravel_multi_index(owners, blocks.shape)
    order = np.argsort(flat, kind="stable")
    found, gathered = [], np.empty((len(flat), grid.n_features), image.dtype)
    groups = np.split(order, np.flatnonzero(np.diff(flat[order])) + 1)
    for group in groups:
        block = tuple(owners[:, group[0]])
        corner = [b[i] for b, i in zip(bounds, block, strict=True)]
        found.append(delayed(_take)(blocks[block], places[group] - corner, patch_shape))
    for group, patches in zip(groups, compute(*found), strict=True):
        gathered[group] = patches
    cuts = np.cumsum([0, *map(len, rounds)])
    return [_mean_free(gathered[start:stop]) for start, stop in pairwise(cuts)]


def _take(chunk: NDArray, corners: NDArray, patch_shape: tuple[int, ...]) -> NDArray:
    """Patches of a chunk that begin at the given pixels, one per row."""
    offsets = PatchGrid(chunk.shape, patch_shape).offsets
    starts = np.ravel_multi_index(tuple(corners.T), chunk.shape)
    return chunk.reshape(-1)[starts[:, np.newaxis] + offsets]


def _mean_free(patches: NDArray) -> NDArray:
    values = patches.astype(np.float64)
    return values - values.mean(axis=1, keepdims=True)


def _merged(chunks: tuple[int, ...], least: int) -> tuple[int, ...]:
    """Neighbours put together, so that no chunk is empty or shorter than `least`, if possible."""
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


def _stacked(arrays: Any) -> Any:
    from dask.array import stack

    return stack(arrays)
