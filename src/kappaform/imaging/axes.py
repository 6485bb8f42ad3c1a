"""Which axes of an image are space, channels and slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kappaform.errors import warn
from kappaform.imaging.patches import check_axis


class Axes(NamedTuple):
    """Where slices and channels are in an image that has been given the axes that it lacks."""

    stack: int
    channel: int
    added: tuple[int, ...]

    def to_stack(self, image: Any) -> Any:
        """The image as (slices, *space, channels), one of each where it has none."""
        image = np.expand_dims(image, self.added)
        return np.moveaxis(image, (self.stack, self.channel), (0, -1))

    def from_stack(self, stack: Any) -> Any:
        """The way back from `to_stack`."""
        image = np.moveaxis(stack, (0, -1), (self.stack, self.channel))
        return np.squeeze(image, self.added)

    def map_from_stack(self, maps: Any) -> Any:
        """The same of maps (slices, *space), which have no channels."""
        without = self._replace(added=tuple({*self.added, self.channel}))
        return without.from_stack(maps[..., np.newaxis])


def checked_axes(
    shape: Sequence[int], channel_axis: int | None, stack_axis: int | None = None
) -> Axes:
    """Which axes are what, of an image of 2 or 3 dimensions of space."""
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
    if len(space) not in (2, 3):
        raise ValueError(
            f"image has shape {tuple(shape)}, {len(space)} dimensions of space: 2 or 3 are needed; "
            "name other axes by channel_axis or stack_axis."
        )
    if channel_axis is None:
        check_not_colour(shape, space)
    n_axes = len(space) + 2
    first, last = stack_axis is None, channel_axis is None  # added there
    added = (0,) * first + (n_axes - 1,) * last
    stack = 0 if stack_axis is None else stack_axis % len(shape)
    channel = n_axes - 1 if channel_axis is None else channel_axis % len(shape) + first
    return Axes(stack, channel, added)


def looks_like_colour(shape: Sequence[int]) -> bool:
    """Whether three axes are those of a picture and of its colours."""
    return shape[2] in (3, 4) and min(shape[:2]) > 4


def check_not_colour(shape: Sequence[int], space: Sequence[int]) -> None:
    """Refuse three axes of space of which the last looks like colours; warn of the first."""
    if len(space) != 3:
        return
    first, middle, last = (shape[axis] for axis in space)
    if looks_like_colour((first, middle, last)):
        raise ValueError(
            f"image has shape {tuple(shape)}, which looks like colour: give channel_axis=-1 (or "
            "stack_axis=-1 for unrelated images); of a volume with so few slices, move that axis "
            "to the front."
        )
    if first in (3, 4) and min(middle, last) > 4:
        axis = space[0]
        warn(
            f"image has shape {tuple(shape)} and is taken for a volume of {first} slices: for "
            f"colours give channel_axis={axis}, for unrelated images stack_axis={axis}."
        )
