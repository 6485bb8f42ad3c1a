"""A pass gives the statistics of its definition, however the signals lie in memory."""

import naive
import numpy as np
import pytest
from helpers import (
    STATISTICS,
    assert_same_bits,
    memory_mapped,
    orthogonal,
    peak_bytes,
    run_two_passes,
)
from threadpoolctl import threadpool_limits

from kappaform.engines import blocks, engine_for
from kappaform.engines.blocks import block_rows, parts
from kappaform.linalg import scaled_inverse

DTYPES = ("float32", "float64")


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def small_integers(rng, m, n):
    """Signals and a transform whose every sum is exact, with ties in most rows."""
    return rng.integers(-3, 4, (m, n)).astype(float), rng.integers(-1, 2, (n, n)).astype(float)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 16, 63, 64, 65, 130])
def test_pass_agrees_with_its_definition(n, dtype, rng):
    signals = rng.standard_normal((60, n)).astype(dtype)
    transform = rng.standard_normal((n, n)).astype(dtype)
    for n_nonzero in (0, 1, n // 2, n, rng.integers(0, n + 1, 60)):
        found = engine_for(signals).run_pass(transform, n_nonzero)
        expected = naive.pass_statistics(signals, transform, n_nonzero)
        for field, value in zip(STATISTICS, expected, strict=True):
            tolerance = 1e-12 if dtype == "float64" or field == "gram" else 1e-6
            scale = np.abs(value).max()
            np.testing.assert_allclose(
                getattr(found, field), value, rtol=0, atol=tolerance * scale, err_msg=field
            )
        assert found.n_signals == 60


@pytest.mark.parametrize("n", [32, 64])
def test_products_of_a_block_that_are_computed_in_parts_cover_all_of_it(n, rng, monkeypatch):
    monkeypatch.setattr("kappaform.engines.blocks.blas_kernels", lambda: {"SkylakeX"})
    signals, transform = small_integers(rng, 5000, n)
    found = engine_for(signals).run_pass(transform, n)
    np.testing.assert_array_equal(found.cross, transform @ signals.T @ signals)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [6, 64, 70])
def test_ties_are_broken_exactly_as_defined(n, dtype, rng):
    signals, transform = small_integers(rng, 1100, n)
    n_nonzero = rng.integers(0, n + 1, 1100)
    engine = engine_for(signals.astype(dtype))
    codes = naive.hard_threshold(signals @ transform.T, n_nonzero)
    np.testing.assert_array_equal(engine.encode(transform, n_nonzero), codes)
    for _ in range(3):  # a warm pass meets the same ties
        found = engine.run_pass(transform, n_nonzero)
        np.testing.assert_array_equal(found.cross, codes.T @ signals)
        assert found.code_energy == (codes**2).sum()
        assert found.discarded_energy == ((signals @ transform.T - codes) ** 2).sum()


