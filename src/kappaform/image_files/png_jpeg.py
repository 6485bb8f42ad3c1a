"""PNG and JPEG, by Pillow as far as it keeps every bit."""

from __future__ import annotations

import io
import math
import struct
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kappaform.image_files.picture import Picture, check_size

if TYPE_CHECKING:
    from PIL import Image


def read_pillow(path: Path) -> Picture:
    """The picture in a PNG or JPEG file, upright."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    data = path.read_bytes()
    with warnings.catch_warnings():
        # Large pictures are welcome up to the limit, where the warning becomes an error.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            image = Image.open(io.BytesIO(data), formats=["PNG", "JPEG"])
            check_size(math.prod(image.size))
        except Image.DecompressionBombError as error:
            raise ValueError(str(error)) from None
        except UnidentifiedImageError:
            raise ValueError("its content is neither PNG nor JPEG.") from None
        profile = image.info.get("icc_profile")
        if str(image.tile[0][3]).endswith(";16B") and image.mode in ("RGB", "RGBA"):
            pixels = _channels_of_16_bit(image, data)
        else:
            image.load()
            pixels = _as_array(ImageOps.exif_transpose(image))
    has_channels = pixels.ndim == 3
    return Picture(pixels, has_channels, profile, has_channels and pixels.shape[-1] in (2, 4))


def _as_array(image: Image.Image) -> NDArray:
    if "transparency" in image.info and image.mode in ("L", "RGB", "P"):
        image = image.convert("LA" if image.mode == "L" else "RGBA")
    elif image.mode in ("1", "P", "PA"):
        image = image.convert({"1": "L", "P": "RGB", "PA": "RGBA"}[image.mode])
    if image.mode not in ("L", "LA", "RGB", "RGBA", "I", "I;16"):
        raise ValueError(f"its colours are {image.mode}, convert it to grey or RGB first.")
    pixels = np.array(image)
    return pixels.astype(np.uint16) if image.mode.startswith("I") else pixels


def _channels_of_16_bit(image: Any, data: bytes) -> NDArray:
    """All 16 bits of each channel, of which Pillow keeps the first byte.

    Read a second time as if the bytes were in the other order, the file shows the second one.
    """
    from PIL import Image

    if not image.tile[0][3].startswith(image.mode):
        raise ValueError("it is grey with opacity, 16 bit: save it without opacity, or as TIFF.")
    swapped: Any = Image.open(io.BytesIO(data), formats=["PNG"])
    codec, extents, offset, mode = swapped.tile[0]
    swapped.tile = [(codec, extents, offset, mode.replace("16B", "16L"))]
    return np.array(image).astype(np.uint16) << 8 | np.array(swapped)


def write_pillow(file: BinaryIO, picture: Picture, kind: str) -> None:
    """Write a picture as PNG or JPEG."""
    from PIL import Image

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
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"iCCP", profile) if profile else b"",
            chunk(b"IDAT", zlib.compress(filtered.tobytes())),
            chunk(b"IEND", b""),
        ]
    )
