"""The fused kernels of a union assign and sum exactly as defined.

They run on a GPU where there is one, else in Triton's interpreter.
"""

import os

import naive
import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is imported
pytest.importorskip("triton")

from kappaform.engines import engine_for, triton_union  # noqa: E402
from kappaform.engines.triton_union import FusedUnion  # noqa: E402
from kappaform.engines.union import Union, scaled_union  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SINGLE = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def _fast_interpreter(rows_at_once):
    """It reduces all rows at a time."""


def fused(signals):
    return FusedUnion(torch.tensor(signals, device=DEVICE), float(np.abs(signals).max()))


def wanted_of(n_nonzero):
    return torch.tensor(np.atleast_1d(n_nonzero).astype(np.int32), device=DEVICE)


def run(engine, union, n_nonzero, exact=True):
    """Numbers and sums of a pass, these of the transforms as given."""
    scaled, wanted = scaled_union(union, SINGLE), wanted_of(n_nonzero)
    numbers, sums = engine.assign(scaled, wanted, exact), engine.run_union(scaled, wanted, exact)
    sums.crosses = np.ldexp(sums.crosses, -sums.exponent)
    sums.energies[:, :2] = np.ldexp(sums.energies[:, :2], -2 * sums.exponent)
    return numbers.cpu().numpy(), sums


def problem(rng, m=90, n=16, n_transforms=3, weights=(1.0, 0.0, 0.0)):
    signals = rng.standard_normal((m, n)).cumsum(axis=1).astype(np.float32)
    transforms = rng.standard_normal((n_transforms, n, n)).astype(np.float32).astype(float)
    return signals, Union(transforms, np.tile(np.asarray(weights, float), (n_transforms, 1)))


def assert_sums(sums, expected, tolerance):
    found = sums.grams, sums.crosses, sums.energies[:, 0], sums.energies[:, 1]
    for values, others in zip(found, zip(*expected, strict=True), strict=True):
        others = np.array(others)
        scale = np.abs(others).max() or 1.0
        np.testing.assert_allclose(values, others, rtol=0, atol=tolerance * scale)


def assert_defined(found, signals, union, n_nonzero, tolerance=2e-6):
    numbers, sums = found
    expected_numbers, expected = naive.union_statistics(signals, *union, n_nonzero)
    np.testing.assert_array_equal(numbers, expected_numbers)
    counts = np.bincount(expected_numbers, minlength=len(union.weights))
    np.testing.assert_array_equal(sums.energies[:, 2], counts)
    assert_sums(sums, expected, tolerance)


