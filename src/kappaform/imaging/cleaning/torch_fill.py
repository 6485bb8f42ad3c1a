"""What the kernel `fill_kernels.fill_groups` does, on a device of torch: many groups at a time.

The patches of a group have a covariance in common, but each has its own holes: its system is a
part of that matrix, or of its inverse, whichever is smaller. Systems of all patches are solved at
once, padded to the largest by rows of the identity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kappaform.imaging.cleaning.patchwise import over_pixels

if TYPE_CHECKING:
    from torch import Tensor

_SYSTEM_ENTRIES = 2**28  # of the systems that are solved at once
_STEP = 4  # systems are padded to a multiple of it
_SUM_BITS = 62  # of the integers that sums are
_FAR = 16.0  # over the largest value: estimates are clipped there, so that sums fit


def sums_of_estimates(
    groups: Any, guide: Tensor, given: Tensor, known: Tensor, variance: float, denoises: bool
) -> tuple[Tensor, Tensor]:
    """Sum of the estimates of each pixel, and their number, for `TensorGroups`."""
    import torch

    offsets, members = groups.offsets, groups.members
    n, k = len(offsets), members.shape[1]
    guide_, known_ = guide.reshape(-1), known.reshape(-1)
    given_ = given.reshape(-1).masked_fill(~known_, 0)  # what is there may be NaN
    limit = _FAR * max(float(guide.abs().max()), float(given_.abs().max()), 1.0)
    most = limit * n * len(groups.steps)  # patches that begin at a pixel are in so many groups
    unit = 2.0 ** (_SUM_BITS - math.ceil(math.log2(most)))
    values, marks = torch.zeros((2, guide.numel()), dtype=torch.int64, device=guide.device)
    patch_shape = groups.layout.grid.patch_shape
    lacking = have_holes(known, groups.starts, patch_shape)
    starts, members = groups.starts[lacking], members[lacking]  # the others are left out
    size = max(1, _SYSTEM_ENTRIES // (k * max(n, (n // 2) ** 2)))
    for some, numbers in zip(starts.split(size), members.split(size), strict=True):
        places = some[:, None] + groups.steps[numbers]
        pixels = places[..., None] + offsets
        is_known = known_[pixels]
        estimates = _estimates(guide_[pixels], given_[pixels], is_known, variance, denoises)
        counts = torch.ones_like(is_known) if denoises else ~is_known
        whole = (estimates.clamp(-limit, limit)[counts].double() * unit).round().long()
        values.index_add_(0, pixels[counts], whole)
        marks.index_add_(0, places.reshape(-1), torch.ones_like(places).reshape(-1))
    numbers = over_pixels(marks.view(guide.shape), patch_shape)
    if not denoises:
        numbers = numbers.masked_fill(known, 0)
    sums = (values.double() / unit).to(guide.dtype)
    return sums.view(guide.shape), numbers.to(guide.dtype)


def have_holes(known: Tensor, starts: Tensor, patch_shape: Sequence[int]) -> Tensor:
    """Which of the patches that begin at some pixels lack a known one."""
    n_missing = over_pixels((~known).int().flip(0, 1, 2), patch_shape).flip(0, 1, 2)
    return n_missing.reshape(-1)[starts] > 0


def _estimates(
    guides: Tensor, given: Tensor, known: Tensor, variance: float, denoises: bool
) -> Tensor:
    """Patches of groups (groups, members, n) as conditional means given their known pixels.

    Without `denoises`, known pixels are of no meaning.
    """
    import torch

    k, n = guides.shape[1:]
    mean = guides.mean(1, keepdim=True)
    centred = guides - mean
    matrix = centred.mT @ centred
    largest = matrix.diagonal(dim1=1, dim2=2).amax(1)[:, None, None]
    rounding = n * torch.finfo(guides.dtype).eps * largest
    matrix = (matrix + rounding * torch.eye(n, dtype=guides.dtype, device=guides.device)) / k
    matrix.diagonal(dim1=1, dim2=2).add_(variance)
    residual = (given - mean).masked_fill_(~known, 0)
    n_known = known.sum(2)
    few, many = 2 * n_known <= n, (2 * n_known > n) & ((n_known < n) | denoises)
    estimates, dual = torch.zeros_like(residual), torch.zeros_like(residual)
    if many.any():
        inverse = _inverted(matrix)
        estimates[many], sound = _solved(inverse, many, ~known, -(residual @ inverse))
        few[many] = ~sound  # rounding has spoiled the inverse
        many = many & ~few
        if denoises:
            dual = ((residual + estimates) @ inverse).masked_fill_(~known | ~many[..., None], 0)
    if few.any():
        duals, sound = _solved(matrix, few, known, residual)
        dual[few] = duals.masked_fill_(~sound[:, None], 0)  # else the mean of the group
        from_known = (dual @ matrix).masked_fill_(known, 0)
        estimates = torch.where(few[..., None], from_known, estimates)
    estimates += mean
    return torch.where(known, given - variance * dual, estimates) if denoises else estimates


def _solved(
    matrices: Tensor, which: Tensor, unknown: Tensor, right: Tensor
) -> tuple[Tensor, Tensor]:
    """Solutions of the systems of some patches, and which systems are positive definite.

    They are zero at pixels that are not unknown, and finite.

    A system has the rows and columns of the unknown pixels of a patch. Those of about the same size
    are solved together.
    """
    import torch

    group = which.nonzero()[:, 0]
    unknown, right = unknown[which], right[which]
    n, sizes = unknown.shape[1], unknown.sum(1)
    order = unknown.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    found, sound = torch.zeros_like(right), torch.ones_like(sizes, dtype=torch.bool)
    for size in range(_STEP, n + _STEP, _STEP):
        some = ((sizes > size - _STEP) & (sizes <= size)).nonzero()[:, 0]
        if len(some) == 0:
            continue
        pixels = order[some, :size].T.contiguous()
        there = torch.arange(pixels.shape[0], device=sizes.device)[:, None] < sizes[some]
        pairs = (group[some] * n + pixels[:, None]) * n + pixels
        system = matrices.reshape(-1)[pairs]
        system.masked_fill_(~(there[:, None] & there), 0)
        system.diagonal().masked_fill_(~there.T, 1)
        vector = right[some, pixels].masked_fill_(~there, 0)
        found[some, pixels], sound[some] = _eliminated(system, vector)
    return found, sound


def _inverted(matrices: Tensor) -> Tensor:
    """Inverses of positive definite matrices (number, n, n): Gauss and Jordan, all at once."""
    import torch

    inverse = matrices.permute(1, 2, 0).clone(memory_format=torch.contiguous_format)  # never a view
    for j in range(len(inverse)):
        scale = 1 / inverse[j, j]
        row, column = inverse[j] * scale, inverse[:, j].clone()
        inverse.addcmul_(column[:, None], row, value=-1)
        inverse[j], inverse[:, j] = row, -column * scale
        inverse[j, j] = scale
    return inverse.permute(2, 0, 1).contiguous()


def _eliminated(system: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    """Solve positive definite systems (size, size, number) in place, all at once.

    Also returns which are positive definite; the solutions of the others are zero.

    A step of the elimination is one operation on all systems, bound by memory only; factorisations
    of many small matrices by the libraries behind torch may be far slower.
    """
    size = len(vector)
    for j in range(size):
        rest = slice(j + 1, None)
        ratios = system[rest, j] / system[j, j]
        system[rest, rest].addcmul_(ratios[:, None], system[j, rest], value=-1)
        vector[rest].addcmul_(ratios, vector[j], value=-1)
    for j in reversed(range(size)):
        vector[j] -= (system[j, j + 1 :] * vector[j + 1 :]).sum(0)
        vector[j] /= system[j, j]
    sound = (system.diagonal() > 0).all(1)
    return vector.masked_fill_(~sound, 0), sound
