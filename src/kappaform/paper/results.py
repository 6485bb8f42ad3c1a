"""The files that a run leaves: csv, Markdown and pictures, each written when it is complete."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from kappaform.paper.curves import curve_rows, summary_rows
from kappaform.paper.figure_text import figure_text
from kappaform.paper.figures import Figures
from kappaform.paper.pictures import draw_curves, draw_paths, draw_table
from kappaform.paper.table import Table
from kappaform.paper.table_text import table_text
from kappaform.paper.tradeoff import path_rows
from kappaform.paper.writing import write_csv, write_picture, write_text


def write_table(out: Path, table: Table) -> list[str]:
    """Write what was computed of Table 1; names of the files."""
    files: dict[str, Callable[[Path], None]] = {
        "table1.csv": partial(write_csv, rows=table.rows),
        "table1.md": partial(write_text, text=table_text(table)),
        "timings.csv": partial(write_csv, rows=_timings(table.seconds)),
    }
    if table.rows:
        files["table1.png"] = partial(write_picture, figure=draw_table(table))
    return _write(out, files)


def write_figures(out: Path, figures: Figures) -> list[str]:
    """Write what the figures show, and draw them; names of the files."""
    sparsities = sorted({curve["n_nonzero"] for curve in figures.curves})
    files: dict[str, Callable[[Path], None]] = {
        "figures.csv": partial(write_csv, rows=curve_rows(figures.curves)),
        "figures_summary.csv": partial(write_csv, rows=summary_rows(figures.curves)),
        "path.csv": partial(write_csv, rows=path_rows(figures.paths)),
        "figures.md": partial(write_text, text=figure_text(figures)),
        "figures_timings.csv": partial(write_csv, rows=_timings(figures.seconds)),
        **{
            f"figure{number}.png": partial(write_picture, figure=draw_curves(figures, n_nonzero))
            for number, n_nonzero in enumerate(sparsities, start=1)
        },
        "figure3.png": partial(write_picture, figure=draw_paths(figures)),
    }
    return _write(out, files)


def _write(out: Path, files: dict[str, Callable[[Path], None]]) -> list[str]:
    for name, write in files.items():
        write(out / name)
    return [str(out / name) for name in files]


def _timings(seconds: dict[str, float]) -> list[dict[str, Any]]:
    return [{"part": name, "seconds": value} for name, value in seconds.items()]
