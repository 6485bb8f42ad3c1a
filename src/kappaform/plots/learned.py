"""Convergence, spectrum and trade-off curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kappaform.learning import ConditionPath
from kappaform.plots.axes import (
    COLOURS,
    as_matrix,
    colours,
    curves,
    label_ends,
    log_scale,
    named,
    plain_axes,
)

_FORMULA = {
    "absolute": r"$\Vert X - YW^{\mathsf{T}}\Vert_F$",
    "relative": r"$\Vert X - YW^{\mathsf{T}}\Vert_F\; / \;\Vert YW^{\mathsf{T}}\Vert_F$",
    "reconstruction": r"$\Vert Y - XW^{-\mathsf{T}}\Vert_F\; / \;\Vert Y\Vert_F$",
}


def plot_convergence(
    results: Any,
    labels: Sequence[str] | None = None,
    error: Literal["absolute", "relative"] = "absolute",
) -> Figure:
    """Sparsification error over the iterations, one curve for each result.

    Parameters
    ----------
    results : LearnResult or fitted estimator, a sequence of them, or a mapping from label to them
    labels : sequence of str, optional
        One for each result; by default its method.
    error : {"absolute", "relative"}
        ‖X − YWᵀ‖_F, or the same divided by ‖YWᵀ‖_F.
    """
    if error not in ("absolute", "relative"):
        raise ValueError(f"error={error!r} is unknown: give 'absolute' or 'relative'.")
    figure, axes = curves("iteration", f"{error} error  {_FORMULA[error]}")
    items = named(results, labels)
    errors = [np.asarray(getattr(result.errors, error)) for result in items.values()]
    for curve, colour in zip(errors, colours(len(errors)), strict=True):
        axes.plot(np.arange(curve.size), curve, color=colour, linewidth=1.8)
        axes.plot(curve.size - 1, curve[-1], "o", color=colour, markersize=4)
    axes.margins(x=0.02)
    log_scale(axes, "y")
    label_ends(axes, [curve[-1] for curve in errors], list(items))
    return figure


def plot_spectrum(transforms: Any, labels: Sequence[str] | None = None) -> Figure:
    """Singular values of transforms in descending order.

    Where a result's method has a bound on the condition number, a dashed line shows the floor that
    the bound leaves below the largest singular value: max σ / max_condition.

    Parameters
    ----------
    transforms : LearnResult, fitted estimator or (n, n) array, or several
        Several are a sequence of them, or a mapping from label to them.
    labels : sequence of str, optional
        One for each transform; by default its method, or "transform".
    """
    figure, axes = curves("index, in descending order", r"singular value $\sigma$")
    items = named(transforms, labels)
    spectra = [
        draw_spectrum(axes, item, colour)
        for item, colour in zip(items.values(), colours(len(items)), strict=True)
    ]
    axes.margins(x=0.02, y=0.1)
    log_scale(axes, "y", narrowest=1.5)
    notes = [
        f"{name}\ncondition {np.linalg.cond(as_matrix(item)):.4g}" for name, item in items.items()
    ]
    label_ends(axes, [spectrum[-1] for spectrum in spectra], notes)
    return figure


def draw_spectrum(axes: Axes, item: object, colour: str | tuple[float, ...]) -> NDArray:
    """Draw, and return, the singular values of a transform with the floor that its bound leaves."""
    spectrum = np.linalg.svd(as_matrix(item), compute_uv=False)
    ranks = np.arange(1, spectrum.size + 1)
    axes.plot(ranks, spectrum, "o-", color=colour, linewidth=1.2, markersize=3)
    bound = getattr(getattr(item, "method", None), "max_condition", math.inf)
    if bound < math.inf:
        floor = spectrum[0] / bound
        axes.plot(ranks[[0, -1]], [floor, floor], "--", color=colour, linewidth=1, alpha=0.8)
        note: dict[str, Any] = {
            "text": rf"max $\sigma$ / {bound:g}",
            "color": colour,
            "fontsize": 8,
        }
        axes.annotate(xy=(1, floor), xytext=(0, -12), textcoords="offset points", **note)
    return spectrum


def plot_path(path: ConditionPath) -> Figure:
    """Errors along a `kappaform.condition_path`, for training and (if any) validation signals."""
    if not isinstance(path, ConditionPath):
        raise TypeError(
            f"path is of type {type(path).__name__}: give what kappaform.condition_path returned."
        )
    figure = Figure(figsize=(11.0, 3.8), layout="constrained")
    errors = ("absolute", "relative", "reconstruction")
    bounds = path["max_condition"]
    for axes, error in zip(figure.subplots(1, 3), errors, strict=True):
        plain_axes(axes)
        for prefix, colour, marker in (("", COLOURS[0], "o"), ("validation_", COLOURS[1], "s")):
            if prefix + error in path.table:
                values = path.table[prefix + error]
                name = "validation" if prefix else "training"
                axes.plot(bounds, values, f"{marker}-", color=colour, markersize=4, label=name)
        log_scale(axes, "x")
        log_scale(axes, "y")
        axes.set_title(f"{error} error  {_FORMULA[error]}", fontsize=10, loc="left")
        axes.set_xlabel("max_condition")
    if "validation_absolute" in path.table:
        figure.axes[0].legend(frameon=False)
    return figure
