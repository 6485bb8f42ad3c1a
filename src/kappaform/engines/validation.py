"""What an engine accepts, and what it says about the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def library_of(values: Any) -> str:
    """Package that the type of `values` comes from, which decides the engine; none is imported."""
    return type(values).__module__.partition(".")[0]


def is_store(values: Any) -> bool:
    """Whether `values` are rows to be read slice by slice, such as a dataset of HDF5 or Zarr."""
    if isinstance(values, np.ndarray | np.generic) or hasattr(values, "toarray"):
        return False
    return all(hasattr(values, name) for name in ("shape", "dtype", "__getitem__"))


def as_real_array(values: Any, name: str) -> npt.NDArray[Any]:
    """View `values` as an array of real numbers, without a copy where that is possible."""
    if hasattr(values, "toarray"):  # SciPy sparse matrices and arrays
        raise TypeError(f"{name} is sparse: pass a dense array, {name}.toarray().")
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: fill or drop the masked entries first.")
    try:
        array = _as_array(values, name)
    except ValueError as error:
        raise ValueError(f"{name} is not an array: its rows must have one length.") from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} has dtype {array.dtype}: it must hold real numbers.")
    return array


def _as_array(values: Any, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, RuntimeError) as error:
        if library_of(values) != "torch":
            raise
        reason = str(error).partition(".")[0]
        raise TypeError(
            f"{name} is a tensor that NumPy cannot read ({reason}): pass {name}.detach().cpu()."
        ) from error


def as_signals(values: Any, name: str = "signals") -> Any:
    """Check all that can be seen without reading: an array is returned, or a store as it is."""
    if is_store(values):
        real_dtype(values.dtype, name)
        check_rows(values.shape, name)
        return values
    signals = as_real_array(values, name)
    check_rows(signals.shape, name)
    return signals


def real_dtype(dtype: Any, name: str) -> np.dtype:
    """Type of the numbers of something that is yet to be read."""
    try:
        found = np.dtype(dtype)
    except TypeError:  # a type of number of another library
        found = np.dtype(object)
    if found.kind not in "biuf":
        raise TypeError(f"{name} has dtype {dtype}: it must hold real numbers.")
    return found


def check_rows(shape: Any, name: str) -> None:
    """Refuse whatever has no rows of signals."""
    shape = tuple(shape or ())
    if len(shape) != 2:
        remedy = (
            f"{name}.reshape(len({name}), -1) flattens each"
            if len(shape) > 2
            else f"{name}.reshape(1, -1) is a single one"
        )
        raise ValueError(
            f"{name} has shape {shape}: it must be 2-D, one signal per row ({remedy})."
        )
    if 0 in shape:
        raise ValueError(
            f"{name} has shape {shape}: at least one signal and one feature are needed."
        )


def as_transform(values: Any, n_features: int, dtype: np.dtype) -> npt.NDArray[Any]:
    """Check a transform and round it to the dtype of the engine."""
    transform = as_real_array(values, "transform")
    if transform.shape != (n_features, n_features):
        raise ValueError(
            f"transform has shape {transform.shape}: with signals of {n_features} features it "
            f"must be ({n_features}, {n_features})."
        )
    if not np.isfinite(transform).all():
        raise ValueError("transform contains NaN or inf: every entry must be finite.")
    return transform.astype(dtype, order="C", copy=False)


def as_sparsity(values: Any, n_signals: int, name: str = "n_nonzero") -> npt.NDArray[Any]:
    """Number of nonzero entries of each code, as a (read-only) array of length n_signals."""
    sparsity = _as_array(values, name)
    if sparsity.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {sparsity.dtype}: it must be an integer or integers.")
    if sparsity.ndim > 0 and sparsity.shape != (n_signals,):
        raise ValueError(
            f"{name} has shape {sparsity.shape}: it must be one integer or one for each of the "
            f"{n_signals} signals."
        )
    if sparsity.size and sparsity.min() < 0:
        raise ValueError(f"{name}={sparsity.min()} is negative: a code has 0 entries or more.")
    return np.broadcast_to(sparsity, (n_signals,))


def check_at_most(sparsity: npt.NDArray[Any], n_features: int, name: str = "n_nonzero") -> None:
    """Refuse codes with more nonzero entries than they have entries."""
    if sparsity.max() > n_features:
        raise ValueError(
            f"{name}={sparsity.max()} exceeds n_features={n_features}: "
            f"a code has only {n_features} entries."
        )
