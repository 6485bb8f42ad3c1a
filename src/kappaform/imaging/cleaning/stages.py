"""The stages of denoising: single patches, the same at coarser scales, and groups of patches.

Smooth content separates better from noise in an image of half the size. Halving keeps the lowest
half of the frequencies (orthonormal DCT) along each axis. White noise stays white and keeps its
standard deviation, while smooth content becomes stronger. Images are arrays or tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn, idctn

from kappaform.checks import library_of
from kappaform.imaging.axes import ANY_VALUE
from kappaform.imaging.cleaning.groups import Rounds, Search, noise_of_groups, refined
from kappaform.imaging.cleaning.patchwise import NOISE, Kept, Rule, rule_of
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
    kept: tuple[Kept | None, ...]  #: by thresholding with each transform; None: not known

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of values in the units in which patches are denoised."""
        low, high = self.value_range
        return (low - self.centre) / self.sigma, (high - self.centre) / self.sigma

    def at(self, scale: int) -> tuple[NDArray, Kept | None]:
        """The transform of a scale, and what thresholding with it keeps."""
        number = min(scale, len(self.transforms) - 1)
        return self.transforms[number], self.kept[number]


class Effort(NamedTuple):
    """How groups are used."""

    rounds: Rounds
    stride: int
    cost: float  #: relative to hard thresholding of single patches; only progress depends on it

    @property
    def coarse_cost(self) -> float:
        """The same in a halved image."""
        return self.cost * (self.stride / _APART) ** 2


# Chosen on every other one of 16 photographs at three levels of noise, and on the paper's images at
# three (docs/denoising-benchmarks.md, protocol).
EFFORTS: dict[Quality, Effort | None] = {
    "fast": None,
    "balanced": Effort(Rounds(4, per_search=2, first_fraction=0.6, guided=0.5), stride=4, cost=9),
    "best": Effort(Rounds(6, per_search=2, first_fraction=0.75, guided=0.25), stride=3, cost=22),
}
# Side of a patch, radius of the search, members of a group; along frames of a movie the radius 2.
_PLANE = 6, 32, 64
_VOLUME = 3, 5, 48
_MOVIE = 6, 16, 64
_FRAMES = 2
_CONTEXT = 1
# Stride in the plane of a halved image, the side of a patch: only its lowest frequencies are taken.
# Chosen on every other one of 16 photographs, sigma 25: -0.001 dB ("balanced") and -0.002 ("best").
_APART = _PLANE[0]
# An image with values beyond so many standard deviations of the noise is not halved: such a value
# would ring all over the half, and squares would have no digits left for the noise.
_LARGEST_IN_HALVES = 2.0**24
MOST_SCALES = 3  # more were not tried
# Fraction of the frequencies of the halved image that is taken from it. Best of 0.2, 0.3 and 0.4
# on the paper's 30 images; on four photographs at three noise levels 0.4 was as good.
_TAKEN = 0.3
_WIENER_COST = 1.5  # relative to hard thresholding: three products of matrices, not two
# Fraction of noise among the kept coefficients above which groups follow a Wiener filter: parts of
# the paper's images and of photographs gain up to 0.06 dB above it, and lose as much below.
_NOISY = 0.4
_LEAST_PATCHES = 2  # along each axis of a halved image


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
    noises = [_filtered_noise(recipe, scale, effort is None or not is_white) for recipe in recipes]
    has_half = is_white and scale + 1 < MOST_SCALES and can_be_halved(shape, patch_shape)
    has_half = has_half and all(float(abs(each).max()) <= _LARGEST_IN_HALVES for each in noisy)
    cost, of_coarse = (0.0, 0.0) if effort is None else (effort.cost, effort.coarse_cost)
    cost, single = of_coarse if scale else cost, 1 + _WIENER_COST * any(noises)
    of_half, *of_components, of_groups = progress.sections(
        [(single + of_coarse) / 4 * has_half, *[single / len(noisy)] * len(noisy), cost]
    )
    halves: Sequence[Any] = [None] * len(noisy)
    if has_half:
        halves = denoised(
            [halved(image, patch_shape) for image in noisy],
            recipes, quality, kernels, of_half, scale + 1,
        )[0]  # fmt: skip
    each = zip(noisy, recipes, halves, noises, of_components, strict=True)
    estimates, counts = _all_by_patches(each, kernels, scale)
    if effort is None:
        return estimates, counts
    search = _search(patch_shape, shape, effort.stride if scale == 0 else _APART, is_white)
    of_patches = [
        noise_of_groups(recipe.covariance, patch_shape, search.patch_shape) for recipe in recipes
    ]
    better = estimates if is_white else list(estimates)
    better = refined(noisy, better, of_patches, search, effort.rounds, kernels.groups, of_groups)
    if not is_white:  # above patches alone in six of six trials, which groups alone were not
        better = [(one + two) / 2 for one, two in zip(better, estimates, strict=True)]
    return [with_smooth_part(*pair) for pair in zip(better, halves, strict=True)], counts


