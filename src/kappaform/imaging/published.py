"""The paper's denoiser with its settings: few training patches, many rounds, coding to an error."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import float_dtype
from kappaform.imaging.cleaning.kernels import leave_out
from kappaform.imaging.cleaning.patchwise import Cleaner, product, sweep
from kappaform.imaging.options import GREY_LEVELS, Callback, Options
from kappaform.imaging.patches import grid_of, patches_at
from kappaform.imaging.work import Progress, section
from kappaform.learning import Conditioned, LearnResult, LogDet, Method, Orthonormal, learn
from kappaform.learning.methods import Variant
from kappaform.linalg import dct_basis
from kappaform.threads import Workspace, single_threaded_blas, users_blas

# All of these are the paper's.
N_TRAINING = 500
N_ITER = 12
ERROR_GAIN = 1.15
WEIGHT = 0.0031

# Patches that could be cleaned in the time of a round: measured, 76 000 to 87 000 (11 x 11 and
# 8 x 8 pixels). It matters to the progress that is told only.
_ROUND_COST = 80_000


def published_denoise(
    image: NDArray,
    sigma: float,
    method: str,
    patch_shape: tuple[int, ...],
    training: Iterator[NDArray],
    callback: Callback | None = None,
    variant: Variant = "public",
    progress: Progress | None = None,
) -> tuple[NDArray, NDArray, list[LearnResult]]:
    """Cleaned image, numbers of coefficients and what was learned in each round.

    `training` yields, for each round, the numbers of its patches in the grid of all patches: one
    more than there are rounds. `variant` is that of the conditioned method.
    """
    grid, n = grid_of(image.shape, patch_shape), math.prod(patch_shape)
    error, damping = ERROR_GAIN * sigma * math.sqrt(n), 0.01 / sigma
    transforms = dict.fromkeys((method, "log-det"), dct_basis(patch_shape))
    history: list[LearnResult] = []
    with single_threaded_blas():
        patches = patches_at(image, grid, next(training))
        sparsity = np.full(len(patches), round(0.1 * n))
        n_rounds = 5 if sigma >= 100 else 20
        learning = n_rounds * _ROUND_COST / (n_rounds * _ROUND_COST + grid.n_patches)
        for number in range(1, n_rounds + 1):
            result = _learn_round(patches, sparsity, method, variant, transforms)
            history.append(result)
            patches = patches_at(image, grid, next(training))
            clean = error_cleaner(result.transform, error, 6 * round(0.1 * n), damping, image.dtype)
            _, sparsity = clean(patches.copy(), None, {})
            if progress is not None:
                progress(learning * number / n_rounds)
            if callback is not None:
                with users_blas():
                    if callback(result):
                        break
        rest = section(progress, learning, 1)
        cleaned, counts = sweep(image, patch_shape, clean, bounds=GREY_LEVELS, progress=rest)
    return np.clip(cleaned, *GREY_LEVELS), counts, history


def denoise_as_published(
    image: NDArray, sigma: float, options: Options
) -> tuple[NDArray, NDArray, list[LearnResult]]:
    """What `denoise` does with the preset, to an image of one channel."""
    low, high = np.percentile(image, [1, 99])
    if low < GREY_LEVELS[0] - 4 * sigma or high > GREY_LEVELS[1] + 4 * sigma:
        raise ValueError(
            f"preset='paper' with values around {low:g} to {high:g}: it is made for grey levels "
            "from 0 to 255; scale image and sigma to them, or leave the preset out."
        )
    values, patch_shape = np.ascontiguousarray(image, np.float64), options.patch_shape
    rng = np.random.default_rng(options.seed)
    positions = random_positions(image.shape, patch_shape, rng)
    cleaned, counts, history = published_denoise(
        values,
        sigma,
        options.method_name,
        patch_shape,
        positions,
        options.callback,
        progress=options.progress,
    )
    dtype = float_dtype(image.dtype)
    return cleaned.astype(dtype, copy=False), counts.astype(np.float32), history


def random_positions(
    shape: tuple[int, ...], patch_shape: tuple[int, ...], rng: np.random.Generator
) -> Iterator[NDArray]:
    """Numbers of training patches, drawn afresh for each round."""
    n_patches = grid_of(shape, patch_shape).n_patches
    while True:
        yield rng.choice(n_patches, min(N_TRAINING, n_patches), replace=False)


def _learn_round(
    patches: NDArray,
    sparsity: NDArray,
    name: str,
    variant: Variant,
    transforms: dict[str, NDArray],
) -> LearnResult:
    """Learn from where the method of this name was, and leave there what it has learned.

    Bound and norm of the conditioned method are those of a log-det transform learned beside it from
    the same patches.
    """
    # Patches that have coefficients; all, where none has and there is nothing to learn.
    rows = sparsity > 0 if sparsity.any() else np.ones(len(sparsity), bool)
    method: Method
    if name == "log-det":
        method, rows = LogDet(WEIGHT), np.ones(len(sparsity), bool)
    elif name == "orthonormal":
        method = Orthonormal()
    else:
        beside = _learn_round(patches, sparsity, "log-det", variant, transforms)
        norm = float(np.linalg.norm(beside.transform))
        method = Conditioned(beside.condition_number, norm=norm, variant=variant)
    result = learn(
        patches[rows],
        method,
        n_nonzero_coefs=sparsity[rows].astype(np.int64),
        init=transforms[name],
        max_iter=N_ITER,
        tol=0,
    )
    transforms[name] = result.transform
    return result


def error_cleaner(
    transform: NDArray, error: float, most: int, damping: float, dtype: np.dtype
) -> Cleaner:
    r"""The published rule: the fewest largest coefficients that bring a patch within `error`.

    With :math:`B = (\lambda I + W^T W)^{-1} W^T` a patch y with codes x is estimated as
    :math:`y - B (W y - x)`: the residual is B times the coefficients left out. All patches weigh
    the same.
    """
    regular = damping * np.eye(len(transform)) + transform.T @ transform
    inverse = np.linalg.solve(regular, transform.T)
    form = inverse.T @ inverse
    analysis, gradient, synthesis, form = (
        np.ascontiguousarray(matrix, dtype)
        for matrix in (transform.T, transform.T @ form, -inverse.T, form)
    )

    def clean(patches: NDArray, _: NDArray | None, workspace: Workspace) -> tuple:
        coefs = product(patches, analysis, workspace, "coefs")
        gradients = product(patches, gradient, workspace, "gradients")
        counts = np.empty(len(patches), dtype)
        leave_out(coefs, gradients, form, error * error, most, counts)
        patches += product(coefs, synthesis, workspace, "gradients")
        return np.ones(len(patches), dtype), counts

    return clean
