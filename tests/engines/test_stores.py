"""Signals on disk: the same bits as in memory, read in pieces, and no iteration lost on failure."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import STATISTICS, Store, memory_mapped, peak_bytes, run_two_passes

import kappaform as kf
from kappaform.checks import is_store
from kappaform.engines import SignalsUnreadable, blocks, engine_for, stores
from kappaform.engines.blocks import parts
from kappaform.linalg import scaled_inverse


class FailingStore(Store):
    """Fails at the reads from number `first_failure` on, counted from 1."""

    def __init__(self, rows, first_failure):
        super().__init__(rows)
        self.first_failure = first_failure

    def __getitem__(self, rows):
        found = super().__getitem__(rows)
        if len(self.reads) >= self.first_failure:
            raise ConnectionError("the cable is out")
        return found


def hdf5(signals, folder):
    import h5py

    with h5py.File(folder / "signals.h5", "w") as file:
        file["signals"] = signals
    return h5py.File(folder / "signals.h5")["signals"]


def hdf5_in_chunks(signals, folder):
    import h5py

    with h5py.File(folder / "signals.h5", "w") as file:
        file.create_dataset("signals", data=signals, chunks=(3007, 7), compression="gzip")
    return h5py.File(folder / "signals.h5")["signals"]


def zarr_in_chunks(signals, folder):
    import zarr

    store = zarr.open_array(
        folder / "signals.zarr",
        mode="w",
        shape=signals.shape,
        dtype=signals.dtype,
        chunks=(3001, 7),
    )
    store[:] = signals
    return store


SOURCES = {
    "memory-map": memory_mapped,
    "HDF5": hdf5,
    "HDF5 in chunks": hdf5_in_chunks,
    "Zarr": zarr_in_chunks,
    "any rows": lambda signals, _: Store(signals),
}


def assert_same_results(one, other, transform, n_nonzero):
    for _ in range(2):  # the second pass remembers the first
        found, expected = one.run_pass(transform, n_nonzero), other.run_pass(transform, n_nonzero)
        for field in STATISTICS:
            np.testing.assert_array_equal(getattr(found, field), getattr(expected, field), field)
    inverse = scaled_inverse(transform)
    found = one.energies(transform, inverse, n_nonzero)
    assert found == other.energies(transform, inverse, n_nonzero)
    for operation in (lambda e: e.encode(transform, n_nonzero), lambda e: e.decode(inverse)):
        found, expected = operation(one), operation(other)
        assert type(found) is np.ndarray
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int16"])
def test_signals_on_disk_give_the_bits_of_the_same_in_memory(source, dtype, rng, tmp_path):
    signals = (100 * rng.standard_normal((9001, 14))).astype(dtype)
    stored = source(signals, tmp_path)
    assert is_store(stored) != isinstance(stored, np.ndarray)
    transform, n_nonzero = rng.standard_normal((14, 14)), rng.integers(0, 15, len(signals))
    assert_same_results(engine_for(stored), engine_for(signals), transform, n_nonzero)


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("source", ["memory-map", "HDF5 in chunks", "Zarr"])
def test_any_number_of_threads_reads_the_same(source, threads, rng, tmp_path, monkeypatch):
    signals = rng.standard_normal((9000, 30)).astype(np.float32)
    monkeypatch.setattr(blocks, "_PART_ENTRIES", 1)  # a thread takes less than usual at a time
    assert len(parts(*signals.shape)) > 2
    monkeypatch.setattr(stores, "_PIECE_BYTES", 2**18)
    expected = engine_for(signals)
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", threads)
    transform = rng.standard_normal((30, 30))
    assert_same_results(engine_for(SOURCES[source](signals, tmp_path)), expected, transform, 3)


@pytest.mark.parametrize("piece_bytes", [1, 10_000, 300_000])
@pytest.mark.parametrize("chunk", [None, 1, 100, 1000, 5000])
def test_pieces_of_any_length_make_the_same_blocks(piece_bytes, chunk, rng, monkeypatch):
    monkeypatch.setattr(stores, "_PIECE_BYTES", piece_bytes)
    signals = rng.standard_normal((9000, 5))
    store = Store(signals, None if chunk is None else (chunk, 5))
    read = stores.reader_of(store, "signals")
    found = list(read(slice(40, 8990), 1024))
    assert [rows.start for rows, _ in found] == list(range(40, 8990, 1024))
    for rows, block in found:
        np.testing.assert_array_equal(block, signals[rows])


def test_reads_are_whole_chunks_of_the_store(rng, monkeypatch):
    monkeypatch.setattr(stores, "_PIECE_BYTES", 100_000)
    store = Store(rng.standard_normal((50_000, 10)), chunks=(300, 10))
    list(stores.reader_of(store, "signals")(slice(0, 50_000), 2048))
    assert {start % 300 for start, _ in store.reads} == {0}
    assert {stop - start for start, stop in store.reads[:-1]} == {1200}  # 96 000 bytes
    assert [start for start, _ in store.reads] == list(range(0, 50_000, 1200))


def test_a_store_is_never_read_as_a_whole_and_each_row_once_an_operation(rng):
    store, one = Store(rng.standard_normal((200_000, 32))), np.eye(32)
    engine = engine_for(store)
    assert store.reads == []
    for operation in (
        lambda: engine.energies(one, (one, 0), 3),
        lambda: engine.encode(one, 3),
        lambda: engine.decode((one, 0)),
        lambda: (engine.gram, engine.exponent),
        lambda: engine.run_pass(one, 3),
    ):
        store.reads.clear()
        operation()
        assert sum(stop - start for start, stop in store.reads) == 200_000
        assert max(stop - start for start, stop in store.reads) * 32 * 8 <= 2**23


def test_the_next_piece_is_read_while_one_is_in_use(rng, monkeypatch):
    monkeypatch.setattr(stores, "_PIECE_BYTES", 8 * 5 * 100)
    second_began, first_in_use = threading.Event(), threading.Event()

    class Watched(Store):
        def __getitem__(self, rows):
            if rows.start == 100:
                second_began.set()
                assert first_in_use.wait(timeout=60)
            return super().__getitem__(rows)

    store = Watched(rng.standard_normal((1000, 5)))
    blocks = stores.reader_of(store, "signals")(slice(0, 1000), 100)
    rows, _ = next(blocks)
    assert rows == slice(0, 100)
    assert second_began.wait(timeout=60)  # although nobody has asked for it
    assert len(store.reads) == 1  # and nothing further
    first_in_use.set()
    np.testing.assert_array_equal(np.vstack([block for _, block in blocks]), store.rows[100:])


def test_memory_does_not_grow_with_the_number_of_signals_on_disk(monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "2")
    monkeypatch.setattr("kappaform.engines.blocks.MOST_THRESHOLD_BYTES", 2**18)
    monkeypatch.setattr(stores, "_PIECE_BYTES", 2**17)
    engine_for(np.ones((10, 16))).run_pass(np.eye(16), 3)  # compiled: that is not counted
    peaks = []
    for m in (200_000, 1_400_000):
        store = Store(np.broadcast_to(np.arange(16.0), (m, 16)))
        peaks.append(peak_bytes(lambda store=store: run_two_passes(store)))
    assert peaks[1] - peaks[0] < 1_200_000  # not a byte for each signal more
    assert peaks[1] < 2e7


@pytest.mark.parametrize("remembered", [0, 5000 * 8, 2**26])
def test_what_is_not_remembered_of_signals_on_disk_changes_no_bit(remembered, rng, monkeypatch):
    monkeypatch.setattr("kappaform.engines.blocks.MOST_THRESHOLD_BYTES", remembered)
    signals, transform = rng.standard_normal((9000, 10)), rng.standard_normal((10, 10))
    assert_same_results(engine_for(Store(signals)), engine_for(signals), transform, 3)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell")
def test_a_memory_map_leaves_the_memory_of_the_process(rng, tmp_path):
    signals = memory_mapped(rng.standard_normal((200_000, 32)), tmp_path)  # 51 MB
    engine = engine_for(signals)
    engine.run_pass(np.eye(32), 3)
    assert _resident_bytes("signals.npy") < signals.nbytes / 8


def _resident_bytes(file_name):
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:  # a mapping begins
            inside = line.endswith(file_name)
        elif inside and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
    return found


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_what_was_written_to_a_memory_map_survives_a_pass(mode, rng, tmp_path):
    signals = rng.standard_normal((40_000, 32))
    np.save(tmp_path / "signals.npy", signals)
    mapped = np.load(tmp_path / "signals.npy", mmap_mode=mode)
    mapped[:] += 1
    engine = engine_for(mapped)
    assert_same_results(engine, engine_for(signals + 1), np.eye(32), 3)
    np.testing.assert_array_equal(mapped, signals + 1)


@pytest.mark.parametrize(
    "view",
    [
        lambda mapped: mapped[7:],
        lambda mapped: mapped[:, 1:],
        lambda mapped: mapped[::3],
        lambda mapped: mapped[::-1],
        lambda mapped: mapped[:, ::-2],
        lambda mapped: mapped.reshape(-1, 60)[:, :30],
        lambda mapped: np.asarray(mapped)[11:],
    ],
)
def test_any_view_of_a_memory_map_is_read(view, rng, tmp_path):
    signals = rng.standard_normal((30_000, 30))
    mapped = view(memory_mapped(signals, tmp_path))
    n = mapped.shape[1]
    expected = engine_for(view(signals).copy())
    assert_same_results(engine_for(mapped), expected, rng.standard_normal((n, n)), 2)


def test_an_unreadable_block_is_named_with_its_cause(rng, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "1")  # so that reads come in order
    store = FailingStore(rng.standard_normal((30_000, 64)), first_failure=2)
    with pytest.raises(
        SignalsUnreadable, match=r"rows 3840 to 7679: ConnectionError: the cable"
    ) as caught:
        _ = engine_for(store).gram
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert caught.value.result is None


def _signals():
    return np.random.default_rng(0).standard_normal((3000, 16)).cumsum(axis=1)


@pytest.mark.parametrize("n_passes_that_succeed", [6, 9])
def test_a_store_that_fails_while_learning_loses_no_iteration(n_passes_that_succeed):
    options = {"method": kf.Orthonormal(), "n_nonzero_coefs": 3, "max_iter": 12, "tol": 0}
    undisturbed = kf.learn(_signals(), **options)
    # One read for the gram, then one a pass.
    store = FailingStore(_signals(), first_failure=1 + n_passes_that_succeed + 1)
    with pytest.raises(SignalsUnreadable, match=r"rows 0 to 2999.*ConnectionError") as caught:
        kf.learn(store, **options)
    result = caught.value.result
    assert result.n_iter == n_passes_that_succeed - 1  # one pass belongs to the start
    np.testing.assert_array_equal(result.loss, undisturbed.loss[: result.n_iter + 1])
    options["max_iter"] -= result.n_iter
    resumed = kf.learn(_signals(), init=result, **options)
    np.testing.assert_array_equal(resumed.transform, undisturbed.transform)


def test_a_store_that_fails_before_the_first_iteration_has_no_result():
    with pytest.raises(SignalsUnreadable) as caught:
        kf.learn(FailingStore(_signals(), first_failure=2), n_nonzero_coefs=3)
    assert caught.value.result is None


def test_a_path_keeps_the_bounds_that_were_done():
    def path(store):
        return kf.condition_path(store, [1.5, 3.0], n_nonzero_coefs=3, max_iter=4, tol=0)

    working = Store(_signals())
    expected = path(working)
    # The path ends with one read for each of two evaluations.
    failing = FailingStore(_signals(), first_failure=len(working.reads) - 4)
    with pytest.raises(SignalsUnreadable) as caught:
        path(failing)
    (finished,) = caught.value.finished
    np.testing.assert_array_equal(finished.transform, expected.results[0].transform)
    assert caught.value.result.method.max_condition == 3.0


def test_a_store_that_gives_nan_in_a_later_pass_loses_no_iteration():
    class Fading(Store):
        def __getitem__(self, rows):
            found = super().__getitem__(rows)
            if len(self.reads) > 5:
                found[7, 3] = np.nan
            return found

    options = {"method": kf.Orthonormal(), "n_nonzero_coefs": 3, "max_iter": 12, "tol": 0}
    with pytest.raises(SignalsUnreadable, match="signals gave NaN or inf in a pass") as caught:
        kf.learn(Fading(_signals()), **options)
    expected = kf.learn(_signals(), **{**options, "max_iter": 3})  # gram, start and 3 passes
    assert caught.value.result.n_iter == 3
    np.testing.assert_array_equal(caught.value.result.loss, expected.loss)


@pytest.mark.parametrize("mistake", [NameError, TypeError, AttributeError, ZeroDivisionError])
def test_a_mistake_in_a_store_stays_what_it_is(mistake):
    class Mistaken(Store):
        def __getitem__(self, rows):
            raise mistake("of the one who wrote this")

    with pytest.raises(mistake, match="of the one who wrote this"):
        _ = engine_for(Mistaken(_signals())).gram


class Counting(Store):
    """Counts how many threads read it at once. Until `ends` each waits for a second one."""

    now = most = 0
    ends = 0.0

    def __getitem__(self, rows):
        self.now += 1
        self.most = max(self.most, self.now)
        time.sleep(0.002)
        while self.most == 1 and time.monotonic() < self.ends:
            time.sleep(0.001)
        found = super().__getitem__(rows)
        self.now -= 1
        return found


def test_a_store_of_unknown_kind_is_read_by_one_thread_at_a_time(rng, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "4")
    monkeypatch.setattr(stores, "_PIECE_BYTES", 2**17)
    store = Counting(rng.standard_normal((110_000, 10)))
    others = [threading.Thread(target=lambda: engine_for(store).gram) for _ in range(2)]
    for other in others:
        other.start()
    _ = engine_for(store).gram
    for other in others:
        other.join()
    assert store.most == 1
    # Those of libraries that several threads may read are not held back by us.
    monkeypatch.setattr(stores, "_READ_BY_MANY", (Counting.__module__.partition(".")[0],))
    store.ends = time.monotonic() + 60  # on a busy machine the second thread may begin late
    _ = engine_for(store).gram
    assert store.most > 1


def test_a_store_may_itself_call_us(rng):
    inner = rng.standard_normal((50, 4))

    class Calling(Store):
        def __getitem__(self, rows):
            engine_for(Store(inner)).run_pass(np.eye(4), 2)
            return super().__getitem__(rows)

    found = []
    signals = rng.standard_normal((100, 4))
    call = threading.Thread(target=lambda: found.append(engine_for(Calling(signals)).gram))
    call.daemon = True
    call.start()
    call.join(timeout=60)
    assert len(found) == 1, "the call hangs"


def test_a_slow_store_does_not_hold_up_other_calls(rng):
    asked, answer = threading.Event(), threading.Event()

    class Slow(Store):
        def __getitem__(self, rows):
            asked.set()
            assert answer.wait(timeout=300)
            return super().__getitem__(rows)

    signals = rng.standard_normal((100, 4))
    slow = threading.Thread(target=lambda: engine_for(Slow(signals)).gram)
    slow.start()
    assert asked.wait(timeout=60)
    fast = threading.Thread(target=lambda: engine_for(Store(signals)).gram)
    fast.daemon = True
    fast.start()
    fast.join(timeout=60)
    held_up = fast.is_alive()
    answer.set()
    slow.join()
    assert not held_up


class Foreign:
    """An array of another library, in memory or on a device."""

    def __init__(self, values, protocol):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        setattr(self, protocol, None)

    def __getitem__(self, rows):
        raise AssertionError("it was read as a store")

    def __array__(self, dtype=None, copy=None):
        if hasattr(self, "__cuda_array_interface__"):
            raise TypeError("Implicit conversion to a NumPy array is not allowed.")
        return self.values


@pytest.mark.parametrize("protocol", ["__dlpack__", "__array_namespace__"])
def test_arrays_of_other_libraries_are_read_as_arrays(protocol, rng):
    signals = rng.standard_normal((50, 3))
    array = Foreign(signals, protocol)
    assert not is_store(array)
    np.testing.assert_array_equal(engine_for(array).gram, engine_for(signals).gram)


def test_an_array_on_a_device_that_numpy_cannot_read_is_rejected_with_a_remedy(rng):
    array = Foreign(rng.standard_normal((50, 3)), "__cuda_array_interface__")
    with pytest.raises(TypeError, match=r"x is an array of \w+ that NumPy cannot read \(Implicit"):
        engine_for(array, "x")


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (np.zeros(4), ValueError, r"signals has shape \(4,\).*2-D"),
        (np.zeros((2, 2, 2)), ValueError, r"signals has shape \(2, 2, 2\).*2-D"),
        (np.zeros((0, 4)), ValueError, r"signals has shape \(0, 4\).*at least one signal"),
        (np.zeros((2, 2), object), TypeError, "signals has dtype object.*real"),
        (np.zeros((2, 2), complex), TypeError, "signals has dtype complex128.*real"),
        (np.zeros((2, 2), "datetime64[s]"), TypeError, "signals has dtype datetime64"),
    ],
)
def test_stores_that_hold_no_signals_are_rejected_unread(rows, error, message):
    store = Store(rows)
    with pytest.raises(error, match=message):
        engine_for(store)
    assert store.reads == []


def test_a_store_of_numbers_of_another_kind_is_rejected():
    store = Store(np.zeros((3, 3)))
    store.dtype = "no number"
    with pytest.raises(TypeError, match="signals has dtype no number: it must hold real numbers"):
        engine_for(store)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda rows: rows[:-1], r"rows 0 to 4999: the store gave shape \(4999, 3\) instead of"),
        (lambda rows: rows[:, :-1], r"shape \(5000, 2\) instead of \(5000, 3\).*damaged"),
        (lambda rows: rows[:, 0], r"shape \(5000,\) instead of"),
        (lambda rows: rows.astype(complex), "gave dtype complex128"),
        (lambda rows: np.ma.masked_less(rows, 0.5), "gave masked entries"),
    ],
)
def test_a_store_that_gives_other_rows_than_it_has_is_rejected(given, message, rng):
    class Wrong(Store):
        def __getitem__(self, rows):
            return given(super().__getitem__(rows))

    with pytest.raises(SignalsUnreadable, match=message):
        _ = engine_for(Wrong(rng.random((5000, 3)))).gram


def test_masked_rows_without_a_masked_entry_are_read(rng):
    class Masked(Store):
        def __getitem__(self, rows):
            return np.ma.array(super().__getitem__(rows))

    signals = rng.standard_normal((50, 3))
    np.testing.assert_array_equal(engine_for(Masked(signals)).gram, engine_for(signals).gram)


@pytest.mark.parametrize("row", [0, 4095, 4096, 8999])
def test_the_first_row_of_a_store_that_is_not_finite_is_named(row):
    signals = np.ones((9000, 3))
    signals[row:, 1] = np.nan
    with pytest.raises(ValueError, match=f"signals contains NaN or inf, first in row {row}:"):
        _ = engine_for(Store(signals)).gram
