"""`kappaform reproduce`: the table and the figures of the paper."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kappaform.cli import messages
from kappaform.cli.options import chosen
from kappaform.paper.data import check_data
from kappaform.paper.figures import Figures, reproduce_figures
from kappaform.paper.report import facts, write_figures, write_table
from kappaform.paper.table import Table, reproduce_table

_INCOMPLETE = 1


def table1(arguments: Namespace) -> int:
    options = chosen(arguments, "images", "sigmas", "patch_size", "variant", "seed", "quick")
    return _run(arguments, options, reproduce_table, write_table)


def figures(arguments: Namespace) -> int:
    options = chosen(arguments, "images", "n_iter", "seed", "quick")
    return _run(arguments, options, reproduce_figures, write_figures)


def _run(
    arguments: Namespace,
    options: dict[str, Any],
    reproduce: Callable[..., Table | Figures],
    write: Callable[[Path, Any], list[str]],
) -> int:
    """Compute and write results, and report them."""
    data, out = Path(arguments.data), Path(arguments.output)
    try:
        check_data(data)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error} Give the folder of a copy, --data DIR.") from error
    try:
        with messages.progress(arguments.function, "the work") as watch:
            options |= {"n_workers": arguments.workers, "watch": watch}
            found = reproduce(data, out, **options)
        written = write(out, found)
    except KeyboardInterrupt:
        text = f"interrupted: finished parts are in {out}; the same command resumes"
        raise KeyboardInterrupt(text) from None
    document = found._asdict()
    left_out = document.get("left_out", {})
    for name, reason in left_out.items():
        messages.complain(f"{name} is left out: {reason}")
    if arguments.json:
        document.pop("points", None)  # long, and in figures.csv
        messages.say_json(document | {"written": written})
    else:
        summary = document.get("summary", found.settings)
        messages.say("\n".join([*facts(summary), f"written: {', '.join(written)}"]))
    return _INCOMPLETE if left_out else 0
