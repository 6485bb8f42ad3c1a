"""TIFF of any type and number of pages, by tifffile."""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tifffile
from numpy.typing import NDArray

from kappaform.image_files import Picture, UnsupportedError

_MAX_PIXELS = 178_956_970  # what Pillow refuses by itself, for TIFF too
_MAX_BYTES = 8 * _MAX_PIXELS  # as many pixels of RGBA, 16 bit, the most that PNG holds
_OPACITY = (1, 2)  # kinds of extra samples: colours multiplied by it, or not
_RGB_OR_GREY = (0, 1, 2)  # photometric interpretations: white is zero, black is zero, RGB
_PROFILE = 34675  # tag of the ICC profile


def read_tiff(path: Path) -> Picture:
    """All pages of the first series of a file."""
    with _complaints_of_tifffile() as complaints, tifffile.TiffFile(path) as file:
        _check_order(file)
        series, page = file.series[0], file.series[0].keyframe
        axes, photometric = series.axes, int(page.photometric)
        _check_size(series, page)
        if photometric not in _RGB_OR_GREY:
            name = getattr(page.photometric, "name", photometric)
            raise UnsupportedError(f"its colours are {name}: convert it to RGB first.")
        if series.dataoffset is None:  # else tifffile reads all pages at once, or fails
            _check_parts(series.pages, file.filehandle.size)
        try:
            pixels = series.asarray()
        except ValueError as error:
            if "imagecodecs" not in str(error):
                raise
            pixels = _pixels_by_pillow(path, series.shape, series.dtype)
        tag = page.tags.get(_PROFILE)  # read while the file is open
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


def _check_size(series: Any, page: Any) -> None:
    """Refuse what may have been made to exhaust the memory of its reader."""
    n_pixels = math.prod(series.shape) // max(1, page.samplesperpixel)
    n_bytes = max(series.nbytes, math.prod(page.chunks) * series.dtype.itemsize)
    for size, limit, unit in ((n_pixels, _MAX_PIXELS, "pixels"), (n_bytes, _MAX_BYTES, "bytes")):
        if size > limit:
            raise UnsupportedError(
                f"it has {size} {unit}, more than the limit of {limit}: crop it."
            )


def _check_order(file: tifffile.TiffFile) -> None:
    """Refuse pages that follow each other in a circle: tifffile would read them for ever."""
    layout, handle = file.tiff, file.filehandle
    offset, seen = file.pages.first.offset, set()
    while offset:
        if offset in seen:
            raise ValueError("its pages follow each other in a circle.")
        seen.add(offset)
        handle.seek(offset)
        (n_tags,) = struct.unpack(layout.tagnoformat, handle.read(layout.tagnosize))
        handle.seek(offset + layout.tagnosize + n_tags * layout.tagsize)
        (offset,) = struct.unpack(layout.offsetformat, handle.read(layout.offsetsize))


def _check_parts(pages: Any, n_bytes: int) -> None:
    """Refuse tiles and strips that are not in the file: tifffile would read them as zeros."""
    for number, page in enumerate(pages):
        if page is None:
            raise ValueError(f"page {number} is missing.")
        offsets, lengths = page.dataoffsets, page.databytecounts
        n_parts = 1 if page.is_contiguous else math.prod(page.chunked)
        if min(len(offsets), len(lengths)) < n_parts:
            raise ValueError(f"page {number} has {len(offsets)} of its {n_parts} tiles or strips.")
        for offset, length in zip(offsets, lengths, strict=False):
            if not 0 < length <= n_bytes - offset:
                raise ValueError(f"page {number} has tiles or strips that are not in the file.")


def _pixels_by_pillow(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Pixels of a compression that tifffile leaves to another package, if Pillow keeps all bits."""
    from PIL import Image, ImageSequence

    with Image.open(path, formats=["TIFF"]) as image:
        pages = [np.array(page) for page in ImageSequence.Iterator(image)]
    n_values = sum(page.size for page in pages if page.dtype == dtype)
    if n_values != math.prod(shape):
        raise UnsupportedError("its compression needs a package: pip install imagecodecs")
    return np.stack(pages).reshape(shape)


@contextmanager
def _complaints_of_tifffile() -> Iterator[list[str]]:
    """What tifffile would write to the terminal where it finds pages missing."""
    messages: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage())
        return False  # nothing else sees it

    logger = logging.getLogger("tifffile")
    logger.addFilter(keep)
    try:
        yield messages
    finally:
        logger.removeFilter(keep)


def write_tiff(file: BinaryIO, picture: Picture) -> None:
    """Write a picture, every page of it."""
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
