"""PNG, JPEG, WebP and BMP: one page each, by Pillow, except the pixels of PNG."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, JpegImagePlugin
from PIL.PngImagePlugin import PngInfo

from kappaform.files import UnsupportedError
from kappaform.image_files import exif
from kappaform.image_files.picture import (
    INCH,
    Metadata,
    Picture,
    Resolution,
    complaints_of,
    resolution_of,
    turned,
)

_LONGEST_IN_JPEG = {"exif": 65_527, "xmp": 65_504}  # bytes in its one segment
_MOST_DPI = {"JPEG": 2**16 - 1, "PNG": 5e7, "BMP": 5e7}  # 16 bit; 31 bit, in pixels per metre
_QUALITY = 95  # of JPEG and of lossy WebP, unless the file that was read has tables

_XMP_OF_PNG = "XML:com.adobe.xmp"  # key of its text
_PROFILE_AS_TEXT = "Raw profile type "  # how ImageMagick stores EXIF and the like
_LONGEST_TEXT = 1024  # characters of a text that is not compressed
_FILTERED = 1  # strategy of zlib for rows that are differences: files are 5 % smaller

_PNG_SIGNATURE = 8  # bytes in front of the first chunk
_PNG_HEADER = 33  # bytes up to the end of IHDR, after which other chunks may follow
_PNG_FORMAT = slice(24, 26)  # bits of a value, and kind of colours: in IHDR
#: Chunks that hold the pixels or are copied by other means; iDOT is an index into IDAT.
_KNOWN = {"IHDR", "PLTE", "tRNS", "IDAT", "IEND", "iDOT", "gAMA", "cHRM", "sRGB", "iCCP", "pHYs"}
_KNOWN |= {"eXIf", "tEXt", "zTXt", "iTXt"}
_OF_COLOURS = ("cICP", "mDCV", "cLLI")  # the meaning of values: the same for denoised ones
_BACKGROUND, _BITS = "bKGD", "sBIT"  # valid while bits and kind of colours are the same


# --- Reading


def read_flat(path: Path) -> Picture:
    """The image in a file, upright."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Large images are accepted up to the limit, where the warning becomes an error.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        image = Image.open(path, formats=["PNG", "JPEG", "WEBP", "BMP"])
    omitted = [f"EXIF: {_in_one_line(warning.message)}" for warning in caught[:1]]
    with image:
        n_frames = getattr(image, "n_frames", 1)
        if n_frames > 1 and image.format != "MPO":
            raise UnsupportedError(
                f"it is an animation of {n_frames} frames: store them as pages of a TIFF first."
            )
        pixels = _pixels_of_png(path) if image.format == "PNG" else _pixels(image)
        tags = _exif_tags(image, omitted)
        pixels = turned(pixels, tags.get(exif.ORIENTATION, 1), 0)
        metadata = _metadata(path, image, tags, (pixels.shape[1], pixels.shape[0]), omitted)
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


def _exif_tags(image: Image.Image, omitted: list[str]) -> Mapping[int, Any]:
    """The main tags; none if they cannot be read."""
    if omitted:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow skips what is broken, with a warning
            image.load()  # EXIF and texts of a PNG may follow its pixels
            return dict(image.getexif())
    except Exception as error:  # broken in any way
        what = "EXIF and texts" if image.format == "PNG" else "EXIF"
        omitted.append(f"{what}: {_in_one_line(error)}")
        return {}


