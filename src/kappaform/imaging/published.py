"""The paper's denoiser with its settings: few training patches, many rounds, coding to an error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.cleaners import error_cleaner, residual_of
from kappaform.imaging.kernels import leave_out
from kappaform.imaging.sweep import PatchGrid, patches_at, sweep
from kappaform.learning import Conditioned, LearnResult, LogDet, Method, Orthonormal, learn
from kappaform.learning.methods import Variant
from kappaform.linalg import dct_basis

N_TRAINING = 500
N_ITER = 12
ERROR_GAIN = 1.15
WEIGHT = 0.0031
LEVELS = (0.0, 255.0)

Chain = Callable[[NDArray, NDArray], LearnResult]


def published_denoise(
    image: NDArray,
    sigma: float,
    method: str,
    patch_shape: tuple[int, ...],
    training: Iterator[NDArray],
    callback: Callable[[LearnResult], bool | None] | None = None,
    variant: Variant = "public",
) -> tuple[NDArray, NDArray, list[LearnResult]]:
    """Cleaned image, numbers of coefficients and what was learned in each round.

    `training` yields, for each round, the positions of its patches in the flattened grid of patch
    positions: one more than there are rounds. `variant` is that of the conditioned method.
    """
    n = math.prod(patch_shape)
    sparsity = np.full(N_TRAINING, round(0.1 * n))
    most = 6 * round(0.1 * n)
    coding: dict[str, Any] = {
        "error": ERROR_GAIN * sigma * math.sqrt(n),
        "most": most,
        "damping": 0.01 / sigma,
    }
    chains: dict[str, Callable[[NDArray], Chain]] = {
        "conditioned": partial(_conditioned, variant=variant),
        "log-det": _log_det,
        "orthonormal": _orthonormal,
    }
    chain = chains[method](dct_basis(patch_shape))
    patches = patches_at(image, patch_shape, next(training))
    history = []
    for _ in range(5 if sigma >= 100 else 20):
        history.append(chain(patches, sparsity[: len(patches)]))
        patches = patches_at(image, patch_shape, next(training))
        sparsity = _sparsity(patches, history[-1].transform, **coding)
        if callback is not None and callback(history[-1]):
            break
    clean = error_cleaner(history[-1].transform, dtype=image.dtype, **coding)
    cleaned, counts = sweep(image, patch_shape, clean, bounds=LEVELS)
    return np.clip(cleaned, *LEVELS), counts, history


def random_positions(
    shape: tuple[int, ...], patch_shape: tuple[int, ...], rng: np.random.Generator
) -> Iterator[NDArray]:
    """Positions of training patches, drawn afresh for each round."""
    n_positions = math.prod(PatchGrid(shape, patch_shape).positions)
    while True:
        yield rng.choice(n_positions, min(N_TRAINING, n_positions), replace=False)


def _sparsity(
    patches: NDArray, transform: NDArray, error: float, most: int, damping: float
) -> NDArray:
    """Number of coefficients that brings each patch within the error."""
    _, form = residual_of(transform, damping)
    coefs = patches @ transform.T
    counts = np.empty(len(patches))
    leave_out(coefs, coefs @ form, form, error**2, most, counts)
    return counts.astype(np.int64)


def _orthonormal(start: NDArray) -> Chain:
    transform = start

    def advance(patches: NDArray, sparsity: NDArray) -> LearnResult:
        nonlocal transform
        coded = _coded(sparsity)
        result = _learn(patches[coded], Orthonormal(), sparsity[coded], transform)
        transform = result.transform
        return result

    return advance


def _log_det(start: NDArray) -> Chain:
    transform = start

    def advance(patches: NDArray, sparsity: NDArray) -> LearnResult:
        nonlocal transform
        result = _learn(patches, LogDet(WEIGHT), sparsity, transform)
        transform = result.transform
        return result

    return advance


def _conditioned(start: NDArray, variant: Variant) -> Chain:
    """Bound and norm are those of a log-det transform learned beside it from the same patches."""
    transform = start
    advance_beside = _log_det(start)

    def advance(patches: NDArray, sparsity: NDArray) -> LearnResult:
        nonlocal transform
        beside = advance_beside(patches, sparsity)
        norm = float(np.linalg.norm(beside.transform))
        method = Conditioned(beside.condition_number, norm=norm, variant=variant)
        coded = _coded(sparsity)
        result = _learn(patches[coded], method, sparsity[coded], transform)
        transform = result.transform
        return result

    return advance


def _coded(sparsity: NDArray) -> NDArray:
    """Patches that have coefficients; all, where none has and there is nothing to learn."""
    return sparsity > 0 if sparsity.any() else np.ones(len(sparsity), bool)


def _learn(signals: NDArray, method: Method, sparsity: NDArray, start: NDArray) -> LearnResult:
    return learn(signals, method, n_nonzero_coefs=sparsity, init=start, max_iter=N_ITER, tol=0)
