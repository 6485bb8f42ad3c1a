"""Denoising without a training set: the noisy image is its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kappaform.checks import library_of
from kappaform.imaging import masked
from kappaform.imaging.axes import check_scale, extremes_of, warn_about_units
from kappaform.imaging.cleaning.patchwise import Kept
from kappaform.imaging.components import (
    Component,
    backend_of,
    components_of,
    levels_of,
    noise_of_movie,
    noises_of,
    pixels_of,
    recipe_of,
    together,
)
from kappaform.imaging.masks import values_of
from kappaform.imaging.noise.estimate import Kind
from kappaform.imaging.noise.kinds import Noise
from kappaform.imaging.options import (
    ALL_REMOVED,
    Callback,
    DenoiseResult,
    MethodName,
    Options,
    Quality,
    Sigma,
    warn_about_learning,
    warn_about_range,
)
from kappaform.imaging.progress import Listener, Progress
from kappaform.imaging.shared import NoisyImage, learned_from_all
from kappaform.imaging.strength import blended
from kappaform.imaging.training import learned_at_scales, learning_fraction, sources_of
from kappaform.learning import LearnResult
from kappaform.threads import single_threaded_blas

# Components with a transform of their own: those of colour, or the strongest of more channels. The
# others are mostly noise and have one in common: more of them do not prolong learning.
_MOST_LEARNED = 4


def denoise(
    image: ArrayLike,
    sigma: Sigma | None = None,
    *,
    mask: ArrayLike | Literal["nan"] | None = None,
    noise: Noise | Sequence[Noise] | Kind | Literal["auto"] | None = None,
    method: MethodName = "conditioned",
    max_condition: float = 1.1,
    patch_size: int | tuple[int, ...] | None = None,
    quality: Quality | None = None,
    preset: Literal["paper"] | None = None,
    transform: Any = None,
    value_range: tuple[float, float] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    movie: bool = False,
    share: bool = False,
    strength: float = 1.0,
    colour_strength: float | None = None,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
    progress: Listener | None = None,
) -> NDArray:
    """Remove noise from an image, a volume or a stack of images.

    A transform is learned from the noisy patches. Hard thresholding of its coefficients gives a
    first estimate, which guides empirical Wiener filtering. Overlapping patches are averaged, the
    sparser ones with more weight. Smooth content is estimated at coarser scales. Finally, groups of
    similar patches are denoised jointly (`quality`). Values are never rescaled, and clipped only if
    `value_range` is given.

    Parameters
    ----------
    image : array
        2-D or 3-D, not counting the axes of channels and of a stack. Floats keep their dtype;
        integers become float64 in their own range. A Dask array is denoised chunk by chunk when the
        result is computed; it excludes `channel_axis` and `preset`. A torch tensor is returned as a
        tensor on its device; on a GPU it is also processed there.
    sigma : float, or one for each channel or image of a stack, optional
        Standard deviation of the white noise, in image units. With 0 the image is returned
        unchanged, except for `value_range`. For a stack of 3 images with 3 channels, three numbers
        are ambiguous: give shape (1, 3) for channels, (3, 1) for images.
    mask : array of bool, or "nan", optional
        True where pixels are missing (or "nan": NaN are), also the masked entries of a masked
        array: these are filled, as by `inpaint`, whose masks it accepts. What the image holds there
        is not used. In memory only.
    noise : White, Shot, Varying, Correlated, or the name of a kind, optional
        In place of `sigma`: the noise of the image, or a sequence with that of each image of a
        stack. A name ("white", "shot", "correlated") fixes the kind and estimates its strength. If
        neither `sigma` nor `noise` is given, or "auto", both are estimated, as by `estimate_noise`.
    method : {"conditioned", "log-det", "orthonormal"}
        How the transform is learned.
    max_condition : float >= 1
        Bound on the condition number, for the method "conditioned".
    patch_size : int or tuple, optional
        Side of the patches. Default: 10 in 2-D and 4 in 3-D, or the size of a smaller image.
    quality : {"fast", "balanced", "best"}, optional
        "fast" denoises every patch on its own, with transforms learned from the image and from
        coarser scales. "balanced" (default) and "best" then denoise groups of similar patches
        jointly, which is better and takes up to three and seven times the time of "fast".
    preset : {"paper"}, optional
        The settings of the paper, for comparison: grey levels from 0 to 255, coding to an error,
        bound and norm taken from a log-det transform. `max_condition` has no effect, and `quality`
        cannot be chosen.
    transform : array of shape (n, n), LearnResult or fitted estimator, optional
        Used instead of learning one. Its scale does not matter.
    value_range : (low, high), optional
        Range of possible values. The image and (except in colour) the patches are clipped to it,
        even if there is no noise to remove.
    channel_axis : int, optional
        Axis of the channels, which are decorrelated by their principal components. A given
        `sigma` means noise that is independent between channels.
    stack_axis : int, optional
        Axis of a stack of images. Each image is denoised as if it were given alone.
    movie : bool
        Whether the images of the stack are consecutive frames of a movie. Similar patches are then
        searched in neighbouring frames too (with "fast", frames only have a transform in common).
        All frames have the same noise, estimated in the frame with the median noise level. The
        movie must be in memory.
    share : bool
        Whether one transform is learned from the patches of all images of the stack, instead of one
        for each image and channel.
    strength : float from 0 to 1
        How much of the noise is removed: the result is the image, moved by this fraction towards
        the denoised one. With 0 the image is returned unchanged, except for `value_range` and
        missing pixels.
    colour_strength : float from 0 to 1, optional
        The same for colours: `strength` is then that of the luminance (ITU-R BT.709 for three
        channels, which are taken for red, green and blue, else their mean), and this that of the
        differences from it. Default: `strength`.
    rng : int or Generator, optional
        Seed for drawing the patches to learn from. None is seed 0: the same call gives the same
        result.
    callback : callable, optional
        Called with the LearnResult after every iteration (with the preset, after every round).
        Returning True ends that learning.
    progress : callable, optional
        Called with the completed fraction of the work, which never decreases and ends at 1, in the
        thread of the caller. For a Dask image, progress covers this call only (learning); denoising
        runs when the result is computed.

    Returns
    -------
    array
        The denoised image, with the shape and axes of `image`.

    See Also
    --------
    denoise_with_details : also returns the noise, the transforms and a map of sparsities.

    Examples
    --------
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> noisy = kf.add_noise(camera()[100:164, 200:264], sigma=20)
    >>> denoised = kf.denoise(noisy, sigma=20, value_range=(0, 255))
    >>> bool(abs(denoised - camera()[100:164, 200:264]).mean() < 8)
    True
    """
    return denoise_with_details(**locals()).image  # every argument by its name


def denoise_with_details(
    image: ArrayLike,
    sigma: Sigma | None = None,
    *,
    mask: ArrayLike | Literal["nan"] | None = None,
    noise: Noise | Sequence[Noise] | Kind | Literal["auto"] | None = None,
    method: MethodName = "conditioned",
    max_condition: float = 1.1,
    patch_size: int | tuple[int, ...] | None = None,
    quality: Quality | None = None,
    preset: Literal["paper"] | None = None,
    transform: Any = None,
    value_range: tuple[float, float] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    movie: bool = False,
    share: bool = False,
    strength: float = 1.0,
    colour_strength: float | None = None,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
    progress: Listener | None = None,
) -> DenoiseResult:
    """Remove noise as `denoise` does, and return everything that was estimated and learned.

    Parameters
    ----------
    image, sigma, mask, noise, method, max_condition, patch_size, quality, preset, transform
        As for `denoise`.
    value_range, channel_axis, stack_axis, movie, share, strength, colour_strength
        As for `denoise`.
    rng, callback, progress
        As for `denoise`.

    Returns
    -------
    DenoiseResult

    Examples
    --------
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> noisy = kf.add_noise(camera()[100:164, 200:264], sigma=20)
    >>> details = kf.denoise_with_details(noisy, sigma=20)
    >>> print(details.noise, details.patch_shape)
    white, sigma 20 (10, 10)
    >>> details.condition_number <= 1.1 * (1 + 1e-9)
    True
    """
    return denoise_on(None, **locals())  # every argument by its name


def denoise_on(
    device: Any,
    image: Any,
    sigma: Any = None,
    *,
    mask: Any = None,
    noise: Any = None,
    preset: str | None = None,
    channel_axis: int | None = None,
    **settings: Any,
) -> DenoiseResult:
    """`denoise_with_details` of an array on a torch device: pixels go there and back once."""
    noise = None if isinstance(noise, str) and noise == "auto" else noise
    if preset is not None:
        # The only import from a layer above: the preset is the paper's, and its code is there.
        from kappaform.paper.denoiser import denoise_as_published

        if mask is not None:
            raise ValueError(f"preset={preset!r} with mask: leave out one of them.")
        return denoise_as_published(image, sigma, noise, preset, channel_axis, **settings)
    values = image if mask is None else values_of(image)
    pixels, device = pixels_of(values, channel_axis, device)
    options = Options.checked(pixels, channel_axis=channel_axis, device=device, **settings)
    if mask is not None:
        whole = masked.whole_image(image, mask, sigma, noise, channel_axis, options)
        return denoised(image, by=_denoised_components, **whole)
    return denoised(image, pixels, sigma, noise, options, _denoised_components)


class Denoised(NamedTuple):
    """Denoised images, and the transforms and rounds of learning behind them."""

    images: list[Any]
    counts: list[Any]  #: maps whose sum is that of the mean numbers of coefficients
    transforms: list[NDArray]
    history: list[LearnResult]


ComponentsDenoiser = Callable[[list[Component], Options, Progress], Denoised]


def denoised(
    image: Any,
    pixels: Any,
    sigma: Any,
    noise: Any,
    options: Options,
    by: ComponentsDenoiser,
    known: NDArray | None = None,
) -> DenoiseResult:
    """An image with these pixels, all or some of them known, denoised by the given function."""
    axes, is_tensor = options.axes, library_of(image) == "torch"
    if is_tensor:
        from kappaform.imaging.tensors import as_array, as_given

        sigma = as_array(sigma, "sigma")
    stack = axes.to_stack(pixels)
    with single_threaded_blas():
        lowest, highest = extremes_of(stack[0] if axes.movie else stack)
        if axes.movie:
            lowest, highest = lowest.min(0, keepdims=True), highest.max(0, keepdims=True)
        find = noise_of_movie if axes.movie else noises_of
        noises = find(sigma, noise, stack, options.patch_shape)
        levels = levels_of(noises, stack)
        check_scale(lowest, highest, levels)
        if sigma is not None:
            warn_about_units(levels, lowest, highest, pixels.dtype)
        warn_about_range(options.value_range, stack, known)
        if options.transform is None and ((levels > 0) & (lowest < highest)).any():
            warn_about_learning(options)
        images = list(zip(stack, noises, lowest, highest, strict=True))
        shared: list[LearnResult] = []
        if options.share:
            shared = learned_from_all([(image, None) for image in images], options)
            options = replace(options, transform=shared[-1].transform if shared else None)
        masks = [None] * len(images) if known is None else list(known)
        parts = zip(images, masks, options.progress.sections([1] * len(images)), strict=True)
        found = [_denoised_image(*each, options, by) for each in parts]
    result = together([each.images[0] for each in found], axis=0)
    if options.strengths != ALL_REMOVED:
        result = blended(stack, result, options.strengths, options.value_range, known)
    result = axes.from_stack(result)
    counts = together([each.counts[0] for each in found], axis=0)
    return DenoiseResult(
        image=as_given(result, image) if is_tensor else result,
        noise=noises[0] if len(noises) == 1 else tuple(noises),
        sigma=float(levels[0, 0]) if levels.size == 1 else np.squeeze(levels),
        patch_shape=options.patch_shape,
        transforms=tuple(matrix for each in found for matrix in each.transforms),
        sparsity_map=axes.map_from_stack(counts),
        history=tuple(shared or (result for each in found for result in each.history)),
    )


# --- One image after another


def _denoised_image(
    image: NoisyImage,
    known: NDArray | None,
    progress: Progress,
    options: Options,
    by: ComponentsDenoiser,
) -> Denoised:
    """One image of a stack: its components together."""
    parts, restored = components_of(*image, options)
    noisy = [part for part in parts if part.is_noisy]
    masks: Any = [None] * len(parts) if known is None else masked.masks_of(parts, known)
    found = Denoised([], [], [], [])
    if noisy and known is not None and not known.all():
        holes = [m for m, part in zip(masks, parts, strict=True) if part.is_noisy]
        found = masked.denoised_around_holes(noisy, holes, options, by, progress)
    elif noisy:
        found = by(noisy, options, progress)
    progress(1.0)
    of_noisy = iter(found.images)
    images = [
        next(of_noisy) if part.is_noisy else masked.unchanged(part, its, options)
        for part, its in zip(parts, masks, strict=True)
    ]
    first, *others = found.counts or [np.zeros_like(parts[0].image, np.float32)]
    mean = sum(others, first)  # of one, no copy: memory for the image
    mean /= np.float32(len(parts))
    del parts, noisy  # the components as given: memory for the image
    return found._replace(images=[restored(images)], counts=[mean])


def _denoised_components(parts: list[Component], options: Options, progress: Progress) -> Denoised:
    """Learn transforms or take the given one, then denoise all components, where the pixels are."""
    rng = np.random.default_rng(options.seed)
    backend = backend_of([part.image for part in parts], options.device)
    learning = learning_fraction(parts[0].image, options)
    scales: list[list[NDArray]] = [[]] * len(parts)  # the transforms of each component
    kept: list[list[Kept | None]] = [[None]] * len(parts)  # by thresholding with each of them
    history: list[LearnResult] = []
    if options.transform is not None:
        scales = [[options.transform]] * len(parts)
    else:
        sources = sources_of(parts, backend)
        groups = [sources[c : c + 1] for c in range(_MOST_LEARNED)] + [sources[_MOST_LEARNED:]]
        groups = [group for group in groups if group]
        of_groups = progress.section(0, learning).sections([1] * len(groups))
        for group, its in zip(groups, of_groups, strict=True):
            rounds, of_scales = learned_at_scales(group, options, rng, its)
            history.extend(result for scale in rounds for result in scale)
            for source, *its_kept in zip(group, *of_scales, strict=True):
                scales[source.component] = [scale[-1].transform for scale in rounds]
                kept[source.component] = its_kept
    recipes = [recipe_of(*each, options) for each in zip(parts, scales, kept, strict=True)]
    rest = progress.section(learning, 1)
    images, counts = backend.denoised(recipes, options.quality, rest)
    return Denoised(images, counts, [each[0] for each in scales], history)
