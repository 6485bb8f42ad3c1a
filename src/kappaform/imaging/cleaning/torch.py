"""The place of tensors: learning from an image and cleaning it on its device.

The same sums as those of `clean`. Patches are the columns of a matrix, those of a few rows of
positions at a time, so that products are large and memory is bounded. What overlaps is added axis
by axis.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import float_dtype, library_of, representable
from kappaform.engines.torch import check_tensor
from kappaform.imaging.cleaning.patchwise import Rule
from kappaform.imaging.cleaning.stages import Recipe, Tools, cleaned
from kappaform.imaging.cleaning.tiles import Cleaned, in_tiles
from kappaform.imaging.cleaning.torch_groups import refined, tell
from kappaform.imaging.options import Quality
from kappaform.imaging.patches import Grid, mean_free
from kappaform.imaging.work import Progress

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_SLAB_ENTRIES = 2**25  # of the patches that are cleaned at once


class TensorImage:
    """The place of an image that is learned from and cleaned on a device of torch."""

    def __init__(self, components: Sequence[NDArray], device: Any) -> None:
        import torch

        self.dtypes = [float_dtype(image.dtype) for image in components]
        self.components = [
            torch.as_tensor(np.ascontiguousarray(image, dtype), device=device)
            for image, dtype in zip(components, self.dtypes, strict=True)
        ]

    def patches(self, component: int, rounds: Iterable[tuple[Grid, NDArray]]) -> Iterator[Tensor]:
        import torch

        flat = self.components[component].reshape(-1)
        for grid, numbers in rounds:
            offsets = torch.as_tensor(grid.offsets, device=flat.device)
            starts = torch.as_tensor(grid.starts(numbers), device=flat.device)
            yield mean_free(flat[starts[:, None] + offsets].double())

    def cleaned(
        self, recipes: Sequence[Recipe], quality: Quality, progress: Progress | None
    ) -> Cleaned:
        def clean(where: tuple[slice, ...], part: Progress | None) -> Cleaned:
            return self._clean_tile(where, recipes, quality, part)

        outs = [np.empty(tuple(self.components[0].shape), dtype) for dtype in self.dtypes]
        return in_tiles(outs, recipes[0].patch_shape, clean, progress)

    def _clean_tile(
        self,
        where: tuple[slice, ...],
        recipes: Sequence[Recipe],
        quality: Quality,
        progress: Progress | None,
    ) -> Cleaned:
        """The components of a part of an image, and numbers of coefficients: arrays."""
        import torch

        is_single = all(recipe.dtype == np.float32 for recipe in recipes)
        dtype = torch.float32 if is_single else torch.float64
        noisy = [
            ((image[where].double() - recipe.centre) / recipe.sigma).to(dtype)
            for image, recipe in zip(self.components, recipes, strict=True)
        ]
        images, counts = cleaned(noisy, recipes, quality, TOOLS, progress)
        restored = []
        for image, recipe, its_dtype in zip(images, recipes, self.dtypes, strict=True):
            values = image.double() * recipe.sigma + recipe.centre
            values.clamp_(*representable(recipe.value_range, its_dtype))
            restored.append(values.cpu().numpy().astype(its_dtype))
        return restored, [numbers.float().cpu().numpy() for numbers in counts]


def on_host(values: Any, name: str) -> Any:
    """Array of the entries of a tensor; anything else as it is."""
    import torch

    if library_of(values) != "torch":
        return values
    check_tensor(values, name)
    host = values.detach().cpu()
    return (host.float() if host.dtype == torch.bfloat16 else host).numpy()


def as_given(image: NDArray, given: Tensor) -> Tensor:
    """Tensor of an image on the device of the given one, and of its dtype where that is a float."""
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(image)).to(given.device)
    if not given.dtype.is_floating_point:
        return tensor
    limits = torch.finfo(given.dtype)
    return tensor.clamp_(limits.min, limits.max).to(given.dtype)


def device_named(name: str) -> torch.device:
    """Device of torch, from an argument of the user."""
    if not re.fullmatch(r"(cpu|cuda)(:\d+)?", name):
        raise ValueError(
            f"device {name!r} is unknown: choose 'cpu', 'cuda' or, by its number, 'cuda:1'."
        )
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"device {name!r} needs the package torch: pip install 'kappaform[torch]'"
        ) from error
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r}: torch finds no CUDA GPU here; choose 'cpu'.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r}: torch finds only {torch.cuda.device_count()} GPU(s).")
    return device


def n_above(patches: Tensor, transform: NDArray, limits: NDArray) -> NDArray:
    """Number of coefficients of each patch (row) whose magnitude exceeds its limit."""
    import torch

    weights, bounds = (torch.tensor(a, device=patches.device) for a in (transform.T.copy(), limits))
    counts: NDArray = ((patches.double() @ weights).abs() > bounds).sum(1).cpu().numpy()
    return counts


def tensors_of(rule: Rule, image: Tensor) -> Rule:
    """The rule as tensors like those of an image."""
    import torch

    return Rule(*(torch.tensor(a, dtype=image.dtype, device=image.device) for a in rule))


def sweep(
    image: Tensor,
    patch_shape: tuple[int, ...],
    rule: Rule,
    guide: Tensor | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    progress: Progress | None = None,
) -> tuple[Tensor, Tensor]:
    """What `clean.sweep` does, a slab of patches at a time."""
    import torch

    positions = [size - side + 1 for size, side in zip(image.shape, patch_shape, strict=True)]
    total = image.new_zeros(image.shape)
    weights, counts = image.new_empty((2, *positions))
    height = max(1, _SLAB_ENTRIES // math.prod((*patch_shape, *positions[1:])))
    for first in range(0, positions[0], height):
        rows = slice(first, min(first + height, positions[0]))
        pixels = slice(rows.start, rows.stop + patch_shape[0] - 1)
        patches, means = _columns(image[pixels], patch_shape)
        guides = None if guide is None else _columns(guide[pixels], patch_shape)[0]
        cleaned, weight, count = _clean(rule, patches, guides)
        cleaned += means
        if bounds != (-math.inf, math.inf):
            cleaned.clamp_(*bounds)
        cleaned *= weight
        grid = (rows.stop - rows.start, *positions[1:])
        total[pixels] += _overlapped(cleaned.view(*patch_shape, *grid), image.ndim)
        weights[rows], counts[rows] = weight.view(grid), count.view(grid)
        tell(progress, rows.stop / positions[0], image)
    overlaps = _spread(torch.ones_like(counts), patch_shape)
    return total / _spread(weights, patch_shape), _spread(counts, patch_shape) / overlaps


def _clean(rule: Rule, patches: Tensor, guides: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """What `clean.cleaner` does to mean-free patches (columns): these, weights and counts."""
    import torch

    coefs = rule.analysis @ patches
    if guides is None:
        kept = (coefs.abs() > rule.limits[:, None]).to(coefs.dtype)
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


def _spread(values: Tensor, patch_shape: tuple[int, ...]) -> Tensor:
    """Image that is the sum of patches of one value each."""
    for axis, side in enumerate(patch_shape):
        values = _shifted_sum(values.expand(side, *values.shape), 0, axis)
    return values


def _shifted_sum(values: Tensor, index_axis: int, axis: int) -> Tensor:
    """Sum over an axis, entry k moved by k along another one (counted without the first)."""
    parts = values.unbind(index_axis)
    length, shape = parts[0].shape[axis], list(parts[0].shape)
    shape[axis] += len(parts) - 1
    total = values.new_zeros(shape)
    for k, part in enumerate(parts):
        total.narrow(axis, k, length).add_(part)
    return total


TOOLS = Tools(tensors_of, sweep, refined)
