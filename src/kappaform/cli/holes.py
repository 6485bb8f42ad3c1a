"""Missing pixels of images: those of a mask, and dead pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import minimum_filter

from kappaform.cli.messages import warn
from kappaform.image_files import Picture, read_image
from kappaform.imaging.dead_pixels import dead_pixels

_THIN = 9  #: pixels: wider than a scratch
_MOST_MISSING = 0.9  #: fraction of the pixels, above which a mask is probably inverted


def masked(picture: Picture, path: str) -> NDArray:
    """Which pixels are missing by the mask in a file, in the layout of a stack.

    These are the ones that are neither black nor transparent there.
    """
    mask = read_image(Path(path), "buif")
    colours = mask.colours
    marked = (colours != 0).any(axis=-1) if mask.channel_axis else colours != 0
    if mask.has_alpha:
        marked &= mask.pixels[..., -1] != 0
    planes = picture.pixels.shape[: -1 if picture.has_channels else None]
    if marked.shape not in (planes, planes[-2:]):
        raise ValueError(
            f"{path} has shape {marked.shape}, the image {planes}: a mask has the same size."
        )
    fraction = np.count_nonzero(marked) / marked.size
    if fraction < 1 and (fraction > _MOST_MISSING or _is_thin(~marked)):  # all is an error
        warn(f"{path}: {100 * fraction:.0f} % of the pixels are missing: is the mask inverted?")
    marked = np.broadcast_to(marked, planes)
    if picture.has_channels:
        marked = np.broadcast_to(marked[..., np.newaxis], picture.pixels.shape)
    return picture._replace(pixels=marked).as_stack()


def _is_thin(known: NDArray) -> bool:
    """Whether less than half is known, in thin lines like scratches, and the rest is solid."""
    window = (1,) * (known.ndim - 2) + (_THIN, _THIN)
    n_known, n_thick, n_solid = (
        int(np.count_nonzero(each))
        for each in (known, minimum_filter(known, window), minimum_filter(~known, window))
    )
    n_missing = known.size - n_known
    return n_known < n_missing < 2 * n_solid and 5 * n_thick < n_known


def dead(picture: Picture, known: NDArray) -> NDArray:
    """Pixels far from all their neighbours, in the layout of a stack."""
    stack = picture.as_stack()
    planes = stack.shape[-2 - (picture.channel_axis is not None) :]
    found = [
        dead_pixels(image.astype(np.float64), is_known, picture.channel_axis)
        for image, is_known in zip(
            stack.reshape(-1, *planes), known.reshape(-1, *planes), strict=True
        )
    ]
    return np.stack(found).reshape(stack.shape)
