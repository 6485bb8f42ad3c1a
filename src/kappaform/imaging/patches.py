"""Images as overlapping patches, and back.

Patches are the rows of a matrix, in C order of their positions. Each is flattened in C order, with
the channels, if any, last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import index
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from kappaform.checks import Array, as_real_array, check_axis, float_dtype
from kappaform.imaging.masks import is_nan, pixels_and_missing

Size = int | Sequence[int]

_BLOCK_BYTES = 2**20  # of the patches that are added at once: they stay in the cache


class Grid(NamedTuple):
    """Positions of the patches of an image, as indices of the flattened image.

    Along each axis a patch starts at 0, stride, 2 * stride, ... and at the last position where it
    fits, so that with stride <= patch size every pixel is covered. Patches are numbered in C order.
    """

    shape: tuple[int, ...]  # of the image without its channels
    patch_shape: tuple[int, ...]
    n_channels: int
    places: tuple[Array, ...]  # where patches start, for each axis
    offsets: Array  # of the pixels of a patch from its first one, in the flattened image

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of patches along each axis."""
        return tuple(map(len, self.places))

    @property
    def n_patches(self) -> int:
        return math.prod(self.counts)

    def corners(self, numbers: Array) -> tuple[Array, ...]:
        """First pixels of the patches of these numbers, one index for each axis."""
        indices = np.unravel_index(numbers, self.counts)
        return tuple(places[i] for places, i in zip(self.places, indices, strict=True))

    def starts(self, numbers: Array) -> Array:
        """The same as indices of the flattened image."""
        return self.n_channels * np.ravel_multi_index(self.corners(numbers), self.shape)

    def overlaps(self, weights: Array | None = None) -> Array:
        """Number of patches over each pixel, or the sum of their weights: axis by axis."""
        totals = np.ones((1,) * len(self.shape)) if weights is None else weights
        for axis, (places, side) in enumerate(zip(self.places, self.patch_shape, strict=True)):
            along = np.moveaxis(totals, axis, 0)
            total = np.zeros((self.shape[axis], *along.shape[1:]))
            for offset in range(side):
                total[places + offset] += along
            totals = np.moveaxis(total, 0, axis)
        return totals


#: For each round of learning a grid, and the numbers of the patches of it that are drawn.
DrawnPatches = Iterable[tuple[Grid, Array]]


def places_within(patch_shape: Sequence[int], sides: Sequence[int]) -> Array:
    """Numbers of the pixels of a patch that a smaller one in its corner has."""
    numbers: Array = np.ravel_multi_index(tuple(np.indices(sides)), tuple(patch_shape)).ravel()
    return numbers


def grid_of(
    shape: tuple[int, ...],
    patch_shape: tuple[int, ...],
    stride: tuple[int, ...] | None = None,
    n_channels: int = 1,
) -> Grid:
    """The grid of patches that fit; without a stride, at every pixel."""
    places = []
    for size, side, step in zip(shape, patch_shape, stride or (1,) * len(shape), strict=True):
        last = size - side
        along = np.arange(0, last + 1, step)
        places.append(along if along[-1] == last else np.append(along, last))
    within = np.ravel_multi_index(np.indices(patch_shape), shape).ravel()
    offsets = (n_channels * within[:, np.newaxis] + np.arange(n_channels)).ravel()
    return Grid(shape, patch_shape, n_channels, tuple(places), offsets)


def mean_free(patches: Any) -> Any:
    """Patches (rows of an array or a tensor) whose means are subtracted in place."""
    patches -= patches.mean(axis=1, keepdims=True)
    return patches


def rows_at(image: Array, grid: Grid, numbers: Array | None = None) -> Array:
    """Patches of these numbers, or all, of an image whose channels, if any, are last."""
    n_axes = len(grid.shape)
    windows = sliding_window_view(image, grid.patch_shape, axis=tuple(range(n_axes)))
    if image.ndim > n_axes:
        windows = np.moveaxis(windows, n_axes, -1)
    if numbers is not None:
        patches = windows[grid.corners(numbers)]
    elif windows.shape[:n_axes] == grid.counts:  # all of them, without an index: faster
        patches = windows.copy()
    else:
        patches = windows[np.ix_(*grid.places)]
    return patches.reshape(-1, grid.offsets.size)


def patches_at(image: Array, grid: Grid, numbers: Array) -> Array:
    """Mean-free patches of these numbers, float64."""
    return mean_free(rows_at(image, grid, numbers).astype(np.float64, copy=False))