def _metadata(
    path: Path,
    image: Any,
    tags: Mapping[int, Any],
    size: tuple[int, int],
    omitted: list[str],
) -> Metadata:
    kind = str(image.format)
    is_broken = bool(omitted)
    block = b"" if is_broken else image.info.get("exif", b"").removeprefix(exif.MARK)
    resolution, is_invalid = _resolution(image, tags, omitted)
    if kind == "MPO":  # a JPEG with more images after the first, such as a preview
        kind = "JPEG"
        omitted.append(f"all except the first of its {image.n_frames} images")
    try:
        without = exif.RESOLUTION if is_invalid else ()
        orientation = tags.get(exif.ORIENTATION, 1)
        block = exif.upright(block, size, orientation, without) if block else b""
    except (struct.error, KeyError) as error:
        omitted.append(f"EXIF: {_in_one_line(error)}")
        block = b""
    xmp = image.info.get("xmp", b"")
    xmp = exif.upright_xmp(xmp) if xmp else b""
    texts = _texts_of_png(image, omitted) if kind == "PNG" and not is_broken else {}
    options = _options(path, image, kind, omitted)
    is_bilevel = image.mode == "1"
    return Metadata(kind, options, resolution, block, xmp, texts, tuple(omitted), is_bilevel)


def _resolution(
    image: Image.Image, tags: Mapping[int, Any], omitted: list[str]
) -> tuple[Resolution | None, bool]:
    """The resolution, and whether that of EXIF is invalid."""
    resolution, n_omitted = None, len(omitted)
    orientation = tags.get(exif.ORIENTATION, 1)
    if exif.RESOLUTION[0] in tags:
        x, y, unit = (tags.get(tag) for tag in exif.RESOLUTION)
        resolution = resolution_of(x, y, unit or INCH, orientation, omitted)
    is_invalid = len(omitted) > n_omitted
    # Pillow invents the resolution of a JPEG that has none.
    is_given = image.format not in ("JPEG", "MPO") or image.info.get("jfif_unit", 0) > 0
    if "dpi" in image.info and is_given:
        x, y = image.info["dpi"]
        resolution = resolution_of(x, y, INCH, orientation, omitted)
    return resolution, is_invalid


def _options(path: Path, image: Any, kind: str, omitted: list[str]) -> dict[str, Any]:
    """How to write a file like this one."""
    info = image.info
    if kind == "PNG":
        return _options_of_png(path, image, omitted)
    if kind == "JPEG":
        sampling = max(0, JpegImagePlugin.get_sampling(image))  # an unnamed one becomes 4:4:4
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


def write_flat(file: BinaryIO, picture: Picture, kind: str, jpeg_quality: int | None) -> list[str]:
    """Write an image; returns what is omitted of its metadata."""
    omitted: list[str] = []
    options = _pillow_options(picture, kind, omitted)
    if kind == "PNG":
        return omitted + _write_png(file, picture, options)
    like = dict(picture.metadata.options) if picture.metadata.kind == kind else {}
    if kind == "JPEG":
        options |= {"subsampling": 0} | like
        if jpeg_quality or "qtables" not in like:
            options.pop("qtables", None)
            options["quality"] = jpeg_quality or _QUALITY
    elif kind == "WEBP":
        quality = jpeg_quality or like.get("quality")
        # "exact" preserves colours where the image is transparent.
        options |= {"quality": quality} if quality else {"lossless": True, "exact": True}
    Image.fromarray(picture.pixels).save(file, kind, **options)
    return omitted


def _pillow_options(picture: Picture, kind: str, omitted: list[str]) -> dict[str, Any]:
    """Metadata as options of Pillow."""
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
            omitted.append(f"the resolution: {kind} cannot hold {dpi[0]:.4g} pixels per inch")
    block = metadata.exif
    if kind == "WEBP" and resolution and not block:  # which has no other field for a resolution
        block = exif.block_of({}, resolution)
    for name, value in {"exif": block and exif.MARK + block, "xmp": metadata.xmp}.items():
        if kind == "JPEG" and len(value) > _LONGEST_IN_JPEG[name]:
            omitted.append(f"{name.upper()}: JPEG cannot hold its {len(value)} bytes")
        elif value and kind != "BMP":
            options[name] = value
    return options


# --- PNG


