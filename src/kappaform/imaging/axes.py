"""An image as given: which axes are space, channels and a stack, and its extreme values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import check_axis, library_of, representable
from kappaform.errors import warn

ANY_VALUE = (-math.inf, math.inf)


class Axes(NamedTuple):
    """Where the stack and the channels are in an image that has been given the axes that it lacks.

    The stack of a movie is one image, whose first axis of space is that of the frames.
    """

    stack: int
    channel: int
    added: tuple[int, ...]
    movie: bool = False

    @property
    def named_stack(self) -> int | None:
        """The axis of the stack in the image as given, if it has one."""
        return None if 0 in self.added else self.stack

    def to_stack(self, image: Any) -> Any:
        """The image as (images, *space, channels), one of each where it has none."""
        image = np.expand_dims(image, self.added)
        stack = np.moveaxis(image, (self.stack, self.channel), (0, -1))
        return stack[np.newaxis] if self.movie else stack

    def from_stack(self, stack: Any) -> Any:
        """The inverse of `to_stack`."""
        stack = stack[0] if self.movie else stack
        image = np.moveaxis(stack, (0, -1), (self.stack, self.channel))
        return np.squeeze(image, self.added)

    def map_from_stack(self, maps: Any) -> Any:
        """The same for maps (images, *space), which have no channels."""
        without = self._replace(added=tuple({*self.added, self.channel}))
        return without.from_stack(maps[..., np.newaxis])


def checked_axes(
    shape: Sequence[int],
    channel_axis: int | None,
    stack_axis: int | None = None,
    movie: bool = False,
) -> Axes:
    """The axes of an image of 2 or 3 dimensions of space."""
    check_axis(channel_axis, shape, "channel_axis")
    check_axis(stack_axis, shape, "stack_axis")
    named = [axis % len(shape) for axis in (stack_axis, channel_axis) if axis is not None]
    if len(named) > len(set(named)):
        raise ValueError(f"channel_axis and stack_axis are the same axis, {channel_axis}.")
    space = [axis for axis in range(len(shape)) if axis not in named]
    if 0 in shape:
        raise ValueError(
            f"image has shape {tuple(shape)}: axis {list(shape).index(0)} is empty; give at least "
            "one pixel."
        )
    if len(shape) == 2 and channel_axis is not None and stack_axis is None:
        raise ValueError(
            "image has 2 axes, and channel_axis takes one of them: omit channel_axis for a grey "
            "image."
        )
    if len(space) not in (2, 3):
        raise ValueError(
            f"image has shape {tuple(shape)}, {len(space)} dimensions of space: 2 or 3 are needed; "
            "name other axes by channel_axis or stack_axis."
        )
    if channel_axis is None:
        check_not_colour(shape, space)
    elif shape[channel_axis] > _MOST_COLOURS:
        _warn_about_channels(shape, channel_axis, space)
    n_axes = len(space) + 2
    first, last = stack_axis is None, channel_axis is None  # added there
    added = (0,) * first + (n_axes - 1,) * last
    stack = 0 if stack_axis is None else stack_axis % len(shape)
    channel = n_axes - 1 if channel_axis is None else channel_axis % len(shape) + first
    return Axes(stack, channel, added, movie)


_MOST_COLOURS = 31  # multispectral cameras have up to about 30; more may be rows or columns


def _warn_about_channels(shape: Sequence[int], channel_axis: int, space: Sequence[int]) -> None:
    """Warn if another axis at either end looks more like that of the colours."""
    for axis, name, given in ((len(shape) - 1, "last", -1), (0, "first", 0)):
        if axis in space and shape[axis] in (3, 4):
            warn(
                f"channel_axis={channel_axis} has {shape[channel_axis]} entries and the {name} "
                f"axis {shape[axis]}: is channel_axis={given} meant?"
            )
            return


def looks_like_colour(shape: Sequence[int]) -> bool:
    """Whether three axes look like those of an image and its colours."""
    return shape[2] in (3, 4) and min(shape[:2]) > 4


def check_not_colour(shape: Sequence[int], space: Sequence[int]) -> None:
    """Reject three axes of space of which the last looks like colours; warn about the first."""
    if len(space) != 3:
        return
    first, middle, last = (shape[axis] for axis in space)
    if looks_like_colour((first, middle, last)):
        raise ValueError(
            f"image has shape {tuple(shape)}, which looks like colour: give channel_axis=-1 (or "
            "stack_axis=-1 for unrelated images); for a volume with so few slices, move that axis "
            "to the front."
        )
    if first in (3, 4) and min(middle, last) > 4:
        axis = space[0]
        warn(
            f"image has shape {tuple(shape)} and is taken for a volume of {first} slices: for "
            f"colours give channel_axis={axis}, for unrelated images stack_axis={axis}."
        )


# --- Extreme values

_LARGEST_VALUE = 1e300  # sums over a patch stay within float64
_LARGEST_PEAK = 2.0**52  # distance from the centre over noise: float64 has no more digits


def extremes_of(stack: Any) -> tuple[NDArray, NDArray]:
    """Lowest and highest value of each image and channel of a stack, as float64."""
    space = tuple(range(1, stack.ndim - 1))
    lowest, highest = computed(stack.min(space), stack.max(space))
    check_finite(lowest, highest, stack)
    return lowest.astype(np.float64), highest.astype(np.float64)


def check_finite(lowest: NDArray, highest: NDArray, stack: Any = None) -> None:
    """Reject an image, or a stack, with such extreme values: NaN is one wherever it occurs.

    The message counts them in a `stack` (images, *space, channels) in memory.
    """
    are_finite = np.isfinite(lowest) & np.isfinite(highest)
    if not are_finite.all():
        where = ""
        if are_finite.ndim and len(are_finite) > 1:
            first = np.argwhere(~are_finite)[0, 0]
            where = f", first in image {first} of the stack (counted from 0)"
        if isinstance(stack, np.ndarray):
            bad = ~np.isfinite(stack)
            place = tuple(map(int, np.unravel_index(bad.argmax(), bad.shape)[1:-1]))
            where = f" in {bad.sum()} of {bad.size} values{where or ', first'} at {place}"
        raise ValueError(
            f"image contains NaN or inf{where}: fill or replace such pixels. inpaint(image) and "
            "denoise(image, mask='nan') fill NaN; with mask=~np.isfinite(image) they fill inf, too."
        )


def check_scale(lowest: NDArray, highest: NDArray, sigmas: NDArray) -> None:
    """Reject an image that exceeds float64, or has too many digits for its noise to be seen."""
    too_large = np.maximum(-lowest, highest) > _LARGEST_VALUE
    too_far = ((highest / 2 - lowest / 2) / _LARGEST_PEAK > sigmas) & (sigmas > 0)
    for where in np.argwhere(too_large | too_far)[:1].tolist():
        at = tuple(where)
        values = f"image has values from {lowest[at]:.3g} to {highest[at]:.3g}"
        if too_large[at]:
            raise ValueError(
                f"{values}, near the largest number of float64: scale them, or fill outliers, such "
                "as pixels without data."
            )
        raise ValueError(
            f"{values}, and sigma is {sigmas[at]:.3g}: more than the 16 digits of float64. Fill "
            "outliers, such as pixels without data; give sigma=0 where there is no noise."
        )


_ROUNDING = 12**-0.5  # standard deviation of the error of rounding to integers
_UNIT_RANGE = 2  # values from 0 to 1 rarely exceed it with their noise


def doubt_about_sigma(sigma: float, low: float, high: float, dtype: np.dtype) -> str:
    """What is doubtful about a given sigma for values of this range and type; empty: nothing."""
    if sigma > high - low > 0:
        return f"exceeds the range of the image, {low:.3g} to {high:.3g}"
    if 0 < sigma < _ROUNDING and dtype.kind in "iu":
        return f"is below the rounding error of integers, {_ROUNDING:.2g}"
    return ""


def warn_about_units(sigmas: NDArray, lowest: NDArray, highest: NDArray, dtype: np.dtype) -> None:
    """Warn about a given sigma that seems to be meant for values on another scale."""
    sigma, low, high = float(sigmas.max()), float(lowest.min()), float(highest.max())
    if doubt := doubt_about_sigma(sigma, low, high, dtype):
        remedy = "sigma is in image units"
        if 1 <= sigma <= 255 and high - low <= _UNIT_RANGE:
            remedy += f"; for values from 0 to 1 use {sigma:g}/255 = {sigma / 255:.2g}"
        elif sigma < _ROUNDING and high <= 255:
            remedy += f"; for values from 0 to 255 use 255*{sigma:g} = {255 * sigma:.3g}"
        warn(f"sigma={sigma:g} {doubt}: {remedy}.")


def computed(*arrays: Any) -> tuple[Any, ...]:
    """The same arrays in memory, those of a Dask array together."""
    if library_of(arrays[0]) != "dask":
        return arrays
    from dask.base import compute

    return compute(*arrays)


def within(values: Any, value_range: tuple[float, float], dtype: np.dtype) -> Any:
    """Values clipped to a range and to what a dtype holds; float64 holds all of them."""
    if value_range == ANY_VALUE and dtype == np.float64:
        return values
    return values.clip(*representable(value_range, dtype))
