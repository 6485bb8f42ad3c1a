"""Passes over signals on disk: against the same signals in memory, and how much memory they take.

The signals are those of `bench_pass`, again and again with another contrast until the file is full;
n = 64, s = 6. Files are in the cache of the system (warm), where the passes of all kinds take
turns. Memory is the largest resident set of a process of its own that learns for a few iterations
from a memory-map, interpreter and libraries included, for files of growing size.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from bench_pass import nearby_transforms, patches

from kappaform.engines import engine_for

SIDE = 8
N_NONZERO = 6
REPEATS = 4
MAP_BYTES = 2**31
STORE_BYTES = 2**28
CHUNK_ROWS = 10_000  # not a multiple of the rows of a block
DTYPES = ("float64", "float32")


def rows() -> Iterator[dict]:
    """Memory-maps of 2 GB and smaller stores for both dtypes, and memory over the size of files."""
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory(prefix="kappaform-disk-") as folder:
            path = written(Path(folder) / "signals.npy", dtype, MAP_BYTES)
            yield _map_row(path, dtype)
            yield from _memory_rows(path, dtype)
        with tempfile.TemporaryDirectory(prefix="kappaform-disk-") as folder:
            path = written(Path(folder) / "signals.npy", dtype, STORE_BYTES)
            if find_spec("h5py") and find_spec("zarr"):
                yield from _store_rows(path, dtype)
            else:
                yield {"skipped": f"stores, {dtype}: h5py or zarr is not here"}


def written(path: Path, dtype: str, n_bytes: int) -> Path:
    some = patches(SIDE, 100_000).astype(dtype)
    n_signals = n_bytes // some[0].nbytes
    signals = np.lib.format.open_memmap(path, "w+", dtype, (n_signals, SIDE**2))
    for start in range(0, n_signals, len(some)):
        part = signals[start : start + len(some)]
        part[:] = some[: len(part)] * (1 + start / n_signals)
    return path


def _map_row(path: Path, dtype: str) -> dict:
    whole = np.load(path)
    times = _times({"memory": whole, "map": np.load(path, mmap_mode="r")})
    return {
        "name": f"warm pass, {_size(whole)} {dtype}, memory-map / in memory",
        "value": times["map"] / times["memory"],
        "unit": "times the time",
        "target": 1.3,
        "seconds": times,
    }


def _store_rows(path: Path, dtype: str) -> list[dict]:
    import h5py
    import zarr

    whole = np.load(path)
    chunks = (CHUNK_ROWS, SIDE**2)
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        stores: dict[str, Any] = {
            "HDF5": file.create_dataset("whole", data=whole),
            "HDF5 in chunks": file.create_dataset("chunks", data=whole, chunks=chunks),
        }
        stores["Zarr, compressed"] = zarr.open_array(
            path.with_suffix(".zarr"), mode="w", shape=whole.shape, chunks=chunks, dtype=dtype
        )
        stores["Zarr, compressed"][:] = whole
        times = _times({"memory": whole, **stores})
    return [
        {
            "name": f"warm pass, {_size(whole)} {dtype}, {kind} / in memory",
            "value": times[kind] / times["memory"],
            "unit": "times the time",
            "target": None,
            "seconds": times[kind],
        }
        for kind in stores
    ]


def _times(sources: dict[str, Any]) -> dict[str, float]:
    """Best time of a pass over each, taken in turns."""
    engines = {kind: engine_for(signals) for kind, signals in sources.items()}
    best = dict.fromkeys(engines, np.inf)
    for transform in nearby_transforms(SIDE, REPEATS):
        for kind, engine in engines.items():
            _ = engine.gram  # computed once, not a part of the pass
            start = time.perf_counter()
            engine.run_pass(transform, N_NONZERO)
            best[kind] = min(best[kind], time.perf_counter() - start)
    return best


def _memory_rows(path: Path, dtype: str) -> Iterator[dict]:
    """Largest resident set of a process over the number of signals that it sees of a file."""
    n_signals = len(np.load(path, mmap_mode="r"))
    for divisor in (64, 16, 4, 1):
        size = n_signals // divisor
        command = [sys.executable, __file__, str(path), str(size)]
        megabytes = float(subprocess.check_output(command, text=True))
        yield {
            "name": f"memory of a process, memory-map of {size} x {SIDE**2} {dtype}",
            "value": megabytes,
            "unit": "MB",
            "target": 400 if divisor == 1 else None,
            "signals": size,
        }


def _learn_and_tell_memory(path: str, n_signals: int) -> None:
    import kappaform as kf

    signals = np.load(path, mmap_mode="r")[:n_signals]
    kf.learn(signals, n_nonzero_coefs=N_NONZERO, max_iter=2)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    print(int(peak.split()[1]) / 1024)


def _size(signals: np.ndarray) -> str:
    return f"{signals.nbytes / 2**30:.3g} GB"


if __name__ == "__main__":
    _learn_and_tell_memory(sys.argv[1], int(sys.argv[2]))
