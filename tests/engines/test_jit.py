"""Kernels are compiled wherever they run, with a cache or without one."""

import importlib
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from kappaform import jit

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


ARRAYS = {"copy", "cumsum", "empty", "ones", "ravel", "reshape", "transpose", "zeros"}
MODULES = [
    "kappaform.engines.kernels",
    "kappaform.engines.refit_kernels",
    "kappaform.engines.union_kernels",
    "kappaform.imaging.cleaning.kernels",
]


def compiled_in(module):
    names = vars(importlib.import_module(module))
    return {name: value for name, value in names.items() if isinstance(value, Dispatcher)}


@pytest.mark.parametrize("module", MODULES)
def test_what_a_kernel_calls_becomes_a_part_of_it(module):
    """A second compiled copy may round differently, and the cache decides which one is linked."""
    kernels = compiled_in(module)
    called = {name for kernel in kernels.values() for name in kernel.py_func.__code__.co_names}
    found = [kernels[name].targetoptions for name in called & kernels.keys()]
    assert found
    assert all(options.get("forceinline") for options in found)


def largest_sum(rows):
    largest = 0.0
    for i in range(len(rows)):
        if rows[i, 0] > largest:
            largest = max(largest, rows[i].sum())
    return largest


def ones_like(rows):
    return np.ones(rows.shape[0])


@pytest.mark.parametrize(("function", "allocates"), [(largest_sum, False), (ones_like, True)])
def test_what_a_kernel_calls_counts_references_only_if_it_allocates(function, allocates):
    called = jit.inlined(set(), allocates=allocates)(function)
    kernel = jit.kernel(set())(lambda rows: np.sum(called(rows)))
    rows = np.ones((2, 3))
    before = sys.getrefcount(rows)
    assert kernel(rows) == function(rows).sum()
    assert sys.getrefcount(rows) == before
    assert ("NRT_" in called.inspect_llvm(called.signatures[0])) == allocates


def test_functions_that_count_no_references_make_no_arrays():
    """Numba compiles some of them or not, depending on what was compiled before."""
    package = Path(jit.__file__).parent
    names = [
        ".".join(("kappaform", *file.relative_to(package).with_suffix("").parts))
        for file in package.rglob("*kernels.py")
        if "kappaform.jit import" in file.read_text()
    ]
    found = [function for name in names for function in compiled_in(name).values()]
    strict = [each for each in found if each.targetoptions.get("_nrt") is False]
    assert len(strict) > 20
    assert not [each for each in strict if ARRAYS & {*each.py_func.__code__.co_names}]


def test_a_kernel_is_compiled_again_where_a_file_that_it_imports_changed(tmp_path):
    shutil.copy(jit.__file__, tmp_path / "jit.py")
    (tmp_path / "kernels.py").write_text(
        "from jit import kernel\nfrom other_kernels import VALUE\n\n"
        "@kernel(set())\ndef value():\n    return VALUE\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for value in ("1", "2"):
        (tmp_path / "other_kernels.py").write_text(f"VALUE = {value}\n")
        done = subprocess.run(
            [sys.executable, "-B", "-c", "import kernels; print(kernels.value())"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.stdout.strip() == value, done.stderr
    assert list((tmp_path / "cache").rglob("*.nbi"))


@pytest.mark.parametrize("missing", ["_source_stamp", "_cache_file"])
def test_a_cache_that_could_be_stale_is_not_used(missing, monkeypatch):
    """Another version of numba may keep its cache in another way."""

    class Cache:
        def __getattr__(self, name):
            if name == missing:
                raise AttributeError(name)
            return Cache() if name == "_cache_file" else None

    def compiled(cache=False, **options):  # noqa: ARG001
        def found(function):
            wrapped = partial(function)
            wrapped._cache = Cache() if cache else None
            return wrapped

        return found

    monkeypatch.setattr(jit, "njit", compiled)
    kernel = jit.kernel(set())(lambda: 5)
    assert kernel() == 5
    assert kernel._cache is None


def test_kernels_are_where_their_cache_looks_for_changes():
    package = Path(jit.__file__).parent
    users = [file for file in package.rglob("*.py") if "kappaform.jit import" in file.read_text()]
    assert len(users) > 2
    assert all(file.name.endswith("kernels.py") for file in users)
