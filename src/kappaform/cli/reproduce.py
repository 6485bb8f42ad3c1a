"""`kappaform reproduce`: the table and the figures of the paper."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kappaform.cli.io import complain, progress, say, say_json
from kappaform.paper.figures import Figures, reproduce_figures
from kappaform.paper.report import facts, write_figures, write_table
from kappaform.paper.table import Table, reproduce_table

_INCOMPLETE, _INTERRUPTED = 1, 130


def table1(arguments: Namespace) -> int:
    names = ("images", "sigmas", "patch_size", "variant", "seed", "quick")
    return _run(arguments, "table1", names, reproduce_table, write_table)


def figures(arguments: Namespace) -> int:
    names = ("images", "n_iter", "seed", "quick")
    return _run(arguments, "figures", names, reproduce_figures, write_figures)


def _run(
    arguments: Namespace,
    what: str,
    names: Sequence[str],
    reproduce: Callable[..., Table | Figures],
    write: Callable[[Path, Any], list[str]],
) -> int:
    """Compute and write results, and say what they are; `names` are options of `reproduce`."""
    out = Path(arguments.output)
    options = {name: getattr(arguments, name) for name in names}
    try:
        with progress(what, of_work=True) as watch:
            options |= {"n_workers": arguments.workers, "watch": watch}
            found = reproduce(Path(arguments.data), out, **options)
        written = write(out, found)
    except KeyboardInterrupt:
        complain(f"interrupted: finished parts are kept in {out}, the same command goes on")
        return _INTERRUPTED
    document = found._asdict()
    left_out = document.get("left_out", {})
    for name, reason in left_out.items():
        complain(f"{name} is left out: {reason}")
    if arguments.json:
        document.pop("points", None)  # long, and in figures.csv
        say_json(document | {"written": written})
    else:
        summary = document.get("summary", found.settings)
        say("\n".join([*facts(summary), f"written: {', '.join(written)}"]))
    return _INCOMPLETE if left_out else 0
