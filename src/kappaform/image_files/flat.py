"""JPEG, WebP and BMP, by Pillow, and what they share with PNG: one page, EXIF, resolution."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, JpegImagePlugin

from kappaform.files import UnsupportedError
from kappaform.image_files import exif
from kappaform.image_files.picture import (
    INCH,
    Metadata,
    Picture,
    Resolution,
    resolution_of,
    turned,
)
from kappaform.image_files.png import options_of_png, pixels_of_png, texts_of_png, write_png

_LONGEST_IN_JPEG = {"exif": 65_527, "xmp": 65_504}  # bytes in its one segment
_MOST_DPI = {"JPEG": 2**16 - 1, "PNG": 5e7, "BMP": 5e7}  # 16 bit; 31 bit, in pixels per metre
_QUALITY = 95  # of JPEG and of lossy WebP, where the file that was read has no tables


# --- Reading


def read_flat(path: Path) -> Picture:
    """The picture in a file, upright."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Large pictures are welcome up to the limit, where the warning becomes an error.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        image = Image.open(path, formats=["PNG", "JPEG", "WEBP", "BMP"])
    doubts = [f"EXIF: {_in_one_line(warning.message)}" for warning in caught[:1]]
    with image:
        n_frames = getattr(image, "n_frames", 1)
        if n_frames > 1 and image.format != "MPO":
            raise UnsupportedError(
                f"it is an animation of {n_frames} frames: store them as pages of a TIFF first."
            )
        pixels = pixels_of_png(path) if image.format == "PNG" else _pixels(image)
        tags = _exif_tags(image, doubts)
        pixels = turned(pixels, tags.get(exif.ORIENTATION, 1), 0)
        metadata = _metadata(path, image, tags, (pixels.shape[1], pixels.shape[0]), doubts)
        profile = image.info.get("icc_profile")
    has_channels = pixels.ndim == 3
    has_alpha = has_channels and pixels.shape[-1] in (2, 4)
    return Picture(pixels, has_channels, profile, has_alpha, metadata=metadata)


def _pixels(image: Image.Image) -> NDArray:
    if image.mode in ("1", "P"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    if image.mode not in ("L", "RGB", "RGBA"):
        is_ycck = image.mode == "CMYK" and image.info.get("adobe_transform") == 2
        name = "YCCK" if is_ycck else image.mode
        raise UnsupportedError(f"its colours are {name}: convert it to grey or RGB first.")
    return np.array(image)


def _exif_tags(image: Image.Image, doubts: list[str]) -> Mapping[int, Any]:
    """The main tags, none if they cannot be read."""
    if doubts:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow skips what is broken, with a warning
            image.load()  # EXIF and texts of a PNG may stand after its pixels
            return dict(image.getexif())
    except Exception as error:  # broken in any way
        what = "EXIF and texts" if image.format == "PNG" else "EXIF"
        doubts.append(f"{what}: {_in_one_line(error)}")
        return {}


def _metadata(
    path: Path,
    image: Any,
    tags: Mapping[int, Any],
    size: tuple[int, int],
    doubts: list[str],
) -> Metadata:
    kind = str(image.format)
    is_broken = bool(doubts)
    block = b"" if is_broken else image.info.get("exif", b"").removeprefix(exif.MARK)
    resolution, is_doubtful = _resolution(image, tags, doubts)
    if kind == "MPO":  # a JPEG with more pictures after the first, such as a preview
        kind = "JPEG"
        doubts.append(f"all but the first of its {image.n_frames} pictures")
    try:
        without = exif.RESOLUTION if is_doubtful else ()
        orientation = tags.get(exif.ORIENTATION, 1)
        block = exif.upright(block, size, orientation, without) if block else b""
    except (struct.error, KeyError) as error:
        doubts.append(f"EXIF: {_in_one_line(error)}")
        block = b""
    xmp = image.info.get("xmp", b"")
    xmp = exif.upright_xmp(xmp) if xmp else b""
    texts = texts_of_png(image, doubts) if kind == "PNG" and not is_broken else {}
    options = _options(path, image, kind, doubts)
    is_bilevel = image.mode == "1"
    return Metadata(kind, options, resolution, block, xmp, texts, tuple(doubts), is_bilevel)


def _resolution(
    image: Image.Image, tags: Mapping[int, Any], doubts: list[str]
) -> tuple[Resolution | None, bool]:
    """The resolution, and whether that of EXIF is doubtful."""
    resolution, n_doubts = None, len(doubts)
    orientation = tags.get(exif.ORIENTATION, 1)
    if exif.RESOLUTION[0] in tags:
        x, y, unit = (tags.get(tag) for tag in exif.RESOLUTION)
        resolution = resolution_of(x, y, unit or INCH, orientation, doubts)
    is_doubtful = len(doubts) > n_doubts
    # Pillow makes up the resolution of a JPEG that has none.
    is_given = image.format not in ("JPEG", "MPO") or image.info.get("jfif_unit", 0) > 0
    if "dpi" in image.info and is_given:
        x, y = image.info["dpi"]
        resolution = resolution_of(x, y, INCH, orientation, doubts)
    return resolution, is_doubtful


def _options(path: Path, image: Any, kind: str, doubts: list[str]) -> dict[str, Any]:
    """How a file like this one is written."""
    info = image.info
    if kind == "PNG":
        return options_of_png(path, image, doubts)
    if kind == "JPEG":
        sampling = max(0, JpegImagePlugin.get_sampling(image))  # one without a name becomes 4:4:4
        options = {"qtables": image.quantization, "subsampling": sampling}
        return options | {key: info[key] for key in ("progressive", "comment") if key in info}
    if kind == "WEBP":
        return {} if _is_lossless_webp(path.read_bytes()) else {"quality": _QUALITY}
    return {}


def _is_lossless_webp(data: bytes) -> bool:
    position = 12  # after RIFF, length and WEBP
    while position + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, position)
        if kind in (b"VP8L", b"VP8 "):
            return bool(kind == b"VP8L")
        position += 8 + length + length % 2
    return False


