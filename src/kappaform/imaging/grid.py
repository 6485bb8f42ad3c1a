"""Where the patches of an image lie.

Along each axis a patch starts at 0, stride, 2 * stride, ... and at the last place where it fits, so
that with stride <= patch_size every pixel is covered. Patches are numbered in C order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Size = int | Sequence[int]


class Grid(NamedTuple):
    """Places of patches: every combination of a start for each axis."""

    axes: tuple[int, ...]  # shape of the image without its channels
    n_channels: int  # 1 if the image has no axis of channels
    patch: tuple[int, ...]
    positions: list[Array]  # where patches start, for each axis

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of patches along each axis."""
        return tuple(map(len, self.positions))

    def starts(self, box: tuple[slice, ...]) -> list[Array]:
        """Where the patches of a box of the grid start, for each axis."""
        return [places[run] for places, run in zip(self.positions, box, strict=True)]


def lay_out(shape: Sequence[int], patch_size: Size, stride: Size, channel_axis: int | None) -> Grid:
    """The grid of an image's patches, from arguments of the user."""
    try:
        shape = tuple(map(index, shape))
    except TypeError:
        raise TypeError(f"shape={shape!r} is not a tuple of integers.") from None
    axes, n_channels = list(shape), 1
    if channel_axis is not None:
        if not -len(axes) <= channel_axis < len(axes):
            raise ValueError(
                f"channel_axis={channel_axis} is no axis of an image of shape {shape}."
            )
        n_channels = axes.pop(channel_axis)
    if not axes or 0 in shape:
        raise ValueError(f"image has shape {shape}: at least one axis and one pixel are needed.")
    patch = per_axis(patch_size, len(axes), "patch_size")
    steps = per_axis(stride, len(axes), "stride")
    if any(p > length for p, length in zip(patch, axes, strict=True)):
        raise ValueError(
            f"patch_size={patch_size} exceeds an image of shape {shape}: "
            f"a patch has at most the shape {tuple(axes)}."
        )
    positions = []
    for length, p, step in zip(axes, patch, steps, strict=True):
        last = length - p
        places = np.arange(0, last + 1, step)
        positions.append(places if places[-1] == last else np.append(places, last))
    return Grid(tuple(axes), n_channels, patch, positions)


def per_axis(value: Size, n_axes: int, name: str) -> tuple[int, ...]:
    """One integer for each axis, from an argument of the user."""
    try:
        values = (
            tuple(map(index, value)) if isinstance(value, Sequence) else (index(value),) * n_axes
        )
    except TypeError:
        raise TypeError(f"{name}={value!r} is not an integer or a tuple of integers.") from None
    if len(values) != n_axes:
        raise ValueError(
            f"{name}={value} has {len(values)} entries: give one integer, or one for each of the "
            f"{n_axes} axes (a channel_axis not counted)."
        )
    if min(values) < 1:
        raise ValueError(f"{name}={value} is too small: every entry must be at least 1.")
    return values


def boxes(
    start: int, stop: int, grid: tuple[int, ...]
) -> Iterator[tuple[slice, tuple[slice, ...]]]:
    """Cut start, ..., stop - 1 into runs that are boxes of the grid: at most 2 d - 1 of them.

    Each comes as its slice of the range and its slices of the grid.
    """
    sizes = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]  # of one step along an axis
    at = start
    while at < stop:
        fits = (at % size == 0 and at + size <= stop for size in sizes)
        axis = list(fits).index(True)
        place = [at // size % length for size, length in zip(sizes, grid, strict=True)]
        count = min((stop - at) // sizes[axis], grid[axis] - place[axis])
        box = [slice(i, i + 1) for i in place[:axis]]
        box += [slice(place[axis], place[axis] + count), *map(slice, grid[axis + 1 :])]
        end = at + count * sizes[axis]
        yield slice(at - start, end - start), tuple(box)
        at = end


def selection(starts: list[Array]) -> tuple[Any, ...]:
    """Index of every combination of these places: slices, unless a last place is out of step."""
    slices = []
    for places in starts:
        first, last = int(places[0]), int(places[-1])
        step = int(places[1]) - first if len(places) > 1 else 1
        if first + step * (len(places) - 1) != last:
            return np.ix_(*starts)
        slices.append(slice(first, last + 1, step))
    return tuple(slices)