@pytest.mark.parametrize("n", [1, 5, 64, 70])
@pytest.mark.parametrize("weights", [(1.0, 0.0, 0.0), (1.0, -0.3, 0.0)])
def test_numbers_and_sums_are_as_defined(n, weights, rng):
    signals, union = problem(rng, 90, n, weights=weights)
    for n_nonzero in (n // 3, rng.integers(0, n + 1, 90)):
        assert_defined(run(fused(signals), union, n_nonzero), signals, union, n_nonzero)


def test_they_agree_with_the_engine_of_arrays(rng):
    signals, union = problem(rng, 700, 20, 4)
    here = engine_for(signals)
    numbers, sums = run(fused(signals), union, 4)
    np.testing.assert_array_equal(numbers, here.assign(union, 4))
    parts = here.run_union_pass(union, 4)
    names = "gram", "cross", "code_energy", "discarded_energy"
    assert_sums(sums, [[getattr(part, name) for name in names] for part in parts], 2e-6)
    assert sums.energies[:, 2].tolist() == [part.n_signals for part in parts]


def test_of_equal_scores_the_first_transform_wins(rng):
    """With products that are exact in any order."""
    signals = rng.integers(-3, 4, (200, 16)).astype(np.float32)
    first, second = rng.integers(-1, 2, (2, 16, 16)).astype(float)
    union = Union(np.stack([first, second, first, second]), np.tile([1.0, 0.0, 0.0], (4, 1)))
    numbers, sums = run(fused(signals), union, 5)
    expected, statistics = naive.union_statistics(signals, *union, 5)
    np.testing.assert_array_equal(numbers, expected)
    assert set(numbers) == {0, 1}
    np.testing.assert_array_equal(sums.grams, [part[0] for part in statistics])
    np.testing.assert_array_equal(sums.crosses, [part[1] for part in statistics])
    np.testing.assert_array_equal(sums.energies[:, :2], [part[2:4] for part in statistics])


def test_a_transform_with_a_constant_score_takes_what_others_fit_worse(rng):
    signals, union = problem(rng, 300)
    _, sums = run(fused(signals), union, 2)
    mean = sums.energies[:, 1].sum() / len(signals)
    for size in (1.0, 2.0**20):
        transforms = size * np.concatenate([union.transforms, np.eye(16)[np.newaxis]])
        weights = np.concatenate([union.weights, [[0.0, 0.0, mean * size**2]]])
        assert_defined(
            run(fused(signals), Union(transforms, weights), 2),
            signals,
            Union(transforms, weights),
            2,
        )


def test_what_earlier_passes_left_never_changes_a_bit(rng):
    signals, union = problem(rng, 150)
    signals[::7] = 0
    warm = fused(signals)
    for jump, n_nonzero in ((0, 2), (1e-3, 2), (0.3, 16), (1e3, 0), (1e-9, 2)):
        moved = union.transforms + jump * rng.standard_normal(union.transforms.shape)
        union = union._replace(transforms=moved)
        for found, expected in zip(
            run(warm, union, n_nonzero), run(fused(signals), union, n_nonzero), strict=True
        ):
            if isinstance(found, np.ndarray):
                np.testing.assert_array_equal(found, expected)
            else:
                np.testing.assert_array_equal(found.grams, expected.grams)
                np.testing.assert_array_equal(found.crosses, expected.crosses)
                np.testing.assert_array_equal(found.energies, expected.energies)


def test_another_number_of_transforms_begins_anew(rng):
    signals, union = problem(rng, 90, 9, 4)
    engine = fused(signals)
    for number in (4, 2, 3):
        some = Union(union.transforms[:number], union.weights[:number])
        assert_defined(run(engine, some, 3), signals, some, 3)


@pytest.mark.parametrize("n_rows", [1, 64, 65, 300])
def test_any_number_of_rows_is_cut_without_loss(n_rows, rng, monkeypatch):
    monkeypatch.setattr(triton_union, "_ROWS_AT_ONCE", 130)
    shape = triton_union._SUM_SHAPES[16]._replace(most_rows=64)
    monkeypatch.setitem(triton_union._SUM_SHAPES, 16, shape)
    signals, union = problem(rng, n_rows, 10)
    wanted = rng.integers(0, 11, n_rows)
    assert_defined(run(fused(signals), union, wanted), signals, union, wanted)


def test_columns_may_be_contiguous_and_rows_apart(rng):
    signals, union = problem(rng, 100, 20)
    wide = torch.tensor(signals, device=DEVICE)
    peak = float(np.abs(signals).max())
    for view in (wide.T.contiguous().T, torch.cat([wide, wide], 1)[:, :20]):
        assert_defined(run(FusedUnion(view, peak), union, 5), signals, union, 5)


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_no_size_of_signals_or_transforms_leaves_the_range_of_halves(size, rng):
    signals, union = problem(rng, 80, 9)
    signals = (size * signals).astype(np.float32)
    for weight in (1e-6, 1.0, 1e6):
        scaled = union._replace(transforms=(weight * union.transforms).astype("f4").astype(float))
        assert_defined(run(fused(signals), scaled, 3), signals, scaled, 3)


def test_the_gram_is_exact_where_products_have_the_precision_of_tf32(rng):
    signals, union = problem(rng, 300, 20)
    numbers, sums = run(fused(signals), union, 4, exact=False)
    expected_numbers, expected = naive.union_statistics(signals, *union, 4)
    assert (numbers == expected_numbers).mean() > 0.97
    for k, (gram, cross) in enumerate(zip(sums.grams, sums.crosses, strict=True)):
        mine = signals[numbers == k].astype(float)
        assert np.linalg.norm(gram - mine.T @ mine) < 1e-6 * np.linalg.norm(gram)
        codes = naive.hard_threshold(mine @ union.transforms[k].T, 4)
        assert np.linalg.norm(cross - codes.T @ mine) < 0.02 * np.linalg.norm(cross)
    total = sum(part[3] for part in expected)
    assert sums.energies[:, 1].sum() == pytest.approx(total, rel=2e-3)


def test_there_are_no_kernels_for_more_features(rng):
    signals, union = problem(rng, 10, 129)
    assert run_none(fused(signals), union) == (None, None)


def run_none(engine, union):
    scaled, wanted = scaled_union(union, SINGLE), wanted_of(3)
    return engine.assign(scaled, wanted, True), engine.run_union(scaled, wanted, True)