def random_patches(
    image: Array, side: int, n_patches: int, rng: np.random.Generator, *, in_order: bool = False
) -> Array:
    """At most `n_patches` different mean-free square patches, in random order or `in_order`."""
    grid = grid_of(image.shape, (side, side))
    numbers = rng.choice(grid.n_patches, min(n_patches, grid.n_patches), replace=False)
    return patches_at(image, grid, np.sort(numbers) if in_order else numbers)


def extract_patches(
    image: npt.ArrayLike,
    patch_size: Size,
    stride: Size = 1,
    *,
    channel_axis: int | None = None,
    mask: npt.ArrayLike | Literal["nan"] | None = None,
) -> Array:
    """All patches of an image, one per row; with a mask, those without missing pixels.

    With stride <= patch_size, `average_patches` undoes it, unless patches are left out:
    ``average_patches(extract_patches(x, p), x.shape, p) == x`` for every x and p, patch as large as
    the image included.

    Parameters
    ----------
    image : array of any number of dimensions
    patch_size : int or tuple of int
        Side along every axis, or one for each axis except that of the channels.
    stride : int or tuple of int
        Step from one patch to the next. The last patch that fits is always included.
    channel_axis : int, optional
        The axis of the channels, all of which belong to a patch, last in its flattened order.
    mask : array of bool, or "nan", optional
        True where pixels are missing (or "nan": NaN are); also the masked entries of a masked
        array. Patches with such a pixel are left out.

    Returns
    -------
    array of shape (m, n)
        Patches in C order of their positions, flattened in C order. All are in memory: along every
        axis about patch_size / stride times the size of the image. Floats keep their dtype,
        integers become float64.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> kf.extract_patches(np.arange(16).reshape(4, 4), 2, stride=2)[0]
    array([0., 1., 4., 5.])
    """
    missing: Array | None = None
    if mask is None:
        array = as_real_array(image, "image")
    else:
        check_axis(channel_axis, np.shape(image), "channel_axis")
        named, nan = (channel_axis,), is_nan(mask)
        array, missing = pixels_and_missing(image, None if nan else mask, named, nan)
    grid = _checked_grid(array.shape, patch_size, stride, channel_axis)
    if channel_axis is not None:
        array = np.moveaxis(array, channel_axis, -1)
        if missing is not None:
            missing = np.asarray(missing.any(axis=channel_axis))
    numbers = None if missing is None else complete_patches(~missing, grid)
    return rows_at(array, grid, numbers).astype(float_dtype(array.dtype), copy=False)


def complete_patches(known: Array, grid: Grid) -> Array:
    """Numbers of the patches of which every pixel (with all its channels) is known."""
    complete = known
    for axis, side in enumerate(grid.patch_shape):
        complete = np.asarray(sliding_window_view(complete, side, axis).all(axis=-1))
    return np.flatnonzero(complete[np.ix_(*grid.places)])


def average_patches(
    patches: npt.ArrayLike | Iterator[npt.ArrayLike],
    shape: Sequence[int],
    patch_size: Size,
    stride: Size = 1,
    weights: npt.ArrayLike | None = None,
    *,
    channel_axis: int | None = None,
) -> Array:
    r"""Image whose pixels are the weighted means of the patches over them.

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
        Weight of each patch: 0 or more, with a positive one over every pixel.

    Returns
    -------
    array of shape `shape`
        Sums are in float64; floats keep their dtype, integers become float64.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> image = np.arange(30.0).reshape(5, 6)
    >>> patches = kf.extract_patches(image, 3)
    >>> np.allclose(kf.average_patches(patches, image.shape, 3), image)
    True
    """
    grid = _checked_grid(shape, patch_size, stride, channel_axis)
    if weights is None:
        remedy = f"stride={stride} must not exceed patch_size={patch_size}"
    else:
        weights = _checked_weights(weights, grid)
        remedy = "weights must be positive for at least one of the patches over it"
    totals = grid.overlaps(weights)
    if not totals.all():
        pixel = tuple(map(int, np.argwhere(totals == 0)[0]))
        raise ValueError(f"pixel {pixel} is in no patch that counts: {remedy}.")
    image, dtype = _summed(patches, grid, weights)
    image /= totals[..., np.newaxis]
    arranged = image[..., 0] if channel_axis is None else np.moveaxis(image, -1, channel_axis)
    return np.ascontiguousarray(arranged, dtype=dtype)


