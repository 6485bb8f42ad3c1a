"""How a block of patches is cleaned with a given transform.

A cleaner works on mean-free patches in place, in their own dtype, and returns for each patch its
weight in the average and the number of its coefficients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.kernels import keep_above, leave_out, shrink
from kappaform.imaging.sweep import Cleaner, block
from kappaform.threads import Workspace


def threshold_cleaner(transform: NDArray, threshold: float, dtype: np.dtype) -> Cleaner:
    """Keep the coefficients that exceed `threshold` times the deviation of their noise.

    The noise of a pixel has deviation 1. A patch counts the less, the more coefficients it needs:
    each carries noise.
    """
    limits = (threshold * np.linalg.norm(transform, axis=1)).astype(dtype)
    analysis, synthesis = _matrices(transform, dtype)

    def clean(patches: NDArray, _: NDArray | None, workspace: Workspace) -> tuple:
        coefs = _product(patches, analysis, workspace, "coefs")
        counts = np.empty(len(patches), dtype)
        keep_above(coefs, limits, synthesis, patches, counts)
        return 1 / (1 + counts), counts

    return clean


def shrinking_cleaner(transform: NDArray, noise: float, dtype: np.dtype) -> Cleaner:
    """Wiener's rule: scale each coefficient by the share of signal that the guide shows.

    The noise of a pixel has variance `noise`. The squared shares are counted: what they let pass.
    """
    variances = (noise * np.sum(transform**2, axis=1)).astype(dtype)
    analysis, synthesis = _matrices(transform, dtype)

    def clean(patches: NDArray, guides: NDArray | None, workspace: Workspace) -> tuple:
        assert guides is not None
        coefs = _product(patches, analysis, workspace, "coefs")
        shown = _product(guides, analysis, workspace, "shown")
        counts = np.empty(len(patches), dtype)
        shrink(coefs, shown, variances, counts)
        np.matmul(coefs, synthesis, out=patches)
        return 1 / (dtype.type(1 / len(transform)) + counts), counts

    return clean


def error_cleaner(
    transform: NDArray, error: float, most: int, damping: float, dtype: np.dtype
) -> Cleaner:
    r"""The published rule: the fewest largest coefficients that bring a patch within `error`.

    With :math:`B = (\lambda I + W^T W)^{-1} W^T` a patch y with codes x is estimated as
    :math:`y - B (W y - x)`: the residual is B times the coefficients left out. All patches weigh
    the same.
    """
    inverse, form = residual_of(transform, damping)
    analysis, gradient, synthesis, form = (
        np.ascontiguousarray(matrix, dtype)
        for matrix in (transform.T, transform.T @ form, -inverse.T, form)
    )

    def clean(patches: NDArray, _: NDArray | None, workspace: Workspace) -> tuple:
        coefs = _product(patches, analysis, workspace, "coefs")
        gradients = _product(patches, gradient, workspace, "gradients")
        counts = np.empty(len(patches), dtype)
        leave_out(coefs, gradients, form, error**2, most, counts)
        patches += _product(coefs, synthesis, workspace, "gradients")
        return np.ones(len(patches), dtype), counts

    return clean


def residual_of(transform: NDArray, damping: float) -> tuple[NDArray, NDArray]:
    """B, which maps the coefficients left out to the residual of a patch, and its form BᵀB."""
    regular = damping * np.eye(len(transform)) + transform.T @ transform
    inverse = np.linalg.solve(regular, transform.T)
    return inverse, inverse.T @ inverse


def _matrices(transform: NDArray, dtype: np.dtype) -> tuple[NDArray, NDArray]:
    """What patches (rows) are multiplied with to get coefficients, and back."""
    synthesis = np.linalg.inv(transform).T
    return np.ascontiguousarray(transform.T, dtype), np.ascontiguousarray(synthesis, dtype)


def _product(patches: NDArray, matrix: NDArray, workspace: Workspace, name: str) -> NDArray:
    out = block(workspace, name, len(patches), len(matrix), patches.dtype)
    return np.matmul(patches, matrix, out=out)
