"""Data of the paper: its settings, its printed table, and its images as published."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.image_files import read_image
from kappaform.imaging import add_noise, extract_patches
from kappaform.imaging.patches import mean_free

IMAGES = ("Barbara", "Cameraman", "Couple", "Hill", "Lena", "Man", "MRI")  # MRI: its "brain"
SIGMAS = (5, 10, 15, 20, 100)
METHODS = ("conditioned", "log-det", "orthonormal")

#: Figures 1 and 2: images, numbers of nonzeros and weights of the log-det penalty.
FIGURE_IMAGES = ("barbara", "peppers", "lena")
SPARSITIES = (6, 8)
WEIGHTS = (2.1e-5, 2.1e-6, 2.1e-8, 1e-9)

_CLEAN, _NOISY = "I7.mat", "I1.mat"
_LEAST_SIDE = 11  # side of the largest patches and of the window of SSIM


@cache
def printed_table() -> dict[tuple[str, int, str], dict[str, float]]:
    """Table 1 for patches of 11 × 11 pixels: ``psnr`` and ``ssim`` by image, sigma and method."""
    with files("kappaform.paper").joinpath("table1.csv").open(encoding="utf-8") as file:
        return {
            (row["image"], int(row["sigma"]), method): {
                metric: float(row[f"{method} {metric}"]) for metric in ("psnr", "ssim")
            }
            for row in csv.DictReader(file)
            for method in METHODS
        }


class Pair(NamedTuple):
    """An image without and with noise, in grey levels, and whether the noise is simulated."""

    clean: NDArray  #: uint8
    noisy: NDArray  #: float64
    made: bool


def check_data(folder: Path) -> None:
    """Reject a folder without the images."""
    if not (folder / "img").is_dir():
        raise FileNotFoundError(
            f"{folder / 'img'}: no such folder. It contains NAME/sigmaLEVEL/{_CLEAN} (clean) and "
            f"{_NOISY} (noisy) in the public repository pirofti/ConditionedTransformLearning."
        )


def read_pair(folder: Path, name: str, sigma: int) -> Pair:
    """An image without and with noise, as published.

    For an image without published noise (in the table: Man), noise is simulated that depends on the
    name and the level only. It has the precision of the published images, float32, and is neither
    rounded nor clipped.
    """
    home = folder / "img" / name
    level = home / f"sigma{sigma}"
    if any(home.glob(f"sigma*/{_NOISY}")):
        clean, noisy = _read_clean(level / _CLEAN), _read_mat(level / _NOISY)
        if noisy.shape != clean.shape:
            raise ValueError(
                f"{level / _NOISY} has shape {noisy.shape}, {level / _CLEAN} {clean.shape}: the "
                "shapes must be equal."
            )
        return Pair(clean, noisy.astype(np.float64), made=False)
    only = home / "clean" / _CLEAN
    clean = _read_clean(only if only.exists() else level / _CLEAN)
    rng = np.random.default_rng([seed_of(name), sigma])
    made = add_noise(clean, sigma, rng).astype(np.float32)
    return Pair(clean, made.astype(np.float64), made=True)


def seed_of(name: str) -> int:
    """A seed from a name, the same on every machine."""
    return zlib.crc32(name.encode())


def clean_pictures(folder: Path) -> dict[str, Path]:
    """Files of the clean images img/NAME and NAME.png, by their names in lower case."""
    found = {path.stem.lower(): path for path in folder.glob("*.png")}
    for path in sorted(folder.glob(f"img/*/*/{_CLEAN}"), reverse=True):  # equal for all levels
        found[path.parts[-3].lower()] = path
    return found


def signals_of(pictures: Iterable[Path], side: int = 8) -> NDArray:
    """Non-overlapping mean-free patches of clean images, one per row."""
    blocks = []
    for path in pictures:
        picture = _read_clean(path) if path.suffix == ".mat" else read_image(path).pixels
        if picture.ndim != 2:
            raise ValueError(f"{path} has shape {picture.shape}: a grey image is expected.")
        height, width = (size // side * side for size in picture.shape)
        blocks.append(extract_patches(picture[:height, :width], side, side))
    return mean_free(np.concatenate(blocks))


def _read_clean(path: Path) -> NDArray:
    values = _read_mat(path)
    if values.min() < 0 or values.max() > 255 or (values != np.rint(values)).any():
        raise ValueError(f"{path}: a clean image consists of integers from 0 to 255.")
    if min(values.shape) < _LEAST_SIDE:
        raise ValueError(
            f"{path} has shape {values.shape}: at least {_LEAST_SIDE} pixels per side are needed."
        )
    return values.astype(np.uint8)


def _read_mat(path: Path) -> NDArray:
    from scipy.io import loadmat

    try:
        (values,) = (value for name, value in loadmat(str(path)).items() if name[:2] != "__")
    except Exception as error:  # the decoder fails on damage in many ways
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
            raise
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is not a MAT file of one image ({reason}).") from error
    if values.ndim != 2 or not values.size or values.dtype.kind not in "uif":
        raise ValueError(
            f"{path} contains {values.dtype} of shape {values.shape}: an image is expected."
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{path} contains NaN or inf: every pixel must be finite.")
    return values
