"""The images of the paper, in the layout of the authors' public repository."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.image_files import read_image
from kappaform.imaging import add_noise

LAYOUT = (
    "img/NAME/sigmaLEVEL/I7.mat (clean) and I1.mat (noisy), as in the public repository "
    "pirofti/ConditionedTransformLearning"
)
_CLEAN, _NOISY = "I7.mat", "I1.mat"


class Pair(NamedTuple):
    """A picture without and with noise, in grey levels, and whether the noise was made here."""

    clean: NDArray  #: uint8
    noisy: NDArray  #: float64
    made: bool

    @property
    def digest(self) -> str:
        """Equal for equal pictures only."""
        content = hashlib.sha256(repr(self.clean.shape).encode())
        content.update(self.clean.tobytes())
        content.update(self.noisy.tobytes())
        return content.hexdigest()[:16]


def check_data(folder: Path) -> None:
    """Refuse a folder in which no image could be."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder. It should hold {LAYOUT}.")
    if not (folder / "img").is_dir():
        raise FileNotFoundError(f"{folder} holds no folder img: expected {LAYOUT}.")


def read_pair(folder: Path, name: str, sigma: int) -> Pair:
    """An image and the same with noise, as published.

    Of an image that is published without any noisy one (in the table: Man), noise is made that
    depends on the name and the level only. It is stored as the published ones are: in float32,
    neither rounded nor clipped.
    """
    home = folder / "img" / name
    level = home / f"sigma{sigma}"
    if any(home.glob(f"sigma*/{_NOISY}")):
        clean, noisy = _clean(level / _CLEAN), _read_mat(level / _NOISY)
        if noisy.shape != clean.shape:
            raise ValueError(
                f"{level / _NOISY} has shape {noisy.shape}, {level / _CLEAN} {clean.shape}: they "
                "must be of the same size."
            )
        return Pair(clean, noisy.astype(np.float64), made=False)
    only = home / "clean" / _CLEAN
    clean = _clean(only if only.exists() else level / _CLEAN)
    rng = np.random.default_rng([seed_of(name), sigma])
    made = add_noise(clean, sigma, rng).astype(np.float32)
    return Pair(clean, made.astype(np.float64), made=True)


def seed_of(name: str) -> int:
    """A number that a name gives on every machine."""
    return zlib.crc32(name.encode())


def signals_of(folder: Path, names: Iterable[str], side: int = 8) -> NDArray:
    """Mean-free patches of clean pictures that do not overlap, one per row."""
    blocks = []
    for name in names:
        picture = _read_named(folder, name)
        rows, columns = (size // side for size in picture.shape)
        kept = picture[: rows * side, : columns * side].astype(np.float64)
        patches = kept.reshape(rows, side, columns, side).transpose(0, 2, 1, 3)
        blocks.append(patches.reshape(-1, side * side))
    signals = np.concatenate(blocks)
    return signals - signals.mean(axis=1, keepdims=True)


def _read_named(folder: Path, name: str) -> NDArray:
    """A clean picture of img/NAME, or the picture NAME.png; capitals do not matter."""
    found = _clean_pictures(folder)
    if name.lower() not in found:
        available = ", ".join(sorted(found)) or "none"
        raise FileNotFoundError(
            f"image {name!r} is neither a folder in {folder / 'img'} nor a picture "
            f"{folder / name}.png: available are {available}; choose among them with --images."
        )
    path = found[name.lower()]
    if path.suffix == ".mat":
        return _clean(path)
    pixels = read_image(path).pixels
    if pixels.ndim != 2:
        raise ValueError(f"{path} has shape {pixels.shape}: a grey picture is expected.")
    return pixels


def _clean_pictures(folder: Path) -> dict[str, Path]:
    found = {path.stem.lower(): path for path in sorted(folder.glob("*.png"))}
    for home in sorted((folder / "img").iterdir()):
        pictures = sorted(home.glob(f"*/{_CLEAN}"))  # the same in every folder
        if pictures:
            found[home.name.lower()] = pictures[0]
    return found


def _clean(path: Path) -> NDArray:
    values = _read_mat(path)
    if values.min() < 0 or values.max() > 255 or (values != np.rint(values)).any():
        raise ValueError(f"{path}: a clean picture holds the whole numbers from 0 to 255.")
    return values.astype(np.uint8)


def _read_mat(path: Path) -> NDArray:
    from scipy.io import loadmat

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; copy it from the public repository.")
    try:
        contents = loadmat(path)
    except MemoryError:
        raise
    except Exception as error:  # the decoder meets damage in many ways
        if isinstance(error, OSError) and error.errno is not None:  # of the file system
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{path} is damaged or no MAT file ({reason}): copy it again.") from error
    arrays = [value for name, value in contents.items() if not name.startswith("__")]
    if len(arrays) != 1:
        raise ValueError(f"{path} holds {len(arrays)} variables: one picture is expected.")
    values = np.asarray(arrays[0])
    if values.ndim != 2 or values.dtype.kind not in "uif" or not values.size:
        raise ValueError(
            f"{path} holds {values.dtype} of shape {values.shape}: a picture is a 2-D array of "
            "numbers."
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{path} contains NaN or inf: every pixel must be finite.")
    return values