@pytest.mark.parametrize("dtype", DTYPES)
def test_remembering_earlier_passes_never_changes_a_result(dtype, rng):
    signals = rng.standard_normal((3000, 20)).astype(dtype)
    signals[::7] = 0
    signals[1::7, 3:] = 0
    engine = engine_for(signals)
    transform = np.eye(20)
    for jump in (0, 1e-3, 1e-1, 10, 1e-6, 1e4, 1e-9):
        transform = transform + jump * rng.standard_normal((20, 20))
        for n_nonzero in (3, 17, rng.integers(0, 21, 3000)):
            assert_same_bits(
                engine.run_pass(transform, n_nonzero),
                engine_for(signals).run_pass(transform, n_nonzero),
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_number_of_threads_gives_the_same_bits(dtype, rng, monkeypatch):
    signals = rng.standard_normal((9000, 30)).astype(dtype)
    transform = rng.standard_normal((30, 30))
    monkeypatch.setattr(blocks, "_PART_ENTRIES", 1)  # a thread takes less than usual at a time
    assert len(parts(*signals.shape)) > 2  # sums of two are the same in any order
    results, energies = [], set()
    for threads in (1, 2, 3, 8):
        monkeypatch.setenv("KAPPAFORM_NUM_THREADS", str(threads))
        engine = engine_for(signals)
        with threadpool_limits(threads, user_api="blas"):
            inverse = (transform, 3)
            rows = engine.encode(transform, 4), engine.decode(inverse)
            results.append((engine.run_pass(transform, 4), rows))
            energies.add(engine.energies(transform, inverse, 4))
    for statistics, rows in results[1:]:
        assert_same_bits(statistics, results[0][0])
        np.testing.assert_array_equal(rows, results[0][1])
    assert len(energies) == 1


@pytest.mark.parametrize("n_signals", [5_000, 10_000, 20_000, 200_000])
def test_half_of_the_parts_are_half_of_the_rows(n_signals):
    lengths = [part.stop - part.start for part in parts(n_signals, 100)]
    assert sum(lengths) == n_signals
    loads = [0, 0]
    for length in lengths:  # the next part is for the thread that is done first
        loads[loads.index(min(loads))] += length
    assert max(loads) <= 0.52 * n_signals


def unaligned(signals, _):
    memory = np.zeros(signals.nbytes + 1, np.uint8)
    view = memory[1:].view(signals.dtype).reshape(signals.shape)
    view[...] = signals
    return view


def spread(signals, _):
    wide = np.full((2 * signals.shape[0], 3 * signals.shape[1]), np.nan, signals.dtype)
    wide[1::2, ::3] = signals
    return wide[1::2, ::3]


def read_only(signals, _):
    copy = signals.copy()
    copy.setflags(write=False)
    return copy


LAYOUTS = {
    "columns first": lambda signals, _: np.asfortranarray(signals),
    "every second row, every third column": spread,
    "backwards": lambda signals, _: signals[::-1, ::-1].copy()[::-1, ::-1],
    "other byte order": lambda signals, _: signals.astype(signals.dtype.newbyteorder()),
    "unaligned": unaligned,
    "read-only": read_only,
    "memory-mapped": memory_mapped,
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("n", [10, 64])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_memory_layout_gives_the_same_bits(dtype, n, layout, rng, tmp_path):
    signals = rng.standard_normal((2500, n)).astype(dtype)
    transform = rng.standard_normal((n, n))
    plain, other = engine_for(signals), engine_for(layout(signals, tmp_path))
    np.testing.assert_array_equal(other.signals, signals)
    assert other.dtype == dtype
    assert_same_bits(other.run_pass(transform, 4), plain.run_pass(transform, 4))
    np.testing.assert_array_equal(other.encode(transform, 4), plain.encode(transform, 4))


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("float16", "float32"),
        ("bool", "float64"),
        ("uint8", "float64"),
        ("int16", "float64"),
        ("int64", "float64"),
        ("longdouble", "float64"),
    ],
)
def test_other_numbers_are_converted(given, used, rng):
    signals = rng.integers(0, 100, (2500, 12)).astype(given)
    transform = rng.standard_normal((12, 12))
    engine, expected = engine_for(signals), engine_for(signals.astype(used))
    assert engine.signals is signals
    assert engine.dtype == used
    assert_same_bits(engine.run_pass(transform, 3), expected.run_pass(transform, 3))
    assert engine.encode(transform, 3).dtype == used


def test_float32_signals_have_statistics_of_six_digits(rng):
    # Signals with a large mean: the worst case, where all terms of a sum have one sign.
    signals = (100 + 20 * rng.standard_normal((60_000, 16))).astype(np.float32)
    transform = orthogonal(rng, 16).astype(np.float32)
    engine = engine_for(signals)
    found, codes = engine.run_pass(transform, 4), engine.encode(transform, 4).astype(float)
    coefs = signals.astype(float) @ transform.T.astype(float)
    assert relative_error(found.gram, signals.astype(float).T @ signals.astype(float)) < 1e-13
    assert relative_error(found.cross, codes.T @ signals.astype(float)) < 1e-6
    assert found.code_energy == pytest.approx((codes**2).sum(), rel=1e-12)
    discarded = (np.where(codes == 0, coefs, 0) ** 2).sum()
    assert found.discarded_energy == pytest.approx(discarded, rel=1e-6)


