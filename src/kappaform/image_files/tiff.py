"""TIFF of any type and number of pages, by tifffile."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kappaform.image_files.picture import Picture, check_size

_OPACITY = (1, 2)  # kinds of extra samples: colours multiplied by it, or not
_RGB_OR_GREY = (0, 1, 2)  # photometric interpretations: white is zero, black is zero, RGB


def read_tiff(path: Path) -> Picture:
    """All pages of the first series of a file."""
    import tifffile

    with _complaints_of_tifffile() as complaints, tifffile.TiffFile(path) as file:
        series, page = file.series[0], file.series[0].keyframe
        axes, photometric = series.axes, int(page.photometric)
        check_size(math.prod(series.shape) // max(1, page.samplesperpixel))
        if photometric not in _RGB_OR_GREY:
            name = getattr(page.photometric, "name", photometric)
            raise ValueError(f"its colours are {name}, convert it to RGB first.")
        try:
            pixels = series.asarray()
        except ValueError as error:
            if "imagecodecs" not in str(error):
                raise
            pixels = _tiff_by_pillow(path, series.shape, series.dtype)
        tag = page.tags.get(34675)  # read while the file is open
        profile = tag.value if tag else None
        has_alpha = "S" in axes and any(int(kind) in _OPACITY for kind in page.extrasamples[-1:])
    for complaint in complaints:
        if "offset" in complaint or "corrupt" in complaint:
            raise ValueError(complaint)
    if "S" in axes:  # channels may be stored one after another
        pixels = np.moveaxis(pixels, axes.index("S"), -1)
    if photometric == 0 and pixels.dtype.kind == "u":
        pixels = np.iinfo(pixels.dtype).max - pixels
    if len(pixels) == 1 and pixels.ndim - ("S" in axes) == 3:
        pixels = pixels[0]  # a single page
    return Picture(pixels, "S" in axes, profile, has_alpha)


def _tiff_by_pillow(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Pixels of a compression that tifffile leaves to another package, if Pillow keeps all bits."""
    from PIL import Image, ImageSequence

    with Image.open(path, formats=["TIFF"]) as image:
        pages = [np.array(page) for page in ImageSequence.Iterator(image)]
    if any(page.dtype != dtype for page in pages) or math.prod(shape) != sum(
        page.size for page in pages
    ):
        raise ValueError("its compression needs the package imagecodecs: pip install imagecodecs")
    return np.stack(pages).reshape(shape)


@contextmanager
def _complaints_of_tifffile() -> Iterator[list[str]]:
    """What tifffile would write to the terminal where it finds pages missing."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tifffile")
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


def write_tiff(file: BinaryIO, picture: Picture) -> None:
    """Write a picture, every page of it."""
    import tifffile

    options: dict[str, Any] = {"photometric": "minisblack", "iccprofile": picture.profile}
    if picture.has_channels:
        n_channels = picture.pixels.shape[-1]
        n_colours = 3 if n_channels >= 3 else 1
        kinds = ["unspecified"] * (n_channels - n_colours)
        if picture.has_alpha:
            kinds[-1] = "unassalpha"
        options["planarconfig"] = "contig"
        options["photometric"] = "rgb" if n_colours == 3 else "minisblack"
        options["extrasamples"] = kinds or None
    tifffile.imwrite(file, picture.pixels, **options)
