"""Image files with their metadata: read without loss, and replaced only when complete."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image

from kappaform.errors import warn
from kappaform.files import UnsupportedError, check_readable, replaced_when_complete
from kappaform.image_files.picture import Picture as Picture

_KINDS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".bmp": "BMP"}
_KINDS |= {".tif": "TIFF", ".tiff": "TIFF", ".npy": "NPY"}
SUFFIXES = tuple(_KINDS)

_NUMBERS = tuple(f"{kind}{bits}" for kind in ("uint", "int", "float") for bits in (8, 16, 32, 64))
#: Pixel types that a format holds; NPY holds any.
_TYPES = {"PNG": ("uint8", "uint16"), "TIFF": _NUMBERS}
_TYPES |= dict.fromkeys(("JPEG", "WEBP", "BMP"), ("uint8",))
_SIDES = {"JPEG": 65_500, "WEBP": 16_383}  # most pixels: JPEG_MAX_DIMENSION, WEBP_MAX_DIMENSION
_WITH_ALPHA = ("PNG", "WEBP")
_LOSSY = ("JPEG", "WEBP")  # formats that have a quality setting
LOSSY_SUFFIXES = tuple(suffix for suffix, kind in _KINDS.items() if kind in _LOSSY)


# --- Any format


def read_image(path: Path, kinds: str = "uif") -> Picture:
    """The image in a file, of these kinds of numbers; for TIFF, all pages of the first series."""
    check_readable(path)
    picture = _decoded(path, _kind_of(path))
    pixels = picture.pixels
    if pixels.dtype.kind not in kinds or not pixels.size:
        raise ValueError(
            f"{path} contains {pixels.dtype} of shape {pixels.shape}: an image consists of "
            "integers or floats."
        )
    return picture


def _decoded(path: Path, kind: str) -> Picture:
    if kind == "NPY":
        pixels = np.array(load_npy(path))
        # Three or four values along the last axis are channels, none of them known to be alpha. A
        # volume can be declared later.
        return Picture(pixels, pixels.ndim >= 3 and pixels.shape[-1] in (3, 4))
    try:
        if kind == "TIFF":
            from kappaform.image_files.tiff import read_tiff

            return read_tiff(path)
        from kappaform.image_files.flat import read_flat

        return read_flat(path)
    except (UnsupportedError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path}: {error}") from None
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # decoders fail on damage in different ways
        raise _damage(path, kind, error) from error


def planes_in(path: Path) -> tuple[int, int] | None:
    """Number of planes, over all pages and channels, and pixels of each, from the header of a file.

    None if it cannot be read: the reason is reported when the image itself is read.
    """
    try:
        kind = _kind_of(path)
        if kind == "NPY":
            *pages, height, width = load_npy(path).shape
            return math.prod(pages), height * width
        if kind == "TIFF":
            from kappaform.image_files.tiff import sizes_in

            return sizes_in(path)
        with warnings.catch_warnings(), Image.open(path, formats=[kind]) as image:
            warnings.simplefilter("ignore")
            n_colours = sum(band != "A" for band in image.getbands())
            return 3 if image.mode == "P" else n_colours, image.width * image.height
    except Exception:  # damaged in any way
        return None


def check_target(path: Path, picture: Picture) -> None:
    """Reject, before any work is done, a format that cannot hold an image like this one."""
    kind = _kind_of(path)
    if misfit := _misfit(kind, picture):
        raise ValueError(f"{path}: {kind} {misfit}.")


def _misfit(kind: str, picture: Picture) -> str | None:
    """Why a format cannot hold an image, and which one can."""
    shape, dtype = picture.pixels.shape, picture.pixels.dtype.name
    types = _TYPES.get(kind, (dtype,))
    if dtype not in types:
        remedy = "TIFF or NPY" if dtype in _TYPES["TIFF"] else "NPY"
        if dtype in _TYPES["PNG"] and _misfit("PNG", picture) is None:
            remedy = f"PNG, {remedy}"
        return f"holds {' or '.join(types)}, the image is {dtype}: write {remedy}"
    if kind in ("TIFF", "NPY"):
        return None
    if picture.has_pages:
        return "holds one page, the image has more: write TIFF or NPY"
    if max(shape[:2]) > _SIDES.get(kind, np.inf):
        return f"holds {_SIDES[kind]} pixels per side, the image has shape {shape}: write PNG"
    if picture.has_channels:
        fits_png = shape[-1] in ((2, 4) if picture.has_alpha else (3,))
        if not fits_png or (picture.has_alpha and kind not in _WITH_ALPHA):
            remedy = "PNG" if fits_png else "TIFF or NPY"
            return f"cannot hold the {shape[-1]} channels of the image: write {remedy}"
    return None


def write_image(path: Path, picture: Picture, jpeg_quality: int | None = None) -> None:
    """Write an image that `check_target` accepted, in the format of the suffix.

    `jpeg_quality`, from 1 to 100, is for JPEG and WebP. None is the quality of the file that was
    read, if that has the same format; otherwise 95 for JPEG, and lossless for WebP.
    """
    kind = _kind_of(path)
    omitted = list(picture.metadata.omitted)
    with replaced_when_complete(path) as file:
        if kind == "NPY":
            np.save(file, picture.pixels, allow_pickle=False)
        elif kind == "TIFF":
            from kappaform.image_files.tiff import write_tiff

            omitted += write_tiff(file, picture)
        else:
            from kappaform.image_files.flat import write_flat

            omitted += write_flat(file, picture, kind, jpeg_quality)
    if omitted and kind != "NPY":  # which holds only pixels anyway
        warn(f"{path} is written without {'; without '.join(omitted)}.")


def as_stored(values: NDArray, dtype: DTypeLike) -> NDArray:
    """Values as a file of that type stores them: clipped to its range, and rounded to integers."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        largest = np.finfo(dtype).max
        return np.clip(values, -largest, largest).astype(dtype)
    limits = np.iinfo(dtype)
    rounded = np.maximum(np.rint(values), limits.min)
    # The largest 64 bit integer is not a float; the next larger float would wrap around.
    too_large = rounded >= limits.max
    stored = np.where(too_large, 0, rounded).astype(dtype)
    stored[too_large] = limits.max
    return stored


def _kind_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _KINDS:
        known = ", ".join(SUFFIXES)
        raise ValueError(f"{path}: the suffix {suffix!r} is unknown: use one of {known}.")
    return _KINDS[suffix]


def _damage(path: Path, kind: str, error: Exception) -> ValueError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return ValueError(f"{path} is not a valid {kind} file: {reason}")


# --- NPY


def load_npy(path: Path) -> NDArray:
    """The array in a .npy file, memory-mapped.

    Mapping compares the length of the file with its header before anything is allocated.
    """
    check_readable(path)
    try:
        with warnings.catch_warnings(), np.errstate(over="raise"):
            warnings.simplefilter("ignore")
            return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # the header is parsed as Python: damage may raise anything
        raise _damage(path, "NPY", error) from error
