"""Pictures in files: PNG, JPEG, TIFF and NPY, read without loss and written when complete."""

from __future__ import annotations

import math
import struct
import warnings
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image
from PIL.PngImagePlugin import putchunk

from kappaform.files import UnsupportedError, check_readable, replaced_when_complete

_KINDS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_KINDS |= {".tif": "TIFF", ".tiff": "TIFF", ".npy": "NPY"}
SUFFIXES = tuple(_KINDS)

_NUMBERS = tuple(f"{kind}{bits}" for kind in ("uint", "int", "float") for bits in (8, 16, 32, 64))
#: Types of pixels that a format holds; NPY holds any.
_TYPES = {"PNG": ("uint8", "uint16"), "JPEG": ("uint8",), "TIFF": _NUMBERS}
_JPEG_SIDE = 65_500  # JPEG_MAX_DIMENSION of libjpeg

_ORIENTATION = 0x0112  # tag of EXIF
_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of the colour types of PNG
#: Passes of an interlaced PNG: first row and column, and the steps to the next ones.
_PNG_PASSES = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2)]
_PNG_PASSES += [(0, 1, 2, 2), (1, 0, 2, 1)]


class Picture(NamedTuple):
    """Pixels of a file in their own type: (H, W), with channels last and pages first, if any."""

    pixels: NDArray
    has_channels: bool
    profile: bytes | None = None  #: ICC colour profile
    has_alpha: bool = False  #: whether the file says that the last channel is opacity

    @property
    def has_pages(self) -> bool:
        return self.pixels.ndim - self.has_channels > 2

    @property
    def colours(self) -> NDArray:
        """The pixels without opacity; without an axis for channels if only one is left."""
        colours = self.pixels[..., :-1] if self.has_alpha else self.pixels
        return colours if self.channel_axis or not self.has_channels else colours[..., 0]

    @property
    def channel_axis(self) -> int | None:
        """Of the colours, if there are several."""
        n_colours = self.pixels.shape[-1] - self.has_alpha
        return -1 if self.has_channels and n_colours > 1 else None

    def with_colours(self, colours: NDArray) -> Picture:
        """The same picture with other `colours`."""
        if self.has_channels:
            colours = colours.reshape(*self.pixels.shape[:-1], -1)
            opacity = self.pixels[..., colours.shape[-1] :]
            colours = np.concatenate([colours, opacity], axis=-1)
        return self._replace(pixels=colours)


# --- Any format


def read_image(path: Path) -> Picture:
    """The picture in a file; of a TIFF, all pages of its first series."""
    check_readable(path)
    kind = _kind_of(path)
    picture = _read_npy(path) if kind == "NPY" else _decoded(path, kind)
    pixels = picture.pixels
    if pixels.dtype.kind not in "uif" or not pixels.size:
        raise ValueError(
            f"{path} holds {pixels.dtype} of shape {pixels.shape}: a picture has integers or "
            "floats, at least one of them."
        )
    return picture


def _decoded(path: Path, kind: str) -> Picture:
    try:
        if kind != "TIFF":
            return _read_png_jpeg(path)
        from kappaform.image_files.tiff import read_tiff

        return Picture(*read_tiff(path))
    except (UnsupportedError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path}: {error}") from None
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # decoders meet damage each in its own way
        raise _damage(path, kind, error) from error


def check_target(path: Path, picture: Picture) -> None:
    """Refuse, before any work is done, a format that cannot hold a picture like this one."""
    kind = _kind_of(path)
    if misfit := _misfit(kind, picture):
        raise ValueError(f"{path}: {kind} {misfit}.")


