"""An image and its noise; its components, of one channel each, with the same noise everywhere.

Noise that depends on brightness is stabilised first. Then channels are rotated to their principal
components, which are uncorrelated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_real_array, float_dtype, library_of
from kappaform.imaging.axes import ANY_VALUE, computed, extremes_of, within
from kappaform.imaging.cleaning.patchwise import Kept
from kappaform.imaging.cleaning.stages import EFFORTS, Recipe
from kappaform.imaging.cleaning.tiles import HostBackend, Outputs
from kappaform.imaging.noise.correlated import Correlated
from kappaform.imaging.noise.estimate import check_kind, estimate_sigma, noise_of
from kappaform.imaging.noise.kinds import Noise, White, as_numbers, check_no_class
from kappaform.imaging.options import Options, Quality, Sigma, of_ordinary_scale
from kappaform.imaging.patches import DrawnPatches
from kappaform.imaging.progress import Progress

# Largest distance from the centre, in units of the noise, for single precision. Patches are rounded
# by 2**-24 times as much, 1/4000 of the noise. Groups need squares: products of their patches are
# rounded by less than the noise adds to them.
_SINGLE_PRECISION_PEAK = 4096
_SINGLE_PRECISION_PEAK_OF_GROUPS = 256
_N_FRAMES = 15  # of a movie, from which a typical one is chosen
_BLOCK = 2**20  # values of an image that are rotated at a time


class Component(NamedTuple):
    """One channel or principal component of an image, and its noise."""

    image: Any
    sigma: float
    covariance: NDArray | None  #: of the noise of a patch in units of sigma**2; None: white
    lowest: float
    highest: float
    value_range: tuple[float, float]
    known: NDArray | None = None  #: which pixels are, where it matters to learning; None: all

    @property
    def is_noisy(self) -> bool:
        """Whether there is noise to remove."""
        return self.sigma > 0 and self.lowest < self.highest


class Components(NamedTuple):
    """The components of an image, and what makes an image (channels last) of them."""

    parts: list[Component]
    restored: Callable[[Sequence[Any]], Any]


# --- Where the pixels are


class Backend(Protocol):
    """The components of an image, where their pixels are."""

    def training_patches(
        self, component: int, rounds: DrawnPatches, patch_shape: tuple[int, ...], unit: float
    ) -> Iterable[Any]:
        """Mean-free float32 patches of a component, in a unit: for each round, some of a grid.

        Where the patches of the grid are larger than `patch_shape`, they are halved to it.
        """

    def denoised(self, recipes: Sequence[Recipe], quality: Quality, progress: Progress) -> Outputs:
        """The components in their float dtypes."""


def backend_of(components: Sequence[Any], device: Any) -> Backend:
    """The backend of components: arrays, of Dask or not, or arrays for a device of torch."""
    if library_of(components[0]) == "dask":
        from kappaform.imaging.cleaning.dask import DaskBackend

        return DaskBackend(components)
    if device is not None:
        from kappaform.imaging.cleaning.torch import TorchBackend

        return TorchBackend(components, device)
    return HostBackend(components)


# --- An image as given


def pixels_of(image: Any, channel_axis: int | None, device: Any = None) -> tuple[Any, Any]:
    """The values of an image of any library, and where it is processed; None: on the host.

    That is the device of a tensor, or the given one.
    """
    library = library_of(image)
    if library == "dask":
        from kappaform.imaging.cleaning.dask import check_dask_image

        check_dask_image(image, channel_axis)
        return image, None
    place = place_of(image, device)
    if library == "torch":
        from kappaform.imaging.tensors import as_array

        image = as_array(image, "image")
    return as_real_array(image, "image"), place


def place_of(image: Any, device: Any = None) -> Any:
    """The device on which an array (the given one) or a tensor (its own) is processed."""
    device = image.device if library_of(image) == "torch" else device
    return None if device is None or device.type == "cpu" else device


def noises_of(
    sigma: Sigma | None, noise: Any, stack: Any, patch_shape: tuple[int, ...]
) -> list[Noise]:
    """The noise of each image of a stack: as given, or estimated."""
    n_images, n_channels = stack.shape[0], stack.shape[-1]
    if sigma is not None and noise is not None:
        raise ValueError(f"sigma={sigma!r} and noise={noise!r}: give one of them.")
    if sigma is not None:
        return [White(row) for row in _sigmas(sigma, n_images, n_channels)]
    check_no_class(noise)
    if noise is None or isinstance(noise, str):
        check_kind(noise, "noise")
        if stack.dtype.kind == "b":
            raise ValueError(
                "image holds booleans: the noise of black and white cannot be estimated; give "
                "sigma or noise to denoise it anyway."
            )
        noises = [noise_of(image, noise, patch_shape) for image in stack]
    else:
        noises = list(noise) if isinstance(noise, Sequence) else [noise] * n_images
    if len(noises) != n_images or not all(isinstance(each, Noise) for each in noises):
        raise TypeError(
            f"noise={noise!r}: give White, Shot, Varying or Correlated, the name of a kind, or one "
            f"for each of the {n_images} images."
        )
    for each in noises:
        each.check_channels(n_channels)
    return noises


def noise_of_movie(
    sigma: Sigma | None, noise: Any, stack: Any, patch_shape: tuple[int, ...]
) -> list[Noise]:
    """The noise of all frames of a movie: as given, or estimated in a typical frame.

    That is the frame with the median noise level, so that a few bad frames do not matter.
    """
    number, n_channels = 0, stack.shape[-1]
    shape = () if sigma is None else as_numbers("sigma", sigma).shape
    several = isinstance(noise, Sequence) and not isinstance(noise, str) and len(noise) > 1
    if several or shape not in ((), (1,), (n_channels,), (1, 1), (1, n_channels)):
        given = f"noise has {len(noise)} entries" if several else f"sigma has shape {shape}"
        raise ValueError(
            f"movie=True: {given}, and a movie has one noise for all its frames: give one, or one "
            f"number for each of the {n_channels} channels."
        )
    if sigma is None and (noise is None or isinstance(noise, str)):
        number = _typical_frame(stack[0])
    (found,) = noises_of(sigma, noise, stack[:, number], patch_shape[1:])
    if isinstance(found, Correlated) and found.autocovariance is not None:
        # Frames are independent: at distance zero in time, which comes before those in space.
        over_time = np.expand_dims(found.autocovariance, np.ndim(found.autocovariance) - 2)
        found = replace(found, autocovariance=over_time)
    return [found]


def _typical_frame(frames: NDArray) -> int:
    """The number of the frame (channels last) whose noise level is the median.

    For a long movie, evenly spaced frames are examined.
    """
    numbers = np.linspace(0, len(frames) - 1, min(len(frames), _N_FRAMES)).astype(int)
    levels = [np.mean(estimate_sigma(frames[number], channel_axis=-1)) for number in numbers]
    return int(numbers[np.argsort(levels, kind="stable")[(len(levels) - 1) // 2]])


def _sigmas(sigma: Sigma, n_images: int, n_channels: int) -> NDArray:
    """Standard deviation of the noise for each image and channel of a stack."""
    values = as_numbers("sigma", sigma).astype(np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(
            f"sigma={sigma!r}: a standard deviation is finite and >= 0; None estimates it."
        )
    shape = n_images, n_channels
    if values.shape == (n_images,) and n_images != n_channels:
        values = values[:, np.newaxis]
    elif values.shape == (n_channels,) and n_images == n_channels > 1:
        raise ValueError(
            f"sigma={sigma!r} is ambiguous, the stack has {n_images} images of as many channels: "
            f"give an array of shape {(1, n_channels)} for channels, {(n_images, 1)} for images, "
            f"or {shape} for both."
        )
    if values.shape not in ((), (n_channels,), shape, (n_images, 1), (1, n_channels)):
        raise ValueError(
            f"sigma has shape {values.shape}: give one number, or one for each of the "
            f"{n_channels} channels or {n_images} images of the stack."
        )
    return np.broadcast_to(values, shape)


def levels_of(noises: list[Noise], stack: Any) -> NDArray:
    """Standard deviation of the noise of each image and channel, at its mean brightness."""
    means = np.zeros((stack.shape[0], stack.shape[-1]))
    if not all(isinstance(each, White) for each in noises):
        # In single precision, sums over the pixels of a large colour image lose their last digits.
        space = tuple(range(1, stack.ndim - 1))
        (means,) = computed(stack.mean(axis=space, dtype=np.float64))
    return np.array([each.level(row) for each, row in zip(noises, means, strict=True)])


# --- Its components


def components_of(
    image: Any, noise: Noise, lowest: NDArray, highest: NDArray, options: Options
) -> Components:
    """The components of one image of a stack; its channels are last."""
    noise.check_values(highest)
    is_constant = lowest == highest  # it has no noise, and no bias of noise
    values = image if is_constant.all() else noise.stabilised(image)
    if values is image:
        return _rotated(image, noise, lowest, highest, options.value_range, options)
    low, high = (noise.stabilised(ends) for ends in (lowest, highest))
    # Stabilising keeps the order of values, so the extremes decide the precision of all of them:
    # chunks of Dask, which are computed later, have that of an array.
    values = values.astype(np.result_type(low, high), copy=False)
    low, high = low.astype(np.float64), high.astype(np.float64)
    # Means of stabilised values may be beyond what values become, so these are not clipped.
    components = _rotated(values, noise, low, high, ANY_VALUE, options)
    dtype = float_dtype(image.dtype)

    def restored(images: Sequence[Any]) -> Any:
        means = noise.restored(components.restored(images))
        means = np.where(is_constant, image, means) if is_constant.any() else means
        return within(means, options.value_range, dtype).astype(dtype, copy=False)

    return components._replace(restored=restored)


def _rotated(
    image: Any,
    noise: Noise,
    lowest: NDArray,
    highest: NDArray,
    value_range: tuple[float, float],
    options: Options,
) -> Components:
    """Principal components of the channels, which are in units of their noise.

    The noise of a component is that of the linear combination of channels that it is.
    """
    n_channels = image.shape[-1]
    sigmas = noise.deviations(n_channels, options.patch_shape)

    def channel(c: int) -> Component:
        _, covariance = noise.mixed(np.eye(n_channels)[c], options.patch_shape)
        ends = float(lowest[c]), float(highest[c])
        return Component(image[..., c], float(sigmas[c]), covariance, *ends, value_range)

    if n_channels == 1 or not options.decorrelate:
        return Components([channel(c) for c in range(n_channels)], together)
    if np.all(image == image[..., :1]):  # grey that is stored as colour
        return Components([channel(0)], lambda images: together(list(images) * n_channels))
    noisy = sigmas > 0
    units, centres = np.where(noisy, sigmas, 1.0), lowest / 2 + highest / 2

    def in_units(pixels: NDArray) -> NDArray:
        # In C order, or the layout of the image in memory would decide how sums are rounded.
        values: NDArray = np.subtract(pixels.reshape(-1, n_channels), centres, order="C") / units
        values[:, ~noisy] = 0  # their components come last and are left alone
        return values

    means, basis = _principal_axes(in_units(image[rows]) for rows in _blocks(image.shape))
    mixed = [noise.mixed(row / units * noisy, options.patch_shape) for row in basis.T]
    # Nothing is farther from the mean.
    reach = 2 * math.sqrt(n_channels) * float(np.max((highest - centres) / units * noisy))
    least = min((sigma for sigma, _ in mixed if sigma > 0), default=1.0)
    dtype = np.float32 if reach <= least * _SINGLE_PRECISION_PEAK else np.float64
    rotated = np.empty((n_channels, *image.shape[:-1]), dtype)
    for rows in _blocks(image.shape):
        rotated[:, rows] = ((in_units(image[rows]) - means) @ basis).T.reshape(
            n_channels, -1, *image.shape[1:-1]
        )
    (lows,), (highs,) = extremes_of(np.moveaxis(rotated, 0, -1)[np.newaxis])
    parts = []
    for c, (sigma, covariance) in enumerate(mixed):
        ends = float(lows[c]), float(highs[c])
        parts.append(Component(rotated[c], sigma, covariance, *ends, ANY_VALUE))

    def restored(images: Sequence[NDArray]) -> NDArray:
        whole = np.empty(image.shape, float_dtype(image.dtype))
        for rows in _blocks(image.shape):
            given = image[rows]
            flat = np.stack([each[rows] for each in images], axis=-1).reshape(-1, n_channels)
            values = ((flat @ basis.T + means) * units + centres).reshape(given.shape)
            values = values if noisy.all() else np.where(noisy, values, given)
            whole[rows] = within(values, value_range, whole.dtype)
        return whole

    return Components(parts, restored)


def _blocks(shape: Sequence[int]) -> Iterator[slice]:
    """Rows of an image (*space, channels), a few megabytes at a time."""
    step = max(1, _BLOCK // math.prod(shape[1:]))
    yield from (slice(start, start + step) for start in range(0, shape[0], step))


def _principal_axes(blocks: Iterable[NDArray]) -> tuple[NDArray, NDArray]:
    """Mean of the rows of all blocks, and an orthonormal basis, the strongest direction first."""
    moments = [(len(block), block.sum(axis=0), block.T @ block) for block in blocks]
    numbers, totals, products = zip(*moments, strict=True)
    means: NDArray = sum(totals) / sum(numbers)
    covariance = sum(products) - sum(numbers) * np.outer(means, means)
    return means, np.linalg.eigh(covariance)[1][:, ::-1]


def recipe_of(
    part: Component, transforms: Sequence[NDArray], kept: Sequence[Kept | None], options: Options
) -> Recipe:
    """How a component is denoised with these transforms, by which so much of it is kept."""
    peak = (part.highest / 2 - part.lowest / 2) / part.sigma
    is_fast = EFFORTS[options.quality] is None
    largest = _SINGLE_PRECISION_PEAK if is_fast else _SINGLE_PRECISION_PEAK_OF_GROUPS
    return Recipe(
        transforms=tuple(map(of_ordinary_scale, transforms)),
        patch_shape=options.patch_shape,
        sigma=part.sigma,
        covariance=part.covariance,
        centre=part.lowest / 2 + part.highest / 2,
        dtype=np.dtype(np.float32 if peak <= largest else np.float64),
        value_range=part.value_range,
        kept=tuple(kept),
    )


def together(arrays: Sequence[Any], axis: int = -1) -> Any:
    """Arrays or Dask arrays along a new axis; a single one is not copied."""
    return np.expand_dims(arrays[0], axis) if len(arrays) == 1 else np.stack(arrays, axis)
