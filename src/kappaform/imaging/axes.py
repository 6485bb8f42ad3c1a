"""Which axes of an image are what, and the noise that belongs to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kappaform.imaging.noise import estimate_sigma


def with_stack(counts: NDArray, order: list[int], channel_axis: int | None) -> NDArray:
    """Maps of a stack, their axis where it is in the image less its channels."""
    stack = order[0]
    before = channel_axis is not None and order[-1] < stack
    return np.moveaxis(counts, 0, stack - before)


def axis_order(
    array: NDArray, channel_axis: int | None, stack_axis: int | None
) -> tuple[list[int], int]:
    """Axes in the order stack, space, channels; and the number of those of space."""
    named = {"channel_axis": channel_axis, "stack_axis": stack_axis}
    for name, axis in named.items():
        if axis is not None and not -array.ndim <= axis < array.ndim:
            raise ValueError(f"{name}={axis} is no axis of an image of shape {array.shape}.")
    channel, stack = ([] if a is None else [a % array.ndim] for a in (channel_axis, stack_axis))
    if channel and channel == stack:
        raise ValueError(f"channel_axis and stack_axis are the same axis, {channel_axis}.")
    space = [i for i in range(array.ndim) if i not in channel + stack]
    if len(space) not in (2, 3) or 0 in array.shape:
        raise ValueError(
            f"image has shape {array.shape}, {len(space)} dimensions of space: 2 or 3 are needed, "
            "and no empty axis; name other axes by channel_axis or stack_axis."
        )
    if not channel and len(space) == 3 and array.shape[space[-1]] in (3, 4):
        raise ValueError(
            f"image has shape {array.shape}, which looks like colour: give channel_axis=-1 (or "
            "stack_axis=-1 for unrelated images); the last axis of a volume is longer than 4."
        )
    return stack + space + channel, len(space)


def given_or_estimated(sigma: ArrayLike | None, stack: NDArray) -> NDArray:
    """Deviation of the noise for each slice and channel."""
    shape = stack.shape[0], stack.shape[-1]
    if sigma is None:
        return np.array([estimate_sigma(each, channel_axis=-1) for each in stack])
    values = np.asarray(sigma, dtype=np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"sigma={sigma!r}: a deviation is finite and >= 0; None estimates it.")
    if shape[1] == 1 and values.shape == (shape[0],):
        values = values[:, np.newaxis]
    if values.shape not in ((), (shape[1],), shape, (shape[0], 1)):
        raise ValueError(
            f"sigma has shape {values.shape}: give one number, or one for each of the "
            f"{shape[1]} channels or {shape[0]} images of the stack."
        )
    return np.broadcast_to(values, shape)
