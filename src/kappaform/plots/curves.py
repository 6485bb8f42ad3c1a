"""Curves: errors over the iterations, spectra, errors over the bound; and their axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, starmap
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)
from numpy.typing import NDArray

from kappaform.checks import check_choice
from kappaform.learning.path import Path
from kappaform.learning.result import learned
from kappaform.learning.union import UnionOf

# Okabe and Ito's palette without its yellow: distinct for colour-blind readers, and in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

#: Labels of the errors of a result.
LABELS = {
    error: rf"{error} error  ${formula}$"
    for error, formula in {
        "absolute": r"\Vert X - YW^{\mathsf{T}}\Vert_F",
        "relative": r"\Vert X - YW^{\mathsf{T}}\Vert_F\; / \;\Vert YW^{\mathsf{T}}\Vert_F",
        "reconstruction": r"\Vert Y - XW^{-\mathsf{T}}\Vert_F\; / \;\Vert Y\Vert_F",
    }.items()
}
_NORMED = r"\Vert X - YW^{\mathsf{T}}\Vert_F\; / \;\Vert Y\Vert_F"
#: Labels of the errors of a path, which do not depend on the number of signals.
PATH_LABELS = {
    "sparsification": f"sparsification error  ${_NORMED}$",
    "relative": LABELS["relative"],
    "reconstruction": LABELS["reconstruction"],
}
_STEPS = [1, 2, 5, 10]  # of ticks


def plot_convergence(
    results: Any,
    labels: Sequence[str] | None = None,
    error: Literal["absolute", "relative"] = "absolute",
) -> Figure:
    """Sparsification error over the iterations, one curve for each result.

    Parameters
    ----------
    results : LearnResult or fitted estimator, a sequence of them, or a mapping from label to them
        Those of a denoised image are its ``history``.
    labels : sequence of str, optional
        One for each result; by default its method.
    error : {"absolute", "relative"}
        ‖X − YWᵀ‖_F, or the same divided by ‖YWᵀ‖_F.

    Returns
    -------
    matplotlib.figure.Figure
        Without a window: ``figure.savefig(...)`` writes it, a notebook shows it.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> methods = {"orthonormal": kf.Orthonormal(), "bounded": kf.Conditioned(2.0)}
    >>> results = {name: kf.learn(signals, method) for name, method in methods.items()}
    >>> kf.plots.plot_convergence(results).savefig("convergence.png")
    """
    check_choice("error", error, ("absolute", "relative"))
    figure, axes = _one_panel()
    items = _named(results, labels)
    for item in items.values():
        if not hasattr(item, "errors"):
            found = type(item).__name__
            remedy = "its history" if hasattr(item, "history") else "a LearnResult or an estimator"
            raise TypeError(f"results has a {found}, which has no errors to plot: give {remedy}.")
    errors = [np.asarray(getattr(result.errors, error)) for result in items.values()]
    for curve, colour in zip(errors, _colours(len(errors)), strict=True):
        axes.plot(np.arange(curve.size), curve, color=colour, linewidth=1.8)
        axes.plot(curve.size - 1, curve[-1], "o", color=colour, markersize=4)
    axes.margins(x=0.02)
    log_scale(axes, "y")
    axes.set(xlabel="iteration", ylabel=LABELS[error])
    _label_ends(axes, [curve[-1] for curve in errors], list(items))
    return figure


def plot_spectrum(transforms: Any, labels: Sequence[str] | None = None) -> Figure:
    """Singular values of transforms in descending order.

    If the method of a result has a bound on the condition number, a dashed line shows the smallest
    singular value that the bound allows: the largest one / max_condition.

    Parameters
    ----------
    transforms : LearnResult, fitted estimator or (n, n) array, or several
        Several are a sequence of them, or a mapping from label to them. A union has a curve for
        each of its transforms.
    labels : sequence of str, optional
        One for each transform or union; by default its method, or "transform".

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> results = [kf.learn(signals, kf.Conditioned(bound)) for bound in (1.5, 3)]
    >>> kf.plots.plot_spectrum(results).savefig("spectrum.png")
    """
    figure, axes = _one_panel()
    items = dict(chain.from_iterable(starmap(_members, _named(transforms, labels).items())))
    spectra = draw_spectra(axes, list(items.values()))
    notes = [
        f"{name}\ncondition {np.linalg.cond(matrix_of(item)):.4g}" for name, item in items.items()
    ]
    _label_ends(axes, [spectrum[-1] for spectrum in spectra], notes)
    return figure


def draw_spectra(axes: Axes, items: Sequence[object]) -> list[NDArray]:
    """Draw the singular values of transforms, with the floors of their bounds."""
    spectra = [np.linalg.svd(matrix_of(item), compute_uv=False) for item in items]
    for item, spectrum, colour in zip(items, spectra, _colours(len(items)), strict=True):
        ranks = np.arange(1, spectrum.size + 1)
        axes.plot(ranks, spectrum, "o-", color=colour, linewidth=1.2, markersize=3)
        bound = _bound_of(item)
        if bound < math.inf:
            floor = spectrum[0] / bound
            axes.plot(ranks[[0, -1]], [floor, floor], "--", color=colour, linewidth=1, alpha=0.8)
            note: dict[str, Any] = {"xytext": (0, -12), "textcoords": "offset points"}
            note |= {"color": colour, "fontsize": 8}
            axes.annotate(f"largest / {bound:g}", (1, floor), **note)
    axes.margins(x=0.02, y=0.1)
    log_scale(axes, "y", narrowest=1.5)
    axes.set(xlabel="index, in descending order", ylabel="singular value")
    return spectra


def plot_path(path: Path) -> Figure:
    """Errors along a path, for training and (if any) validation signals.

    The errors are relative, so that sets of different size can be compared: the sparsification
    error is the absolute one divided by the norm of the signals.

    The bound, or the number of transforms, that was chosen by the validation signals is marked by
    a line, and by a ring in the panel of the error that chose it.

    Parameters
    ----------
    path : ConditionPath or UnionPath
        The result of `kappaform.condition_path` or `kappaform.union_path`.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> path = kf.condition_path(signals[::2], [1, 2, 4], tol=1e-2, validation=signals[1::2])
    >>> kf.plots.plot_path(path).savefig("path.png")
    """
    if not isinstance(path, Path):
        raise TypeError(
            f"path is of type {type(path).__name__}: give a result of kappaform.condition_path or "
            "kappaform.union_path."
        )
    figure = Figure(figsize=(11.0, 3.8), layout="constrained")
    lines = [("", {"label": "training", "color": COLOURS[0], "marker": "o"})]
    if "validation_relative" in path.table:
        lines.append(("validation_", {"label": "validation", "color": COLOURS[1], "marker": "s"}))
    curves = [(path.table, prefix, style) for prefix, style in lines]
    draw_path_errors(figure, curves, path.parameter)
    if path.parameter == "n_transforms":
        for axes in figure.axes:  # they are few: each has its tick
            axes.xaxis.set_major_locator(FixedLocator(path["n_transforms"].tolist()))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if len(lines) > 1:
        figure.axes[0].legend(frameon=False)
    _mark_choice(figure, path)
    return figure


def _mark_choice(figure: Figure, path: Path) -> None:
    """Draw a line at what was chosen, and a ring around the error that chose it."""
    if path.chosen is None:
        return
    for axes, error in zip(figure.axes, PATH_LABELS, strict=True):
        axes.axvline(path.chosen, color="0.5", linewidth=1, linestyle="--", zorder=0)
        if error == path.choose_by:
            least = path[f"validation_{error}"][path[path.parameter] == path.chosen][0]
            style: dict[str, Any] = {"mfc": "none", "mec": "black", "markersize": 11}
            axes.plot(path.chosen, least, "o", label="chosen", **style)
            # Below the panel: inside, lines may be anywhere.
            axes.set_xlabel(f"{axes.get_xlabel()}, chosen: {path.chosen:g}")


def draw_path_errors(
    figure: Figure,
    lines: Iterable[tuple[Mapping[str, Any], str, dict[str, Any]]],
    parameter: str = "max_condition",
    labels: Mapping[str, str] = PATH_LABELS,
) -> None:
    """A panel for each error, over the bound or over another parameter.

    A line is a table, the prefix of the columns to take from it, and a style.
    """
    lines = list(lines)
    for axes, (error, label) in zip(figure.subplots(1, 3), labels.items(), strict=True):
        plain_axes(axes)
        for table, prefix, style in lines:
            axes.plot(table[parameter], table[prefix + error], markersize=4, **style)
        log_scale(axes, "x")
        log_scale(axes, "y")
        axes.set(xlabel=parameter, ylabel=label)


def matrix_of(item: object) -> NDArray:
    """The square matrix of a result, a fitted estimator or an array."""
    item = learned(item, "transform")
    matrix = np.asarray(getattr(item, "transform", item))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"transform has shape {matrix.shape}: give a result or an (n, n) array.")
    return matrix


def matrices_of(item: object) -> NDArray:
    """The matrices of a union, (K, n, n), or the only one of anything else."""
    item = learned(item, "transform")
    matrices = np.asarray(getattr(item, "transform", item))
    is_union = matrices.ndim == 3 and len(matrices) and matrices.shape[1] == matrices.shape[2]
    return matrices if is_union else matrix_of(item)[np.newaxis]


def plain_axes(axes: Axes) -> Axes:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    return axes


def log_scale(axes: Axes, which: Literal["x", "y"], narrowest: float = 1.0) -> None:
    """Logarithmic axis that spans at least the ratio `narrowest`; linear if all values are zero.

    Minor ticks show that it is logarithmic even where it spans too little for its labels to do so.
    """
    axis = axes.xaxis if which == "x" else axes.yaxis
    if axis.get_data_interval()[1] <= 0:
        return
    axes.set(**{f"{which}scale": "log"})
    low, high = axis.get_view_interval()
    widen = math.sqrt(max(1.0, narrowest * low / high))
    axes.set(**{f"{which}lim": (low / widen, high * widen)})
    decades = math.log10(high / low)
    if decades <= 3:
        is_short = decades <= 0.7
        few, many = (MaxNLocator(number, steps=_STEPS) for number in (9, 45))
        axis.set_major_locator(few if is_short else LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(many if is_short else LogLocator(subs=range(1, 10)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _one_panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = plain_axes(figure.subplots())
    axes.xaxis.set_major_locator(MaxNLocator(steps=_STEPS, integer=True))
    return figure, axes


def _named(items: Any, labels: Sequence[str] | None) -> dict[str, Any]:
    """One item, a sequence or a mapping of them as a mapping from distinct labels."""
    if isinstance(items, Mapping):
        labels, items = labels or list(items), list(items.values())
    elif not isinstance(items, list | tuple):
        items = [items]
    items = [learned(item, "an item to plot") for item in items]
    names = [_description(item) for item in items] if labels is None else list(labels)
    if not items or len(names) != len(items):
        raise ValueError(
            f"labels has {len(names)} entries for {len(items)} curves: "
            "give at least one result, and a label for each or none at all."
        )
    for place, name in enumerate(names):
        if name in names[:place]:
            names[place] = f"{name} ({place + 1})"
    return dict(zip(names, items, strict=True))


def _members(name: str, item: Any) -> list[tuple[str, Any]]:
    """The transforms of a union, with names; anything else as it is."""
    matrices = np.asarray(getattr(item, "transform", item))
    if matrices.ndim != 3:
        return [(name, item)]
    method = getattr(item, "method", None)
    return [
        (f"{name}, {number}", SimpleNamespace(method=method, transform=matrix))
        for number, matrix in enumerate(matrices)
    ]


def _description(item: object) -> str:
    method, bound = getattr(item, "method", None), _bound_of(item)
    method = method.method if isinstance(method, UnionOf) else method
    name = "transform" if method is None else type(method).__name__
    return f"{name}, $\\kappa \\leq$ {bound:g}" if bound < math.inf else name


def _bound_of(item: object) -> float:
    """Bound on the condition number; infinite if the method has none, or None for no bound."""
    bound = getattr(getattr(item, "method", None), "max_condition", None)
    return math.inf if bound is None else bound


def _colours(count: int) -> list[str | tuple[float, ...]]:
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    # More curves than distinct colours are a family: shade them in order.
    return [colormaps["cividis"](shade) for shade in np.linspace(0.0, 0.75, count)]


def _label_ends(axes: Axes, ends: Sequence[float], labels: Sequence[str]) -> None:
    """Each curve's label at the right, in its colour, as near to its end as the others allow."""
    axes.autoscale_view()
    heights = _spread(
        [axes.transAxes.inverted().transform(axes.transData.transform((1, y)))[1] for y in ends],
        gap=0.065 * (1 + max(label.count("\n") for label in labels)),
    )
    for height, label, colour in zip(heights, labels, _colours(len(labels)), strict=True):
        style: dict[str, Any] = {"color": colour, "va": "center", "fontsize": 9}
        axes.text(1.02, height, label, transform=axes.transAxes, **style)


def _spread(heights: Sequence[float], gap: float) -> NDArray:
    """Heights in [0, 1], moved as little as possible (least squares) to be `gap` apart."""
    from scipy.optimize import isotonic_regression

    count = len(heights)
    gap = min(gap, 1 / max(1, count - 1))
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(count)
    inside = np.clip(np.nan_to_num(np.asarray(heights, dtype=float)[order]), 0, 1)
    spread = np.empty(count)
    spread[order] = np.clip(isotonic_regression(inside - steps).x, 0, 1 - steps[-1]) + steps
    return spread
