"""Missing pixels of images: those of a mask, values that mean no data, and dead pixels."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kappaform.cli import messages
from kappaform.image_files import Picture, read_image
from kappaform.imaging.dead_pixels import dead_pixels


def masked(picture: Picture, along: str, arguments: Namespace) -> NDArray | None:
    """Which pixels a mask says are missing, in the layout of a stack; None without a mask."""
    if not arguments.mask:
        return None
    path = Path(arguments.mask)
    mask = read_image(path)
    colours = mask.colours
    marked = (colours != 0).any(axis=-1) if mask.channel_axis else colours != 0
    planes = picture.pixels.shape[: -1 if picture.has_channels else None]
    if marked.shape not in (planes, planes[-2:]):
        raise ValueError(
            f"{path} has shape {marked.shape}, the image {planes}: a mask has the same size."
        )
    marked = np.broadcast_to(marked, planes)
    if picture.has_channels:
        marked = np.broadcast_to(marked[..., np.newaxis], picture.pixels.shape)
    return picture._replace(pixels=marked).as_stack(along)


def without_data(picture: Picture, along: str, arguments: Namespace) -> NDArray | None:
    """Which pixels have the value that means no data, given or of the file; None: there is none.

    A pixel that lacks one colour lacks all.
    """
    value = picture.metadata.no_data if arguments.nodata is None else arguments.nodata
    if value is None:
        return None
    found = picture._replace(pixels=picture.has_value(value)).as_stack(along)
    if picture.channel_axis:
        found = np.broadcast_to(found.any(axis=-1, keepdims=True), found.shape)
    return found if found.any() else None


def dead(picture: Picture, along: str, known: NDArray) -> NDArray:
    """Pixels far from all their neighbours, in the layout of a stack."""
    stack = picture.as_stack(along)
    planes = stack.shape[-2 - (picture.channel_axis is not None) :]
    found = [
        dead_pixels(image.astype(np.float64), is_known, picture.channel_axis)
        for image, is_known in zip(
            stack.reshape(-1, *planes), known.reshape(-1, *planes), strict=True
        )
    ]
    return np.stack(found).reshape(stack.shape)


def note_kept(source: Path, kept: NDArray | None, value: float | None) -> None:
    if kept is not None:
        number = int(np.count_nonzero(kept))
        messages.note(f"{source}: {number} values without data ({value:g}) are left as they are")