def _filtered_noise(recipe: Recipe, scale: int, is_last: bool) -> float | None:
    """The variance of noise that a Wiener filter assumes; None: groups follow thresholding.

    `is_last`: no groups follow. Before groups a filter smooths texture, unless noise is strong.
    """
    _, kept = recipe.at(scale)
    if kept is None:
        return NOISE if is_last else None
    return kept.wiener_noise if is_last else NOISE if kept.noise > _NOISY else None


def cost_of(quality: Quality) -> float:
    """Cost of denoising an image, relative to hard thresholding; only progress depends on it."""
    effort = EFFORTS[quality]
    return 1 + (_WIENER_COST if effort is None else effort.cost)


def is_movie(patch_shape: Sequence[int]) -> bool:
    """Whether each patch lies in one frame."""
    return len(patch_shape) == 3 and patch_shape[0] == 1


def _all_by_patches(each: Iterable[tuple], *how: Any) -> tuple[list[Any], list[Any]]:
    """All components denoised patch by patch, and one map of counts: their sum."""
    estimates: list[Any] = []
    counts: list[Any] = []
    for one in each:
        estimate, numbers = _by_patches(*one, *how)
        estimates.append(estimate)
        counts = [counts[0] + numbers] if counts else [numbers]
    return estimates, counts


def _by_patches(
    noisy: Any,
    recipe: Recipe,
    half: Any,
    noise: float | None,
    progress: Progress,
    kernels: Any,
    scale: int,
) -> tuple[Any, Any]:
    """One component denoised patch by patch, by `two_sweeps` if a filter assumes some noise."""
    transform, _ = recipe.at(scale)
    bounds = recipe.bounds if scale == 0 else ANY_VALUE
    rule = rule_of(transform, recipe.covariance, noise=noise or NOISE)
    estimate = two_sweeps if noise else thresholded
    return estimate(noisy, recipe.patch_shape, rule, bounds, kernels, half, progress)


def thresholded(
    image: Any,
    patch_shape: tuple[int, ...],
    rule: Rule,
    bounds: tuple[float, float],
    kernels: Any,
    half: Any = None,
    progress: Progress = SILENT,
) -> tuple[Any, Any]:
    """Hard thresholding of all patches, and the mean number of coefficients over each pixel.

    The image is in units of its noise. The estimate takes its smooth content from `half`, the
    denoised image at half its size, if there is one.
    """
    denoise = kernels.patch_denoiser(rule, image)
    estimate, counts = kernels.sweep(image, patch_shape, denoise, None, bounds, progress)
    return with_smooth_part(estimate, half), counts


def two_sweeps(
    image: Any,
    patch_shape: tuple[int, ...],
    rule: Rule,
    bounds: tuple[float, float],
    kernels: Any,
    half: Any = None,
    progress: Progress = SILENT,
) -> tuple[Any, Any]:
    """The same, followed by empirical Wiener filtering with the first estimate as its guide."""
    first, second = progress.sections([1, _WIENER_COST])
    guide, counts = thresholded(image, patch_shape, rule, bounds, kernels, half, first)
    denoise = kernels.patch_denoiser(rule, image)
    estimate, _ = kernels.sweep(image, patch_shape, denoise, guide, bounds, second)
    return with_smooth_part(estimate, half), counts


