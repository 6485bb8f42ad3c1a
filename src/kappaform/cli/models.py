"""`kappaform learn`, `path`, `encode`, `decode` and `info`: transforms in files, and codes."""

from __future__ import annotations

import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import kappaform as kf
from kappaform.cli import messages, pictures, results
from kappaform.cli.options import CONDITIONED, check_patch_size, chosen
from kappaform.files import check_readable, replaced_when_complete
from kappaform.image_files import SUFFIXES, load_npy
from kappaform.imaging.patches import grid_of, patches_at
from kappaform.learning.starts import Init

_LIMITS = ("n_nonzero_coefs", "max_iter", "tol")
_ROUNDING = 1e-6  # of float32: smaller means, relative to the values, have been removed already


def learn(arguments: Namespace) -> None:
    target = Path(arguments.output)
    inputs = results.identities(map(Path, arguments.inputs))
    results.check_output(target, inputs, overwrite=arguments.overwrite)
    signals, patch_shape = _signals_of(arguments)
    methods = {"log-det": kf.LogDet, "orthonormal": kf.Orthonormal}
    method = methods.get(arguments.method, lambda: _conditioned(arguments, "max_condition"))()
    options = chosen(arguments, *_LIMITS) | {"init": _init(arguments.init)}
    try:
        with messages.progress("learning") as callback:
            result = kf.learn(signals, method, **options, callback=callback)
    except kf.LearningInterrupted as interruption:
        _save(target, interruption.result, patch_shape)
        text = f"what was learned in {interruption.result.n_iter} iterations is in {target}"
        raise KeyboardInterrupt(f"interrupted: {text}") from None
    _save(target, result, patch_shape)
    errors = kf.evaluate(signals, result, result.n_nonzero_coefs, coding="refit")
    facts = {
        "output": str(target),
        "n_signals": len(signals),
        "n_features": signals.shape[1],
        **_facts(result),
        "relative_error": errors.relative,
        "reconstruction_error": errors.reconstruction,
    }
    messages.tell(facts, arguments.json)


def path(arguments: Namespace) -> None:
    plot = Path(arguments.plot) if arguments.plot else None
    target = Path(arguments.output) if arguments.output else None
    inputs = results.identities(map(Path, arguments.inputs))
    if plot:
        results.check_output(plot, inputs, results.FIGURES, overwrite=arguments.overwrite)
    if target:
        results.check_output(target, inputs, overwrite=arguments.overwrite)
    for name in ("folds", "output"):
        if name in arguments.given and not arguments.choose:
            raise ValueError(
                f"{messages.as_option(name)} has no effect without --choose: give both."
            )
    signals, patch_shape = _signals_of(arguments)
    _check_choice(signals)
    table, model = (_chosen if arguments.choose else _validated)(arguments, signals)
    if plot:
        with results.saved_figure(plot, kf.plots.plot_path(table)):
            pass
    if target:
        _save(target, model, patch_shape)
    if arguments.json:
        facts = {"best_max_condition": table.chosen, "plot": arguments.plot}
        messages.say_json({"table": table.table, **facts, "output": arguments.output})
        return
    what = "rebuilds best" if table.choose_by == "reconstruction" else "has the least error of"
    messages.say(f"{table}\n--max-condition {table.chosen:g} {what} what was not learned from")
    for done, file in (("drawn", plot), ("saved", target)):
        if file:
            messages.say(f"{done}: {file}")


def _check_choice(signals: NDArray) -> None:
    """Refuse constant signals, as those of a constant picture."""
    if signals.size == 0 or np.ptp(signals[0]) > 0:  # most are settled by the first
        return
    if (signals.min(axis=1) == signals.max(axis=1)).all():
        raise ValueError(
            "every signal is constant, as in a picture of one value: all bounds do the same, so "
            "there is nothing to choose; give another input."
        )


def _validated(arguments: Namespace, signals: NDArray) -> tuple[Any, Any]:
    """The path learned from every second signal: the others validate."""
    if len(signals) < 2:
        raise ValueError("there is 1 signal: give at least 2, every second one validates.")
    options = chosen(arguments, *_LIMITS, "choose_by")
    options |= {"validation": signals[1::2], "method": _conditioned(arguments)}
    with messages.progress("path") as callback:
        path = kf.condition_path(signals[::2], arguments.bounds, **options, callback=callback)
    return path, None


