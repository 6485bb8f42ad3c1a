"""How many threads a pass uses, and how BLAS is kept out of their way."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import LibController, ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")
Workspace = dict[str, Any]  #: memory that a thread uses again

_VARIABLE = "KAPPAFORM_NUM_THREADS"

_limit: ContextVar[int | None] = ContextVar("threads of a pass, at most", default=None)

_lock = threading.Lock()
_n_inside = 0  # blocks of `single_threaded_blas`, of all threads
_numbers_outside: list[int] = []  # of BLAS threads, library by library


def n_threads() -> int:
    """Threads of a pass: ``KAPPAFORM_NUM_THREADS``, or every core this process may use.

    Inside a block of `at_most_threads`, no more than it says.
    """
    limit = _limit.get()
    number = _wanted_threads()
    return number if limit is None else min(limit, number)


@contextmanager
def at_most_threads(number: int) -> Iterator[None]:
    """Limit the passes begun inside the block, by this thread: others may run beside it."""
    before = _limit.set(number)
    try:
        yield
    finally:
        _limit.reset(before)


def _wanted_threads() -> int:
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


def mapped_in_order(
    function: Callable[[Item, Workspace], Result], items: Sequence[Item]
) -> list[Result]:
    """Results of `function` in the order of `items`, computed by `n_threads()` threads.

    Each thread takes the next item when it is done with one, and hands its own workspace to all of
    its calls: fresh memory is slow. The caller sleeps until the last item is done, because every
    time it woke for a result it would stop a thread that computes. Of several errors, that of the
    first item is raised: items before it were begun before it.
    """
    results: list[Any] = [None] * len(items)
    errors: dict[int, BaseException] = {}
    waiting = iter(enumerate(items))

    def work() -> None:
        workspace: Workspace = {}
        for i, item in waiting:
            try:
                results[i] = function(item, workspace)
            except BaseException as error:
                errors[i] = error
                deque(waiting, maxlen=0)  # the other threads find nothing more to do

    workers = min(n_threads(), len(items))
    with single_threaded_blas():
        if workers == 1:
            work()
        else:
            # A pool of its own for every call: one that lives on is dead in a forked process.
            with ThreadPoolExecutor(workers, thread_name_prefix="kappaform") as pool:
                try:
                    for done in [pool.submit(work) for _ in range(workers)]:
                        done.result()
                finally:
                    deque(waiting, maxlen=0)  # also if the caller is interrupted
    if errors:
        raise errors.pop(min(errors))
    return results


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS on one thread inside the block; a block within another costs nothing.

    Blocks of rows occupy every core already, and a product that BLAS splits over a varying number
    of threads may round differently. The limit is global to the process: the first to enter sets
    it, and the last to leave lifts it, from whatever threads they do.
    """
    global _n_inside
    with _lock:
        if _n_inside == 0:
            _numbers_outside[:] = [library.num_threads for library in _blas()]
            _set_blas_threads([1] * len(_numbers_outside))
        _n_inside += 1
    try:
        yield
    finally:
        with _lock:
            _n_inside -= 1
            if _n_inside == 0:
                _set_blas_threads(_numbers_outside)


def _set_blas_threads(numbers: Sequence[int]) -> None:
    for library, number in zip(_blas(), numbers, strict=True):
        library.set_num_threads(number)
        # From threadpoolctl 3.8 on, the thread that set the number of OpenBLAS owns it, and others
        # are ignored in silence. Here the last to leave need not be the first who came.
        if hasattr(library, "clear_controlling_thread"):
            if library.num_threads != number:
                library.clear_controlling_thread(force=True)
                library.set_num_threads(number)
            library.clear_controlling_thread()


@cache
def _blas() -> list[LibController]:
    # NumPy and SciPy may each bring a BLAS: both must be loaded to be found.
    import numpy.linalg  # noqa: F401
    import scipy.linalg  # noqa: F401

    return ThreadpoolController().select(user_api="blas").lib_controllers


@contextmanager
def users_blas() -> Iterator[None]:
    yield
