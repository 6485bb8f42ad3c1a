"""The paper's denoiser with its settings: few training patches, many rounds, coding to an error.

It is what `denoise` does with ``preset="paper"``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import float_dtype, library_of
from kappaform.imaging.axes import ANY_VALUE
from kappaform.imaging.cleaning.kernels import leave_out
from kappaform.imaging.cleaning.patchwise import PatchDenoiser, product, sweep
from kappaform.imaging.components import Component, pixels_of
from kappaform.imaging.denoise import Denoised, denoised
from kappaform.imaging.noise.estimate import check_kind
from kappaform.imaging.noise.kinds import White
from kappaform.imaging.options import Callback, DenoiseResult, Options, Quality, checked_range
from kappaform.imaging.patches import grid_of, patches_at
from kappaform.imaging.progress import SILENT, Progress
from kappaform.learning import Conditioned, LearnResult, LogDet, Method, Orthonormal, learn
from kappaform.learning.methods import Variant
from kappaform.linalg import dct_basis
from kappaform.threads import Workspace, single_threaded_blas, users_blas

# All of these are the paper's.
GREY_LEVELS = (0.0, 255.0)
PATCH_SIDE = 11
N_TRAINING = 500
N_ITER = 12
ERROR_GAIN = 1.15
WEIGHT = 0.0031

# Patches that could be denoised in the time of a round: measured, 76 000 to 87 000 (11 x 11 and
# 8 x 8 pixels). Only the reported progress depends on it.
_ROUND_COST = 80_000


def published_denoise(
    image: NDArray,
    sigma: float,
    method: str,
    patch_shape: tuple[int, ...],
    training: Iterator[NDArray],
    callback: Callback | None = None,
    variant: Variant = "public",
    progress: Progress = SILENT,
) -> tuple[NDArray, NDArray, list[LearnResult]]:
    """Denoised image, numbers of coefficients and what was learned in each round.

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
            most = 6 * round(0.1 * n)
            denoise = error_denoiser(result.transform, error, most, damping, image.dtype)
            _, sparsity = denoise(patches.T.copy(), None, {})
            progress(learning * number / n_rounds)
            if callback is not None:
                with users_blas():
                    if callback(result):
                        break
        rest = progress.section(learning, 1)
        estimate, counts = sweep(image, patch_shape, denoise, bounds=GREY_LEVELS, progress=rest)
    return np.clip(estimate, *GREY_LEVELS), counts, history


def denoise_as_published(
    image: Any,
    sigma: Any,
    noise: Any,
    preset: Any,
    channel_axis: int | None,
    *,
    quality: Quality | None = None,
    transform: Any = None,
    value_range: tuple[float, float] | None = None,
    movie: bool = False,
    share: bool = False,
    **settings: Any,
) -> DenoiseResult:
    """`denoise` with the preset: arguments that contradict it are rejected."""
    if preset != "paper":
        raise ValueError(f"preset={preset!r} is unknown: give 'paper', or None for the default.")
    if quality in get_args(Quality):
        raise ValueError(
            f"quality={quality!r} has no effect with preset={preset!r}, which has one quality: "
            "leave one of them out."
        )
    if share:
        raise ValueError("share=True learns a transform: leave out transform and preset.")
    if movie:
        raise ValueError(
            f"preset={preset!r} with movie=True: the preset denoises each image on its own; leave "
            "out one of them."
        )
    if library_of(image) == "dask":
        raise ValueError(
            f"preset={preset!r} with a Dask image: the settings of the paper are for images in "
            "memory, image.compute()."
        )
    if checked_range(value_range) not in (ANY_VALUE, GREY_LEVELS):
        raise ValueError(
            f"value_range={value_range!r} with preset='paper': its grey levels are 0 to 255."
        )
    if transform is not None:
        raise ValueError("transform and preset='paper' exclude each other: the preset learns one.")
    _check_white(noise)
    pixels, _ = pixels_of(image, channel_axis)
    options = Options.checked(
        pixels,
        quality=quality,
        value_range=value_range,
        channel_axis=channel_axis,
        decorrelate=False,
        patch_sides={2: PATCH_SIDE, 3: PATCH_SIDE},
        **settings,
    )
    if sigma is None and noise is None:
        noise = "white"
    return denoised(image, pixels, sigma, noise, options, _denoised_channels)


