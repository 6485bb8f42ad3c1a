"""Threads are counted as asked, and BLAS is limited exactly as long as needed."""

import threading

import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from kappaform.threads import at_most_threads, mapped_in_order, n_threads, single_threaded_blas


def blas_threads():
    libraries = ThreadpoolController().select(user_api="blas").info()
    return [library["num_threads"] for library in libraries]


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, user_api="blas"):
        if set(blas_threads()) != {2}:
            pytest.skip("this BLAS has no two threads to limit")
        yield


def test_the_variable_sets_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "3")
    assert n_threads() == 3


def test_without_the_variable_every_usable_core_is_used(monkeypatch):
    monkeypatch.delenv("KAPPAFORM_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 4, 5}, raising=False)
    assert n_threads() == 3


@pytest.mark.parametrize("text", ["0", "-2", "many", "1.5"])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch, text):
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


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_an_error_inside_lifts_the_limit_although_the_error_is_kept(monkeypatch, threads):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", threads)
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