def _search(
    patch_shape: tuple[int, ...], shape: tuple[int, ...], stride: int, is_white: bool
) -> Search:
    """How groups are made in an image of this shape, always with three axes.

    The covariance of correlated noise is known within a patch of `patch_shape` only.
    """
    has_frames = is_movie(patch_shape)
    side, radius, n_members = _PLANE if len(shape) == 2 else _MOVIE if has_frames else _VOLUME
    flat = len(shape) == 2 or has_frames
    sides = (1, side, side) if flat else (side, side, side)
    known = (1,) * (3 - len(shape)) + tuple(shape if is_white else patch_shape)
    strides = (1, stride, stride) if flat else (2, 2, 2)
    return Search(
        patch_shape=tuple(map(min, sides, known)),
        stride=strides,
        radius=(_FRAMES if has_frames else 0, radius, radius) if flat else (radius,) * 3,
        context=_CONTEXT,
        n_members=n_members,
    )


# --- Coarser scales


def can_be_halved(shape: Sequence[int], patch_shape: Sequence[int]) -> bool:
    """Whether the half is large enough. An axis along which patches have one pixel is kept."""
    sizes = [(size, side) for size, side in zip(shape, patch_shape, strict=True) if side > 1]
    return bool(sizes) and all(size // 2 >= _LEAST_PATCHES * side for size, side in sizes)


def n_scales_of(shape: Sequence[int], patch_shape: Sequence[int]) -> int:
    """Number of scales of an image: its own size, and those that it is halved to."""
    number = 1
    while number < MOST_SCALES and can_be_halved(shape, patch_shape):
        shape = _half_shape(shape, patch_shape)
        number += 1
    return number


def halved(image: Any, patch_shape: Sequence[int]) -> Any:
    """The image at half its size."""
    shape = _half_shape(image.shape, patch_shape)
    axes = [axis for axis, side in enumerate(patch_shape) if side > 1]
    return _inverse_dct(_dct(image, axes)[tuple(map(slice, shape))], axes)


def with_smooth_part(image: Any, half: Any | None) -> Any:
    """An image with the lowest frequencies of another one of half its size, if there is one."""
    if half is None:
        return image
    sizes = list(zip(image.shape, half.shape, strict=True))
    axes = [axis for axis, (size, small) in enumerate(sizes) if small < size]
    low = tuple(
        slice(max(1, round(_TAKEN * small)) if small < size else size) for size, small in sizes
    )
    frequencies = _dct(image, axes)
    frequencies[low] = _dct(half, axes)[low]
    return _inverse_dct(frequencies, axes)


def halved_patches(patches: Any, patch_shape: Sequence[int], n_halvings: int) -> Any:
    """Patches (rows) of a coarser scale, from larger ones: sums of neighbouring pixels.

    White noise keeps its standard deviation. `patch_shape` is that of the halved patches.
    """
    factors = [2**n_halvings if side > 1 else 1 for side in patch_shape]
    shape = [n for pair in zip(patch_shape, factors, strict=True) for n in pair]
    neighbours = tuple(range(2, len(shape) + 1, 2))
    sums = patches.reshape(len(patches), *shape).sum(neighbours)
    return sums.reshape(len(patches), -1) / math.sqrt(math.prod(factors))


def _half_shape(shape: Sequence[int], patch_shape: Sequence[int]) -> list[int]:
    return [n // 2 if side > 1 else n for n, side in zip(shape, patch_shape, strict=True)]


def _dct(image: Any, axes: Sequence[int]) -> Any:
    if library_of(image) == "torch":
        return _multiplied(image, [_basis(image, axis) for axis in axes], axes)
    return dctn(image, axes=axes, norm="ortho")


def _inverse_dct(frequencies: Any, axes: Sequence[int]) -> Any:
    if library_of(frequencies) == "torch":
        return _multiplied(frequencies, [_basis(frequencies, axis).T for axis in axes], axes)
    return idctn(frequencies, axes=axes, norm="ortho")


def _basis(image: Any, axis: int) -> Any:
    """The orthonormal DCT along an axis of a tensor, as a matrix on its device."""
    import torch

    size = image.shape[axis]
    places = torch.arange(size, device=image.device, dtype=torch.float64)
    cosines = torch.cos(math.pi / size * places[:, None] * (places + 0.5)) * math.sqrt(2 / size)
    cosines[0] /= math.sqrt(2)
    return cosines.to(image.dtype)


def _multiplied(image: Any, matrices: Sequence[Any], axes: Sequence[int]) -> Any:
    """A tensor multiplied by a matrix along each of these axes."""
    import torch

    for matrix, axis in zip(matrices, axes, strict=True):
        image = torch.tensordot(image, matrix, dims=([axis], [1])).movedim(-1, axis)
    return image
