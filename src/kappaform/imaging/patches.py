"""Images as overlapping patches, and back.

Patches are the rows of a matrix, in C order of their places. Each is flattened in C order, with the
channels, if any, last. `kappaform.imaging.grid` says where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from kappaform.arrays import as_real_array
from kappaform.engines.blocks import block_rows, split_rows
from kappaform.imaging.grid import Grid, Size, boxes, lay_out, selection

Array = npt.NDArray[Any]


def extract_patches(
    image: npt.ArrayLike,
    patch_size: Size,
    stride: Size = 1,
    *,
    channel_axis: int | None = None,
) -> Array:
    """All patches of an image, one per row.

    With stride <= patch_size, `average_patches` undoes it:
    ``average_patches(extract_patches(x, p), x.shape, p) == x`` for every x and p, patch as large as
    the image included. Whatever the stride, `sum_patches` is its adjoint:
    ``vdot(extract_patches(x, p), P) == vdot(x, sum_patches(P, x.shape, p))``.

    Parameters
    ----------
    image : array of any number of dimensions
    patch_size : int or tuple of int
        Along every axis, or one for each axis but that of the channels.
    stride : int or tuple of int
        From one patch to the next. The last patch that fits is always included.
    channel_axis : int, optional
        The axis of the channels, all of which belong to a patch, last in its flattened order.

    Returns
    -------
    array of shape (m, n)
        Patches in C order of their places, flattened in C order: all in memory, about patch_size /
        stride along every axis as large as the image. Floats keep their dtype, integers become
        float64.

    See Also
    --------
    average_patches : the way back.
    kappaform.imaging.iterate_patches : the same rows, a block at a time.
    """
    image = as_real_array(image, "image")
    grid = lay_out(image.shape, patch_size, stride, channel_axis)
    windows = _windows(image, grid, channel_axis)
    return _rows(windows, grid, slice(0, math.prod(grid.shape)))


def iterate_patches(
    image: npt.ArrayLike,
    patch_size: Size,
    stride: Size = 1,
    *,
    channel_axis: int | None = None,
    max_patches: int | None = None,
) -> Iterator[tuple[slice, Array]]:
    """Blocks of the rows of `extract_patches`, in order, each with its slice of row numbers.

    A block has `max_patches` rows (by default about 1 MB), the last one fewer. Then
    ``average_patches((f(block) for _, block in iterate_patches(x, p)), x.shape, p)`` never has more
    than one block in memory.
    """
    if max_patches is not None and max_patches < 1:
        raise ValueError(f"max_patches={max_patches} is less than 1: a block has a patch or more.")
    image = as_real_array(image, "image")
    grid = lay_out(image.shape, patch_size, stride, channel_axis)
    windows = _windows(image, grid, channel_axis)
    n_features = math.prod(grid.patch) * grid.n_channels
    length = max_patches or block_rows(n_features, _float_dtype(image.dtype))
    blocks = split_rows(0, math.prod(grid.shape), length)
    return ((rows, _rows(windows, grid, rows)) for rows in blocks)


def average_patches(
    patches: npt.ArrayLike | Iterator[npt.ArrayLike],
    shape: Sequence[int],
    patch_size: Size,
    stride: Size = 1,
    weights: npt.ArrayLike | None = None,
    *,
    channel_axis: int | None = None,
) -> Array:
    r"""Image whose pixels are the averages of all that patches say of them.

    .. math:: \arg\min_x \sum_i w_i \|R_i x - p_i\|^2
              = \Big(\sum_i w_i R_i^T R_i\Big)^{-1} \sum_i w_i R_i^T p_i

    where row i of ``extract_patches(x, ...)`` is R_i x. The matrix is diagonal.

    Parameters
    ----------
    patches : array of shape (m, n), or iterator of its blocks of rows in order
        As `extract_patches` arranges them.
    shape : tuple of int
        Shape of the image, with its channels.
    patch_size, stride, channel_axis
        As given to `extract_patches`.
    weights : array of shape (m,), optional
        How much each patch counts: 0 or more, with a positive one over every pixel.

    Returns
    -------
    array of shape `shape`
        Sums are in float64; floats keep their dtype, integers become float64.

    See Also
    --------
    extract_patches, kappaform.imaging.sum_patches
    """
    grid = lay_out(shape, patch_size, stride, channel_axis)
    if weights is None:
        totals = _coverage(np.ones(grid.shape), grid)
        remedy = f"stride={stride} must not exceed patch_size={patch_size}"
    else:
        weights = _as_weights(weights, math.prod(grid.shape))
        totals = _coverage(weights.reshape(grid.shape), grid)
        remedy = "weights must be positive for at least one of the patches over it"
    if not totals.all():
        pixel = tuple(map(int, np.argwhere(totals == 0)[0]))
        raise ValueError(f"pixel {pixel} is in no patch that counts: {remedy}.")
    image, dtype = _summed(patches, grid, weights)
    image /= totals
    return _finished(image, dtype, channel_axis)


def sum_patches(
    patches: npt.ArrayLike | Iterator[npt.ArrayLike],
    shape: Sequence[int],
    patch_size: Size,
    stride: Size = 1,
    *,
    channel_axis: int | None = None,
) -> Array:
    r"""Image whose pixels are the sums of all that patches say of them: :math:`\sum_i R_i^T p_i`.

    The adjoint of `extract_patches`; arguments as for `average_patches`.
    """
    grid = lay_out(shape, patch_size, stride, channel_axis)
    image, dtype = _summed(patches, grid)
    return _finished(image, dtype, channel_axis)


def _windows(image: Array, grid: Grid, channel_axis: int | None) -> Array:
    """View of shape (everywhere a patch fits, patch, channels)."""
    last = image[..., np.newaxis] if channel_axis is None else np.moveaxis(image, channel_axis, -1)
    n_axes = len(grid.axes)
    windows = sliding_window_view(last, grid.patch, axis=tuple(range(n_axes)))
    return np.moveaxis(windows, n_axes, -1)


def _rows(windows: Array, grid: Grid, rows: slice) -> Array:
    """The patches of these numbers, as rows."""
    patch = (*grid.patch, grid.n_channels)
    patches = np.empty((rows.stop - rows.start, *patch), _float_dtype(windows.dtype))
    for part, box in boxes(rows.start, rows.stop, grid.shape):
        found = windows[selection(grid.starts(box))]
        patches[part].reshape(found.shape)[...] = found
    return patches.reshape(len(patches), -1)


def _summed(
    patches: npt.ArrayLike | Iterator[npt.ArrayLike],
    grid: Grid,
    weights: Array | None = None,
) -> tuple[Array, np.dtype]:
    """Weighted sum of patches as an image with its channels first, and the dtype of the patches."""
    features = (*grid.patch, grid.n_channels)
    n_features, n_patches = math.prod(features), math.prod(grid.shape)
    image = np.zeros((grid.n_channels, *grid.axes))
    dtype, done = np.dtype(np.float64), 0
    for block in _blocks(patches, n_features):
        if done == 0:
            dtype = _float_dtype(block.dtype)
        done += len(block)
        if done > n_patches:
            break
        # Columns, because an offset within the patch is a shift of the whole image.
        columns = np.array(block.T, dtype=np.float64, order="C")
        if weights is not None:
            columns *= weights[done - len(block) : done]
        for part, box in boxes(done - len(block), done, grid.shape):
            starts = grid.starts(box)
            chosen, shape = selection(starts), [len(places) for places in starts]
            for column, (*offset, channel) in zip(columns, np.ndindex(features), strict=True):
                shifted = image[(channel, *(slice(i, None) for i in offset))]
                shifted[chosen] += column[part].reshape(shape)
    if done != n_patches:
        raise ValueError(
            f"patches has {'more than ' * (done > n_patches)}{min(done, n_patches)} rows: this "
            f"image, patch_size and stride have {n_patches} patches."
        )
    return image, dtype


def _blocks(patches: Any, n_features: int) -> Iterator[Array]:
    """Blocks of rows small enough to be copied, whether one array is given or an iterator."""
    length = block_rows(n_features, np.dtype(np.float64))
    for given in patches if isinstance(patches, Iterator) else [patches]:
        block = as_real_array(given, "patches")
        if block.ndim != 2 or block.shape[1] != n_features:
            raise ValueError(
                f"patches has shape {block.shape}: it must be 2-D with {n_features} columns, one "
                "for each pixel and channel of a patch."
            )
        yield from (block[rows] for rows in split_rows(0, len(block), length))


def _coverage(weights: Array, grid: Grid) -> Array:
    """Sum of the weights of the patches over each pixel: one axis after the other."""
    for axis, (places, size) in enumerate(zip(grid.positions, grid.patch, strict=True)):
        along = np.moveaxis(weights, axis, 0)
        total = np.zeros((grid.axes[axis], *along.shape[1:]))
        for offset in range(size):
            total[offset:][selection([places])] += along
        weights = np.moveaxis(total, 0, axis)
    return weights


def _as_weights(values: npt.ArrayLike, n_patches: int) -> Array:
    weights = as_real_array(values, "weights")
    if weights.shape != (n_patches,):
        raise ValueError(
            f"weights has shape {weights.shape}: it must have one entry for each of the "
            f"{n_patches} patches."
        )
    bad = ~((weights >= 0) & np.isfinite(weights))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"weights[{first}]={weights[first]}: each must be finite and 0 or more.")
    return weights.astype(np.float64, copy=False)


def _finished(image: Array, dtype: np.dtype, channel_axis: int | None) -> Array:
    arranged = image[0] if channel_axis is None else np.moveaxis(image, 0, channel_axis)
    return np.ascontiguousarray(arranged, dtype=dtype)


def _float_dtype(dtype: np.dtype) -> np.dtype:
    return dtype if dtype.kind == "f" else np.dtype(np.float64)
