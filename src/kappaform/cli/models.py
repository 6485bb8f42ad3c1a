"""`kappaform learn`, `path`, `encode`, `decode` and `info`: transforms and codes in files."""

from __future__ import annotations

import math
from argparse import Namespace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

import kappaform as kf
from kappaform.checks import counted
from kappaform.cli import files, messages
from kappaform.cli.model_files import is_union, load_codes, load_model, load_signals
from kappaform.cli.options import CONDITIONED, check_patch_size, chosen
from kappaform.files import replaced_when_complete
from kappaform.imaging.options import warn_about_patches
from kappaform.imaging.patches import random_patches
from kappaform.learning.starts import Init

_LIMITS = ("n_nonzero_coefs", "max_iter", "tol")
_ROUNDING = 1e-6  # of float32: signals with smaller means, relative to their values, are mean-free


def learn(arguments: Namespace) -> None:
    (target,) = files.outputs(arguments, arguments.inputs, output=())
    _check_union(arguments)
    signals, patch_shape = _signals_of(arguments)
    options = chosen(arguments, *_LIMITS) | {"init": _init(arguments, signals.shape[1])}
    result: Any = None
    is_saved = False
    try:
        with messages.interrupted_once() as interruptions:
            result = _learned(signals, options, interruptions, arguments)
            interruptions.are_held = True
            _save(target, result, patch_shape)
            is_saved = True
        errors = kf.evaluate(signals, result, result.n_nonzero_coefs, coding="refit")
    except KeyboardInterrupt:
        if not is_saved:
            raise
        what = "transform" if arguments.n_transforms == 1 else "union"
        if is_union(result) and len(result.transforms) < arguments.n_transforms:  # it still grows
            what += f", of {counted(len(result.transforms), 'transform')} so far,"
        text = f"the {what} after {counted(result.n_iter, 'iteration')} is in {target}"
        raise KeyboardInterrupt(f"interrupted: {text}") from None
    facts = {
        "output": str(target),
        "n_signals": len(signals),
        "n_features": signals.shape[1],
        **_facts(result),
        "relative_error": errors.relative,
        "reconstruction_error": errors.reconstruction,
    }
    messages.report(facts, arguments.json)


def _learned(
    signals: NDArray,
    options: dict[str, Any],
    interruptions: messages.Interruptions,
    arguments: Namespace,
) -> Any:
    """What is learned from the signals, all of it or until the first interruption."""
    methods = {"log-det": kf.LogDet, "orthonormal": kf.Orthonormal}
    result = None
    try:
        with messages.calling_library("learning") as show:

            def watch(result: Any) -> None:
                if interruptions.is_interrupted:  # and lost in a library that ignores exceptions
                    raise KeyboardInterrupt
                if show:
                    show(result)

            method = methods.get(arguments.method, lambda: _conditioned(arguments, "max_condition"))
            options |= {"method": method(), "callback": watch}
            if arguments.n_transforms == 1:
                result = kf.learn(signals, **options)
            else:
                union = {"n_transforms": arguments.n_transforms, "rng": arguments.seed}
                result = kf.learn_union(signals, **options, **union)
    except kf.LearningInterrupted as interruption:
        return interruption.result
    except KeyboardInterrupt:
        if result is None:  # otherwise nothing was left to learn
            raise
    return result


def _check_union(arguments: Namespace) -> None:
    """Reject methods that do not keep a norm common to all transforms."""
    for name, allowed in (
        ("method", ("conditioned", "orthonormal")),
        ("variant", ("monotone",)),
        ("norm", ("auto", "a number")),
    ):
        value = getattr(arguments, name)
        is_allowed = value in allowed or isinstance(value, float)
        if arguments.n_transforms > 1 and not is_allowed:
            raise ValueError(
                f"--transforms {arguments.n_transforms} with {messages.as_option(name)} {value}: "
                f"errors of such transforms cannot be compared; give {' or '.join(allowed)}."
            )


def path(arguments: Namespace) -> None:
    plot, target = files.outputs(arguments, arguments.inputs, plot=files.FIGURES, output=())
    for name in ("folds", "output"):
        if name in arguments.given and not arguments.choose:
            raise ValueError(
                f"{messages.as_option(name)} has no effect without --choose: give both."
            )
    signals, patch_shape = _signals_of(arguments)
    _check_choice(signals)
    table, model = (_chosen if arguments.choose else _validated)(arguments, signals)
    if plot:
        with files.saved_figure(plot, kf.plots.plot_path(table)):
            pass
    if target:
        _save(target, model, patch_shape)
    if arguments.json:
        facts = {"best_max_condition": table.chosen, "plot": arguments.plot}
        messages.say_json({"table": table.table, **facts, "output": arguments.output})
        return
    messages.say(
        f"{table}\n--max-condition {table.chosen:g} has the smallest {table.choose_by} error on "
        "held-out signals"
    )
    for file in (plot, target):
        if file:
            messages.say(f"written: {file}")


