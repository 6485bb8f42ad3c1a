"""Pictures in files: PNG, JPEG, TIFF and NPY, read without loss and written when complete."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kappaform.files import check_readable, replaced_when_complete
from kappaform.files import check_writable as check_writable  # also offered here

_KINDS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
_KINDS |= {".tif": "TIFF", ".tiff": "TIFF", ".npy": "NPY"}
SUFFIXES = tuple(_KINDS)

_NUMBERS = tuple(f"{kind}{bits}" for kind in ("uint", "int", "float") for bits in (8, 16, 32, 64))
#: Types of pixels that a format holds; NPY holds any.
_TYPES = {"PNG": ("uint8", "uint16"), "JPEG": ("uint8",), "TIFF": _NUMBERS}
_JPEG_SIDE = 65_500  # JPEG_MAX_DIMENSION of libjpeg

#: What Pillow refuses by itself, applied to TIFF too.
MAX_PIXELS = 178_956_970
#: What a compressed file may unpack to: as many pixels of RGBA, 16 bit, the most that PNG holds.
MAX_BYTES = 8 * MAX_PIXELS


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


class Target(NamedTuple):
    """A file that `check_target` found fit for a picture."""

    path: Path
    kind: str


class UnsupportedError(ValueError):
    """Says what an intact file has that cannot be read here; all other exceptions mean damage."""


def read_image(path: Path) -> Picture:
    """The picture in a file; of a TIFF, all pages of its first series.

    Raises
    ------
    OSError, ValueError
        If there is no such file, or if it is damaged, of another kind or too large.
    """
    kind = _kind_of(path)
    check_readable(path)
    if kind == "NPY":
        pixels = np.array(load_npy(path))
        # Three or four values along the last axis are channels, none of them known to be opacity;
        # a volume can be declared one later.
        picture = Picture(pixels, pixels.ndim >= 3 and pixels.shape[-1] in (3, 4))
    else:
        picture = _decoded(path, kind)
    if picture.pixels.dtype.kind not in "uif" or not picture.pixels.size:
        raise ValueError(
            f"{path} holds {picture.pixels.dtype} of shape {picture.pixels.shape}: a picture needs "
            "integers or floats, and at least one of them."
        )
    return picture


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
        raise ValueError(f"{path} is damaged or not an NPY file: {_reason(error)}") from error


def check_target(path: Path, picture: Picture) -> Target:
    """Refuse, before any work is done, a format that could not hold a picture like this one.

    Whether there can be a file of that name, `check_writable` says.
    """
    kind, pixels = _kind_of(path), picture.pixels
    types = _TYPES.get(kind, (pixels.dtype.name,))
    if pixels.dtype.name not in types:
        raise ValueError(
            f"{path}: {kind} holds {' or '.join(types)}, the picture is {pixels.dtype}: "
            f"write {'NPY' if kind == 'TIFF' else 'TIFF or NPY'}."
        )
    if kind in ("TIFF", "NPY"):
        return Target(path, kind)
    if picture.has_pages:
        raise ValueError(f"{path}: {kind} holds one page, the picture has more: write TIFF or NPY.")
    if kind == "JPEG" and max(pixels.shape[:2]) > _JPEG_SIDE:
        raise ValueError(
            f"{path}: JPEG holds {_JPEG_SIDE} pixels a side, the picture has shape {pixels.shape}: "
            "write PNG."
        )
    if picture.has_channels:
        fits_png = pixels.shape[-1] in ((2, 4) if picture.has_alpha else (3,))
        if not fits_png or (kind == "JPEG" and picture.has_alpha):
            raise ValueError(
                f"{path}: {kind} cannot hold the {pixels.shape[-1]} channels of the picture: write "
                f"{'PNG' if fits_png else 'TIFF or NPY'}."
            )
    return Target(path, kind)


def write_image(target: Target, picture: Picture) -> None:
    """Write a picture under exactly the given name, in the format that its suffix says."""
    with replaced_when_complete(target.path) as file:
        if target.kind == "NPY":
            np.save(file, picture.pixels, allow_pickle=False)
        elif target.kind == "TIFF":
            from kappaform.image_files.tiff import write_tiff

            write_tiff(file, picture)
        else:
            from kappaform.image_files.png_jpeg import write_png_jpeg

            write_png_jpeg(file, picture, target.kind)


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


def check_size(n_pixels: int, n_bytes: int = 0) -> None:
    """Refuse what may have been made to exhaust the memory of its reader."""
    for size, limit, unit in ((n_pixels, MAX_PIXELS, "pixels"), (n_bytes, MAX_BYTES, "bytes")):
        if size > limit:
            raise UnsupportedError(
                f"it says it has {size} {unit}, more than the limit of {limit}: crop it, or pass "
                "an array to kappaform.denoise."
            )


def _kind_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _KINDS:
        raise ValueError(
            f"{path}: the suffix {suffix or '(none)'!r} is unknown, use one of "
            f"{', '.join(SUFFIXES)}."
        )
    return _KINDS[suffix]


def _decoded(path: Path, kind: str) -> Picture:
    try:
        if kind == "TIFF":
            from kappaform.image_files.tiff import read_tiff

            return read_tiff(path)
        from kappaform.image_files.png_jpeg import read_png_jpeg

        return read_png_jpeg(path)
    except UnsupportedError as error:
        raise ValueError(f"{path}: {error}") from None
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # decoders meet damage each in its own way
        raise ValueError(f"{path} is damaged or not a {kind} picture: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
