"""Files of learned transforms: an npz archive of arrays, with a header in JSON.

Files are read without pickle, and their contents are checked before they are used: nothing of a
crafted file is read or computed that is larger than the file itself.
"""

from __future__ import annotations

import json
import math
import numbers
import os
import re
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kappaform.checks import check_choice, sparsity_of
from kappaform.estimators.base import SparsifyingTransform
from kappaform.estimators.transforms import ESTIMATORS, estimator_of, method_parameters
from kappaform.files import file_of, replaced_when_complete
from kappaform.learning import LearnResult, Method, Orthonormal
from kappaform.learning.archive import from_arrays, shapes_of, to_arrays, upgraded
from kappaform.learning.archive_checks import choice_in
from kappaform.learning.archived_method import saved_name, single
from kappaform.learning.method import same_method
from kappaform.learning.methods import UnknownMethod
from kappaform.learning.starts import Init
from kappaform.learning.stream import Stream
from kappaform.threads import single_threaded_blas

_FORMAT = "kappaform transform"
# 1, of version 0.1: an estimator has no `variant` and `n_rounds`; 2, of 0.2: only one candidate,
# and no unions.
_FORMAT_VERSION, _OF_ONE_CANDIDATE = 3, 2
_PIECE = 2**16  # bytes that are read at once
_BOUND_SLACK = 1e-9  # in files of version 0.2 the bound of an estimator may be a rounded mean
_KINDS: dict[str, type] = {"init": str, "verbose": numbers.Real, "sparse_output": numbers.Real}
_DTYPES = {"float32": np.float32, "float64": np.float64}


def save(
    path: str | os.PathLike[str],
    model: SparsifyingTransform | LearnResult,
    *,
    n_nonzero_coefs: int | None = None,
    patch_shape: tuple[int, ...] | None = None,
    patch_mean: Literal["kept", "removed"] | None = None,
) -> None:
    """Write a learned transform to a file, under exactly the given name.

    A file that exists is replaced without a warning, but only once the new one is complete.

    Parameters
    ----------
    path : str or path
    model : fitted estimator or LearnResult
        All parameters of an estimator are saved, except the `callback`, an `init` that is not a
        string, and a `random_state` that is not a seed.
    n_nonzero_coefs : int, optional
        Sparsity of the loaded estimator. By default that of the model; needed where the model has
        one for each signal, which are not stored.
    patch_shape : tuple of int, optional
        Shape of the patches that the signals are, flattened in C order.
    patch_mean : {"kept", "removed"}, optional
        Whether signals had their mean removed. For both, the default is what the model was loaded
        with, or else None and "kept".

    See Also
    --------
    load

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> result = kf.learn(signals, n_nonzero_coefs=4)
    >>> kf.save("transform.kappaform", result)
    """
    if isinstance(path, LearnResult | SparsifyingTransform):
        raise TypeError(
            f"path is a {type(path).__name__}, model a {type(model).__name__}: give the name of "
            "the file first, save(path, model)."
        )
    result, stream = _learned(model)
    n_features = result.transform.shape[-1]
    sparsity = _sparsity(result if n_nonzero_coefs is None else n_nonzero_coefs, n_features)
    estimator = _estimator_to_save(model)
    if n_nonzero_coefs is not None or model is result:
        estimator.n_nonzero_coefs = sparsity
    _check_parameters(estimator, result, "; set it back, or fit again")  # or `load` rejects it
    if patch_shape is None:
        patch_shape = getattr(model, "patch_shape_", None)
    if patch_mean is None:
        patch_mean = getattr(model, "patch_mean_", "kept")
    names = getattr(model, "feature_names_in_", None)
    described, arrays = to_arrays(result, stream, sparsity)
    header = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "kappaform_version": version("kappaform"),
        **described,
        "parameters": _parameters(estimator),
        "dtype": getattr(model, "components_", result.transform).dtype.name,
        "patch_shape": _checked_shape(patch_shape, n_features),
        "patch_mean": _checked_mean(patch_mean),
        "feature_names": None if names is None else list(names),
    }
    text = json.dumps(header, indent=1, default=_plain_number)
    with replaced_when_complete(file_of(path)) as file:
        np.savez(file, header=np.array(text), **arrays)  # type: ignore[arg-type]


