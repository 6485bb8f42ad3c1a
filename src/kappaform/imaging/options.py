"""The arguments of `denoise`, checked, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_real_array, check_choice, generator, library_of
from kappaform.errors import ArgumentsWarning, warn
from kappaform.imaging.axes import ANY_VALUE, Axes, checked_axes
from kappaform.imaging.noise.kinds import Noise
from kappaform.imaging.patches import checked_patch_shape
from kappaform.imaging.progress import Progress
from kappaform.learning import Conditioned, LearnResult, LogDet, Method, Orthonormal
from kappaform.learning.result import transform_of

MethodName = Literal["conditioned", "log-det", "orthonormal"]
Quality = Literal["fast", "balanced", "best"]
Callback = Callable[[LearnResult], bool | None]


class HasArray(Protocol):
    """An array of any library, or a NumPy scalar."""

    def __array__(self) -> NDArray[Any]: ...


#: Standard deviation of white noise: one number, or one for each channel or image, or for both.
Sigma = float | HasArray | Sequence[float] | Sequence[Sequence[float]]

PATCH_SIDES = {2: 10, 3: 4}  #: by dimensions of space; in 3-D about half as many pixels
# Of patches in which noise is examined for those of the default size: all constants of estimation
# were chosen with these, and larger patches show more of correlated noise.
_EXAMINED_SIDES = {2: 11, 3: 4}
# Pixels of a patch. Time grows with their square: denoising 512 x 512 pixels was measured to take
# 2 s with patches of 11 x 11, 36 s with 24 x 24 and 177 s with 32 x 32, on two busy cores.
SLOW_PATCH = 24**2
# Beyond this bound, the inverse amplifies the noise that thresholds keep: crops of two images with
# sigma 20 lose 0.5 and 1.1 dB of "fast" at a bound of 20, 2 and 4 at 50 ("balanced": up to 0.3).
_LARGEST_BOUND = 10.0
# Fraction of the values outside of a range that was given for them. Noise puts at most about half
# of them there, where an image is at one end of the range everywhere.
_MOST_CUT = 0.6
_WORST_CONDITION = 1e12  # of a given transform: its inverse still has some digits


class Strengths(NamedTuple):
    """Fractions of the noise that are removed."""

    luminance: float
    colour: float


ALL_REMOVED = Strengths(1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Options:
    """The arguments of `denoise` that are the same for every channel and image of a stack."""

    axes: Axes
    patch_shape: tuple[int, ...]
    method_name: MethodName
    method: Method
    transform: NDArray | None  #: as given, float64; None: learn one
    quality: Quality
    value_range: tuple[float, float]
    share: bool
    seed: int  #: for drawing patches from each image
    callback: Callback | None
    progress: Progress
    device: Any = None  #: of torch, where images are learned from and denoised; None: the host
    decorrelate: bool = True  #: denoise principal components, not channels
    strengths: Strengths = ALL_REMOVED

    @classmethod
    def checked(
        cls,
        pixels: Any,
        *,
        method: MethodName = "conditioned",
        max_condition: float = 1.1,
        patch_size: int | tuple[int, ...] | None = None,
        quality: Quality | None = None,
        transform: Any = None,
        value_range: tuple[float, float] | None = None,
        channel_axis: int | None = None,
        stack_axis: int | None = None,
        movie: bool = False,
        share: bool = False,
        rng: int | np.random.Generator | None = None,
        callback: Callback | None = None,
        progress: Any = None,
        device: Any = None,
        decorrelate: bool = True,
        strength: float = 1.0,
        colour_strength: float | None = None,
        patch_sides: dict[int, int] = PATCH_SIDES,
    ) -> Options:
        """Check the arguments for an image; `patch_sides` are the default ones."""
        if movie:
            _check_movie(pixels, stack_axis, channel_axis, share)
        axes = checked_axes(pixels.shape, channel_axis, stack_axis, movie)
        space = axes.to_stack(pixels).shape[1:-1]
        methods = _methods(max_condition)
        check_choice("method", method, tuple(methods))
        if quality is not None:
            check_choice("quality", quality, get_args(Quality))
        if callback is not None and not callable(callback):
            raise TypeError(f"callback={callback!r}: give a function of a LearnResult, or None.")
        if share and transform is not None:
            raise ValueError("share=True learns a transform: leave out transform and preset.")
        matrix = _matrix(transform)
        patch_shape = (1,) * movie + _patch_shape(patch_size, space[movie:], matrix, patch_sides)
        if matrix is not None:
            _check_matrix(matrix, patch_shape)
        return cls(
            axes,
            patch_shape,
            method,
            methods[method],
            matrix,
            quality or "balanced",
            checked_range(value_range),
            share,
            _seed(rng),
            callback,
            Progress.checked(progress),
            device,
            decorrelate,
            _strengths(strength, colour_strength, channel_axis is not None),
        )


def _methods(max_condition: float) -> dict[MethodName, Method]:
    # One round: iterations on noisy patches need not be exact. Against three, the mean PSNR of nine
    # grey and three colour pictures changed by 0.000 and -0.002 dB ("fast": 0.001 and -0.005).
    conditioned = Conditioned(max_condition, objective="relative", n_rounds=1)
    return {"conditioned": conditioned, "log-det": LogDet(), "orthonormal": Orthonormal()}


def warn_about_learning(options: Options) -> None:
    """Warn about settings of learning that rarely can be meant, where a transform is learned."""
    bound = getattr(options.method, "max_condition", 1.0)
    if bound > _LARGEST_BOUND:
        warn(
            f"max_condition={bound:g} lets the inverse of the transform amplify the noise that is "
            "left in the coefficients; denoising may lose several dB, most with quality='fast': "
            "bounds from 1 to 5 denoise best.",
            ArgumentsWarning,
        )
    warn_about_patches(options.patch_shape)


def warn_about_patches(patch_shape: tuple[int, ...]) -> None:
    """Warn about patches that learning takes long for."""
    if (n_pixels := math.prod(patch_shape)) > SLOW_PATCH:
        warn(
            f"patch_size={max(patch_shape)}: patches of {n_pixels} pixels take minutes or hours: "
            "8 to 16 are usual, 4 to 6 in volumes.",
            ArgumentsWarning,
        )


def _check_movie(
    pixels: Any, stack_axis: int | None, channel_axis: int | None, share: bool
) -> None:
    """Reject what a movie cannot be."""
    if stack_axis is None:
        raise ValueError("movie=True needs stack_axis, the axis of the frames.")
    n_axes = len(pixels.shape) - 1 - (channel_axis is not None)
    if n_axes != 2 and stack_axis != channel_axis:  # one axis twice is rejected with the axes
        raise ValueError(
            f"movie=True: image has shape {tuple(pixels.shape)}, frames of {n_axes} dimension(s): "
            "planes are needed."
        )
    if share:
        raise ValueError(
            "share=True has no effect with movie=True, whose frames share a transform already: "
            "leave out share."
        )
    if library_of(pixels) == "dask":
        raise ValueError(
            "movie=True with a Dask image: frames are denoised together in memory only, "
            "image.compute()."
        )


def _patch_shape(
    patch_size: Any, space: tuple[int, ...], matrix: NDArray | None, sides: dict[int, int]
) -> tuple[int, ...]:
    if patch_size is None and matrix is not None:
        patch_size = round(len(matrix) ** (1 / len(space)))
        if patch_size ** len(space) != len(matrix):
            raise ValueError(
                f"transform has shape {matrix.shape}: patches of equal sides do not have "
                f"{len(matrix)} pixels; give the patch_size that it was learned for."
            )
    elif patch_size is None:
        patch_size = default_patch_shape(space, sides)
    return checked_patch_shape(patch_size, space)


def default_patch_shape(
    space: tuple[int, ...], sides: dict[int, int] = PATCH_SIDES
) -> tuple[int, ...]:
    """The patches of an image of this shape, unless `patch_size` is given."""
    return tuple(min(sides[len(space)], size) for size in space)


def examined_shape(patch_shape: tuple[int, ...], space: tuple[int, ...]) -> tuple[int, ...]:
    """The patches in which correlated noise is examined, to denoise patches of this shape."""
    is_default = patch_shape == default_patch_shape(space)
    return default_patch_shape(space, _EXAMINED_SIDES) if is_default else patch_shape


def _strengths(strength: Any, colour_strength: Any, has_channels: bool) -> Strengths:
    """How much of the noise is removed; the colour strength is the strength unless it is given."""
    luminance = _fraction("strength", strength)
    if colour_strength is None:
        return Strengths(luminance, luminance)
    colour = _fraction("colour_strength", colour_strength)
    if not has_channels:
        raise ValueError(
            f"colour_strength={colour_strength!r}: the image has one channel and no colours; "
            "leave it out, or give channel_axis."
        )
    return Strengths(luminance, colour)


def _fraction(name: str, value: Any) -> float:
    array = as_real_array(value, name)
    if array.ndim or array.dtype.kind == "b" or not 0 <= array <= 1:
        raise ValueError(f"{name}={value!r}: give a number from 0 (the input) to 1 (all removed).")
    return float(array)


def _seed(rng: Any) -> int:
    """One seed for all images of a stack, so that each is denoised as it would be alone."""
    seed = int(rng.integers(2**62)) if isinstance(rng, np.random.Generator) else rng
    generator(seed)  # rejects what is not a seed
    return 0 if seed is None else seed


def of_ordinary_scale(transform: NDArray) -> NDArray:
    """A transform times the power of two that brings its largest entry between 1/2 and 1.

    The result does not depend on the scale of a transform, but squares of its entries do.
    """
    return np.ldexp(transform, -int(np.frexp(np.abs(transform).max())[1]))


def _matrix(transform: Any) -> NDArray | None:
    if transform is None:
        return None
    return as_real_array(transform_of(transform, "transform"), "transform").astype(np.float64)


def _check_matrix(matrix: NDArray, patch_shape: tuple[int, ...]) -> None:
    n = math.prod(patch_shape)
    if matrix.shape != (n, n):
        raise ValueError(
            f"transform has shape {matrix.shape}: patches of shape {patch_shape} need ({n}, {n}); "
            "give the patch_size that it was learned for."
        )
    if not np.isfinite(matrix).all() or not (
        np.linalg.cond(of_ordinary_scale(matrix)) <= _WORST_CONDITION
    ):
        raise ValueError("transform is singular or not finite: its codes could not be inverted.")


def warn_about_range(
    value_range: tuple[float, float],
    values: Any,
    known: NDArray | None = None,
    clipped: str = "results",
) -> None:
    """Warn about a range that cannot be meant in the units of the values, or of the known ones.

    Values of Dask are not in memory, and are not read for this.
    """
    if value_range == ANY_VALUE or library_of(values) == "dask":
        return
    low, high = value_range
    values = values if known is None else values[known]
    n_outside = np.count_nonzero(values < low) + np.count_nonzero(values > high)
    if n_outside > _MOST_CUT * values.size:
        warn(
            f"value_range=({low:g}, {high:g}) excludes most values of the image, "
            f"{values.min():g} to {values.max():g}: {clipped} are clipped to it; give it in image "
            "units."
        )


def checked_range(value_range: tuple[float, float] | None) -> tuple[float, float]:
    if value_range is None:
        return ANY_VALUE
    try:
        low, high = (float(value) for value in value_range)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not low < high:
        raise ValueError(f"value_range={value_range!r}: give (low, high) with low < high.")
    return low, high


# --- Result


@dataclass(frozen=True, eq=False)
class DenoiseResult:
    """A denoised image, and how it was denoised.

    Attributes
    ----------
    image : array
        The denoised image, with the shape and axes of the input.
    noise : White, Shot, Varying or Correlated, or a tuple of them
        The noise that was assumed; for a stack, one for each image.
    sigma : float or array
        Standard deviation of the noise, in image units; one for each channel and image. If the
        noise depends on brightness, that at the mean brightness.
    patch_shape : tuple of int
    transforms : tuple of float64 arrays of shape (n, n)
        One for each (decorrelated) channel and image that has noise. Components after the four
        strongest have one in common. Transforms of coarser scales are in `history` only.
    sparsity_map : array
        Mean number of coefficients of the patches over each pixel, averaged over channels.
    history : tuple of LearnResult
        One for each round of learning.

    Examples
    --------
    Noise and transform of one image can be used for others of the same camera.

    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> noisy = kf.add_noise(camera()[100:164, 200:264], sigma=20)
    >>> details = kf.denoise_with_details(noisy)
    >>> other = kf.add_noise(camera()[200:264, 200:264], sigma=20, rng=1)
    >>> denoised = kf.denoise(other, noise=details.noise, transform=details.transform)
    """

    image: NDArray
    noise: Noise | tuple[Noise, ...]
    sigma: float | NDArray
    patch_shape: tuple[int, ...]
    transforms: tuple[NDArray, ...]
    sparsity_map: NDArray
    history: tuple[LearnResult, ...]

    def __repr__(self) -> str:
        noises = self.noise if isinstance(self.noise, tuple) else (self.noise,)
        more = f" (and {len(noises) - 1} more)" if len(noises) > 1 else ""
        shape, patch = (" × ".join(map(str, each)) for each in (self.image.shape, self.patch_shape))
        return (
            f"DenoiseResult({shape}, {noises[0]}{more}, patches {patch}, "
            f"condition number {self.condition_number:.4g})"
        )

    @property
    def transform(self) -> NDArray | None:
        """The first or only transform: in colour, that of the strongest component."""
        return self.transforms[0] if self.transforms else None

    @property
    def condition_number(self) -> float:
        """The largest condition number of the transforms, 1 if there are none."""
        return max((float(np.linalg.cond(each)) for each in self.transforms), default=1.0)
