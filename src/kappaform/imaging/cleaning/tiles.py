"""Denoising an image tile by tile, and the backend of arrays in memory.

Each tile is denoised with a margin around it, so that memory stays bounded. What lies beyond the
margin hardly influences a tile, but it does: so an image is divided into the same tiles wherever
its pixels are, in memory, in chunks or on a device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from operator import floordiv
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import float_dtype, library_of
from kappaform.imaging.axes import within
from kappaform.imaging.cleaning.groups import Groups
from kappaform.imaging.cleaning.kernels import gather_means
from kappaform.imaging.cleaning.patchwise import patch_denoiser, sweep
from kappaform.imaging.cleaning.stages import Recipe, denoised, is_movie
from kappaform.imaging.options import Quality
from kappaform.imaging.patches import DrawnPatches
from kappaform.imaging.progress import SILENT, Progress
from kappaform.threads import Workspace, mapped_in_order

#: Denoised components, and maps whose sum is that of their mean numbers of coefficients.
Outputs = tuple[list[Any], list[Any]]

_COMPILED = "fdBH"  # dtypes of images whose patches a kernel gathers
_GATHERED_AT_ONCE = 2_000  # patches, by one thread
# Side of a tile, at most, and its margin: three colours take 20.9 arrays of float32 in it, at most
# 170 MB (docs/scale.md, "Memory").
_PLANE = 1280, 64
_VOLUME = 160, 16
_FRAMES = 16, 4
_FRAME = 512, 64


class HostBackend:
    """Arrays in memory. Subclasses hold the pixels elsewhere and have other kernels."""

    patch_denoiser: Any = staticmethod(patch_denoiser)
    sweep: Any = staticmethod(sweep)
    groups: Any = Groups

    def __init__(self, components: Sequence[Any]) -> None:
        self.components = components
        self.dtypes = [float_dtype(image.dtype) for image in components]

    def training_patches(
        self, component: int, rounds: DrawnPatches, patch_shape: tuple[int, ...], unit: float
    ) -> Iterator[Any]:
        """Mean-free float32 patches in a unit: for each round, some of a grid.

        Where the patches of the grid are larger than `patch_shape`, they are halved to it.
        """
        image = self.components[component]
        for grid, numbers in rounds:
            corners = np.stack(grid.corners(numbers), axis=1)
            yield ready_patches(image, corners, grid.patch_shape, patch_shape, unit)

    def on_host(self, image: Any) -> NDArray:
        """An array of the values of an image."""
        return image

    def denoised(self, recipes: Sequence[Recipe], quality: Quality, progress: Progress) -> Outputs:
        shape = tuple(self.components[0].shape)
        outs = [np.empty(shape, dtype) for dtype in self.dtypes]
        counts = np.empty(shape, np.float32)
        tiles = list(tiles_of(shape, recipes[0].patch_shape))
        for tile, its in zip(tiles, progress.sections([1] * len(tiles)), strict=True):
            found = self.denoised_part(tile.outer, recipes, quality, its)
            for out, image in zip(outs, found[0], strict=True):
                out[tile.inner] = image[tile.within]
            counts[tile.inner] = sum(numbers[tile.within] for numbers in found[1])
        return outs, [counts]

    def denoised_part(
        self,
        where: tuple[slice, ...],
        recipes: Sequence[Recipe],
        quality: Quality,
        progress: Progress = SILENT,
    ) -> Outputs:
        """A part of each component as float64, which fits into the dtype of the results."""
        dtype = np.result_type(*(recipe.dtype for recipe in recipes))
        parts = [image[where] for image in self.components]
        noisy = [_in_units(*one, dtype) for one in zip(parts, recipes, strict=True)]
        images, counts = denoised(noisy, recipes, quality, self, progress)
        restored = []
        for image, recipe, its_dtype in zip(images, recipes, self.dtypes, strict=True):
            values = cast(image, np.float64) * recipe.sigma
            values += recipe.centre
            restored.append(self.on_host(within(values, recipe.value_range, its_dtype)))
        return restored, [self.on_host(cast(numbers, np.float32)) for numbers in counts]


def ready_patches(
    image: NDArray,
    corners: NDArray,
    sides: tuple[int, ...],
    patch_shape: tuple[int, ...],
    unit: float,
) -> NDArray:
    """Patches of these sides without their means, summed to a smaller shape, in a unit: float32.

    White noise of the unit has the standard deviation 1 in them.
    """
    missing = 3 - image.ndim
    places = np.zeros((len(corners), 3), np.int64)
    places[:, missing:] = corners
    factors = (1,) * missing + tuple(map(floordiv, sides, patch_shape))
    patches = np.empty((len(corners), math.prod(patch_shape)), np.float32)
    compiled = image.dtype.isnative and image.dtype.char in _COMPILED
    values = image if compiled else image.astype(np.float64)
    three = values[(np.newaxis,) * missing]
    unit *= math.sqrt(math.prod(factors))
    sides = (1,) * missing + patch_shape

    def gather(first: int, _: Workspace) -> None:
        rows = slice(first, first + _GATHERED_AT_ONCE)
        gather_means(three, places[rows], sides, factors, unit, patches[rows])

    mapped_in_order(gather, range(0, len(corners), _GATHERED_AT_ONCE))
    return patches


def _in_units(pixels: Any, recipe: Recipe, dtype: np.dtype) -> Any:
    """Pixels around the centre, in units of their noise."""
    values = cast(pixels, np.float64) - recipe.centre
    values /= recipe.sigma
    return cast(values, dtype)


def cast(values: Any, dtype: Any) -> Any:
    """An array or a tensor of single or double precision."""
    if library_of(values) != "torch":
        return values.astype(dtype, copy=False)
    return values.float() if dtype == np.float32 else values.double()


def like(array: NDArray, values: Any) -> Any:
    """The array, as a tensor on the device of some values if these are a tensor."""
    if library_of(values) != "torch":
        return array
    import torch

    return torch.tensor(array, device=values.device)


def chosen(condition: Any, one: Any, other: Any) -> Any:
    """Entries of one array or tensor where a condition holds, and of another elsewhere."""
    if library_of(one) != "torch":
        return np.where(condition, one, other)
    import torch

    return torch.where(condition, one, other)


# --- Tiles


class Tile(NamedTuple):
    """A part of an image, the same with its margin, and where the first is in the second."""

    inner: tuple[slice, ...]
    outer: tuple[slice, ...]
    within: tuple[slice, ...]


def cuts(size: int, side: int) -> list[int]:
    """Ends of the equal parts, not longer than a side, that an axis is divided into."""
    number = -(-size // side)
    return [i * size // number for i in range(number + 1)]


def sides_and_margins(patch_shape: Sequence[int]) -> list[tuple[int, int]]:
    """Side and margin of the tiles of an image along each axis; the tiles of a movie are flat."""
    if len(patch_shape) == 2:
        return [_PLANE] * 2
    return [_FRAMES, _FRAME, _FRAME] if is_movie(patch_shape) else [_VOLUME] * 3


def tiles_of(shape: Sequence[int], patch_shape: Sequence[int]) -> Iterator[Tile]:
    """The tiles of an image, in order."""
    along = []
    for size, (side, margin) in zip(shape, sides_and_margins(patch_shape), strict=True):
        parts = []
        for start, stop in pairwise(cuts(size, side)):
            first, last = max(start - margin, 0), min(stop + margin, size)
            within = slice(start - first, stop - first)
            parts.append((slice(start, stop), slice(first, last), within))
        along.append(parts)
    for chosen in product(*along):
        yield Tile(*zip(*chosen, strict=True))
