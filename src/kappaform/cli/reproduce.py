"""`kappaform reproduce`: the table and the figures of the paper."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kappaform.cli.io import complain, say, say_json
from kappaform.paper.curves import summary_rows
from kappaform.paper.figure_text import comparison_lines
from kappaform.paper.figures import reproduce_figures
from kappaform.paper.parts import Watch, n_finished
from kappaform.paper.results import write_figures, write_table
from kappaform.paper.table import reproduce_table, summary_of
from kappaform.paper.table_text import summary_lines

_INCOMPLETE, _INTERRUPTED = 1, 130


def table1(arguments: Namespace) -> int:
    return _resumable(_table1, "table1", arguments)


def figures(arguments: Namespace) -> int:
    return _resumable(_figures, "figures", arguments)


def _table1(arguments: Namespace, out: Path) -> int:
    with _remaining_time("table 1") as watch:
        table = reproduce_table(
            Path(arguments.data),
            out,
            images=arguments.images,
            sigmas=arguments.sigmas,
            patch_size=arguments.patch_size,
            variant=arguments.variant,
            seed=arguments.seed,
            n_workers=arguments.workers,
            quick=arguments.quick,
            watch=watch,
        )
    for name, reason in table.failures.items():
        complain(f"{name} is left out: {reason}")
    written = write_table(out, table)
    if arguments.json:
        say_json(
            {
                "cells": table.rows,
                "summary": summary_of(table),
                "left_out": table.failures,
                "settings": table.settings,
                "written": written,
            }
        )
    else:
        _say_all(summary_lines(table), written)
    return _INCOMPLETE if table.failures else 0


def _figures(arguments: Namespace, out: Path) -> int:
    with _remaining_time("figures") as watch:
        found = reproduce_figures(
            Path(arguments.data),
            out,
            images=arguments.images,
            n_iter=arguments.n_iter,
            seed=arguments.seed,
            n_workers=arguments.workers,
            quick=arguments.quick,
            watch=watch,
        )
    written = write_figures(out, found)
    if arguments.json:
        say_json(
            {
                "curves": summary_rows(found.curves),
                "paths": found.paths,
                "settings": found.settings,
                "written": written,
            }
        )
    else:
        _say_all(comparison_lines(found), written)
    return 0


def _resumable(run: Callable[[Namespace, Path], int], what: str, arguments: Namespace) -> int:
    out = Path(arguments.output)
    try:
        return run(arguments, out)
    except KeyboardInterrupt:
        complain(
            f"interrupted: {n_finished(out, what)} parts are finished and kept in {out}; the same "
            "command goes on with the others"
        )
        return _INTERRUPTED


def _say_all(lines: list[str], written: list[str]) -> None:
    for line in lines:
        say(line)
    say(f"written: {', '.join(written)}")


@contextmanager
def _remaining_time(name: str) -> Iterator[Watch | None]:
    """Shows on a terminal how much is done and how long the rest may take; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    style = "{desc}, {percentage:.0f} % of the work, {elapsed} passed, {remaining} remaining"
    # Not smoothed: parts end in bursts, so only the mean rate says when the last will.
    with tqdm(total=1.0, bar_format=style, smoothing=0, leave=False, file=sys.stderr) as bar:

        def watch(n_done: int, n_parts: int, share: float) -> None:
            bar.set_description_str(f"{name}: {n_done} of {n_parts} parts", refresh=False)
            bar.n = share
            bar.refresh()

        yield watch
