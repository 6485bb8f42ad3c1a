"""Kernel that compares patches of an image with those around them, on a GPU."""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that Triton infers.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

_REFERENCES = 4  # that a program compares
_SHIFTS = 512  # with so many patches each: four for a thread, which loads the reference once


def squared_distances(
    image: Tensor, corners: Tensor, shifts: Tensor, sides: tuple[int, ...]
) -> Tensor:
    """Squared distances of patches (rows) to those at every shift (columns).

    They are infinite outside of the image. `corners` has the three indices of the first pixel of
    each patch, `shifts` those of each shift.
    """
    import torch

    n, m = len(corners), len(shifts)
    out = torch.empty((n, m), dtype=image.dtype, device=image.device)
    grid: Any = (triton.cdiv(n, _REFERENCES), triton.cdiv(m, _SHIFTS))
    _distances[grid](
        image.contiguous(), corners, shifts, out, n, m, *image.shape, *sides[:2],
        SIDE_C=sides[2], REFERENCES=_REFERENCES, SHIFTS=_SHIFTS,
    )  # fmt: skip
    return out


@triton.jit
def _distances(
    image, corners, shifts, out, n, m, length_a, length_b, length_c, side_a, side_b,
    SIDE_C: tl.constexpr, REFERENCES: tl.constexpr, SHIFTS: tl.constexpr,
):  # fmt: skip
    refs = tl.program_id(0) * REFERENCES + tl.arange(0, REFERENCES)
    numbers = tl.program_id(1) * SHIFTS + tl.arange(0, SHIFTS)
    is_ref, is_shift = refs < n, numbers < m
    a = tl.load(corners + 3 * refs, is_ref, 0)
    b = tl.load(corners + 3 * refs + 1, is_ref, 0)
    c = tl.load(corners + 3 * refs + 2, is_ref, 0)
    there_a = a[:, None] + tl.load(shifts + 3 * numbers, is_shift, 0)[None, :]
    there_b = b[:, None] + tl.load(shifts + 3 * numbers + 1, is_shift, 0)[None, :]
    there_c = c[:, None] + tl.load(shifts + 3 * numbers + 2, is_shift, 0)[None, :]
    within = (there_a >= 0) & (there_a + side_a <= length_a)
    within &= (there_b >= 0) & (there_b + side_b <= length_b)
    within &= (there_c >= 0) & (there_c + SIDE_C <= length_c)
    # A patch outside is compared as if moved inside: loads without a mask are much faster.
    there_a = tl.minimum(tl.maximum(there_a, 0), length_a - side_a)
    there_b = tl.minimum(tl.maximum(there_b, 0), length_b - side_b)
    there_c = tl.minimum(tl.maximum(there_c, 0), length_c - SIDE_C)
    here = image + (a * length_b + b) * length_c + c
    there = image + (there_a * length_b + there_b) * length_c + there_c
    total = tl.zeros((REFERENCES, SHIFTS), image.dtype.element_ty)
    for i in range(side_a):
        for j in range(side_b):
            step = (i * length_b + j) * length_c
            for k in tl.static_range(SIDE_C):
                difference = tl.load(here + step + k)[:, None] - tl.load(there + step + k)
                total += difference * difference
    total = tl.where(within, total, float("inf"))
    places = refs.to(tl.int64)[:, None] * m + numbers[None, :]
    tl.store(out + places, total, is_ref[:, None] & is_shift[None, :])
