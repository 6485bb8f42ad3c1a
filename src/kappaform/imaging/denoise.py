"""Denoising without a training set: the noisy image is its own."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kappaform.arrays import as_real_array, library_of
from kappaform.imaging.adaptive import learn_transform
from kappaform.imaging.axes import axis_order, given_or_estimated, with_stack
from kappaform.imaging.noise import estimate_sigma
from kappaform.imaging.published import LEVELS, published_denoise, random_positions
from kappaform.imaging.slabs import clean_slabs, precision_for
from kappaform.imaging.task import Callback, MethodName, Task, make_task
from kappaform.learning import LearnResult


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
    if library_of(image) == "dask":
        from kappaform.imaging.dask_images import denoise_dask

        return denoise_dask(
            image,
            sigma,
            channel_axis=channel_axis,
            stack_axis=stack_axis,
            preset=preset,
            method=method,
            max_condition=max_condition,
            patch_size=patch_size,
            transform=transform,
            value_range=value_range,
            rng=rng,
            callback=callback,
        )
    given: Any = image if library_of(image) == "torch" else None
    if given is not None:
        from kappaform.imaging.torch_images import as_given, on_host

        image, sigma = on_host(image, "image"), on_host(sigma, "sigma")
    array = as_real_array(image, "image")
    order, n_axes = axis_order(array, channel_axis, stack_axis)
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
    if given is not None and given.device.type != "cpu":
        task = replace(task, device=given.device)
    sigmas = given_or_estimated(sigma, stack)
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    cleaned, counts = np.empty(stack.shape, dtype), np.zeros(stack.shape[:-1], np.float32)
    learned = [
        _denoise_channels(*each, task) for each in zip(stack, sigmas, cleaned, counts, strict=True)
    ]
    cleaned = cleaned.reshape([array.shape[i] for i in order]).transpose(np.argsort(order))
    return DenoiseResult(
        image=cleaned if given is None else as_given(cleaned, given),
        sigma=float(sigmas[0, 0]) if sigmas.size == 1 else np.squeeze(sigmas),
        patch_shape=task.patch_shape,
        transforms=tuple(matrix for some in learned for matrix, _ in some),
        sparsity_map=counts[0] if stack_axis is None else with_stack(counts, order, channel_axis),
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
    """Learn, then clean with what was learned."""
    if task.device is not None:
        from kappaform.imaging.torch_images import denoise_on_device

        return denoise_on_device(image, sigma, out, counts, task)
    history: list[LearnResult] = []
    transform = task.transform
    if transform is None:
        history = learn_transform(
            image, sigma, task.patch_shape, task.method, task.rng, task.callback
        )
        transform = history[-1].transform
    centre = float(image.mean(dtype=np.float64))
    clean_slabs(
        image,
        out,
        counts,
        transform=transform,
        patch_shape=task.patch_shape,
        sigma=sigma,
        centre=centre,
        dtype=precision_for(float(image.min()), float(image.max()), centre, sigma),
        value_range=task.value_range,
    )
    return transform, history
