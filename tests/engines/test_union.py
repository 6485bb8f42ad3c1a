"""A pass with several transforms: each signal counts for the one with the lowest score."""

import naive
import numpy as np
import pytest
from helpers import STATISTICS, Store, as_dask, as_tensor, assert_same_bits, memory_mapped

from kappaform.engines import engine_for, refit_of
from kappaform.engines.union import Union
from kappaform.linalg import scaled_inverse
from kappaform.threads import at_most_threads

ABSOLUTE = (1.0, 0.0, 0.0)
DTYPES = ("float32", "float64")
TOLERANCE = {"float32": 2e-6, "float64": 1e-12}


def problem(rng, m=200, n=7, n_transforms=3, dtype="float64", weights=ABSOLUTE):
    signals = rng.standard_normal((m, n)).cumsum(axis=1).astype(dtype)
    transforms = rng.standard_normal((n_transforms, n, n)).astype(dtype).astype(float)
    return signals, Union(transforms, np.tile(np.asarray(weights, float), (n_transforms, 1)))


def check_close(found, expected, tolerance):
    for part, values in zip(found, expected, strict=True):
        for name, value in zip(STATISTICS, values, strict=True):
            scale = np.abs(value).max() or 1.0
            np.testing.assert_allclose(
                getattr(part, name), value, rtol=0, atol=tolerance * scale, err_msg=name
            )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5, 64, 70])
@pytest.mark.parametrize("weights", [ABSOLUTE, (1.0, -0.3, 0.0)])
def test_a_pass_agrees_with_its_definition(n, dtype, weights, rng):
    signals, union = problem(rng, 40, n, dtype=dtype, weights=weights)
    for n_nonzero in (0, 1, n // 2, n, rng.integers(0, n + 1, 40)):
        engine = engine_for(signals)
        numbers, expected = naive.union_statistics(signals, *union, n_nonzero)
        np.testing.assert_array_equal(engine.assign(union, n_nonzero), numbers)
        found = engine.run_union_pass(union, n_nonzero)
        check_close(found, expected, TOLERANCE[dtype])
        assert [part.n_signals for part in found] == np.bincount(numbers, minlength=3).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_more_signals_than_are_gathered_agree_with_their_definition(dtype, rng):
    signals, union = problem(rng, 800, 20, 2, dtype)
    _, expected = naive.union_statistics(signals, *union, 3)
    check_close(engine_for(signals).run_union_pass(union, 3), expected, TOLERANCE[dtype])


def test_of_equal_scores_the_first_transform_wins(rng):
    signals, union = problem(rng)
    same = Union(np.stack([union.transforms[0]] * 3), union.weights)
    engine = engine_for(signals)
    assert not engine.assign(same, 2).any()
    first, *others = engine.run_union_pass(same, 2)
    assert first.n_signals == len(signals)
    assert all(part.n_signals == 0 and not part.gram.any() for part in others)


def test_a_transform_with_a_constant_score_takes_what_others_fit_worse(rng):
    """At a scale of signals and of transforms where both are scaled by powers of two."""
    signals, union = problem(rng)
    whole = engine_for(signals).run_union_pass(union, 2)
    mean = sum(part.discarded_energy for part in whole) / len(signals)
    for scale, of_transforms in ((1, 1), (2.0**250, 2.0**20)):
        engine = engine_for(scale * signals)
        constant = mean * (scale * of_transforms * 2.0**engine.exponent) ** 2
        weights = np.concatenate([union.weights, [[0.0, 0.0, constant]]])
        transforms = of_transforms * np.concatenate([union.transforms, np.eye(7)[np.newaxis]])
        taken = engine.run_union_pass(Union(transforms, weights), 2)[-1].n_signals
        lost = np.array([min(_lost(y, each) for each in union.transforms) for y in signals])
        assert taken == (lost > mean).sum() > 10


def _lost(signal, transform):
    return naive.pass_statistics(signal[np.newaxis], transform, 2)[3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_memory_maps_and_stores_give_the_same_bits(dtype, rng, tmp_path, monkeypatch):
    monkeypatch.setattr("kappaform.engines.blocks._PART_ENTRIES", 2**12)
    signals, union = problem(rng, 6000, 16, dtype=dtype)
    with at_most_threads(1):
        expected = engine_for(signals).run_union_pass(union, 3)
    kinds = (signals, np.asfortranarray(signals), memory_mapped(signals, tmp_path), Store(signals))
    for kind in kinds:
        with at_most_threads(3):
            engine = engine_for(kind)
            for _ in range(2):  # the second remembers the first
                for one, other in zip(engine.run_union_pass(union, 3), expected, strict=True):
                    assert_same_bits(one, other)


@pytest.mark.parametrize("make", [as_dask, as_tensor])
def test_other_libraries_agree(make, rng):
    signals, union = problem(rng, 1000, 16)
    refits = [refit_of(transform) for transform in union.transforms]
    inverses = [scaled_inverse(transform) for transform in union.transforms]
    here, there = engine_for(signals), engine_for(make(signals))
    for n_nonzero in (3, rng.integers(0, 17, 1000)):
        for one, other in zip(
            here.run_union_pass(union, n_nonzero),
            there.run_union_pass(union, n_nonzero),
            strict=True,
        ):
            values = [getattr(one, name) for name in STATISTICS]
            check_close([other], [values], 1e-12)
            assert one.n_signals == other.n_signals
        np.testing.assert_array_equal(here.assign(union, n_nonzero), there.assign(union, n_nonzero))
        for each in (refits, [None] * 3):
            codes = here.encode_union(union, n_nonzero, each)
            np.testing.assert_allclose(there.encode_union(union, n_nonzero, each), codes, atol=1e-9)
            one, other = (e.union_energies(union, inverses, n_nonzero, each) for e in (here, there))
            np.testing.assert_allclose(one, other, rtol=1e-9)


def test_codes_are_in_the_columns_of_the_transform_of_each_signal(rng):
    signals, union = problem(rng, 300, 16)
    engine = engine_for(signals)
    numbers = engine.assign(union, 4)
    codes = engine.encode_union(union, 4, [None] * 3)
    assert codes.shape == (300, 48)
    for k, transform in enumerate(union.transforms):
        mine, block = numbers == k, slice(16 * k, 16 * (k + 1))
        np.testing.assert_array_equal(codes[~mine, block], 0)
        expected = engine_for(signals[mine]).encode(transform, 4)
        np.testing.assert_allclose(codes[mine, block], expected, rtol=1e-12)
    sparse = engine.encode_union(union, 4, [None] * 3, sparse=True)
    np.testing.assert_array_equal(sparse.toarray(), codes)


def test_signals_come_back_from_full_codes_of_any_transform(rng):
    signals, union = problem(rng, 300, 16)
    codes = engine_for(signals).encode_union(union, 16, [None] * 3)
    back = np.concatenate([np.linalg.inv(each).T for each in union.transforms])
    for kind in (codes, as_dask(codes)):
        np.testing.assert_allclose(engine_for(kind).decode((back, 0)), signals, rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", [np.asarray, Store, as_dask, as_tensor])
def test_signals_that_are_not_finite_are_named(make, rng):
    signals, union = problem(rng)
    signals[137, 2] = np.nan
    for call in (
        lambda engine: engine.run_union_pass(union, 2),
        lambda engine: np.asarray(engine.assign(union, 2)),
        lambda engine: np.asarray(engine.encode_union(union, 2, [None] * 3)),
    ):
        with pytest.raises(ValueError, match="NaN or inf, first in row 137"):
            call(engine_for(make(signals)))