def test_tiny_discarded_energy_is_not_lost_next_to_large_codes():
    signals = np.tile([1e9, 1e-9], (5000, 1))
    assert engine_for(signals).run_pass(np.eye(2), 1).discarded_energy == pytest.approx(5e-15)


def test_gram_is_computed_once_and_symmetric(rng):
    engine = engine_for(rng.standard_normal((3000, 70)))
    assert engine.gram is engine.run_pass(np.eye(70), 3).gram
    np.testing.assert_array_equal(engine.gram, engine.gram.T)


def test_codes_are_those_of_the_pass(rng):
    signals, transform = rng.standard_normal((2500, 30)), rng.standard_normal((30, 30))
    engine = engine_for(signals)
    n_nonzero = rng.integers(0, 31, 2500)
    codes, found = engine.encode(transform, n_nonzero), engine.run_pass(transform, n_nonzero)
    np.testing.assert_array_equal(np.count_nonzero(codes, axis=1), n_nonzero)
    assert relative_error(found.cross, codes.T @ signals) < 1e-13
    assert found.code_energy == pytest.approx((codes**2).sum(), rel=1e-13)


@pytest.mark.parametrize("shape", [(1, 5), (3, 20), (1, 1), (1025, 2)])
def test_few_signals_are_enough(shape, rng):
    signals = rng.standard_normal(shape)
    found = engine_for(signals).run_pass(np.eye(shape[1]), 1)
    np.testing.assert_allclose(found.gram, signals.T @ signals, rtol=1e-12)
    assert found.code_energy == pytest.approx((np.abs(signals).max(axis=1) ** 2).sum())


def test_zero_signals_have_zero_statistics():
    engine = engine_for(np.zeros((2000, 5)))
    assert engine.exponent == 0
    for field in STATISTICS:
        assert not np.any(getattr(engine.run_pass(np.eye(5), 2), field))
    assert not engine.encode(np.eye(5), 2).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e-6, 1.0, 255.0, 1e6])
def test_ordinary_signals_are_not_scaled(size, dtype, rng):
    assert engine_for(size * rng.standard_normal((50, 4)).astype(dtype)).exponent == 0


@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [("float64", e) for e in (500, -500, 1000, -1000)] + [("float32", e) for e in (60, -60, 110)],
)
def test_extreme_signals_give_the_same_statistics_times_a_power_of_two(dtype, exponent, rng):
    signals = rng.standard_normal((3000, 20)).astype(dtype)
    transform = orthogonal(rng, 20)
    plain, extreme = engine_for(signals), engine_for(np.ldexp(signals, exponent))
    factor = 2.0 ** (extreme.exponent + exponent)
    assert 1e-3 < factor < 1e3
    expected, found = plain.run_pass(transform, 3), extreme.run_pass(transform, 3)
    for field in STATISTICS:
        np.testing.assert_array_equal(
            getattr(found, field), factor**2 * getattr(expected, field), err_msg=field
        )
    np.testing.assert_array_equal(
        extreme.encode(transform, 3), np.ldexp(plain.encode(transform, 3), exponent)
    )


@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [("float32", e) for e in (100, -100, 600, -1000)]
    + [("float64", e) for e in (660, 1000, -1010)],
)
def test_a_transform_that_is_only_scaled_gives_the_same_results_times_its_scale(
    dtype, exponent, rng
):
    signals = rng.standard_normal((3000, 20)).astype(dtype)
    transform = rng.standard_normal((20, 20))
    large = np.ldexp(transform, exponent)
    engine, inverse = engine_for(signals), scaled_inverse(transform)
    expected = engine.energies(transform, inverse, 3)
    found = engine.energies(large, scaled_inverse(large), 3)
    assert found.relative == pytest.approx(expected.relative, rel=1e-15)
    assert found.reconstruction == pytest.approx(expected.reconstruction, rel=1e-12)
    assert found.absolute == np.ldexp(expected.absolute, exponent)
    # Codes and sums beyond the range of their dtype are made where they are within it.
    shift = {"float32": 60, "float64": 500}[dtype]
    shift = max(-shift, min(exponent, shift))
    near = np.ldexp(transform, shift)
    codes = engine.encode(near, 3)
    np.testing.assert_array_equal(codes, np.ldexp(engine.encode(transform, 3), shift))
    np.testing.assert_allclose(
        engine_for(codes).decode(scaled_inverse(near)),
        engine_for(engine.encode(transform, 3)).decode(inverse),
        rtol=1e-6 if dtype == "float32" else 1e-12,
        atol=1e-6 if dtype == "float32" else 1e-12,
    )
    one, other = engine.run_pass(transform, 3), engine.run_pass(near, 3)
    np.testing.assert_array_equal(other.cross, np.ldexp(one.cross, shift))
    assert other.discarded_energy == np.ldexp(one.discarded_energy, 2 * shift)


