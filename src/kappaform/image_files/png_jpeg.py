"""PNG and JPEG, by Pillow as far as it keeps every bit."""

from __future__ import annotations

import io
import math
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from kappaform.image_files import Picture, UnsupportedError, check_size

_PNG_START = b"\x89PNG\r\n\x1a\n"
_ORIENTATION = 0x0112  # tag of EXIF
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of the colour types of PNG
_MODES = {2: "RGB", 6: "RGBA"}
#: Passes of an interlaced PNG: first row and column, and the steps to the next ones.
_PASSES = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2)]
_PASSES += [(1, 0, 2, 1)]


def read_png_jpeg(path: Path) -> Picture:
    """The picture in a PNG or JPEG file, upright."""
    data = path.read_bytes()
    with warnings.catch_warnings():
        # Large pictures are welcome up to the limit, where the warning becomes an error.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            image = Image.open(io.BytesIO(data), formats=["PNG", "JPEG"])
        except Image.DecompressionBombError as error:
            raise UnsupportedError(str(error)) from None
        except UnidentifiedImageError:
            raise ValueError("its content is neither PNG nor JPEG.") from None
        check_size(math.prod(image.size))
        png = _Png.parsed(data) if image.format == "PNG" else None
        image.load()
    if png and png.depth == 16 and png.colour_type in (2, 4, 6):
        pixels = _channels_of_16_bit(png)
    else:
        pixels = _as_array(image)
    pixels = _upright(pixels, image.getexif().get(_ORIENTATION, 1))
    has_channels = pixels.ndim == 3
    has_alpha = has_channels and pixels.shape[-1] in (2, 4)
    return Picture(pixels, has_channels, image.info.get("icc_profile"), has_alpha)


def _as_array(image: Image.Image) -> NDArray:
    if "transparency" in image.info and image.mode in ("L", "RGB", "P"):
        image = image.convert("LA" if image.mode == "L" else "RGBA")
    elif image.mode in ("1", "P", "PA"):
        image = image.convert({"1": "L", "P": "RGB", "PA": "RGBA"}[image.mode])
    if image.mode not in ("L", "LA", "RGB", "RGBA", "I", "I;16"):
        raise UnsupportedError(f"its colours are {image.mode}, convert it to grey or RGB first.")
    pixels = np.array(image)
    return pixels.astype(np.uint16) if image.mode.startswith("I") else pixels


def _upright(pixels: NDArray, orientation: int) -> NDArray:
    """Pixels as a viewer shows them that follows the orientation of EXIF, 1 to 8."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


class _Png(NamedTuple):
    """What a PNG file says of its pixels, and the compressed pixels."""

    size: tuple[int, int]
    depth: int
    colour_type: int
    interlaced: int
    content: bytes

    @classmethod
    def parsed(cls, data: bytes) -> _Png:
        """Of the bytes of a file whose rows are all there; Pillow leaves missing ones black."""
        header, contents, position = b"", [], len(_PNG_START)
        while position + 8 <= len(data):
            length, kind = struct.unpack_from(">I4s", data, position)
            chunk = data[position + 8 : position + 8 + length]
            if kind == b"IHDR":
                header = chunk
            elif kind == b"IDAT":
                contents.append(chunk)
            position += length + 12  # length, kind and checksum
        width, height, depth, colour_type, _, _, interlaced = struct.unpack(">IIBBBBB", header)
        png = cls((width, height), depth, colour_type, interlaced, b"".join(contents))
        unpacker, n_bytes, n_expected = zlib.decompressobj(), 0, png._n_bytes()
        for start in range(0, len(png.content), 2**16):  # in pieces, to keep none of it
            n_bytes += len(unpacker.decompress(png.content[start : start + 2**16]))
        if n_bytes < n_expected:
            raise ValueError(f"it has {n_bytes} of the {n_expected} bytes of its rows.")
        return png

    def _n_bytes(self) -> int:
        """Length of the unpacked rows, each with the number of its filter in front."""
        bits, (width, height) = self.depth * _CHANNELS[self.colour_type], self.size
        n_bytes = 0
        for top, left, down, right in _PASSES if self.interlaced else [(0, 0, 1, 1)]:
            n_rows, n_columns = len(range(top, height, down)), len(range(left, width, right))
            n_bytes += n_rows * (1 + math.ceil(n_columns * bits / 8)) if n_columns else 0
        return n_bytes


def _channels_of_16_bit(png: _Png) -> NDArray:
    """All bits of pixels of which Pillow by itself keeps the first byte of each channel."""

    def decoded(mode: str, raw_mode: str) -> NDArray:
        image = Image.frombytes(mode, png.size, png.content, "zip", raw_mode, png.interlaced)
        return np.array(image)

    if png.colour_type == 4:  # grey and opacity: four bytes a pixel, as RGBA of 8 bit
        return decoded("RGBA", "RGBA").view(">u2").astype(np.uint16)
    mode = _MODES[png.colour_type]
    # As if the bytes were in the other order, the second one of each channel is kept.
    first, second = (decoded(mode, f"{mode};16{order}") for order in "BL")
    return first.astype(np.uint16) << 8 | second


def write_png_jpeg(file: BinaryIO, picture: Picture, kind: str) -> None:
    """Write a picture as PNG or JPEG."""
    if picture.pixels.dtype == np.uint16 and picture.has_channels:
        file.write(_png_of_16_bit_channels(picture))
        return
    options: dict[str, Any] = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {}
    if picture.profile:
        options["icc_profile"] = picture.profile
    Image.fromarray(np.ascontiguousarray(picture.pixels)).save(file, kind, **options)


def _png_of_16_bit_channels(picture: Picture) -> bytes:
    """A PNG of a kind that Pillow cannot write: each row as its difference from the one above."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    height, width, channels = picture.pixels.shape
    rows = picture.pixels.astype(">u2").view(np.uint8).reshape(height, -1)
    filtered = np.full((height, rows.shape[1] + 1), 2, np.uint8)  # 2: the filter "up"
    filtered[:, 1:] = np.diff(rows, axis=0, prepend=np.zeros_like(rows[:1]))
    colour_type = {2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    profile = b"ICC\0\0" + zlib.compress(picture.profile) if picture.profile else b""
    return b"".join(
        [
            _PNG_START,
            chunk(b"IHDR", header),
            chunk(b"iCCP", profile) if profile else b"",
            chunk(b"IDAT", zlib.compress(filtered.tobytes())),
            chunk(b"IEND", b""),
        ]
    )
