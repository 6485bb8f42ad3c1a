"""`kappaform learn`, `encode`, `decode` and `info`: transforms in files, and codes with them."""

from __future__ import annotations

import math
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import kappaform as kf
from kappaform.cli.console import progress, say, say_json
from kappaform.cli.sources import check_free, load_signals, signals_of
from kappaform.files import replaced_when_complete
from kappaform.image_files import check_writable


def learn(arguments: Namespace) -> int:
    target = Path(arguments.output)
    check_free(target, map(Path, arguments.inputs))
    check_writable(target)
    signals, patch_shape = signals_of(
        arguments.inputs,
        arguments.patch_size,
        arguments.n_patches,
        np.random.default_rng(arguments.seed),
    )
    with progress("learning") as callback:
        result = kf.learn(
            signals,
            _method(arguments),
            n_nonzero_coefs=arguments.n_nonzero,
            max_iter=arguments.max_iter,
            tol=arguments.tol,
            callback=callback,
        )
    kf.save(
        target, result, patch_shape=patch_shape, patch_mean="removed" if patch_shape else "kept"
    )
    errors = kf.evaluate(signals, result, result.n_nonzero_coefs)
    facts = {
        "output": str(target),
        "n_signals": len(signals),
        "n_features": signals.shape[1],
        "n_nonzero_coefs": result.n_nonzero_coefs,
        "condition_number": result.condition_number,
        "n_iter": result.n_iter,
        "converged": result.converged,
        "stop_reason": str(result.stop_reason),
        "relative_error": errors.relative,
        "reconstruction_error": errors.reconstruction,
    }
    _tell(facts, arguments)
    return 0


def encode(arguments: Namespace) -> int:
    target = _checked_target(arguments.output, ".npz", arguments.model, arguments.signals)
    model: Any = kf.load(arguments.model)
    signals = _floats(load_signals(Path(arguments.signals)))
    if signals.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{arguments.signals} has signals of {signals.shape[1]} features: the transform in "
            f"{arguments.model} takes {model.n_features_in_}."
        )
    means = None
    if model.patch_mean_ == "removed":
        # Kept beside the codes: signals are then rebuilt as they were given.
        means = signals.mean(axis=1, dtype=np.float64)
        signals = signals - means.astype(signals.dtype)[:, np.newaxis]
    codes = sparse.csr_array(model.set_params(sparse_output=True).transform(signals))
    entries: dict[str, Any] = {
        "format": np.array(b"csr"),
        "_is_array": np.array(True),
        "shape": np.array(codes.shape),
        "data": codes.data,
        "indices": codes.indices,
        "indptr": codes.indptr,
    }
    with replaced_when_complete(target) as file:
        np.savez_compressed(file, **entries, **({} if means is None else {"means": means}))
    facts = {"output": str(target), "n_signals": codes.shape[0], "n_features": codes.shape[1]}
    _tell(facts | {"n_nonzero": codes.nnz}, arguments)
    return 0


def decode(arguments: Namespace) -> int:
    target = _checked_target(arguments.output, ".npy", arguments.model, arguments.codes)
    model: Any = kf.load(arguments.model)
    codes, means = _load_codes(Path(arguments.codes))
    signals = model.inverse_transform(codes)
    if means is not None:
        signals += means.astype(signals.dtype)[:, np.newaxis]
    with replaced_when_complete(target) as file:
        np.save(file, signals, allow_pickle=False)
    shape = {"n_signals": signals.shape[0], "n_features": signals.shape[1]}
    _tell({"output": str(target), **shape}, arguments)
    return 0


def info(arguments: Namespace) -> int:
    model: Any = kf.load(arguments.model)
    result = model.result_
    spectrum = np.linalg.svd(result.transform, compute_uv=False)
    method = type(result.method).__name__
    parameters = ", ".join(f"{name}={value}" for name, value in vars(result.method).items())
    facts = {
        "file": arguments.model,
        "method": f"{method}({parameters})",
        "n_features": len(spectrum),
        "patch_shape": model.patch_shape_,
        "patch_mean": model.patch_mean_,
        "n_nonzero_coefs": model.n_nonzero_coefs_,
        "condition_number": float(spectrum[0] / spectrum[-1]),
        "max_condition": getattr(result.method, "max_condition", None),
        "norm": float(np.linalg.norm(spectrum)),
        "n_iter": result.n_iter,
        "converged": result.converged,
        "stop_reason": str(result.stop_reason),
        "relative_error": result.errors.relative[-1],
    }
    _tell(facts, arguments)
    return 0


def _method(arguments: Namespace) -> Any:
    if arguments.method == "conditioned":
        return kf.Conditioned(arguments.max_condition)
    return kf.LogDet() if arguments.method == "log-det" else kf.Orthonormal()


def _checked_target(output: str, suffix: str, *inputs: str) -> Path:
    target = Path(output)
    if target.suffix.lower() != suffix:
        raise ValueError(f"{target}: give a name that ends with {suffix}.")
    check_free(target, map(Path, inputs))
    check_writable(target)
    return target


def _floats(signals: NDArray) -> NDArray:
    return signals if signals.dtype in (np.float32, np.float64) else signals.astype(np.float64)


def _load_codes(path: Path) -> tuple[sparse.csr_array, NDArray | None]:
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        codes = sparse.csr_array(sparse.load_npz(path))
        codes.check_format()
        with np.load(path, allow_pickle=False) as archive:
            means = archive["means"] if "means" in archive.files else None
        if means is not None and means.shape != codes.shape[:1]:
            raise ValueError(f"it has {means.shape} means for {codes.shape[0]} codes.")
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise ValueError(f"{path} is damaged or holds no codes: {error}") from error
    return codes, means


def _tell(facts: dict[str, Any], arguments: Namespace) -> None:
    """Facts as one JSON document, or for people."""
    if arguments.json:
        say_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        text = f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else str(value)
        say(f"{name.replace('_', ' '):<{width}}  {text}")
