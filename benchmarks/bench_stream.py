"""A stream of batches against passes over all signals: how much error it costs, and how much time.

200 000 overlapping patches of 8 by 8 pixels from five photographs, their means removed, 6 nonzero
coefficients, condition number at most 2. Batches of 1000 are given five times over, in the order of
the photographs or shuffled once. The unit is the absolute error, on all signals, of a fit with as
many iterations as 50 passes allow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from skimage import data

import kappaform as kf

ANY_MACHINE = True
N_EACH = 40_000
BATCH = 1000
N_EPOCHS = 5
N_PASSES = 50
METHOD = kf.Conditioned(max_condition=2.0)
N_NONZERO = 6
TARGETS = {"auto": 0.0, 1.0: 2.0}  # forgetting: per cent above the fit, at most


def rows() -> Iterator[dict]:
    """Error of streams in two orders, with both ways to forget, and the bound after every batch."""
    signals = patches_in_order()
    start = time.perf_counter()
    fit = kf.learn(
        signals,
        METHOD,
        n_nonzero_coefs=N_NONZERO,
        max_iter=10 * N_PASSES,
        tol=0,
        callback=lambda state: state.n_passes >= N_PASSES,
    )
    seconds = time.perf_counter() - start
    error = fit.errors.absolute[-1]
    yield {
        "name": f"fit, {fit.n_passes} passes",
        "value": error,
        "unit": "absolute error",
        "target": None,
        "seconds": seconds,
    }
    orders = {"in order": signals, "shuffled": np.random.default_rng(0).permutation(signals)}
    for order, ordered in orders.items():
        for forgetting in TARGETS:
            name = f"stream {order}, forgetting={forgetting}"
            yield from _rows_of(ordered, forgetting, name, error)


def _rows_of(signals: np.ndarray, forgetting: float | str, name: str, unit: float) -> list[dict]:
    conditions = []
    start = time.perf_counter()
    result = kf.learn_stream(
        batches(signals),
        METHOD,
        n_nonzero_coefs=N_NONZERO,
        forgetting=forgetting,
        callback=lambda state: conditions.append(state.condition_number),
    )
    seconds = time.perf_counter() - start
    error = kf.evaluate(signals, result, N_NONZERO).absolute
    return [
        {
            "name": f"{name}: above the fit",
            "value": 100 * (error / unit - 1),
            "unit": "%",
            "target": TARGETS[forgetting],
            "seconds": seconds,
            "n_passes": result.n_passes * BATCH / len(signals),
        },
        {
            "name": f"{name}: largest condition number after a batch",
            "value": max(conditions),
            "unit": "",
            "target": METHOD.max_condition * (1 + 1e-9),
        },
    ]


def patches_in_order() -> np.ndarray:
    """Patches of photographs, one per row, means removed: one picture after the other."""
    found = []
    for image in (data.camera(), data.moon(), data.coins(), data.brick(), data.grass()):
        windows = sliding_window_view(image, (8, 8)).reshape(-1, 64)
        chosen = np.linspace(0, len(windows) - 1, N_EACH).astype(np.intp)
        found.append(windows[chosen].astype(np.float64))
    signals = np.concatenate(found)
    return signals - signals.mean(axis=1, keepdims=True)


def batches(signals: np.ndarray) -> Iterator[np.ndarray]:
    for _ in range(N_EPOCHS):
        for start in range(0, len(signals), BATCH):
            yield signals[start : start + BATCH]