def test_large_signals_have_codes_of_a_tiny_transform_and_come_back(rng):
    signals, transform = rng.standard_normal((300, 6)), rng.standard_normal((6, 6))
    large, tiny = np.ldexp(signals, 1000), np.ldexp(transform, -1040)
    transform = np.ldexp(tiny, 1040)  # what its denormal numbers have left of it
    codes = engine_for(large).encode(tiny, 6)
    np.testing.assert_allclose(codes, np.ldexp(signals @ transform.T, -40), rtol=1e-12)
    back = engine_for(codes).decode(scaled_inverse(tiny))
    np.testing.assert_allclose(np.ldexp(back, -1000), signals, rtol=0, atol=1e-12)


@pytest.mark.parametrize("exponent", [1012, 1020])
def test_signals_whose_norms_overflow_are_rejected_with_a_remedy(exponent, rng):
    engine = engine_for(np.ldexp(rng.uniform(0.5, 1, (50, 4)), exponent))
    one = np.eye(4)
    message = r"signals has a norm above 2\*\*1010.*scale it, for instance signals / 1e100"
    for call in (lambda: engine.gram, lambda: engine.energies(one, (one, 0), 1)):
        with pytest.raises(ValueError, match=message):
            call()
    np.testing.assert_array_equal(engine.encode(one, 4), engine.signals)


def test_blocks_of_all_sizes_are_summed_at_one_scale(rng):
    """Each block has a scale of its own; the sums are those of the largest."""
    m = block_rows(4, np.dtype(float))
    sizes = np.repeat([0.0, 1e-300, 1e-5, 1e200, 1e190, 0.0], m)[:, np.newaxis]
    signals = sizes * rng.standard_normal((6 * m, 4))
    transform = rng.standard_normal((4, 4))
    engine, largest = engine_for(signals), engine_for(signals[3 * m : 5 * m])
    assert engine.exponent == largest.exponent != 0
    np.testing.assert_allclose(engine.gram, largest.gram, rtol=1e-13)
    inverse = scaled_inverse(transform)
    found, expected = (each.energies(transform, inverse, 2) for each in (engine, largest))
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    small = engine_for(signals[m : 2 * m])
    np.testing.assert_array_equal(
        engine.encode(transform, 2)[m : 2 * m], small.encode(transform, 2)
    )


@pytest.mark.parametrize("size", [1e150, 1e-150, 1e302, 5e-324])
def test_no_size_of_signals_overflows_or_vanishes(size, rng):
    signals = size * np.sign(rng.standard_normal((100, 4)))
    engine = engine_for(signals)
    found = engine.run_pass(np.eye(4), 3)
    assert found.code_energy == pytest.approx(3 * found.discarded_energy)
    assert found.gram[0, 0] == pytest.approx(found.discarded_energy)
    assert 0 < found.discarded_energy < np.inf
    np.testing.assert_array_equal(engine.encode(np.eye(4), 4), signals)


@pytest.mark.parametrize("given", ["float64", "float16", "columns first"])
def test_memory_beyond_the_data_is_a_few_megabytes_and_8_bytes_a_signal(given, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "2")
    for m in (70_000, 280_000):
        signals = np.ones((m, 16), "float16" if given == "float16" else "float64")
        if given == "columns first":
            signals = np.asfortranarray(signals)
        engine_for(signals[:10]).run_pass(np.eye(16), 3)  # compiled: that is not counted
        peak = peak_bytes(lambda signals=signals: run_two_passes(signals))
        assert peak < 8 * m + 8e6
