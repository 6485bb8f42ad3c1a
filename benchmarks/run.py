"""Run every benchmark of this folder: a table on stdout, and results/<machine>.json.

A benchmark is a module ``bench_*.py`` with a function ``rows()`` that returns dicts with the keys
name, value, unit and target (None: measured, not promised); any other key is kept in the JSON.
Lower is better, unless a row says ``"better": "higher"``.

    python benchmarks/run.py            all
    python benchmarks/run.py import     those whose name contains "import"

Rows of benchmarks that were not chosen stay in the file.
"""

import json
import os
import platform
import re
import sys
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

HERE = Path(__file__).parent


def main(patterns: list[str]) -> None:
    names = sorted(path.stem for path in HERE.glob("bench_*.py"))
    chosen = [name for name in names if not patterns or any(part in name for part in patterns)]
    if not chosen:
        sys.exit(f"No benchmark matches {patterns}: there are {', '.join(names)}.")
    rows = []
    for name in chosen:
        print(f"... {name}", file=sys.stderr)
        rows += [{"benchmark": name, **row} for row in import_module(name).rows()]
    print(table(rows))
    described = machine()
    slug = re.sub(r"[^a-z0-9]+", "-", described["cpu"].lower()).strip("-")
    path = HERE / "results" / f"{slug}.json"
    path.parent.mkdir(exist_ok=True)
    kept = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    rows = [row for row in kept if row["benchmark"] not in chosen] + rows
    report = {"machine": described, "rows": rows}
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten: benchmarks/results/{path.name}")


def table(rows: list[dict]) -> str:
    """Rows as aligned text: name, value, unit, target, and whether it is met."""
    cells = [("benchmark", "value", "unit", "target", "")]
    for row in rows:
        value, target = row["value"], row["target"]
        low, high = (target, value) if row.get("better") == "higher" else (value, target)
        verdict = "" if target is None else "ok" if low <= high else "MISSED"
        goal = "" if target is None else f"{target:.4g}"
        cells.append((row["name"], f"{value:.4g}", row["unit"], goal, verdict))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    name, value, unit, target, _ = widths
    return "\n".join(
        f"{a:{name}}  {b:>{value}}  {c:{unit}}  {d:>{target}}  {e}".rstrip()
        for a, b, c, d, e in cells
    )


def machine() -> dict:
    """What the numbers were measured with."""
    packages = ("kappaform", "numpy", "scipy", "numba", "scikit-learn")
    blas = [
        {key: pool.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    ]
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
        "blas": blas,
        "simd": np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", []),
        "date": datetime.now(UTC).date().isoformat(),
    }


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE)
        if match:
            return match.group(1).strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main(sys.argv[1:])