def _misfit(kind: str, picture: Picture) -> str | None:
    """Why a format does not hold a picture, and which one does."""
    shape, dtype = picture.pixels.shape, picture.pixels.dtype.name
    types = _TYPES.get(kind, (dtype,))
    if dtype not in types:
        remedy = "NPY" if kind == "TIFF" else "TIFF or NPY"
        return f"holds {' or '.join(types)}, the picture is {dtype}: write {remedy}"
    if kind in ("TIFF", "NPY"):
        return None
    if picture.has_pages:
        return "holds one page, the picture has more: write TIFF or NPY"
    if kind == "JPEG" and max(shape[:2]) > _JPEG_SIDE:
        return f"holds {_JPEG_SIDE} pixels a side, the picture has shape {shape}: write PNG"
    if picture.has_channels:
        fits_png = shape[-1] in ((2, 4) if picture.has_alpha else (3,))
        if not fits_png or (kind == "JPEG" and picture.has_alpha):
            remedy = "PNG" if fits_png else "TIFF or NPY"
            return f"cannot hold the {shape[-1]} channels of the picture: write {remedy}"
    return None


def write_image(path: Path, picture: Picture) -> None:
    """Write a picture that `check_target` let pass, in the format that the suffix says."""
    kind = _kind_of(path)
    with replaced_when_complete(path) as file:
        if kind == "NPY":
            np.save(file, picture.pixels, allow_pickle=False)
        elif kind == "TIFF":
            from kappaform.image_files.tiff import write_tiff

            write_tiff(file, picture)
        elif picture.pixels.dtype == np.uint16 and picture.has_channels:
            _write_16_bit_channels(file, picture)
        else:
            options: dict[str, Any] = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {}
            options["icc_profile"] = picture.profile
            Image.fromarray(np.ascontiguousarray(picture.pixels)).save(file, kind, **options)


