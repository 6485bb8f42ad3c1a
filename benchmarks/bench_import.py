"""What a user waits for before anything is computed: the import, and the first call of `learn`.

Every measurement is a fresh process that times itself, so the start of Python does not count.
"""

import os
import subprocess
import sys
import tempfile

IMPORT = """
from time import perf_counter
start = perf_counter()
import {module}
print(perf_counter() - start)
"""

# The import of the packages that learning needs counts: a user waits for it too.
FIRST_LEARN = """
import numpy as np
signals = np.random.default_rng(0).standard_normal((2000, 64))
from time import perf_counter
start = perf_counter()
import kappaform as kf
kf.learn(signals, kf.Conditioned(max_condition=2.0), n_nonzero_coefs=6, max_iter=3)
print(perf_counter() - start)
"""


def rows() -> list[dict]:
    """Milliseconds of the import, and seconds of the first call."""
    numpy, kappaform = (fastest(IMPORT.format(module=name)) for name in ("numpy", "kappaform"))
    with tempfile.TemporaryDirectory() as cache:
        compiling = seconds(FIRST_LEARN, cache)  # once: it fills the cache
        cached = fastest(FIRST_LEARN, cache, repeats=3)
    return [
        row("import kappaform", 1e3 * kappaform, "ms"),
        row("import kappaform / import numpy", kappaform / numpy, "ratio", numpy_ms=1e3 * numpy),
        row("first learn, empty compile cache", compiling, "s", target=5.0),
        row("first learn, filled compile cache", cached, "s", target=1.3),
    ]


def row(name: str, value: float, unit: str, target: float | None = None, **extra: float) -> dict:
    return {"name": name, "value": value, "unit": unit, "target": target, **extra}


def fastest(script: str, cache: str | None = None, repeats: int = 7) -> float:
    return min(seconds(script, cache) for _ in range(repeats))


def seconds(script: str, cache: str | None = None) -> float:
    """What `script` prints, run in a fresh process with `cache` as numba's compile cache."""
    environment = dict(os.environ) if cache is None else {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)
