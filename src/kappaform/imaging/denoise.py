"""Denoising without a training set: the noisy image is its own."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kappaform.engines.validation import as_real_array
from kappaform.imaging.adaptive import clean_image, learn_transform
from kappaform.imaging.noise import estimate_sigma
from kappaform.imaging.published import LEVELS, published_denoise, random_positions
from kappaform.imaging.task import Callback, MethodName, Task, make_task
from kappaform.learning import LearnResult

_SLAB_PIXELS = 2**20
# Above this peak, in units of the noise, single precision would show.
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
) -> DenoiseResult:
    """Remove white Gaussian noise from an image, a volume or a stack, and tell how.

    A transform is learned from the noisy patches. Its coefficients well above the noise give a
    first estimate, which then says how much of each coefficient is signal (Wiener's rule);
    overlapping patches are averaged, the sparser ones with more weight. Values are never rescaled
    or clipped unless `value_range` is given.

    Parameters
    ----------
    image : array
        2-D or 3-D, beside the axes of channels and of a stack. Floats keep their dtype, integers
        come back as float64 in their own range.
    sigma : float, or one for each channel or image of a stack, optional
        Deviation of the noise in units of the image; None estimates it. 0 returns the image.
    method : {"conditioned", "log-det", "orthonormal"}
    max_condition : float >= 1
        Bound on the condition number of the conditioned transform.
    patch_size : int or tuple, optional
        By default 11 in 2-D and 4 in 3-D, or less in a smaller image.
    preset : {"paper"}, optional
        The settings of the paper, for comparison: grey levels from 0 to 255, coding to an error,
        bound and norm taken from a log-det transform, so that `max_condition` has no say.
    transform : array of shape (n, n), LearnResult or fitted estimator, optional
        Used instead of learning one.
    value_range : (low, high), optional
        Values that are possible: patches (but those of colour) and image are clipped to them.
    channel_axis : int, optional
        Axis of the channels, which are decorrelated by their principal components. A given
        `sigma` means noise that is independent between channels.
    stack_axis : int, optional
        Axis along which images are denoised each on its own.
    rng : int or Generator, optional
        Chooses the patches to learn from. None: always the same.
    callback : callable, optional
        Called with the LearnResult after every iteration (with the preset, after every round);
        returning True ends that learning.
    """
    array = as_real_array(image, "image")
    order, n_axes = _axis_order(array, channel_axis, stack_axis)
    stack = array.transpose(order)
    stack = stack[np.newaxis] if stack_axis is None else stack
    stack = stack[..., np.newaxis] if channel_axis is None else stack
    if not np.isfinite(array.sum(dtype=np.float64)) and not np.isfinite(array).all():
        raise ValueError("image contains NaN or inf: fill such pixels first.")
    task = make_task(
        stack.shape[1 : 1 + n_axes],
        method,
        max_condition,
        patch_size,
        preset,
        transform,
        value_range,
        rng,
        callback,
        sigma is not None,
    )
    sigmas = _sigmas(sigma, stack)
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    cleaned, counts = np.empty(stack.shape, dtype), np.zeros(stack.shape[:-1], np.float32)
    learned = [
        _denoise_channels(*each, task) for each in zip(stack, sigmas, cleaned, counts, strict=True)
    ]
    cleaned = cleaned.reshape([array.shape[i] for i in order]).transpose(np.argsort(order))
    return DenoiseResult(
        image=cleaned,
        sigma=float(sigmas[0, 0]) if sigmas.size == 1 else np.squeeze(sigmas),
        patch_shape=task.patch_shape,
        transforms=tuple(matrix for some in learned for matrix, _ in some),
        sparsity_map=counts[0] if stack_axis is None else _with_stack(counts, order, channel_axis),
        history=tuple(result for some in learned for _, history in some for result in history),
    )


def denoise(image: ArrayLike, sigma: ArrayLike | None = None, **options: Any) -> NDArray:
    """Remove white Gaussian noise: the image of `denoise_with_details`, with the same options."""
    return denoise_with_details(image, sigma, **options).image


denoise.__signature__ = inspect.signature(denoise_with_details).replace(  # type: ignore[attr-defined]
    return_annotation=NDArray
)

#: Transforms that were used, each with the rounds in which it was learned.
_Learned = list[tuple[NDArray, list[LearnResult]]]


def _denoise_channels(
    image: NDArray, sigmas: NDArray, out: NDArray, counts: NDArray, task: Task
) -> _Learned:
    """Channels (the last axis) by their principal components.

    Noise that is independent between channels is so between components. Otherwise, without a given
    sigma, each component has the noise that is estimated in it.
    """
    n_channels = image.shape[-1]
    if n_channels > 1 and np.all(image == image[..., :1]):  # grey that is stored as colour
        learned = _denoise_each(image[..., :1], sigmas[:1], out[..., :1], counts, task)
        out[..., 1:] = out[..., :1]
        return learned
    if n_channels == 1 or task.paper:
        return _denoise_each(image, sigmas, out, counts, task)
    noisy = sigmas > 0
    units = np.where(noisy, sigmas, 1.0)
    pixels = image.reshape(-1, n_channels) / units
    means = pixels.mean(axis=0)
    pixels -= means
    # Components of channels without noise come last and are left alone.
    basis = np.linalg.eigh((pixels.T @ pixels) * np.outer(noisy, noisy))[1][:, ::-1]
    components = (pixels @ basis).reshape(image.shape)
    del pixels
    noise = (np.arange(n_channels) < np.count_nonzero(noisy)).astype(np.float64)
    if not task.sigma_given:
        noise *= estimate_sigma(components, channel_axis=-1)
    free = replace(task, value_range=(-math.inf, math.inf))
    cleaned = np.empty_like(components)
    learned = _denoise_each(components, noise, cleaned, counts, free)
    restored = (cleaned.reshape(-1, n_channels) @ basis.T + means) * units
    restored = np.clip(restored.reshape(image.shape), *task.value_range)
    out[...] = np.where(noisy, restored, image)
    return learned


def _denoise_each(
    channels: NDArray, sigmas: NDArray, out: NDArray, counts: NDArray, task: Task
) -> _Learned:
    learned: _Learned = []
    for c, sigma in enumerate(sigmas.tolist()):
        image = channels[..., c]
        if sigma == 0 or image.min() == image.max():
            out[..., c] = image
            continue
        numbers = np.empty(image.shape, np.float32) if len(sigmas) > 1 else counts
        clean = _denoise_as_published if task.paper else _denoise_adaptively
        learned.append(clean(image, sigma, out[..., c], numbers, task))
        if len(sigmas) > 1:
            counts += numbers / np.float32(len(sigmas))
    return learned


def _denoise_as_published(
    image: NDArray, sigma: float, out: NDArray, counts: NDArray, task: Task
) -> tuple[NDArray, list[LearnResult]]:
    low, high = np.percentile(image, [1, 99])
    if low < LEVELS[0] - 4 * sigma or high > LEVELS[1] + 4 * sigma:
        raise ValueError(
            f"preset='paper' with values around {low:g} to {high:g}: it is made for grey levels "
            "from 0 to 255; scale image and sigma to them, or leave the preset out."
        )
    positions = random_positions(image.shape, task.patch_shape, task.rng)
    values = np.ascontiguousarray(image, np.float64)
    out[...], counts[...], history = published_denoise(
        values, sigma, task.method_name, task.patch_shape, positions, task.callback
    )
    return history[-1].transform, history


def _denoise_adaptively(
    image: NDArray, sigma: float, out: NDArray, counts: NDArray, task: Task
) -> tuple[NDArray, list[LearnResult]]:
    """Learn, then clean a few rows at a time, with as many around them as their patches reach."""
    history: list[LearnResult] = []
    transform = task.transform
    if transform is None:
        history = learn_transform(
            image, sigma, task.patch_shape, task.method, task.rng, task.callback
        )
        transform = history[-1].transform
    centre = float(image.mean(dtype=np.float64))
    low, high = task.value_range
    bounds = (low - centre) / sigma, (high - centre) / sigma
    peak = max(float(image.max()) - centre, centre - float(image.min())) / sigma
    dtype = np.float32 if peak <= _SINGLE_PRECISION_PEAK else np.float64
    halo = 2 * (task.patch_shape[0] - 1)
    height = max(4 * halo, _SLAB_PIXELS // math.prod(image.shape[1:]), 1)
    for start in range(0, len(image), height):
        stop = min(start + height, len(image))
        first, last = max(start - halo, 0), min(stop + halo, len(image))
        slab = ((image[first:last].astype(np.float64) - centre) / sigma).astype(dtype)
        cleaned, numbers = clean_image(slab, task.patch_shape, transform, bounds)
        inner = slice(start - first, stop - first)
        out[start:stop] = np.clip(cleaned[inner].astype(np.float64) * sigma + centre, low, high)
        counts[start:stop] = numbers[inner]
    return transform, history


def _with_stack(counts: NDArray, order: list[int], channel_axis: int | None) -> NDArray:
    """Maps of a stack, their axis where it is in the image less its channels."""
    stack = order[0]
    before = channel_axis is not None and order[-1] < stack
    return np.moveaxis(counts, 0, stack - before)


def _axis_order(
    array: NDArray, channel_axis: int | None, stack_axis: int | None
) -> tuple[list[int], int]:
    """Axes in the order stack, space, channels; and the number of those of space."""
    named = {"channel_axis": channel_axis, "stack_axis": stack_axis}
    for name, axis in named.items():
        if axis is not None and not -array.ndim <= axis < array.ndim:
            raise ValueError(f"{name}={axis} is no axis of an image of shape {array.shape}.")
    channel, stack = ([] if a is None else [a % array.ndim] for a in (channel_axis, stack_axis))
    if channel and channel == stack:
        raise ValueError(f"channel_axis and stack_axis are the same axis, {channel_axis}.")
    space = [i for i in range(array.ndim) if i not in channel + stack]
    if len(space) not in (2, 3) or 0 in array.shape:
        raise ValueError(
            f"image has shape {array.shape}, {len(space)} dimensions of space: 2 or 3 are needed, "
            "and no empty axis; name other axes by channel_axis or stack_axis."
        )
    if not channel and len(space) == 3 and array.shape[space[-1]] in (3, 4):
        raise ValueError(
            f"image has shape {array.shape}, which looks like colour: give channel_axis=-1 (or "
            "stack_axis=-1 for unrelated images); the last axis of a volume is longer than 4."
        )
    return stack + space + channel, len(space)


def _sigmas(sigma: ArrayLike | None, stack: NDArray) -> NDArray:
    """Deviation of the noise for each slice and channel."""
    shape = stack.shape[0], stack.shape[-1]
    if sigma is None:
        return np.array([estimate_sigma(each, channel_axis=-1) for each in stack])
    values = np.asarray(sigma, dtype=np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"sigma={sigma!r}: a deviation is finite and >= 0; None estimates it.")
    if shape[1] == 1 and values.shape == (shape[0],):
        values = values[:, np.newaxis]
    if values.shape not in ((), (shape[1],), shape, (shape[0], 1)):
        raise ValueError(
            f"sigma has shape {values.shape}: give one number, or one for each of the "
            f"{shape[1]} channels or {shape[0]} images of the stack."
        )
    return np.broadcast_to(values, shape)
