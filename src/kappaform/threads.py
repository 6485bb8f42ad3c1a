"""How many threads a pass uses, and how BLAS is kept out of their way."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import LibController, ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")
Workspace = dict[str, Any]  #: memory that a thread uses again

_VARIABLE = "KAPPAFORM_NUM_THREADS"
_WATCH_SECONDS = 0.1  # between two looks at what is done: as often as people can see

_limit: ContextVar[int | None] = ContextVar("threads of a pass, at most", default=None)


class _Inside(threading.local):
    """Blocks of `single_threaded_blas` that a thread is inside: a list, so that another thread can
    leave one for it.
    """

    def __init__(self) -> None:
        self.blocks = [0]


_inside = _Inside()
_lock = threading.RLock()  # of the following; a collected block may leave at any moment
_n_inside = 0  # blocks, of all threads
_is_limited = False
_numbers_outside: list[int] = []  # of BLAS threads, library by library


def n_threads() -> int:
    """Threads of a pass: ``KAPPAFORM_NUM_THREADS``, or every core this process may use.

    The cores that it may use are those of its affinity and of the quota of its container, and no
    more than numba's threads. Inside a block of `at_most_threads`, no more than it says.
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
    """Cores this process may use: by its affinity, by the quota of a container, and by numba."""
    cores = _cores_and_quota()
    if hasattr(os, "sched_getaffinity"):
        cores = min(cores, len(os.sched_getaffinity(0)))
    return max(1, min(cores, _numba_threads()))


@cache
def _cores_and_quota() -> int:
    import joblib

    return int(joblib.cpu_count())


def _numba_threads() -> int:
    """Numba's limit. Workers of joblib set it so that all of them together use every core once."""
    import numba
    from numba.np.ufunc import parallel

    # Asking numba would start its threads; before they run, nobody has set another number.
    if getattr(parallel, "_is_initialized", False):
        return int(numba.get_num_threads())
    config: Any = numba.config  # it gets its attributes from the environment
    return int(config.NUMBA_NUM_THREADS)


def mapped_in_order(
    function: Callable[[Item, Workspace], Result],
    items: Sequence[Item],
    watch: Callable[[int], object] | None = None,
    take: Callable[[Result], object] | None = None,
) -> list[Result]:
    """Results of `function` in the order of `items`, computed by `n_threads()` threads.

    `take` receives them instead, in that order, one at a time and as soon as they are there, so
    that they need not be in memory all at once.

    Each thread takes the next item when it is done with one, and hands its own workspace to all of
    its calls: fresh memory is slow. The caller sleeps until the last item is done, because every
    time it woke for a result it would stop a thread that computes. Only for `watch` it wakes, ten
    times a second, to tell it how many items are done; in the end that is all of them. Of several
    errors, that of the first item is raised: items before it were begun before it.
    """
    results: list[Any] = []
    hand_over = _in_order(results.append if take is None else take)
    errors: dict[int, BaseException] = {}
    waiting = iter(enumerate(items))
    done: list[int] = []

    def work(tell: Callable[[int], object] | None = None) -> None:
        workspace: Workspace = {}
        for i, item in waiting:
            try:
                hand_over(i, function(item, workspace))
                done.append(i)
                if tell is not None:
                    tell(len(done))
            except BaseException as error:
                errors[i] = error
                deque(waiting, maxlen=0)  # the other threads find nothing more to do

    workers = min(n_threads(), len(items))
    with single_threaded_blas():
        if workers == 1:
            work(watch)
        else:
            # A pool of its own for every call: one that lives on is dead in a forked process.
            with ThreadPoolExecutor(workers, thread_name_prefix="kappaform") as pool:
                try:
                    running = [pool.submit(work) for _ in range(workers)]
                    while watch is not None and wait(running, _WATCH_SECONDS).not_done:
                        watch(len(done))
                    for worker in running:
                        worker.result()
                finally:
                    deque(waiting, maxlen=0)  # also if the caller is interrupted
    if errors:
        raise errors.pop(min(errors))
    if watch is not None:
        watch(len(items))
    return results


def _in_order(take: Callable[[Any], object]) -> Callable[[int, Any], None]:
    """Function that hands results to `take` in the order of their numbers, whatever comes first."""
    ready: dict[int, Any] = {}
    lock = threading.Lock()
    following = 0

    def hand_over(i: int, result: Any) -> None:
        nonlocal following
        with lock:
            ready[i] = result
            while following in ready:
                take(ready.pop(following))
                following += 1

    return hand_over


class single_threaded_blas:  # noqa: N801 - called like a function
    """Keep BLAS on one thread inside the block; a block within another costs nothing.

    Blocks of rows occupy every core already, and a product that BLAS splits over a varying number
    of threads may round differently. The limit is global to the process: the first to enter sets
    it, and the last to leave lifts it, from whatever threads they do. An interrupt at any moment
    leaves no limit behind.
    """

    _blocks: list[int] | None = None  # of the thread that entered; None outside

    def __enter__(self) -> None:
        global _n_inside
        blocks = _inside.blocks
        try:
            with _lock:
                # No call between these: an interrupt finds all of them done, or none.
                _n_inside += 1
                blocks[0] += 1
                self._blocks = blocks
                _follow_blocks()
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._leave()
        except BaseException:
            self._leave()
            raise

    def __del__(self) -> None:  # where an interrupt came before `__exit__`
        if self._blocks is not None:
            self._leave()

    def _leave(self) -> None:
        global _n_inside
        with _lock:
            if self._blocks is not None:
                _n_inside -= 1
                self._blocks[0] -= 1
                self._blocks = None
            _follow_blocks()


@contextmanager
def users_blas() -> Iterator[None]:
    """Give code of the user, such as a callback, the BLAS threads that the user had set.

    Steps out of every `single_threaded_blas` that this thread is inside. While other threads are
    inside one, the limit stays: it is global, and theirs.
    """
    blocks = _inside.blocks
    n_left = blocks[0]
    try:
        _change(blocks, -n_left)
        yield
    finally:
        _change(blocks, n_left - blocks[0])


def _change(blocks: list[int], number: int) -> None:
    global _n_inside
    with _lock:
        _n_inside += number
        blocks[0] += number
        _follow_blocks()


def _follow_blocks() -> None:
    """Limit BLAS if there are blocks, lift its limit if there are none. May be interrupted."""
    global _is_limited, _numbers_outside
    if _n_inside > 0 and not _is_limited:
        numbers = [library.num_threads for library in _blas()]
        _numbers_outside, _is_limited = numbers, True
        _set_blas_threads([1] * len(numbers))
    elif _n_inside == 0 and _is_limited:
        _set_blas_threads(_numbers_outside)
        _is_limited = False


def _begin_as_child() -> None:
    """After a fork only the thread that forked is left, and no one holds the lock."""
    global _lock, _n_inside
    _lock = threading.RLock()
    _n_inside = _inside.blocks[0]
    _follow_blocks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_as_child)


def _set_blas_threads(numbers: Sequence[int]) -> None:
    for library, number in zip(_blas(), numbers, strict=True):
        library.set_num_threads(number)
        # From threadpoolctl 3.8 on, the thread that set the number of OpenBLAS owns it, and others
        # are ignored in silence. Here another thread may lift the limit than the one that set it.
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
