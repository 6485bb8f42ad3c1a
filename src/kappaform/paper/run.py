"""Parts of a result: computed in processes, each kept on disk as soon as it is finished.

A part is the same whatever runs beside it, so neither the number of processes nor an interruption
changes the results.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from kappaform.files import check_writable, replaced_when_complete
from kappaform.threads import at_most_threads, n_threads, single_threaded_blas

Watch = Callable[[float], None]  #: called with the share of the parts that is done
Record = dict[str, Any]  #: of a finished part: what it was made of, its result, its seconds


class Part(NamedTuple):
    """``work(*arrays, **settings)``, for a function of a module whose result JSON can hold."""

    name: str
    work: Callable[..., Any]
    arrays: tuple[NDArray, ...]
    settings: dict[str, Any]

    def sources(self) -> dict[str, Any]:
        """All that the result depends on, as JSON gives it back."""
        digest = hashlib.sha256()
        for array in self.arrays:
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        sources = {"kappaform": version("kappaform"), **self.settings}
        return json.loads(json.dumps(sources | {"digest of the images": digest.hexdigest()[:16]}))


def run_parts(
    parts: Sequence[Part], out: Path, what: str, n_workers: int | None, watch: Watch | None
) -> tuple[list[Any], dict[str, float]]:
    """Results of the parts in their order, and the seconds that each took.

    Those that `out` does not hold yet are computed.
    """
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file: give a folder.")
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out / what)
    folder = out / f"{what}.parts"
    folder.mkdir(exist_ok=True)
    records = {part.name: record for part in parts if (record := _kept(folder, part))}
    waiting = [part for part in parts if part.name not in records]
    computed = _computed(waiting, folder, n_workers or n_threads())
    for n_done, (part, record) in enumerate(computed, start=1):
        records[part.name] = record
        if watch is not None:
            watch(n_done / len(waiting))
    seconds = {part.name: records[part.name]["seconds"] for part in parts}
    return [records[part.name]["result"] for part in parts], seconds


def _computed(parts: Sequence[Part], folder: Path, n_workers: int) -> Iterator[tuple[Part, Record]]:
    """Parts and their records, in the order in which they are finished."""
    n_workers = min(n_workers, len(parts))
    if n_workers <= 1:
        yield from ((part, _compute(part, folder)) for part in parts)
        return
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        n_workers,
        mp_context=multiprocessing.get_context("spawn"),  # threads of BLAS do not survive a fork
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is for this process
    )
    try:
        futures = {pool.submit(_compute, part, folder): part for part in parts}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process ended before its part was finished, perhaps for want of memory: run the "
            "same command with fewer --workers, what is finished is kept."
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()  # after an interruption nobody waits for its result


def _compute(part: Part, folder: Path) -> Record:
    started = time.perf_counter()
    with at_most_threads(1), single_threaded_blas():  # the processes run side by side
        result = part.work(*part.arrays, **part.settings)
    seconds = round(time.perf_counter() - started, 2)
    record = {"sources": part.sources(), "seconds": seconds, "result": result}
    with replaced_when_complete(folder / f"{part.name}.json") as file:
        file.write(json.dumps(record).encode())
    return record


def _kept(folder: Path, part: Part) -> Record | None:
    """The record of a part; None where there is none, or a damaged one."""
    file = folder / f"{part.name}.json"
    try:
        record: Record = json.loads(file.read_bytes())
        found, _, _ = record["sources"], record["seconds"], record["result"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    for name, value in part.sources().items():
        if found.get(name) != value:
            raise ValueError(
                f"{file} holds a result with {name}={found.get(name)}, not {value}: give another "
                f"folder with -o, or remove {folder} to start anew."
            )
    return record
