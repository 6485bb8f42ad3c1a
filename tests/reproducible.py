"""Results of one process, as bytes: run by test_reproducible.py in several processes.

python tests/reproducible.py OUTPUT [--reversed]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import numpy as np
from skimage.data import astronaut, camera
from sklearn.exceptions import ConvergenceWarning

import kappaform as kf

SIGMA = 20.0
SIDE = 32
_CORRELATED = kf.Correlated(autocovariance=300 * np.outer([0.25, 1, 0.25], [0.25, 1, 0.25]))


def _grey() -> np.ndarray:
    return kf.add_noise(camera()[100 : 100 + SIDE, 200 : 200 + SIDE], SIGMA, rng=0)


def _colour() -> np.ndarray:
    return kf.add_noise(astronaut()[60 : 60 + SIDE, 200 : 200 + SIDE], SIGMA, rng=0)


def _frames() -> np.ndarray:
    clean = [camera()[100 : 100 + SIDE, 200 + i : 200 + i + SIDE] for i in range(5)]
    return kf.add_noise(np.stack(clean), SIGMA, rng=0)


def _signals(dtype: type) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((700, 16)).astype(dtype) @ np.diag(
        np.linspace(1, 3, 16).astype(dtype)
    )


def _learned(dtype: type) -> kf.LearnResult:
    return kf.learn(_signals(dtype), kf.Conditioned(2.0), n_nonzero_coefs=4, max_iter=8)


def _union(dtype: type) -> kf.UnionResult:
    options = {"n_transforms": 3, "n_starts": 2, "n_nonzero_coefs": 4, "max_iter": 8}
    return kf.learn_union(_signals(dtype), kf.Conditioned(2.0), **options)


def _refit() -> np.ndarray:
    estimator = kf.ConditionedTransform(n_nonzero_coefs=4, max_iter=8, tol=0, coding="refit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit_transform(_signals(np.float64))


SMALL = {"patch_size": 6}  # five times as fast as the patches of 11 that are usual
CALLS: dict[str, Callable[[], np.ndarray]] = {
    "fast": lambda: kf.denoise(_grey(), SIGMA, quality="fast", **SMALL),
    "balanced": lambda: kf.denoise(_grey(), SIGMA, **SMALL),
    "best": lambda: kf.denoise(_grey(), SIGMA, quality="best", **SMALL),
    "colour": lambda: kf.denoise(_colour(), SIGMA, channel_axis=-1, **SMALL),
    "movie": lambda: kf.denoise(_frames(), SIGMA, stack_axis=0, movie=True),
    "volume": lambda: kf.denoise(_frames(), SIGMA),
    "correlated": lambda: kf.denoise(_grey(), noise=_CORRELATED, **SMALL),
    "shot": lambda: kf.denoise(_grey(), noise=kf.Shot(3.0, 5.0), **SMALL),
    "estimated": lambda: kf.denoise(_grey(), **SMALL),
    "learned": lambda: _learned(np.float64).transform,
    "learned from float32": lambda: _learned(np.float32).transform,
    "union": lambda: _union(np.float64).transforms,
    "union from float32": lambda: _union(np.float32).transforms,
    "refit codes": _refit,
}


def main(output: str, *options: str) -> None:
    names = list(CALLS)
    if "--reversed" in options:
        names.reverse()
    results = {name: CALLS[name]() for name in names}
    np.savez(output, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
