"""What estimators are given: arrays for scikit-learn to check, and all that an engine takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from kappaform.arrays import is_store, library_of, working_dtype
from kappaform.engines.blocks import block_rows, split_rows

# The engine refuses what is not finite, and names the row. Numbers that it reads block by block are
# left as they are, whole memory-mapped files of them too; all others become the first type.
_READ_AS_GIVEN = [np.dtype(code) for code in ("f8", "f4", "f2", "?", *"bBhHiIlLqQ")]
_VALIDATION: dict[str, Any] = {"dtype": _READ_AS_GIVEN, "ensure_all_finite": False}
# Rows of a chunk, in blocks of the engine: enough for every core, and a few dozen megabytes.
_CHUNK_BLOCKS = 64


def received(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Signals as an engine takes them: of the features that were fitted, unless these are reset.

    scikit-learn would gather what lives elsewhere, so of that it only sees the shape.
    """
    if not reset:
        _check_width(estimator, X)
    if not lives_elsewhere(X):
        return validate_data(estimator, X, **_VALIDATION, reset=reset)
    if len(X.shape) == 2:  # else the engine refuses it
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    return X


def lives_elsewhere(X: Any) -> bool:
    """Whether rows are on a device, on a cluster or in a store, where an engine goes to them."""
    return has_own_codes(X) or (is_store(X) and not hasattr(X, "columns"))  # which data frames have


def has_own_codes(X: Any) -> bool:
    """Whether codes are of the same library as the signals, and not arrays of NumPy."""
    return library_of(X) in ("dask", "torch")


def chunks(signals: Any) -> Iterator[slice]:
    """Runs of rows that are whole blocks of the engine, so that codes have the same bits."""
    n_signals, n_features = signals.shape
    length = block_rows(n_features, working_dtype(np.dtype(signals.dtype)))
    return split_rows(0, n_signals, _CHUNK_BLOCKS * length)


def _check_width(estimator: Any, X: Any) -> None:
    """Refuse signals of another length; of a data frame scikit-learn names what is missing."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2 and not hasattr(X, "columns") and shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input: give signals of the length that the "
            "transform was learned for."
        )
