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
_depth = 0
_lift: Callable[[], None]  # ends the limit on BLAS, where there is one


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
    """Keep BLAS on one thread inside the block; nested and concurrent blocks cost nothing.

    Blocks of rows occupy every core already, and a product that BLAS splits over a varying number
    of threads may round differently. The limit is global to the process: only the first to enter
    sets it and only the last to leave lifts it.
    """
    global _depth, _lift
    with _lock:
        if _depth == 0:
            _lift = _limit_blas()
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _lift()


def _limit_blas() -> Callable[[], None]:
    """Limit BLAS to one thread and return what lifts the limit again.

    A limit can be lifted only by the thread that set it, but the last to leave need not be the first
    that entered: a thread of its own does both.
    """
    limited, lifted = threading.Event(), threading.Event()

    def keep() -> None:
        try:
            with _blas().limit(limits=1, user_api="blas"):
                limited.set()
                lifted.wait()
        finally:
            limited.set()

    keeper = threading.Thread(target=keep, name="kappaform-blas", daemon=True)
    keeper.start()
    limited.wait()

    def lift() -> None:
        lifted.set()
        keeper.join()

    return lift


@cache
def _blas() -> ThreadpoolController:
    # NumPy and SciPy may each bring a BLAS: both must be loaded to be found.
    import numpy.linalg  # noqa: F401
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
