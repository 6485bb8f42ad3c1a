"""The first process after an installation returns the bits that all later ones return.

The first one compiles the kernels, the later ones load them. What these calls are is in
reproducible.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from reproducible import CALLS

SCRIPT = Path(__file__).with_name("reproducible.py")


# One test for all calls: two processes of pytest would otherwise compile everything twice.
def test_a_cold_and_a_warm_process_return_the_same_bits(tmp_path):
    """The second process loads what the first has compiled, and calls in another order."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    results = []
    for name, options in (("cold", ()), ("warm", ("--reversed",))):
        output = tmp_path / f"{name}.npz"
        command = [sys.executable, str(SCRIPT), str(output), *options]
        subprocess.run(command, env=environment, check=True, timeout=1200)
        results.append(np.load(output))
    cold, warm = results
    assert set(cold) == set(warm) == set(CALLS)
    assert [name for name in CALLS if not np.array_equal(cold[name], warm[name])] == []
