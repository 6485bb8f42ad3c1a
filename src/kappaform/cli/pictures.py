"""The pictures that the command reads: those in folders, their pages, and references."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kappaform.errors import warn
from kappaform.image_files import SUFFIXES, Picture, read_image
from kappaform.imaging.axes import looks_like_colour


class Found(NamedTuple):
    """A file to read, and where it lies below the input that brought it."""

    file: Path
    below: Path = Path()


def split_name(file: Path) -> tuple[str, str]:
    """The name of a file and its suffix, that of OME files (.ome.tif) as a whole."""
    stem, suffix = file.stem, file.suffix
    if suffix.lower() in (".tif", ".tiff") and stem.lower().endswith(".ome"):
        stem, suffix = stem[:-4], stem[-4:] + suffix
    return stem, suffix


def picture_files(
    inputs: Iterable[str],
    own_suffix: str = "",
    recursive: bool = False,
    without: Iterable[str] = (),
) -> tuple[list[Found], int, dict[Path, Exception]]:
    """Files, and pictures in folders; how many files are skipped; folders that give nothing.

    Pictures whose name ends with `own_suffix` are results of an earlier run, and skipped. The
    folders named by `without` are left out.
    """

    def is_wanted(file: Path) -> bool:
        is_result = bool(own_suffix) and split_name(file)[0].endswith(own_suffix)
        return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and not is_result

    found: list[Found] = []
    n_skipped = 0
    errors: dict[Path, Exception] = {}
    left_out = {os.path.realpath(name) for name in without}
    for path in map(Path, inputs):
        if not path.is_dir():
            found.append(Found(path))
            continue
        inside = _files_in(path, recursive, left_out, errors)
        wanted = [file for file in inside if is_wanted(file)]
        if wanted:
            found += [Found(file, file.parent.relative_to(path)) for file in wanted]
            n_skipped += len(inside) - len(wanted)
        elif path not in errors:
            kinds = " ".join(SUFFIXES)
            errors[path] = ValueError(f"{path} holds no picture: no file to read is {kinds}.")
    return found, n_skipped, errors


def _files_in(
    folder: Path, recursive: bool, left_out: set[str], errors: dict[Path, Exception]
) -> list[Path]:
    """Files of a folder and, if `recursive`, of folders in it but hidden ones and links."""

    def unreadable(error: OSError) -> None:
        errors[Path(error.filename)] = error

    def is_entered(inner: Path) -> bool:
        hidden = inner.name.startswith(".")
        return recursive and not hidden and os.path.realpath(inner) not in left_out

    files: list[Path] = []
    for home, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if is_entered(Path(home, name)))
        files += [Path(home, name) for name in sorted(names)]
    return [file for file in files if file.is_file()]


def one_picture(path: Path) -> Picture:
    """The picture in a file without pages."""
    picture = _read(path)
    if picture.has_pages:
        raise ValueError(
            f"{path} has pages, shape {picture.pixels.shape}: save the one to take as a picture of "
            "its own."
        )
    return picture


def picture_with_pages(path: Path, arguments: Namespace) -> Picture:
    """The picture in a file, with its pages, if any, being what the arguments say."""
    declared = arguments.volume or arguments.stack or arguments.movie
    picture = _read(path, declared)
    if picture.has_pages and not picture.page_axes and not declared:
        raise ValueError(
            f"{path} has pages, shape {picture.pixels.shape}: add --stack to denoise each on its "
            "own, --movie if they are frames, or --volume if they are slices of one volume."
        )
    return picture


def noisy_picture(path: Path, arguments: Namespace) -> Picture:
    """The same, of a picture to be denoised."""
    picture = picture_with_pages(path, arguments)
    if picture.metadata.is_bilevel and arguments.sigma is None and arguments.gain is None:
        raise ValueError(
            f"{path} has one bit per pixel: the noise of black and white cannot be estimated; give "
            "--sigma to denoise it anyway."
        )
    return picture


def _read(path: Path, declared: bool = False) -> Picture:
    """A picture with rows and columns; three axes of an array may be `declared` to have pages."""
    picture = read_image(path)
    shape = picture.pixels.shape
    if declared and path.suffix.lower() == ".npy" and len(shape) == 3:
        picture = picture._replace(has_channels=looks_like_colour(shape))
    if len(shape) - picture.has_channels < 2:
        raise ValueError(f"{path} has shape {shape}: a picture has rows and columns.")
    if n_pixels := picture.n_without_data:
        warn(
            f"{path}: {n_pixels} values are {picture.metadata.no_data:g}, which means no data "
            "(GDAL_NODATA). They are taken for ordinary values and change those around them: crop "
            "or fill them first."
        )
    return picture


def check_reference(path: Path, reference: Picture, source: Path, picture: Picture) -> None:
    """Refuse a picture without noise that is of another size or type than the noisy one."""
    clean, noisy = reference.colours, picture.colours
    if clean.shape != noisy.shape:
        raise ValueError(
            f"{path} has shape {clean.shape}, {source} {noisy.shape}: a reference has the same "
            "size."
        )
    if clean.dtype != noisy.dtype:
        raise ValueError(
            f"{path} holds {clean.dtype}, {source} {noisy.dtype}: a reference has the same type, "
            "so that its values mean the same."
        )
