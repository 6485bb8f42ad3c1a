"""Data walk straight through the package: few files and hops on the way, no read too many."""

import threading

import pytest
import walks

import kappaform as kf


@pytest.fixture(scope="module")
def walked():
    return walks.walked()


@pytest.fixture(scope="module")
def reads():
    return walks.reads_of_the_data()


@pytest.mark.parametrize("walk", walks.MOST_FILES)
def test_a_walk_goes_through_few_files(walked, walk):
    assert len(walked[walk].files) <= walks.MOST_FILES[walk], walked[walk].files


@pytest.mark.parametrize("walk", walks.MOST_HOPS)
def test_a_walk_rarely_hops_from_file_to_file(walked, walk):
    assert walked[walk].n_hops <= walks.MOST_HOPS[walk]


@pytest.mark.parametrize(
    "call", ["learn", "evaluate", "condition_path", "validation of condition_path"]
)
def test_data_are_read_as_often_as_there_are_passes(reads, call):
    found, allowed = reads[call]
    assert found == allowed


def test_every_read_is_counted():
    store = walks.CountingStore()
    for rows in (slice(0, 500), slice(500, 1000), slice(0, 250)):
        store[rows]
    assert store.n_reads == 1.25


def test_a_file_counts_when_one_of_its_functions_is_called_in_another_thread():
    def in_another_thread():
        thread = threading.Thread(target=kf.dct_basis, args=(4,))
        thread.start()
        thread.join()

    home = kf.dct_basis.__module__.removeprefix("kappaform.").replace(".", "/")
    assert f"{home}.py" in walks.walk_of(in_another_thread).files


def test_a_call_from_file_to_file_is_a_hop():
    assert walks.walk_of(lambda: kf.dct_basis(4)).n_hops == 0  # the caller is not of the package
    assert walks.walk_of(lambda: kf.extract_patches([[1.0]], 1)).n_hops > 0