def per_axis(value: Size, n_axes: int, name: str) -> tuple[int, ...]:
    """One integer for each axis, from an argument of the user."""
    given = value if isinstance(value, Sequence) else [value] * n_axes
    try:
        values = tuple(map(index, given))
        are_integers = not any(isinstance(each, bool) for each in given)
    except TypeError:
        are_integers = False
    if not are_integers:
        raise TypeError(f"{name}={value!r} is not an integer or a tuple of integers.")
    if len(values) != n_axes:
        raise ValueError(
            f"{name}={value} has {len(values)} entries: give one integer, or one for each of the "
            f"{n_axes} axes (a channel_axis not counted)."
        )
    if min(values) < 1:
        raise ValueError(f"{name}={value} is too small: every entry must be at least 1.")
    return values


def checked_patch_shape(
    patch_size: Size, space: tuple[int, ...], remedy: str = ""
) -> tuple[int, ...]:
    """Shape of the patches of an image, from an argument of the user."""
    patch_shape = per_axis(patch_size, len(space), "patch_size")
    if any(side > size for side, size in zip(patch_shape, space, strict=True)):
        raise ValueError(
            f"patch_size={patch_size} is larger than the image: give at most {space}{remedy}."
        )
    return patch_shape


def _checked_grid(
    shape: Sequence[int], patch_size: Size, stride: Size, channel_axis: int | None
) -> Grid:
    try:
        space = list(map(index, shape))
    except TypeError:
        raise TypeError(f"shape={shape!r} is not a tuple of integers.") from None
    check_axis(channel_axis, shape, "channel_axis")
    n_channels = 1 if channel_axis is None else space.pop(channel_axis)
    if not space or 0 in shape:
        raise ValueError(f"image has shape {shape}: at least one axis and one pixel are needed.")
    colour = {-1: space[-1], 0: space[0]} if channel_axis is None and len(space) == 3 else {}
    axes = [axis for axis, size in colour.items() if size in (3, 4)]
    remedy = f"; if it has colours, give channel_axis={axes[0]}" if axes else ""
    patch_shape = checked_patch_shape(patch_size, tuple(space), remedy)
    steps = per_axis(stride, len(space), "stride")
    return grid_of(tuple(space), patch_shape, steps, n_channels)


def _summed(patches: Any, grid: Grid, weights: Array | None) -> tuple[Array, np.dtype]:
    """Image (channels last) that is the weighted sum of patches, and the dtype of the average."""
    image = np.zeros(math.prod(grid.shape) * grid.n_channels)
    dtype, done = np.dtype(np.float64), 0
    for block in _given_blocks(patches, grid):
        dtype = dtype if done else float_dtype(block.dtype)
        rows = slice(done, done + len(block))
        done = rows.stop
        if done > grid.n_patches:
            break
        starts = grid.starts(np.arange(rows.start, rows.stop))
        columns = np.array(block.T, dtype=np.float64, order="C")
        if weights is not None:
            columns *= weights.reshape(-1)[rows]
        for column, offset in zip(columns, grid.offsets, strict=True):
            image[starts + offset] += column  # each pixel once: patches differ in their starts
    if done != grid.n_patches:
        raise ValueError(
            f"patches has {'more than ' * (done > grid.n_patches)}{min(done, grid.n_patches)} "
            f"rows: this image, patch_size and stride have {grid.n_patches} patches."
        )
    return image.reshape(*grid.shape, grid.n_channels), dtype


def _given_blocks(patches: Any, grid: Grid) -> Iterator[Array]:
    """Blocks of rows small enough to be copied, whether one array is given or an iterator."""
    n_features = grid.offsets.size
    length = max(1, _BLOCK_BYTES // (8 * n_features))
    for given in patches if isinstance(patches, Iterator) else [patches]:
        block = as_real_array(given, "patches")
        if block.ndim != 2 or block.shape[1] != n_features:
            raise ValueError(
                f"patches has shape {block.shape}: it must be 2-D with {n_features} columns, one "
                "for each pixel and channel of a patch."
            )
        yield from (block[start : start + length] for start in range(0, len(block), length))


def _checked_weights(values: npt.ArrayLike, grid: Grid) -> Array:
    """One weight for each patch, in the shape of the grid."""
    weights = as_real_array(values, "weights")
    if weights.shape != (grid.n_patches,):
        raise ValueError(
            f"weights has shape {weights.shape}: it must have one entry for each of the "
            f"{grid.n_patches} patches."
        )
    bad = ~((weights >= 0) & np.isfinite(weights))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"weights[{first}]={weights[first]}: each must be finite and 0 or more.")
    return weights.astype(np.float64, copy=False).reshape(grid.counts)
