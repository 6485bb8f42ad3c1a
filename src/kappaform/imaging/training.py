"""Learning a transform from the noisy patches of images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import library_of
from kappaform.imaging.clean import HostImage, Place, rule_of
from kappaform.imaging.options import Options, equal_parts, telling_callback
from kappaform.imaging.patches import grid_of
from kappaform.learning import LearnResult, learn
from kappaform.linalg import dct_basis

# What learning needs: more patches, rounds or iterations bring less than 0.01 dB.
N_ROUNDS = 3
N_ITER = 6
N_TRAINING = 20_000
# Patches that could be cleaned in the time of learning from one: measured, 10 (5 x 5 pixels, or
# orthonormal) to 42 (16 x 16), 22 to 27 by default. It matters to the progress that is told only.
_LEARNING_COST = 20


class Source(NamedTuple):
    """An image of one channel to learn from, and its noise."""

    place: Place
    shape: tuple[int, ...]
    sigma: float
    covariance: NDArray | None  #: of the noise of a patch in units of sigma**2; None: white


class Drawn(NamedTuple):
    """Some patches of a source, in units of their noise."""

    patches: Any
    covariance: NDArray | None


def place_of(image: Any, device: Any) -> Place:
    """Where the pixels of an image of one channel are."""
    if library_of(image) == "dask":
        from kappaform.imaging.dask_images import DaskImage

        return DaskImage(image)
    if device is not None:
        from kappaform.imaging.clean_torch import TensorImage

        return TensorImage(image, device)
    return HostImage(image)


def drawn_rounds(
    source: Source, n_patches: int, options: Options, rng: np.random.Generator
) -> Iterator[Drawn]:
    """Patches of every round, drawn afresh for each."""
    grid = grid_of(source.shape, options.patch_shape)
    n_drawn = min(n_patches, grid.n_patches)
    numbers = (rng.choice(grid.n_patches, n_drawn, replace=False) for _ in range(N_ROUNDS))
    for patches in source.place.patches(grid, numbers):
        scaled = patches / source.sigma
        is_tensor = library_of(patches) == "torch"
        yield Drawn(scaled.float() if is_tensor else scaled.astype(np.float32), source.covariance)


def learned(rounds: Iterable[list[Drawn]], options: Options) -> list[LearnResult]:
    """One result for each round: its patches are coded by the transform before."""
    transform = dct_basis(options.patch_shape)
    history: list[LearnResult] = []
    for parts, told in zip(rounds, equal_parts(options, N_ROUNDS), strict=True):
        sparsity = np.concatenate([_sparsity(part, transform) for part in parts])
        result = learn(
            _stacked([part.patches for part in parts]),
            options.method,
            n_nonzero_coefs=sparsity,
            init=history[-1] if history else transform,
            max_iter=N_ITER,
            tol=1e-4,
            callback=telling_callback(told, N_ITER),
        )
        if told.progress is not None:
            told.progress(1.0)  # fewer iterations may have been enough
        history.append(result)
        transform = result.transform
    return history


def share_of_learning(image: Any, options: Options) -> float:
    """Which part of the work on a channel is learning."""
    if options.transform is not None:
        return 0.0
    if library_of(image) == "dask":  # cleaned when the result is computed
        return 1.0
    n_patches = grid_of(image.shape, options.patch_shape).n_patches
    learning = _LEARNING_COST * min(N_TRAINING, n_patches)
    return learning / (learning + n_patches)


def _sparsity(drawn: Drawn, transform: NDArray) -> NDArray:
    """How many coefficients of each patch stand out of its noise."""
    limits = rule_of(transform, drawn.covariance).limits
    if library_of(drawn.patches) == "torch":
        from kappaform.imaging.clean_torch import n_above

        return n_above(drawn.patches, transform, limits)
    return np.count_nonzero(np.abs(drawn.patches @ transform.T) > limits, axis=1)


def _stacked(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if library_of(parts[0]) == "torch":
        import torch

        return torch.cat(parts)
    return np.concatenate(parts)
