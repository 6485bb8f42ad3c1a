"""PNG: pixels by imagecodecs, which has 16 bit and misses no row; all else as Pillow writes it."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from kappaform.image_files.picture import Picture, complaints_of

_XMP = "XML:com.adobe.xmp"  # key of its text
_PROFILE_AS_TEXT = "Raw profile type "  # how ImageMagick keeps EXIF and the like
_LONGEST_TEXT = 1024  # characters of a text that is not compressed
_FILTERED = 1  # strategy of zlib for rows that are differences: files are 5 % smaller

_SIGNATURE = 8  # bytes in front of the first chunk
_HEADER = 33  # bytes up to the end of IHDR, after which other chunks may stand
_FORMAT = slice(24, 26)  # bits of a value, and kind of colours: in IHDR
#: Chunks that hold the pixels or are read and written by other means; iDOT is an index into IDAT.
_KNOWN = {"IHDR", "PLTE", "tRNS", "IDAT", "IEND", "iDOT", "gAMA", "cHRM", "sRGB", "iCCP", "pHYs"}
_KNOWN |= {"eXIf", "tEXt", "zTXt", "iTXt"}
_OF_COLOURS = ("cICP", "mDCV", "cLLI")  # what values mean: as true of the denoised ones
_BACKGROUND, _BITS = "bKGD", "sBIT"  # true while bits and kind of colours are the same


# --- Reading


def pixels_of_png(path: Path) -> NDArray:
    """Pixels of all rows. Pillow leaves missing ones black, and keeps 8 of 16 bits of a colour."""
    import imagecodecs

    with complaints_of("imagecodecs"):
        return imagecodecs.png_decode(path.read_bytes())


def texts_of_png(image: Any, doubts: list[str]) -> dict[str, str]:
    """All texts but those that are written in another way."""
    texts = dict(image.text)
    texts.pop(_XMP, None)
    for key in [key for key in texts if key.startswith(_PROFILE_AS_TEXT)]:
        doubts.append(f"the text {key!r}")  # it may tell an orientation
        del texts[key]
    return texts


def options_of_png(path: Path, image: Any, doubts: list[str]) -> dict[str, Any]:
    """What a file says of its colours; chunks that cannot be true of other pixels are doubted."""
    data = path.read_bytes()
    options = {
        key: image.info[key] for key in ("gamma", "srgb", "chromaticity") if key in image.info
    }
    chunks = {name: content for name, content in _chunks(data) if name not in _KNOWN}
    kept = {name: chunks.pop(name) for name in (*_OF_COLOURS, _BACKGROUND) if name in chunks}
    n_bits = data[_FORMAT][0]
    if set(chunks.get(_BITS, ())) == {n_bits}:  # else values had fewer bits than they have now
        kept[_BITS] = chunks.pop(_BITS)
    doubts += [f"the chunk {name} of PNG" for name in chunks]
    return options | {"chunks": kept, "format": data[_FORMAT]}


def _chunks(data: bytes) -> Iterator[tuple[str, bytes]]:
    position = _SIGNATURE
    while position + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        yield name.decode("latin-1"), data[position + 8 : position + 8 + length]
        position += 12 + length


# --- Writing


def write_png(file: BinaryIO, picture: Picture, options: dict[str, Any]) -> list[str]:
    """Write a picture with `options` of Pillow; what of its metadata is left out."""
    import imagecodecs

    encoded = imagecodecs.png_encode(picture.pixels, strategy=_FILTERED)
    said, others, doubts = PngInfo(), b"", []
    if picture.metadata.kind == "PNG":
        of_file = picture.metadata.options
        _add_colours(said, of_file)
        is_same = of_file["format"] == encoded[_FORMAT]
        for name, content in of_file["chunks"].items():
            if is_same or name in _OF_COLOURS:
                others += _chunk(name, content)
            else:
                doubts.append(f"the chunk {name} of PNG")
    for key, text in picture.metadata.texts.items():
        said.add_text(key, text, zip=len(text) > _LONGEST_TEXT)
    if xmp := options.pop("xmp", None):
        said.add_itxt(_XMP, xmp.decode(errors="replace"))
    beside = io.BytesIO()
    Image.new("L", (1, 1)).save(beside, "PNG", pnginfo=said, **options)
    chunks = beside.getvalue()
    chunks = chunks[_HEADER : chunks.rindex(b"IDAT") - 4]
    for part in (encoded[:_HEADER], others, chunks, encoded[_HEADER:]):
        file.write(part)
    return doubts


def _chunk(name: str, content: bytes) -> bytes:
    named = name.encode("latin-1") + content
    return struct.pack(">I", len(content)) + named + struct.pack(">I", zlib.crc32(named))


def _add_colours(said: PngInfo, options: Mapping[str, Any]) -> None:
    """How values are to be shown: gamma, sRGB and the colours of white, red, green and blue."""
    if "gamma" in options:
        said.add(b"gAMA", struct.pack(">I", round(1e5 * options["gamma"])))
    if "srgb" in options:
        said.add(b"sRGB", bytes([options["srgb"]]))
    if "chromaticity" in options:
        numbers = [round(1e5 * number) for number in options["chromaticity"]]
        said.add(b"cHRM", struct.pack(">8I", *numbers))