def _check_choice(signals: NDArray) -> None:
    """Reject constant signals, such as those of a constant image."""
    if signals.size == 0 or np.ptp(signals[0]) > 0:  # usually the first one decides
        return
    if (signals.min(axis=1) == signals.max(axis=1)).all():
        raise ValueError(
            "every signal is constant, as in a constant image: all bounds give the same errors, "
            "so there is nothing to choose; give another input."
        )


def _validated(arguments: Namespace, signals: NDArray) -> tuple[Any, Any]:
    """The path learned from every second signal and validated on the others."""
    if len(signals) < 2:
        raise ValueError(
            "there is 1 signal: give at least 2, because every second one is held out."
        )
    options = chosen(arguments, *_LIMITS, "choose_by")
    with messages.calling_library("path") as callback:
        options |= {"validation": signals[1::2], "method": _conditioned(arguments)}
        path = kf.condition_path(signals[::2], arguments.bounds, **options, callback=callback)
    return path, None


def _chosen(arguments: Namespace, signals: NDArray) -> tuple[Any, Any]:
    """The mean path over the folds, and the transform learned with the bound that it chooses."""
    with messages.calling_library("path") as callback:
        model = kf.ConditionedTransformCV(
            max_conditions=arguments.bounds,
            cv=arguments.folds,
            callback=callback,
            **chosen(arguments, *_LIMITS, *CONDITIONED, "choose_by"),
        ).fit(signals)
    return model.condition_path_, model


def encode(arguments: Namespace) -> None:
    source = Path(arguments.signals)
    (target,) = files.outputs(arguments, [arguments.model, source], output=(".npz",))
    model, signals = load_model(arguments.model), load_signals(source)
    if signals.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{source} has signals of {signals.shape[1]} features: the transform in "
            f"{arguments.model} expects {model.n_features_in_}."
        )
    if signals.dtype not in (np.float32, np.float64):
        signals = signals.astype(np.float64)
    means, note = {}, {}
    if model.patch_mean_ == "removed":  # and stored with the codes, for decoding
        means["means"] = signals.mean(axis=1, dtype=np.float64)
        largest = np.abs(signals).max(initial=0)
        if np.abs(means["means"]).max(initial=0) > _ROUNDING * largest:
            note["means"] = "removed, as in training; stored with the codes"
        signals = signals - means["means"].astype(signals.dtype)[:, np.newaxis]
    codes = sparse.csr_array(model.set_params(sparse_output=True).transform(signals))
    # As `scipy.sparse.save_npz` writes them, and the means.
    entries = {name: getattr(codes, name) for name in ("shape", "data", "indices", "indptr")}
    with replaced_when_complete(target) as file:
        np.savez_compressed(file, format=np.array(b"csr"), _is_array=True, **entries, **means)
    facts = {"output": str(target), "n_signals": codes.shape[0], "n_features": codes.shape[1]}
    messages.report(facts | {"n_nonzero": codes.nnz} | note, arguments.json)


def decode(arguments: Namespace) -> None:
    source = Path(arguments.codes)
    (target,) = files.outputs(arguments, [arguments.model, source], output=(".npy",))
    model = load_model(arguments.model)
    codes, means = load_codes(source)
    if codes.shape[1] != (n_codes := math.prod(model.components_.shape[:-1])):
        raise ValueError(
            f"{source} has codes of {codes.shape[1]} columns: the transform in {arguments.model} "
            f"expects {n_codes}; give the model that computed them."
        )
    signals = model.inverse_transform(codes)
    if means is not None:
        signals += means.astype(signals.dtype)[:, np.newaxis]
    with replaced_when_complete(target) as file:
        np.save(file, signals, allow_pickle=False)
    facts = {"output": str(target), "n_signals": signals.shape[0], "n_features": signals.shape[1]}
    messages.report(facts, arguments.json)


def info(arguments: Namespace) -> None:
    model = load_model(arguments.model)
    result = model.result_
    facts = {
        "file": arguments.model,
        "method": str(result.method.method if is_union(result) else result.method),
        "n_features": model.n_features_in_,
        "patch_shape": model.patch_shape_,
        "patch_mean": model.patch_mean_,
        **_facts(result),
        "max_condition": getattr(result.method, "max_condition", None),
        "norm": float(np.linalg.norm(np.atleast_2d(result.spectrum)[0])),  # that of all
        "relative_error": result.errors.relative[-1],
    }
    messages.report(facts, arguments.json)


