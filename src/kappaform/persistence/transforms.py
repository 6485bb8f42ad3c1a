"""Writing and reading the files of transforms."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kappaform.estimators import ConditionedTransform, LogDetTransform, OrthonormalTransform
from kappaform.files import replaced_when_complete
from kappaform.learning import Conditioned, LearnResult, LogDet, Orthonormal, StopReason
from kappaform.learning.online import goes_on
from kappaform.learning.result import Record
from kappaform.learning.search import Descent, Search
from kappaform.learning.updates import Factors, decompose
from kappaform.persistence.checks import (
    FACTORS,
    check_condition,
    checked_array,
    checked_factors,
    checked_mean,
    checked_shape,
    checked_sparsity,
)
from kappaform.persistence.streams import SUMS, described_stream, restored_stream

_FORMAT = "kappaform transform"
_FORMAT_VERSION = 1
_METHODS = {method.__name__: method for method in (Conditioned, LogDet, Orthonormal)}
_ESTIMATORS = {
    "Conditioned": ConditionedTransform,
    "LogDet": LogDetTransform,
    "Orthonormal": OrthonormalTransform,
}
_DTYPES = {"float32": np.float32, "float64": np.float64}
_ARRAYS = ("transform", "records", *FACTORS, *SUMS)

Estimator = ConditionedTransform | LogDetTransform | OrthonormalTransform


def save(
    path: str | os.PathLike[str],
    model: Estimator | LearnResult,
    *,
    n_nonzero_coefs: int | None = None,
    patch_shape: tuple[int, ...] | None = None,
    patch_mean: Literal["kept", "removed"] | None = None,
) -> None:
    """Write a learned transform to a file, under exactly the given name.

    The file appears when it is complete; until then an older one of that name stays.

    Parameters
    ----------
    path : str or path
    model : fitted estimator or LearnResult
        Of an estimator's parameters, an `init` that is not a word and the `callback` are left out.
    n_nonzero_coefs : int, optional
        What the loaded estimator codes with. By default that of the model; needed where the model
        has one for each signal, which are not stored.
    patch_shape : tuple of int, optional
        Shape of the patches that the signals are, flattened in C order.
    patch_mean : {"kept", "removed"}, optional
        Whether signals had their mean removed. For both, the default is what the model was loaded
        with, or else None and "kept".

    See Also
    --------
    load
    """
    path, result = Path(path), _result_of(model)
    header = _description(result, n_nonzero_coefs)
    header |= _context(model, len(result.transform), patch_shape, patch_mean)
    if n_nonzero_coefs is not None or model is result:
        header["parameters"]["n_nonzero_coefs"] = header["n_nonzero_coefs"]
    arrays: dict[str, Any] = {"transform": result.transform, "records": np.array(result.records)}
    if isinstance(result.method, Conditioned):
        factors = _factors_of(result)
        arrays |= {name: getattr(factors, name) for name in FACTORS}
    header["stream"], sums = described_stream(model)
    arrays |= sums
    text = json.dumps(header, indent=1, default=_plain_number)
    with replaced_when_complete(path) as file:
        np.savez(file, header=np.array(text), **arrays)


def load(path: str | os.PathLike[str]) -> Estimator:
    """Read a transform that `save` wrote, as a fitted estimator that gives the same codes.

    What was said about the signals is in its attributes `patch_shape_` and `patch_mean_`. Its
    `result_` can be resumed, and `partial_fit` goes on with it, bitwise like the saved one unless
    that still explored several starts: only the best was kept.

    Raises
    ------
    FileNotFoundError
    ValueError
        If the file is damaged, of another kind or of a newer version, or if the transform is not
        what the header says, its condition number included.
    """
    path = Path(path)
    header, arrays = _read(path)
    try:
        result = _checked_result(header, arrays)
        stream = restored_stream(header.get("stream"), arrays, result)
        if stream is not None and header["stream"]["is_result"]:
            result = replace(result, search=stream)
        estimator = _ESTIMATORS[header["method"]["name"]](**header["parameters"])
        estimator._set_fitted(
            result,
            _DTYPES[header["dtype"]],
            goes_on(result) if stream is None else stream,
            checked_shape(header["patch_shape"], header["n_features"]),
            checked_mean(header["patch_mean"]),
        )
        if header["feature_names"] is not None:
            estimator.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged: {_reason(error)} Take another copy, or learn and save it again."
        ) from error
    return estimator


def _result_of(model: Any) -> LearnResult:
    if isinstance(model, LearnResult):
        return model
    if not isinstance(model, Estimator):
        raise TypeError(
            f"model is of type {type(model).__name__}: give a fitted estimator of kappaform or a "
            "LearnResult."
        )
    check_is_fitted(model)
    return model.result_


def _description(result: LearnResult, n_nonzero_coefs: int | None) -> dict[str, Any]:
    """The header as far as the result decides it."""
    sparsity = result.n_nonzero_coefs if n_nonzero_coefs is None else n_nonzero_coefs
    if isinstance(sparsity, np.ndarray):
        raise ValueError(
            f"the model has one n_nonzero_coefs for each of {len(sparsity)} signals: say with "
            "save(..., n_nonzero_coefs=...) which number new signals are coded with."
        )
    return {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "kappaform_version": version("kappaform"),
        "n_features": len(result.transform),
        "n_nonzero_coefs": checked_sparsity(sparsity, len(result.transform)),
        "condition_number": result.condition_number,
        "method": {"name": type(result.method).__name__, **asdict(result.method)},
        "n_iter": result.n_iter,
        "n_passes": result.n_passes,
        "stop_reason": result.stop_reason.name,
    }


def _context(model: Any, n_features: int, patch_shape: Any, patch_mean: Any) -> dict[str, Any]:
    """The header as far as the estimator and the caller decide it."""
    if patch_shape is None:
        patch_shape = getattr(model, "patch_shape_", None)
    if patch_mean is None:
        patch_mean = getattr(model, "patch_mean_", "kept")
    names = getattr(model, "feature_names_in_", None)
    return {
        "parameters": _parameters(model),
        "dtype": getattr(model, "components_", np.empty(0)).dtype.name,
        "patch_shape": checked_shape(patch_shape, n_features),
        "patch_mean": checked_mean(patch_mean),
        "feature_names": None if names is None else list(names),
    }


def _parameters(model: Estimator | LearnResult) -> dict[str, Any]:
    """Parameters of the estimator to load: the model, or the one for the method of a result."""
    if not isinstance(model, LearnResult):
        parameters = model.get_params(deep=False)
        del parameters["callback"]
        if not isinstance(parameters["init"], str):
            del parameters["init"]
        return parameters
    known = _ESTIMATORS[type(model.method).__name__]().get_params(deep=False)
    return {name: value for name, value in asdict(model.method).items() if name in known}


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Header and arrays of a file, once it is known to be one of ours and not a newer one."""
    with path.open("rb") as file:
        try:
            header, arrays = _parsed(file)
            its_format, writer = int(header["format_version"]), header["kappaform_version"]
        except Exception as error:  # foreign or damaged archives fail anywhere, each in its own way
            raise ValueError(
                f"{path} is not a transform that kappaform saved, or it is damaged: "
                + _reason(error)
            ) from error
    if its_format > _FORMAT_VERSION:
        raise ValueError(
            f"{path} was written by kappaform {writer}, in format {its_format}: this version reads "
            f"formats up to {_FORMAT_VERSION}, upgrade kappaform."
        )
    return header, arrays


