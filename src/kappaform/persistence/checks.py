"""What a file must hold to be what it says."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import as_sparsity, check_at_most
from kappaform.learning import Conditioned, LearnResult
from kappaform.learning.updates import Factors

FACTORS = ("left", "spectrum", "right")


def checked_factors(arrays: dict[str, NDArray], transform: NDArray) -> Factors:
    """The singular value decomposition with which a conditioned transform is resumed."""
    shapes = (transform.shape, transform.shape[:1], transform.shape)
    factors = Factors(*map(checked_array, [arrays] * 3, FACTORS, shapes))
    if np.abs(factors.matrix - transform).max() > 1e-9 * factors.spectrum.max():
        raise ValueError("the transform is not the product of left, spectrum and right.")
    return factors


def check_condition(result: LearnResult, stated: float) -> None:
    """Refuse a transform that is not as well conditioned as its file says."""
    n_features, found = len(result.transform), result.condition_number
    rounding = 1e-9 + 10 * n_features * float(np.finfo(np.float64).eps) * stated
    if not abs(found - stated) <= rounding * stated:
        raise ValueError(f"the transform has condition number {found}, the header says {stated}.")
    if isinstance(result.method, Conditioned) and found > result.method.max_condition * (1 + 1e-9):
        raise ValueError(
            f"the transform has condition number {found}, beyond "
            f"max_condition={result.method.max_condition}."
        )


def checked_array(
    arrays: dict[str, NDArray], name: str, shape: tuple[int, ...], finite: bool = True
) -> NDArray:
    array = arrays[name]
    if array.shape != shape or array.dtype != np.float64:
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, not float64 {shape}.")
    if finite and not np.isfinite(array).all():
        raise ValueError(f"{name} contains NaN or inf.")
    return array


def checked_sparsity(value: Any, n_features: int) -> int:
    sparsity = as_sparsity(value, 1, "n_nonzero_coefs")
    check_at_most(sparsity, n_features, "n_nonzero_coefs")
    return int(sparsity[0])


def checked_shape(shape: Any, n_features: int) -> tuple[int, ...] | None:
    if shape is None:
        return None
    sides = np.atleast_1d(shape)
    if sides.dtype.kind not in "iu" or sides.min() < 1 or math.prod(sides.tolist()) != n_features:
        raise ValueError(
            f"patch_shape={shape!r}: give the sides of a patch, integers whose product is the "
            f"number of features, {n_features}."
        )
    return tuple(sides.tolist())


def checked_mean(mean: Any) -> Literal["kept", "removed"]:
    if mean not in ("kept", "removed"):
        raise ValueError(f"patch_mean={mean!r}: choose 'kept' or 'removed'.")
    return mean
