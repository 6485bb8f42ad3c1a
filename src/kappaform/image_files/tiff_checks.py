"""TIFF files that are rejected, and descriptions that are ignored, before memory is allocated."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

from kappaform.files import UnsupportedError
from kappaform.image_files.descriptions import ome_misfit

_MAX_PIXELS = 178_956_970  # the limit of Pillow, for TIFF too
_MAX_BYTES = 8 * _MAX_PIXELS  # as many pixels of RGBA, 16 bit, the most that PNG holds
_MAX_RATIO = 20  # of pixels to file, above these limits: noise hardly compresses, a bomb does
#: Layouts of pages. tifffile compares each with every other one: 300 take about a second.
_MAX_LAYOUTS = 300

_WIDTH, _HEIGHT = 256, 257
#: Tags with one number that distinguish layouts in tifffile: size, bits, compression, photometric,
#: fill order, samples, rows per strip, predictor, tiles, extra samples, sample format, depth.
_LAYOUT = (_WIDTH, _HEIGHT, 258, 259, 262, 266, 277, 278, 317, 322, 323, 338, 339, 32997, 32998)
#: Tags without which pixels cannot be read: these, offsets, arrangement and palette, tables and
#: sampling of JPEG.
_OF_PIXELS = {*_LAYOUT, 273, 279, 284, 320, 324, 325, 347, 530}
_INTEGERS = {1: "B", 3: "H", 4: "I", 16: "Q"}  # types of values, as struct names them
_TAG = re.compile(r"TiffTag (\d+)")
_OF_DESCRIPTION = re.compile(r"(OME|ImageJ|shaped) series")


# --- Pages


def check_pages(file: Any) -> list[tuple[int, int]]:
    """Width and height of every page.

    A cycle of pages is rejected, because tifffile would read it forever, and so are many different
    layouts, among which it would search for pyramids in quadratic time.
    """
    handle = file.filehandle
    offset, seen = file.pages.first.offset, set()
    sizes, layouts = [], set()
    while offset:
        if offset in seen:
            raise ValueError("its pages form a cycle.")
        seen.add(offset)
        handle.seek(offset)
        tags, offset = _numbers(file)
        sizes.append((tags.get(_WIDTH, 0), tags.get(_HEIGHT, 0)))
        layouts.add(tuple(tags.get(tag) for tag in _LAYOUT))
    if len(layouts) > _MAX_LAYOUTS:
        raise UnsupportedError(
            f"its pages have {len(layouts)} different sizes or layouts, more than the limit of "
            f"{_MAX_LAYOUTS}: split it."
        )
    return sizes


def _numbers(file: Any) -> tuple[dict[int, int], int]:
    """Tags with one number at the current offset of the file, and the offset of the next page."""
    layout, handle = file.tiff, file.filehandle
    (n_tags,) = struct.unpack(layout.tagnoformat, handle.read(layout.tagnosize))
    entries = handle.read(n_tags * layout.tagsize)
    (following,) = struct.unpack(layout.offsetformat, handle.read(layout.offsetsize))
    order, found = layout.byteorder, {}
    counted = "Q" if file.is_bigtiff else "I"  # type of the number of values, and of an offset
    for start in range(0, len(entries), layout.tagsize):
        code, kind, n_values = struct.unpack_from(f"{order}HH{counted}", entries, start)
        if n_values == 1 and kind in _INTEGERS:
            value = start + layout.tagsize - layout.offsetsize
            (found[code],) = struct.unpack_from(f"{order}{_INTEGERS[kind]}", entries, value)
    return found, following


def check_pixels(series: Any, n_bytes_of_file: int) -> None:
    """Reject decompression bombs and missing pixels."""
    page = series.keyframe
    n_pixels = math.prod(series.shape) // max(1, page.samplesperpixel)
    n_bytes = max(series.nbytes, math.prod(page.chunks) * series.dtype.itemsize)
    for size, limit, unit in ((n_pixels, _MAX_PIXELS, "pixels"), (n_bytes, _MAX_BYTES, "bytes")):
        limit = max(limit, _MAX_RATIO * n_bytes_of_file)
        if size > limit:
            raise UnsupportedError(
                f"it has {size} {unit}, more than the limit of {limit}: crop it."
            )
    if series.dataoffset is None:  # else tifffile reads all pages at once, or fails
        _check_parts(series.pages, n_bytes_of_file)
    elif series.dataoffset + series.nbytes > n_bytes_of_file:
        raise ValueError(f"some of the {series.nbytes} bytes of its pixels are missing.")


def _check_parts(pages: Any, n_bytes: int) -> None:
    """Reject tiles and strips outside of the file: tifffile would read them as zeros."""
    for number, page in enumerate(pages):
        if page is None:
            raise ValueError(f"page {number} is missing.")
        offsets, lengths = page.dataoffsets, page.databytecounts
        n_parts = 1 if page.is_contiguous else math.prod(page.chunked)
        if min(len(offsets), len(lengths)) < n_parts:
            raise ValueError(f"page {number} has {len(offsets)} of its {n_parts} tiles or strips.")
        for offset, length in zip(offsets, lengths, strict=False):
            if not 0 < length <= n_bytes - offset:
                raise ValueError(f"page {number} has tiles or strips outside of the file.")


# --- Descriptions and other tags


def description_misfit(file: Any, sizes: list[tuple[int, int]], complaints: list[str]) -> str:
    """Why axes and shape of a description cannot be right; empty if they can."""
    if file.is_ome:
        page = file.pages.first
        if misfit := ome_misfit(page.description, sizes, page.samplesperpixel):
            return misfit
    try:
        series = file.series[0]
        if series.dataoffset is None:  # else the pixels of all pages follow each other
            n_values = sum(page.size for page in series.pages if page is not None)
            if n_values != series.size:
                return f"it declares the shape {series.shape}, the pages hold {n_values} values"
    except Exception as error:  # whatever the text makes tifffile do
        return f"it cannot be read ({error})"
    about = [text for text in complaints if not _TAG.search(text) and "TiffTag" not in text]
    if about and file.is_imagej and len(sizes) == 1:
        _check_rest(file)
    return "; ".join(harmless(about))


def _check_rest(file: Any) -> None:
    """Reject a truncated stack of ImageJ: only its first plane has a page, the others follow."""
    page = file.pages.first
    if not page.is_contiguous:
        return
    start = page.dataoffsets[0]
    if page.offset < start and start + page.nbytes < file.filehandle.size:
        raise ValueError("some of the pixels that its description declares are missing.")


def harmless(complaints: list[str]) -> list[str]:
    """Defects besides the pixels, once each; raises an error if the pixels are affected."""
    found = []
    for complaint in complaints:
        if "GDAL_NODATA" in complaint:  # copied unchanged, and often beyond the type of the pixels
            continue
        tag = _TAG.search(complaint)
        if tag and int(tag[1]) not in _OF_PIXELS:
            found.append(f"tag {tag[1]}: it is damaged")
            continue
        is_damage = "offset" in complaint or "corrupt" in complaint
        if tag or (is_damage and not _OF_DESCRIPTION.search(complaint)):
            raise ValueError(complaint)
        found.append(re.sub("<[^>]*> ", "", complaint))  # without names of files
    return list(dict.fromkeys(found))
