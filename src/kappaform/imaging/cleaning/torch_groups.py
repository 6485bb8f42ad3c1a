"""What `groups.Groups` does, on a device of torch: many groups at a time.

Weighted patches are added as integers, whose sums do not depend on their order: the same image
gives the same result, however the device works.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kappaform.gpu import fused_kernels_run_on
from kappaform.imaging.cleaning.groups import Layout, Search, least_variance
from kappaform.imaging.cleaning.kernels import FLAT, LEAST_LEFT, LEAST_TRUST
from kappaform.imaging.cleaning.patchwise import over_pixels
from kappaform.imaging.cleaning.torch_fill import have_holes, sums_of_estimates
from kappaform.imaging.progress import SILENT, Progress

if TYPE_CHECKING:
    from torch import Tensor

_DISTANCE_ENTRIES = 2**28  # that are compared at once
_GROUP_ENTRIES = 2**25  # of the patches of groups that are denoised at once
_SUM_BITS = 62  # of the integers that sums are


def report(progress: Progress, fraction: float, image: Tensor) -> None:
    """Report progress, once the device has done what it was asked for."""
    import torch

    if progress.listener is not None and image.is_cuda:
        torch.cuda.synchronize(image.device)
    progress(fraction)


class TensorGroups:
    """The groups of an image, for tensors like that image."""

    def __init__(self, image: Tensor, search: Search) -> None:
        import torch

        self.layout = Layout.of(tuple(image.shape), search)
        grid = self.layout.grid
        starts = grid.starts(np.arange(grid.n_patches))
        numbers = (starts, self.layout.steps, grid.offsets)
        self.starts, self.steps, self.offsets = (
            torch.tensor(a, device=image.device) for a in numbers
        )
        self.members = self.starts.new_empty((0, 0))

    def find(
        self,
        image: Tensor,
        progress: Progress = SILENT,
        known: Sequence[Tensor] | None = None,
        n_members: int | None = None,
    ) -> None:
        """Find the groups in an image, of so many members or as many as the search allows.

        With the known pixels of each component, groups about patches that know all are left out.
        """
        import torch

        layout, device = self.layout, image.device
        n_members = min(n_members or layout.n_members, layout.n_members)
        padded = _padded(image, layout.context)
        grid = layout.grid
        numbers = np.arange(grid.n_patches)
        starts = torch.tensor(grid.starts(numbers), device=device)
        if known is not None:
            each = [have_holes(its, starts, grid.patch_shape) for its in known]
            wanted = torch.stack(each).any(0)
            starts, numbers = starts[wanted], numbers[wanted.cpu().numpy()]
        self.starts = starts
        corners = np.stack(grid.corners(numbers), 1).astype(np.int32)
        shifts = torch.tensor(layout.shifts.astype(np.int32), device=device)
        found = []
        for some in torch.tensor(corners, device=device).split(_DISTANCE_ENTRIES // len(shifts)):
            distances = _squared_distances(padded, some, shifts, layout.compared)
            distances[:, 0] = -1  # the patch itself, also where many are equal to it
            found.append(distances.topk(n_members, largest=False, sorted=False).indices)
        self.members = torch.cat(found)
        report(progress, 1.0, image)

    def denoised(
        self,
        noisy: Tensor,
        partial: Tensor,
        guide: Tensor,
        covariance: NDArray | None,
        fraction: float,
        progress: Progress = SILENT,
    ) -> tuple[Tensor, Tensor]:
        """An estimate of an image, and the image with this fraction of its noise."""
        import torch

        n, k = len(self.offsets), self.members.shape[1]
        matrix = np.eye(n) if covariance is None else covariance
        least = least_variance(matrix)
        noise = torch.tensor(matrix, dtype=noisy.dtype, device=noisy.device)
        flat = [image.reshape(-1) for image in (noisy, partial, guide)]
        values, weights = torch.zeros((2, 2, noisy.numel()), dtype=torch.int64, device=noisy.device)
        most = k * k * n * 64  # of the weights over a pixel
        largest = max(float(noisy.abs().max()), 1.0) * most
        unit, unit_of_weights = (
            2.0 ** (_SUM_BITS - math.ceil(math.log2(limit))) for limit in (largest, most)
        )
        add_groups = _adder_of_groups(noisy, k, n)
        sums_and_units = (values, weights), (unit, unit_of_weights)
        add_groups(flat, self, noise, fraction, least, *sums_and_units)
        units = unit, unit, unit_of_weights, unit_of_weights
        sums = [
            (each.double() / one).to(noisy.dtype).view(noisy.shape)
            for each, one in zip((*values, *weights), units, strict=True)
        ]
        total, left_over = (over_pixels(each, self.layout.grid.patch_shape) for each in sums[2:])
        report(progress, 1.0, total)
        return sums[0] / total, (sums[1] + left_over * partial) / total

    def filled(
        self,
        guide: Tensor,
        given: Tensor,
        known: Tensor,
        variance: float,
        denoises: bool,
        progress: Progress = SILENT,
    ) -> tuple[Tensor, Tensor]:
        """Sum of the estimates of each pixel from the known ones of its patches, and their number.

        Known pixels have white noise of this variance; they are estimated if `denoises`.
        """
        found = sums_of_estimates(self, guide, given, known, variance, denoises)
        report(progress, 1.0, guide)
        return found


def _adder_of_groups(image: Tensor, n_members: int, n_pixels: int) -> Callable:
    """What adds denoised groups of this size to sums: a kernel, or operations of torch."""
    if image.is_cuda and fused_kernels_run_on(image.device.index):
        from kappaform.imaging.cleaning.triton_groups import add_groups, can_denoise

        if can_denoise(image, n_members, n_pixels):
            return add_groups
    return add_groups_by_torch


def add_groups_by_torch(
    images: Sequence[Tensor],
    groups: TensorGroups,
    noise: Tensor,
    fraction: float,
    least: float,
    sums: tuple[Tensor, Tensor],
    units: tuple[float, float],
) -> None:
    """What `triton_groups.add_groups` does, also where there is no Triton."""
    (values, weights), (unit, unit_of_weights) = sums, units
    size = max(1, _GROUP_ENTRIES // (len(groups.offsets) * groups.members.shape[1]))
    for starts, members in zip(groups.starts.split(size), groups.members.split(size), strict=True):
        places = starts[:, None] + groups.steps[members]
        pixels = places[..., None] + groups.offsets
        ours, given, known = (image[pixels] for image in images)
        estimates, weight, left = _denoised(ours, given, known, noise, fraction, least)
        kept = fraction / left
        weighted = estimates * (weight[..., None] * unit)
        values[0].index_add_(0, pixels.reshape(-1), weighted.round().long().reshape(-1))
        weighted *= 1 - kept
        values[1].index_add_(0, pixels.reshape(-1), weighted.round().long().reshape(-1))
        marks = weight.double() * unit_of_weights
        weights[0].index_add_(0, places.reshape(-1), marks.round().long().reshape(-1))
        marks *= kept[..., 0].double()
        weights[1].index_add_(0, places.reshape(-1), marks.round().long().reshape(-1))


def _denoised(
    noisy: Tensor, given: Tensor, known: Tensor, noise: Tensor, fraction: float, least: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Denoised patches of groups (groups, members, n), their weights, and the noise in `given`."""
    import torch

    n_members, n = known.shape[1:]
    lost = (noisy - given).flatten(1)
    left = (1 - lost.std(1, correction=0)).clamp(min=max(fraction, LEAST_LEFT))[:, None, None]
    known = known - known.mean(1, keepdim=True)
    power = known.square().sum((1, 2), keepdim=True)
    known *= power > FLAT * n * least * left.square()  # what is flat is estimated by its mean
    means = given.mean(1, keepdim=True)
    matrix = known.mT @ known
    largest = matrix.diagonal(dim1=1, dim2=2).amax(1)[:, None, None]
    hidden = n * torch.finfo(known.dtype).eps * largest  # by rounding
    matrix += n * left.square() * noise + hidden * torch.eye(n, device=known.device)
    factor = torch.linalg.cholesky_ex(matrix).L
    basis = torch.linalg.solve_triangular(factor, known.mT, upper=False)
    estimates = means + basis.mT @ (basis @ (given - means))
    trust = (n / hidden[..., 0].clamp(min=n)).clamp(min=LEAST_TRUST)
    return estimates, trust / (1 / n_members + basis.square().sum(1)), left


def _squared_distances(
    image: Tensor, corners: Tensor, shifts: Tensor, sides: tuple[int, ...]
) -> Tensor:
    """What `triton.squared_distances` does, also where there is no Triton."""
    import torch

    if image.is_cuda and fused_kernels_run_on(image.device.index):
        from kappaform.imaging.cleaning.triton import squared_distances

        return squared_distances(image, corners, shifts, sides)
    windows = image
    for axis, side in enumerate(sides):
        windows = windows.unfold(axis, side, 1)
    ours = windows[tuple(corners.T)]
    most = torch.tensor(windows.shape[:3], device=image.device) - 1
    columns = []
    for shift in shifts:
        there = corners + shift
        squares = (windows[tuple(there.clamp(min=0).minimum(most).T)] - ours).square()
        is_outside = ((there < 0) | (there > most)).any(1)
        columns.append(squares.sum((1, 2, 3)).masked_fill(is_outside, math.inf))
    return torch.stack(columns, 1)


def _padded(image: Tensor, context: Sequence[int]) -> Tensor:
    from torch.nn.functional import pad

    ends = [c for along in reversed(context) for c in (along, along)]
    return pad(image[None, None], ends, mode="replicate")[0, 0]
