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
        "from kappaform.engines.refit_kernels import write",  # the one that is compiled fastest
        "" if before else AFTER_IMPORT,
        "codes, one = np.zeros((1, 3)), np.ones(1, np.int64)",
        "write(2 * one[None], one, np.full((1, 1), 5.0), one > 0, codes)",
        "print(codes.tolist())",
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
    assert done.stdout.strip() == str([[0.0, 0.0, 5.0]]), done.stderr


MODULES = [
    "kappaform.engines.kernels",
    "kappaform.engines.refit_kernels",
    "kappaform.imaging.kernels",
]


def compiled_in(module):
    names = vars(importlib.import_module(module))
    return {name: value for name, value in names.items() if isinstance(value, Dispatcher)}


@pytest.mark.parametrize("module", MODULES)
def test_a_kernel_calls_only_kernels_of_its_own_file(module):
    """Numba compiles again what changed in a file, but does not look into files it imports."""
    kernels = compiled_in(module)
    assert len(kernels) > 2
    assert {kernel.py_func.__module__ for kernel in kernels.values()} == {module}


@pytest.mark.parametrize("module", MODULES)
def test_what_a_kernel_calls_becomes_a_part_of_it(module):
    """A second compiled copy may round differently, and the cache decides which one is linked."""
    kernels = compiled_in(module)
    called = {name for kernel in kernels.values() for name in kernel.py_func.__code__.co_names}
    found = [kernels[name].targetoptions for name in called & kernels.keys()]
    assert found
    assert all(options.get("forceinline") for options in found)
