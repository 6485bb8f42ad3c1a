"""Learning a transform from the noisy patches of images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import library_of
from kappaform.imaging.cleaning.patchwise import rule_of
from kappaform.imaging.cleaning.scales import halved_patches, n_scales_of
from kappaform.imaging.cleaning.stages import EFFORTS
from kappaform.imaging.cleaning.tiles import HostImage, Place
from kappaform.imaging.options import Options, Quality, equal_parts, telling_callback
from kappaform.imaging.patches import Grid, grid_of
from kappaform.imaging.work import sections
from kappaform.learning import LearnResult, learn
from kappaform.linalg import dct_basis

N_ITER = 6  # of a round
# Patches that could be cleaned in the time of a round of learning from one: measured, 3 (5 x 5
# pixels, or orthonormal) to 14 (16 x 16), 8 by default. It matters to the progress told only.
_LEARNING_COST = 7
_COARSE_WORK = 0.4  # of the one round of learning from a half, over a round of the image itself


def place_of(components: Sequence[Any], device: Any) -> Place:
    """Where the pixels of the components of an image are."""
    if library_of(components[0]) == "dask":
        from kappaform.imaging.cleaning.dask import DaskImage

        return DaskImage(components)
    if device is not None:
        from kappaform.imaging.cleaning.torch import TensorImage

        return TensorImage(components, device)
    return HostImage(components)


class Source(NamedTuple):
    """A component of an image to learn from, and its noise."""

    place: Place
    component: int
    shape: tuple[int, ...]
    sigma: float
    covariance: NDArray | None  #: of the noise of a patch in units of sigma**2; None: white


class Draw(NamedTuple):
    """What a round of learning asks for."""

    n_patches: int
    n_halvings: int = 0  #: of the image that the patches are of


class Drawn(NamedTuple):
    """Some patches of a source, in units of their noise."""

    patches: Any
    covariance: NDArray | None


class Amount(NamedTuple):
    """How much is learned from."""

    n_rounds: int
    n_patches: int  #: of a round


# More patches, rounds or iterations bring less than 0.01 dB, on 16 photographs and the paper's
# images. Less is enough where groups of patches clean after patches have; of textures a round less
# loses 0.1 dB, half of the patches nothing.
FOR_PATCHES, FOR_GROUPS = Amount(4, 20_000), Amount(3, 10_000)


def amount_for(quality: Quality) -> Amount:
    return FOR_PATCHES if EFFORTS[quality] is None else FOR_GROUPS


def drawn_rounds(
    source: Source, draws: Sequence[Draw], options: Options, rng: np.random.Generator
) -> Iterator[Drawn]:
    """Patches of every round, drawn afresh for each; of the image, or of its halves."""

    def numbers() -> Iterator[tuple[Grid, NDArray]]:
        for n_patches, n_halvings in draws:
            sides = [side << n_halvings if side > 1 else 1 for side in options.patch_shape]
            grid = grid_of(source.shape, tuple(sides))
            n_drawn = min(n_patches, grid.n_patches)
            yield grid, rng.choice(grid.n_patches, n_drawn, replace=False)

    rounds = source.place.patches(source.component, numbers())
    for draw, patches in zip(draws, rounds, strict=True):
        patches /= source.sigma  # they are a copy already
        if draw.n_halvings:
            patches = halved_patches(patches, options.patch_shape, draw.n_halvings)
        single = patches.float() if library_of(patches) == "torch" else patches.astype(np.float32)
        yield Drawn(single, source.covariance)


def learned_at_scales(
    sources: Sequence[Source], options: Options, rng: np.random.Generator
) -> list[list[LearnResult]]:
    """The rounds of learning from an image, then those from its halves, each of fewer patches.

    Several components give equally many patches, so that the work is that of one.
    """
    shape, covariance = sources[0].shape, sources[0].covariance
    n_scales = n_scales_of(shape, options.patch_shape) if covariance is None else 1
    amount = amount_for(options.quality)
    n_patches = -(-amount.n_patches // len(sources))
    works = sections(options.progress, [amount.n_rounds, *[_COARSE_WORK] * (n_scales - 1)])
    coarse = [Draw(max(1, n_patches >> scale), scale) for scale in range(1, n_scales)]
    fine = [Draw(n_patches)] * amount.n_rounds
    each_drawn = [drawn_rounds(source, fine + coarse, options, rng) for source in sources]
    drawn = zip(*each_drawn, strict=True)
    history: list[list[LearnResult]] = []
    for scale, work in enumerate(works):
        told = replace(options, progress=work)
        n_rounds = amount.n_rounds if scale == 0 else 1
        rounds = map(list, islice(drawn, n_rounds))
        init = history[-1][-1] if history else None
        history.append(learned_in_rounds(rounds, told, n_rounds, init))
    return history


def learned_in_rounds(
    rounds: Iterable[list[Drawn]],
    options: Options,
    n_rounds: int,
    init: LearnResult | None = None,
) -> list[LearnResult]:
    """One result for each round: its patches are coded by the transform before."""
    transform = dct_basis(options.patch_shape) if init is None else init.transform
    history: list[LearnResult] = []
    for parts, told in zip(rounds, equal_parts(options, n_rounds), strict=True):
        sparsity = np.concatenate([_sparsity(part, transform) for part in parts])
        result = learn(
            _stacked([part.patches for part in parts]),
            options.method,
            n_nonzero_coefs=sparsity,
            init=history[-1] if history else transform if init is None else init,
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
    effort = EFFORTS[options.quality]
    cleaning = n_patches * (1 + (effort.cost if effort else 0))
    n_rounds, n_drawn = amount_for(options.quality)
    learning = _LEARNING_COST * n_rounds * min(n_drawn, n_patches)
    return learning / (learning + cleaning)


def _sparsity(drawn: Drawn, transform: NDArray) -> NDArray:
    """How many coefficients of each patch stand out of its noise."""
    limits = rule_of(transform, drawn.covariance).limits
    if library_of(drawn.patches) == "torch":
        from kappaform.imaging.cleaning.torch import n_above

        return n_above(drawn.patches, transform, limits)
    return np.count_nonzero(np.abs(drawn.patches @ transform.T) > limits, axis=1)


def _stacked(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if library_of(parts[0]) == "torch":
        import torch

        return torch.cat(parts)
    return np.concatenate(parts)
