"""A stream of batches against passes over all signals: how much error it costs.

200 000 overlapping patches of 8 by 8 pixels from five photographs, their means removed, 6 nonzero
coefficients, condition number at most 2. Batches of 1000 are given five times over, in the order of
the photographs or shuffled once. The unit is the absolute error, on all signals, of a fit with as
many iterations as 50 passes allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pictures import in_parallel
from skimage import data

import kappaform as kf

ANY_MACHINE = True
N_EACH = 40_000
BATCH = 1000
N_EPOCHS = 5
N_PASSES = 50
METHOD = kf.Conditioned(max_condition=2.0)
N_NONZERO = 6
Forgetting = float | Literal["auto"]
TARGETS: dict[Forgetting, float] = {"auto": 0.0, 1.0: 2.0}  # per cent above the fit, at most


def rows() -> Iterator[dict]:
    """Error of streams in two orders, with both ways to forget, and the bound after every batch."""
    streams = list(product(("in order", "shuffled"), TARGETS))
    results = in_parallel(_result, [(_fit,), *((_stream, *stream) for stream in streams)])
    n_passes, unit = next(results)
    name = f"fit, {n_passes} passes"
    yield {"name": name, "value": unit, "unit": "absolute error", "target": None}
    for (order, forgetting), result in zip(streams, results, strict=True):
        yield from _rows_of(f"stream {order}, forgetting={forgetting}", forgetting, unit, *result)


def _result(function: Callable, *arguments: object) -> tuple:
    return function(*arguments)


def _fit() -> tuple[int, float]:
    """Number of passes, and the error after them."""
    fit = kf.learn(
        patches_in_order(),
        METHOD,
        n_nonzero_coefs=N_NONZERO,
        max_iter=10 * N_PASSES,
        tol=0,
        callback=lambda state: state.n_passes >= N_PASSES,
    )
    return fit.n_passes, fit.errors.absolute[-1]


def _stream(order: str, forgetting: Forgetting) -> tuple[float, float, float]:
    """Error, largest condition number, and number of passes over all signals."""
    signals, conditions = patches_in_order(), []
    if order == "shuffled":
        signals = np.random.default_rng(0).permutation(signals)
    result = kf.learn_stream(
        batches(signals),
        METHOD,
        n_nonzero_coefs=N_NONZERO,
        forgetting=forgetting,
        callback=lambda state: conditions.append(state.condition_number),
    )
    error = kf.evaluate(signals, result, N_NONZERO).absolute
    return error, max(conditions), result.n_passes * BATCH / len(signals)


def _rows_of(
    name: str,
    forgetting: Forgetting,
    unit: float,
    error: float,
    condition: float,
    passes: float,
) -> list[dict]:
    return [
        {
            "name": f"{name}: above the fit",
            "value": 100 * (error / unit - 1),
            "unit": "%",
            "target": TARGETS[forgetting],
            "n_passes": passes,
        },
        {
            "name": f"{name}: largest condition number after a batch",
            "value": condition,
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
