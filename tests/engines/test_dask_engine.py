"""A Dask array gives what the same signals in memory give, on any scheduler, and never moves."""

import os
import pickle
import signal

import dask
import dask.array as da
import numpy as np
import pytest
from dask.delayed import Delayed
from engines.generated import ROWS, generated_block
from helpers import STATISTICS, assert_same_bits

import kappaform as kf
from kappaform.engines import SignalsUnreadable, engine_for
from kappaform.engines import dask as dask_engine
from kappaform.engines.engine import PassSums
from kappaform.linalg import scaled_inverse


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, which have all the time they need to start."""
    from distributed import LocalCluster

    patient = {f"distributed.comm.timeouts.{name}": "300s" for name in ("connect", "tcp")}
    with (
        dask.config.set(patient),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as running,
    ):
        yield running


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster) as connected:
        yield connected


def generated(n_blocks=6, n=16):
    """Signals that any worker can make, and make again."""
    chunks = ((ROWS,) * n_blocks, (n,))
    return da.map_blocks(generated_block, n=n, chunks=chunks, meta=np.empty((0, 0)))


CHUNKS = {"one": (-1, -1), "even": (500, -1), "uneven": ((1, 700, 2048, 0, 1251), -1)}


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS.keys())
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("n", [1, 16, 70])
def test_a_pass_agrees_with_the_one_in_memory(n, dtype, tolerance, chunks, rng):
    signals = rng.standard_normal((4000, n)).astype(dtype)
    transform = rng.standard_normal((n, n))
    inverse = scaled_inverse(transform)
    expected, found = engine_for(signals), engine_for(da.from_array(signals, chunks=chunks))
    assert (found.n_signals, found.n_features, found.dtype) == (4000, n, dtype)
    assert found.exponent == expected.exponent
    for n_nonzero in (0, 1, n, rng.integers(0, n + 1, 4000)):
        one, other = (engine.run_pass(transform, n_nonzero) for engine in (found, expected))
        for field in STATISTICS:
            value = getattr(other, field)
            scale = np.abs(value).max()
            np.testing.assert_allclose(
                getattr(one, field), value, rtol=0, atol=tolerance * scale, err_msg=field
            )
        assert one.n_signals == 4000
        one, other = (e.energies(transform, inverse, n_nonzero) for e in (found, expected))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * max(other))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "uint8", "bool"])
def test_codes_and_products_are_those_in_memory_in_lazy_blocks(dtype, rng):
    signals = rng.integers(0, 2, (4000, 12)).astype(dtype)
    transform, n_nonzero = rng.standard_normal((12, 12)), rng.integers(0, 13, 4000)
    lazy = da.from_array(signals, chunks=CHUNKS["uneven"])
    found, expected = engine_for(lazy), engine_for(signals)
    for operation in (
        lambda engine: engine.encode(transform, 3),
        lambda engine: engine.encode(transform, n_nonzero),
        lambda engine: engine.decode((transform, 0)),
    ):
        one, other = operation(found), operation(expected)
        assert isinstance(one, da.Array)
        assert one.chunks == lazy.chunks
        computed = one.compute()
        assert one.dtype == other.dtype == computed.dtype
        np.testing.assert_array_equal(computed != 0, other != 0)
        # The product with a single row may be rounded in another way.
        np.testing.assert_allclose(computed, other, rtol=1e-12 if one.dtype == "f8" else 1e-5)


def test_ties_are_broken_as_in_memory(rng):
    signals = rng.integers(-3, 4, (2000, 20)).astype(float)
    transform = rng.integers(-1, 2, (20, 20)).astype(float)
    n_nonzero = rng.integers(0, 21, 2000)
    lazy = engine_for(da.from_array(signals, chunks=(300, -1)))
    for _ in range(3):  # a warm pass meets the same ties; sums of integers are exact
        assert_same_bits(
            lazy.run_pass(transform, n_nonzero), engine_for(signals).run_pass(transform, n_nonzero)
        )


@pytest.mark.parametrize("exponent", [500, -500])
def test_signals_of_extreme_size_are_scaled_by_their_common_peak(exponent, rng):
    signals = np.ldexp(rng.standard_normal((3000, 10)), exponent)
    signals[:500] /= 1e6  # a block of its own size
    transform = rng.standard_normal((10, 10))
    found, expected = engine_for(da.from_array(signals, chunks=(500, -1))), engine_for(signals)
    assert found.exponent == expected.exponent != 0
    one, other = (engine.run_pass(transform, 3) for engine in (found, expected))
    for field in STATISTICS:
        np.testing.assert_allclose(getattr(one, field), getattr(other, field), rtol=1e-11)
    codes = found.encode(transform, 3).compute()
    np.testing.assert_array_equal(codes, expected.encode(transform, 3))  # as given, not scaled


def test_every_scheduler_gives_the_same_bits(client, rng):
    transform = rng.standard_normal((16, 16))
    expected = engine_for(generated()).run_pass(transform, 3)  # on the cluster
    assert_same_bits(engine_for(generated().persist()).run_pass(transform, 3), expected)
    for options in (
        {"scheduler": "synchronous"},
        {"scheduler": "threads", "num_workers": 1},
        {"scheduler": "threads", "num_workers": 5},
    ):
        with dask.config.set(options):
            assert_same_bits(engine_for(generated()).run_pass(transform, 3), expected)
    assert len(client.scheduler_info()["workers"]) == 2


def test_processes_give_the_same_bits(rng):
    transform = rng.standard_normal((16, 16))
    expected = engine_for(generated()).encode(transform, 3).compute()
    with dask.config.set(scheduler="processes", num_workers=1):
        found = engine_for(generated()).encode(transform, 3).compute()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("client")
def test_statistics_from_other_processes_are_aligned(monkeypatch):
    """Some kernels of BLAS read misaligned doubles as if they were aligned, and crash."""
    compute = Delayed.compute

    def at_odd_addresses(self, **options):
        total = compute(self, **options)
        for name, values in vars(total).items():
            if isinstance(values, np.ndarray):
                memory = np.empty(values.nbytes + 1, np.uint8)[1:]
                odd = np.ndarray(values.shape, values.dtype, memory)
                odd[...] = values
                assert not odd.flags.aligned
                setattr(total, name, odd)
        return total

    monkeypatch.setattr(Delayed, "compute", at_odd_addresses)
    engine = engine_for(generated())
    statistics = engine.run_pass(np.eye(16), 3)
    assert engine.gram.flags.aligned
    assert statistics.cross.flags.aligned


def test_a_killed_worker_changes_nothing(client):
    options = {"n_nonzero_coefs": 3, "max_iter": 6, "tol": 0}
    signals = generated().persist()
    undisturbed = kf.learn(signals, **options)
    victim = min(client.run(os.getpid).values())

    def kill(state):
        if state.n_iter == 2:
            os.kill(victim, signal.SIGKILL)

    result = kf.learn(signals, callback=kill, **options)
    client.wait_for_workers(2, timeout=300)
    assert victim not in client.run(os.getpid).values()
    np.testing.assert_array_equal(result.transform, undisturbed.transform)
    np.testing.assert_array_equal(result.loss, undisturbed.loss)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-3), ("float32", 5e-3)])
def test_a_fit_ends_where_the_one_in_memory_does(dtype, tolerance):
    lazy = generated().astype(dtype)
    signals = lazy.compute()
    options = {"n_nonzero_coefs": 3, "max_iter": 25}
    found, expected = kf.learn(lazy, **options), kf.learn(signals, **options)
    assert found.condition_number <= 2 * (1 + 1e-12)
    assert found.errors.absolute[-1] == pytest.approx(expected.errors.absolute[-1], rel=tolerance)
    one, other = kf.evaluate(lazy, found, 3), kf.evaluate(signals, found, 3)
    assert one == pytest.approx(other, rel=1e-10 if dtype == "float64" else 1e-5)


def test_a_path_accepts_dask_arrays():
    lazy, validation = generated(3), generated(2)
    path = kf.condition_path(lazy, [1.0, 2.0], n_nonzero_coefs=3, max_iter=5, validation=validation)
    in_memory = kf.evaluate(validation.compute(), path.results[1], 3)
    assert path["validation_absolute"][1] == pytest.approx(in_memory.absolute, rel=1e-10)


def test_a_pass_brings_nothing_but_sums_to_the_caller(monkeypatch):
    sizes = []
    compute = Delayed.compute

    def watched(lazy, **options):
        computed = compute(lazy, **options)
        sizes.append(len(pickle.dumps(computed)))
        return computed

    monkeypatch.setattr(Delayed, "compute", watched)
    engine = engine_for(generated(n_blocks=5, n=16))
    engine.run_pass(np.eye(16), 3)
    engine.energies(np.eye(16), (np.eye(16), 0), 3)
    assert len(sizes) == 3  # gram, pass, energies
    assert max(sizes) < 8 * 16**2 + 1000


def test_codes_are_computed_only_when_asked_for():
    computed = []

    def block(block_id):
        computed.append(block_id[0])
        return generated_block(block_id, 8)

    lazy = da.map_blocks(block, chunks=((ROWS,) * 4, (8,)), meta=np.empty((0, 0)))
    codes = engine_for(lazy).encode(np.eye(8), 2)
    engine_for(codes).decode((np.eye(8), 0))
    assert computed == []
    codes[: ROWS + 1].compute()
    assert sorted(computed) == [0, 1]


def test_the_transform_is_sent_once_and_not_with_every_block(monkeypatch):
    graphs = []

    def watched(lazy):
        graphs.append(dict(dask.optimize(lazy)[0].__dask_graph__()))
        return PassSums(np.zeros((64, 64)), np.zeros(2))

    engine = engine_for(generated(n_blocks=50, n=64))
    _ = engine.gram
    monkeypatch.setattr(Delayed, "compute", watched)
    engine.run_pass(np.eye(64), 3)
    sizes = sorted(len(pickle.dumps(task)) for task in graphs[0].values())
    assert sizes[-1] > np.eye(64).nbytes  # here it is
    assert sum(sizes[:-1]) < 50 * 8000


def test_a_chunk_is_the_work_of_one_thread(monkeypatch, rng):
    def no_threads(*_):
        raise AssertionError("a chunk was shared among threads")

    monkeypatch.setattr("kappaform.threads.ThreadPoolExecutor", no_threads)
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "4")
    engine, one = engine_for(da.from_array(rng.standard_normal((200_000, 8)))), np.eye(8)
    engine.run_pass(one, 2)
    engine.energies(one, (one, 0), 2)
    dask.compute(engine.encode(one, 2), engine.decode((one, 0)))


@pytest.mark.parametrize("most", [0, 3000 * 8, 2**26])
def test_workers_remember_no_more_than_allowed_and_no_bit_depends_on_it(most, monkeypatch, rng):
    monkeypatch.setattr(dask_engine.blocks, "MOST_THRESHOLD_BYTES", most)
    dask_engine._thresholds.clear()
    transform = rng.standard_normal((16, 16))
    expected = engine_for(generated().compute())
    for _ in range(2):  # two engines: the second takes the room of the first
        engine = engine_for(generated())
        cold, warm = engine.run_pass(transform, 3), engine.run_pass(transform, 3)
        assert_same_bits(cold, warm)
        assert sum(kept.nbytes for kept in dask_engine._thresholds.values()) <= most
        kept = {chunk[0] for chunk in dask_engine._thresholds}
        assert engine._key in kept or most == 0
    np.testing.assert_allclose(warm.cross, expected.run_pass(transform, 3).cross, rtol=1e-10)


@pytest.mark.parametrize("row", [0, 2999, 3000, 8999])
def test_the_first_row_that_is_not_finite_is_named_among_all(row):
    lazy = generated(3)
    numbers = da.arange(lazy.shape[0], chunks=ROWS)[:, np.newaxis]
    spoilt = da.where(numbers >= row, np.inf, lazy)
    message = f"X contains NaN or inf, first in row {row}:"
    engine = engine_for(spoilt, "X")
    with pytest.raises(ValueError, match=message):
        engine.run_pass(np.eye(16), 3)
    with pytest.raises(ValueError, match=message):
        engine.energies(np.eye(16), (np.eye(16), 0), 3)
    for lazy_result in (engine.encode(np.eye(16), 3), engine.decode((np.eye(16), 0))):
        with pytest.raises(ValueError, match=message):
            lazy_result[row].compute()


def test_signals_that_fail_while_learning_lose_no_iteration():
    fails = []

    def block(block_id):
        if fails and block_id[0] == 1:
            raise ConnectionError("the cable is out")
        return generated_block(block_id, 16)

    lazy = da.map_blocks(block, chunks=((ROWS,) * 3, (16,)), meta=np.empty((0, 0)))

    def break_at_three(state):
        if state.n_iter == 3:
            fails.append(True)

    options = {"method": kf.Orthonormal(), "n_nonzero_coefs": 3, "tol": 0}
    undisturbed = kf.learn(lazy, max_iter=8, **options)
    with pytest.raises(SignalsUnreadable, match=r"signals could not be.*the cable is out") as error:
        kf.learn(lazy, max_iter=8, callback=break_at_three, **options)
    assert isinstance(error.value.__cause__, ConnectionError)
    assert error.value.result.n_iter == 3
    fails.clear()
    resumed = kf.learn(lazy, max_iter=5, init=error.value.result, **options)
    np.testing.assert_array_equal(resumed.transform, undisturbed.transform)


@pytest.mark.parametrize("mistake", [NameError, TypeError, AttributeError])
def test_a_mistake_in_the_user_s_graph_stays_what_it_is(mistake):
    def block(block_id):
        raise mistake(f"in block {block_id[0]}")

    lazy = da.map_blocks(block, chunks=((ROWS,), (16,)), meta=np.empty((0, 0)))
    with pytest.raises(mistake, match="in block 0"):
        kf.learn(lazy, n_nonzero_coefs=3)


def test_blocks_that_give_nan_in_a_later_pass_lose_no_iteration():
    spoilt = []

    def block(block_id):
        found = generated_block(block_id, 16)
        if spoilt and block_id[0] == 1:
            found[5, 2] = np.nan
        return found

    lazy = da.map_blocks(block, chunks=((ROWS,) * 2, (16,)), meta=np.empty((0, 0)))

    def spoil(state):
        if state.n_iter == 2:
            spoilt.append(True)

    with pytest.raises(SignalsUnreadable, match="signals gave NaN or inf in a pass") as error:
        kf.learn(lazy, kf.Orthonormal(), n_nonzero_coefs=3, max_iter=5, tol=0, callback=spoil)
    assert error.value.result.n_iter == 2


def test_a_block_may_itself_call_us(rng):
    inner = rng.standard_normal((50, 4))

    def block(block_id):
        _ = engine_for(da.from_array(inner)).gram
        return generated_block(block_id, 16)

    lazy = da.map_blocks(block, chunks=((ROWS,) * 2, (16,)), meta=np.empty((0, 0)))
    np.testing.assert_array_equal(engine_for(lazy).gram, engine_for(generated(2)).gram)


def test_signals_whose_norms_overflow_are_rejected():
    engine = engine_for(generated(2) * 1e304)
    with pytest.raises(ValueError, match="signals has a norm above"):
        _ = engine.gram
    with pytest.raises(ValueError, match="signals has a norm above"):
        engine.energies(np.eye(16), (np.eye(16), 0), 3)


def unknown_sizes():
    lazy = da.ones((10, 4), chunks=5)
    return lazy[lazy[:, 0] > 0]


def masked():
    return da.ma.masked_less(da.ones((10, 4)), 0.5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: da.ones((10, 4), chunks=(5, 2)),
            ValueError,
            r"2 chunks along its features.*signals\.rechunk\(\{1: -1\}\)",
        ),
        (unknown_sizes, ValueError, r"chunks of unknown size.*signals\.compute_chunk_sizes\(\)"),
        (lambda: da.ones(10), ValueError, r"signals has shape \(10,\).*2-D"),
        (lambda: da.ones((2, 2, 2)), ValueError, r"signals has shape \(2, 2, 2\).*2-D"),
        (lambda: da.ones((0, 3)), ValueError, r"signals has shape \(0, 3\).*at least one signal"),
        (lambda: da.ones((3, 3), dtype=complex), TypeError, "signals has dtype complex128"),
        (lambda: da.ones((3, 3), dtype=object, chunks=3), TypeError, "signals has dtype object"),
        (masked, TypeError, "signals has chunks of type MaskedArray"),
        (
            lambda: dask.delayed(np.ones((3, 3))),
            TypeError,
            r"signals is a Delayed\w*, not a Dask",
        ),
    ],
)
def test_what_has_no_blocks_of_signals_is_rejected_with_a_remedy(make, error, message):
    with pytest.raises(error, match=message):
        engine_for(make())


def test_the_remedies_work():
    split, unknown = da.ones((10, 4), chunks=(5, 2)), unknown_sizes()
    unknown.compute_chunk_sizes()
    for mended in (split.rechunk({1: -1}), unknown):
        np.testing.assert_array_equal(engine_for(mended).gram, np.full((4, 4), 10.0))


def test_a_chunk_shorter_than_declared_is_rejected():
    signals = generated(n_blocks=2)
    shorter = da.map_blocks(lambda block: block[:-1], signals, chunks=signals.chunks, dtype=float)
    with pytest.raises(
        SignalsUnreadable, match=r"chunk [01] of signals has 2999 rows, not the 3000"
    ):
        kf.learn(shorter, n_nonzero_coefs=3, max_iter=2)
