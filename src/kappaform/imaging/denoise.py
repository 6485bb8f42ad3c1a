"""Denoising without a training set: the noisy image is its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kappaform.arrays import as_real_array, float_dtype, library_of
from kappaform.imaging.clean import HostImage, Place, Recipe
from kappaform.imaging.components import Part, components_of, together
from kappaform.imaging.estimate import Kind, check_kind, noise_of
from kappaform.imaging.noise import Noise, White
from kappaform.imaging.options import (
    Callback,
    MethodName,
    Options,
    Progress,
    check_scale,
    checked_axes,
    checked_options,
    checked_progress,
    computed,
    equal_parts,
    limits,
    of_ordinary_scale,
    section,
)
from kappaform.imaging.training import (
    N_TRAINING,
    Drawn,
    Source,
    drawn_rounds,
    learned,
    share_of_learning,
)
from kappaform.learning import LearnResult
from kappaform.threads import single_threaded_blas

# Above this distance from the centre, in units of the noise, single precision would show: its
# rounding there, 2**-24 times as much, is 1/4000 of the noise.
_SINGLE_PRECISION_PEAK = 4096


@dataclass(frozen=True, eq=False)
class DenoiseResult:
    """A cleaned image and how it was cleaned.

    Attributes
    ----------
    image : array
        Of the shape and axes of the input.
    noise : White, Shot or Correlated, or a tuple of them
        The noise that was assumed; of a stack, that of each image.
    sigma : float or array
        Its deviation, in units of the image; one for each channel and image. Of noise that depends
        on brightness, that at the mean brightness.
    patch_shape : tuple of int
    transforms : tuple of float64 arrays of shape (n, n)
        One for each (decorrelated) channel and slice; none where there was nothing to do.
    sparsity_map : array
        Mean number of coefficients of the patches over each pixel, over all channels.
    history : tuple of LearnResult
        One for each round of learning.
    """

    image: NDArray
    noise: Noise | tuple[Noise, ...]
    sigma: float | NDArray
    patch_shape: tuple[int, ...]
    transforms: tuple[NDArray, ...]
    sparsity_map: NDArray
    history: tuple[LearnResult, ...]

    @property
    def transform(self) -> NDArray | None:
        """The only transform, or the first one: in colour, that of the strongest component."""
        return self.transforms[0] if self.transforms else None

    @property
    def condition_number(self) -> float:
        """The largest of the transforms used, 1 if there are none."""
        return max((float(np.linalg.cond(each)) for each in self.transforms), default=1.0)


def denoise(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: Noise | Sequence[Noise] | Kind | None = None,
    method: MethodName = "conditioned",
    max_condition: float = 1.1,
    patch_size: int | tuple[int, ...] | None = None,
    preset: Literal["paper"] | None = None,
    transform: Any = None,
    value_range: tuple[float, float] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    share: bool = False,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
    progress: Progress | None = None,
) -> NDArray:
    """Remove noise from an image, a volume or a stack.

    A transform is learned from the noisy patches. Its coefficients well above the noise give a
    first estimate, which then says how much of each coefficient is signal (Wiener's rule);
    overlapping patches are averaged, the sparser ones with more weight. Values are never rescaled
    or clipped unless `value_range` is given.

    Parameters
    ----------
    image : array
        2-D or 3-D, beside the axes of channels and of a stack. Floats keep their dtype, integers
        come back as float64 in their own range. A Dask array is cleaned chunk by chunk when
        the result is computed, without `channel_axis` and `preset`. A torch tensor comes back as
        one on its device; on a GPU it is learned from and cleaned there.
    sigma : float, or one for each channel or image of a stack, optional
        Deviation of white noise in units of the image. 0 returns the image.
    noise : White, Shot, Correlated, or the name of a kind, optional
        In place of `sigma`: the noise of the image, or one for each image of a stack. Of a kind
        ("white", "shot", "correlated") its size is estimated; without both, so is the kind, as by
        `estimate_noise`.
    method : {"conditioned", "log-det", "orthonormal"}
    max_condition : float >= 1
        Bound on the condition number of the conditioned transform.
    patch_size : int or tuple, optional
        By default 11 in 2-D and 4 in 3-D, or less in a smaller image.
    preset : {"paper"}, optional
        The settings of the paper, for comparison: grey levels from 0 to 255, coding to an error,
        bound and norm taken from a log-det transform, so that `max_condition` has no effect.
    transform : array of shape (n, n), LearnResult or fitted estimator, optional
        Used instead of learning one. Its scale does not matter.
    value_range : (low, high), optional
        Values that are possible: patches (but those of colour) and image are clipped to them.
    channel_axis : int, optional
        Axis of the channels, which are decorrelated by their principal components. A given
        `sigma` means noise that is independent between channels.
    stack_axis : int, optional
        Axis along which images are denoised each on its own: as if it came alone.
    share : bool
        Learn one transform from the patches of all images of the stack, instead of one for each
        image and channel.
    rng : int or Generator, optional
        Chooses the patches to learn from. None: 0, the same call gives the same result.
    callback : callable, optional
        Called with the LearnResult after every iteration (with the preset, after every round);
        returning True ends that learning.
    progress : callable, optional
        Told the share of the work that is done, a float that never falls and ends at 1, in the
        thread of the caller. Of a Dask image that is the work of the call, which learns: cleaning
        comes later and is not told.

    Returns
    -------
    array of the shape and axes of `image`

    See Also
    --------
    denoise_with_details : the same image with the transform, sigma and map of sparsities.
    """
    return denoise_with_details(**locals()).image  # every argument by its name


def denoise_with_details(
    image: ArrayLike,
    sigma: ArrayLike | None = None,
    *,
    noise: Noise | Sequence[Noise] | Kind | None = None,
    method: MethodName = "conditioned",
    max_condition: float = 1.1,
    patch_size: int | tuple[int, ...] | None = None,
    preset: Literal["paper"] | None = None,
    transform: Any = None,
    value_range: tuple[float, float] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    share: bool = False,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
    progress: Progress | None = None,
) -> DenoiseResult:
    """Remove noise, and tell how: `denoise` with all that it found.

    Parameters are those of `denoise`, which describes them.
    """
    given: Any = image
    device, library = None, library_of(image)
    if library == "dask":
        from kappaform.imaging.dask_images import check_dask_image

        check_dask_image(image, channel_axis, preset)
    elif library == "torch":
        from kappaform.imaging.clean_torch import as_given, on_host

        image, sigma = on_host(image, "image"), on_host(sigma, "sigma")
        device = None if given.device.type == "cpu" else given.device
    pixels: Any = image if library == "dask" else as_real_array(image, "image")
    axes = checked_axes(pixels.shape, channel_axis, stack_axis)
    stack = axes.to_stack(pixels)
    space = stack.shape[1:-1]
    options = checked_options(
        space, method, max_condition, patch_size, preset, transform, value_range, rng, callback
    )
    options = replace(options, device=device, progress=checked_progress(progress))
    with single_threaded_blas():
        lowest, highest = limits(stack)
        noises = _noises(sigma, noise, stack, options)
        levels = _levels(noises, stack)
        check_scale(lowest, highest, levels)
        images = list(zip(stack, noises, lowest, highest, strict=True))
        if share:
            options, history = _shared(images, options)
        parts = zip(images, equal_parts(options, len(images)), strict=True)
        slices = [_denoise_slice(*each, part) for each, part in parts]
    cleaned = axes.from_stack(together([each.image for each in slices], axis=0))
    counts = together([each.counts for each in slices], axis=0)
    if not share:
        history = [result for each in slices for result in each.history]
    return DenoiseResult(
        image=as_given(cleaned, given) if library == "torch" else cleaned,
        noise=noises[0] if len(noises) == 1 else tuple(noises),
        sigma=float(levels[0, 0]) if levels.size == 1 else np.squeeze(levels),
        patch_shape=options.patch_shape,
        transforms=tuple(matrix for each in slices for matrix in each.transforms),
        sparsity_map=axes.map_from_stack(counts),
        history=tuple(history),
    )


# --- Noise


def _noises(sigma: ArrayLike | None, noise: Any, stack: Any, options: Options) -> list[Noise]:
    """The noise of each image of a stack: as given, or estimated."""
    n_slices, n_channels = stack.shape[0], stack.shape[-1]
    if sigma is not None and noise is not None:
        raise ValueError(f"sigma={sigma!r} and noise={noise!r}: give one of them.")
    if sigma is not None:
        return [White(row) for row in _deviations(sigma, n_slices, n_channels)]
    if noise is None or isinstance(noise, str):
        check_kind(noise)
        kind = "white" if options.paper and noise is None else noise
        noises = [noise_of(image, kind, options.patch_shape) for image in stack]
    else:
        noises = list(noise) if isinstance(noise, Sequence) else [noise] * n_slices
    if len(noises) != n_slices or not all(isinstance(each, Noise) for each in noises):
        raise TypeError(
            f"noise={noise!r}: give White, Shot or Correlated, the name of a kind, or one for each "
            f"of the {n_slices} images."
        )
    if options.paper and not all(isinstance(each, White) for each in noises):
        raise ValueError("preset='paper' knows white noise only: give sigma.")
    for each in noises:
        each.check_channels(n_channels)
    return noises


def _deviations(sigma: ArrayLike, n_slices: int, n_channels: int) -> NDArray:
    """Deviation of the noise for each image and channel of a stack."""
    values = as_real_array(sigma, "sigma").astype(np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"sigma={sigma!r}: a deviation is finite and >= 0; None estimates it.")
    if n_channels == 1 and values.shape == (n_slices,):
        values = values[:, np.newaxis]
    shape = n_slices, n_channels
    if values.shape not in ((), (n_channels,), shape, (n_slices, 1)):
        raise ValueError(
            f"sigma has shape {values.shape}: give one number, or one for each of the "
            f"{n_channels} channels or {n_slices} images of the stack."
        )
    return np.broadcast_to(values, shape)


def _levels(noises: list[Noise], stack: Any) -> NDArray:
    """Deviation of the noise of each image and channel, at its mean brightness."""
    means = np.zeros((stack.shape[0], stack.shape[-1]))
    if not all(isinstance(each, White) for each in noises):
        (means,) = computed(stack.mean(axis=tuple(range(1, stack.ndim - 1))))
    return np.array([each.level(row) for each, row in zip(noises, means, strict=True)])


# --- One image after another


class _Cleaned(NamedTuple):
    """What was cleaned, and the transforms and rounds of learning behind it."""

    image: Any
    counts: Any
    transforms: list[NDArray]
    history: list[LearnResult]


def _denoise_slice(
    image: Any, noise: Noise, lowest: NDArray, highest: NDArray, options: Options
) -> _Cleaned:
    """One image of a stack, component by component."""
    components = components_of(image, noise, lowest, highest, options)
    rng = np.random.default_rng(options.seed)
    parts = zip(components.parts, equal_parts(options, len(components.parts)), strict=True)
    cleaned = [_denoise_part(part, its_options, rng) for part, its_options in parts]
    counts = sum(each.counts for each in cleaned) / np.float32(len(cleaned))
    return _Cleaned(
        components.restored([each.image for each in cleaned]),
        counts,
        [matrix for each in cleaned for matrix in each.transforms],
        [result for each in cleaned for result in each.history],
    )


def _denoise_part(part: Part, options: Options, rng: np.random.Generator) -> _Cleaned:
    """Learn a transform or take the given one, centre, sweep and restore, where the pixels are."""
    image, sigma = part.image, part.sigma
    if _is_clean(part):
        if options.progress is not None:
            options.progress(1.0)
        unchanged = image.astype(float_dtype(image.dtype))
        return _Cleaned(unchanged, np.zeros_like(image, dtype=np.float32), [], [])
    if options.paper:
        from kappaform.imaging.published import denoise_as_published

        cleaned, counts, rounds = denoise_as_published(image, sigma, options)
        return _Cleaned(cleaned, counts, [rounds[-1].transform], rounds)
    place = _place_of(image, options.device)
    history: list[LearnResult] = []
    transform = options.transform
    learning = share_of_learning(image, options)
    if transform is None:
        source = Source(place, image.shape, sigma, part.covariance)
        drawn = ([each] for each in drawn_rounds(source, N_TRAINING, options, rng))
        told = replace(options, progress=section(options.progress, 0, learning))
        history = learned(drawn, told)
        transform = history[-1].transform
    peak = (part.highest / 2 - part.lowest / 2) / sigma
    recipe = Recipe(
        transform=of_ordinary_scale(transform),
        patch_shape=options.patch_shape,
        sigma=sigma,
        covariance=part.covariance,
        centre=part.lowest / 2 + part.highest / 2,
        dtype=np.dtype(np.float32 if peak <= _SINGLE_PRECISION_PEAK else np.float64),
        value_range=part.value_range,
    )
    rest = section(options.progress, learning, 1)
    return _Cleaned(*place.cleaned(recipe, rest), [transform], history)


def _is_clean(part: Part) -> bool:
    return part.sigma == 0 or part.lowest == part.highest


def _shared(images: list[tuple[Any, ...]], options: Options) -> tuple[Options, list[LearnResult]]:
    """The options with one transform for all images, and how it was learned."""
    if options.paper or options.transform is not None:
        raise ValueError("share=True learns a transform: leave out transform and preset.")
    n_patches = -(-N_TRAINING // len(images))
    drawn = [_drawn_from(each, n_patches, options) for each in images]
    parts = [part for rounds in drawn for part in rounds]
    if not parts:
        return options, []
    quiet = replace(options, progress=None)  # a small part of the work
    history = learned((list(together) for together in zip(*parts, strict=True)), quiet)
    return replace(options, transform=history[-1].transform), history


def _drawn_from(image: tuple[Any, ...], n_patches: int, options: Options) -> list[list[Drawn]]:
    """Of each component of an image that has noise, the patches of all rounds."""
    rng = np.random.default_rng(options.seed)
    pixels, noise, lowest, highest = image
    found = components_of(pixels, noise, lowest, highest, options).parts
    parts = [part for part in found if not _is_clean(part)]
    n_each = -(-n_patches // max(len(parts), 1))
    sources = [
        Source(_place_of(p.image, options.device), p.image.shape, p.sigma, p.covariance)
        for p in parts
    ]
    return [list(drawn_rounds(source, n_each, options, rng)) for source in sources]


def _place_of(image: Any, device: Any) -> Place:
    if library_of(image) == "dask":
        from kappaform.imaging.dask_images import DaskImage

        return DaskImage(image)
    if device is not None:
        from kappaform.imaging.clean_torch import TensorImage

        return TensorImage(image, device)
    return HostImage(image)