def _pixels_of_png(path: Path) -> NDArray:
    """All pixels. Pillow leaves missing rows black, and reads 8 of 16 bits of colours."""
    import imagecodecs

    with complaints_of("imagecodecs"):
        return imagecodecs.png_decode(path.read_bytes())


def _texts_of_png(image: Any, omitted: list[str]) -> dict[str, str]:
    """All texts except those that are written in another way."""
    texts = dict(image.text)
    texts.pop(_XMP_OF_PNG, None)
    for key in [key for key in texts if key.startswith(_PROFILE_AS_TEXT)]:
        omitted.append(f"the text {key!r}")  # it may contain an orientation
        del texts[key]
    return texts


def _options_of_png(path: Path, image: Any, omitted: list[str]) -> dict[str, Any]:
    """How a file declares its colours; chunks that may be wrong for other pixels are omitted."""
    data = path.read_bytes()
    options = {
        key: image.info[key] for key in ("gamma", "srgb", "chromaticity") if key in image.info
    }
    chunks = {name: content for name, content in _chunks(data) if name not in _KNOWN}
    kept = {name: chunks.pop(name) for name in (*_OF_COLOURS, _BACKGROUND) if name in chunks}
    n_bits = data[_PNG_FORMAT][0]
    if set(chunks.get(_BITS, ())) == {n_bits}:  # otherwise values had fewer bits than they have now
        kept[_BITS] = chunks.pop(_BITS)
    omitted += [f"the chunk {name} of PNG" for name in chunks]
    return options | {"chunks": kept, "format": data[_PNG_FORMAT]}


def _chunks(data: bytes) -> Iterator[tuple[str, bytes]]:
    position = _PNG_SIGNATURE
    while position + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        yield name.decode("latin-1"), data[position + 8 : position + 8 + length]
        position += 12 + length


def _write_png(file: BinaryIO, picture: Picture, options: dict[str, Any]) -> list[str]:
    """Write an image with `options` of Pillow; returns what is omitted of its metadata."""
    import imagecodecs

    encoded = imagecodecs.png_encode(picture.pixels, strategy=_FILTERED)
    info, others, omitted = PngInfo(), b"", []
    if picture.metadata.kind == "PNG":
        of_file = picture.metadata.options
        _add_colours(info, of_file)
        is_same = of_file["format"] == encoded[_PNG_FORMAT]
        for name, content in of_file["chunks"].items():
            if is_same or name in _OF_COLOURS:
                others += _chunk(name, content)
            else:
                omitted.append(f"the chunk {name} of PNG")
    for key, text in picture.metadata.texts.items():
        info.add_text(key, text, zip=len(text) > _LONGEST_TEXT)
    if xmp := options.pop("xmp", None):
        info.add_itxt(_XMP_OF_PNG, xmp.decode(errors="replace"))
    small = io.BytesIO()
    Image.new("L", (1, 1)).save(small, "PNG", pnginfo=info, **options)
    chunks = small.getvalue()
    chunks = chunks[_PNG_HEADER : chunks.rindex(b"IDAT") - 4]
    for part in (encoded[:_PNG_HEADER], others, chunks, encoded[_PNG_HEADER:]):
        file.write(part)
    return omitted


def _chunk(name: str, content: bytes) -> bytes:
    named = name.encode("latin-1") + content
    return struct.pack(">I", len(content)) + named + struct.pack(">I", zlib.crc32(named))


def _add_colours(info: PngInfo, options: Mapping[str, Any]) -> None:
    """How values are displayed: gamma, sRGB and the colours of white, red, green and blue."""
    if "gamma" in options:
        info.add(b"gAMA", struct.pack(">I", round(1e5 * options["gamma"])))
    if "srgb" in options:
        info.add(b"sRGB", bytes([options["srgb"]]))
    if "chromaticity" in options:
        numbers = [round(1e5 * number) for number in options["chromaticity"]]
        info.add(b"cHRM", struct.pack(">8I", *numbers))
