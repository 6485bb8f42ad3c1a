"""Denoising an image patch by patch with a given transform, and aggregation of the patches.

Patches are extracted, denoised and aggregated block by block: they are never all in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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
# The same, over the square of the factor by which the first estimate reduces the signal, if this is
# known: chosen among 0.7, 0.8, 0.9 and 1 on parts of the paper's images and photographs.
_NOISE_OVER_KEPT = 0.9

_LEAST_VARIANCE = 1e-6  # of a coefficient, over the mean of all: the constant patch has none

_PART_ROWS = 32  # rows of patches that one thread processes at a time
_BLOCK_PATCHES = 2032  # whole lines of the cache, but no power of two: its rows would share some

#: Denoises a block of mean-free patches, its columns, in place; returns their weights and numbers
#: of coefficients. `guides` holds the same patches of another image, if there is one.
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


class Kept(NamedTuple):
    """What hard thresholding keeps of patches with white noise."""

    signal: float  #: factor by which it reduces the signal
    noise: float  #: fraction of noise among the coefficients that it keeps

    @property
    def wiener_noise(self) -> float:
        """Variance that a Wiener filter assumes, where a signal is larger than its estimate."""
        return _NOISE_OVER_KEPT * self.signal**2


def sweep(
    image: NDArray,
    patch_shape: tuple[int, ...],
    denoise: PatchDenoiser,
    guide: NDArray | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    progress: Progress = SILENT,
) -> tuple[NDArray, NDArray]:
    """The denoised image, and for each pixel the mean number of coefficients of its patches.

    Patches are clipped to `bounds` before they are averaged.
    """
    grid = grid_of(image.shape, patch_shape)
    row_pixels, row_patches = math.prod(grid.shape[1:]), math.prod(grid.counts[1:])
    flat, flat_guide = image.reshape(-1), None if guide is None else guide.reshape(-1)
    low_high = np.array(bounds, image.dtype)

    def sums_of(part: slice, workspace: Workspace) -> tuple[NDArray, NDArray]:
        """Weighted sums of the patches that begin in some rows; their weights and counts."""
        height = part.stop - part.start + patch_shape[0] - 1
        sums = np.zeros(height * row_pixels, image.dtype)
        begin, last = part.start * row_patches, part.stop * row_patches
        marks = np.empty((2, last - begin), image.dtype)
        for first in range(begin, last, _BLOCK_PATCHES):
            numbers = np.arange(first, min(first + _BLOCK_PATCHES, last))
            starts = grid.starts(numbers)
            patches, means = _gathered(flat, starts, grid.offsets, workspace, "patches")
            guides = None
            if flat_guide is not None:
                guides, _ = _gathered(flat_guide, starts, grid.offsets, workspace, "guides")
            weights, counts = denoise(patches, guides, workspace)
            marks[:, numbers - begin] = weights, counts
            within = starts - part.start * row_pixels
            scatter(patches, means, weights, within, grid.offsets, low_high, sums)
        return sums.reshape(height, *grid.shape[1:]), marks

    n_rows = grid.counts[0]
    parts = [slice(row, min(row + _PART_ROWS, n_rows)) for row in range(0, n_rows, _PART_ROWS)]
    sums = np.zeros(image.shape, image.dtype)
    weights, counts = np.zeros((2, *image.shape), image.dtype)
    inside = tuple(map(slice, grid.counts[1:]))
    rows = iter(parts)

    def add(result: tuple[NDArray, NDArray]) -> None:
        part, (some, marks) = next(rows), result
        sums[part.start : part.stop + patch_shape[0] - 1] += some
        for each, of_patches in zip((weights, counts), marks, strict=True):
            each[(part, *inside)] = of_patches.reshape(-1, *grid.counts[1:])

    mapped_in_order(sums_of, parts, progress.over(len(parts)), add)
    weights, counts = each_over_pixels((weights, counts), patch_shape)
    return sums / weights, counts / grid.overlaps().astype(np.float32)


def patch_denoiser(rule: Rule, image: NDArray) -> PatchDenoiser:
    """Hard thresholding of the coefficients; empirical Wiener filtering where there is a guide.

    The Wiener filter scales each coefficient by the fraction of signal that the guide shows; the
    squared fractions are counted. The more noise is left in a patch, the less it weighs.
    """
    dtype = image.dtype
    arrays = (np.ascontiguousarray(array, dtype) for array in rule)
    analysis, synthesis, thresholds, variances, energies = arrays

    def denoise(patches: NDArray, guides: NDArray | None, workspace: Workspace) -> tuple:
        coefs = product(analysis, patches, workspace, "coefs")
        counts, left = np.empty((2, patches.shape[1]), dtype)
        if guides is None:
            keep_above(coefs, thresholds, energies, counts, left)
            weights = 1 / (1 + left)
        else:
            shown = product(analysis, guides, workspace, "shown")
            shrink(coefs, shown, variances, energies, counts, left)
            weights = 1 / (dtype.type(1 / len(analysis)) + left)
        np.matmul(synthesis, coefs, out=patches)
        return weights, counts

    return denoise


def product(one: NDArray, other: NDArray, workspace: Workspace, name: str) -> NDArray:
    """A product of matrices, in memory that the thread reuses."""
    out = _block(workspace, name, (one.shape[0], other.shape[1]), one.dtype)
    return np.matmul(one, other, out=out)


def _gathered(
    image: NDArray, starts: NDArray, offsets: NDArray, workspace: Workspace, name: str
) -> tuple[NDArray, NDArray]:
    """Mean-free patches of a flat image and their means."""
    patches = _block(workspace, name, (offsets.size, starts.size), image.dtype)
    means = np.empty(starts.size, image.dtype)
    gather(image, starts, offsets, patches, means)
    return patches, means


def _block(workspace: Workspace, name: str, shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    size = math.prod(shape)
    if len(workspace.get(name, ())) < size:
        workspace[name] = np.empty(size, dtype)
    return workspace[name][:size].reshape(shape)


# --- Aggregation


def over_pixels(weights: Any, patch_shape: Sequence[int]) -> Any:
    """Sum of the weights of the patches over each pixel, from the weight of the patch at each.

    The weights are an array or a tensor, of zero where no patch begins.
    """
    for axis, side in enumerate(patch_shape):
        total, others = weights * 1, (slice(None),) * axis
        for offset in range(1, side):
            total[(*others, slice(offset, None))] += weights[(*others, slice(-offset))]
        weights = total
    return weights


def each_over_pixels(arrays: Iterable[NDArray], patch_shape: Sequence[int]) -> list[NDArray]:
    """`over_pixels` of several arrays, one for each thread."""
    return mapped_in_order(lambda weights, _: over_pixels(weights, patch_shape), list(arrays))


def over_patches(which: NDArray, patch_shape: Sequence[int]) -> NDArray:
    """Number of these pixels in the patch that begins at each pixel, within the image."""
    reverse = (slice(None, None, -1),) * which.ndim
    return np.asarray(over_pixels(which[reverse].astype(np.int32), patch_shape)[reverse])
