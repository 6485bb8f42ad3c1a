"""Parts of a result, computed in processes and stored on disk as soon as they are finished.

A part does not depend on what runs at the same time, so neither the number of processes nor an
interruption changes the results.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import TerminatedWorkerError
from numpy.typing import NDArray

from kappaform.files import check_writable, replaced_when_complete
from kappaform.threads import at_most_threads, n_threads, single_threaded_blas

Watch = Callable[[float], None]  #: called with the completed fraction of the parts
Record = dict[str, Any]  #: of a finished part: its sources, result and seconds


class Part(NamedTuple):
    """``work(*arrays, **settings)``, a function of a module whose result JSON can represent."""

    name: str
    work: Callable[..., Any]
    arrays: tuple[NDArray, ...]
    settings: dict[str, Any]

    def sources(self) -> dict[str, Any]:
        """Everything that the result depends on, after a round trip through JSON."""
        digest = hashlib.sha256()
        for array in self.arrays:
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
        sources = {"kappaform": version("kappaform"), **self.settings}
        return json.loads(json.dumps(sources | {"digest of the images": digest.hexdigest()[:16]}))


def run_parts(
    parts: Sequence[Part], out: Path, what: str, n_workers: int | None, watch: Watch | None
) -> tuple[list[Any], dict[str, float]]:
    """Results of the parts in their order, and the seconds that each took.

    Only those that `out` does not contain yet are computed.
    """
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file: give a folder.")
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out / what)
    folder = out / f"{what}.parts"
    folder.mkdir(exist_ok=True)
    records = {part.name: record for part in parts if (record := _stored(folder, part))}
    waiting = [part for part in parts if part.name not in records]
    computed = _computed(waiting, folder, n_workers or n_threads())
    for n_done, (part, record) in enumerate(zip(waiting, computed, strict=True), start=1):
        records[part.name] = record
        if watch is not None:
            watch(n_done / len(waiting))
    seconds = {part.name: records[part.name]["seconds"] for part in parts}
    return [records[part.name]["result"] for part in parts], seconds


def _computed(parts: Sequence[Part], folder: Path, n_workers: int) -> Iterator[Record]:
    """Records of the parts in their order; each is on disk as soon as it is finished."""
    computed = Parallel(min(n_workers, len(parts)) or 1, return_as="generator")
    folder = folder.absolute()  # joblib's processes may have started in another one
    try:
        with warnings.catch_warnings():
            # Workers whose memory grows, as it does by compilation, are replaced with a warning.
            warnings.filterwarnings("ignore", "A worker stopped while", UserWarning)
            yield from computed(delayed(_compute)(part, folder) for part in parts)
    except TerminatedWorkerError as error:
        raise ChildProcessError(
            "a process ended before its part was finished, perhaps for lack of memory: run the "
            "same command with fewer --workers; finished parts are reused."
        ) from error


def _compute(part: Part, folder: Path) -> Record:
    started = time.perf_counter()
    with at_most_threads(1), single_threaded_blas():  # processes run in parallel
        result = part.work(*part.arrays, **part.settings)
    seconds = round(time.perf_counter() - started, 2)
    record = {"sources": part.sources(), "seconds": seconds, "result": result}
    with replaced_when_complete(folder / f"{part.name}.json") as file:
        file.write(json.dumps(record).encode())
    return record


def _stored(folder: Path, part: Part) -> Record | None:
    """The record of a part; None if it is missing or damaged."""
    file = folder / f"{part.name}.json"
    try:
        record: Record = json.loads(file.read_bytes())
        found, _, _ = record["sources"], record["seconds"], record["result"]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    for name, value in part.sources().items():
        if found.get(name) != value:
            raise ValueError(
                f"{file} has a result for {name} = {found.get(name)}, not {value}: give another "
                f"folder with -o, or remove {folder} to start over."
            )
    return record
