r"""Noise measured in frames that are made for it: bursts of a still scene, flat and dark frames.

The difference of a frame of a burst from the mean of its K frames is noise alone, with
(K - 1) / K of its variance. A flat frame is noise about a smooth surface, a parabola in every tile.
What is left is described by the simplest model that fits (`model_of`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from kappaform.checks import Array, as_real_array, check_choice
from kappaform.errors import warn
from kappaform.imaging.axes import checked_axes
from kappaform.imaging.noise.estimate import noise_of
from kappaform.imaging.noise.kinds import Noise
from kappaform.imaging.noise.measured import Field, model_of
from kappaform.imaging.options import default_patch_shape
from kappaform.threads import single_threaded_blas

Frames = Literal["burst", "flat", "any"]

_TILE, _N_TILES = 256, 4  # side, and at most so many along an axis: 1 million pixels of a frame
_BLOCK = 16  # side of blocks, whose means hardly contain noise
_SAME_BRIGHTNESS = 0.1  # frames of a burst have means that differ relatively by less
_SAME_SCENE = 0.5  # least correlation of two frames of a scene with structure
# Most of the variance in means of blocks: noise of neighbours adds 9/256, colours more.
_FLAT = 0.15
_WEAK = 0.25  # most noise of a flat frame over its brightness, unless it is said to be flat
_DISPLACED = 0.1  # fraction of a residual that is explained by a displacement


def measure_noise(
    images: Sequence[npt.ArrayLike] | npt.ArrayLike,
    *,
    dark: Sequence[npt.ArrayLike] | npt.ArrayLike = (),
    frames: Frames | None = None,
    channel_axis: int | None = None,
) -> Noise:
    """Noise of a camera, from images that are made to measure it.

    The model is as simple as the images allow: white or shot noise if the standard deviation that
    it predicts is right within 5 % at every brightness, else `Varying`; `Correlated` if
    neighbouring pixels or channels have a correlation of 0.05 or more. In a large image, 16
    tiles of 256 x 256 pixels are used.

    Parameters
    ----------
    images : sequence of arrays, or an array whose first axis is the images
        Planes, with the same number of channels. May be empty if there are dark frames: these alone
        measure the noise without light.
    dark : sequence of arrays, optional
        Images without light. Their mean is the offset of shot noise.
    frames : {"burst", "flat", "any"}, optional
        What the images are: two or more of a still scene ("burst", where images of different
        brightness are different scenes), images of an evenly lit surface ("flat"), or any images,
        for a common estimate like that of `estimate_noise` ("any"). None: images of the same
        scene are recognised, and flat ones; if there are none of both, "any".
    channel_axis : int, optional
        Axis of the channels of an image.

    Returns
    -------
    White, Shot, Varying or Correlated
        Its `evidence` says what was measured.

    See Also
    --------
    save_noise : to use it for other images.
    estimate_noise : for a single image.

    Examples
    --------
    >>> import numpy as np
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> rng = np.random.default_rng(0)
    >>> burst = [10 * rng.poisson(camera() / 10) + rng.normal(0, 4, (512, 512)) for _ in range(4)]
    >>> noise = kf.measure_noise(burst)
    >>> 9.5 < noise.gain < 10.5
    True
    """
    if frames is not None:
        check_choice("frames", frames, get_args(Frames))
    bright, black = (
        _planes(each, channel_axis, name) for each, name in ((images, "images"), (dark, "dark"))
    )
    if not bright and not black:
        raise ValueError("images is empty: give at least one image.")
    if len({each.shape[-1] for each in (*bright, *black)}) > 1:
        raise ValueError("images have different numbers of channels: measure each kind on its own.")
    bright, black, exponent = _scaled(bright, black)
    with single_threaded_blas():
        found = _measured(bright, black, frames)
    # In two steps: 2**exponent may be just beyond the largest number.
    return found.scaled(math.ldexp(0.5, exponent)).scaled(2.0) if exponent else found


def _scaled(bright: list[Array], black: list[Array]) -> tuple[list[Array], list[Array], int]:
    """Images times 2**-exponent, so that no square overflows or vanishes; integers as they are."""
    images = [*bright, *black]
    if any(each.dtype.kind != "f" for each in images):
        return bright, black, 0
    largest = max(float(max(each.max(), -each.min())) for each in images)
    exponent = int(np.frexp(largest)[1])
    scaled = [np.ldexp(each, -exponent) for each in images]
    return scaled[: len(bright)], scaled[len(bright) :], exponent


def _measured(bright: list[Array], black: list[Array], frames: Frames | None) -> Noise:
    groups = _groups(bright, frames)
    if not groups and bright:
        if black:
            raise ValueError(
                "dark frames are used with a burst or flat frames, and images are neither; say "
                "so by frames='burst' or 'flat', or leave out dark."
            )
        return _of_any(bright)
    fields = [field for group in groups for field in _fields(group)]
    if black:
        fields += _fields(black)
    means = [each.mean(axis=(0, 1), dtype=np.float64) for each in black]
    offset = np.mean(means, axis=0) if black else None
    return model_of(fields, offset, _in_words(groups, len(bright), len(black)))


def _planes(images: Any, channel_axis: int | None, name: str) -> list[Array]:
    """The images with their channels last, or one channel."""
    planes = []
    for number, image in enumerate(_several(images, channel_axis, name)):
        pixels = as_real_array(image, f"{name}[{number}]")
        plane = checked_axes(pixels.shape, channel_axis).to_stack(pixels)[0]
        if plane.ndim != 3:
            raise ValueError(
                f"{name}[{number}] has shape {pixels.shape}: give planes; slices of a volume are "
                "separate images."
            )
        if not np.isfinite([plane.min(), plane.max()]).all():
            raise ValueError(
                f"{name}[{number}] contains NaN or inf: leave it out, or cut all images to a part "
                "whose values are finite."
            )
        is_half = plane.dtype == np.float16  # whose sums overflow
        planes.append(plane.astype(np.float32) if is_half else plane)
    return planes


def _several(images: Any, channel_axis: int | None, name: str) -> Any:
    """A sequence of images; a single one is rejected, whose rows are none."""
    if isinstance(images, str | os.PathLike) or not hasattr(images, "__iter__"):
        raise TypeError(f"{name}={images!r}: give a sequence of images, arrays of their pixels.")
    shape = getattr(images, "shape", ())
    if len(shape) == (2 if channel_axis is None else 3):
        raise ValueError(
            f"{name} has shape {tuple(shape)}, that of a single image: give a sequence of images, "
            f"[{name}] for one."
        )
    return images


def _in_words(groups: list[list[Array]], n_images: int, n_dark: int) -> str:
    parts = []
    bursts = [group for group in groups if len(group) > 1]
    if bursts:
        n_frames = sum(map(len, bursts))
        parts.append(f"{n_frames} frames of {len(bursts)} still scene{'s' * (len(bursts) > 1)}")
    if n_flat := len(groups) - len(bursts):
        parts.append(f"{n_flat} flat frame{'s' * (n_flat > 1)}")
    if n_dark:
        parts.append(f"{n_dark} dark frame{'s' * (n_dark > 1)}")
    unused = n_images - sum(map(len, groups))
    return f"measured in {' and '.join(parts)}" + f"; {unused} other images not used" * (unused > 0)


# --- What the images are


def _groups(images: list[Array], frames: Frames | None) -> list[list[Array]]:
    """Images of the same scene, two or more, and single flat ones; the others are left out."""
    if frames == "flat":
        return [[image] for image in images]
    if frames == "any":
        return []
    groups: list[list[Array]] = []
    copies: list[int] = []
    for number, image in enumerate(images):
        same = (group for group in groups if _is_same(group[0], image, frames == "burst"))
        group = next(same, None)
        if group is None:
            groups.append([image])
        else:
            if any(np.array_equal(image, each) for each in group) and image.min() < image.max():
                copies.append(number)
            group.append(image)
    if copies:
        more = f", and so are {len(copies) - 1} more" if len(copies) > 1 else ""
        warn(
            f"images[{copies[0]}] (counted from 0) is a copy of another image{more}: copies show "
            "no noise; give frames that were taken one after another."
        )
    if frames == "burst" and any(len(group) < 2 for group in groups):
        raise ValueError(
            "frames='burst': an image has no other one of its size and brightness; give two or "
            "more of each scene, or frames='flat'."
        )
    return [group for group in groups if len(group) > 1 or _is_flat(group[0])]


def _is_same(first: Array, second: Array, is_burst: bool) -> bool:
    """Whether two images show the same scene; those of a burst do, if they are equally bright."""
    if first.shape != second.shape:
        return False
    means = [float(each.mean()) for each in (first, second)]
    spread = max(float(each.std()) for each in (first, second))
    if abs(means[0] - means[1]) > max(_SAME_BRIGHTNESS * max(map(abs, means)), spread / 4):
        return False
    if is_burst or (_is_flat(first) and _is_flat(second)):
        return True
    values = np.concatenate(
        [
            np.stack([each[tile].mean(axis=-1).ravel() for each in (first, second)], axis=-1)
            for tile in _tiles(first.shape)
        ]
    )
    values = values - values.mean(axis=0)
    sizes = np.sqrt(np.sum(values**2, axis=0))
    return bool(values[:, 0] @ values[:, 1] > _SAME_SCENE * sizes[0] * sizes[1] > 0)


def _is_flat(image: Array) -> bool:
    """Whether there is nothing but weak noise about a smooth surface."""
    total, of_blocks, weight = 0.0, 0.0, 0
    for tile in _tiles(image.shape):
        grey = image[tile].mean(axis=-1, keepdims=True).astype(np.float64)
        residual = (grey - _surface(grey))[..., 0]
        rows, columns = (n // _BLOCK * _BLOCK for n in residual.shape)
        if not rows or not columns:
            return False
        blocks = residual[:rows, :columns].reshape(rows // _BLOCK, _BLOCK, -1, _BLOCK)
        total += float(np.sum(residual**2))
        of_blocks += float(np.sum(blocks.mean(axis=(1, 3)) ** 2)) * _BLOCK**2
        weight += residual.size
    return of_blocks < _FLAT * total and total < weight * (_WEAK * float(image.mean())) ** 2


# --- Noise in tiles


def _tiles(shape: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Tiles that are spread evenly over an image."""

    def along(size: int) -> list[slice]:
        n_tiles = min(max(size // _TILE, 1), _N_TILES)
        side = min(size, _TILE) if size > n_tiles * _TILE else math.ceil(size / n_tiles)
        starts = np.linspace(0, size - side, n_tiles).astype(int)
        return [slice(int(start), int(start) + side) for start in starts]

    return [(rows, columns) for rows in along(shape[0]) for columns in along(shape[1])]


def _fields(frames: list[Array]) -> list[Field]:
    """Noise in the tiles of frames of one scene; a single frame is flat."""
    n_frames = len(frames)
    ends = _ends(frames)
    found = []
    for tile in _tiles(frames[0].shape):
        values = [frame[tile].astype(np.float64) for frame in frames]
        clipped = np.logical_or.reduce([(each <= ends[0]) | (each >= ends[1]) for each in values])
        smooth = _surface(values[0]) if n_frames == 1 else np.mean(values, axis=0)
        scale = 1.0 if n_frames == 1 else math.sqrt(n_frames / (n_frames - 1))
        for each in values:
            residual = each - smooth
            residual -= residual.mean(axis=(0, 1))  # lamps flicker
            found.append(Field(scale * residual, smooth, clipped))
    if n_frames > 1:
        _check_still(found)
    return found


def _ends(frames: list[Array]) -> tuple[float, float]:
    """Values at which noise is cut off: those of the type, and extremes that are frequent."""
    lowest, highest = min(each.min() for each in frames), max(each.max() for each in frames)
    dtype = frames[0].dtype
    n_values = sum(each.size for each in frames)
    ends = []
    for end, sign in ((lowest, -1), (highest, 1)):
        is_limit = dtype.kind in "iu" and end in (np.iinfo(dtype).min, np.iinfo(dtype).max)
        n_there = sum(int(np.count_nonzero(each == end)) for each in frames)
        is_cut = is_limit or (n_there > 1e-3 * n_values and lowest < highest)
        ends.append(float(end) if is_cut else sign * math.inf)
    return ends[0], ends[1]


def _surface(tile: Array) -> Array:
    """The parabola closest to each channel of a tile."""
    rows, columns = (np.linspace(-1, 1, n) for n in tile.shape[:2])
    y, x = rows[:, np.newaxis], columns
    terms = np.stack(
        [np.broadcast_to(each, tile.shape[:2]).ravel() for each in (1.0, x, y, x * x, x * y, y * y)]
    )
    terms = np.linalg.qr(terms.T)[0]
    flat = tile.reshape(-1, tile.shape[-1])
    surface: Array = (terms @ (terms.T @ flat)).reshape(tile.shape)
    return surface


def _check_still(fields: list[Field]) -> None:
    """Warn about a displacement between frames: the residual then is a sum of derivatives."""
    explained, total = 0.0, 0.0
    for field in fields:
        residual, scene = (each.mean(axis=-1) for each in field[:2])
        slopes = np.stack([each.ravel() for each in np.gradient(scene)], axis=-1)
        coefs = np.linalg.lstsq(slopes, residual.ravel(), rcond=None)[0]
        explained += float(np.sum((slopes @ coefs) ** 2))
        total += float(np.sum(residual**2))
    if explained > _DISPLACED * total:
        warn(
            f"images are displaced against each other, which explains {explained / total:.0%} of "
            "their differences: the noise is measured too high; use a tripod, or align them first."
        )


# --- Pictures


def _of_any(images: list[Array]) -> Noise:
    """A common estimate: one picture below the other, cut to the width of the narrowest."""
    width = min(each.shape[1] for each in images)
    starts = [(each.shape[1] - width) // 2 for each in images]
    pairs = zip(images, starts, strict=True)
    whole = np.concatenate([each[:, start : start + width] for each, start in pairs])
    found = noise_of(whole, None, default_patch_shape(whole.shape[:2]))
    number = f"{len(images)} images" if len(images) > 1 else "one image"
    return replace(found, evidence=f"estimated from {number}; {found.evidence}")
