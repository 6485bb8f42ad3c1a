"""Figures 1 and 2 of the paper, errors over the iterations, and a third one over the bound."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.learning import Conditioned, LogDet, Method, Orthonormal, condition_path, learn
from kappaform.learning.methods import Objective, Variant
from kappaform.paper import data as paper
from kappaform.paper.run import Part, Watch, run_parts

Curve = dict[str, Any]

#: Errors of an iterate; then the same with the codes of the previous iterate, as the authors'
#: public code reports them.
ERRORS = ("absolute", "relative", "per_norm")
COLUMNS = (*ERRORS, *(f"{error}_before" for error in ERRORS))

VARIANTS: tuple[tuple[Variant, Objective], ...] = (
    ("paper", "absolute"),
    ("public", "absolute"),
    ("reference", "absolute"),
    ("monotone", "absolute"),
    ("monotone", "relative"),
)
BOUNDS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
PATH_NONZEROS = 6

_METHOD_NAMES = {Orthonormal: "orthonormal", LogDet: "log-det", Conditioned: "conditioned"}
_QUICK_BOUNDS = (1.0, 2.0, 10.0, 100.0)
_RISE = 1e-9  # relative: a smaller rise is rounding


class Figures(NamedTuple):
    """Data of the figures."""

    points: list[Curve]  #: errors over the iterations, by setting and method
    curves: list[Curve]  #: the same with the last errors only, and their settings
    paths: list[dict[str, Any]]  #: errors over the bound, by variant and objective
    settings: dict[str, Any]
    seconds: dict[str, float]


def reproduce_figures(
    data: Path,
    out: Path,
    *,
    images: Sequence[str] | None = None,
    n_iter: int | None = None,
    seed: int = 0,
    n_workers: int | None = None,
    quick: bool = False,
    watch: Watch | None = None,
) -> Figures:
    """Compute the data of the figures; finished parts in `out` are reused.

    By default `images` are those of the paper's three that exist. The seed selects the half of the
    signals that validates the third figure; the other figures use all signals.
    """
    paper.check_data(data)
    pictures, missing = _chosen(data, images)
    signals = paper.signals_of(pictures.values())[:: 8 if quick else 1]
    n_iter = n_iter or (60 if quick else 300)
    parts = []  # the longest first
    for variant, objective in VARIANTS[1:]:
        setting: dict[str, Any] = {"variant": variant, "objective": objective, "seed": seed}
        setting |= {"bounds": _QUICK_BOUNDS if quick else BOUNDS, "n_iter": n_iter}
        parts.append(Part(f"path-{variant}-{objective}", learn_path, (signals,), setting))
    for n_nonzero in paper.SPARSITIES[:1] if quick else paper.SPARSITIES:
        for weight in (None, *(paper.WEIGHTS[::2] if quick else paper.WEIGHTS)):
            setting = {"n_nonzero": n_nonzero, "weight": weight, "n_iter": n_iter}
            name = f"curves-{n_nonzero}-{weight or 'orthonormal'}"
            parts.append(Part(name, learn_curves, (signals,), setting))
    results, seconds = run_parts(parts, out, "figures", n_workers, watch)
    settings = {
        "images": list(pictures),
        "images_missing": missing,
        "n_signals": len(signals),
        "n_iter": n_iter,
        "seed": seed,
        "quick": quick,
        "kappaform": version("kappaform"),
    }
    n_paths = len(VARIANTS) - 1
    paths, groups = results[:n_paths], results[n_paths:]
    points = [curve for group in groups for curve in group]
    curves = [row for group in groups for row in summary_of(group)]
    return Figures(points, curves, paths, settings, seconds)


def _chosen(data: Path, wanted: Sequence[str] | None) -> tuple[dict[str, Path], list[str]]:
    """Existing images by name, and the names of missing ones."""
    there = paper.clean_pictures(data)
    names = [name.lower() for name in wanted or paper.FIGURE_IMAGES]
    found = {name: there[name] for name in names if name in there}
    missing = [name for name in names if name not in there]
    if missing and (wanted or not found):
        raise FileNotFoundError(
            f"{data} has neither img/NAME nor NAME.png for {', '.join(missing)}: available are "
            f"{', '.join(sorted(there)) or 'none'}; choose among them with --images."
        )
    if missing:
        message = f"{data} lacks {', '.join(missing)}: the figures show {', '.join(found)}."
        warnings.warn(message, stacklevel=3)
    return found, missing


def learn_curves(
    signals: NDArray, *, n_nonzero: int, weight: float | None, n_iter: int
) -> list[Curve]:
    """Curves of one setting: log-det, then conditioned with its final bound and norm.

    If there is no weight, the orthonormal one.
    """

    def curve(method: Method) -> Curve:
        setting = {"n_nonzero": n_nonzero, "weight": weight}
        return setting | _curve(signals, method, n_nonzero, n_iter)

    if weight is None:
        return [curve(Orthonormal())]
    log_det = curve(LogDet(weight))
    bound, norm = log_det["condition_number"], log_det["norm"]
    methods = (
        Conditioned(bound, norm=norm, objective=objective, variant=variant)
        for variant, objective in VARIANTS
    )
    return [log_det, *map(curve, methods)]


def _curve(signals: NDArray, method: Method, n_nonzero: int, n_iter: int) -> Curve:
    """Errors of the best transform so far after each update.

    Updates of abandoned initialisations count, too: at the same iteration, curves have cost the
    same number of passes, up to one per initialisation.
    """
    errors: dict[str, list[float]] = {name: [] for name in COLUMNS}

    def watch(state: Any) -> None:
        last, norm = state.records[-1], float(np.linalg.norm(state.transform))
        for end in ("", "_before"):
            absolute = getattr(last, f"absolute{end}")
            errors[f"absolute{end}"].append(absolute)
            errors[f"relative{end}"].append(getattr(last, f"relative{end}"))
            errors[f"per_norm{end}"].append(absolute / norm)

    limits: dict[str, Any] = {"max_iter": n_iter, "tol": 0, "callback": watch}
    result = learn(signals, method, n_nonzero_coefs=n_nonzero, **limits)
    return {
        "method": _METHOD_NAMES[type(method)],
        "variant": getattr(method, "variant", None),
        "objective": getattr(method, "objective", None),
        "max_condition": getattr(method, "max_condition", None),
        "condition_number": result.condition_number,
        "norm": float(np.linalg.norm(result.transform)),
        "n_iter": result.n_iter,
        "n_iter_of_kept_start": len(result.records) - 1,
        "n_passes": result.n_passes,
        "stop_reason": result.stop_reason.name.lower(),
        **errors,
    }


def name_of(curve: Curve) -> str:
    """Name of a curve among those of a setting, or of a path."""
    if curve["variant"] is None:
        return str(curve["method"])
    return f"{curve['variant']}-{curve['objective']}"


def summary_of(curves: Sequence[Curve]) -> list[Curve]:
    """One row per curve of a setting: final errors, and number and size of their increases.

    ``..._at_most_reference`` states whether a conditioned curve ends at or below that of the
    reference variant.
    """
    reference: Any = next((curve for curve in curves if curve["variant"] == "reference"), None)
    rows = []
    for curve in curves:
        row = curve | {name: curve[name][-1] for name in COLUMNS}
        for name in ("absolute", "relative", "absolute_before"):
            row[f"{name}_rises"], row[f"{name}_largest_rise"] = rises(curve[name])
        for name in ("absolute", "relative"):
            compared = curve["variant"] and reference
            below = row[name] <= reference[name][-1] if compared else None
            row[f"{name}_at_most_reference"] = below
        rows.append(row)
    return rows


def rises(errors: Sequence[float]) -> tuple[int, float]:
    """Number of increases beyond rounding, and the largest relative increase."""
    values = np.array(errors)
    changes = values[1:] / values[:-1] - 1
    # The error before the first update is NaN.
    return int(np.sum(changes > _RISE)), float(f"{np.fmax.reduce(changes, initial=0.0):.3g}")


def learn_path(
    signals: NDArray,
    *,
    variant: Variant,
    objective: Objective,
    bounds: Sequence[float],
    n_iter: int,
    seed: int,
) -> dict[str, Any]:
    """Errors of one variant over the bounds, on half of the signals and on the held-out half.

    The norm is that of an orthonormal transform, so that only the bound varies.
    """
    signals = np.random.default_rng(seed).permutation(signals)
    half = len(signals) // 2
    method = Conditioned(objective=objective, variant=variant)
    options: dict[str, Any] = {"n_nonzero_coefs": PATH_NONZEROS, "max_iter": n_iter}
    options |= {"coding": "largest"}  # the codes of the paper
    path = condition_path(
        signals[:half], bounds, validation=signals[half:], method=method, **options
    )
    columns = {name: values.tolist() for name, values in path.table.items()}
    return {"variant": variant, "objective": objective, "table": columns}
