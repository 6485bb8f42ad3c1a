"""What benchmarks of quality share: the pictures, the noise, PSNR, and several calls at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
from PIL import Image

from kappaform.paper.data import IMAGES, read_pair

Pair = tuple[np.ndarray, np.ndarray]  # clean, noisy
PUBLIC = [name for name in IMAGES if name != "Man"]  # whose noisy pictures are published


def folder_named_by(variable: str) -> Path | None:
    return Path(os.environ[variable]) if os.environ.get(variable) else None


def missing(variable: str, what: str) -> dict:
    return {"skipped": f"{what}: {variable} does not name their folder"}


NO_BM3D = {"skipped": "BM3D: its stored rows stay; --bm3d measures them (pip install bm3d)"}


def with_bm3d() -> bool:
    return bool(os.environ.get("KAPPAFORM_BENCH_BM3D") and find_spec("bm3d"))


def paper_pictures(folder: Path, sigma: int) -> list[Pair]:
    pairs = [read_pair(folder, name, sigma) for name in PUBLIC]
    return [(pair.clean.astype(float), pair.noisy.astype(float)) for pair in pairs]


def photographs(folder: Path, sigma: float) -> list[Pair]:
    """Grey PNG files; the noise has the seeds 500, 501, ... in the order of their names."""
    clean = [np.asarray(Image.open(path), float) for path in sorted(folder.glob("*.png"))]
    return [(image, with_noise(image, sigma, 500 + i)) for i, image in enumerate(clean)]


def with_noise(clean: np.ndarray, sigma: float, seed: int) -> np.ndarray:
    return clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)


def psnr(clean: np.ndarray, found: np.ndarray) -> float:
    """In decibels, for values from 0 to 255; inf for equal pictures."""
    error = np.mean((found.astype(float) - clean) ** 2)
    return float(10 * np.log10(255**2 / error)) if error else np.inf


class Part(NamedTuple):
    """A part of a benchmark: calls (function, *arguments), and what makes rows of their results."""

    calls: list[tuple]
    rows: Callable[[Iterator], Iterable[dict]]


def without_calls(*rows: dict) -> Part:
    return Part([], lambda _: rows)


def rows_of(parts: Iterable[Part]) -> Iterator[dict]:
    """Rows of all parts. Their calls share one pool: no core waits for the end of a part."""
    parts = list(parts)
    results = in_parallel(_result, chain.from_iterable(part.calls for part in parts))
    for part in parts:
        yield from part.rows(islice(results, len(part.calls)))


def _result(function: Callable, *arguments: Any) -> Any:
    return function(*arguments)


def in_parallel(function: Callable, calls: Iterable[tuple]) -> Iterator:
    """Results of calls in their order, each as soon as it and those before it are there.

    One at a time a call uses all threads; several at a time, each has its part of the cores.
    """
    jobs = int(os.environ.get("KAPPAFORM_BENCH_JOBS", "1"))
    if jobs == 1:
        return (function(*arguments) for arguments in calls)
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator")
    return parallel(joblib.delayed(function)(*arguments) for arguments in calls)
