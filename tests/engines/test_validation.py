"""What an engine cannot work with is rejected with a reason and a remedy."""

import numpy as np
import pytest
from helpers import readings
from scipy import sparse

from kappaform.checks import as_transform, sparsity_of
from kappaform.engines import engine_for


@pytest.mark.parametrize(
    ("signals", "error", "message"),
    [
        (np.zeros((0, 4)), ValueError, r"signals has shape \(0, 4\).*at least one signal"),
        (np.zeros((4, 0)), ValueError, r"signals has shape \(4, 0\).*one feature"),
        (np.zeros(4), ValueError, r"signals has shape \(4,\).*reshape"),
        (
            np.zeros((2, 2, 2)),
            ValueError,
            r"\(2, 2, 2\).*2-D.*signals\.reshape\(len\(signals\), -1\)",
        ),
        (np.zeros((2, 2), complex), TypeError, "signals has dtype complex128.*real"),
        (np.zeros((2, 2), object), TypeError, "signals has dtype object.*real"),
        ([["a", "b"]], TypeError, "signals has dtype <U1.*real"),
        (np.zeros((2, 2), "datetime64[s]"), TypeError, "signals has dtype datetime64"),
        ([[1.0, 2.0], [3.0]], ValueError, "signals is not an array: its rows"),
        (sparse.eye(3, format="csr"), TypeError, r"signals is sparse.*toarray\(\)"),
        (sparse.eye_array(3), TypeError, "signals is sparse"),
        (
            np.ma.masked_less(np.eye(3), 0.5),
            TypeError,
            "signals is a masked array with masked entries",
        ),
    ],
)
def test_arrays_that_hold_no_signals_are_rejected(signals, error, message):
    with pytest.raises(error, match=message):
        engine_for(signals)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "longdouble"])
@pytest.mark.parametrize("row", [0, 1023, 1024, 4999])
def test_the_first_row_that_is_not_finite_is_named(bad, dtype, row):
    signals = np.ones((5000, 3), dtype)
    signals[row:, 1] = bad
    message = f"signals contains NaN or inf, first in row {row}:"
    for call in readings(engine_for(signals)):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("n_nonzero", "error", "message"),
    [
        (5, ValueError, "n_nonzero=5 exceeds n_features=4: a code has only 4 entries"),
        ([1, 2, 5], ValueError, "n_nonzero=5 exceeds n_features=4"),
        ([1, -2, 3], ValueError, "n_nonzero=-2 is negative"),
        ([1, 2], ValueError, r"n_nonzero has shape \(2,\).*each of the 3 signals"),
        ([[1, 2, 3]], ValueError, r"n_nonzero has shape \(1, 3\)"),
        (2.0, TypeError, "n_nonzero=2.0: give an integer"),
        (True, TypeError, "n_nonzero=True: give an integer"),
        ([1.0, 2.0, 3.0], TypeError, "n_nonzero has dtype float64"),
    ],
)
def test_impossible_sparsities_are_rejected(n_nonzero, error, message):
    with pytest.raises(error, match=message):
        sparsity_of(n_nonzero, 3, 4, "n_nonzero")


@pytest.mark.parametrize(
    ("transform", "error", "message"),
    [
        (np.eye(3), ValueError, r"transform has shape \(3, 3\).*must be \(4, 4\)"),
        (np.full((4, 4), np.nan), ValueError, "transform contains NaN or inf"),
        (np.eye(4, dtype=complex), TypeError, "transform has dtype complex128"),
    ],
)
def test_impossible_transforms_are_rejected(transform, error, message):
    with pytest.raises(error, match=message):
        as_transform(transform, 4)


def test_lists_are_accepted():
    assert engine_for([[1, 2], [3, 4], [5, 6]]).signals.shape == (3, 2)
