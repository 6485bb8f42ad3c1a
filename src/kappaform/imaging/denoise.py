"""Denoising without a training set: the noisy image is its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kappaform.arrays import as_real_array, float_dtype, library_of
from kappaform.imaging.clean import HostImage, Place, Recipe, representable, rule_of
from kappaform.imaging.noise import check_scale, deviations, estimate_sigma, limits
from kappaform.imaging.options import (
    ANY_VALUE,
    Callback,
    MethodName,
    Options,
    Progress,
    checked_axes,
    checked_options,
    checked_progress,
    equal_parts,
    of_ordinary_scale,
    section,
    telling_callback,
)
from kappaform.imaging.patches import grid_of
from kappaform.learning import LearnResult, learn
from kappaform.linalg import dct_basis
from kappaform.threads import single_threaded_blas

# What learning needs: more patches, rounds or iterations bring less than 0.01 dB.
N_ROUNDS = 3
N_ITER = 6
N_TRAINING = 20_000
# Patches that could be cleaned in the time of learning from one: measured, 10 (5 x 5 pixels, or
# orthonormal) to 42 (16 x 16), 22 to 27 by default. It matters to the progress that is told only.
_LEARNING_COST = 20

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
    sigma : float or array
        Deviation of the noise that was assumed, in units of the image; one for each channel, slice.
    patch_shape : tuple of int
    transforms : tuple of float64 arrays of shape (n, n)
        One for each (decorrelated) channel and slice; none where there was nothing to do.
    sparsity_map : array
        Mean number of coefficients of the patches over each pixel, over all channels.
    history : tuple of LearnResult
        One for each round of learning.
    """

    image: NDArray
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
    method: MethodName = "conditioned",
    max_condition: float = 2.0,
    patch_size: int | tuple[int, ...] | None = None,
    preset: Literal["paper"] | None = None,
    transform: Any = None,
    value_range: tuple[float, float] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
    progress: Progress | None = None,
) -> NDArray:
    """Remove white Gaussian noise from an image, a volume or a stack.

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
        Deviation of the noise in units of the image; None estimates it. 0 returns the image.
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
        Axis along which images are denoised each on its own.
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
    method: MethodName = "conditioned",
    max_condition: float = 2.0,
    patch_size: int | tuple[int, ...] | None = None,
    preset: Literal["paper"] | None = None,
    transform: Any = None,
    value_range: tuple[float, float] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
    progress: Progress | None = None,
) -> DenoiseResult:
    """Remove white Gaussian noise, and tell how: `denoise` with all that it found.

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
    options = replace(options, sigma_given=sigma is not None, device=device)
    options = replace(options, progress=checked_progress(progress))
    with single_threaded_blas():
        lowest, highest = limits(stack)
        sigmas = deviations(sigma, stack)
        check_scale(lowest, highest, sigmas)
        parts = zip(stack, sigmas, lowest, highest, equal_parts(options, len(stack)), strict=True)
        slices = [_denoise_slice(*part) for part in parts]
    images, counts, transforms, history = _together(slices, axis=0)
    cleaned = axes.from_stack(images)
    return DenoiseResult(
        image=as_given(cleaned, given) if library == "torch" else cleaned,
        sigma=float(sigmas[0, 0]) if sigmas.size == 1 else np.squeeze(sigmas),
        patch_shape=options.patch_shape,
        transforms=tuple(transforms),
        sparsity_map=axes.map_from_stack(_joined(counts)),
        history=tuple(history),
    )


class _Cleaned(NamedTuple):
    """What was cleaned, and the transforms and rounds of learning behind it."""

    image: Any
    counts: Any
    transforms: list[NDArray]
    history: list[LearnResult]


