"""How straight data walk through the package: files and hops on the way, and reads of the data.

A file is on the way when one of its functions is called, in whatever thread (`sys.setprofile`). A
hop is a call from one file of the package to another. Every walk is done once before it is watched,
so that imports and compilation do not count. Reads are counted by a store: rows read, over the rows
that there are.

    python benchmarks/walks.py          a table of all walks
    python benchmarks/walks.py files    the files of each walk as well
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kappaform as kf
from kappaform.cli import main as command

PACKAGE = Path(kf.__file__).parent
LEARN, DENOISE, FIT = "learn, one iteration", "kappaform denoise x.png", "fit of a Dask array"
MOST_FILES = {LEARN: 13, DENOISE: 41, FIT: 16}
MOST_HOPS = {DENOISE: 1210}

BOUNDS = (1.5, 2.0, 4.0, 30.0)


def rows() -> list[dict]:
    """Files, hops and reads of every walk, with the most that there may be."""
    walks = walked()
    files = [
        {
            "name": f"files: {name}",
            "value": len(walk.files),
            "unit": "files",
            "target": MOST_FILES[name],
        }
        for name, walk in walks.items()
    ]
    hops = [
        {"name": f"hops: {name}", "value": walks[name].n_hops, "unit": "hops", "target": most}
        for name, most in MOST_HOPS.items()
    ]
    reads = [
        {"name": f"reads: {name}", "value": found, "unit": "reads", "target": allowed}
        for name, (found, allowed) in reads_of_the_data().items()
    ]
    return files + hops + reads


class Walk(NamedTuple):
    """What a walk goes through."""

    files: list[str]
    n_hops: int


def walked() -> dict[str, Walk]:
    """What each walk goes through."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a single iteration does not converge
        return {
            LEARN: walk_of(_learn_once),
            DENOISE: walk_of(lambda: _denoise_a_picture(Path(folder))),
            FIT: walk_of(_fit_dask),
        }


def reads_of_the_data() -> dict[str, tuple[float, int]]:
    """How often each call reads its data, and how often it may."""
    signals, validation = CountingStore(), CountingStore()
    found: dict[str, tuple[float, int]] = {}
    result = kf.learn(signals, kf.Conditioned(2.0), n_nonzero_coefs=3, max_iter=10, tol=0)
    found["learn"] = signals.n_reads, result.n_passes + 1
    signals = CountingStore()
    kf.evaluate(signals, result, 3)
    found["evaluate"] = signals.n_reads, 1
    signals = CountingStore()
    options: dict[str, Any] = {"n_nonzero_coefs": 3, "max_iter": 10, "tol": 0}
    path = kf.condition_path(signals, BOUNDS, validation=validation, **options)
    passes = sum(result.n_passes for result in path.results)
    found["condition_path"] = signals.n_reads, passes + 1
    found["validation of condition_path"] = validation.n_reads, len(BOUNDS)
    return found


class CountingStore:
    """Signals of which every row that is read is counted."""

    def __init__(self) -> None:
        self._signals = _signals()
        self._n_rows = 0
        self.shape, self.dtype = self._signals.shape, self._signals.dtype

    def __getitem__(self, key: Any) -> np.ndarray:
        read = self._signals[key]
        self._n_rows += len(read)
        return read

    @property
    def n_reads(self) -> float:
        """Of all rows; part of a read counts as its part."""
        return self._n_rows / len(self._signals)


def _signals() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((1000, 16)).cumsum(axis=1)


def _learn_once() -> None:
    kf.learn(_signals(), kf.Conditioned(2.0), n_nonzero_coefs=3, max_iter=1)


def _denoise_a_picture(folder: Path) -> None:
    from PIL import Image

    folder = Path(tempfile.mkdtemp(dir=folder))
    clean = np.kron(np.tri(8) * 120 + 60, np.ones((8, 8)))
    noisy = clean + np.random.default_rng(0).normal(0, 15, clean.shape)
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(folder / "x.png")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = command(["denoise", str(folder / "x.png")])
    if code != 0:
        raise RuntimeError(f"kappaform denoise ended with {code}")


def _fit_dask() -> None:
    import dask
    import dask.array as da

    blocks = da.from_array(_signals(), chunks=(250, 16))
    with dask.config.set(scheduler="synchronous"):
        kf.ConditionedTransform(3, max_iter=1).fit(blocks)


def walk_of(walk: Callable[[], None]) -> Walk:
    walk()
    found: set[str] = set()
    n_hops = 0

    def watch(frame: Any, event: str, _: Any) -> None:
        nonlocal n_hops
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        file = frame.f_code.co_filename
        found.add(file)
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        n_hops += file != caller and _is_ours(file) and _is_ours(caller)

    with _profiled(watch):
        walk()
    paths = (Path(name) for name in found if _is_ours(name))
    return Walk(sorted(str(path.relative_to(PACKAGE)) for path in paths), n_hops)


def _is_ours(file: str) -> bool:
    return file.startswith(str(PACKAGE))


@contextlib.contextmanager
def _profiled(watch: Callable[..., None]) -> Iterator[None]:
    """Call `watch` for every call of this thread and of all that start inside the block."""
    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])


if __name__ == "__main__":
    from run import table

    if "files" in sys.argv[1:]:
        for name, walk in walked().items():
            print(f"{name}: {len(walk.files)} files, {walk.n_hops} hops", *walk.files, sep="\n  ")
    print(table(rows()))
