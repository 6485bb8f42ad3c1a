"""Files of a run: CSV for programs, Markdown and figures for people."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kappaform.files import replaced_when_complete
from kappaform.paper.data import IMAGES, METHODS, SIGMAS
from kappaform.paper.figures import COLUMNS, ERRORS, PATH_NONZEROS, Figures, name_of
from kappaform.paper.table import Table
from kappaform.plots.curves import COLOURS, LABELS, draw_path_errors, log_scale, plain_axes

Rows = Sequence[dict[str, Any]]

_SETTING = ("n_nonzero", "weight", "method", "variant", "objective")
_REACHED = ("condition_number", "norm", "n_iter", "stop_reason", *ERRORS)
_RISES = ("absolute_rises", "absolute_largest_rise", "relative_rises", "relative_largest_rise")
_PRINTED = """\
Differences are ours minus the paper's, which are for patches of 11 × 11 pixels. Where the noise is
"made", no noisy images are public: it is simulated with a fixed seed."""
_PER_NORM = r"error per norm  $\Vert X - YW^{\mathsf{T}}\Vert_F\; / \;\Vert W\Vert_F$"

# Label, colour, width and dashes: distinct for colour-blind readers, and in print.
_LOOKS: dict[str, tuple[str, str, float, Any]] = {
    "orthonormal": ("orthonormal", COLOURS[0], 1.2, "-"),
    "log-det": ("log-det", COLOURS[6], 1.2, (0, (5, 2))),
    "paper-absolute": ("conditioned, printed steps", COLOURS[5], 1.0, "-"),
    "public-absolute": ("conditioned, the authors' code", COLOURS[4], 0.9, "-"),
    "reference-absolute": ("the same with an exact spectrum", COLOURS[1], 1.4, (0, (1, 1))),
    "monotone-absolute": ("monotone (absolute error)", COLOURS[2], 1.8, "-"),
    "monotone-relative": ("monotone (relative error)", COLOURS[3], 1.8, (0, (7, 1, 1, 1))),
}


def write_table(out: Path, table: Table) -> list[str]:
    """Write the computed part of Table 1; returns the names of the files."""
    files: dict[str, str | Figure] = {
        "table1.csv": _csv(table.cells),
        "table1.md": _table_text(table),
        "timings.csv": _csv(_rows(part=table.seconds, seconds=table.seconds.values())),
    }
    if table.cells:
        files["table1.png"] = draw_table(table)
    return _write(out, files)


def write_figures(out: Path, figures: Figures) -> list[str]:
    """Write the data of the figures, and draw them; returns the names of the files."""
    points = [
        {name: curve[name] for name in _SETTING} | {"iteration": iteration} | point
        for curve in figures.points
        for iteration, point in enumerate(_rows(**{name: curve[name] for name in COLUMNS}), 1)
    ]
    paths = [
        {"variant": path["variant"], "objective": path["objective"]} | row
        for path in figures.paths
        for row in _rows(**path["table"])
    ]
    files: dict[str, str | Figure] = {
        "figures.csv": _csv(points, ".9g"),
        "figures_summary.csv": _csv(figures.curves, ".9g"),
        "path.csv": _csv(paths, ".9g"),
        "figures.md": _figures_text(figures, paths),
        "figures_timings.csv": _csv(_rows(part=figures.seconds, seconds=figures.seconds.values())),
    }
    sparsities = sorted({curve["n_nonzero"] for curve in figures.points})
    for number, n_nonzero in enumerate(sparsities, start=1):
        files[f"figure{number}.png"] = _draw_curves(figures, number, n_nonzero)
    files["figure3.png"] = _draw_paths(figures)
    return _write(out, files)


def _write(out: Path, files: dict[str, str | Figure]) -> list[str]:
    for name, content in files.items():
        with replaced_when_complete(out / name) as file:
            if isinstance(content, str):
                file.write(content.encode())
            else:
                content.savefig(file, format="png", dpi=120)
    return [str(out / name) for name in files]


def _rows(**columns: Iterable[Any]) -> Rows:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _csv(rows: Rows, number: str = "") -> str:
    """Rows with the same columns, floats in the format `number`; empty if there are none."""
    text = io.StringIO()
    if rows:
        csv.writer(text, lineterminator="\n").writerows(_lines(rows, number))
    return text.getvalue()


def _markdown(rows: Rows, number: str = "") -> str:
    if not rows:
        return ""
    header, *lines = _lines(rows, number)
    lines = [header, ["--:"] * len(header), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _lines(rows: Rows, number: str) -> list[list[str]]:
    def text(value: Any) -> str:
        return "" if value is None else format(value, number if isinstance(value, float) else "")

    return [list(rows[0]), *([text(value) for value in row.values()] for row in rows)]


def _table_text(table: Table) -> str:
    text = ["# Table 1: PSNR in dB, and SSIM after downsampling", "", *facts(table.settings, "- ")]
    text += ["", _PRINTED, "", _markdown(table.cells), *facts(table.summary, "- ")]
    text += [f"- {name} is left out: {reason}" for name, reason in table.left_out.items()]
    return "\n".join([*text, ""])


def _figures_text(figures: Figures, paths: Rows) -> str:
    shown = (*_SETTING, *_REACHED, *_RISES)
    curves = [{name: curve[name] for name in shown} for curve in figures.curves]
    text = ["# Figures 1 and 2: errors over the iterations", "", *facts(figures.settings, "- ")]
    text += ["", _markdown(curves, ".5g"), "# Figure 3: errors over the bound", ""]
    return "\n".join([*text, _markdown(paths, ".4g")])


def facts(document: dict[str, Any], mark: str = "") -> list[str]:
    """The entries of a document as lines."""
    lines = []
    for name, value in document.items():
        values = list(value.values()) if isinstance(value, dict) else value
        text = ", ".join(map(str, values)) or "none" if isinstance(values, list) else values
        lines.append(f"{mark}{name.replace('_', ' ')}: {text}")
    return lines


def draw_table(table: Table) -> Figure:
    """PSNR and SSIM of each image and level: ours, the paper's, and the difference as colour."""
    images = [image for image in IMAGES if any(row["image"] == image for row in table.cells)]
    sigmas = [sigma for sigma in SIGMAS if any(row["sigma"] == sigma for row in table.cells)]
    made = {row["image"] for row in table.cells if row["noise"] == "made"}
    panels = ("noisy", *METHODS)
    size = (2.2 + len(panels) * max(1.6, 0.75 * len(sigmas)), 1.9 + 2 * 0.55 * len(images))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(2, len(panels), squeeze=False, sharex=True, sharey=True)
    # The scale of differences covers at least the effect of another choice of patches.
    for line, (quality, least) in zip(grid, (("psnr", 0.3), ("ssim", 0.01)), strict=True):
        limit = max(least, *(abs(row[f"{quality}_difference"]) for row in table.cells))
        for axes, panel in zip(line, panels, strict=True):
            values = np.full((len(images), len(sigmas)), np.nan)
            for row in table.cells:
                if row["method"] == (METHODS[0] if panel == "noisy" else panel):
                    place = images.index(row["image"]), sigmas.index(row["sigma"])
                    values[place] = _draw_cell(axes, place, row, panel, quality, limit)
            colours = axes.imshow(values, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
            axes.set_title(f"{quality.upper()}, {panel}", loc="left", fontsize=10)
            axes.set_facecolor("0.95")  # visible where there is no difference
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0)
        figure.colorbar(colours, ax=line.tolist(), shrink=0.9, pad=0.01)
    grid[0, 0].set_yticks(range(len(images)), [f"{name}{'*' * (name in made)}" for name in images])
    for axes in grid[-1]:
        axes.set_xticks(range(len(sigmas)), [str(sigma) for sigma in sigmas])
        axes.set_xlabel(r"noise level $\sigma$")
    _add_title(
        figure,
        "{}Table 1: patches of {patch_size} pixels per side, variant {variant}, seed {seed}".format(
            "QUICK RUN, " * table.settings["quick"], **table.settings
        ),
        "In each cell: ours, the paper's (11 pixels per side), the difference; PSNR in dB",
        "* simulated noise with a fixed seed, no noisy images are public" * bool(made),
    )
    return figure


