"""The rows that benchmarks have measured: results/*.json, one row per line.

A row says by itself where it comes from: benchmark, date, commit, machine and versions. A new row
replaces the one of the same benchmark and name in its file; every other row stays as it is. Rows
that do not depend on the machine are in any-machine.json, the others in a file for each machine.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
ANY_MACHINE = "any-machine"
PACKAGES = ("kappaform", "numpy", "scipy", "numba", "scikit-learn", "torch", "triton", "bm3d")
LOSSES = "losses-"  # files that are no rows begin like this


def read(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def files(folder: Path = RESULTS) -> list[Path]:
    return [path for path in sorted(folder.glob("*.json")) if not path.name.startswith(LOSSES)]


def write(path: Path, rows: Iterable[dict]) -> None:
    """Replace a file of rows, sorted by benchmark; a reader sees the old file or the new one."""
    lines = [json.dumps(row, ensure_ascii=False) for row in sorted(rows, key=_benchmark)]
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    new.replace(path)


def keep(path: Path, row: dict) -> None:
    """Put a row in the place of the one of the same benchmark and name, or add it."""
    rows = {_key(each): each for each in read(path)}
    rows[_key(row)] = row
    write(path, rows.values())


def drop_others(path: Path, benchmark: str, names: set[str]) -> None:
    """Remove the rows of a benchmark that have none of these names: it no longer measures them."""
    write(path, [r for r in read(path) if r["benchmark"] != benchmark or r["name"] in names])


def _benchmark(row: dict) -> str:
    return row["benchmark"]


def _key(row: dict) -> tuple[str, str]:
    return row["benchmark"], row["name"]


def stamp() -> dict:
    """Where rows that are measured now come from."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "machine": f"{cpu_name()}, {n_cores()} cores, {platform.system()}",
        "versions": ", ".join([f"python {platform.python_version()}", *_versions(), *_blas()]),
    }


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def commit() -> str:
    """The commit that is measured, with "-dirty" if sources or benchmarks differ from it.

    KAPPAFORM_COMMIT says it for a copy of the sources without a repository.
    """
    try:
        name = _git("rev-parse", "--short", "HEAD")
        what = ("src", "benchmarks", ":!benchmarks/results")
        changed = _git("status", "--porcelain", "--", *what)
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("KAPPAFORM_COMMIT", "unknown")
    return f"{name}-dirty" if changed else name


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.check_output(
        command, cwd=HERE.parent, text=True, stderr=subprocess.DEVNULL
    ).strip()


def _versions() -> list[str]:
    found = []
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found.append(f"{package} {version(package)}")
    return found


def _blas() -> list[str]:
    import numpy  # noqa: F401  its BLAS is what is asked for
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    words = [f"{p['internal_api']} {p['version']} {p.get('architecture')}" for p in pools]
    return list(dict.fromkeys(words))


def n_cores() -> int:
    import joblib

    return joblib.cpu_count()


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        if match:
            return match.group(1).strip()
    return platform.processor() or platform.machine()
