"""Learning a transform from the noisy patches of images."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import library_of
from kappaform.imaging.cleaning.patchwise import THRESHOLD, Kept, rule_of
from kappaform.imaging.cleaning.stages import EFFORTS, cost_of, n_scales_of
from kappaform.imaging.cleaning.tiles import like
from kappaform.imaging.components import Backend, Component
from kappaform.imaging.options import Callback, Options, Quality
from kappaform.imaging.patches import Grid, complete_patches, grid_of
from kappaform.imaging.progress import SILENT, Progress
from kappaform.learning import LearnResult, learn
from kappaform.linalg import dct_basis
from kappaform.threads import Workspace, mapped_in_order

# Patches that could be thresholded in the time of a round of learning from one: measured, 10
# (10 x 10 pixels) to 13 (16 x 16). Only the reported progress depends on it.
_LEARNING_COST = 10
_CODED_AT_ONCE = 2_000  # patches: their coefficients stay in the cache
_COARSE_WORK = 0.4  # of the one round of learning at a coarser scale, over a round at full size
# Added to the energy of the signal, in units of that of the noise: half a percent of sigma may be
# wrong, and noise alone shall count as kept.
_DOUBT = 0.01
_LEAST_KEPT = 0.5  # of the signal; smaller factors were not tried


class Source(NamedTuple):
    """A component of an image to learn from, and its noise."""

    backend: Backend
    component: int
    shape: tuple[int, ...]
    sigma: float
    covariance: NDArray | None  #: of the noise of a patch in units of sigma**2; None: white
    known: NDArray | None  #: which pixels are; None: all
    least: int  #: patches without missing pixels; if there are fewer, all are drawn from


def sources_of(
    components: Sequence[Component], backend: Backend, least: int | None = None
) -> list[Source]:
    """The components of an image, whose pixels a backend holds, as sources of patches."""
    least = _ENOUGH_COMPLETE if least is None else least
    return [
        Source(backend, c, tuple(part.image.shape), part.sigma, part.covariance, part.known, least)
        for c, part in enumerate(components)
    ]


class Draw(NamedTuple):
    """The patches that a round of learning needs."""

    n_patches: int
    n_halvings: int = 0  #: of the image, before patches are taken


class Drawn(NamedTuple):
    """Some patches of a source, in units of their noise."""

    patches: Any
    covariance: NDArray | None


class Amount(NamedTuple):
    """How much is learned."""

    n_rounds: int  #: at most
    n_patches: int  #: of a round
    n_iter: int = 6  #: of a round
    n_coarse_iter: int = 6  #: of the one round at a coarser scale
    settled: float = 0.0  #: change of the loss in the last iteration that ends the rounds


# More patches, rounds or iterations bring less than 0.01 dB, on 16 photographs and the paper's
# images. Less is enough where groups follow single patches; with textures, a round less loses
# 0.1 dB, half of the patches nothing. There, iterations that bring next to nothing were looked for
# on parts of four photographs (docs/scale.md); without groups, they bring up to 0.2 dB.
FOR_PATCHES = Amount(4, 20_000)
FOR_GROUPS = Amount(3, 10_000, n_coarse_iter=3, settled=8e-4)
_ENOUGH_COMPLETE = 5_000  # half of the patches: see above


def amount_for(quality: Quality) -> Amount:
    return FOR_PATCHES if EFFORTS[quality] is None else FOR_GROUPS


def drawn_rounds(
    source: Source, draws: Sequence[Draw], options: Options, rng: np.random.Generator
) -> Iterator[Drawn]:
    """Patches for every round, drawn afresh for each, of the image or of coarser scales."""

    def numbers() -> Iterator[tuple[Grid, NDArray]]:
        for n_patches, n_halvings in draws:
            sides = [side << n_halvings if side > 1 else 1 for side in options.patch_shape]
            grid = grid_of(source.shape, tuple(sides))
            among: Any = grid.n_patches
            if source.known is not None:
                complete = complete_patches(source.known, grid)
                among = complete if len(complete) >= source.least else among
            n_drawn = min(n_patches, np.size(among) if np.ndim(among) else among)
            yield grid, rng.choice(among, n_drawn, replace=False)

    rounds = source.backend.training_patches(
        source.component, numbers(), options.patch_shape, source.sigma
    )
    for patches in rounds:
        yield Drawn(patches, source.covariance)


def learned_at_scales(
    sources: Sequence[Source], options: Options, rng: np.random.Generator, progress: Progress
) -> tuple[list[list[LearnResult]], list[list[Kept | None]]]:
    """The rounds of learning from an image, then from coarser scales, each with fewer patches.

    Several components give equally many patches, so that the work is that of one. Also returns what
    thresholding with the last transform of a scale keeps of other patches, of each component.
    """
    shape, covariance = sources[0].shape, sources[0].covariance
    n_scales = n_scales_of(shape, options.patch_shape) if covariance is None else 1
    amount = amount_for(options.quality)
    n_patches = -(-amount.n_patches // len(sources))
    works = progress.sections([amount.n_rounds, *[_COARSE_WORK] * (n_scales - 1)])
    # Coarser scales are drawn first: how many rounds follow at full size is not known yet.
    draws = [Draw(max(1, n_patches >> scale), scale) for scale in range(1, n_scales)]
    draws += [Draw(n_patches)] * amount.n_rounds
    draws += [Draw(max(1, n_patches >> scale), scale) for scale in range(n_scales)]
    each_drawn = [drawn_rounds(source, draws, options, rng) for source in sources]
    drawn = map(list, zip(*each_drawn, strict=True))
    coarse = list(islice(drawn, n_scales - 1))
    history = [learned_in_rounds(drawn, options, amount, progress=works[0])]
    once = amount._replace(n_rounds=1, n_iter=amount.n_coarse_iter)
    for parts, work in zip(coarse, works[1:], strict=True):
        history.append(learned_in_rounds([parts], options, once, history[-1][-1], work))
    kept = [
        [kept_of(part.patches, scale[-1].transform, part.covariance) for part in parts]
        for scale, parts in zip(history, deque(drawn, n_scales), strict=True)
    ]
    return history, kept


def learned_in_rounds(
    rounds: Iterable[list[Drawn]],
    options: Options,
    amount: Amount,
    init: LearnResult | None = None,
    progress: Progress = SILENT,
) -> list[LearnResult]:
    """One result for each round: its patches are coded by the previous transform."""
    transform = dct_basis(options.patch_shape) if init is None else init.transform
    history: list[LearnResult] = []
    for its, parts in zip(progress.sections([1] * amount.n_rounds), rounds, strict=False):
        sparsity = np.concatenate([_sparsity(part, transform) for part in parts])
        result = learn(
            _stacked([part.patches for part in parts]),
            options.method,
            n_nonzero_coefs=sparsity,
            init=history[-1] if history else transform if init is None else init,
            max_iter=amount.n_iter,
            tol=1e-4,
            callback=_reporting(options.callback, its, amount.n_iter),
        )
        its(1.0)  # fewer iterations may have been enough
        history.append(result)
        transform = result.transform
        if _has_settled(result, amount.settled):
            break
    return history


def _has_settled(result: LearnResult, limit: float) -> bool:
    """Whether the last iteration changed the loss by less than this part of it."""
    losses = result.loss[-2:]
    return len(losses) == 2 and bool(abs(losses[0] - losses[1]) < limit * losses[0])


def _reporting(callback: Callback | None, progress: Progress, n_iter: int) -> Callback | None:
    """The callback of a round of learning, which reports each of its iterations."""
    if progress.listener is None:
        return callback
    iterations = count(1)

    def report(result: LearnResult) -> bool | None:
        progress(next(iterations) / n_iter)
        return None if callback is None else callback(result)

    return report


def learning_fraction(image: Any, options: Options) -> float:
    """Fraction of the work on a component that is learning."""
    if options.transform is not None:
        return 0.0
    if library_of(image) == "dask":  # denoised when the result is computed
        return 1.0
    n_patches = grid_of(image.shape, options.patch_shape).n_patches
    denoising = n_patches * cost_of(options.quality)
    amount = amount_for(options.quality)
    learning = _LEARNING_COST * amount.n_rounds * min(amount.n_patches, n_patches)
    return learning / (learning + denoising)


def _sparsity(drawn: Drawn, transform: NDArray) -> NDArray:
    """Number of coefficients of each patch that exceed their thresholds."""
    rule = rule_of(transform, drawn.covariance)
    both = like(np.vstack([transform.T, rule.thresholds]).astype(np.float32), drawn.patches)
    matrix, thresholds = both[:-1], both[-1]

    def numbers(first: int, _: Workspace) -> list[int]:
        above = abs(drawn.patches[first : first + _CODED_AT_ONCE] @ matrix) > thresholds
        found: list[int] = above.sum(1).tolist()
        return found

    starts = range(0, len(drawn.patches), _CODED_AT_ONCE)
    return np.concatenate(mapped_in_order(numbers, starts))


def _stacked(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if library_of(parts[0]) == "torch":
        import torch

        return torch.cat(parts)
    return np.concatenate(parts)


# --- What thresholding keeps


def kept_of(patches: Any, transform: NDArray, covariance: NDArray | None) -> Kept | None:
    r"""What thresholding keeps of mean-free patches in units of their noise; None if not white.

    Thresholding h reduces the signal s of the coefficients z = s + noise by the factor
    :math:`\sum s h(z) / \sum s^2`. In units of the noise, :math:`\sum s^2 \approx \sum (z^2 - 1)`,
    and by Stein's lemma, with the threshold t and n coefficients,
    :math:`\sum s h(z) \approx \sum_{|z| > t} (z^2 - 1) - 2 t \varphi(t) n`
    if coefficients near the threshold are noise.
    """
    if covariance is not None:
        return None
    rows = transform / np.linalg.norm(transform, axis=1, keepdims=True)
    variances = 1 - rows.sum(1) ** 2 / rows.shape[1]  # of the noise of patches without their means
    both = like(np.vstack([rows.T, variances]).astype(np.float32), patches)
    matrix, noise = both[:-1], both[-1]
    whole = signal = number = 0.0
    for first in range(0, len(patches), _CODED_AT_ONCE):
        squares = (patches[first : first + _CODED_AT_ONCE] @ matrix) ** 2
        above, excess = squares > THRESHOLD**2, squares - noise
        whole += float(excess.sum())
        signal += float((excess * above).sum())
        number += float(above.sum())
    n_noisy = len(patches) * float(variances.sum())
    by_chance = n_noisy * math.erfc(THRESHOLD / math.sqrt(2))
    signal -= n_noisy * THRESHOLD * math.sqrt(2 / math.pi) * math.exp(-(THRESHOLD**2) / 2)
    whole, signal = whole + _DOUBT * n_noisy, signal + _DOUBT * n_noisy
    factor = min(max(signal / whole, _LEAST_KEPT), 1.0) if whole > 0 else 1.0
    return Kept(factor, min(by_chance / number, 1.0) if number else 1.0)