def _parsed(file: BinaryIO) -> tuple[dict[str, Any], dict[str, NDArray]]:
    if not zipfile.is_zipfile(file):
        raise ValueError("it is no npz archive, or its end is missing.")
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        if "header" not in archive.files:
            raise ValueError("it is an npz archive of other arrays, without a header.")
        header = json.loads(str(archive["header"]))
        if header["format"] != _FORMAT:
            raise ValueError(f"it is a {header['format']!r}.")
        return header, {name: archive[name] for name in archive.files if name in _ARRAYS}


def _checked_result(header: dict[str, Any], arrays: dict[str, NDArray]) -> LearnResult:
    n_features = header["n_features"]
    parameters = dict(header["method"])
    method = _METHODS[parameters.pop("name")](**parameters)
    transform = checked_array(arrays, "transform", (n_features, n_features))
    shape = (max(1, len(arrays["records"])), len(Record._fields))
    records = checked_array(arrays, "records", shape, finite=False)
    history = tuple(Record(*row) for row in records.tolist())
    kept = checked_factors(arrays, transform) if isinstance(method, Conditioned) else transform
    n_iter, n_passes = int(header["n_iter"]), int(header["n_passes"])
    result = LearnResult(
        transform=transform,
        method=method,
        n_nonzero_coefs=checked_sparsity(header["n_nonzero_coefs"], n_features),
        n_iter=n_iter,
        n_passes=n_passes,
        stop_reason=StopReason[header["stop_reason"]],
        records=history,
        search=Search((Descent(kept, None, history),), n_iter=n_iter, n_passes=n_passes),
    )
    check_condition(result, header["condition_number"])
    return result


def _factors_of(result: LearnResult) -> Factors:
    kept = result.search.best.transform
    # A published variant that was interrupted before its first update has no factors yet.
    return kept if isinstance(kept, Factors) else decompose(result.transform)


def _plain_number(value: Any) -> Any:
    """A number of NumPy, or of another kind that JSON does not know, as Python's own."""
    return value.item() if isinstance(value, np.generic) else float(value)


def _reason(error: Exception) -> str:
    return f"it has no {error}." if isinstance(error, KeyError) else str(error)
