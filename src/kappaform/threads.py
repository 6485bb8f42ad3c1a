"""How many threads a pass uses, and how BLAS is kept out of their way."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import LibController, ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")
Workspace = dict[str, Any]  #: memory that a thread uses again

_VARIABLE = "KAPPAFORM_NUM_THREADS"
_WATCH_SECONDS = 0.1  # between two calls of `watch`: as often as people can see

_limit: ContextVar[int | None] = ContextVar("threads of a pass, at most", default=None)


class _Inside(threading.local):
    """Number of blocks of `single_threaded_blas` that a thread is inside.

    It is in a list, so that another thread can leave one on its behalf.
    """

    def __init__(self) -> None:
        self.blocks = [0]


_inside = _Inside()
_lock = threading.RLock()  # of the following; a collected block may leave at any moment
_n_inside = 0  # blocks, of all threads
_numbers_outside: list[int] | None = None  # BLAS threads of each library, while they are limited


def n_threads() -> int:
    """Threads of a pass: ``KAPPAFORM_NUM_THREADS``, or every core this process may use.

    The cores that it may use are those of its affinity and of the quota of its container, and no
    more than numba's threads. Inside a block of `at_most_threads`, no more than its number.
    """
    limit = _limit.get()
    number = _wanted_threads()
    return number if limit is None else min(limit, number)


@contextmanager
def at_most_threads(number: int) -> Iterator[None]:
    """Limit the threads of passes that this thread begins inside the block."""
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

    If `take` is given, it receives the results instead, in that order, one at a time and as soon as
    they are available, so that they need not be in memory all at once.

    Each thread takes the next item when it has finished one, and passes its own workspace to all of
    its calls: fresh memory is slow. The caller sleeps until the last item is done, because waking
    for each result would stop a thread that computes. Only for `watch`, which receives the number
    of finished items, it wakes ten times a second. If several items fail, the error of the first is
    raised: items before it were begun before it.
    """
    results: list[Any] = []
    hand_over = _in_order(results.append if take is None else take)
    errors: dict[int, BaseException] = {}
    waiting = iter(enumerate(items))
    done: list[int] = []

    def work(report: Callable[[int], object] | None = None) -> None:
        workspace: Workspace = {}
        for i, item in waiting:
            try:
                hand_over(i, function(item, workspace))
                done.append(i)
                if report is not None:
                    report(len(done))
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


def single_threaded_blas() -> AbstractContextManager[None]:
    """Keep BLAS on one thread inside the block; a block within another costs nothing.

    Blocks of rows occupy every core already, and a product that BLAS splits over a varying number
    of threads may round differently. The limit is global to the process: the first to enter sets
    it, and the last to leave lifts it, from whatever threads they do.
    """
    return _changed_blocks(1)


def users_blas() -> AbstractContextManager[None]:
    """Give code of the user, such as a callback, the BLAS threads that the user had set.

    Steps out of every `single_threaded_blas` that this thread is inside. While other threads are
    inside one, the limit stays: it is global, and theirs.
    """
    return _changed_blocks(-_inside.blocks[0])


@contextmanager
def _changed_blocks(change: int) -> Iterator[None]:
    """Change the number of blocks that this thread is inside, and restore it at the end.

    An interrupt at any moment restores it, too. Python handles interrupts only at calls and in
    loops: consecutive lines with neither are executed all or not at all.
    """
    global _n_inside
    blocks, changed = _inside.blocks, 0

    def leave() -> None:
        nonlocal changed
        global _n_inside
        with _lock:
            _n_inside -= changed
            blocks[0] -= changed
            changed = 0
            _follow_blocks()

    try:
        with _lock:
            _n_inside += change
            blocks[0] += change
            changed = change
            _follow_blocks()
        yield
    finally:
        try:
            leave()
        except BaseException:
            leave()
            raise


def _follow_blocks() -> None:
    """Limit BLAS if there are blocks, lift its limit if there are none. May be interrupted."""
    global _numbers_outside
    if _n_inside > 0 and _numbers_outside is None:
        _numbers_outside = [library.num_threads for library in _blas()]
        _set_blas_threads([1] * len(_numbers_outside))
    elif _n_inside == 0 and _numbers_outside is not None:
        _set_blas_threads(_numbers_outside)
        _numbers_outside = None


def after_fork(renew: Callable[[], None]) -> Callable[[], None]:
    """Decorator: a function to be called in each forked process, for its locks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)
    return renew


@after_fork
def _begin_as_child() -> None:
    """After a fork only the thread that forked is left, and no one holds the lock."""
    global _lock, _n_inside
    _lock = threading.RLock()
    _n_inside = _inside.blocks[0]
    _follow_blocks()


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


@cache
def blas_kernels() -> frozenset[str]:
    """Processors that the kernels of NumPy's BLAS are made for, by OpenBLAS's names for them.

    SciPy may bring its own, in its wheel; without it, both have the same.
    """
    of_numpy = [each for each in _blas() if not _is_in_wheel_of_scipy(Path(each.filepath))]
    return frozenset(str(each.info().get("architecture")) for each in of_numpy)


def _is_in_wheel_of_scipy(library: Path) -> bool:
    folder = library.parent
    return folder.name == "scipy.libs" or (folder.parent.name, folder.name) == ("scipy", ".dylibs")
