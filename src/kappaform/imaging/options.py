"""What `denoise` is asked for: its arguments, checked, and which axes of the image are what."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_real_array, generator, library_of
from kappaform.imaging.patches import checked_patch_shape
from kappaform.imaging.work import Progress, sections
from kappaform.learning import Conditioned, LearnResult, LogDet, Method, Orthonormal
from kappaform.learning.result import transform_of

MethodName = Literal["conditioned", "log-det", "orthonormal"]
Quality = Literal["fast", "balanced", "best"]
Callback = Callable[[LearnResult], bool | None]


class HasArray(Protocol):
    """An array of any library, or a number of NumPy."""

    def __array__(self) -> NDArray[Any]: ...


#: Standard deviation of white noise: one number, or one for each channel or image, or for both.
Sigma = float | HasArray | Sequence[float] | Sequence[Sequence[float]]

ANY_VALUE = (-math.inf, math.inf)
GREY_LEVELS = (0.0, 255.0)  #: of the paper's images

_PAPER_PATCH_SIDE = 11
_PATCH_SIDE = {2: _PAPER_PATCH_SIDE, 3: 4}  # in 3-D about half as many pixels
_LARGEST_VALUE = 1e300  # sums over a patch stay within float64
_LARGEST_PEAK = 2.0**52  # distance from the centre over noise: float64 has no more digits
_WORST_CONDITION = 1e12  # of a given transform: its inverse still has some digits


@dataclass(frozen=True, eq=False)
class Options:
    """The arguments of `denoise`, the same for every channel and slice."""

    method_name: MethodName
    method: Method
    patch_shape: tuple[int, ...]
    paper: bool
    transform: NDArray | None  #: as it was given, float64; None: learn one
    value_range: tuple[float, float]
    seed: int  #: of the patches that are drawn from each image
    callback: Callback | None
    quality: Quality = "balanced"
    device: Any = None  #: of torch, where images are learned from and cleaned; None: the host
    progress: Progress | None = None


def checked_quality(quality: Any, preset: str | None) -> Quality:
    if quality is None:
        return "balanced"
    if quality not in get_args(Quality):
        raise ValueError(f"quality={quality!r} is unknown: choose one of {get_args(Quality)}.")
    if preset is not None:
        raise ValueError(
            f"quality={quality!r} has no effect with preset={preset!r}, which has one quality: "
            "leave one of them out."
        )
    return quality


def equal_parts(options: Options, number: int) -> list[Options]:
    """The options of equal parts of the work, each with its part of the progress."""
    return [replace(options, progress=part) for part in sections(options.progress, [1] * number)]


def telling_callback(options: Options, n_iter: int) -> Callback | None:
    """The callback of a round of learning, which tells progress of each of its iterations."""
    callback, progress = options.callback, options.progress
    if progress is None:
        return callback
    iterations = count(1)

    def tell(result: LearnResult) -> bool | None:
        progress(next(iterations) / n_iter)
        return None if callback is None else callback(result)

    return tell


def limits(stack: NDArray) -> tuple[NDArray, NDArray]:
    """Lowest and highest value of each slice and channel of a stack, as float64."""
    space = tuple(range(1, stack.ndim - 1))
    lowest, highest = computed(stack.min(space), stack.max(space))
    check_finite(lowest, highest)
    return lowest.astype(np.float64), highest.astype(np.float64)


def check_finite(lowest: NDArray, highest: NDArray) -> None:
    """Refuse an image, or a stack, with such extreme values: NaN is one wherever it occurs."""
    are_finite = np.isfinite(lowest) & np.isfinite(highest)
    if not are_finite.all():
        where = ""
        if are_finite.ndim and len(are_finite) > 1:
            first = np.argwhere(~are_finite)[0, 0]
            where = f", first in image {first} of the stack (counted from 0)"
        raise ValueError(f"image contains NaN or inf{where}: fill such pixels first.")


def check_scale(lowest: NDArray, highest: NDArray, sigmas: NDArray) -> None:
    """Refuse an image for which float64 has no room, or too few digits to see the noise."""
    too_large = np.maximum(-lowest, highest) > _LARGEST_VALUE
    too_far = ((highest / 2 - lowest / 2) / _LARGEST_PEAK > sigmas) & (sigmas > 0)
    for where in np.argwhere(too_large | too_far)[:1].tolist():
        at = tuple(where)
        raise ValueError(
            f"image has values from {lowest[at]:.3g} to {highest[at]:.3g}, and sigma is "
            f"{sigmas[at]:.3g}: more than the 16 digits of float64, or near its largest number. "
            "Fill outliers, such as pixels without data; scale huge values and sigma; give sigma=0 "
            "where there is no noise."
        )


def computed(*arrays: NDArray) -> tuple[NDArray, ...]:
    """The same arrays in memory, those of a Dask array together."""
    if library_of(arrays[0]) != "dask":
        return arrays
    from dask.base import compute

    return compute(*arrays)


def checked_options(
    space: tuple[int, ...],
    method: MethodName,
    max_condition: float,
    patch_size: int | tuple[int, ...] | None,
    preset: str | None,
    transform: Any,
    value_range: tuple[float, float] | None,
    rng: int | np.random.Generator | None,
    callback: Callback | None,
) -> Options:
    """Check everything but the image, of which `space` is the shape without stack and channels."""
    # Few rounds: iterations on noisy patches need not be exact, and passes are cheap.
    conditioned = Conditioned(max_condition, objective="relative", n_rounds=3)
    methods: dict[MethodName, Method] = {
        "conditioned": conditioned,
        "log-det": LogDet(),
        "orthonormal": Orthonormal(),
    }
    if method not in methods:
        raise ValueError(f"method={method!r} is unknown: choose one of {tuple(methods)}.")
    if preset not in (None, "paper"):
        raise ValueError(f"preset={preset!r} is unknown: give 'paper', or None for the default.")
    paper = preset == "paper"
    values = _checked_range(value_range)
    if paper and values not in (ANY_VALUE, GREY_LEVELS):
        raise ValueError(
            f"value_range={value_range!r} with preset='paper': its grey levels are 0 to 255."
        )
    if paper and transform is not None:
        raise ValueError("transform and preset='paper' exclude each other: the preset learns one.")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r}: give a function of a LearnResult, or None.")
    matrix = _matrix(transform)
    patch_shape = _patch_shape(patch_size, space, matrix, paper)
    if matrix is not None:
        _check_matrix(matrix, patch_shape)
    # One seed for all images of a stack, so that each becomes what it becomes alone.
    seed = int(rng.integers(2**62)) if isinstance(rng, np.random.Generator) else rng
    generator(seed)  # refuses what is not a seed
    seed = 0 if seed is None else seed
    return Options(method, methods[method], patch_shape, paper, matrix, values, seed, callback)


def check_movie(
    shape: Sequence[int],
    axes: tuple[int | None, int | None],
    preset: str | None,
    share: bool,
    library: str,
) -> None:
    """Refuse what a movie cannot be; `axes` are those of the stack and of the channels."""
    if axes[0] is None:
        raise ValueError("movie=True needs stack_axis, the axis of the frames.")
    n_axes = len(shape) - sum(axis is not None for axis in axes)
    if n_axes != 2 and axes[0] != axes[1]:  # one axis twice is refused with the axes
        raise ValueError(
            f"movie=True: image has shape {tuple(shape)}, frames of {n_axes} dimension(s): planes "
            "are needed."
        )
    if share:
        raise ValueError(
            "share=True has no effect with movie=True, whose frames share a transform already: "
            "leave out share."
        )
    if preset is not None:
        raise ValueError(
            f"preset={preset!r} with movie=True: the preset denoises each image on its own; leave "
            "out one of them."
        )
    if library == "dask":
        raise ValueError(
            "movie=True with a Dask image: frames are cleaned together in memory only, "
            "image.compute()."
        )


def patch_of_frames(patch_size: Any, frame: tuple[int, ...], transform: Any) -> tuple[int, ...]:
    """The shape of a patch of one frame of a movie, whose frames are planes."""
    return (1, *_patch_shape(patch_size, frame, _matrix(transform)))


def _patch_shape(
    patch_size: Any, space: tuple[int, ...], matrix: NDArray | None, paper: bool = False
) -> tuple[int, ...]:
    if patch_size is None and matrix is not None:
        patch_size = round(len(matrix) ** (1 / len(space)))
    elif patch_size is None:
        patch_size = default_patch_shape(space, paper)
    return checked_patch_shape(patch_size, space)


def default_patch_shape(space: tuple[int, ...], paper: bool = False) -> tuple[int, ...]:
    """The patches of an image of this shape, if nobody says otherwise."""
    largest = _PAPER_PATCH_SIDE if paper else _PATCH_SIDE[len(space)]
    return tuple(min(largest, size) for size in space)


def of_ordinary_scale(transform: NDArray) -> NDArray:
    """A transform times the power of two that brings its largest entry between 1/2 and 1.

    The scale of a transform does not matter to what is cleaned, but to squares of its entries.
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


def _checked_range(value_range: tuple[float, float] | None) -> tuple[float, float]:
    if value_range is None:
        return ANY_VALUE
    try:
        low, high = (float(value) for value in value_range)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not low < high:
        raise ValueError(f"value_range={value_range!r}: give (low, high) with low < high.")
    return low, high