def _draw_cell(
    axes: Axes, place: tuple[int, int], row: dict[str, Any], panel: str, quality: str, limit: float
) -> float:
    """Write the numbers of a cell; returns the difference to show as colour, if any."""
    number = ".2f" if quality == "psnr" else ".3f"
    difference, text = math.nan, f"{row[f'noisy_{quality}']:{number}}"
    if panel != "noisy":
        difference = row[f"{quality}_difference"]
        text = (
            f"{row[quality]:{number}}\n{row[f'paper_{quality}']:{number}}\n{difference:+{number}}"
        )
    colour = "white" if abs(difference) > 0.6 * limit else "black"
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "linespacing": 1.1}
    axes.text(*place[::-1], text, color=colour, **style)
    return difference


def _draw_curves(figures: Figures, number: int, n_nonzero: int) -> Figure:
    """Errors over the iterations, one column per weight: Figures 1 and 2 of the paper."""
    curves = [curve for curve in figures.points if curve["n_nonzero"] == n_nonzero]
    log_dets = [curve for curve in curves if curve["method"] == "log-det"]
    figure = Figure(figsize=(max(9.5, 0.6 + 3.6 * len(log_dets)), 9.4), layout="constrained")
    grid = figure.subplots(len(ERRORS), len(log_dets), squeeze=False, sharex=True, sharey="row")
    for line, error in zip(grid, ERRORS, strict=True):
        for axes, log_det in zip(line, log_dets, strict=True):
            plain_axes(axes)
            for curve in curves:
                if curve["weight"] in (None, log_det["weight"]):
                    steps = range(1, 1 + len(curve[error]))
                    axes.plot(steps, curve[error], **_look(name_of(curve)))
            axes.margins(x=0.02)
        line[0].set_ylabel(LABELS.get(error, _PER_NORM), fontsize=9)
        log_scale(line[0], "y")
    for axes, log_det in zip(grid[0], log_dets, strict=True):
        bound = rf"$\kappa \leq$ {log_det['condition_number']:.4g}"
        norm = rf"$\Vert W\Vert_F$ = {log_det['norm']:.3g}"
        weight = rf"weight $\mu$ = {log_det['weight']:g} $\Vert Y\Vert_F^2$"
        axes.set_title(f"{weight}\n{bound},  {norm}", loc="left", fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel("iteration")
    title = f"Figure {number}: errors over the iterations, {n_nonzero} nonzeros"
    _add_title(figure, title, _signals(figures))
    return figure


def _draw_paths(figures: Figures) -> Figure:
    """Three errors over the bound, on training and on held-out signals."""
    figure = Figure(figsize=(14.0, 5.4), layout="constrained")
    lines: list[tuple[dict[str, Any], str, dict[str, Any]]] = []
    for path in figures.paths:
        look = _look(name_of(path)) | {"linewidth": 1.4, "linestyle": "-"}
        lines.append((path["table"], "", look | {"marker": "o"}))
        other = {"marker": "s", "linestyle": ":", "markerfacecolor": "white"}
        look["label"] = "the same on validation signals"
        lines.append((path["table"], "validation_", look | other))
    draw_path_errors(figure, lines, labels=LABELS)  # of as many signals
    title = f"Figure 3: errors over the bound, {PATH_NONZEROS} nonzeros"
    _add_title(figure, title, f"{_signals(figures)}, half of them for validation")
    return figure


def _signals(figures: Figures) -> str:
    settings = figures.settings
    quick, images = "QUICK RUN, " * settings["quick"], ", ".join(settings["images"])
    return f"{quick}{settings['n_signals']} patches of 8 × 8 pixels of {images}"


def _look(name: str) -> dict[str, Any]:
    return dict(zip(("label", "color", "linewidth", "linestyle"), _LOOKS[name], strict=True))


def _add_title(figure: Figure, *lines: str) -> None:
    """Add a title above all panels, and the legend of the first one below them."""
    figure.suptitle("\n".join(lines).strip(), x=0.01, ha="left", fontsize=11)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if handles:
        style: dict[str, Any] = {"ncols": 4, "frameon": False, "fontsize": 9}
        figure.legend(handles, labels, loc="outside lower left", **style)
