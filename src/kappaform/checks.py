"""Checks of arguments: signals, transforms, sparsities and seeds."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Coding = Literal["largest", "refit"]
Float64Array = npt.NDArray[np.float64]


# Attributes of arrays of other libraries, which stores lack; sparse ones of SciPy have the last.
_ARRAY_ATTRIBUTES = ("__dlpack__", "__array_namespace__", "__cuda_array_interface__", "toarray")


def library_of(values: Any) -> str:
    """Package that the type of `values` comes from, which decides the engine; none is imported.

    Subclasses of tensors and Dask arrays belong to the package that they inherit from.
    """
    packages = [base.__module__.partition(".")[0] for base in type(values).__mro__]
    return next((package for package in packages if package in ("torch", "dask")), packages[0])


def is_store(values: Any) -> bool:
    """Whether `values` are rows to be read slice by slice, such as a dataset of HDF5 or Zarr.

    Arrays of other libraries, in memory or on a device, are not: NumPy reads them as a whole.
    """
    if isinstance(values, np.ndarray | np.generic) or any(
        hasattr(values, name) for name in _ARRAY_ATTRIBUTES
    ):
        return False
    return all(hasattr(values, name) for name in ("shape", "dtype", "__getitem__"))


def memory_map(signals: Any) -> Any:
    """The `np.memmap` that an array is (a view of), or None."""
    array = signals
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return array if isinstance(array, np.memmap) else None


def as_real_array(values: Any, name: str) -> npt.NDArray[Any]:
    """View `values` as an array of real numbers, without a copy where that is possible."""
    if hasattr(values, "toarray"):  # SciPy sparse matrices and arrays
        raise TypeError(f"{name} is sparse: pass a dense array, {name}.toarray().")
    if isinstance(values, str) and _is_text_of_number(values):
        raise TypeError(f"{name}={values!r} is a string, not a number: leave out the quotes.")
    if isinstance(values, os.PathLike) or (isinstance(values, str) and Path(values).suffix):
        reader = "kappaform.load" if name == "transform" else "skimage.io.imread or numpy.load"
        raise TypeError(
            f"{name}={str(values)!r} is the name of a file: read it first, for instance by "
            f"{reader}."
        )
    if np.ma.is_masked(values):
        also = "; inpaint(image) and denoise(image, mask=image.mask) fill them"
        raise TypeError(
            f"{name} is a masked array with masked entries: fill or drop these first"
            f"{also if name == 'image' else ''}."
        )
    try:
        array = _as_array(values, name)
    except ValueError as error:
        raise ValueError(f"{name} is not an array: its rows must have one length.") from error
    real_dtype(array.dtype, name)
    return array


def _is_text_of_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _as_array(values: Any, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, RuntimeError) as error:
        library, reason = library_of(values), str(error).partition(".")[0]
        if library == "torch":
            raise TypeError(
                f"{name} is a tensor that NumPy cannot read ({reason}): pass {name}.detach().cpu()."
            ) from error
        if any(hasattr(values, attribute) for attribute in _ARRAY_ATTRIBUTES):
            raise TypeError(
                f"{name} is an array of {library} that NumPy cannot read ({reason}): pass an array "
                "of NumPy, or a torch tensor where it is."
            ) from error
        raise


def as_signals(values: Any, name: str = "signals") -> Any:
    """Check everything that needs no reading. Returns an array, or a store as it is."""
    if is_store(values):
        real_dtype(values.dtype, name)
        check_rows(values.shape, name)
        return values
    signals = as_real_array(values, name)
    check_rows(signals.shape, name)
    return signals


def real_dtype(dtype: Any, name: str) -> np.dtype:
    """Check the dtype of something that is yet to be read."""
    try:
        found = np.dtype(dtype)
    except TypeError:  # a type of number of another library
        found = np.dtype(object)
    if found.kind not in "biuf":
        remedy = " (.real, .imag or abs)" if found.kind == "c" else ""
        raise TypeError(f"{name} has dtype {dtype}: it must hold real numbers{remedy}.")
    return found


def check_rows(shape: Any, name: str) -> None:
    """Reject a shape that has no rows of signals."""
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


def as_transform(values: Any, n_features: int, name: str = "transform") -> Array:
    """Check a transform of signals with `n_features` features. Returns a float64 matrix."""
    transform = as_real_array(values, name)
    if transform.shape != (n_features, n_features):
        raise ValueError(
            f"{name} has shape {transform.shape}: with signals of {n_features} features it "
            f"must be ({n_features}, {n_features})."
        )
    if not np.isfinite(transform).all():
        raise ValueError(f"{name} contains NaN or inf: every entry must be finite.")
    return transform.astype(np.float64, copy=False)


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


def sparsity_of(
    n_nonzero: Any, n_signals: int, n_features: int, name: str = "n_nonzero_coefs"
) -> int | Array:
    """Checked number of nonzero entries of a code: one, or one per signal. None: a tenth."""
    if n_nonzero is None:
        return max(1, round(0.1 * n_features))
    if np.ndim(n_nonzero) == 0 and np.asarray(n_nonzero).dtype.kind not in "iu":
        raise TypeError(
            f"{name}={n_nonzero!r}: give an integer, or None for a tenth of the features."
        )
    sparsity = as_sparsity(n_nonzero, n_signals, name)
    if sparsity.max() > n_features:
        raise ValueError(
            f"{name}={sparsity.max()} exceeds n_features={n_features}: "
            f"a code has only {n_features} entries."
        )
    return int(sparsity[0]) if np.ndim(n_nonzero) == 0 else np.array(sparsity)


def representable(value_range: tuple[float, float], dtype: np.dtype) -> tuple[float, float]:
    """Intersection of a range of values with that of a dtype: no value becomes infinite."""
    limits = np.finfo(dtype)
    low, high = value_range
    return max(low, float(limits.min)), min(high, float(limits.max))


def float_dtype(dtype: np.dtype) -> np.dtype:
    """Dtype of results: that of floats, float64 for integers."""
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def generator(rng: int | np.random.Generator | None) -> np.random.Generator:
    """Random generator for a seed. None is seed 0: the same call gives the same result."""
    if not (rng is None or is_seed(rng) or isinstance(rng, np.random.Generator)):
        raise ValueError(
            f"rng={rng!r}: give a seed, an integer >= 0, a numpy.random.Generator, or None, which "
            "is the seed 0."
        )
    return np.random.default_rng(0 if rng is None else rng)


def is_seed(value: Any) -> bool:
    return is_integer(value) and int(value) >= 0


def checked_coding(coding: Any) -> Coding:
    if coding not in get_args(Coding):
        raise ValueError(
            f"coding={coding!r} is unknown: give 'largest' for the largest coefficients, or "
            "'refit' for codes that reconstruct signals best."
        )
    return coding


def is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Reject a value that is not one of some words."""
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown: choose one of {choices}.")


def check_count(name: str, value: Any, what: str, most: float = math.inf) -> None:
    """Reject what is not a number of things, at least one."""
    if not is_integer(value) or not 1 <= value <= most:
        end = "" if most == math.inf else f" and <= {most}"
        raise ValueError(f"{name}={value!r}: give a whole number of {what} >= 1{end}.")


def counted(number: int | np.integer, noun: str) -> str:
    """A number of things, in words: 1 value, 2 values."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def check_axis(axis: int | None, shape: Sequence[int], name: str) -> None:
    """Reject an argument of the user that is not an axis of an image."""
    if axis is not None and not is_integer(axis):
        raise TypeError(f"{name}={axis!r}: give the number of an axis, an integer, or None.")
    if axis is not None and not -len(shape) <= axis < len(shape):
        raise ValueError(f"{name}={axis} is not an axis of an image of shape {tuple(shape)}.")
