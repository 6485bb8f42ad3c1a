"""Figures of what was learned.

Every function returns a new matplotlib ``Figure`` that belongs to no window and no global state:
``figure.savefig("spectrum.png")`` writes it, a notebook shows it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray
from scipy.fft import dctn
from scipy.optimize import isotonic_regression

if TYPE_CHECKING:
    from kappaform.learning import ConditionPath, LearnResult

# Okabe and Ito's palette without its yellow: distinct for colour-blind readers, and in print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STEPS = [1, 2, 5, 10]

_FORMULA = {
    "absolute": r"$\Vert X - YW^{\mathsf{T}}\Vert_F$",
    "relative": r"$\Vert X - YW^{\mathsf{T}}\Vert_F\; / \;\Vert YW^{\mathsf{T}}\Vert_F$",
    "reconstruction": r"$\Vert Y - XW^{-\mathsf{T}}\Vert_F\; / \;\Vert Y\Vert_F$",
}


def plot_convergence(
    results: LearnResult | Sequence[LearnResult] | Mapping[str, LearnResult],
    labels: Sequence[str] | None = None,
    error: Literal["absolute", "relative"] = "absolute",
) -> Figure:
    """Sparsification error over the iterations, one curve for each result.

    Parameters
    ----------
    results : LearnResult, sequence of them, or mapping from label to LearnResult
    labels : sequence of str, optional
        One for each result; by default its method.
    error : {"absolute", "relative"}
        ‖X − YWᵀ‖_F, or the same divided by ‖YWᵀ‖_F.
    """
    if error not in ("absolute", "relative"):
        raise ValueError(f"error={error!r} is unknown: give 'absolute' or 'relative'.")
    figure, axes = _curves("iteration", f"{error} error  {_FORMULA[error]}")
    named = _named(results, labels)
    curves = [np.asarray(getattr(result.errors, error)) for result in named.values()]
    for curve, colour in zip(curves, _colours(len(curves)), strict=True):
        axes.plot(np.arange(curve.size), curve, color=colour, linewidth=1.8)
        axes.plot(curve.size - 1, curve[-1], "o", color=colour, markersize=4)
    axes.margins(x=0.02)
    _log_scale(axes, "y")
    _label_ends(axes, [curve[-1] for curve in curves], list(named))
    return figure


def plot_spectrum(
    transforms: LearnResult | NDArray | Sequence[LearnResult | NDArray] | Mapping[str, object],
    labels: Sequence[str] | None = None,
) -> Figure:
    """Singular values of transforms in descending order.

    Where a result's method has a bound on the condition number, a dashed line shows the floor that
    the bound leaves below the largest singular value: max σ / max_condition.

    Parameters
    ----------
    transforms : LearnResult or (n, n) array, a sequence of them, or a mapping from label to them
    labels : sequence of str, optional
        One for each transform; by default its method, or "transform".
    """
    figure, axes = _curves("index, in descending order", r"singular value $\sigma$")
    named = _named(transforms, labels)
    spectra = [np.linalg.svd(_matrix(item), compute_uv=False) for item in named.values()]
    for item, spectrum, colour in zip(named.values(), spectra, _colours(len(spectra)), strict=True):
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
    axes.margins(x=0.02, y=0.1)
    _log_scale(axes, "y", narrowest=1.5)
    notes = [
        f"{name}\ncondition {np.linalg.cond(_matrix(item)):.4g}" for name, item in named.items()
    ]
    _label_ends(axes, [spectrum[-1] for spectrum in spectra], notes)
    return figure


def plot_atoms(
    transform: LearnResult | NDArray, patch_shape: int | Sequence[int] | None = None
) -> Figure:
    """The rows of a transform as patches, from low to high spatial frequency.

    Each atom has its own scale, symmetric about zero, which is mid-grey.

    Parameters
    ----------
    transform : LearnResult or (n, n) array
    patch_shape : int or sequence of 1 to 3 ints, optional
        Shape of the patches, flattened in C order; by default square. Of a three-dimensional patch
        the slices along its first axis are shown side by side.
    """
    matrix = _matrix(transform)
    atoms = matrix.reshape(-1, *_patch_shape(matrix.shape[1], patch_shape))
    atoms = atoms[np.argsort([_frequency(atom) for atom in atoms], kind="stable")]
    mosaic = _mosaic([_tile(atom) for atom in atoms])
    height, width = mosaic.shape
    longest = 6.0 / max(height, width)
    figure = Figure(figsize=(width * longest, height * longest), layout="constrained")
    axes = figure.subplots()
    # Margins in a colour: white or black ones would run into the atoms.
    grey = colormaps["gray"].with_extremes(bad="#6BA3CF")
    axes.imshow(mosaic, cmap=grey, vmin=-1, vmax=1, interpolation="nearest")
    axes.set_axis_off()
    return figure


def plot_path(path: ConditionPath) -> Figure:
    """Errors along a `kappaform.condition_path`, for training and (if any) validation signals."""
    figure = Figure(figsize=(11.0, 3.8), layout="constrained")
    errors = ("absolute", "relative", "reconstruction")
    bounds = path["max_condition"]
    for axes, error in zip(figure.subplots(1, 3), errors, strict=True):
        _plain_axes(axes)
        for prefix, colour, marker in (("", _COLOURS[0], "o"), ("validation_", _COLOURS[1], "s")):
            if prefix + error in path.table:
                values = path.table[prefix + error]
                name = "validation" if prefix else "training"
                axes.plot(bounds, values, f"{marker}-", color=colour, markersize=4, label=name)
        _log_scale(axes, "x")
        _log_scale(axes, "y")
        axes.set_title(f"{error} error  {_FORMULA[error]}", fontsize=10, loc="left")
        axes.set_xlabel("max_condition")
    if "validation_absolute" in path.table:
        figure.axes[0].legend(frameon=False)
    return figure


def _named(items: Any, labels: Sequence[str] | None) -> dict[str, Any]:
    """One item, a sequence or a mapping of them as a mapping from distinct labels."""
    if isinstance(items, Mapping):
        labels, items = labels or list(items), list(items.values())
    elif not isinstance(items, list | tuple):
        items = [items]
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


def _matrix(item: object) -> NDArray:
    matrix = np.asarray(getattr(item, "transform", item))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"transform has shape {matrix.shape}: give a result or an (n, n) array.")
    return matrix


def _patch_shape(n_features: int, given: int | Sequence[int] | None) -> tuple[int, ...]:
    if given is None:
        side = math.isqrt(n_features)
        if side**2 != n_features:
            raise ValueError(
                f"patch_shape=None means square patches, but n_features={n_features} is no square: "
                "give the shape of the patches."
            )
        return side, side
    shape = (given,) if isinstance(given, int) else tuple(given)
    if len(shape) not in (1, 2, 3) or min(shape) < 1 or math.prod(shape) != n_features:
        raise ValueError(
            f"patch_shape={given} does not fit n_features={n_features}: give 1 to 3 positive "
            f"integers whose product is {n_features}."
        )
    return shape


def _frequency(atom: NDArray) -> float:
    """Mean frequency of an atom: where its energy lies in the DCT domain (0: constant)."""
    energy = dctn(atom, norm="ortho") ** 2
    squares = [(np.arange(side) / side) ** 2 for side in atom.shape]
    radius = np.sqrt(sum(np.meshgrid(*squares, indexing="ij")))
    total = energy.sum()
    return float((radius * energy).sum() / total) if total > 0 else 0.0


def _tile(atom: NDArray) -> NDArray:
    """An atom as a picture with values in [-1, 1], slices of a volume separated by a thin line."""
    atom = atom / (np.abs(atom).max() or 1.0)
    if atom.ndim < 3:
        return np.atleast_2d(atom)
    line = np.full((atom.shape[1], 1), np.nan)
    return np.hstack([part for piece in atom for part in (line, piece)][1:])


def _mosaic(tiles: list[NDArray]) -> NDArray:
    """Tiles in rows, about as wide as high, with margins that are not a number."""
    height, width = tiles[0].shape
    gap = 2 if width > 2 * height else 1  # more than between the slices of a volume
    columns = max(1, round(math.sqrt(len(tiles) * (height + gap) / (width + gap))))
    rows = -(-len(tiles) // columns)
    mosaic = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap), np.nan)
    for place, tile in enumerate(tiles):
        top, left = (height + gap) * (place // columns), (width + gap) * (place % columns)
        mosaic[top : top + height, left : left + width] = tile
    return mosaic


def _colours(count: int) -> list[str | tuple[float, ...]]:
    if count <= len(_COLOURS):
        return list(_COLOURS[:count])
    # More curves than distinct colours are a family: shade them in order.
    return [colormaps["cividis"](shade) for shade in np.linspace(0.0, 0.75, count)]


def _curves(xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = _plain_axes(figure.subplots())
    axes.xaxis.set_major_locator(MaxNLocator(steps=_STEPS, integer=True))
    axes.set(xlabel=xlabel, ylabel=ylabel)
    return figure, axes


def _plain_axes(axes: Axes) -> Axes:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.7)
    axes.set_axisbelow(True)
    return axes


def _log_scale(axes: Axes, which: Literal["x", "y"], narrowest: float = 1.0) -> None:
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
        few = MaxNLocator(9, steps=_STEPS)
        axis.set_major_locator(few if decades <= 0.7 else LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())


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
    """Heights in [0, 1] moved as little as possible (least squares) to be `gap` apart."""
    count = len(heights)
    gap = min(gap, 1 / max(1, count - 1))
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(count)
    inside = np.clip(np.nan_to_num(np.asarray(heights, dtype=float)[order]), 0, 1)
    spread = np.empty(count)
    spread[order] = np.clip(isotonic_regression(inside - steps).x, 0, 1 - steps[-1]) + steps
    return spread
