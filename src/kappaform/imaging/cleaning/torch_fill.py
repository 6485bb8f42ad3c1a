"""What the kernel `fill_kernels.fill_groups` does, on a device of torch: many groups at a time.

The patches of a group have a covariance in common, but each has its own holes: its system is a
part of that matrix, or of its inverse, whichever is smaller. Systems of all patches are solved at
once, padded to the largest by rows of the identity.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kappaform.imaging.cleaning.groups import over_pixels

if TYPE_CHECKING:
    from torch import Tensor

_SYSTEM_ENTRIES = 2**27  # of the systems that are solved at once
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
    starts = groups.starts
    if not denoises:  # groups about a patch without missing pixels are left out
        has_holes = torch.cat(
            [~known_[some[:, None] + offsets].all(1) for some in starts.split(2**20)]
        )
        starts, members = starts[has_holes], members[has_holes]
    size = max(1, _SYSTEM_ENTRIES // (k * max(n, (n // 2) ** 2)))
    for some, numbers in zip(starts.split(size), members.split(size), strict=True):
        places = some[:, None] + groups.steps[numbers]
        pixels = places[..., None] + offsets
        estimates = _estimates(guide_[pixels], given_[pixels], known_[pixels], variance, denoises)
        counts = torch.ones_like(pixels, dtype=torch.bool) if denoises else ~known_[pixels]
        whole = (estimates.clamp(-limit, limit)[counts].double() * unit).round().long()
        values.index_add_(0, pixels[counts], whole)
        marks.index_add_(0, places.reshape(-1), torch.ones_like(places).reshape(-1))
    numbers = over_pixels(marks.view(guide.shape), groups.layout.grid.patch_shape)
    if not denoises:
        numbers = numbers.masked_fill(known, 0)
    sums = (values.double() / unit).to(guide.dtype)
    return sums.view(guide.shape), numbers.to(guide.dtype)


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
    if few.any():
        dual[few] = _solved(matrix, few, known, residual)
        estimates = (dual @ matrix).masked_fill_(known, 0)
    if many.any():
        inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(matrix).L)
        estimates[many] = _solved(inverse, many, ~known, -(residual @ inverse))
        if denoises:
            duals = ((residual + estimates) @ inverse).masked_fill_(~known, 0)
            dual = torch.where(many[..., None], duals, dual)
    estimates += mean
    return torch.where(known, given - variance * dual, estimates) if denoises else estimates


def _solved(matrices: Tensor, which: Tensor, unknown: Tensor, right: Tensor) -> Tensor:
    """Solutions of the systems of some patches; zero at pixels that are not unknown.

    A system has the rows and columns of the unknown pixels of a patch.
    """
    import torch

    group = which.nonzero()[:, 0]
    unknown, right = unknown[which], right[which]
    n, size = unknown.shape[1], max(1, int(unknown.sum(1).max()))
    order = unknown.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :size]
    there = unknown.gather(1, order)
    pairs = (group[:, None, None] * n + order[:, :, None]) * n + order[:, None, :]
    system = matrices.reshape(-1)[pairs]
    system.masked_fill_(~(there[:, :, None] & there[:, None, :]), 0)
    system.diagonal(dim1=1, dim2=2).masked_fill_(~there, 1)
    vector = right.gather(1, order).masked_fill_(~there, 0)
    factor = torch.linalg.cholesky_ex(system).L
    found = torch.cholesky_solve(vector[..., None], factor)[..., 0]
    return torch.zeros_like(right).scatter_(1, order, found)
