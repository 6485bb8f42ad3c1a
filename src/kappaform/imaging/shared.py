"""One transform for several images, learned from patches of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.axes import check_scale, checked_axes, extremes_of
from kappaform.imaging.components import backend_of, components_of, levels_of, noises_of, pixels_of
from kappaform.imaging.masked import whole_image
from kappaform.imaging.masks import is_nan, values_of
from kappaform.imaging.noise.estimate import Kind
from kappaform.imaging.noise.kinds import Noise
from kappaform.imaging.options import Callback, MethodName, Options, Sigma, warn_about_learning
from kappaform.imaging.patches import checked_patch_shape, complete_patches, grid_of
from kappaform.imaging.training import (
    FOR_PATCHES,
    Draw,
    Drawn,
    drawn_rounds,
    learned_in_rounds,
    sources_of,
)
from kappaform.learning import LearnResult
from kappaform.threads import single_threaded_blas

#: An image (channels last), its noise, and the lowest and highest value of each channel.
NoisyImage = tuple[Any, Noise, NDArray, NDArray]


def learn_from_images(
    images: Iterable[Any],
    sigma: Sigma | None = None,
    *,
    mask: Iterable[Any] | Literal["nan"] | None = None,
    noise: Noise | Kind | None = None,
    method: MethodName = "conditioned",
    max_condition: float = 1.1,
    patch_size: int | tuple[int, ...] | None = None,
    channel_axis: int | None = None,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
) -> LearnResult:
    """Learn one transform from the noisy patches of several images.

    It is learned as `denoise` with quality "fast" learns from one image, and is meant for
    ``denoise(image, transform=...)``: similar images are denoised in the same way, without the
    time of learning for each.

    Parameters
    ----------
    images : iterable of arrays
        Images of any size, with as many dimensions as the first. They may come from a generator:
        each is read once. Dask arrays and torch tensors are accepted as by `denoise`.
    sigma, noise
        Noise of every image, as for `denoise`. If neither is given, it is estimated in each.
    mask : iterable of arrays of bool (or None), or "nan", optional
        For each image, True where pixels are missing (or "nan": NaN are). Patches with missing
        pixels are left out. In memory only.
    method, max_condition, rng, callback
        As for `denoise`.
    patch_size : int or tuple, optional
        Default: that of `denoise` for the first image.
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
    >>> denoised = [kf.denoise(photo, sigma=20, transform=shared) for photo in photos]
    """
    rest = iter(images)
    first = next(rest, None)
    if first is None:
        raise ValueError("images is empty: give at least one image.")
    pixels, device = pixels_of(first if mask is None else values_of(first), channel_axis)
    options = Options.checked(
        pixels,
        method=method,
        max_condition=max_condition,
        patch_size=patch_size,
        channel_axis=channel_axis,
        rng=rng,
        callback=callback,
        device=device,
    )
    warn_about_learning(options)
    with single_threaded_blas():
        every = chain([first], rest)
        given = _with_masks(every, mask)
        noisy = (_noisy_image(*each, channel_axis, sigma, noise, options) for each in given)
        history = learned_from_all(noisy, options)
    if not history:
        also = "" if mask is None else ", or no patches without missing pixels"
        raise ValueError(f"images have no noise{also}, so there is nothing to learn from.")
    return history[-1]


def _with_masks(images: Iterable[Any], mask: Any) -> Iterator[tuple[Any, Any]]:
    """Each image with its mask."""
    if mask is None or is_nan(mask):
        yield from ((image, mask) for image in images)
        return
    if isinstance(mask, str):
        raise ValueError(f"mask={mask!r} is unknown: give a mask for each image, or 'nan'.")
    masks = iter(mask)
    missing = object()
    for number, image in enumerate(images):
        its = next(masks, missing)
        if its is missing:
            raise ValueError(f"mask has {number} entries, fewer than images: give one for each.")
        yield image, its
    if next(masks, missing) is not missing:
        raise ValueError(
            "mask has more entries than images: give one mask for each image, in a list."
        )


def _noisy_image(
    image: Any, mask: Any, channel_axis: int | None, sigma: Any, noise: Any, options: Options
) -> tuple[NoisyImage, NDArray | None]:
    """An image of which patches are taken, and which of its pixels are known; None: all."""
    known = None
    if mask is None:
        pixels, _ = pixels_of(image, channel_axis)
    else:
        whole = whole_image(image, mask, sigma, noise, channel_axis, options)
        pixels, noise = whole["pixels"], whole["noise"]
        known = whole["known"][0].all(axis=-1) if "known" in whole else None
    stack = checked_axes(pixels.shape, channel_axis).to_stack(pixels)
    n_axes, n_first = stack.ndim - 2, len(options.patch_shape)
    if n_axes != n_first:
        raise ValueError(
            f"image has {n_axes} dimensions of space, the first one {n_first}: learn from images "
            "or from volumes, not from both."
        )
    checked_patch_shape(options.patch_shape, stack.shape[1:-1])
    lowest, highest = extremes_of(stack)
    noises = noises_of(sigma, noise, stack, options.patch_shape)
    check_scale(lowest, highest, levels_of(noises, stack))
    return (stack[0], noises[0], lowest[0], highest[0]), known


def learned_from_all(
    images: Iterable[tuple[NoisyImage, NDArray | None]], options: Options
) -> list[LearnResult]:
    """Rounds of learning from equally many patches of every image; none if no image has noise.

    The number of images is unknown until the last one. So each gives its part of the patches as if
    it were the last; those before it give patches back whenever their number has doubled, and at
    the end.
    """
    pool: list[list[list[Drawn]]] = []  # of images, of their components, of rounds
    for number, image in enumerate(images, start=1):
        pool.append(_drawn_from(*image, _n_patches(number), options))
        if number & (number - 1) == 0:
            pool = _trimmed(pool, _n_patches(number))
    parts = [part for image in _trimmed(pool, _n_patches(len(pool))) for part in image]
    rounds = (list(together) for together in zip(*parts, strict=True))
    return learned_in_rounds(rounds, options, FOR_PATCHES) if parts else []


def _drawn_from(
    image: NoisyImage, known: NDArray | None, n_patches: int, options: Options
) -> list[list[Drawn]]:
    """The patches of all rounds, for each component of an image that has noise."""
    if known is not None:
        grid = grid_of(known.shape, options.patch_shape)
        if len(complete_patches(known, grid)) == 0:
            return []
    rng = np.random.default_rng(options.seed)
    every = components_of(*image, options).parts
    parts = [part._replace(known=known) for part in every if part.is_noisy]
    if not parts:
        return []
    backend = backend_of([part.image for part in parts], options.device)
    sources = sources_of(parts, backend, least=1)
    draws = [Draw(-(-n_patches // len(parts)))] * FOR_PATCHES.n_rounds
    return [list(drawn_rounds(source, draws, options, rng)) for source in sources]


def _n_patches(n_images: int) -> int:
    """Patches of each image."""
    return -(-FOR_PATCHES.n_patches // n_images)


def _trimmed(pool: list[list[list[Drawn]]], n_patches: int) -> list[list[list[Drawn]]]:
    """The first patches of each image, in all components together; their order is random."""

    def first(drawn: Drawn, number: int) -> Drawn:
        if len(drawn.patches) <= number:
            return drawn
        return drawn._replace(patches=drawn.patches[:number] * 1)  # a copy: the rest is freed

    return [
        [[first(drawn, -(-n_patches // len(image))) for drawn in part] for part in image]
        for image in pool
    ]
