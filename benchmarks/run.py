"""Run benchmarks, one process for each, and keep every row as soon as it is measured.

    python benchmarks/run.py                    all
    python benchmarks/run.py pass noise         these, or those whose name contains one of the words
    python benchmarks/run.py quality:paper      one part of a benchmark
    python benchmarks/run.py --jobs 8 quality   pictures of quality benchmarks, 8 at a time
    python benchmarks/run.py --bm3d quality     BM3D, too (pip install bm3d)
    python benchmarks/run.py --list             what there is; imports every benchmark

A benchmark is a module ``bench_*.py`` with a function ``rows()``, or ``rows(*parts)`` if it has
parts. It yields dicts with the keys name, value, unit and target (None: measured, not promised);
any other key is kept. Lower is better, unless a row says ``"better": "higher"``. A dict with the
key "skipped" says what cannot be measured here, and why. ``ANY_MACHINE = True`` in a module says
that its rows do not depend on the machine.

Rows go to results/, each with its date, commit, machine and versions; rows that are not measured
stay as they are. The exit status is 1 if a target is missed or a benchmark fails, and 0 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import ModuleType

import stored

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("bench_*.py"))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure, and keep what was measured.")
    parser.add_argument("only", nargs="*", help="parts of names, each with :part if it has parts")
    parser.add_argument("--jobs", default=os.environ.get("KAPPAFORM_BENCH_JOBS", "1"))
    parser.add_argument("--bm3d", action="store_true", help="measure BM3D again")
    parser.add_argument("--list", action="store_true", help="import and list all benchmarks")
    parser.add_argument("--results", type=Path, default=stored.RESULTS, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.list:
        return _list()
    if options.child:
        return _measure(options.child, options.only)
    os.environ["KAPPAFORM_BENCH_JOBS"] = options.jobs
    if options.bm3d:
        os.environ["KAPPAFORM_BENCH_BM3D"] = "1"
    return _run(list(_chosen(options.only)), options.results)


def _chosen(only: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Benchmarks with the parts that are asked for, none of them for all."""
    if not only:
        yield from ((name, []) for name in NAMES)
    for word in only:
        word, *parts = word.split(":")
        found = [name for name in NAMES if word in name.removeprefix("bench_")]
        found = [f"bench_{word}"] if f"bench_{word}" in found else found  # noise is not denoise
        if not found:
            sys.exit(f"No benchmark contains {word!r} in its name: there are {', '.join(NAMES)}.")
        yield from ((name, parts) for name in found)


def _run(chosen: list[tuple[str, list[str]]], folder: Path) -> int:
    measured: list[dict] = []
    skipped: list[str] = []
    failed: list[str] = []
    origin = stored.stamp()
    for name, parts in chosen:
        print(f"... {name} {' '.join(parts)}".rstrip(), file=sys.stderr, flush=True)
        start, names, n_skipped, path = time.monotonic(), set(), len(skipped), None
        command = [sys.executable, __file__, "--child", name, *parts]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                row = json.loads(line)
                if "skipped" in row:
                    skipped.append(f"{name}: {row['skipped']}")
                    continue
                path = folder / f"{row.pop('file')}.json"
                row = {"benchmark": name} | row | (origin | row)
                stored.keep(path, row)
                measured.append(row)
                names.add(row["name"])
                print(f"    {_words(row)}", file=sys.stderr, flush=True)
        if process.returncode:
            failed.append(f"{name}: ended with {process.returncode}")
        elif path and not parts and len(skipped) == n_skipped:
            stored.drop_others(path, name, names)
        print(f"    {(time.monotonic() - start) / 60:.1f} minutes", file=sys.stderr, flush=True)
    print(table(measured))
    missed = [f"{row['benchmark']}: {_words(row)}" for row in measured if is_missed(row)]
    for what, words in (("skipped", skipped), ("failed", failed), ("missed", missed)):
        print(f"\n{what}: {len(words)}", *words, sep="\n  ")
    return 1 if failed or missed else 0


def _words(row: dict) -> str:
    goal = "" if row["target"] is None else f" (target {row['target']:.4g})"
    return f"{row['name']}: {row['value']:.4g} {row['unit']}{goal}"


def _measure(name: str, parts: list[str]) -> int:
    """Rows of one benchmark as lines of JSON; whatever else it prints goes to stderr."""
    out, names = sys.stdout, set()
    with redirect_stdout(sys.stderr):
        module = import_module(name)
        for row in module.rows(*parts):
            if "skipped" not in row:
                if row["name"] in names:
                    raise ValueError(f"{name}: two rows have the name {row['name']!r}")
                names.add(row["name"])
                row = _home(module) | row
            print(json.dumps(row), file=out, flush=True)
    return 0


def _home(module: ModuleType) -> dict:
    """The file of a benchmark's rows, and its machine if that is not the CPU."""
    if getattr(module, "ANY_MACHINE", False):
        return {"file": stored.ANY_MACHINE}
    if hasattr(module, "machine"):
        return {"file": stored.slug(module.machine()), "machine": module.machine()}
    return {"file": stored.slug(stored.cpu_name())}


def _list() -> int:
    for name in NAMES:
        module = import_module(name)
        if not callable(module.rows):
            raise TypeError(f"{name}: rows is not a function")
        parts = f"\n    parts: {', '.join(module.PARTS)}" if hasattr(module, "PARTS") else ""
        print(f"{name}: {str(module.__doc__).splitlines()[0]}{parts}")
    return 0


def is_missed(row: dict) -> bool:
    value, target = row["value"], row["target"]
    if target is None:
        return False
    return not (value >= target if row.get("better") == "higher" else value <= target)


def table(rows: list[dict]) -> str:
    """Rows as aligned text: name, value, unit, target, and whether it is met."""
    cells = [("benchmark", "value", "unit", "target", "")]
    for row in rows:
        target = row["target"]
        verdict = "" if target is None else "MISSED" if is_missed(row) else "ok"
        goal = "" if target is None else f"{target:.4g}"
        cells.append((row["name"], f"{row['value']:.4g}", row["unit"], goal, verdict))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    name, value, unit, target, _ = widths
    return "\n".join(
        f"{a:{name}}  {b:>{value}}  {c:{unit}}  {d:>{target}}  {e}".rstrip()
        for a, b, c, d, e in cells
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
