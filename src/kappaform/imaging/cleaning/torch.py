"""The backend of tensors: learning from an image and denoising it on its device.

The same sums as those of `patchwise`. Patches are the columns of a matrix, those of a few rows of
positions at a time, so that products are large and memory is bounded. Overlapping patches are added
axis by axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging import tensors
from kappaform.imaging.cleaning.patchwise import Rule, over_pixels
from kappaform.imaging.cleaning.stages import halved_patches
from kappaform.imaging.cleaning.tiles import HostBackend, cast
from kappaform.imaging.cleaning.torch_groups import TensorGroups, report
from kappaform.imaging.patches import DrawnPatches, mean_free
from kappaform.imaging.progress import SILENT, Progress

if TYPE_CHECKING:
    from torch import Tensor

_SLAB_ENTRIES = 2**25  # of the patches that are denoised at once


class TorchBackend(HostBackend):
    """Components that are learned from and denoised on a device of torch."""

    groups = TensorGroups

    def __init__(self, components: Sequence[NDArray], device: Any) -> None:
        super().__init__(components)
        self.components = [
            tensors.to_device(np.ascontiguousarray(image, dtype), device)
            for image, dtype in zip(components, self.dtypes, strict=True)
        ]

    def patches(self, component: int, rounds: DrawnPatches) -> Iterator[Tensor]:
        import torch

        flat = self.components[component].reshape(-1)
        for grid, numbers in rounds:
            offsets = torch.as_tensor(grid.offsets, device=flat.device)
            starts = torch.as_tensor(grid.starts(numbers), device=flat.device)
            yield mean_free(flat[starts[:, None] + offsets].double())

    def training_patches(
        self, component: int, rounds: DrawnPatches, patch_shape: tuple[int, ...], unit: float
    ) -> Iterator[Tensor]:
        for grid, numbers in rounds:
            (patches,) = self.patches(component, [(grid, numbers)])
            patches /= unit
            n_halvings = (max(grid.patch_shape) // max(patch_shape)).bit_length() - 1
            if n_halvings:
                patches = halved_patches(patches, patch_shape, n_halvings)
            yield cast(patches, np.float32)

    def on_host(self, image: Tensor) -> NDArray:
        return tensors.to_host(image)

    @staticmethod
    def patch_denoiser(rule: Rule, image: Tensor) -> Rule:
        """The rule as tensors like those of an image."""
        import torch

        return Rule(*(torch.tensor(a, dtype=image.dtype, device=image.device) for a in rule))

    @staticmethod
    def sweep(
        image: Tensor,
        patch_shape: tuple[int, ...],
        rule: Rule,
        guide: Tensor | None = None,
        bounds: tuple[float, float] = (-math.inf, math.inf),
        progress: Progress = SILENT,
    ) -> tuple[Tensor, Tensor]:
        """What `patchwise.sweep` does, a slab of patches at a time."""
        positions = [size - side + 1 for size, side in zip(image.shape, patch_shape, strict=True)]
        total, weights, counts, ones = image.new_zeros((4, *image.shape))
        others = tuple(slice(length) for length in positions[1:])
        height = max(1, _SLAB_ENTRIES // math.prod((*patch_shape, *positions[1:])))
        for first in range(0, positions[0], height):
            rows = slice(first, min(first + height, positions[0]))
            pixels = slice(rows.start, rows.stop + patch_shape[0] - 1)
            patches, means = _columns(image[pixels], patch_shape)
            guides = None if guide is None else _columns(guide[pixels], patch_shape)[0]
            estimates, weight, count = _denoised(rule, patches, guides)
            estimates += means
            if bounds != (-math.inf, math.inf):
                estimates.clamp_(*bounds)
            estimates *= weight
            grid = (rows.stop - rows.start, *positions[1:])
            total[pixels] += _overlapped(estimates.view(*patch_shape, *grid), image.ndim)
            here = (rows, *others)
            weights[here], counts[here], ones[here] = weight.view(grid), count.view(grid), 1
            report(progress, rows.stop / positions[0], image)
        weights, counts, ones = (over_pixels(w, patch_shape) for w in (weights, counts, ones))
        return total / weights, counts / ones


def _denoised(rule: Rule, patches: Tensor, guides: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """What `patchwise.patch_denoiser` does to mean-free patches (columns), weights and counts."""
    import torch

    coefs = rule.analysis @ patches
    if guides is None:
        kept = (coefs.abs() > rule.thresholds[:, None]).to(coefs.dtype)
        squares, least = kept, 1.0
    else:
        kept = (rule.analysis @ guides).square_()
        kept.div_(kept + rule.variances[:, None])
        squares, least = kept.square(), 1 / len(coefs)
    counts, weights = squares.sum(0), 1 / (least + rule.energies @ squares)
    return torch.mm(rule.synthesis, coefs.mul_(kept), out=patches), weights, counts


def _columns(image: Tensor, patch_shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """All patches of an image as columns without their means, and the means."""
    import torch

    n_axes, windows = image.ndim, image
    for axis, side in enumerate(patch_shape):
        windows = windows.unfold(axis, side, 1)
    windows = windows.permute(*range(n_axes, 2 * n_axes), *range(n_axes))  # patches first
    means = windows.mean(tuple(range(n_axes)))
    patches = torch.sub(windows, means, out=image.new_empty(windows.shape))
    return patches.view(math.prod(patch_shape), -1), means.reshape(-1)


def _overlapped(patches: Tensor, n_axes: int) -> Tensor:
    """Image that is the sum of its patches: the axes within a patch come first."""
    if n_axes == 2:  # one kernel instead of many
        from torch.nn.functional import fold

        sides, grid = patches.shape[:2], patches.shape[2:]
        size = [side + length - 1 for side, length in zip(sides, grid, strict=True)]
        return fold(patches.reshape(1, sides.numel(), -1), size, tuple(sides))[0, 0]
    for axis in reversed(range(n_axes)):
        patches = _shifted_sum(patches, axis, 2 * axis)
    return patches


def _shifted_sum(values: Tensor, index_axis: int, axis: int) -> Tensor:
    """Sum over an axis, entry k moved by k along another one (counted without the first)."""
    parts = values.unbind(index_axis)
    length, shape = parts[0].shape[axis], list(parts[0].shape)
    shape[axis] += len(parts) - 1
    total = values.new_zeros(shape)
    for k, part in enumerate(parts):
        total.narrow(axis, k, length).add_(part)
    return total
