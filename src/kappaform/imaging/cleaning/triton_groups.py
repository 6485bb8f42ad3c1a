"""Kernel that denoises groups of patches and adds them to images of sums, on a GPU.

A program has one group in its registers, from the pixels of its patches to their estimates.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that Triton infers.

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kappaform.imaging.cleaning.kernels import FLAT, LEAST_LEFT, LEAST_TRUST

if TYPE_CHECKING:
    from torch import Tensor

_MOST = 64  # members of a group, and pixels of a patch
_WARPS = 4


def can_denoise(image: Tensor, n_members: int, n_pixels: int) -> bool:
    """Whether there is a kernel for images like this one, and for groups of this size."""
    import torch

    return image.is_cuda and image.dtype == torch.float32 and max(n_members, n_pixels) <= _MOST


def add_groups(
    images: Sequence[Tensor],
    groups: Any,
    noise: Tensor,
    fraction: float,
    least: float,
    sums: tuple[Tensor, Tensor],
    units: tuple[float, float],
) -> None:
    """Add denoised groups to sums of values and of weights, integers in these units.

    images : flat: noisy, partially denoised, and the best estimate so far
    sums : for each, the sum for the estimate and the one for the image with a part of the noise
    """
    import torch

    (n_groups, k), n = groups.members.shape, len(groups.offsets)
    values, weights = sums
    with torch.cuda.device_of(values):
        _add_groups[(n_groups,)](
            *(image.contiguous() for image in images), noise.contiguous(),
            groups.starts, groups.members, groups.steps, groups.offsets,
            *values, *weights, n, k,
            fraction, max(fraction, LEAST_LEFT), FLAT * n * least,
            n * torch.finfo(torch.float32).eps, LEAST_TRUST, *units,
            MEMBERS=_padded(k), PIXELS=_padded(n), num_warps=_WARPS,
        )  # fmt: skip


def _padded(length: int) -> int:
    return max(16, triton.next_power_of_2(length))


@triton.jit(do_not_specialize=["n", "k"])
def _add_groups(
    noisy, partial, guide, noise, starts, members, steps, offsets,
    values, less_values, weights, less_weights, n, k,
    fraction, least_left, flat, rounding, least_trust, unit, unit_of_weights,
    MEMBERS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0).to(tl.int64)
    rows, columns = tl.arange(0, MEMBERS), tl.arange(0, PIXELS)
    is_member, is_pixel = rows < k, columns < n
    inside = is_member[:, None] & is_pixel[None, :]
    numbers = tl.load(members + group * k + rows, is_member, 0)
    places = tl.load(starts + group) + tl.load(steps + numbers, is_member, 0)
    pixels = places[:, None] + tl.load(offsets + columns, is_pixel, 0)[None, :]

    given = tl.load(partial + pixels, inside, 0.0)
    lost = tl.load(noisy + pixels, inside, 0.0) - given
    lost = tl.where(inside, lost - tl.sum(tl.sum(lost, 1), 0) / (n * k), 0.0)
    deviation = tl.sqrt(tl.sum(tl.sum(lost * lost, 1), 0) / (n * k))
    left = tl.maximum(1 - deviation, least_left)

    known = tl.load(guide + pixels, inside, 0.0)
    known = tl.where(inside, known - (tl.sum(known, 0) / k)[None, :], 0.0)
    power = tl.sum(tl.sum(known * known, 1), 0)
    known = tl.where(power > flat * left * left, known, 0.0)  # else they are estimated by the mean
    mean = tl.sum(given, 0) / k
    given = tl.where(inside, given - mean[None, :], 0.0)

    basis = tl.trans(known)
    matrix = tl.dot(basis, known, input_precision="tf32x3")
    on_diagonal = columns[:, None] == columns[None, :]
    hidden = rounding * tl.max(tl.max(tl.where(on_diagonal, matrix, 0.0), 1), 0)
    square = columns[:, None] * n + columns[None, :]
    are_pixels = is_pixel[:, None] & is_pixel[None, :]
    matrix += n * left * left * tl.load(noise + square, are_pixels, 0.0)
    matrix += tl.where(on_diagonal, hidden, 0.0)
    basis = _without_correlation(matrix, basis, n, columns)

    product = tl.dot(basis, given, input_precision="tf32x3")
    estimates = mean[None, :] + tl.dot(tl.trans(basis), product, input_precision="tf32x3")
    trust = tl.maximum(n / tl.maximum(hidden, n), least_trust)
    weight = trust / (1 / k + tl.sum(basis * basis, 0))
    kept = fraction / left

    weighted = estimates * (weight * unit)[:, None]
    tl.atomic_add(values + pixels, _whole(weighted), inside, sem="relaxed")
    tl.atomic_add(less_values + pixels, _whole(weighted * (1 - kept)), inside, sem="relaxed")
    marks = weight.to(tl.float64) * unit_of_weights
    tl.atomic_add(weights + places, _whole(marks), is_member, sem="relaxed")
    tl.atomic_add(less_weights + places, _whole(marks * kept), is_member, sem="relaxed")


@triton.jit
def _without_correlation(matrix, basis, n, columns):
    """L⁻¹ times `basis`, where L Lᵀ is the positive definite matrix: elimination row by row."""
    pivots = tl.full(columns.shape, 1.0, tl.float32)
    for j in range(n):
        is_pivot = columns == j
        row = tl.sum(tl.where(is_pivot[:, None], matrix, 0.0), 0)
        column = tl.sum(tl.where(is_pivot[None, :], matrix, 0.0), 1)
        of_basis = tl.sum(tl.where(is_pivot[:, None], basis, 0.0), 0)
        pivot = tl.sum(tl.where(is_pivot, column, 0.0), 0)
        ratios = tl.where(columns > j, column / pivot, 0.0)
        matrix -= ratios[:, None] * row[None, :]
        basis -= ratios[:, None] * of_basis[None, :]
        pivots = tl.where(is_pivot, pivot, pivots)
    return basis / tl.sqrt(pivots)[:, None]


@triton.jit
def _whole(numbers):
    return tl.floor(numbers + 0.5).to(tl.int64)
