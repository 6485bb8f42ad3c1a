"""Pictures of the table and of the figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from kappaform.paper.curves import ERRORS, Curve, name_of
from kappaform.paper.figures import Figures
from kappaform.paper.printed import IMAGES, METHODS, SIGMAS, SPARSITIES
from kappaform.paper.table import Row, Table
from kappaform.paper.tradeoff import N_NONZERO
from kappaform.plots.curves import COLOURS, log_scale, plain_axes

# Colours as in the other figures; dashes too, for print and for colour-blind readers.
_STYLES: dict[str, dict[str, Any]] = {
    "orthonormal": {"color": COLOURS[0], "linewidth": 1.2},
    "log-det": {"color": COLOURS[6], "linewidth": 1.2, "linestyle": (0, (5, 2))},
    "paper-absolute": {"color": COLOURS[5], "linewidth": 1.0},
    "public-absolute": {"color": COLOURS[4], "linewidth": 0.9},
    "reference-absolute": {"color": COLOURS[1], "linewidth": 1.4, "linestyle": (0, (1, 1))},
    "monotone-absolute": {"color": COLOURS[2], "linewidth": 1.8},
    "monotone-relative": {"color": COLOURS[3], "linewidth": 1.8, "linestyle": (0, (7, 1, 1, 1))},
}
_LABELS = {
    "orthonormal": "orthonormal",
    "log-det": "log-det",
    "paper-absolute": "conditioned, printed steps",
    "public-absolute": "conditioned, the authors' code",
    "reference-absolute": "conditioned, the authors' code with an exact spectrum",
    "monotone-absolute": "conditioned, monotone (absolute error)",
    "monotone-relative": "conditioned, monotone (relative error)",
}
_FORMULAS = {
    "absolute": r"absolute  $\Vert X - YW^{\mathsf{T}}\Vert_F$",
    "relative": r"relative  $\Vert X - YW^{\mathsf{T}}\Vert_F / \Vert YW^{\mathsf{T}}\Vert_F$",
    "per_norm": r"per norm  $\Vert X - YW^{\mathsf{T}}\Vert_F / \Vert W\Vert_F$",
    "reconstruction": r"reconstruction  $\Vert Y - XW^{-\mathsf{T}}\Vert_F / \Vert Y\Vert_F$",
}

# The scale of differences covers at least what another choice of patches changes.
_LOOKS: dict[str, dict[str, Any]] = {
    "psnr": {"format": ".2f", "least": 0.3},
    "ssim": {"format": ".3f", "least": 0.01},
}
_CELL: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "linespacing": 1.1}

Places = tuple[list[str], list[int]]  #: images down, levels across


def draw_table(table: Table) -> Figure:
    """PSNR and SSIM of each image and level: ours, the paper's, and the difference as colour."""
    images = [image for image in IMAGES if any(row["image"] == image for row in table.rows)]
    sigmas = [sigma for sigma in SIGMAS if any(row["sigma"] == sigma for row in table.rows)]
    made = {row["image"] for row in table.rows if row["noise"] == "made"}
    panels = 1 + len(METHODS)
    size = (2.2 + panels * max(1.6, 0.75 * len(sigmas)), 1.9 + 2 * 0.55 * len(images))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(2, panels, squeeze=False, sharex=True, sharey=True)
    for line, (quality, look) in enumerate(_LOOKS.items()):
        differences = [abs(row[f"{quality}_difference"]) for row in table.rows]
        limit = max([look["least"], *differences])
        for axes, method in zip(grid[line, 1:], METHODS, strict=True):
            rows = [row for row in table.rows if row["method"] == method]
            colours = _draw_cells(axes, rows, (images, sigmas), quality, limit)
            axes.set_title(f"{quality.upper()}, {method}", loc="left", fontsize=10)
        _draw_noisy(grid[line, 0], table.rows, (images, sigmas), quality)
        figure.colorbar(colours, ax=grid[line].tolist(), shrink=0.9, pad=0.01)
    grid[0, 0].set_yticks(range(len(images)), [f"{name}{'*' * (name in made)}" for name in images])
    for axes in grid[-1]:
        axes.set_xticks(range(len(sigmas)), [str(sigma) for sigma in sigmas])
        axes.set_xlabel(r"noise level $\sigma$")
    figure.suptitle(_table_title(table, bool(made)), x=0.01, ha="left", fontsize=11)
    return figure


def _table_title(table: Table, made: bool) -> str:
    settings = table.settings
    side = settings["patch_size"]
    title = "Table 1 with the paper's settings"
    if settings["quick"]:
        title += f": QUICK RUN, {len(table.rows)} cells"
    title += f"\npatches of {side} × {side} pixels, seed {settings['seed']}, variant "
    title += f"{settings['variant']} of the conditioned method"
    title += "\nin each cell: ours, the paper's, the difference (also as colour); PSNR in dB"
    if side != 11:
        title += "\nthe paper's values are of patches of 11 × 11 pixels"
    if made:
        title += "\n* noise made here with a fixed seed: no noisy images of this one are public"
    return title


