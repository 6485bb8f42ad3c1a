"""Codes of torch tensors: the largest coefficients, and refitted ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kappaform.checks import Float64Array


def keep_largest(coefs: Tensor, sparsity: Tensor, most: int) -> Tensor:
    """Codes: the largest magnitudes of each row, of equal ones the first; the others zero.

    `sparsity` has one entry, or one for each row; `most` is the largest.
    """
    sizes, wanted = coefs.abs(), sparsity[:, None]
    if most == 0:
        return torch.zeros_like(coefs)
    if len(sparsity) < len(coefs):  # a block of one row may have a sparsity of its own
        least = sizes.kthvalue(sizes.shape[1] - most + 1, dim=1, keepdim=True).values
    else:
        least = sizes.topk(most, dim=1).values.gather(1, (wanted - 1).clamp(min=0).long())
    kept = sizes >= least
    if bool((kept.sum(1, keepdim=True, dtype=torch.int32) != wanted).any()):
        above, ties = sizes > least, sizes == least
        missing = wanted - above.sum(1, keepdim=True)
        kept = above | (ties & (ties.cumsum(1, dtype=torch.int32) <= missing))
    return torch.where(kept, coefs, 0)


def refitted(codes: Tensor, products: Tensor, gram: Tensor, sparsity: Tensor, most: int) -> Tensor:
    """Refitted codes, from those of the largest coefficients: as `refit_kernels` do it.

    `products` are those of each signal with the columns of a `Refit`, `gram` those of the columns
    with each other.
    """
    if most == 0:
        return codes
    first, explained = least_squares(codes, products, gram, most)
    again = first + products - first @ gram.to(codes.dtype)
    others = keep_largest(again, sparsity, most)
    second, explained_by_others = least_squares(others, products, gram, most)
    return second.where((explained_by_others > explained)[:, None], first)


def least_squares(
    codes: Tensor, products: Tensor, gram: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Codes with the same nonzero entries and the values of least squares; what they explain."""
    chosen = codes.abs().topk(most, dim=1).indices
    kept = codes.gather(1, chosen) != 0
    right = torch.where(kept, products.gather(1, chosen), 0).double()
    system = gram[chosen[:, :, None], chosen[:, None, :]]
    system = torch.where(kept[:, :, None] & kept[:, None, :], system, 0)
    values, least = right, most * float(np.finfo(np.float64).eps)
    for k in range(most):  # elimination, in all rows at once
        pivot = system[:, k, k]
        inverse = torch.where(pivot > least, 1 / pivot, 0)[:, None]
        factor = system[:, :, k] * inverse
        factor[:, k] = 1 - inverse[:, 0]
        system = torch.addcmul(system, factor[:, :, None], system[:, k, None, :], value=-1)
        values = torch.addcmul(values, factor, values[:, k, None], value=-1)
    explained = (values * right).sum(1)
    return torch.zeros_like(codes).scatter_(1, chosen, values.to(codes.dtype)), explained


class Won(NamedTuple):
    """For each row the transform of a union that won it, its code, and what the code discards."""

    numbers: Tensor
    codes: Tensor
    discarded: Tensor


def competition(
    signals: Tensor, matrices: Sequence[Tensor], weights: Float64Array, sparsity: Tensor, most: int
) -> Won:
    """Assign rows to the transforms of a union, whose transposed matrices and weights are given."""
    best: tuple[Tensor, ...] = ()
    for number, matrix in enumerate(matrices):
        of_discarded, of_energy, constant = weights[number].tolist()
        coefs = signals @ matrix
        codes = keep_largest(coefs, sparsity, most)
        discarded = (coefs - codes).square().sum(1)
        score = of_discarded * discarded.double() + constant
        score += of_energy * coefs.square().sum(1).double()
        numbers = torch.full_like(score, number, dtype=torch.int64)
        new = score, numbers, discarded, codes
        wins = score < best[0] if best else torch.ones_like(score, dtype=torch.bool)
        masks = wins, wins, wins, wins[:, None]
        best = tuple(map(torch.where, masks, new, best or new))
    _, numbers, discarded, codes = best
    return Won(numbers, codes, discarded)
