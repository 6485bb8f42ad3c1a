"""How many threads a pass uses, and how BLAS is kept out of their way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_VARIABLE = "KAPPAFORM_NUM_THREADS"

_lock = threading.Lock()
_limited = False


def n_threads() -> int:
    """Threads of a pass: ``KAPPAFORM_NUM_THREADS``, or every core this process may use."""
    text = os.environ.get(_VARIABLE, "").strip()
    if not text:
        return _usable_cores()
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ValueError(f"{_VARIABLE}={text!r} is not a number of threads: set an integer >= 1.")
    return number


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def mapped_in_order(
    function: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[Iterator[Result]]:
    """Results of `function` in the order of `items`, computed by `n_threads()` threads.

    A context, so that the threads and the limit on BLAS end with it, whatever happens inside.
    """
    workers = min(n_threads(), len(items))
    with single_threaded_blas():
        if workers == 1:
            yield map(function, items)
            return
        # A pool of its own for every call: one that lives on would be dead in a forked process.
        pool = ThreadPoolExecutor(workers, thread_name_prefix="kappaform")
        try:
            yield pool.map(function, items)
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS on one thread inside the block; a block within another costs nothing.

    Blocks of rows occupy every core already, and a product that BLAS splits over a varying number
    of threads may round differently. The limit is global to the process: the first to enter sets
    it and lifts it. Who enters meanwhile, from whatever thread, leaves it alone; otherwise it would
    take the limit for the original number and restore that.
    """
    global _limited
    with _lock:
        is_first, _limited = not _limited, True
    if not is_first:
        yield
        return
    try:
        with _blas().limit(limits=1, user_api="blas"):
            yield
    finally:
        _limited = False


@cache
def _blas() -> ThreadpoolController:
    # NumPy and SciPy may each bring a BLAS: both must be loaded to be found.
    import numpy.linalg  # noqa: F401
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