def _check_white(noise: Any) -> None:
    if isinstance(noise, str):
        check_kind(noise, "noise")
    given = noise if isinstance(noise, list | tuple) else [noise]
    if not all(each is None or each == "white" or isinstance(each, White) for each in given):
        raise ValueError("preset='paper' assumes white noise: give sigma.")


def _denoised_channels(
    parts: Sequence[Component], options: Options, progress: Progress
) -> Denoised:
    """Each channel on its own, with the settings of the paper."""
    found = Denoised([], [], [], [])
    for part, its in zip(parts, progress.sections([1] * len(parts)), strict=True):
        low, high = np.percentile(part.image, [1, 99])
        if low < GREY_LEVELS[0] - 4 * part.sigma or high > GREY_LEVELS[1] + 4 * part.sigma:
            raise ValueError(
                f"preset='paper' with values around {low:g} to {high:g}: it is made for grey "
                "levels from 0 to 255; scale image and sigma to them, or leave the preset out."
            )
        rng = np.random.default_rng(options.seed)
        image, counts, history = published_denoise(
            np.ascontiguousarray(part.image, np.float64),
            part.sigma,
            options.method_name,
            options.patch_shape,
            random_positions(part.image.shape, options.patch_shape, rng),
            options.callback,
            progress=its,
        )
        found.images.append(image.astype(float_dtype(part.image.dtype), copy=False))
        found.counts.append(counts.astype(np.float32))
        found.transforms.append(history[-1].transform)
        found.history.extend(history)
    return found


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
    """Resume learning with the method of this name, and store its transform.

    Bound and norm of the conditioned method are those of a log-det transform learned from the same
    patches.
    """
    # Patches that have coefficients; all, where none has and there is nothing to learn.
    rows = sparsity > 0 if sparsity.any() else np.ones(len(sparsity), bool)
    method: Method
    if name == "log-det":
        method, rows = LogDet(WEIGHT), np.ones(len(sparsity), bool)
    elif name == "orthonormal":
        method = Orthonormal()
    else:
        log_det = _learn_round(patches, sparsity, "log-det", variant, transforms)
        norm = float(np.linalg.norm(log_det.transform))
        method = Conditioned(log_det.condition_number, norm=norm, variant=variant)
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


def error_denoiser(
    transform: NDArray, error: float, most: int, damping: float, dtype: np.dtype
) -> PatchDenoiser:
    r"""The published rule: the fewest largest coefficients with an error of at most `error`.

    With :math:`B = (\lambda I + W^T W)^{-1} W^T` a patch y with codes x is estimated as
    :math:`y - B (W y - x)`: the residual is B times the omitted coefficients. All patches have
    the same weight.
    """
    regular = damping * np.eye(len(transform)) + transform.T @ transform
    inverse = np.linalg.solve(regular, transform.T)
    form = inverse.T @ inverse
    analysis, gradient, synthesis, form = (
        np.ascontiguousarray(matrix, dtype)
        for matrix in (transform.T, transform.T @ form, -inverse.T, form)
    )

    def denoise(patches: NDArray, _: NDArray | None, workspace: Workspace) -> tuple:
        coefs = product(patches.T, analysis, workspace, "coefs")
        gradients = product(patches.T, gradient, workspace, "gradients")
        counts = np.empty(len(coefs), dtype)
        leave_out(coefs, gradients, form, error * error, most, counts)
        patches += product(coefs, synthesis, workspace, "gradients").T
        return np.ones_like(counts), counts

    return denoise