def _save(target: Path, model: Any, patch_shape: tuple[int, int] | None) -> None:
    kf.save(target, model, patch_shape=patch_shape, patch_mean="removed" if patch_shape else None)


def _conditioned(arguments: Namespace, *names: str) -> kf.Conditioned:
    return kf.Conditioned(**chosen(arguments, *names, *CONDITIONED))


def _init(arguments: Namespace, n_features: int) -> Any:
    """A start by its name, or what a model file has learned."""
    given, n_transforms = arguments.init, arguments.n_transforms
    names = get_args(Init) if n_transforms == 1 else ("auto",)
    if given in names:
        return given
    if not Path(given).exists():
        is_file = Path(given).suffix or Path(given).name != given
        missing = "no such file; " if is_file else ""
        raise ValueError(f"--init {given}: {missing}give {', '.join(names)}, or a model file.")
    model = load_model(given)
    if model.n_features_in_ != n_features:
        shape = model.patch_shape_
        patches = f" (patches of {' × '.join(map(str, shape))} pixels)" if shape else ""
        raise ValueError(
            f"--init {given} is a transform of {model.n_features_in_} features{patches}, and the "
            f"signals have {n_features}: give the same --patch-size, or another start."
        )
    whole = is_union(model.result_)
    found = len(model.components_) if whole else 1
    if found != n_transforms and not (whole and found < n_transforms):  # a smaller union grows
        text = "a single transform" if not whole else f"a union of {counted(found, 'transform')}"
        count = found if not whole or found > 1 else "2 or more"
        raise ValueError(f"--init {given} is {text}: give --transforms {count}, or another start.")
    if whole and n_transforms == 1:
        raise ValueError(
            f"--init {given} is a union of 1 transform: give --transforms 2 or more, or another "
            "start."
        )
    return model


def _facts(result: Any) -> dict[str, Any]:
    union: dict[str, Any] = {}
    if is_union(result):
        union = {"n_transforms": len(result.transforms)}
        union["condition_numbers"] = [round(each, 9) for each in result.condition_numbers.tolist()]
    return {
        **union,
        "n_nonzero_coefs": result.n_nonzero_coefs,
        "condition_number": result.condition_number,
        "n_iter": result.n_iter,
        "converged": result.converged,
        "stop_reason": messages.in_options(str(result.stop_reason)),
    }


# --- Signals of files


def _signals_of(arguments: Namespace) -> tuple[NDArray, tuple[int, int] | None]:
    """Signals of .npy files; or mean-free random patches of images, and their shape."""
    sources = files.all_pictures(arguments.inputs)
    are_arrays = [source.suffix.lower() == ".npy" for source in sources]
    if all(are_arrays):
        starts = getattr(arguments, "n_transforms", 1) > 1  # random ones, which have a seed
        for name in ("patch_size", "n_patches", "seed"):
            if name in arguments.given and not (starts and name == "seed"):
                text = f"{messages.as_option(name)} has no effect on signals (.npy)"
                raise ValueError(f"{text}: leave it out.")
        return _joined(sources), None
    if any(are_arrays):
        raise ValueError("signals (.npy) and images are mixed: give one kind at a time.")
    side, n_patches = arguments.patch_size, arguments.n_patches
    check_patch_size(side, n_axes=2)
    warn_about_patches((side, side))
    rng = np.random.default_rng(arguments.seed)
    patches = []
    for source, numbers in zip(
        sources, np.array_split(range(n_patches), len(sources)), strict=True
    ):
        image = files.one_picture(source).grey
        if not np.isfinite(image).all():
            raise ValueError(
                f"{source} contains NaN or inf: fill such pixels first, by kappaform inpaint."
            )
        if min(image.shape) < side:
            text = f"--patch-size {side} exceeds {source}, of shape {image.shape}"
            raise ValueError(f"{text}: give a smaller one.")
        patches.append(random_patches(image, side, len(numbers), rng, in_order=True))
    return np.concatenate(patches), (side, side)


def _joined(sources: list[Path]) -> NDArray:
    signals = [load_signals(source) for source in sources]
    first = signals[0].shape[1]
    for source, values in zip(sources, signals, strict=True):
        if values.shape[1] != first:
            text = f"{source} has signals of {values.shape[1]} features, {sources[0]} of {first}"
            raise ValueError(f"{text}: the number must be the same.")
    return signals[0] if len(signals) == 1 else np.concatenate(signals)