def load(path: str | os.PathLike[str]) -> Any:
    """Read a transform that `save` wrote, as a fitted estimator that returns the same codes.

    No more memory is needed than the file is long, and nothing in it is run (it holds no pickle).
    Its attributes `patch_shape_` and `patch_mean_` are those that were saved. Its `result_` can be
    resumed, and `partial_fit` resumes it with its method, bitwise like the saved one, also while
    several initialisations race.

    Parameters
    ----------
    path : str or path

    Raises
    ------
    FileNotFoundError
    OSError
        If the file cannot be read.
    ValueError
        If the file is damaged, of another kind or of a newer version, or if the transform is not
        what the header states, its condition number included.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> saved = kf.ConditionedTransform(4).fit(signals)
    >>> kf.save("transform.kappaform", saved)
    >>> estimator = kf.load("transform.kappaform")
    >>> np.array_equal(estimator.transform(signals), saved.transform(signals))
    True
    """
    path = Path(path)
    with path.open("rb") as file:
        _check_readable(file, path)
        _check_no_noise(file, path)
        header, arrays = _read(file, path)
    try:
        with single_threaded_blas(), np.errstate(all="ignore"):  # NaN and inf are rejected
            return _restored(header, *from_arrays(header, arrays))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged: {_reason(error)} Take another copy, or learn and save it again."
        ) from error


# --- what is written -----------------------------------------------------------------------------


def _learned(model: Any) -> tuple[LearnResult, Stream | None]:
    """The result of a model, and the stream that it is in the middle of."""
    if isinstance(model, LearnResult):
        return model, model.state if isinstance(model.state, Stream) else None
    if not isinstance(model, SparsifyingTransform):
        raise TypeError(
            f"model is of type {type(model).__name__}: give a fitted estimator of kappaform or a "
            "LearnResult."
        )
    check_is_fitted(model)
    return model.result_, model._stream


def _sparsity(given: Any, n_features: int) -> int:
    sparsity = given.n_nonzero_coefs if isinstance(given, LearnResult) else given
    if isinstance(sparsity, np.ndarray) and sparsity.ndim:
        raise ValueError(
            f"the model has one n_nonzero_coefs for each of {len(sparsity)} signals: give "
            "the one for new signals, save(..., n_nonzero_coefs=...)."
        )
    return int(sparsity_of(sparsity, 1, n_features))


def _estimator_to_save(model: SparsifyingTransform | LearnResult) -> SparsifyingTransform:
    """The estimator of the method that learned, with the parameters that it shares with the model.

    It is of another class than the model where a bound was chosen by cross-validation, or where any
    method was accepted.
    """
    if isinstance(model, LearnResult):
        return estimator_of(model.method)
    method = model._method()
    estimator = estimator_of(method)
    shared = set(estimator._get_param_names()) & set(model._get_param_names())
    for name in shared - {"method", *method_parameters(method)}:
        if not isinstance(value := getattr(model, name), np.random.RandomState):
            setattr(estimator, name, value)
    return estimator


def _parameters(estimator: SparsifyingTransform) -> dict[str, Any]:
    """The parameters that a file holds: no code, and no `init` that is not a string."""
    parameters = estimator.get_params(deep=False)
    return {
        name: value
        for name, value in parameters.items()
        if name not in ("callback", "method") and (name != "init" or isinstance(value, str))
    }


def _plain_number(value: Any) -> Any:
    """A number that JSON does not know, such as one of NumPy, as a number of Python."""
    return value.item() if isinstance(value, np.generic) else float(value)


# --- what is read --------------------------------------------------------------------------------


