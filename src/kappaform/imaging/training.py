"""Learning a transform from the noisy patches of images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import library_of
from kappaform.imaging.clean import Place, rule_of
from kappaform.imaging.options import Options
from kappaform.imaging.patches import grid_of
from kappaform.learning import LearnResult, learn
from kappaform.linalg import dct_basis

# What learning needs: more patches, rounds or iterations bring less than 0.01 dB.
N_ROUNDS = 3
N_ITER = 6
N_TRAINING = 20_000


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
    for parts in rounds:
        sparsity = np.concatenate([_sparsity(part, transform) for part in parts])
        result = learn(
            _stacked([part.patches for part in parts]),
            options.method,
            n_nonzero_coefs=sparsity,
            init=history[-1] if history else transform,
            max_iter=N_ITER,
            tol=1e-4,
            callback=options.callback,
        )
        history.append(result)
        transform = result.transform
    return history


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