def _chosen(arguments: Namespace, signals: NDArray) -> tuple[Any, Any]:
    """The mean path over folds, and the transform with the bound that it chooses."""
    with messages.progress("path") as callback:
        model = kf.ConditionedTransformCV(
            max_conditions=arguments.bounds,
            cv=arguments.folds,
            callback=callback,
            **chosen(arguments, *_LIMITS, *CONDITIONED, "choose_by"),
        ).fit(signals)
    return model.condition_path_, model


def encode(arguments: Namespace) -> None:
    target, source = Path(arguments.output), Path(arguments.signals)
    inputs = results.identities([Path(arguments.model), source])
    results.check_output(target, inputs, (".npz",), overwrite=arguments.overwrite)
    model = load_model(arguments.model)
    signals = _load_signals(source)
    if signals.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{source} has signals of {signals.shape[1]} features: the transform in "
            f"{arguments.model} takes {model.n_features_in_}."
        )
    if signals.dtype not in (np.float32, np.float64):
        signals = signals.astype(np.float64)
    means, said = {}, {}
    if model.patch_mean_ == "removed":  # and kept with the codes, to rebuild signals as given
        means["means"] = signals.mean(axis=1, dtype=np.float64)
        largest = np.abs(signals).max(initial=0)
        if np.abs(means["means"]).max(initial=0) > _ROUNDING * largest:
            text = "removed, as from the signals that the transform was learned from"
            said["means"] = f"{text}; kept with the codes"
        signals = signals - means["means"].astype(signals.dtype)[:, np.newaxis]
    codes = sparse.csr_array(model.set_params(sparse_output=True).transform(signals))
    # As `scipy.sparse.save_npz` writes them, with the means beside.
    entries = {name: getattr(codes, name) for name in ("shape", "data", "indices", "indptr")}
    with replaced_when_complete(target) as file:
        np.savez_compressed(file, format=np.array(b"csr"), _is_array=True, **entries, **means)
    facts = {"output": str(target), "n_signals": codes.shape[0], "n_features": codes.shape[1]}
    messages.tell(facts | {"n_nonzero": codes.nnz} | said, arguments.json)


def decode(arguments: Namespace) -> None:
    target, source = Path(arguments.output), Path(arguments.codes)
    inputs = results.identities([Path(arguments.model), source])
    results.check_output(target, inputs, (".npy",), overwrite=arguments.overwrite)
    model = load_model(arguments.model)
    codes, means = _load_codes(source)
    signals = model.inverse_transform(codes)
    if means is not None:
        signals += means.astype(signals.dtype)[:, np.newaxis]
    with replaced_when_complete(target) as file:
        np.save(file, signals, allow_pickle=False)
    facts = {"output": str(target), "n_signals": signals.shape[0], "n_features": signals.shape[1]}
    messages.tell(facts, arguments.json)


def info(arguments: Namespace) -> None:
    model = load_model(arguments.model)
    result = model.result_
    facts = {
        "file": arguments.model,
        "method": str(result.method),
        "n_features": model.n_features_in_,
        "patch_shape": model.patch_shape_,
        "patch_mean": model.patch_mean_,
        **_facts(result),
        "max_condition": getattr(result.method, "max_condition", None),
        "norm": float(np.linalg.norm(result.spectrum)),
        "relative_error": result.errors.relative[-1],
    }
    messages.tell(facts, arguments.json)


def _save(target: Path, model: Any, patch_shape: tuple[int, int] | None) -> None:
    kf.save(target, model, patch_shape=patch_shape, patch_mean="removed" if patch_shape else None)


def _conditioned(arguments: Namespace, *names: str) -> kf.Conditioned:
    return kf.Conditioned(**chosen(arguments, *names, *CONDITIONED))


def _init(given: str) -> Any:
    """A start by its name; or what is in a model file, which is resumed if it is of its kind."""
    names = get_args(Init)
    if given in names:
        return given
    if not Path(given).exists():
        raise ValueError(f"init={given!r} is unknown: choose one of {names}, or a model file.")
    return load_model(given)


def _facts(result: Any) -> dict[str, Any]:
    return {
        "n_nonzero_coefs": result.n_nonzero_coefs,
        "condition_number": result.condition_number,
        "n_iter": result.n_iter,
        "converged": result.converged,
        "stop_reason": messages.in_options(str(result.stop_reason)),
    }


