"""What the figures share: colours, axes, labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from kappaform.learning.result import learned

# Okabe and Ito's palette without its yellow: distinct for colour-blind readers, and in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STEPS = [1, 2, 5, 10]


def named(items: Any, labels: Sequence[str] | None) -> dict[str, Any]:
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


def _description(item: object) -> str:
    method = getattr(item, "method", None)
    bound = getattr(method, "max_condition", math.inf)
    name = "transform" if method is None else type(method).__name__
    return f"{name}, $\\kappa \\leq$ {bound:g}" if bound < math.inf else name


def as_matrix(item: object) -> NDArray:
    item = learned(item, "transform")
    matrix = np.asarray(getattr(item, "transform", item))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"transform has shape {matrix.shape}: give a result or an (n, n) array.")
    return matrix


def colours(count: int) -> list[str | tuple[float, ...]]:
    if count <= len(COLOURS):
        return list(COLOURS[:count])
    # More curves than distinct colours are a family: shade them in order.
    return [colormaps["cividis"](shade) for shade in np.linspace(0.0, 0.75, count)]


def curves(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = plain_axes(figure.subplots())
    axes.xaxis.set_major_locator(MaxNLocator(steps=STEPS, integer=True))
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def plain_axes(axes: Axes) -> Axes:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    return axes


def log_scale(axes: Axes, which: Literal["x", "y"], narrowest: float = 1.0) -> None:
    """Logarithmic axis that spans at least the ratio `narrowest`; linear if all values are zero."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if axis.get_data_interval()[1] <= 0:
        return
    axes.set(**{f"{which}scale": "log"})
    low, high = axis.get_view_interval()
    widen = math.sqrt(max(1.0, narrowest * low / high))
    axes.set(**{f"{which}lim": (low / widen, high * widen)})
    decades = math.log10(high / low)
    if decades <= 3:
        few = MaxNLocator(9, steps=STEPS)
        axis.set_major_locator(few if decades <= 0.7 else LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())


def label_ends(axes: Axes, ends: Sequence[float], labels: Sequence[str]) -> None:
    """Each curve's label at the right, in its colour, as near to its end as the others allow."""
    axes.autoscale_view()
    heights = _spread(
        [axes.transAxes.inverted().transform(axes.transData.transform((1, y)))[1] for y in ends],
        gap=0.065 * (1 + max(label.count("\n") for label in labels)),
    )
    for height, label, colour in zip(heights, labels, colours(len(labels)), strict=True):
        style: dict[str, Any] = {"color": colour, "va": "center", "fontsize": 9}
        axes.text(1.02, height, label, transform=axes.transAxes, **style)


def _spread(heights: Sequence[float], gap: float) -> NDArray:
    """Heights in [0, 1] moved as little as possible (least squares) to be `gap` apart."""
    count = len(heights)
    gap = min(gap, 1 / max(1, count - 1))
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(count)
    inside = np.clip(np.nan_to_num(np.asarray(heights, dtype=float)[order]), 0, 1)
    spread = np.empty(count)
    spread[order] = np.clip(isotonic_regression(inside - steps).x, 0, 1 - steps[-1]) + steps
    return spread
