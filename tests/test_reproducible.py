"""The first process after an installation returns the bits that all later ones return.

The first one compiles the kernels, the later ones load them. What these calls are is in
reproducible.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from reproducible import CALLS

SCRIPT = Path(__file__).with_name("reproducible.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of a process with an empty cache, and of one that loads it and calls in another order."""
    folder = tmp_path_factory.mktemp("reproducible")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}
    found = []
    for name, options in (("cold", ()), ("warm", ("--reversed",))):
        output = folder / f"{name}.npz"
        command = [sys.executable, str(SCRIPT), str(output), *options]
        subprocess.run(command, env=environment, check=True, timeout=1200)
        found.append(np.load(output))
    return found


@pytest.mark.parametrize("call", CALLS)
def test_a_cold_and_a_warm_process_return_the_same_bits(results, call):
    cold, warm = results
    np.testing.assert_array_equal(cold[call], warm[call], strict=True)
