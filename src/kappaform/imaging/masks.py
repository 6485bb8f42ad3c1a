"""Which pixels of an image are missing, as given by a mask, by NaN or by a masked array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_real_array, check_axis, library_of
from kappaform.imaging.tensors import as_array

if TYPE_CHECKING:
    from kappaform.imaging.axes import Axes


def pixels_and_missing(
    image: Any, mask: Any, axes_named: tuple[int | None, ...], nan: bool
) -> tuple[NDArray, NDArray]:
    """The values of an image, zero where they are missing, and which are, both of its shape.

    `axes_named` are the axes of channels and, if there may be one, of a stack: a mask may be the
    same along them.
    With `nan`, every NaN is missing.
    """
    if library_of(image) == "dask":
        raise ValueError(
            "image is a Dask array: missing pixels are filled in memory only, image.compute()."
        )
    hidden: Any = False
    if isinstance(image, np.ma.MaskedArray):
        image, hidden = image.data, np.ma.getmaskarray(image)
    pixels = as_real_array(as_array(image, "image"), "image")
    for axis, name in zip(axes_named, ("channel_axis", "stack_axis"), strict=False):
        check_axis(axis, pixels.shape, name)
    missing = np.broadcast_to(hidden, pixels.shape).copy()
    if mask is not None:
        missing |= _spread(_checked_mask(mask), pixels.shape, axes_named)
    if nan and pixels.dtype.kind == "f":
        missing |= np.isnan(pixels)
    return np.where(missing, pixels.dtype.type(0), pixels), missing


def values_of(image: Any) -> Any:
    """The values of a masked array, hidden ones too; any other image as it is."""
    return image.data if isinstance(image, np.ma.MaskedArray) else image


def is_nan(mask: Any) -> bool:
    """Whether a mask is the word for NaN."""
    return isinstance(mask, str) and mask == "nan"


def check_some_known(missing: NDArray, axes: Axes) -> None:
    """Reject an image, or one of a stack, or a channel, of which nothing is known."""
    stack = axes.to_stack(missing)
    nothing = stack.all(axis=tuple(range(1, stack.ndim - 1)))
    if nothing.any():
        which, channel = np.argwhere(nothing)[0].tolist()
        where = [f"image {which} of the stack"] * (len(stack) > 1)
        where += [f"channel {channel}"] * (stack.shape[-1] > 1 and not nothing[which].all())
        of = f" of {', '.join(where)}" if where else ""
        raise ValueError(
            f"every pixel{of} is missing: at least one must be known. A mask is True where pixels "
            "are missing, ~mask inverts it."
        )


def _checked_mask(mask: Any) -> NDArray:
    if isinstance(mask, str):
        raise ValueError(
            f"mask={mask!r} is unknown: give an array of booleans. NaN are missing without a mask "
            "in `inpaint`, and with mask='nan' in `denoise`."
        )
    array = np.asarray(as_array(mask, "mask"))
    if array.dtype != np.bool_:
        raise TypeError(
            f"mask has dtype {array.dtype}: give booleans, True where pixels are missing, such as "
            "mask > 0."
        )
    return array


def _spread(mask: NDArray, shape: tuple[int, ...], axes_named: tuple[int | None, ...]) -> NDArray:
    """A mask for every channel and image of a stack."""
    named = sorted({axis % len(shape) for axis in axes_named if axis is not None})
    for left_out in ([], *([axis] for axis in named), named):
        expected = tuple(n for axis, n in enumerate(shape) if axis not in left_out)
        if mask.shape == expected:
            return np.broadcast_to(np.expand_dims(mask, left_out), shape)
    rest = tuple(n for axis, n in enumerate(shape) if axis not in named)
    also = f", or {rest} for all channels and images" if named else ""
    if mask.shape in (shape[:-1], shape[1:]) and not named:
        axis = -1 if mask.shape == shape[:-1] else 0
        also = f"; a mask for all channels or images needs channel_axis={axis} or stack_axis={axis}"
    raise ValueError(f"mask has shape {mask.shape}, the image {shape}: give {shape}{also}.")
