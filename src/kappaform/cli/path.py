"""`kappaform path`: errors over the bound on the condition number."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np

import kappaform as kf
from kappaform.cli.console import progress, say, say_json
from kappaform.cli.sources import check_figure, check_free, save_figure, signals_of


def path(arguments: Namespace) -> int:
    plot = Path(arguments.plot) if arguments.plot else None
    if plot:
        check_free(plot, map(Path, arguments.inputs))
        check_figure(plot)
    rng = np.random.default_rng(arguments.seed)
    signals, _ = signals_of(arguments.inputs, arguments.patch_size, arguments.n_patches, rng)
    if len(signals) < 2:
        raise ValueError("there is 1 signal: give at least 2, every second one validates.")
    with progress("path") as callback:
        table = kf.condition_path(
            signals[::2],
            arguments.bounds,
            n_nonzero_coefs=arguments.n_nonzero,
            validation=signals[1::2],
            max_iter=arguments.max_iter,
            tol=arguments.tol,
            callback=callback,
        )
    if plot:
        save_figure(plot, kf.plots.plot_path(table))
    best = table["max_condition"][np.argmin(table["validation_reconstruction"])]
    if arguments.json:
        say_json({"table": table.table, "best_max_condition": best, "plot": arguments.plot})
        return 0
    say(str(table))
    say(f"max_condition {best:g} rebuilds signals that were not learned from best")
    if plot:
        say(f"drawn: {plot}")
    return 0
