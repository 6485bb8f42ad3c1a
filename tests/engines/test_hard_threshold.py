"""H_s keeps the s largest magnitudes of a row, exactly, whatever the row."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kappaform.engines import hard_threshold

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=140)
FEW_VALUES = st.sampled_from([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0])  # many ties
ALL_VALUES = {
    dtype: hnp.from_dtype(np.dtype(dtype), allow_nan=False) for dtype in ("float32", "float64")
}


def coefs_and_sparsities(dtype, values):
    def with_sparsities(coefs):
        m, n = coefs.shape
        one, each = st.integers(0, n + 2), hnp.arrays(np.int64, m, elements=st.integers(0, n + 2))
        return st.tuples(st.just(coefs), one | each)

    return hnp.arrays(dtype, SHAPES, elements=values).flatmap(with_sparsities)


@given(coefs_and_sparsities("float64", FEW_VALUES))
def test_among_ties_the_lowest_indices_survive(case):
    coefs, n_nonzero = case
    np.testing.assert_array_equal(
        hard_threshold(coefs, n_nonzero), naive.hard_threshold(coefs, n_nonzero)
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(data=st.data())
def test_any_numbers_are_ranked_exactly(dtype, data):
    coefs, n_nonzero = data.draw(coefs_and_sparsities(dtype, ALL_VALUES[dtype]))
    np.testing.assert_array_equal(
        hard_threshold(coefs, n_nonzero), naive.hard_threshold(coefs, n_nonzero)
    )


@pytest.mark.parametrize("n_features", [1, 5, 63, 64, 65, 128, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exactly_s_entries_survive_and_none_discarded_is_larger(n_features, dtype, rng):
    coefs = rng.standard_normal((1500, n_features)).astype(dtype)
    n_nonzero = rng.integers(0, n_features + 1, 1500)
    codes = hard_threshold(coefs, n_nonzero)
    assert codes.dtype == dtype
    np.testing.assert_array_equal(np.count_nonzero(codes, axis=1), n_nonzero)
    np.testing.assert_array_equal(codes[codes != 0], coefs[codes != 0])
    smallest_kept = np.where(codes != 0, np.abs(codes), np.inf).min(axis=1)
    assert (np.abs(coefs - codes).max(axis=1) <= smallest_kept).all()


def test_equal_magnitudes_leave_exactly_the_first_s():
    codes = hard_threshold(np.full((3, 100), -1.5), [0, 7, 70])
    for code, s in zip(codes, [0, 7, 70], strict=True):
        np.testing.assert_array_equal(code, [-1.5] * s + [0.0] * (100 - s))


def test_keeping_everything_changes_nothing(rng):
    coefs = rng.standard_normal((20, 9))
    for n_nonzero in (9, 10, 1000):
        np.testing.assert_array_equal(hard_threshold(coefs, n_nonzero), coefs)


def test_thresholding_again_changes_nothing(rng):
    codes = hard_threshold(rng.standard_normal((50, 30)), 4)
    np.testing.assert_array_equal(hard_threshold(codes, 4), codes)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int32", "uint8", ">f8"]
)
def test_shape_and_dtype_are_kept(dtype):
    coefs = np.array([[3, 1, 5, 4], [9, 9, 9, 0]], dtype)
    codes = hard_threshold(coefs, 2)
    assert codes.dtype == coefs.dtype
    np.testing.assert_array_equal(codes, [[0, 0, 5, 4], [9, 9, 0, 0]])


def test_one_signal_may_be_one_dimensional():
    np.testing.assert_array_equal(hard_threshold([3, -4, 1.5], 1), [0, -4, 0])


def test_no_signals_have_no_codes():
    assert hard_threshold(np.zeros((0, 4)), 2).shape == (0, 4)


def test_input_is_left_alone(rng):
    coefs = rng.standard_normal((5, 8))
    before = coefs.copy()
    hard_threshold(coefs, 2)
    np.testing.assert_array_equal(coefs, before)


@pytest.mark.parametrize(
    ("coefs", "n_nonzero", "error", "message"),
    [
        ([[1.0, 2.0], [np.nan, 0.0]], 1, ValueError, "coefs contains NaN, first in row 1"),
        ([[1.0, 2.0]], -1, ValueError, "n_nonzero=-1 is negative"),
        ([[1.0, 2.0]], 1.5, TypeError, "n_nonzero has dtype float64"),
        ([[1.0, 2.0]], [1, 1], ValueError, r"n_nonzero has shape \(2,\).*the 1 signals"),
        ([[1.0, 2.0j]], 1, TypeError, "coefs has dtype complex128"),
        (np.zeros((2, 2, 2)), 1, ValueError, r"coefs has shape \(2, 2, 2\)"),
        (1.0, 1, ValueError, r"coefs has shape \(\)"),
    ],
)
def test_what_cannot_be_ranked_is_rejected(coefs, n_nonzero, error, message):
    with pytest.raises(error, match=message):
        hard_threshold(coefs, n_nonzero)
