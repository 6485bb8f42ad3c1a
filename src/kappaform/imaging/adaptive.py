"""The default denoiser: learn from noisy patches, keep what is large, then weigh by that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import library_of
from kappaform.imaging.cleaners import shrinking_cleaner, threshold_cleaner
from kappaform.imaging.sweep import PatchGrid, patches_at, sweep
from kappaform.learning import LearnResult, Method, learn
from kappaform.linalg import dct_basis

N_ROUNDS = 3
N_ITER = 6
N_TRAINING = 20_000
THRESHOLD = 2.7  # deviations of its noise that a coefficient must exceed to be kept
NOISE = 0.8  # variance that Wiener's rule assumes: a first estimate has lost some signal


def learn_transform(
    image: NDArray,
    sigma: float,
    patch_shape: tuple[int, ...],
    method: Method,
    rng: np.random.Generator,
    callback: Callable[[LearnResult], bool | None] | None = None,
) -> list[LearnResult]:
    """Rounds of learning, each from patches of the image drawn afresh."""
    positions = training_positions(image.shape, patch_shape, rng)
    drawn = (patches_at(image, patch_shape, some) for some in positions)
    return learn_rounds(drawn, sigma, patch_shape, method, callback)


def training_positions(
    shape: tuple[int, ...], patch_shape: tuple[int, ...], rng: np.random.Generator
) -> Iterator[NDArray]:
    """Where the patches of each round are, in the flattened grid of patch positions."""
    n_positions = math.prod(PatchGrid(shape, patch_shape).positions)
    for _ in range(N_ROUNDS):
        yield rng.choice(n_positions, min(N_TRAINING, n_positions), replace=False)


def learn_rounds(
    drawn: Iterable[Any],
    sigma: float,
    patch_shape: tuple[int, ...],
    method: Method,
    callback: Callable[[LearnResult], bool | None] | None = None,
) -> list[LearnResult]:
    """Rounds of learning from the mean-free patches of each, coded by the transform before."""
    transform = dct_basis(patch_shape)
    init: NDArray | LearnResult = transform
    history: list[LearnResult] = []
    for some in drawn:
        patches, sparsity = _coded(some, sigma, transform)
        result = learn(
            patches,
            method,
            n_nonzero_coefs=sparsity,
            init=init,
            max_iter=N_ITER,
            tol=1e-4,
            callback=callback,
        )
        history.append(result)
        init, transform = result, result.transform
    return history


def _coded(patches: Any, sigma: float, transform: NDArray) -> tuple[Any, NDArray]:
    """Patches in units of their noise, and how many coefficients of each stand out of it."""
    limits = THRESHOLD * np.linalg.norm(transform, axis=1)
    if library_of(patches) == "torch":
        from kappaform.imaging.torch_sweep import n_above

        patches = (patches / sigma).float()
        return patches, n_above(patches, transform, limits)
    patches = (patches / sigma).astype(np.float32)
    return patches, np.count_nonzero(np.abs(patches @ transform.T) > limits, axis=1)


def clean_image(
    image: NDArray,
    patch_shape: tuple[int, ...],
    transform: NDArray,
    bounds: tuple[float, float],
) -> tuple[NDArray, NDArray]:
    """First estimate by thresholds, second by Wiener's rule with the first as its guide.

    The image is in units of its noise. Also the mean number of coefficients over each pixel.
    """
    first = threshold_cleaner(transform, THRESHOLD, image.dtype)
    second = shrinking_cleaner(transform, NOISE, image.dtype)
    guide, counts = sweep(image, patch_shape, first, bounds=bounds)
    cleaned, _ = sweep(image, patch_shape, second, guide=guide, bounds=bounds)
    return cleaned, counts
