"""Denoising an image patch by patch with a given transform, and aggregation of the patches.

Patches are extracted, denoised and aggregated block by block: they are never all in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.cleaning.kernels import gather, keep_above, scatter, shrink
from kappaform.imaging.patches import grid_of
from kappaform.imaging.progress import SILENT, Progress
from kappaform.threads import Workspace, mapped_in_order

# Both were chosen among a few values on six noisy images of the paper
# (docs/denoising-benchmarks.md).
THRESHOLD = 2.7  # of hard thresholding, in standard deviations of the noise of a coefficient
NOISE = 0.8  # variance that Wiener filtering assumes: a first estimate has lost some signal

_LEAST_VARIANCE = 1e-6  # of a coefficient, over the mean of all: the constant patch has none

_PART_ROWS = 32  # rows of patches that one thread processes at a time
_BLOCK_PATCHES = 2048

#: Denoises a block of mean-free patches in place; returns their weights and numbers of
#: coefficients. `guides` holds the same patches of another image, if there is one.
PatchDenoiser = Callable[[NDArray, NDArray | None, Workspace], tuple[NDArray, NDArray]]


class Rule(NamedTuple):
    """The transform, its inverse, and the noise of coefficients: arrays, or tensors."""

    analysis: Any  #: the transform
    synthesis: Any  #: its inverse
    thresholds: Any  #: smaller coefficients are noise
    variances: Any  #: of the noise of each coefficient
    energies: Any  #: of the noise that each coefficient adds to a patch


def rule_of(
    transform: NDArray,
    covariance: NDArray | None = None,
    threshold: float = THRESHOLD,
    noise: float = NOISE,
) -> Rule:
    """The rule for an image in units of its noise, with this covariance in a patch."""
    if covariance is None:
        variances = np.sum(transform**2, axis=1)
    else:
        variances = np.einsum("ij,jk,ik->i", transform, covariance, transform)
        variances = np.maximum(variances, _LEAST_VARIANCE * variances.mean())
    inverse = np.linalg.inv(transform)
    energies = variances * np.sum(inverse**2, axis=0)
    return Rule(transform, inverse, threshold * np.sqrt(variances), noise * variances, energies)


def sweep(
    image: NDArray,
    patch_shape: tuple[int, ...],
    denoise: PatchDenoiser,
    guide: NDArray | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    progress: Progress = SILENT,
    step: int = 1,
) -> tuple[NDArray, NDArray]:
    """The denoised image, and for each pixel the mean number of coefficients of its patches.

    Patches are taken from every row of the image, or only every `step` rows, and clipped to
    `bounds` before they are averaged.
    """
    grid = grid_of(image.shape, patch_shape, strides_of(patch_shape, step))
    row_pixels, row_patches = math.prod(grid.shape[1:]), math.prod(grid.counts[1:])
    places = grid.places[0]
    flat, flat_guide = image.reshape(-1), None if guide is None else guide.reshape(-1)
    low_high = np.array(bounds, image.dtype)

    def sums_of(part: slice, workspace: Workspace) -> NDArray:
        """Sums of values, weights and counts of the patches that begin in some rows."""
        first_row = int(places[part.start])
        height = int(places[part.stop - 1]) - first_row + patch_shape[0]
        sums = np.zeros((3, height * row_pixels), image.dtype)
        last = part.stop * row_patches
        for first in range(part.start * row_patches, last, _BLOCK_PATCHES):
            starts = grid.starts(np.arange(first, min(first + _BLOCK_PATCHES, last)))
            patches, means = _gathered(flat, starts, grid.offsets, workspace, "patches")
            guides = None
            if flat_guide is not None:
                guides, _ = _gathered(flat_guide, starts, grid.offsets, workspace, "guides")
            weights, counts = denoise(patches, guides, workspace)
            within = starts - first_row * row_pixels
            scatter(patches, means, weights, counts, within, grid.offsets, low_high, sums)
        return sums.reshape(3, height, *grid.shape[1:])

    n_rows = grid.counts[0]
    parts = [slice(row, min(row + _PART_ROWS, n_rows)) for row in range(0, n_rows, _PART_ROWS)]
    sums = np.zeros((3, *image.shape), image.dtype)
    rows = iter(parts)

    def add(some: NDArray) -> None:
        part = next(rows)
        first_row = int(places[part.start])
        sums[:, first_row : first_row + some.shape[1]] += some

    mapped_in_order(sums_of, parts, progress.over(len(parts)), add)
    return sums[0] / sums[1], sums[2] / grid.overlaps().astype(np.float32)


def strides_of(patch_shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    """Strides of patches that begin every `step` rows, or half of a patch if that is less.

    Rows are along the first axis on which a patch is longer than 1.
    """
    rows = next((axis for axis, side in enumerate(patch_shape) if side > 1), 0)
    strides = [1] * len(patch_shape)
    strides[rows] = max(1, min(step, patch_shape[rows] // 2))
    return tuple(strides)


def patch_denoiser(rule: Rule, image: NDArray) -> PatchDenoiser:
    """Hard thresholding of the coefficients; empirical Wiener filtering where there is a guide.

    The Wiener filter scales each coefficient by the fraction of signal that the guide shows; the
    squared fractions are counted. The more noise is left in a patch, the less it weighs.
    """
    dtype = image.dtype
    arrays = (np.ascontiguousarray(array.T, dtype) for array in rule)
    analysis, synthesis, thresholds, variances, energies = arrays

    def denoise(patches: NDArray, guides: NDArray | None, workspace: Workspace) -> tuple:
        coefs = product(patches, analysis, workspace, "coefs")
        counts, left = np.empty((2, len(patches)), dtype)
        if guides is None:
            keep_above(coefs, thresholds, energies, synthesis, patches, counts, left)
            return 1 / (1 + left), counts
        shown = product(guides, analysis, workspace, "shown")
        shrink(coefs, shown, variances, energies, counts, left)
        np.matmul(coefs, synthesis, out=patches)
        return 1 / (dtype.type(1 / len(analysis)) + left), counts

    return denoise


def product(patches: NDArray, matrix: NDArray, workspace: Workspace, name: str) -> NDArray:
    """Rows times a matrix, in memory that the thread reuses."""
    out = _block(workspace, name, len(patches), len(matrix), patches.dtype)
    return np.matmul(patches, matrix, out=out)


def _gathered(
    image: NDArray, starts: NDArray, offsets: NDArray, workspace: Workspace, name: str
) -> tuple[NDArray, NDArray]:
    """Mean-free patches of a flat image and their means."""
    patches = _block(workspace, name, starts.size, offsets.size, image.dtype)
    means = np.empty(starts.size, image.dtype)
    gather(image, starts, offsets, patches, means)
    return patches, means


def _block(workspace: Workspace, name: str, n_rows: int, n: int, dtype: np.dtype) -> NDArray:
    if name not in workspace:
        workspace[name] = np.empty((_BLOCK_PATCHES, n), dtype)
    return workspace[name][:n_rows]
