"""Where the pixels of an image are, and cleaning it there, tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import float_dtype, representable
from kappaform.imaging.clean import clean_image
from kappaform.imaging.groups import refined
from kappaform.imaging.options import Progress, Quality, sections
from kappaform.imaging.patches import Grid, patches_at
from kappaform.imaging.stages import Recipe, Tools, cleaned
from kappaform.imaging.tiles import tiles_of

Cleaned = tuple[list[Any], list[Any]]  #: components, and the mean number of coefficients over each


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

    tools = Tools(clean_image, refined)

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
