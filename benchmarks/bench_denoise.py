"""Denoising 512 by 512 pixels, in units of two products of all patches with an n by n matrix.

The products are those of float64 patches of 11 by 11 pixels on one BLAS thread: what coding and
restoring every patch would cost with dense matrices. All are timed in turns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
from skimage import data

import kappaform as kf
from kappaform.imaging.clean import sweep
from kappaform.imaging.published import error_cleaner
from kappaform.threads import single_threaded_blas

SIGMA, SIDE, REPEATS = 20.0, 11, 5


def rows() -> list[dict]:
    """Default and paper's settings on one thread, and what a second one brings."""
    noisy = kf.add_noise(data.camera().astype(np.float64), SIGMA, rng=0)
    paper = kf.denoise_with_details(noisy, SIGMA, preset="paper")
    n = SIDE * SIDE
    coding = (1.15 * SIGMA * SIDE, 6 * round(0.1 * n), 0.01 / SIGMA, noisy.dtype)
    clean = error_cleaner(paper.transform, *coding)
    calls = {
        "unit": _two_products(paper.transform, (noisy.shape[0] - SIDE + 1) ** 2),
        "last round": lambda: sweep(noisy, (SIDE, SIDE), clean, bounds=(0, 255)),
        "default": lambda: kf.denoise(noisy, SIGMA),
    }
    times = {threads: _best(calls, threads) for threads in (1, 2)}
    unit = times[1]["unit"]
    return [
        _row("default, one thread", times[1]["default"] / unit, "2 products", 6.0),
        _row("paper's last round, one thread", times[1]["last round"] / unit, "2 products", 3.0),
        *(
            _row(f"{name}, one thread / two", times[1][name] / times[2][name], "times faster", goal)
            | {"better": "higher"}
            for name, goal in (("default", None), ("last round", 1.6))
        ),
        _row("default, one thread", times[1]["default"], "s", None),
    ]


def _row(name: str, value: float, unit: str, target: float | None) -> dict:
    return {"name": f"denoise 512x512: {name}", "value": value, "unit": unit, "target": target}


def _two_products(transform: np.ndarray, n_patches: int) -> Callable[[], None]:
    patches = np.random.default_rng(0).standard_normal((n_patches, len(transform)))
    out = np.empty_like(patches)

    def call() -> None:
        with single_threaded_blas():
            for _ in range(2):
                np.matmul(patches, transform.T, out=out)

    return call


def _best(calls: dict[str, Callable], threads: int) -> dict[str, float]:
    os.environ["KAPPAFORM_NUM_THREADS"] = str(threads)
    best = dict.fromkeys(calls, np.inf)
    for _ in range(REPEATS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    del os.environ["KAPPAFORM_NUM_THREADS"]
    return best


if __name__ == "__main__":
    for row in rows():
        print(f"{row['name']}: {row['value']:.2f} {row['unit']}")
