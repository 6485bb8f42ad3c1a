"""Kernels are compiled wherever they run, with a cache or without one."""

import importlib
import os
import subprocess
import sys

import pytest
from numba.core.dispatcher import Dispatcher

BEFORE_IMPORT = """
from numba.core import caching

def refuse(self):
    raise PermissionError("read-only")

caching._CacheLocator.ensure_cache_path = refuse
"""
AFTER_IMPORT = """
import os, shutil
folder = os.environ["NUMBA_CACHE_DIR"]
shutil.rmtree(folder, ignore_errors=True)
open(folder, "w").close()
"""


@pytest.mark.parametrize("before", [True, False], ids=["no folder", "folder lost after import"])
def test_kernels_run_where_no_cache_can_be_written(before, tmp_path):
    lines = [
        BEFORE_IMPORT if before else "",
        "import numpy as np",
        "from kappaform.engines import kernels",
        "" if before else AFTER_IMPORT,
        "print(kernels._octave(np.zeros(1, np.int32)))",  # the one that is compiled fastest
    ]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.strip() == str(2**23), done.stderr


@pytest.mark.parametrize("module", ["kappaform.engines.kernels", "kappaform.imaging.kernels"])
def test_a_kernel_calls_only_kernels_of_its_own_file(module):
    """Numba compiles again what changed in a file, but does not look into files it imports."""
    kernels = [
        value
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, Dispatcher)
    ]
    assert len(kernels) > 2
    assert {kernel.py_func.__module__ for kernel in kernels} == {module}
