"""What `denoise` is asked for, checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import as_real_array
from kappaform.imaging.grid import per_axis
from kappaform.learning import Conditioned, LearnResult, LogDet, Method, Orthonormal
from kappaform.learning.result import learned

MethodName = Literal["conditioned", "log-det", "orthonormal"]
Callback = Callable[[LearnResult], bool | None]

_PATCH_SIDE = {2: 11, 3: 4}
_EVERYTHING = (-math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class Task:
    """The same for every channel and slice."""

    method_name: MethodName
    method: Method
    patch_shape: tuple[int, ...]
    paper: bool
    transform: NDArray | None  #: None: learn one
    value_range: tuple[float, float]
    rng: np.random.Generator
    callback: Callback | None
    sigma_given: bool
    device: Any = None  #: of torch, where images are learned from and cleaned; None: the host


def make_task(
    spatial: tuple[int, ...],
    method: MethodName,
    max_condition: float,
    patch_size: int | tuple[int, ...] | None,
    preset: str | None,
    transform: Any,
    value_range: tuple[float, float] | None,
    rng: int | np.random.Generator | None,
    callback: Callback | None,
    sigma_given: bool,
) -> Task:
    """Check everything but the image. `spatial` is the shape of one image."""
    if method not in get_args(MethodName):
        raise ValueError(f"method={method!r} is unknown: choose one of {get_args(MethodName)}.")
    if preset not in (None, "paper"):
        raise ValueError(f"preset={preset!r} is unknown: give 'paper', or None for the default.")
    if preset is not None and _range(value_range) not in (_EVERYTHING, (0.0, 255.0)):
        raise ValueError(
            f"value_range={value_range!r} with preset='paper': its grey levels are 0 to 255."
        )
    matrix = _matrix(transform)
    patch_shape = _patch_shape(patch_size, spatial, matrix, preset)
    if matrix is not None:
        _check_matrix(matrix, patch_shape, preset)
    conditioned = Conditioned(max_condition, objective="relative", n_rounds=3)
    methods: dict[str, Method] = {
        "conditioned": conditioned,
        "log-det": LogDet(),
        "orthonormal": Orthonormal(),
    }
    return Task(
        method,
        methods[method],
        patch_shape,
        preset == "paper",
        matrix,
        _range(value_range),
        np.random.default_rng(0 if rng is None else rng),
        callback,
        sigma_given,
    )


def _patch_shape(
    patch_size: int | tuple[int, ...] | None,
    spatial: tuple[int, ...],
    matrix: NDArray | None,
    preset: str | None,
) -> tuple[int, ...]:
    n_axes = len(spatial)
    if patch_size is None and matrix is not None:
        patch_size = round(len(matrix) ** (1 / n_axes))
    elif patch_size is None:
        largest = 11 if preset == "paper" else _PATCH_SIDE[n_axes]
        patch_size = tuple(min(largest, size) for size in spatial)
    shape = per_axis(patch_size, n_axes, "patch_size")
    if any(side > size for side, size in zip(shape, spatial, strict=True)):
        raise ValueError(
            f"patch_size={patch_size!r} does not fit into an image of shape {spatial}: give a "
            "smaller patch_size."
        )
    return shape


def _matrix(transform: Any) -> NDArray | None:
    if transform is None:
        return None
    given = learned(transform, "transform")
    matrix = (
        given.transform if isinstance(given, LearnResult) else as_real_array(given, "transform")
    )
    return np.asarray(matrix, dtype=np.float64)


def _check_matrix(matrix: NDArray, patch_shape: tuple[int, ...], preset: str | None) -> None:
    n = math.prod(patch_shape)
    if preset is not None:
        raise ValueError("transform and preset='paper' exclude each other: the preset learns one.")
    if matrix.shape != (n, n):
        raise ValueError(
            f"transform has shape {matrix.shape}: patches of shape {patch_shape} need ({n}, {n}); "
            "give the patch_size that it was learned for."
        )
    if not np.isfinite(matrix).all() or np.linalg.cond(matrix) > 1e12:
        raise ValueError("transform is singular or not finite: its codes could not be inverted.")


def _range(value_range: tuple[float, float] | None) -> tuple[float, float]:
    if value_range is None:
        return _EVERYTHING
    try:
        low, high = (float(value) for value in value_range)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    if not low < high:
        raise ValueError(f"value_range={value_range!r}: give (low, high) with low < high.")
    return low, high