def _draw_cells(
    axes: Axes, rows: Sequence[Row], places: Places, quality: str, limit: float
) -> AxesImage:
    images, sigmas = places
    number = _LOOKS[quality]["format"]
    values = np.full((len(images), len(sigmas)), np.nan)
    for row in rows:
        place = images.index(row["image"]), sigmas.index(row["sigma"])
        values[place] = row[f"{quality}_difference"]
        lines = (f"{row[quality]:{number}}", f"{row[f'paper_{quality}']:{number}}")
        text = "\n".join((*lines, f"{values[place]:+{number}}"))
        dark = abs(values[place]) > 0.6 * limit
        axes.text(*place[::-1], text, color="white" if dark else "black", **_CELL)
    _without_frame(axes)
    return axes.imshow(values, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")


def _draw_noisy(axes: Axes, rows: Sequence[Row], places: Places, quality: str) -> None:
    images, sigmas = places
    number = _LOOKS[quality]["format"]
    for image, sigma, value in {
        (row["image"], row["sigma"], row[f"noisy_{quality}"]) for row in rows
    }:
        axes.text(sigmas.index(sigma), images.index(image), f"{value:{number}}", **_CELL)
    _without_frame(axes)
    axes.set_title(f"{quality.upper()}, noisy", loc="left", fontsize=10)


def _without_frame(axes: Axes) -> None:
    axes.set_facecolor("0.95")  # what shows where there is no difference
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def draw_curves(figures: Figures, n_nonzero: int) -> Figure:
    """Errors over the iterations, a column for each weight: Figures 1 and 2 of the paper."""
    curves = [curve for curve in figures.curves if curve["n_nonzero"] == n_nonzero]
    weights = [curve["weight"] for curve in curves if curve["method"] == "log-det"]
    width = max(9.5, 0.6 + 3.6 * len(weights))
    figure = Figure(figsize=(width, 9.4), layout="constrained")
    grid = figure.subplots(len(ERRORS), len(weights), squeeze=False, sharex=True, sharey="row")
    for column, weight in enumerate(weights):
        shown = [curve for curve in curves if curve["weight"] in (None, weight)]
        for axes, error in zip(grid[:, column], ERRORS, strict=True):
            _draw_errors(axes, shown, error)
        penalised = next(curve for curve in shown if curve["method"] == "log-det")
        grid[0, column].set_title(_setting_title(penalised), loc="left", fontsize=10)
        grid[-1, column].set_xlabel("iteration")
    for axes, error in zip(grid[:, 0], ERRORS, strict=True):
        axes.set_ylabel(_FORMULAS[error])
        log_scale(axes, "y")
    _add_legend(figure, grid[0, 0])
    figure.suptitle(_curves_title(figures, n_nonzero), x=0.01, ha="left", fontsize=12)
    return figure


def _draw_errors(axes: Axes, curves: Sequence[Curve], error: str) -> None:
    plain_axes(axes)
    for curve in sorted(curves, key=lambda curve: list(_STYLES).index(name_of(curve))):
        name, values = name_of(curve), curve[error]
        axes.plot(range(1, len(values) + 1), values, label=_LABELS[name], **_STYLES[name])
    axes.margins(x=0.02)


def _setting_title(curve: Curve) -> str:
    return (
        rf"weight $\mu$ = {curve['weight']:g} $\Vert Y\Vert_F^2$" + "\n"
        rf"$\kappa \leq$ {curve['condition_number']:.4g},  $\Vert W\Vert_F$ = {curve['norm']:.3g}"
    )


def _curves_title(figures: Figures, n_nonzero: int) -> str:
    number = 1 + SPARSITIES.index(n_nonzero)
    return (
        f"Figure {number}: representation errors of codes with {n_nonzero} nonzeros\n"
        f"{_signals_title(figures)}\n"
        "Errors are with each transform's own codes.\n"
        "The monotone variant explores several starts: drawn is the best transform so far.\n"
        "Bound and norm of the conditioned transforms are those of the final log-det transform."
    )


def _signals_title(figures: Figures) -> str:
    settings = figures.settings
    images = ", ".join(settings["images"])
    quick = "QUICK RUN, few signals: " * settings["quick"]
    return f"{quick}{settings['n_signals']} patches of 8 × 8 pixels of {images}"


def draw_paths(figures: Figures) -> Figure:
    """Three errors over the bound, on signals that were learned from and on others."""
    figure = Figure(figsize=(14.0, 5.4), layout="constrained")
    errors = ("absolute", "relative", "reconstruction")
    for axes, error in zip(figure.subplots(1, 3), errors, strict=True):
        plain_axes(axes)
        for path in figures.paths:
            name = f"{path['variant']}-{path['objective']}"
            style = {"color": _STYLES[name]["color"], "markersize": 4.0, "linewidth": 1.4}
            bounds = path["table"]["max_condition"]
            axes.plot(bounds, path["table"][error], "o-", label=_LABELS[name], **style)
            other = path["table"][f"validation_{error}"]
            label = "the same on validation signals"
            axes.plot(bounds, other, "s:", markerfacecolor="white", label=label, **style)
        log_scale(axes, "x")
        log_scale(axes, "y")
        axes.set_title(_FORMULAS[error], loc="left", fontsize=11)
        axes.set_xlabel(r"bound $\kappa$ on the condition number")
    _add_legend(figure, figure.axes[0])
    title = (
        f"Figure 3: errors over the bound, codes with {N_NONZERO} nonzeros\n"
        f"{_signals_title(figures)}, half of them learned from, half for validation"
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def _add_legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = math.ceil(len(labels) / 2)
    figure.legend(
        handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=9
    )
