"""TIFF of any type and any number of pages, by tifffile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tifffile
from numpy.typing import NDArray

from kappaform.files import UnsupportedError
from kappaform.image_files import exif
from kappaform.image_files.descriptions import imagej_text, ome_of_the_first
from kappaform.image_files.picture import (
    INCH,
    Metadata,
    Picture,
    complaints_of,
    resolution_of,
    turned,
)
from kappaform.image_files.tiff_checks import (
    check_pages,
    check_pixels,
    description_misfit,
    harmless,
)

_ALPHA = (1, 2)  # kinds of extra samples: premultiplied or not
_WHITE_IS_ZERO, _GREY, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6  # kinds of colours
_JPEG, _DEFLATE = 7, 8  # compressions
_LOSSLESS = (1, 5, 8, 32773, 34925, 50000)  # none, LZW, deflate, PackBits, LZMA, Zstandard
_PREDICTORS = (1, 2, 3)  # none, differences of integers, of floats
_MAX_RATIONAL = 2**32 - 1  # of numerator and denominator
_JPEG_QUALITY = {"compressionargs": {"level": 95}, "subsampling": (1, 1)}  # as that of JPEG files

_DESCRIPTION, _ORIENTATION, _XMP, _PROFILE = 270, 274, 700, 34675  # tags
_CAMERA, _ISO = 34665, "ISOSpeedRatings"  # EXIF of the camera, and what tifffile calls its ISO
_IMAGEJ = 50839  # ranges and colours of channels, labels, regions
_NO_DATA = 42113  # the value that means "no data" (GDAL)
#: Georeference, and the value that means "no data": GeoTIFF and GDAL.
_ON_EARTH = (33550, 33922, 34264, 34735, 34736, 34737, 42112, _NO_DATA)
_DESCRIBED = "the description"
#: Kinds of description that contain shapes, so that a wrong one misleads readers.
_STRUCTURED = ("ome", "imagej", "shaped")


def read_tiff(path: Path) -> Picture:
    """All pages of the first series of a file."""
    omitted: list[str] = []
    with _opened(path) as (file, complaints):
        sizes = check_pages(file)
        misfit = description_misfit(file, sizes, complaints)
    plain: dict[str, Any] = {}
    if misfit:
        omitted.append(f"{_DESCRIBED}: {misfit}")
        plain = {f"is_{kind}": False for kind in _STRUCTURED}
    with _opened(path, **plain) as (file, complaints):
        series = file.series[0]
        _check_colours(series.keyframe)
        check_pixels(series, file.filehandle.size)
        pixels = series.asarray()
        omitted += harmless(complaints)
        if len(file.series) > 1:
            omitted.append(f"all except the first of its {len(file.series)} images")
        if len(series.levels) > 1:
            omitted.append(f"the {len(series.levels) - 1} smaller levels of its pyramid")
        return _picture(file, pixels, omitted)


def sizes_in(path: Path) -> tuple[int, int]:
    """Number of planes of the size of the first page, over all channels, and their pixels."""
    with _opened(path) as (file, _):
        sizes, page = check_pages(file), file.pages.first
        return sizes.count(sizes[0]) * page.samplesperpixel, math.prod(sizes[0])


@contextmanager
def _opened(path: Path, **flags: Any) -> Iterator[tuple[Any, list[str]]]:
    """The file, without other files that it names, and complaints of tifffile."""
    with (
        complaints_of("tifffile") as complaints,
        tifffile.TiffFile(path, _multifile=False, **flags) as file,
    ):
        yield file, complaints


# --- Reading


def _picture(file: Any, pixels: NDArray, omitted: list[str]) -> Picture:
    """The image of the first series, whose pixels are given."""
    series = file.series[0]
    page, axes = series.keyframe, series.axes
    if pixels.size == page.size:  # a single page may have axes of length 1
        pixels, axes = pixels.reshape(page.shape), page.axes
    order = _order(axes)
    stored = pixels.transpose(order)
    page_axes = "".join(axes[axis] for axis in order[: -3 if "S" in axes else -2])
    upright = turned(_as_shown(stored, file), _value(page, _ORIENTATION, 1), len(page_axes))
    is_same = upright.shape == stored.shape and upright.dtype == stored.dtype
    options: dict[str, Any] = {"shape": upright.shape, "dtype": upright.dtype}
    options["arguments"] = _layout(file) | _description(file, is_same, omitted)
    if is_same:
        options["order"] = tuple(int(axis) for axis in np.argsort(order))
        options["arguments"] |= _colours(page)
    has_alpha = "S" in axes and any(int(kind) in _ALPHA for kind in page.extrasamples[-1:])
    has_channels = upright.ndim - len(page_axes) > 2
    profile = _value(page, _PROFILE)
    metadata = _metadata(file, options, omitted)
    return Picture(upright, has_channels, profile, has_alpha, page_axes, metadata)


def _order(axes: str) -> list[int]:
    """Axes of the file in the order of an image: pages, Y, X, samples."""
    samples = [axes.index("S")] if "S" in axes else []
    others = [axis for axis in range(len(axes)) if axis not in samples]
    y, x = axes.rfind("Y"), axes.rfind("X")
    if min(y, x) < 0:  # unknown axes: the last two are those of a page
        y, x = others[-2:]
    return [*(axis for axis in others if axis not in (y, x)), y, x, *samples]


def _check_colours(page: Any) -> None:
    kind, compression = int(page.photometric), int(page.compression)
    is_converted = kind == _YCBCR and compression == _JPEG  # to RGB, by tifffile
    if kind not in (_WHITE_IS_ZERO, _GREY, _RGB, _PALETTE) and not is_converted:
        name = "CMYK" if kind == _CMYK else getattr(page.photometric, "name", kind)
        raise UnsupportedError(f"its colours are {name}: convert it to RGB first.")


def _as_shown(pixels: NDArray, file: Any) -> NDArray:
    """Pixels whose values are colours or grey levels, where white is larger than black."""
    page = file.series[0].keyframe
    kind = int(page.photometric)
    if pixels.dtype == bool:
        pixels = pixels * np.uint8(255)
    if kind == _WHITE_IS_ZERO and pixels.dtype.kind == "u":
        return np.iinfo(pixels.dtype).max - pixels
    # Microscopes store measured values, and a palette only for display.
    if kind != _PALETTE or file.is_imagej or file.is_ome:
        return pixels
    colours = np.moveaxis(page.colormap, 0, -1)
    high, low = colours >> 8, colours & 255
    is_8_bit = ((low == 0) | (low == high)).all()  # as writers expand 8 bit colours
    return (high.astype(np.uint8) if is_8_bit else colours)[pixels]


def _layout(file: Any) -> dict[str, Any]:
    """Arguments of tifffile for a file with the same layout."""
    page = file.series[0].keyframe
    arguments: dict[str, Any] = {"bigtiff": True} if file.is_bigtiff else {}
    compression = int(page.compression)
    if compression in _LOSSLESS:
        arguments["compression"] = compression
        if int(page.predictor) in _PREDICTORS:
            arguments["predictor"] = int(page.predictor)
    elif compression == _JPEG and page.dtype == np.uint8:
        arguments |= {"compression": _JPEG} | _JPEG_QUALITY
    else:
        arguments["compression"] = _DEFLATE
    if page.is_tiled and len(page.tile) == 2 and all(side % 16 == 0 for side in page.tile):
        arguments["tile"] = page.tile
    return arguments


def _colours(page: Any) -> dict[str, Any]:
    """Arguments of tifffile for samples and a palette like those of a page."""
    kind, is_unsigned = int(page.photometric), page.dtype.kind == "u"
    if kind == _YCBCR:
        kind = _RGB
    elif kind == _WHITE_IS_ZERO and is_unsigned:
        kind = _GREY
    arguments: dict[str, Any] = {"photometric": kind}
    if "S" in page.axes:
        arguments["planarconfig"] = "contig" if page.axes.endswith("S") else "separate"
        n_extra = page.samplesperpixel - (3 if kind == _RGB else 1)
        if n_extra != len(page.extrasamples):
            return {"planarconfig": arguments["planarconfig"]}  # the page does not declare them
        arguments["extrasamples"] = [int(each) for each in page.extrasamples] or None
    if kind == _PALETTE:
        arguments["colormap"] = page.colormap
    return arguments


def _description(file: Any, is_same: bool, omitted: list[str]) -> dict[str, Any]:
    """Arguments of tifffile for a description that is valid for the new file."""
    page, series = file.pages.first, file.series[0]
    if not (page.is_ome or page.is_imagej):
        arguments: dict[str, Any] = {"description": _plain_text(page).encode() or None}
        if is_same and series.kind == "shaped":
            shaped = file.shaped_metadata[0]
            shaped = {key: shaped[key] for key in shaped if key not in ("shape", "truncated")}
            arguments["metadata"] = shaped
        return arguments
    if not is_same or series.kind not in _STRUCTURED:
        if not any(text.startswith(_DESCRIBED) for text in omitted):
            omitted.append(f"{_DESCRIBED}: it has other axes or another shape")
        return {}
    if series.kind == "ome":
        n_planes = series.size // series.keyframe.size
        text = ome_of_the_first(page.description, n_planes, len(file.series), omitted)
    else:
        text = imagej_text(page.description, omitted)
    return {"description": text} if text else {}


def _plain_text(page: Any) -> str:
    """The description, unless it contains shapes."""
    is_plain = not (page.is_ome or page.is_imagej or page.description == page.shaped_description)
    return str(page.description) if is_plain else ""


def _metadata(file: Any, options: dict[str, Any], omitted: list[str]) -> Metadata:
    page = file.pages.first
    tags: list[Any] = []
    is_imagej = file.series[0].kind == "imagej"
    if is_imagej and isinstance(imagej := _value(page, _IMAGEJ), dict):
        tags += tifffile.imagej_metadata_tag(imagej, "<")
    orientation = _value(page, _ORIENTATION, 1)
    if orientation == 1:
        found = (page.tags.get(code) for code in _ON_EARTH)
        tags += [(tag.code, int(tag.dtype), tag.count, tag.value, True) for tag in found if tag]
    options["arguments"]["extratags"] = tags
    omitted += [name for tag, name in exif.SUB_DIRECTORIES.items() if tag in page.tags]
    resolution = None
    if exif.RESOLUTION[0] in page.tags:
        x, y, unit = (_value(page, tag, INCH) for tag in exif.RESOLUTION)
        resolution = resolution_of(x, y, int(unit), orientation, omitted)
    texts = {tag: _value(page, tag) for tag in exif.TEXTS} | {_DESCRIPTION: _plain_text(page)}
    texts = {tag: text.encode() for tag, text in texts.items() if text and isinstance(text, str)}
    xmp = _value(page, _XMP)
    xmp = exif.upright_xmp(xmp.encode() if isinstance(xmp, str) else xmp or b"")
    block = exif.block_of(texts, resolution)
    is_bilevel = file.series[0].keyframe.bitspersample == 1
    metadata = Metadata("TIFF", options, resolution, block, xmp, omitted=tuple(omitted))
    camera = _value(page, _CAMERA)
    iso = exif.sensitivity(camera.get(_ISO)) if isinstance(camera, dict) else None
    return metadata._replace(is_bilevel=is_bilevel, no_data=_no_data(page), iso=iso)


def _no_data(page: Any) -> float | None:
    """The value that means "no data", if the file declares one."""
    try:
        return float(_value(page, _NO_DATA))
    except (TypeError, ValueError):
        return None


def _value(page: Any, tag: int, default: Any = None) -> Any:
    return page.tags.valueof(tag, default=default)


# --- Writing


def write_tiff(file: BinaryIO, picture: Picture) -> list[str]:
    """Write all pages of an image; returns what is omitted of its metadata."""
    metadata, pixels = picture.metadata, picture.pixels
    arguments = _plain_colours(picture) | {"iccprofile": picture.profile, "software": False}
    if metadata.kind == "TIFF":
        options = metadata.options
        if (options["shape"], options["dtype"]) == (pixels.shape, pixels.dtype):
            arguments |= options["arguments"]
            pixels = pixels.transpose(options.get("order", range(pixels.ndim)))
    texts = exif.texts_of(metadata.exif)
    description = texts.pop(_DESCRIPTION, None)
    if not arguments.get("description"):
        arguments["description"] = description
    if "metadata" not in arguments:
        is_described = arguments["description"] or picture.page_axes == "I"  # the default
        needs_axes = picture.has_pages and not is_described
        arguments["metadata"] = {"axes": picture.axes} if needs_axes else None
    tags = [(tag, "s", 0, text, True) for tag, text in texts.items()]
    if metadata.xmp:
        tags.append((_XMP, "B", len(metadata.xmp), metadata.xmp, True))
    arguments["extratags"] = [*arguments.get("extratags", ()), *tags]
    if resolution := metadata.resolution:
        arguments["resolution"] = (_rational(resolution.x), _rational(resolution.y))
        arguments["resolutionunit"] = resolution.unit
    tifffile.imwrite(file, pixels, **arguments)
    return exif.sub_directories_of(metadata.exif)


def _plain_colours(picture: Picture) -> dict[str, Any]:
    """Arguments of tifffile for an image that comes from another format."""
    if not picture.has_channels:
        return {"photometric": "minisblack"}
    n_channels = picture.pixels.shape[-1]
    n_colours = 3 if n_channels >= 3 else 1
    kinds = ["unspecified"] * (n_channels - n_colours)
    if picture.has_alpha:
        kinds[-1] = "unassalpha"
    photometric = "rgb" if n_colours == 3 else "minisblack"
    return {"photometric": photometric, "planarconfig": "contig", "extrasamples": kinds or None}


def _rational(number: Fraction) -> tuple[int, int]:
    """Numerator and denominator of 32 bits."""
    most = max(1, int(_MAX_RATIONAL / max(Fraction(1), number)))
    return number.limit_denominator(most).as_integer_ratio()
