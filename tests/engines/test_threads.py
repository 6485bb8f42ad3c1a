"""Threads are counted as asked, and BLAS is limited exactly as long as needed."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import joblib
import pytest
from helpers import blas_threads
from threadpoolctl import threadpool_limits

from kappaform import threads
from kappaform.threads import (
    _cores_and_quota,
    at_most_threads,
    mapped_in_order,
    n_threads,
    single_threaded_blas,
    users_blas,
)


def output_of(script, *arguments):
    """What a process of its own prints last."""
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert lines, f"nothing was printed, status {done.returncode}"
    return lines[-1]


@pytest.fixture
def two_blas_threads():
    threads._blas()  # all libraries are loaded: one that comes later has threads of its own
    with threadpool_limits(2, user_api="blas"):
        if set(blas_threads()) != {2}:
            pytest.skip("this BLAS has no two threads to limit")
        yield


def test_the_variable_sets_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "3")
    assert n_threads() == 3


@pytest.mark.parametrize(
    ("affinity", "quota", "numba", "expected"), [(3, 9, 9, 3), (9, 3, 9, 3), (9, 9, 3, 3)]
)
def test_without_the_variable_every_usable_core_is_used(
    affinity, quota, numba, expected, monkeypatch
):
    monkeypatch.delenv("KAPPAFORM_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(affinity)), raising=False)
    monkeypatch.setattr("joblib.cpu_count", lambda: quota)
    monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", numba)
    monkeypatch.setattr("numba.np.ufunc.parallel._is_initialized", False)
    _cores_and_quota.cache_clear()
    try:
        assert n_threads() == expected
    finally:
        _cores_and_quota.cache_clear()


def test_workers_of_joblib_have_the_threads_that_joblib_gives_them(monkeypatch):
    monkeypatch.delenv("KAPPAFORM_NUM_THREADS", raising=False)
    with joblib.parallel_config("loky", n_jobs=2, inner_max_num_threads=1):
        found = joblib.Parallel()(joblib.delayed(n_threads)() for _ in range(4))
    assert found == [1] * 4


def test_asking_for_the_number_does_not_start_the_threads_of_numba():
    script = """
        from numba.np.ufunc import parallel
        from kappaform.threads import n_threads
        n_threads()
        print(parallel._is_initialized)
    """
    assert output_of(script) == "False"


@pytest.mark.parametrize("text", ["0", "-2", "many", "1.5"])
def test_a_number_of_threads_that_is_none_is_rejected(monkeypatch, text):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", text)
    with pytest.raises(ValueError, match=f"KAPPAFORM_NUM_THREADS='{text}'"):
        n_threads()


def test_a_limit_holds_inside_and_only_for_the_thread_that_set_it(monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "4")
    elsewhere = []
    with at_most_threads(3):
        with at_most_threads(1):
            assert n_threads() == 1
            other = threading.Thread(target=lambda: elsewhere.append(n_threads()))
            other.start()
            other.join()
        assert n_threads() == 3
        monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "2")
        assert n_threads() == 2  # a limit, not a number
    assert n_threads() == 2
    assert elsewhere == [4]


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_is_limited_inside_and_only_inside():
    with single_threaded_blas():
        with single_threaded_blas():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (("site-packages/numpy.libs", "site-packages/scipy.libs"), {"Zen"}),
        (("numpy/.dylibs", "scipy/.dylibs"), {"Zen"}),
        (("envs/scipy/lib",), {"Zen"}),  # both use the same, in an environment of that name
    ],
)
def test_kernels_of_blas_are_those_that_numpy_uses(folders, expected, monkeypatch):
    class Library:
        def __init__(self, folder, kernels):
            self.filepath, self.kernels = f"{folder}/libopenblas.so", kernels

        def info(self):
            return {"architecture": self.kernels}

    libraries = [Library(*each) for each in zip(folders, ("Zen", "SkylakeX"), strict=False)]
    monkeypatch.setattr(threads, "_blas", lambda: libraries)
    assert threads.blas_kernels.__wrapped__() == expected


@pytest.mark.usefixtures("two_blas_threads")
def test_the_limit_holds_until_the_last_of_concurrent_blocks_ends():
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with single_threaded_blas():
            entered.set()
            leave.wait()

    holder = threading.Thread(target=hold)
    with single_threaded_blas():
        holder.start()
        entered.wait()
    while_held = set(blas_threads())  # the other is still inside
    leave.set()
    holder.join()
    assert while_held == {1}
    assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_another_thread_limits_blas_and_lifts_the_limit_although_this_one_set_the_number():
    inside = []

    def limit():
        with single_threaded_blas():
            inside.append(set(blas_threads()))

    other = threading.Thread(target=limit)
    other.start()
    other.join()
    assert inside == [{1}]
    assert set(blas_threads()) == {2}


FORK = """
import os, sys, threading, warnings
from threadpoolctl import threadpool_limits
from kappaform.threads import _blas, single_threaded_blas
from kappaform import threads

