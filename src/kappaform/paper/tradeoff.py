"""A third figure, on the data of the paper's: errors over the bound on the condition number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kappaform.learning import Conditioned, condition_path
from kappaform.learning.methods import Objective, Variant
from kappaform.paper.curves import VARIANTS
from kappaform.paper.dataset import signals_of

BOUNDS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
N_NONZERO = 6
MAX_ITER = 300  # for each bound
PATHS = VARIANTS[1:]


def learn_path(
    data: Path,
    images: list[str],
    variant: Variant,
    objective: Objective,
    bounds: list[float],
    max_iter: int,
    seed: int,
    stride: int,
) -> dict[str, Any]:
    """Errors of one variant over the bounds, on half of the signals and on the other half.

    The norm is that of an orthonormal transform, so that the bound is all that varies.
    """
    signals = signals_of(data, images)[::stride]
    signals = signals[np.random.default_rng(seed).permutation(len(signals))]
    half = len(signals) // 2
    path = condition_path(
        signals[:half],
        bounds,
        n_nonzero_coefs=N_NONZERO,
        validation=signals[half:],
        method=Conditioned(objective=objective, variant=variant),
        max_iter=max_iter,
    )
    columns = {name: values.tolist() for name, values in path.table.items()}
    return {"variant": variant, "objective": objective, "table": columns}


def path_rows(paths: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each variant and bound."""
    rows = []
    for path in paths:
        setting = {name: path[name] for name in ("variant", "objective")}
        for values in zip(*path["table"].values(), strict=True):
            numbers = zip(path["table"], (f"{value:.9g}" for value in values), strict=True)
            rows.append(setting | dict(numbers))
    return rows