def _joined(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Arrays or Dask arrays along a new axis; a single one is not copied."""
    return np.expand_dims(arrays[0], axis) if len(arrays) == 1 else np.stack(arrays, axis)


def _together(parts: list[_Cleaned], axis: int) -> _Cleaned:
    """Slices or channels along a new axis; the counts of each stay apart."""
    images, counts, transforms, history = zip(*parts, strict=True)
    return _Cleaned(_joined(images, axis), counts, [*chain(*transforms)], [*chain(*history)])


def _denoise_slice(
    image: Any, sigmas: NDArray, lowest: NDArray, highest: NDArray, options: Options
) -> _Cleaned:
    """Channels (the last axis) by their principal components.

    Noise that is independent between channels is so between components. Otherwise, without a given
    sigma, each component has the noise that is estimated in it.
    """
    n_channels = image.shape[-1]
    if n_channels == 1 or options.paper:
        return _denoise_channels(image, sigmas, lowest, highest, options)
    if np.all(image == image[..., :1]):  # grey that is stored as colour
        grey = _denoise_channels(image[..., :1], sigmas[:1], lowest, highest, options)
        return grey._replace(image=np.repeat(grey.image, n_channels, axis=-1))
    noisy = sigmas > 0
    units, centres = np.where(noisy, sigmas, 1.0), lowest / 2 + highest / 2
    pixels = (image.reshape(-1, n_channels) - centres) / units
    means = pixels.mean(axis=0)
    pixels -= means
    pixels[:, ~noisy] = 0  # their components come last and are left alone
    basis = np.linalg.eigh(pixels.T @ pixels)[1][:, ::-1]
    components = (pixels @ basis).reshape(image.shape)
    del pixels
    noise = (np.arange(n_channels) < np.count_nonzero(noisy)).astype(np.float64)
    if not options.sigma_given:
        noise *= estimate_sigma(components, channel_axis=-1)
    lows, highs = limits(components[np.newaxis])
    free = replace(options, value_range=ANY_VALUE)
    cleaned = _denoise_channels(components, noise, lows[0], highs[0], free)
    restored = (cleaned.image.reshape(-1, n_channels) @ basis.T + means) * units + centres
    dtype = float_dtype(image.dtype)
    restored = restored.clip(*representable(options.value_range, dtype)).astype(dtype, copy=False)
    return cleaned._replace(image=np.where(noisy, restored.reshape(image.shape), image))


def _denoise_channels(
    image: Any, sigmas: NDArray, lowest: NDArray, highest: NDArray, options: Options
) -> _Cleaned:
    """Every channel (the last axis) by itself."""
    numbers = zip(sigmas.tolist(), lowest.tolist(), highest.tolist(), strict=False)
    parts = zip(numbers, equal_parts(options, image.shape[-1]), strict=False)
    channels = [_denoise_channel(image[..., c], *each, o) for c, (each, o) in enumerate(parts)]
    together = _together(channels, axis=-1)
    return together._replace(counts=sum(together.counts) / np.float32(len(channels)))


def _denoise_channel(
    image: Any, sigma: float, lowest: float, highest: float, options: Options
) -> _Cleaned:
    """Learn a transform or take the given one, centre, sweep and restore, where the pixels are."""
    if sigma == 0 or lowest == highest:
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
    learning = _share_of_learning(image, options)
    if transform is None:
        history = _learn_rounds(place, image.shape, sigma, options, learning)
        transform = history[-1].transform
    peak = (highest / 2 - lowest / 2) / sigma
    recipe = Recipe(
        transform=of_ordinary_scale(transform),
        patch_shape=options.patch_shape,
        sigma=sigma,
        centre=lowest / 2 + highest / 2,
        dtype=np.dtype(np.float32 if peak <= _SINGLE_PRECISION_PEAK else np.float64),
        value_range=options.value_range,
    )
    rest = section(options.progress, learning, 1)
    return _Cleaned(*place.cleaned(recipe, rest), [transform], history)


def _share_of_learning(image: Any, options: Options) -> float:
    """Which part of the work on a channel is learning."""
    if options.transform is not None:
        return 0.0
    if library_of(image) == "dask":  # cleaned when the result is computed
        return 1.0
    n_patches = grid_of(image.shape, options.patch_shape).n_patches
    learning = _LEARNING_COST * min(N_TRAINING, n_patches)
    return learning / (learning + n_patches)


def _place_of(image: Any, device: Any) -> Place:
    if library_of(image) == "dask":
        from kappaform.imaging.dask_images import DaskImage

        return DaskImage(image)
    if device is not None:
        from kappaform.imaging.clean_torch import TensorImage

        return TensorImage(image, device)
    return HostImage(image)


def _learn_rounds(
    place: Place, shape: tuple[int, ...], sigma: float, options: Options, share: float
) -> list[LearnResult]:
    """Rounds of learning, each from patches drawn afresh and coded by the transform before.

    They are `share` of the work.
    """
    options = replace(options, progress=section(options.progress, 0, share))
    parts = equal_parts(options, N_ROUNDS)
    grid = grid_of(shape, options.patch_shape)
    n_drawn = min(N_TRAINING, grid.n_patches)
    rounds = (options.rng.choice(grid.n_patches, n_drawn, replace=False) for _ in range(N_ROUNDS))
    transform = dct_basis(options.patch_shape)
    history: list[LearnResult] = []
    for drawn, part in zip(place.patches(grid, rounds), parts, strict=True):
        patches, sparsity = _coded(drawn, sigma, transform)
        result = learn(
            patches,
            options.method,
            n_nonzero_coefs=sparsity,
            init=history[-1] if history else transform,
            max_iter=N_ITER,
            tol=1e-4,
            callback=telling_callback(part, N_ITER),
        )
        if part.progress is not None:
            part.progress(1.0)  # fewer iterations may have been enough
        history.append(result)
        transform = result.transform
    return history


def _coded(patches: Any, sigma: float, transform: NDArray) -> tuple[Any, NDArray]:
    """Patches in units of their noise, and how many coefficients of each stand out of it."""
    limits = rule_of(transform).limits
    if library_of(patches) == "torch":
        from kappaform.imaging.clean_torch import n_above

        patches = (patches / sigma).float()
        return patches, n_above(patches, transform, limits)
    patches = (patches / sigma).astype(np.float32)
    return patches, np.count_nonzero(np.abs(patches @ transform.T) > limits, axis=1)