def limits():
    return {library.num_threads for library in _blas()}

_blas()
threadpool_limits(2, user_api="blas")
if limits() != {2}:
    raise SystemExit("skip")
entered, leave = threading.Event(), threading.Event()

def hold():
    with single_threaded_blas():
        entered.set()
        leave.wait()

def hold_lock():
    with threads._lock:
        entered.set()
        leave.wait()

holder = threading.Thread(target=globals()[sys.argv[1]])
holder.start()
entered.wait()
inside = sys.argv[2] == "True"
if inside:
    block = single_threaded_blas()
    block.__enter__()
warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: threads may be inside
child = os.fork()
if child == 0:
    good = limits() == ({1} if inside else {2})
    if inside:
        block.__exit__(None, None, None)
    with single_threaded_blas():
        good &= limits() == {1}
    good &= limits() == {2}
    os._exit(0 if good else 3)
for _ in range(1200):
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid:
        break
    leave.wait(0.1)
else:
    os.kill(child, 9)
    status = "the child hangs"
leave.set()
holder.join()
print(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.parametrize(
    ("target", "inside"), [("hold", False), ("hold", True), ("hold_lock", False)]
)
def test_a_child_of_a_fork_neither_hangs_nor_keeps_the_limit_of_another_thread(target, inside):
    found = output_of(FORK, target, str(inside))
    if found == "skip":
        pytest.skip("this BLAS has no two threads to limit")
    assert found == "0"


@pytest.mark.usefixtures("two_blas_threads")
def test_the_user_s_code_has_the_user_s_blas_threads():
    with single_threaded_blas(), single_threaded_blas():
        with users_blas():
            assert set(blas_threads()) == {2}
            with single_threaded_blas():  # it may call us again
                assert set(blas_threads()) == {1}
            assert set(blas_threads()) == {2}
        assert set(blas_threads()) == {1}
        with pytest.raises(ZeroDivisionError), users_blas():
            raise ZeroDivisionError
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}
    with users_blas():
        assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_the_user_s_code_does_not_lift_the_limit_of_another_thread():
    entered, leave, found = threading.Event(), threading.Event(), []

    def hold():
        with single_threaded_blas():
            entered.set()
            leave.wait()
            found.append(set(blas_threads()))

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait()
    with single_threaded_blas(), users_blas():
        leave.set()
        holder.join()
        assert set(blas_threads()) == {2}  # nobody else is inside any more
    assert found == [{1}]
    assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("call", range(4))
def test_an_interrupt_while_the_limit_changes_leaves_none(call, monkeypatch):
    """The first call limits BLAS, the second lifts the limit: it comes before or after each."""
    set_threads, calls = threads._set_blas_threads, []

    def interrupted(numbers):
        calls.append(numbers)
        at = len(calls) - 1 == call // 2
        if at and call % 2 == 0:
            raise KeyboardInterrupt
        set_threads(numbers)
        if at:
            raise KeyboardInterrupt

    monkeypatch.setattr(threads, "_set_blas_threads", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept, single_threaded_blas():
        pass
    assert set(blas_threads()) == {2}  # although the error keeps the block alive
    assert kept.value is not None
    with single_threaded_blas():
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_a_block_that_was_never_left_is_left_when_it_is_forgotten():
    block = single_threaded_blas()
    block.__enter__()
    assert set(blas_threads()) == {1}
    del block
    assert set(blas_threads()) == {2}


@pytest.mark.parametrize("workers", ["1", "4"])
def test_of_several_errors_that_of_the_first_item_is_raised(workers, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", workers)
    barrier = threading.Barrier(int(workers))

    def fail(item, _):
        if workers != "1":
            barrier.wait(timeout=60)
            time.sleep(0.02 * (4 - item))  # the first is the last to fail
        raise ValueError(item)

    with pytest.raises(ValueError, match=r"^0$"):
        mapped_in_order(fail, range(4))


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("number", ["1", "2"])
def test_an_error_inside_lifts_the_limit_although_the_error_is_kept(monkeypatch, number):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", number)
    with pytest.raises(ZeroDivisionError) as kept:
        mapped_in_order(lambda x, _: 1 / x, [1, 0])
    assert kept.value is not None
    assert set(blas_threads()) == {2}


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_results_come_in_order(monkeypatch, threads):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", threads)
    assert mapped_in_order(lambda x, _: str(x), range(20)) == [str(i) for i in range(20)]


@pytest.mark.parametrize("threads", ["1", "3"])
def test_after_an_error_nothing_more_is_begun(monkeypatch, threads):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", threads)
    begun = []

    def fail(item, _):
        begun.append(item)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        mapped_in_order(fail, range(1000))
    assert len(begun) <= int(threads)


def test_a_thread_keeps_its_workspace(monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "3")
    seen = mapped_in_order(lambda _, workspace: id(workspace), range(50))
    assert len(set(seen)) <= 3
