"""Where the pixels of an image are, and cleaning it there, tile by tile.

Each tile is cleaned with a margin around it, so that memory stays bounded. What lies beyond the
margin has next to no influence on a tile, but it has some: so an image is cleaned in the same tiles
wherever its pixels are, in memory, in chunks or on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import float_dtype, representable
from kappaform.imaging.cleaning.groups import refined
from kappaform.imaging.cleaning.patchwise import cleaner, sweep
from kappaform.imaging.cleaning.stages import Recipe, Tools, cleaned, is_movie
from kappaform.imaging.options import Quality
from kappaform.imaging.patches import Grid, patches_at
from kappaform.imaging.work import Progress, sections

Cleaned = tuple[list[Any], list[Any]]  #: components, and the mean number of coefficients over each


# Side of a tile, at most, and its margin: so large that a tile and its sums take some 200 MB.
_PLANE = 1536, 64
_VOLUME = 160, 16
_FRAMES = 16, 4
_FRAME = 512, 64


class Place(Protocol):
    """The components of an image, where their pixels are."""

    def patches(self, component: int, rounds: Iterable[tuple[Grid, NDArray]]) -> Iterable[Any]:
        """Mean-free patches (rows, float64) of a component: of each round, some of a grid."""

    def cleaned(
        self, recipes: Sequence[Recipe], quality: Quality, progress: Progress | None
    ) -> Cleaned:
        """The components of their float dtypes, and counts over each pixel."""


class HostImage:
    """The place of arrays."""

    tools = Tools(cleaner, sweep, refined)

    def __init__(self, components: Sequence[NDArray]) -> None:
        self.components = components

    def patches(self, component: int, rounds: Iterable[tuple[Grid, NDArray]]) -> Iterator[NDArray]:
        return (patches_at(self.components[component], *each) for each in rounds)

    def cleaned(
        self, recipes: Sequence[Recipe], quality: Quality, progress: Progress | None
    ) -> Cleaned:
        def clean(where: tuple[slice, ...], part: Progress | None) -> Cleaned:
            return clean_tile([image[where] for image in self.components], recipes, quality, part)

        outs = [np.empty(image.shape, float_dtype(image.dtype)) for image in self.components]
        return in_tiles(outs, recipes[0].patch_shape, clean, progress)


def in_tiles(
    outs: list[NDArray],
    patch_shape: tuple[int, ...],
    clean: Callable[[tuple[slice, ...], Progress | None], Cleaned],
    progress: Progress | None,
) -> Cleaned:
    """Components in `outs`, and counts, tile by tile: `clean` gives those of a part."""
    counts = [np.empty(out.shape, np.float32) for out in outs]
    tiles = list(tiles_of(outs[0].shape, patch_shape))
    for tile, part in zip(tiles, sections(progress, [1] * len(tiles)), strict=True):
        for c, (image, numbers) in enumerate(zip(*clean(tile.outer, part), strict=True)):
            outs[c][tile.inner] = image[tile.within]
            counts[c][tile.inner] = numbers[tile.within]
    return outs, counts


def clean_tile(
    components: Sequence[NDArray],
    recipes: Sequence[Recipe],
    quality: Quality,
    progress: Progress | None = None,
) -> Cleaned:
    """The components of a part of an image, and numbers of coefficients."""
    dtype = np.result_type(*(recipe.dtype for recipe in recipes))
    noisy = []
    for image, recipe in zip(components, recipes, strict=True):
        values = np.subtract(image, recipe.centre, dtype=np.float64)
        values /= recipe.sigma
        noisy.append(values.astype(dtype, copy=False))
    images, counts = cleaned(noisy, recipes, quality, HostImage.tools, progress)
    restored = []
    for image, recipe, given in zip(images, recipes, components, strict=True):
        values = np.multiply(image, recipe.sigma, dtype=np.float64)
        values += recipe.centre
        limits = representable(recipe.value_range, float_dtype(given.dtype))
        restored.append(values.clip(*limits, out=values))
    return restored, list(counts)


# --- Tiles


class Tile(NamedTuple):
    """A part of an image, the same with its margin, and where the first is in the second."""

    inner: tuple[slice, ...]
    outer: tuple[slice, ...]
    within: tuple[slice, ...]


def cuts(size: int, side: int) -> list[int]:
    """Where an axis is cut into equal parts that are not longer than a side."""
    number = -(-size // side)
    return [i * size // number for i in range(number + 1)]


def sides_and_margins(patch_shape: Sequence[int]) -> list[tuple[int, int]]:
    """Of the tiles of an image that has such patches: a movie has flat ones."""
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
