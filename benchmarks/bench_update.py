"""The conditioned update in units of one singular value decomposition of the same size."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from skimage import data

from kappaform import Conditioned, dct_basis
from kappaform.engines import Statistics, engine_for
from kappaform.threads import single_threaded_blas

N_ROUNDS = 3


def rows() -> list[dict]:
    """One row for each number of features."""
    return [_row(side) for side in (8, 11, 16)]


def _row(side: int) -> dict:
    n_features = side * side
    patches = sliding_window_view(data.camera(), (side, side))[::4, ::4]
    signals = patches.reshape(-1, n_features).astype(np.float64)
    signals -= signals.mean(axis=1, keepdims=True)
    method = Conditioned(2.0, n_rounds=N_ROUNDS)
    factors: Any = method.to_feasible(dct_basis((side, side)))
    with single_threaded_blas():
        statistics = engine_for(signals).run_pass(factors.matrix, n_features // 10)
        update = method.updater(statistics.gram)
        for _ in range(3):
            factors = update(statistics, factors, "exact")
        seconds, svd_seconds = _best_of(statistics, update, factors)
    return {
        "name": f"conditioned update, {N_ROUNDS} rounds, n={n_features}",
        "value": seconds / svd_seconds,
        "unit": "SVDs",
        "target": 10.0,
        "seconds": seconds,
    }


def _best_of(
    statistics: Statistics, update: Callable, factors: Any, repeats: int = 30
) -> tuple[float, float]:
    """Best times of the update and of one decomposition, measured in turns."""
    best, best_svd = np.inf, np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        update(statistics, factors, "exact")
        middle = time.perf_counter()
        np.linalg.svd(statistics.cross)
        best_svd = min(best_svd, time.perf_counter() - middle)
        best = min(best, middle - start)
    return best, best_svd
