"""Kernels that denoise groups of patches and add them to images of sums, on a GPU.

A program has one group: its pixels never are in memory as patches. Triangular factors are left to
torch, between the two kernels, for many groups at a time.
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
_MATRIX_ENTRIES = 2**27  # of the groups that are denoised at once


def can_denoise(image: Tensor, n_members: int, n_pixels: int) -> bool:
    """Whether there are kernels for images like this one, and for groups of this size."""
    import torch

    is_small = max(n_members, n_pixels) <= _MOST and image.numel() < 2**31
    return is_small and image.dtype == torch.float32


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

    k, n = groups.members.shape[1], len(groups.offsets)
    images = [image.contiguous() for image in images]
    identity = torch.eye(n, dtype=noise.dtype, device=noise.device)
    rounding = n * torch.finfo(noise.dtype).eps
    sizes = {"MEMBERS": _padded(k), "PIXELS": _padded(n)}
    sizes["num_warps"] = _WARPS
    size = max(1, _MATRIX_ENTRIES // n**2)
    for starts, members in zip(groups.starts.split(size), groups.members.split(size), strict=True):
        grid, where = (len(starts),), (starts, members, groups.steps, groups.offsets)
        matrices = noise.new_empty((len(starts), n, n))
        traits = noise.new_empty((len(starts), 3))
        with torch.cuda.device_of(noise):
            _grams[grid](
                *images, noise.contiguous(), *where, matrices, traits, n, k,
                max(fraction, LEAST_LEFT), FLAT * n * least, rounding, **sizes,
            )  # fmt: skip
            factors = torch.linalg.cholesky_ex(matrices).L
            inverses = torch.linalg.solve_triangular(factors, identity, upper=False).contiguous()
            _add_estimates[grid](
                *images[1:], *where, inverses, traits, *sums[0], *sums[1], n, k,
                fraction, LEAST_TRUST, *units, **sizes,
            )  # fmt: skip


def _padded(length: int) -> int:
    return max(16, triton.next_power_of_2(length))


@triton.jit(do_not_specialize=["n", "k"])
def _grams(
    noisy, partial, guide, noise, starts, members, steps, offsets, matrices, traits, n, k,
    least_left, flat, rounding, MEMBERS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Gram matrices of centred groups of the guide, plus their noise.

    Traits of a group: what is left of its noise, whether its patches count, and what rounding
    hides.
    """
    group = tl.program_id(0).to(tl.int64)
    pixels, inside, _ = _pixels(group, starts, members, steps, offsets, n, k, MEMBERS, PIXELS)
    lost = tl.load(noisy + pixels, inside, 0.0) - tl.load(partial + pixels, inside, 0.0)
    lost = tl.where(inside, lost - tl.sum(lost) / (n * k), 0.0)
    deviation = tl.sqrt(tl.sum(lost * lost) / (n * k))
    left = tl.maximum(1 - deviation, least_left)
    known = tl.load(guide + pixels, inside, 0.0)
    known = tl.where(inside, known - (tl.sum(known, 0) / k)[None, :], 0.0)
    power = tl.sum(known * known)
    counts = tl.where(power > flat * left * left, 1.0, 0.0)  # else the mean is the estimate
    known *= counts
    matrix = tl.dot(tl.trans(known), known, input_precision="tf32x3")
    columns = tl.arange(0, PIXELS)
    on_diagonal = columns[:, None] == columns[None, :]
    hidden = rounding * tl.max(tl.where(on_diagonal, matrix, 0.0))
    square = columns[:, None] * n + columns[None, :]
    are_pixels = (columns < n)[:, None] & (columns < n)[None, :]
    matrix += n * left * left * tl.load(noise + square, are_pixels, 0.0)
    matrix += tl.where(on_diagonal, hidden, 0.0)
    tl.store(matrices + group * n * n + square, matrix, are_pixels)
    tl.store(traits + 3 * group, left)
    tl.store(traits + 3 * group + 1, counts)
    tl.store(traits + 3 * group + 2, hidden)


@triton.jit(do_not_specialize=["n", "k"])
def _add_estimates(
    partial, guide, starts, members, steps, offsets, inverses, traits,
    values, less_values, weights, less_weights, n, k,
    fraction, least_trust, unit, unit_of_weights, MEMBERS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Add estimates and their weights to the sums; `inverses` are of the triangular factors."""
    group = tl.program_id(0).to(tl.int64)
    pixels, inside, places = _pixels(group, starts, members, steps, offsets, n, k, MEMBERS, PIXELS)
    left, counts = tl.load(traits + 3 * group), tl.load(traits + 3 * group + 1)
    hidden = tl.load(traits + 3 * group + 2)
    columns = tl.arange(0, PIXELS)
    transposed = columns[None, :] * n + columns[:, None]
    are_pixels = (columns < n)[:, None] & (columns < n)[None, :]
    inverse = tl.load(inverses + group * n * n + transposed, are_pixels, 0.0)
    known = tl.load(guide + pixels, inside, 0.0)
    known = tl.where(inside, (known - (tl.sum(known, 0) / k)[None, :]) * counts, 0.0)
    basis = tl.dot(known, inverse, input_precision="tf32x3")
    given = tl.load(partial + pixels, inside, 0.0)
    mean = (tl.sum(given, 0) / k)[None, :]
    given = tl.where(inside, given - mean, 0.0)
    product = tl.dot(tl.trans(basis), given, input_precision="tf32x3")
    estimates = mean + tl.dot(basis, product, input_precision="tf32x3")

    trust = tl.maximum(n / tl.maximum(hidden, n), least_trust)
    weight = trust / (1 / k + tl.sum(basis * basis, 1))
    kept = fraction / left
    weighted = estimates * (weight * unit)[:, None]
    tl.atomic_add(values + pixels, _whole(weighted), inside, sem="relaxed")
    tl.atomic_add(less_values + pixels, _whole(weighted * (1 - kept)), inside, sem="relaxed")
    is_member = tl.arange(0, MEMBERS) < k
    marks = weight.to(tl.float64) * unit_of_weights
    tl.atomic_add(weights + places, _whole(marks), is_member, sem="relaxed")
    tl.atomic_add(less_weights + places, _whole(marks * kept), is_member, sem="relaxed")


@triton.jit
def _pixels(
    group, starts, members, steps, offsets, n, k, MEMBERS: tl.constexpr, PIXELS: tl.constexpr
):
    """Numbers of the pixels of a group, which of them there are, and the first of every member."""
    rows, columns = tl.arange(0, MEMBERS), tl.arange(0, PIXELS)
    is_member, is_pixel = rows < k, columns < n
    numbers = tl.load(members + group * k + rows, is_member, 0)
    places = (tl.load(starts + group) + tl.load(steps + numbers, is_member, 0)).to(tl.int32)
    within = tl.load(offsets + columns, is_pixel, 0).to(tl.int32)
    return places[:, None] + within[None, :], is_member[:, None] & is_pixel[None, :], places


@triton.jit
def _whole(numbers):
    return tl.floor(numbers + 0.5).to(tl.int64)