def _check_readable(file: BinaryIO, path: Path) -> None:
    """Read a file once, for the errors of its disk: `zipfile` takes these for a damaged archive."""
    try:
        for _ in range(0, os.fstat(file.fileno()).st_size + 1, _PIECE):
            file.read(_PIECE)
        file.seek(0)
    except OSError as error:
        raise OSError(error.errno, f"cannot be read: {error.strerror}", str(path)) from error


def _check_no_noise(file: BinaryIO, path: Path) -> None:
    if file.read(_PIECE).lstrip().startswith(b"{"):
        from kappaform.imaging.noise.files import is_noise  # imports all of `imaging`

        if is_noise(path):
            raise ValueError(f"{path} is a noise file: use load_noise.")


def _read(file: BinaryIO, path: Path) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Header and arrays of a file, once it is known to be one of ours and not a newer one."""
    try:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not an npz archive, or its end is missing.")
        with zipfile.ZipFile(file) as archive:
            if "header.npy" not in archive.namelist():
                raise ValueError("it is an npz archive of other arrays, without a header.")
            text = str(_array(archive, "header", (), np.str_))
            header = json.loads(text, parse_int=_parsed_integer)
            if header["format"] != _FORMAT:
                raise ValueError(f"it is a {header['format']!r}.")
            its_format, writer = header["format_version"], header["kappaform_version"]
            if type(its_format) is not int or its_format < 1:
                raise ValueError(f"its format_version is {its_format!r}, not an integer >= 1.")
            if not isinstance(writer, str):
                raise ValueError(f"its kappaform_version is {writer!r}, not a text.")
            if its_format <= _OF_ONE_CANDIDATE:
                header = upgraded(header)
            if its_format <= _FORMAT_VERSION:
                return header, _arrays(archive, header)
    except Exception as error:  # foreign or damaged archives fail anywhere, each in its own way
        raise ValueError(
            f"{path} is not a transform that kappaform saved, or it is damaged: {_reason(error)}"
        ) from error
    raise ValueError(
        f"{path} was written by kappaform {writer}, in format {its_format}: this version reads "
        f"formats up to {_FORMAT_VERSION}, upgrade kappaform."
    )


def _parsed_integer(digits: str) -> int:
    value = int(digits)
    if abs(value) >= 2**63:
        raise ValueError(f"it has a number of {len(digits)} digits.")
    return value


def _arrays(archive: zipfile.ZipFile, header: dict[str, Any]) -> dict[str, NDArray]:
    """The arrays that a result with this header may have."""
    names = {name.removesuffix(".npy") for name in archive.namelist()}
    return {
        name: _array(archive, name, shape, np.float64)
        for name, shape in shapes_of(header, names).items()
        if name in names
    }


def _array(
    archive: zipfile.ZipFile, name: str, shape: tuple[int | None, ...], kind: type[np.generic]
) -> NDArray:
    """One array of an archive, read when its size is known to be that of `shape` and of the file.

    `save` does not compress, so that no array can be larger than its file.
    """
    entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
        raise ValueError(f"{name} is compressed, which `save` never does.")
    with archive.open(entry) as file:
        if npy.read_magic(file) != (1, 0):
            raise ValueError(f"{name} is not in version 1.0 of the npy format.")
        found, is_fortran, dtype = npy.read_array_header_1_0(file)
        fits = len(found) == len(shape) and all(
            b in (a, None) for a, b in zip(found, shape, strict=True)
        )
        if not fits or dtype.type is not kind or not dtype.isnative:
            raise ValueError(
                f"{name} is {dtype} of shape {found}, not {kind.__name__} of shape {shape}."
            )
        if math.prod(found) * dtype.itemsize != entry.file_size - file.tell():
            raise ValueError(f"{name} has not the length that its shape {found} needs.")
        content = file.read()  # to the end: there its checksum is compared
    return np.frombuffer(content, dtype).reshape(found, order="F" if is_fortran else "C")


def _restored(header: dict[str, Any], result: LearnResult, stream: Stream) -> Any:
    n_features, names = result.transform.shape[-1], header["feature_names"]
    parameters = header["parameters"]
    if not isinstance(parameters, dict):
        raise TypeError(f"its parameters are {parameters!r}.")
    for name, kind in _KINDS.items():
        if name in parameters and not isinstance(parameters[name], kind):
            what = "a text" if kind is str else "a number"
            raise TypeError(f"its parameter {name} is {parameters[name]!r}, not {what}.")
    usual = estimator_of(result.method)
    if unknown := parameters.keys() - usual.get_params(deep=False).keys():
        name = type(usual).__name__
        raise ValueError(f"its parameters contain {sorted(unknown)}, which {name} does not have.")
    # Files of version 0.1 have the variant and the rounds in the method only, and no `coding`.
    if not isinstance(result.method, Orthonormal):
        parameters = {"coding": "largest"} | parameters
    estimator = estimator_of(result.method, **parameters)
    _check_parameters(estimator, result)
    estimator.set_params(**method_parameters(result.method))
    features: dict[str, Any] = {"n_features_in_": n_features}
    if names is not None:
        are_texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not are_texts or len(names) != n_features:
            raise ValueError(f"feature_names is not a list of {n_features} texts.")
        features["feature_names_in_"] = np.array(names, dtype=object)
    estimator._take(
        result,
        stream,
        _DTYPES[choice_in(header, "dtype", _DTYPES)],
        features,
        patch_shape=_checked_shape(header["patch_shape"], n_features),
        patch_mean=_checked_mean(header["patch_mean"]),
    )
    return estimator


def _check_parameters(
    estimator: SparsifyingTransform, result: LearnResult, remedy: str = ""
) -> None:
    """Reject parameters with which an estimator could not resume what it has learned."""
    estimator._fit_options()
    estimator._stream_options()
    sparsity_of(estimator.n_nonzero_coefs, 1, result.transform.shape[-1])
    words = get_args(Init) if result.transform.ndim == 2 else ("auto",)
    if isinstance(estimator.init, str):
        check_choice("init", estimator.init, words)
    given, learned = single(estimator._method()), single(result.method)
    is_given = getattr(estimator, "method", None) is not None
    if not (_may_be(given, learned) if is_given else type(given) is type(learned)):
        raise ValueError(f"method={given!r}: the transform was learned by {learned!r}{remedy}.")
    others = method_parameters(estimator._method())
    for name, value in method_parameters(result.method).items():
        if name == "method":
            continue
        if not _agree(others[name], value):
            raise ValueError(
                f"{name}={others[name]!r}: the transform was learned with {name}={value!r}{remedy}."
            )


def _may_be(given: Method, learned: Method) -> bool:
    """Whether a method can be the one that learned; of a custom one a file has its name only."""
    if same_method(given, learned):
        return True
    if not isinstance(learned, UnknownMethod) or type(given) in (UnknownMethod, *ESTIMATORS):
        return False
    name = rf"(?<!\w){re.escape(type(given).__name__)}(?!\w)"
    return learned.description == saved_name(given) or bool(re.search(name, learned.description))


def _agree(one: Any, other: Any) -> bool:
    if all(isinstance(value, numbers.Real) for value in (one, other)):
        return math.isclose(one, other, rel_tol=_BOUND_SLACK)
    return bool(one == other)


def _checked_shape(shape: Any, n_features: int) -> tuple[int, ...] | None:
    if shape is None:
        return None
    sides = np.atleast_1d(shape)
    product = 0
    if sides.dtype.kind in "iu" and sides.ndim == 1 and 0 < len(sides) <= 64 and sides.min() > 0:
        product = math.prod(sides.tolist())
    if product != n_features:
        raise ValueError(
            f"patch_shape={shape!r}: give the sides of a patch, integers whose product is the "
            f"number of features, {n_features}."
        )
    return tuple(sides.tolist())


def _checked_mean(mean: Any) -> Literal["kept", "removed"]:
    check_choice("patch_mean", mean, ("kept", "removed"))
    return mean


def _reason(error: Exception) -> str:
    return f"it has no {error}." if isinstance(error, KeyError) else str(error)
