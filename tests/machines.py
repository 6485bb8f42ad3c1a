"""Run tests as other machines would: other kernels of BLAS, of numba and of NumPy.

    python tests/machines.py
    python tests/machines.py --kinds Haswell Zen --twice -- -n 4 tests/linalg

The first line runs linalg, learning, imaging and engines as Haswell and as Prescott, without the
tests that need the paper's data and without the files of ELSEWHERE_ALIKE: those are about
arguments, messages, files, threads and memory, and compute nothing that rounding could decide.

Caches of compiled kernels are empty at first. Kinds whose kernels are the same share one: with
Haswell and Prescott the first run is with a cold cache, the second with a warm one. With --twice
every kind runs again with what it has cached. Arguments after -- are pytest's. Ends with 1 if any
test failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from numpy._core import _multiarray_umath as numpy_kernels

ROOT = Path(__file__).parents[1]
FOLDERS = [f"tests/{name}" for name in ("linalg", "learning", "imaging", "engines")]
ELSEWHERE_ALIKE = [
    "engines/test_jit.py",
    "engines/test_stores.py",
    "engines/test_threads.py",
    "engines/test_validation.py",
    "imaging/test_mistakes.py",
    "imaging/test_noise_files.py",
    "imaging/test_progress.py",
    "learning/test_memory.py",
]
# Without the paper's data, whose fits of hundreds of iterations take more than a minute.
DEFAULT = ["-n", "2", "--dist", "worksteal", "-m", "not paper", *FOLDERS]
DEFAULT += [f"--ignore=tests/{name}" for name in ELSEWHERE_ALIKE]


def environments() -> dict[str, dict[str, str]]:
    """Variables that make this machine compute as another kind does."""
    dispatched = list(numpy_kernels.__cpu_dispatch__)
    with_avx512 = [name for name in dispatched if name == "X86_V4" or name.startswith("AVX512")]
    old = {"NUMBA_CPU_NAME": "generic"}
    return {
        "native": {},
        "Haswell": {**old, "NPY_DISABLE_CPU_FEATURES": " ".join(with_avx512)},
        "Zen": {},
        "SkylakeX": {},
        "Prescott": {**old, "NPY_DISABLE_CPU_FEATURES": " ".join(dispatched)},
    }


def environment(kind: str) -> dict[str, str]:
    """All variables of a process that computes as a machine of some kind."""
    blas = {} if kind == "native" else {"OPENBLAS_CORETYPE": kind}
    return {**os.environ, "OMP_NUM_THREADS": "1", **blas, **environments()[kind]}


def passes(kind: str, cache: str, arguments: list[str]) -> bool:
    """Whether the tests pass as on a machine of some kind; failures and a summary are printed."""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        env={**environment(kind), "NUMBA_CACHE_DIR": cache},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()]
    for line in lines:
        if line.startswith(("FAILED", "ERROR")):
            print(f"  {line}")
    print(f"{kind}: {lines[-1]} ({time.monotonic() - start:.0f} s)", flush=True)
    return done.returncode == 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run tests as other machines would.")
    parser.add_argument(
        "--kinds", nargs="+", choices=environments(), default=["Haswell", "Prescott"]
    )
    parser.add_argument("--twice", action="store_true", help="with an empty cache, then a full one")
    parser.add_argument("pytest", nargs="*", default=DEFAULT)
    options = parser.parse_args(arguments)
    verdicts = []
    with tempfile.TemporaryDirectory() as caches:
        for kind in options.kinds:
            cache = Path(caches) / environments()[kind].get("NUMBA_CPU_NAME", "this")
            for _ in range(2 if options.twice else 1):
                verdicts.append(passes(kind, str(cache), options.pytest))
    return not all(verdicts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
