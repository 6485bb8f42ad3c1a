"""The stages of denoising: single patches, the same at coarser scales, and groups of patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.axes import ANY_VALUE
from kappaform.imaging.cleaning.groups import Rounds, Search, noise_of_groups, refined
from kappaform.imaging.cleaning.patchwise import Rule, rule_of
from kappaform.imaging.cleaning.scales import MOST_SCALES, can_be_halved, halved, with_smooth_part
from kappaform.imaging.options import Quality
from kappaform.imaging.progress import SILENT, Progress


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a component of an image is denoised, once its transforms are known."""

    transforms: tuple[NDArray, ...]  #: of ordinary scale; of the image, then of coarser scales
    patch_shape: tuple[int, ...]
    sigma: float
    covariance: NDArray | None  #: of the noise of a patch in units of sigma**2; None: white
    centre: float  #: subtracted from all values, so that they need few digits
    dtype: np.dtype  #: in which patches are denoised
    value_range: tuple[float, float]

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of values in the units in which patches are denoised."""
        low, high = self.value_range
        return (low - self.centre) / self.sigma, (high - self.centre) / self.sigma


class Effort(NamedTuple):
    """How groups are used."""

    rounds: Rounds
    stride: int
    steps: tuple[int, int]  #: rows from patch to patch in the two sweeps before
    cost: float  #: relative to that of single patches; only progress depends on it


# Chosen on every other one of 16 photographs at three levels of noise, and on the paper's images at
# three (docs/denoising-benchmarks.md, protocol). With every second row in the first sweep,
# nine grey pictures and three in colour changed by 0.000 and -0.003 dB, in "fast" by -0.008 and
# -0.011; in both sweeps, tiles no longer agreed to 0.02 of the noise.
_STEPS = 2, 1
EFFORTS: dict[Quality, Effort | None] = {
    "fast": None,
    "balanced": Effort(
        Rounds(4, per_search=2, first_fraction=0.6, guided=0.5), stride=4, steps=_STEPS, cost=6
    ),
    "best": Effort(
        Rounds(6, per_search=2, first_fraction=0.75, guided=0.25), stride=3, steps=_STEPS, cost=16
    ),
}
# Side of a patch, radius of the search, members of a group; along frames of a movie the radius 2.
_PLANE = 6, 32, 64
_VOLUME = 3, 5, 48
_MOVIE = 6, 16, 64
_FRAMES = 2
_CONTEXT = 1
# An image with values beyond so many standard deviations of the noise is not halved: such a value
# would ring all over the half, and squares would have no digits left for the noise.
_LARGEST_IN_HALVES = 2.0**24


def denoised(
    noisy: Sequence[Any],
    recipes: Sequence[Recipe],
    quality: Quality,
    kernels: Any,
    progress: Progress = SILENT,
    scale: int = 0,
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Denoised components of an image, and over each pixel the mean number of coefficients.

    The components are in units of their noise. `kernels` offers `patch_denoiser`, `sweep` and
    `groups` for their library, as `HostBackend` does. The halved image is denoised in the same way,
    and provides the smooth content; correlated noise would have another covariance there.
    """
    effort, shape, patch_shape = EFFORTS[quality], noisy[0].shape, recipes[0].patch_shape
    is_white = all(recipe.covariance is None for recipe in recipes)
    has_half = is_white and scale + 1 < MOST_SCALES and can_be_halved(shape, patch_shape)
    has_half = has_half and all(float(abs(each).max()) <= _LARGEST_IN_HALVES for each in noisy)
    cost = 0.0 if effort is None else effort.cost
    of_half, *of_components, of_groups = progress.sections(
        [(1 + cost) / 4 * has_half, *[1 / len(noisy)] * len(noisy), cost]
    )
    halves: Sequence[Any] = [None] * len(noisy)
    if has_half:
        images = [halved(image, patch_shape) for image in noisy]
        halves, _ = denoised(images, recipes, quality, kernels, of_half, scale + 1)
    each = zip(noisy, recipes, halves, of_components, strict=True)
    steps = (1, 1) if effort is None else effort.steps
    found = [_by_patches(*one, kernels, scale, steps) for one in each]
    estimates, counts = zip(*found, strict=True)
    if effort is None:
        return estimates, counts
    search = _search(patch_shape, shape, effort, is_white)
    noises = [
        noise_of_groups(recipe.covariance, patch_shape, search.patch_shape) for recipe in recipes
    ]
    better = refined(noisy, estimates, noises, search, effort.rounds, kernels.groups, of_groups)
    if not is_white:  # above patches alone in six of six trials, which groups alone were not
        better = [(one + two) / 2 for one, two in zip(better, estimates, strict=True)]
    return [with_smooth_part(*pair) for pair in zip(better, halves, strict=True)], counts


def is_movie(patch_shape: Sequence[int]) -> bool:
    """Whether each patch lies in one frame."""
    return len(patch_shape) == 3 and patch_shape[0] == 1


def _by_patches(
    noisy: Any,
    recipe: Recipe,
    half: Any,
    progress: Progress,
    kernels: Any,
    scale: int,
    steps: tuple[int, int],
) -> tuple[Any, Any]:
    """One component denoised patch by patch."""
    transform = recipe.transforms[min(scale, len(recipe.transforms) - 1)]
    bounds = recipe.bounds if scale == 0 else ANY_VALUE
    rule = rule_of(transform, recipe.covariance)
    return two_sweeps(noisy, recipe.patch_shape, rule, bounds, kernels, half, progress, steps)


def two_sweeps(
    image: Any,
    patch_shape: tuple[int, ...],
    rule: Rule,
    bounds: tuple[float, float],
    kernels: Any,
    half: Any = None,
    progress: Progress = SILENT,
    steps: tuple[int, int] = (1, 1),
) -> tuple[Any, Any]:
    """Hard thresholding, then empirical Wiener filtering with the first estimate as its guide.

    The image is in units of its noise. Both estimates take their smooth content from `half`, the
    denoised image at half its size, if there is one. Also returns the mean number of coefficients
    over each pixel.
    """
    denoise = kernels.patch_denoiser(rule, image)
    first, second = progress.sections([1, 1])
    guide, counts = kernels.sweep(image, patch_shape, denoise, None, bounds, first, steps[0])
    guide = with_smooth_part(guide, half)
    estimate, _ = kernels.sweep(image, patch_shape, denoise, guide, bounds, second, steps[1])
    return with_smooth_part(estimate, half), counts


def _search(
    patch_shape: tuple[int, ...], shape: tuple[int, ...], effort: Effort, is_white: bool
) -> Search:
    """How groups are made in an image of this shape, always with three axes.

    The covariance of correlated noise is known within a patch of `patch_shape` only.
    """
    has_frames = is_movie(patch_shape)
    side, radius, n_members = _PLANE if len(shape) == 2 else _MOVIE if has_frames else _VOLUME
    flat = len(shape) == 2 or has_frames
    sides = (1, side, side) if flat else (side, side, side)
    known = (1,) * (3 - len(shape)) + tuple(shape if is_white else patch_shape)
    strides = (1, effort.stride, effort.stride) if flat else (2, 2, 2)
    return Search(
        patch_shape=tuple(map(min, sides, known)),
        stride=strides,
        radius=(_FRAMES if has_frames else 0, radius, radius) if flat else (radius,) * 3,
        context=_CONTEXT,
        n_members=n_members,
    )
