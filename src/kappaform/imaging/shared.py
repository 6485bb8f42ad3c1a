"""One transform for several images, learned from patches of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import library_of
from kappaform.imaging.axes import checked_axes
from kappaform.imaging.components import components_of, levels_of, noises_of, pixels_of
from kappaform.imaging.noise.estimate import Kind
from kappaform.imaging.noise.kinds import Noise
from kappaform.imaging.options import (
    Callback,
    MethodName,
    Options,
    Sigma,
    check_scale,
    checked_options,
    limits,
)
from kappaform.imaging.patches import checked_patch_shape
from kappaform.imaging.training import (
    FOR_PATCHES,
    Draw,
    Drawn,
    Source,
    drawn_rounds,
    learned_in_rounds,
    place_of,
)
from kappaform.learning import LearnResult
from kappaform.threads import single_threaded_blas

#: An image (channels last), its noise, and the lowest and highest value of each channel.
Look = tuple[Any, Noise, NDArray, NDArray]


def learn_from_images(
    images: Iterable[Any],
    sigma: Sigma | None = None,
    *,
    noise: Noise | Kind | None = None,
    method: MethodName = "conditioned",
    max_condition: float = 1.1,
    patch_size: int | tuple[int, ...] | None = None,
    channel_axis: int | None = None,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
) -> LearnResult:
    """Learn one transform from the noisy patches of several images.

    It is learned as `denoise` with quality "fast" does from one image, for
    ``denoise(image, transform=...)``: images that look alike are cleaned in the same way, and each
    is spared the time of learning.

    Parameters
    ----------
    images : iterable of arrays
        Each of its own size, of as many dimensions as the first; every one is looked at once, and
        may come from a generator. Dask arrays and torch tensors are taken as by `denoise`.
    sigma, noise
        Of every image, as for `denoise`; without both, estimated in each.
    method, max_condition, rng, callback
        As for `denoise`.
    patch_size : int or tuple, optional
        By default that of `denoise` for the first image.
    channel_axis : int, optional
        Axis of the channels of every image.

    Returns
    -------
    LearnResult

    Examples
    --------
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> parts = [camera()[top : top + 80, 150:230] for top in (80, 160)]
    >>> photos = [kf.add_noise(part, sigma=20, rng=seed) for seed, part in enumerate(parts)]
    >>> shared = kf.learn_from_images(photos, sigma=20)
    >>> cleaned = [kf.denoise(photo, sigma=20, transform=shared) for photo in photos]
    """
    rest = iter(images)
    first = next(rest, None)
    if first is None:
        raise ValueError("images is empty: give at least one image.")
    pixels, device = pixels_of(first, channel_axis)
    space = checked_axes(pixels.shape, channel_axis).to_stack(pixels).shape[1:-1]
    options = checked_options(
        space, method, max_condition, patch_size, None, None, None, rng, callback
    )
    options = replace(options, device=device)
    with single_threaded_blas():
        looks = (_look(each, channel_axis, sigma, noise, options) for each in chain([first], rest))
        history = learned_from_all(looks, options)
    if not history:
        raise ValueError("images have no noise, so there is nothing to learn from.")
    return history[-1]


def _look(image: Any, channel_axis: int | None, sigma: Any, noise: Any, options: Options) -> Look:
    pixels, _ = pixels_of(image, channel_axis)
    stack = checked_axes(pixels.shape, channel_axis).to_stack(pixels)
    n_axes, n_first = stack.ndim - 2, len(options.patch_shape)
    if n_axes != n_first:
        raise ValueError(
            f"image has {n_axes} dimensions of space, the first one {n_first}: learn from pictures "
            "or from volumes, not from both."
        )
    checked_patch_shape(options.patch_shape, stack.shape[1:-1])
    lowest, highest = limits(stack)
    noises = noises_of(sigma, noise, stack, options)
    check_scale(lowest, highest, levels_of(noises, stack))
    return stack[0], noises[0], lowest[0], highest[0]


def learned_from_all(looks: Iterable[Look], options: Options) -> list[LearnResult]:
    """Rounds of learning from as many patches of every image; none if no image has noise.

    Nobody knows how many images will come. So each gives its share of the patches as if it was the
    last one; those before it give patches back whenever their number has doubled, and at the end.
    """
    pool: list[list[list[Drawn]]] = []  # of images, of their parts, of rounds
    for number, look in enumerate(looks, start=1):
        pool.append(_drawn_from(look, _share(number), options))
        if number & (number - 1) == 0:
            pool = _trimmed(pool, _share(number))
    parts = [part for image in _trimmed(pool, _share(len(pool))) for part in image]
    if not parts:
        return []
    silent = replace(options, progress=None)  # a small part of the work
    rounds = (list(together) for together in zip(*parts, strict=True))
    return learned_in_rounds(rounds, silent, FOR_PATCHES.n_rounds)


def _drawn_from(look: Look, n_patches: int, options: Options) -> list[list[Drawn]]:
    """Of each component of an image that has noise, the patches of all rounds."""
    rng = np.random.default_rng(options.seed)
    parts = [part for part in components_of(*look, options).parts if not part.is_clean]
    n_each = -(-n_patches // max(len(parts), 1))
    if not parts:
        return []
    place = place_of([part.image for part in parts], options.device)
    sources = [
        Source(place, c, part.image.shape, part.sigma, part.covariance)
        for c, part in enumerate(parts)
    ]
    draws = [Draw(n_each)] * FOR_PATCHES.n_rounds
    return [list(drawn_rounds(source, draws, options, rng)) for source in sources]


def _share(n_images: int) -> int:
    return -(-FOR_PATCHES.n_patches // n_images)


def _trimmed(pool: list[list[list[Drawn]]], n_patches: int) -> list[list[list[Drawn]]]:
    """The first patches of each image, which are in random order, so many in all its parts."""

    def first(drawn: Drawn, number: int) -> Drawn:
        if len(drawn.patches) <= number:
            return drawn
        kept = drawn.patches[:number]  # a view: what it is of must not stay in memory
        copied = kept.clone() if library_of(kept) == "torch" else kept.copy()
        return drawn._replace(patches=copied)

    return [
        [[first(drawn, -(-n_patches // len(image))) for drawn in part] for part in image]
        for image in pool
    ]
