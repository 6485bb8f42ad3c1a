"""Pictures in files: PNG, JPEG, TIFF and NPY, read without loss and written when complete."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kappaform.files import replaced_when_complete
from kappaform.image_files.picture import MAX_PIXELS, Picture
from kappaform.image_files.png_jpeg import read_pillow, write_pillow
from kappaform.image_files.tiff import read_tiff, write_tiff

__all__ = [
    "MAX_PIXELS",
    "SUFFIXES",
    "Picture",
    "as_stored",
    "check_target",
    "check_writable",
    "read_image",
    "write_image",
]

JPEG, TIFF = (".jpg", ".jpeg"), (".tif", ".tiff")
SUFFIXES = (".png", *JPEG, *TIFF, ".npy")


def read_image(path: Path) -> Picture:
    """The picture in a file; of a TIFF, all pages of its first series.

    Raises
    ------
    OSError, ValueError
        If there is no such file, or if it is damaged, of another kind or beyond `MAX_PIXELS`.
    """
    suffix = _known_suffix(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a picture.")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    read = {".npy": _read_npy, ".tif": read_tiff, ".tiff": read_tiff}.get(suffix, read_pillow)
    try:
        picture = read(path)
    except PermissionError:
        raise PermissionError(f"{path} may not be read: change its permissions.") from None
    except (FileNotFoundError, ImportError, MemoryError):
        raise
    except Exception as error:  # decoders meet damage each in its own way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{path} is damaged or no {suffix[1:].upper()} picture: {reason}"
        ) from error
    if picture.pixels.dtype.kind not in "uif" or not picture.pixels.size:
        raise ValueError(
            f"{path} holds {picture.pixels.dtype} of shape {picture.pixels.shape}: a picture needs "
            "integers or floats, and at least one of them."
        )
    return picture


def check_target(path: Path, picture: Picture) -> None:
    """Refuse, before any work is done, a file that could not hold a picture like this one."""
    check_writable(path)
    suffix, pixels = _known_suffix(path), picture.pixels
    if suffix in (*TIFF, ".npy"):
        return
    kind, types = ("JPEG", ("uint8",)) if suffix in JPEG else ("PNG", ("uint8", "uint16"))
    if pixels.dtype.name not in types:
        raise ValueError(
            f"{path}: {kind} holds {' or '.join(types)}, the picture is {pixels.dtype}: "
            "write TIFF or NPY."
        )
    if picture.has_pages:
        raise ValueError(f"{path}: {kind} holds one page, the picture has more: write TIFF or NPY.")
    if not picture.has_channels:
        return
    fits_png = pixels.shape[-1] in ((2, 4) if picture.has_alpha else (3,))
    if not fits_png or (kind == "JPEG" and picture.has_alpha):
        raise ValueError(
            f"{path}: {kind} cannot hold the {pixels.shape[-1]} channels of the picture: write "
            f"{'PNG' if fits_png else 'TIFF or NPY'}."
        )


def check_writable(path: Path) -> None:
    """Refuse a target that lies nowhere, is a folder or is protected."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path}: the folder {path.parent} does not exist, create it first."
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{path}: the folder {path.parent} is read-only: choose another, or make it writable."
        )
    # Replacing a file asks for no permission on the file itself, so that is asked here.
    if path.exists() and not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} is read-only: choose another name, or make it writable.")


def write_image(path: Path, picture: Picture) -> None:
    """Write a picture under exactly the given name, in the format that its suffix says."""
    check_target(path, picture)
    suffix = _known_suffix(path)
    with replaced_when_complete(path) as file:
        if suffix == ".npy":
            np.save(file, picture.pixels, allow_pickle=False)
        elif suffix in TIFF:
            write_tiff(file, picture)
        else:
            write_pillow(file, picture, "JPEG" if suffix in JPEG else "PNG")


def as_stored(values: NDArray, dtype: DTypeLike) -> NDArray:
    """Values as a file of that type holds them: integers are rounded and clipped."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


def _known_suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{path}: the suffix {suffix or '(none)'!r} is unknown, use one of "
            + ", ".join(SUFFIXES)
            + "."
        )
    return suffix


def _read_npy(path: Path) -> Picture:
    # Mapped, because that compares the length of the file with its header before allocating.
    pixels = np.array(np.load(path, mmap_mode="r", allow_pickle=False))
    # Three or four values along the last axis are channels, none of them known to be opacity; a
    # volume can be declared one later.
    return Picture(pixels, pixels.ndim >= 3 and pixels.shape[-1] in (3, 4))