def as_stored(values: NDArray, dtype: DTypeLike) -> NDArray:
    """Values as a file of that type holds them: clipped to its range, integers rounded."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        largest = np.finfo(dtype).max
        return np.clip(values, -largest, largest).astype(dtype)
    limits = np.iinfo(dtype)
    rounded = np.maximum(np.rint(values), limits.min)
    # The largest integer of 64 bit is not a float; the float beside it would wrap around.
    too_large = rounded >= limits.max
    stored = np.where(too_large, 0, rounded).astype(dtype)
    stored[too_large] = limits.max
    return stored


def _kind_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _KINDS:
        known = ", ".join(SUFFIXES)
        raise ValueError(f"{path}: the suffix {suffix!r} is unknown, use one of {known}.")
    return _KINDS[suffix]


def _damage(path: Path, kind: str, error: Exception) -> ValueError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ValueError(f"{path} is not a valid {kind} file: {reason}")


# --- NPY


def load_npy(path: Path) -> NDArray:
    """The array in a .npy file, mapped into memory, not read.

    Mapping compares the length of the file with its header before anything is allocated.
    """
    check_readable(path)
    try:
        with warnings.catch_warnings(), np.errstate(over="raise"):
            warnings.simplefilter("ignore")
            return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # the header is parsed as Python: damage may raise anything
        raise _damage(path, "NPY", error) from error


def _read_npy(path: Path) -> Picture:
    pixels = np.array(load_npy(path))
    # Three or four values along the last axis are channels, none of them known to be opacity; a
    # volume can be declared one later.
    return Picture(pixels, pixels.ndim >= 3 and pixels.shape[-1] in (3, 4))


# --- PNG and JPEG, by Pillow as far as it keeps every bit


def _read_png_jpeg(path: Path) -> Picture:
    """The picture in a PNG or JPEG file, upright."""
    with warnings.catch_warnings():
        # Large pictures are welcome up to the limit, where the warning becomes an error.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        image = Image.open(path, formats=["PNG", "JPEG"])
    with image:
        pixels = _pixels_of_png(path, image) if image.format == "PNG" else _as_array(image)
        orientation = image.getexif().get(_ORIENTATION, 1)
        profile = image.info.get("icc_profile")
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    has_channels = pixels.ndim == 3
    has_alpha = has_channels and pixels.shape[-1] in (2, 4)
    return Picture(np.ascontiguousarray(pixels), has_channels, profile, has_alpha)


def _as_array(image: Image.Image) -> NDArray:
    if "transparency" in image.info and image.mode in ("L", "RGB", "P"):
        image = image.convert("LA" if image.mode == "L" else "RGBA")
    elif image.mode in ("1", "P", "PA"):
        image = image.convert({"1": "L", "P": "RGB", "PA": "RGBA"}[image.mode])
    if image.mode not in ("L", "LA", "RGB", "RGBA", "I", "I;16"):
        raise UnsupportedError(f"its colours are {image.mode}: convert it to grey or RGB first.")
    pixels = np.array(image)
    return pixels.astype(np.uint16) if image.mode.startswith("I") else pixels


def _pixels_of_png(path: Path, image: Image.Image) -> NDArray:
    """Pixels of a PNG whose rows are all there: Pillow leaves missing ones black."""
    data, position = path.read_bytes(), len(_PNG_START)
    chunks: dict[bytes, bytearray] = defaultdict(bytearray)
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        chunks[kind] += data[position + 8 : position + 8 + length]
        position += length + 12  # length, kind and checksum
    _, _, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    content, unpacker = bytes(chunks[b"IDAT"]), zlib.decompressobj()
    pieces = (content[start : start + 2**16] for start in range(0, len(content), 2**16))
    n_bytes = sum(len(unpacker.decompress(piece)) for piece in pieces)
    n_expected = _n_bytes_of_png(image.size, depth * _PNG_CHANNELS[colours], interlaced)
    if n_bytes < n_expected:
        raise ValueError(f"it has {n_bytes} of the {n_expected} bytes of its rows.")
    image.load()  # checks the rest of the file
    if depth < 16 or colours == 0:
        return _as_array(image)

    def decoded(mode: str, raw_mode: str) -> NDArray:
        return np.array(Image.frombytes(mode, image.size, content, "zip", raw_mode, interlaced))

    # Of 16 bit channels Pillow by itself keeps the first byte.
    if colours == 4:  # grey and opacity: four bytes a pixel, as RGBA of 8 bit
        return decoded("RGBA", "RGBA").view(">u2").astype(np.uint16)
    # As if the bytes were in the other order, the second one of each channel is kept.
    first, second = (decoded(image.mode, f"{image.mode};16{order}") for order in "BL")
    return first.astype(np.uint16) << 8 | second


def _n_bytes_of_png(size: tuple[int, int], n_bits: int, interlaced: int) -> int:
    """Length of the unpacked rows of so many bits a pixel, each with its filter in front."""
    (width, height), n_bytes = size, 0
    for top, left, down, right in _PNG_PASSES if interlaced else [(0, 0, 1, 1)]:
        n_rows, n_columns = len(range(top, height, down)), len(range(left, width, right))
        n_bytes += n_rows * (1 + math.ceil(n_columns * n_bits / 8)) if n_columns else 0
    return n_bytes


def _write_16_bit_channels(file: BinaryIO, picture: Picture) -> None:
    """A PNG of a kind that Pillow cannot write: each row as its difference from the one above."""
    height, width, n_channels = picture.pixels.shape
    rows = picture.pixels.astype(">u2").view(np.uint8).reshape(height, -1)
    filtered = np.full((height, rows.shape[1] + 1), 2, np.uint8)  # 2: the filter "up"
    filtered[:, 1:] = np.diff(rows, axis=0, prepend=np.zeros_like(rows[:1]))
    colours = {2: 4, 3: 2, 4: 6}[n_channels]
    file.write(_PNG_START)
    putchunk(file, b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colours, 0, 0, 0))
    if picture.profile:
        putchunk(file, b"iCCP", b"ICC\0\0", zlib.compress(picture.profile))
    putchunk(file, b"IDAT", zlib.compress(filtered.tobytes()))
    putchunk(file, b"IEND")
