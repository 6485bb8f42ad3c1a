"""What tests of several folders share. Oracles are in naive.py."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import kappaform as kf
from kappaform.engines import engine_for
from kappaform.learning import StopReason

STATISTICS = ("gram", "cross", "code_energy", "discarded_energy")  #: sums that a pass returns


def psnr(reference: np.ndarray, image: np.ndarray, peak: float = 255.0) -> float:
    return float(10 * np.log10(peak**2 / np.mean((reference - image) ** 2)))


def orthogonal(rng: np.random.Generator, n: int) -> np.ndarray:
    """A random orthogonal matrix, made without the code under test."""
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def blas_threads() -> list[int]:
    """Number of threads of each BLAS library in this process."""
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def assert_same_bits(one: Any, other: Any) -> None:
    """The sums of two passes agree in every bit."""
    for name in STATISTICS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def peak_bytes(call: Callable[[], Any]) -> int:
    """Most memory that Python and NumPy had allocated at once during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class Store:
    """Rows that are read slice by slice, as those of a file; `reads` lists the slices."""

    def __init__(self, rows: np.ndarray, chunks: tuple[int, ...] | None = None) -> None:
        self.rows, self.chunks = rows, chunks
        self.reads: list[tuple[int, int]] = []
        self.shape, self.dtype = rows.shape, rows.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        assert isinstance(rows, slice)
        self.reads.append((rows.start, rows.stop))
        return self.rows[rows].copy()

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise AssertionError("the store was gathered")


def memory_mapped(signals: np.ndarray, folder: Path) -> np.ndarray:
    np.save(folder / "signals.npy", signals)
    return np.load(folder / "signals.npy", mmap_mode="r")


def as_dask(signals: np.ndarray, n_rows: int = 300) -> Any:
    chunks = (n_rows, -1)[: signals.ndim]
    return pytest.importorskip("dask.array").from_array(signals, chunks=chunks)


def as_tensor(signals: np.ndarray) -> Any:
    return pytest.importorskip("torch").from_numpy(signals)


def run_two_passes(signals: Any) -> None:
    """The first pass and one that remembers it."""
    engine = engine_for(signals)
    for _ in range(2):
        engine.run_pass(np.eye(engine.n_features), 3)


def readings(engine: Any) -> Iterator[Callable[[], Any]]:
    """Every call of an engine that reads its signals."""
    one = np.eye(engine.n_features)
    yield lambda: engine.gram
    yield lambda: engine.run_pass(one, 1)
    yield lambda: engine.energies(one, (one, 0), 1)
    yield lambda: engine.encode(one, 1)
    yield lambda: engine.decode((one, 0))


def check_descent(result: kf.LearnResult, signals: np.ndarray, rounding: float = 1e-12) -> None:
    """No iteration of a monotone method raised its loss by more than rounding.

    A step that would have done so is dropped before it is recorded, and ends learning: as ROUNDING
    if the coefficients are rounded that much, else as ROSE.
    """
    assert result.stop_reason is not StopReason.ROSE, "a step that raised the loss was dropped"
    method, loss = getattr(result.method, "method", result.method), result.loss
    if isinstance(method, kf.LogDet):
        rises = np.diff(loss) / np.maximum(1, np.abs(loss[1:]))
    elif isinstance(method, kf.Conditioned) and method.objective == "relative":
        rises = np.diff(loss**2)
    else:  # relative to the energy of the coefficients
        with np.errstate(invalid="ignore", divide="ignore"):
            norms = result.errors.absolute / result.errors.relative
        norms = np.append(norms[np.isfinite(norms)], np.linalg.norm(signals.astype(np.float64)))
        rises = np.diff((loss / (norms.max() or 1.0)) ** 2)
    assert np.all(rises <= rounding), f"the loss rises by {rises.max()}"
