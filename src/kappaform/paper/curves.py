"""Figures 1 and 2 of the paper: representation errors over the iterations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.learning import Conditioned, LearnResult, LogDet, Method, Orthonormal, learn
from kappaform.learning.methods import Objective, Variant
from kappaform.paper.dataset import signals_of

Curve = dict[str, Any]

#: Errors of an iterate; then the same with the codes of the iterate before it, as the authors'
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
_METHOD_NAMES = {Orthonormal: "orthonormal", LogDet: "log-det", Conditioned: "conditioned"}
_SETTING = ("n_nonzero", "weight", "method", "variant", "objective")
_RISE = 1e-9  # relative: what counts as a rise and not as rounding


def learn_curves(
    data: Path, images: list[str], n_nonzero: int, weight: float | None, n_iter: int, stride: int
) -> list[Curve]:
    """Curves of one setting: log-det, then conditioned with its final bound and norm.

    Without a weight, the orthonormal one. Of the signals every `stride`-th is taken.
    """
    signals = signals_of(data, images)[::stride]

    def curve(method: Method) -> Curve:
        setting = {"n_nonzero": n_nonzero, "weight": weight}
        return setting | _curve(signals, method, n_nonzero, n_iter)

    if weight is None:
        return [curve(Orthonormal())]
    beside = curve(LogDet(weight))
    bound, norm = beside["condition_number"], beside["norm"]
    methods = (
        Conditioned(bound, norm=norm, objective=objective, variant=variant)
        for variant, objective in VARIANTS
    )
    return [beside, *map(curve, methods)]


def _curve(signals: NDArray, method: Method, n_nonzero: int, n_iter: int) -> Curve:
    """Errors after each update, of the best transform so far where starts are explored.

    All updates count, also those of starts that were left: at the same iteration curves have cost
    the same number of passes, up to one for each start.
    """
    errors: list[tuple[float, ...]] = []

    def watch(state: LearnResult) -> None:
        last, norm = state.records[-1], _norm(state)
        own = (last.absolute, last.relative, last.absolute / norm)
        before = (last.absolute_before, last.relative_before, last.absolute_before / norm)
        errors.append((*own, *before))

    limits: dict[str, Any] = {"max_iter": n_iter, "tol": 0, "callback": watch}
    result = learn(signals, method, n_nonzero_coefs=n_nonzero, **limits)
    return {
        "method": _METHOD_NAMES[type(method)],
        "variant": getattr(method, "variant", None),
        "objective": getattr(method, "objective", None),
        "max_condition": getattr(method, "max_condition", None),
        "condition_number": result.condition_number,
        "norm": _norm(result),
        "n_iter": result.n_iter,
        "n_iter_of_kept_start": len(result.records) - 1,
        "n_passes": result.n_passes,
        "stop_reason": result.stop_reason.name.lower(),
        **dict(zip(COLUMNS, map(list, zip(*errors, strict=True)), strict=True)),
    }


def _norm(result: LearnResult) -> float:
    return float(np.linalg.norm(result.transform))


def name_of(curve: Curve) -> str:
    """What tells the curves of a setting apart."""
    if curve["variant"] is None:
        return str(curve["method"])
    return f"{curve['variant']}-{curve['objective']}"


def curve_rows(curves: list[Curve]) -> list[dict[str, Any]]:
    """One row for each curve and iteration."""
    rows = []
    for curve in curves:
        setting = {name: _as_text(curve[name]) for name in _SETTING}
        for place, values in enumerate(zip(*(curve[name] for name in COLUMNS), strict=True)):
            numbers = dict(zip(COLUMNS, map(_as_text, values), strict=True))
            rows.append({**setting, "iteration": place + 1, **numbers})
    return rows


def summary_rows(curves: list[Curve]) -> list[dict[str, Any]]:
    """One row for each curve: final errors, how often and how much they rose.

    ``..._at_most_reference`` says whether a conditioned curve ends at or below that of the
    reference variant in the same setting.
    """
    references = {
        (curve["n_nonzero"], curve["weight"]): curve
        for curve in curves
        if curve["variant"] == "reference"
    }
    rows = []
    for curve in curves:
        row = {name: _as_text(value) for name, value in curve.items() if name not in COLUMNS}
        row |= {name: _as_text(curve[name][-1]) for name in COLUMNS}
        for name in ("absolute", "relative", "absolute_before"):
            count, largest = rises(curve[name])
            row |= {f"{name}_rises": count, f"{name}_largest_rise": f"{largest:.3g}"}
        for name in ("absolute", "relative"):
            row[f"{name}_at_most_reference"] = ""
            if curve["variant"] is not None:
                reference = references[curve["n_nonzero"], curve["weight"]]
                row[f"{name}_at_most_reference"] = curve[name][-1] <= reference[name][-1]
        rows.append(row)
    return rows


def rises(errors: list[float]) -> tuple[int, float]:
    """How often the error rises by more than rounding, and the largest rise, relative to before."""
    values = np.array(errors)
    if len(values) < 2:
        return 0, 0.0
    changes = values[1:] / values[:-1] - 1
    return int(np.sum(changes > _RISE)), float(max(0.0, changes.max()))


def _as_text(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else value