def _in_one_line(error: Warning | str | Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# --- Writing


def write_flat(file: BinaryIO, picture: Picture, kind: str, quality: int | None) -> list[str]:
    """Write a picture; what of its metadata is left out."""
    doubts: list[str] = []
    options = _said(picture, kind, doubts)
    if kind == "PNG":
        return doubts + write_png(file, picture, options)
    like = dict(picture.metadata.options) if picture.metadata.kind == kind else {}
    if kind == "JPEG":
        options |= {"subsampling": 0} | like
        if quality or "qtables" not in like:
            options.pop("qtables", None)
            options["quality"] = quality or _QUALITY
    elif kind == "WEBP":
        quality = quality or like.get("quality")
        # "exact" keeps colours where the picture is transparent.
        options |= {"quality": quality} if quality else {"lossless": True, "exact": True}
    Image.fromarray(picture.pixels).save(file, kind, **options)
    return doubts


def _said(picture: Picture, kind: str, doubts: list[str]) -> dict[str, Any]:
    """What the file says of its pixels, as options of Pillow."""
    metadata = picture.metadata
    options: dict[str, Any] = {}
    if picture.profile:
        options["icc_profile"] = picture.profile
    resolution = metadata.resolution
    dpi = resolution.dpi if resolution else None
    if dpi and kind in _MOST_DPI:
        if min(dpi) >= 1 and max(dpi) <= _MOST_DPI[kind]:
            options["dpi"] = dpi
        else:
            doubts.append(f"the resolution: {kind} cannot hold {dpi[0]:.4g} pixels per inch")
    block = metadata.exif
    if kind == "WEBP" and resolution and not block:  # which has no other place for a resolution
        block = exif.block_of({}, resolution)
    for name, value in {"exif": block and exif.MARK + block, "xmp": metadata.xmp}.items():
        if kind == "JPEG" and len(value) > _LONGEST_IN_JPEG[name]:
            doubts.append(f"{name.upper()}: JPEG cannot hold its {len(value)} bytes")
        elif value and kind != "BMP":
            options[name] = value
    return options
