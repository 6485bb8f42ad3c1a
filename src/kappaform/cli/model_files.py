"""Models, signals and codes in files; an error for a file of another kind names the kind."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import kappaform as kf
from kappaform.checks import counted
from kappaform.files import check_readable
from kappaform.image_files import SUFFIXES, load_npy

_GIVE_MODEL = "give a file saved by learn, such as by kappaform learn photo.png -o photo.kappaform"


def load_model(path: str) -> Any:
    """The transform in a file; the error for a file of another kind names the kind."""
    kind = kind_of(Path(path))
    if kind not in ("", "a transform"):
        raise ValueError(f"{path} is {kind}, not a transform: {_GIVE_MODEL}.")
    try:
        return kf.load(path)
    except ValueError as error:
        if zipfile.is_zipfile(path):  # a damaged one, or of a newer version
            raise
        raise ValueError(f"{error} If it never was one, {_GIVE_MODEL}.") from error


def load_single(path: str) -> Any:
    """The transform in a file that has one, and no union."""
    model = load_model(path)
    if is_union(model.result_):
        found = counted(len(model.components_), "transform")
        raise ValueError(
            f"{path} is a union of {found}: denoising uses a single one, learned without "
            "--transforms."
        )
    return model


def kind_of(path: Path) -> str:
    """What a file contains, in words; empty if that is unknown, or if there is no file."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            return "a NumPy array"
    if path.suffix.lower() in set(SUFFIXES) - {".npy"}:
        return "an image"
    if path.suffix.lower() == ".json":
        return "a text, such as a file of noise (for denoise --noise)"
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except Exception:  # damaged archives fail each in its own way
        return ""
    return "a transform" if "header.npy" in names else "sparse codes" * ("indptr.npy" in names)


def load_signals(path: Path) -> NDArray:
    """Signals of a .npy file, memory-mapped."""
    if path.suffix.lower() != ".npy":
        kind = kind_of(path)
        what = f" is {kind}, not signals" if kind else ""
        raise ValueError(f"{path}{what}: give a .npy file with one signal per row.")
    signals = load_npy(path)
    if signals.ndim != 2 or signals.dtype.kind not in "buif":
        raise ValueError(
            f"{path} has shape {signals.shape} and type {signals.dtype}: signals are rows of a 2-D "
            "array of real numbers."
        )
    return signals


def load_codes(path: Path) -> tuple[sparse.csr_array, NDArray | None]:
    """Codes written by `encode`, and the means of their signals, if it removed them."""
    check_readable(path)
    if (kind := kind_of(path)) not in ("", "sparse codes"):
        raise ValueError(f"{path} is {kind}, not sparse codes: give a .npz file written by encode.")
    try:
        codes = sparse.csr_array(sparse.load_npz(path))
        codes.check_format()
        with np.load(path, allow_pickle=False) as archive:
            means = archive.get("means")
        fits = codes.dtype.kind in "buif" and (means is None or means.shape == codes.shape[:1])
    except Exception:  # damaged archives fail anywhere, each in its own way
        fits = False
    if not fits:
        raise ValueError(
            f"{path} is damaged or contains no codes: give a .npz file written by encode."
        )
    return codes, means


def is_union(result: Any) -> bool:
    return isinstance(result, kf.UnionResult)
