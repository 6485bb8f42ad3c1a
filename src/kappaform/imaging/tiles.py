"""Large images in tiles, each cleaned with a margin around it, so that memory stays bounded.

What lies beyond the margin has next to no influence on a tile, but it has some: so an image is
cleaned in the same tiles wherever its pixels are, in memory, in chunks or on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

# Side of a tile, at most, and its margin: so large that a tile and its sums take some 200 MB.
_PLANE = 1536, 64
_VOLUME = 160, 16
_FRAMES = 16, 4
_FRAME = 512, 64


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


def is_movie(patch_shape: Sequence[int]) -> bool:
    """Whether patches are of one frame each."""
    return len(patch_shape) == 3 and patch_shape[0] == 1


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
