"""Results in parts: each computed on its own, kept on disk as soon as it is finished.

A part is the same whatever runs beside it, so neither the number of processes nor an interruption
changes the results.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from kappaform.files import replaced_when_complete
from kappaform.image_files import check_writable
from kappaform.threads import at_most_threads, single_threaded_blas

Watch = Callable[[int, int, float], None]  #: parts done, parts in all, share of the work done

_SETTINGS = "settings.json"


class Part(NamedTuple):
    """What to compute: arguments of the function that does it, and from which data."""

    name: str
    arguments: dict[str, Any]
    source: str  #: digest of the data
    cost: float  #: in any unit


class Finished(NamedTuple):
    """What came of the parts: their results and seconds, or why there are none."""

    results: dict[str, Any]
    seconds: dict[str, float]
    failures: dict[str, str]


def parts_folder(out: Path, what: str) -> Path:
    return out / f"{what}.parts"


def open_parts(out: Path, what: str, settings: dict[str, Any]) -> Path:
    """The folder of the parts of `what` in `out`, made if need be, for these settings only."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file: give a folder.")
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out / what)
    folder = parts_folder(out, what)
    folder.mkdir(exist_ok=True)
    file = folder / _SETTINGS
    wanted = json.loads(json.dumps(settings))  # tuples as lists, as they are read back
    if file.exists():
        found = _read(file)
        if found is None:
            raise ValueError(f"{file} is damaged: remove the folder {folder}, or give another OUT.")
        _check_same(folder, found, wanted)
    else:
        _write(file, wanted)
    return folder


def n_finished(out: Path, what: str) -> int:
    """Number of parts that are kept."""
    return sum(file.name != _SETTINGS for file in parts_folder(out, what).glob("[!.]*.json"))


def run_parts(
    work: Callable[..., Any],
    parts: Sequence[Part],
    folder: Path,
    n_workers: int,
    watch: Watch | None = None,
) -> Finished:
    """Compute what `folder` does not hold yet, the dearest parts first.

    `work`, a function of a module, returns what JSON can hold. Bad input (OSError, ValueError)
    costs its own part only.
    """
    records: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for part in parts:
        if (found := _kept(folder, part)) is not None:
            records[part.name] = found
    waiting = sorted((p for p in parts if p.name not in records), key=lambda p: -p.cost)
    total, done = sum(part.cost for part in waiting), 0.0

    def finish(part: Part, outcome: dict[str, Any] | str) -> None:
        nonlocal done
        if isinstance(outcome, str):
            failures[part.name] = outcome
        else:
            records[part.name] = outcome
        done += part.cost
        if watch is not None:
            watch(len(records) + len(failures), len(parts), done / total)

    if watch is not None and waiting:
        watch(len(records), len(parts), 0.0)
    if min(n_workers, len(waiting)) <= 1:
        for part in waiting:
            finish(part, _compute(work, part, folder))
    else:
        _run_in_processes(work, waiting, folder, n_workers, finish)
    order = [part.name for part in parts if part.name in records]
    return Finished(
        {name: records[name]["result"] for name in order},
        {name: records[name]["seconds"] for name in order},
        failures,
    )


def _run_in_processes(
    work: Callable[..., Any],
    waiting: Sequence[Part],
    folder: Path,
    n_workers: int,
    finish: Callable[[Part, Any], None],
) -> None:
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        min(n_workers, len(waiting)),
        # Not forked: the threads of BLAS would not survive that.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_leave_interrupts_to_the_parent,
    )
    try:
        futures = {pool.submit(_compute, work, part, folder): part for part in waiting}
        for future in as_completed(futures):
            finish(futures[future], future.result())
        pool.shutdown()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process ended before its part was finished, perhaps for want of memory: run the "
            "same command with fewer --workers, what is finished is kept."
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()  # after an interruption: nobody waits for what it computes


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _compute(work: Callable[..., Any], part: Part, folder: Path) -> dict[str, Any] | str:
    """The record of a part, which is then on disk, or what is wrong with its input."""
    started = time.perf_counter()
    try:
        # Processes are what runs side by side here.
        with at_most_threads(1), single_threaded_blas():
            result = work(**part.arguments)
    except (OSError, ValueError) as error:
        return " ".join(str(error).split())
    record = {
        "source": part.source,
        "seconds": round(time.perf_counter() - started, 2),
        "result": result,
    }
    _write(folder / f"{part.name}.json", record)
    return record


def _kept(folder: Path, part: Part) -> Any:
    record = _read(folder / f"{part.name}.json")
    if record is None or record.keys() != {"source", "seconds", "result"}:
        return None
    if record["source"] != part.source:
        raise ValueError(
            f"{folder} holds results of other images ({part.name} differs): give another folder "
            f"with -o, or remove {folder} to start anew."
        )
    return record


def _check_same(folder: Path, kept: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if kept.get(name) != value:
            raise ValueError(
                f"{folder} holds results with {name}={_in_words(kept.get(name))}, not "
                f"{_in_words(value)}: give another folder with -o, or remove {folder} to start "
                "anew."
            )


def _in_words(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _read(file: Path) -> dict[str, Any] | None:
    """A document that was written; None where there is none, or a damaged one."""
    try:
        document = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _write(file: Path, document: dict[str, Any]) -> None:
    with replaced_when_complete(file) as opened:
        opened.write(json.dumps(document).encode())
