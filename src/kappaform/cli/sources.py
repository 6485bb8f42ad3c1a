"""What the arguments name: files of folders, signals of files; and where results may go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from kappaform.files import replaced_when_complete
from kappaform.image_files import SUFFIXES, Picture, check_writable, read_image

_LUMINANCE = (0.2126, 0.7152, 0.0722)  # of red, green and blue, ITU-R BT.709
_FIGURES = (".png", ".pdf", ".svg")


class Signals(NamedTuple):
    """Signals to learn from, and the shape of the patches that they are, if they are."""

    values: NDArray
    patch_shape: tuple[int, ...] | None


class Found(NamedTuple):
    """Files to read, how many others their folders hold, and folders that hold none to read."""

    files: list[Path]
    n_skipped: int
    empty: list[Path]


def picture_files(inputs: Iterable[str], own_suffix: str = "") -> Found:
    """Files, and pictures in folders, in order.

    Pictures whose name ends with `own_suffix` are results of an earlier run, and skipped.
    """
    files: list[Path] = []
    empty: list[Path] = []
    skipped = 0
    for path in map(Path, inputs):
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(entry for entry in path.iterdir() if entry.is_file())
        wanted = [file for file in inside if _is_wanted(file, own_suffix)]
        if not wanted:
            empty.append(path)
            continue
        files += wanted
        skipped += len(inside) - len(wanted)
    return Found(files, skipped, empty)


def emptiness(folder: Path) -> str:
    """What is wrong with a folder in which no picture was found."""
    return f"{folder} holds no picture: no file to read in it is {' '.join(SUFFIXES)}."


def _is_wanted(file: Path, own_suffix: str) -> bool:
    is_result = bool(own_suffix) and file.stem.endswith(own_suffix)
    hidden = file.name.startswith(".")
    return file.suffix.lower() in SUFFIXES and not hidden and not is_result


def check_free(path: Path, taken: Iterable[Path]) -> None:
    """Refuse to write over what is read."""
    if any(is_same(path, other) for other in taken):
        raise ValueError(f"{path} is an input: give the output another name.")


def is_same(path: Path, other: Path) -> bool:
    """Whether two names are of the same file, which need not exist yet."""
    linked = path.exists() and other.exists() and path.samefile(other)
    return linked or path.resolve() == other.resolve()


def check_figure(path: Path) -> None:
    """Refuse, before any work is done, a figure that could not be written."""
    if path.suffix.lower() not in _FIGURES:
        raise ValueError(f"{path}: a figure is one of {', '.join(_FIGURES)}.")
    check_writable(path)


def save_figure(path: Path, figure: Any) -> None:
    with saved_figure(path, figure):
        pass


@contextmanager
def saved_figure(path: Path, figure: Any) -> Iterator[None]:
    """A figure that is drawn at once and takes its name only if all else succeeds."""
    with replaced_when_complete(path) as file:
        figure.savefig(file, format=path.suffix.lower()[1:], dpi=110)
        yield


def load_signals(path: Path) -> NDArray:
    """Signals of a .npy file, mapped into memory, not read."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        signals: NDArray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is damaged or no NPY file: {error}") from error
    if not isinstance(signals, np.ndarray) or signals.ndim != 2:
        shape = getattr(signals, "shape", "of an archive")
        raise ValueError(f"{path} has shape {shape}: signals are 2-D, one per row.")
    return signals


def signals_of(
    inputs: Iterable[str], patch_size: int, n_patches: int, rng: np.random.Generator
) -> Signals:
    """Signals of .npy files, or mean-free random patches of pictures."""
    files, _, empty = picture_files(inputs)
    if empty:
        raise ValueError(emptiness(empty[0]))
    arrays = [file for file in files if file.suffix.lower() == ".npy"]
    if not arrays:
        shares = np.full(len(files), n_patches // len(files))
        shares[: n_patches % len(files)] += 1
        patches = [
            random_patches(_grey(read_image(file), file), patch_size, int(count), rng, str(file))
            for file, count in zip(files, shares, strict=True)
            if count
        ]
        return Signals(np.concatenate(patches), (patch_size, patch_size))
    if len(arrays) < len(files):
        raise ValueError("signals (.npy) and pictures are mixed: learn from one kind at a time.")
    signals = [load_signals(file) for file in arrays]
    for file, values in zip(arrays, signals, strict=True):
        if values.shape[1] != signals[0].shape[1]:
            raise ValueError(
                f"{file} has signals of {values.shape[1]} features, {arrays[0]} of "
                f"{signals[0].shape[1]}: all must have the same."
            )
    return Signals(signals[0] if len(signals) == 1 else np.concatenate(signals), None)


def random_patches(
    image: NDArray, side: int, count: int, rng: np.random.Generator, name: str = "the picture"
) -> NDArray:
    """At most `count` different mean-free patches of a grey picture, one per row."""
    if min(image.shape) < side:
        raise ValueError(f"patch_size={side} exceeds {name}, of shape {image.shape}: give less.")
    windows = sliding_window_view(image, (side, side))
    places = windows.shape[0] * windows.shape[1]
    chosen = rng.choice(places, min(count, places), replace=False)
    rows, columns = np.unravel_index(np.sort(chosen), windows.shape[:2])
    patches = windows[rows, columns].reshape(len(chosen), -1).astype(np.float64)
    return patches - patches.mean(axis=1, keepdims=True)


def _grey(picture: Picture, file: Path) -> NDArray:
    if picture.has_pages:
        raise ValueError(f"{file} has pages: save the one to learn from as a picture of its own.")
    if not picture.has_channels:
        return picture.pixels
    if picture.pixels.shape[-1] < 3:
        return picture.pixels[..., 0]
    return picture.pixels[..., :3] @ np.array(_LUMINANCE)