# --- Models, signals and codes of files


def load_model(path: str) -> Any:
    """The transform in a file; if it is a file of another kind, the error says of which."""
    kind = kind_of(Path(path))
    if kind not in ("", "a transform"):
        raise ValueError(f"{path} is {kind}, not a transform: give a file that learn saved.")
    return kf.load(path)


def kind_of(path: Path) -> str:
    """What a file is, in words; empty if nobody knows, or if there is no file."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            return "an array of NumPy"
    if path.suffix.lower() in set(SUFFIXES) - {".npy"}:
        return "a picture"
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except Exception:  # damaged archives fail each in its own way
        return ""
    return "a transform" if "header.npy" in names else "sparse codes" * ("indptr.npy" in names)


def _signals_of(arguments: Namespace) -> tuple[NDArray, tuple[int, int] | None]:
    """Signals of .npy files; or mean-free random patches of pictures, and their shape."""
    found, _, errors = pictures.picture_files(arguments.inputs)
    for error in errors.values():
        raise error
    files = [each.file for each in found]
    are_arrays = [file.suffix.lower() == ".npy" for file in files]
    if all(are_arrays):
        for name in ("patch_size", "n_patches", "seed"):
            if name in arguments.given:
                text = f"{messages.as_option(name)} has no effect on signals, .npy"
                raise ValueError(f"{text}: leave it out.")
        return _joined(files), None
    if any(are_arrays):
        raise ValueError("signals (.npy) and pictures are mixed: learn from one kind at a time.")
    side, n_patches = arguments.patch_size, arguments.n_patches
    check_patch_size(side, n_axes=2)
    rng = np.random.default_rng(arguments.seed)
    shares = map(len, np.array_split(np.arange(n_patches), len(files)))
    patches = [
        random_patches(pictures.one_picture(file).grey, side, share, rng, str(file))
        for file, share in zip(files, shares, strict=True)
    ]
    return np.concatenate(patches), (side, side)


def _joined(files: list[Path]) -> NDArray:
    signals = [_load_signals(file) for file in files]
    first = signals[0].shape[1]
    for file, values in zip(files, signals, strict=True):
        if values.shape[1] != first:
            text = f"{file} has signals of {values.shape[1]} features, {files[0]} of {first}"
            raise ValueError(f"{text}: all must have the same.")
    return signals[0] if len(signals) == 1 else np.concatenate(signals)


def random_patches(
    image: NDArray, side: int, count: int, rng: np.random.Generator, name: str = "the picture"
) -> NDArray:
    """At most `count` different mean-free patches of a grey picture, one per row."""
    if min(image.shape) < side:
        raise ValueError(f"patch_size={side} exceeds {name}, of shape {image.shape}: give less.")
    grid = grid_of(image.shape, (side, side))
    chosen = rng.choice(grid.n_patches, min(count, grid.n_patches), replace=False)
    return patches_at(image, grid, np.sort(chosen))


def _load_signals(path: Path) -> NDArray:
    """Signals of a .npy file, mapped into memory, not read."""
    if path.suffix.lower() != ".npy":
        kind = kind_of(path)
        what = f" is {kind}, not signals" if kind else ""
        raise ValueError(f"{path}{what}: give signals, a .npy file with one in each row.")
    signals = load_npy(path)
    if signals.ndim != 2 or signals.dtype.kind not in "buif":
        raise ValueError(
            f"{path} has shape {signals.shape} of {signals.dtype}: signals are 2-D, one in each "
            "row, of real numbers."
        )
    return signals


def _load_codes(path: Path) -> tuple[sparse.csr_array, NDArray | None]:
    """Codes that `encode` wrote, and the means of their signals, if it removed them."""
    check_readable(path)
    if (kind := kind_of(path)) not in ("", "sparse codes"):
        raise ValueError(f"{path} is {kind}, not sparse codes: give a .npz that encode wrote.")
    try:
        codes = sparse.csr_array(sparse.load_npz(path))
        codes.check_format()
        with np.load(path, allow_pickle=False) as archive:
            means = archive.get("means")
        fits = codes.dtype.kind in "buif" and (means is None or means.shape == codes.shape[:1])
    except Exception:  # damaged archives fail anywhere, each in its own way
        fits = False
    if not fits:
        raise ValueError(f"{path} is damaged or holds no codes: give a .npz that encode wrote.")
    return codes, means
