"""Denoising 512 by 512 pixels, in units of two products of all patches with an n by n matrix.

The products are those of float64 patches of 11 by 11 pixels on one BLAS thread: what coding and
restoring every patch would cost with dense matrices. All are timed in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from skimage import data
from timing import least_seconds

import kappaform as kf
from kappaform.imaging.cleaning.patchwise import sweep
from kappaform.paper.denoiser import error_denoiser
from kappaform.threads import single_threaded_blas

SIGMA, SIDE, REPEATS = 20.0, 11, 3
TARGETS = {  # in units of two products, and of the time of one thread over that of two
    "paper's last round": (2.5, 1.6),
    "fast": (6.0, None),
    "balanced": (14.0, None),
}


def rows() -> Iterator[dict]:
    """Two qualities and the paper's last round on one thread, and what a second one brings."""
    noisy = kf.add_noise(data.camera().astype(np.float64), SIGMA, rng=0)
    paper = kf.denoise_with_details(noisy, SIGMA, preset="paper")
    assert paper.transform is not None
    n = SIDE * SIDE
    coding = (1.15 * SIGMA * SIDE, 6 * round(0.1 * n), 0.01 / SIGMA, noisy.dtype)
    clean = error_denoiser(paper.transform, *coding)
    calls = {
        "unit": _two_products(paper.transform, (noisy.shape[0] - SIDE + 1) ** 2),
        "paper's last round": lambda: sweep(noisy, (SIDE, SIDE), clean, bounds=(0, 255)),
        "fast": lambda: kf.denoise(noisy, SIGMA, quality="fast"),
        "balanced": lambda: kf.denoise(noisy, SIGMA),
    }
    one, two = (least_seconds(calls, threads, REPEATS) for threads in (1, 2))
    for name, (cost, gain) in TARGETS.items():
        words = f"denoise 512x512: {name}, one thread"
        yield _row(words, one[name] / one["unit"], "2 products", cost, seconds=one[name])
        yield _row(f"{words} / two", one[name] / two[name], "times faster", gain, better="higher")


def _row(name: str, value: float, unit: str, target: float | None, **more: object) -> dict:
    return {"name": name, "value": value, "unit": unit, "target": target, **more}


def _two_products(transform: np.ndarray, n_patches: int) -> Callable[[], None]:
    patches = np.random.default_rng(0).standard_normal((n_patches, len(transform)))
    out = np.empty_like(patches)

    def call() -> None:
        with single_threaded_blas():
            for _ in range(2):
                np.matmul(patches, transform.T, out=out)

    return call
