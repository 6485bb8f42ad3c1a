"""An image as parts of one channel each, whose noise is the same everywhere, and the way back.

Noise that depends on brightness is stabilised first. Then colours are rotated to their principal
components, which share no signal on average.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import float_dtype
from kappaform.imaging.clean import representable
from kappaform.imaging.noise import Noise
from kappaform.imaging.options import ANY_VALUE, Options, limits


class Part(NamedTuple):
    """One channel or component of an image, and the noise in it."""

    image: Any
    sigma: float
    covariance: NDArray | None  #: of the noise of a patch in units of sigma**2; None: white
    lowest: float
    highest: float
    value_range: tuple[float, float]


class Components(NamedTuple):
    """The parts of an image, and what makes an image (channels last) of them."""

    parts: list[Part]
    restored: Callable[[Sequence[Any]], Any]


def components_of(
    image: Any, noise: Noise, lowest: NDArray, highest: NDArray, options: Options
) -> Components:
    """The components of one image of a stack; its channels are last."""
    is_constant = np.array_equal(lowest, highest)  # it has no noise, and no bias of noise
    values = image if is_constant else noise.stabilised(image)
    if values is image:
        return _rotated(image, noise, lowest, highest, options.value_range, options)
    ends = [noise.stabilised(np.full(lowest.shape, end)) for end in options.value_range]
    inner = (float(ends[0].min()), float(ends[1].max()))
    low, high = (noise.stabilised(limit).astype(np.float64) for limit in (lowest, highest))
    components = _rotated(values, noise, low, high, inner, options)
    dtype = float_dtype(image.dtype)

    def restored(images: Sequence[Any]) -> Any:
        means = noise.restored(components.restored(images))
        return means.clip(*representable(options.value_range, dtype)).astype(dtype)

    return components._replace(restored=restored)


def _rotated(
    image: Any,
    noise: Noise,
    lowest: NDArray,
    highest: NDArray,
    value_range: tuple[float, float],
    options: Options,
) -> Components:
    """Channels by their principal components, in units of their noise.

    The noise of a component is that of the sum of channels that it is.
    """
    n_channels = image.shape[-1]
    sigmas = noise.deviations(n_channels, options.patch_shape)

    def channel(c: int) -> Part:
        _, covariance = noise.mixed(np.eye(n_channels)[c], options.patch_shape)
        ends = float(lowest[c]), float(highest[c])
        return Part(image[..., c], float(sigmas[c]), covariance, *ends, value_range)

    if n_channels == 1 or options.paper:
        return Components([channel(c) for c in range(n_channels)], together)
    if np.all(image == image[..., :1]):  # grey that is stored as colour
        return Components([channel(0)], lambda images: together(list(images) * n_channels))
    noisy = sigmas > 0
    units, centres = np.where(noisy, sigmas, 1.0), lowest / 2 + highest / 2
    pixels = (image.reshape(-1, n_channels) - centres) / units
    means = pixels.mean(axis=0)
    pixels -= means
    pixels[:, ~noisy] = 0  # their components come last and are left alone
    basis = np.linalg.eigh(pixels.T @ pixels)[1][:, ::-1]
    rotated = (pixels @ basis).reshape(image.shape)
    del pixels
    lows, highs = limits(rotated[np.newaxis])
    parts = []
    for c in range(n_channels):
        sigma, covariance = noise.mixed(basis[:, c] / units * noisy, options.patch_shape)
        ends = float(lows[0, c]), float(highs[0, c])
        parts.append(Part(rotated[..., c], sigma, covariance, *ends, ANY_VALUE))

    def restored(images: Sequence[Any]) -> Any:
        flat = together(images).reshape(-1, n_channels)
        whole = ((flat @ basis.T + means) * units + centres).reshape(image.shape)
        dtype = float_dtype(image.dtype)
        whole = whole.clip(*representable(value_range, dtype)).astype(dtype, copy=False)
        return np.where(noisy, whole, image)

    return Components(parts, restored)


def together(arrays: Sequence[Any], axis: int = -1) -> Any:
    """Arrays or Dask arrays along a new axis; a single one is not copied."""
    return np.expand_dims(arrays[0], axis) if len(arrays) == 1 else np.stack(arrays, axis)
