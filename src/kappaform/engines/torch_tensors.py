"""Tensors of signals: what is accepted of them, their scale, and their codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kappaform.arrays import check_rows, not_finite
from kappaform.engines.blocks import split_rows

if TYPE_CHECKING:
    from torch import Tensor

# Bytes of the coefficients that are in memory at once, a seventh of all that then is: on a GPU
# enough to keep it busy, on a CPU what stays in its cache.
_CHUNK_BYTES = {"cpu": 2**20, "cuda": 2**25}


def chunk_rows(signals: Tensor) -> int:
    """Rows to work on at a time."""
    row = max(4, signals.dtype.itemsize) * signals.shape[1]
    return max(1, _CHUNK_BYTES[signals.device.type] // row)


def check_tensor(values: Tensor, name: str) -> None:
    """Refuse tensors without entries of their own, or out of reach."""
    import torch

    if values.layout != torch.strided:
        raise TypeError(f"{name} is sparse: pass a dense tensor, {name}.to_dense().")
    if values.device.type not in ("cpu", "cuda"):
        raise TypeError(
            f"{name} is on the device {str(values.device)!r}: pass a tensor on the CPU or on a "
            "CUDA GPU."
        )


def as_signal_tensor(signals: Tensor, name: str) -> Tensor:
    """Check all of a tensor that can be seen without reading it; without its gradient."""
    check_tensor(signals, name)
    if not signals.dtype.is_floating_point or signals.dtype.itemsize < 2:
        raise TypeError(
            f"{name} has dtype {signals.dtype}: pass float64, float32, float16 or bfloat16, for "
            f"instance {name}.float()."
        )
    check_rows(signals.shape, name)
    return signals.detach()


def peak_of(signals: Tensor, name: str) -> float:
    """Largest magnitude. Refuses signals that are not finite."""
    low, high = (float(value) for value in signals.aminmax())
    if np.isfinite(low) and np.isfinite(high):
        return max(-low, high)
    for rows in split_rows(0, len(signals), chunk_rows(signals)):
        good = signals[rows].isfinite().all(1)
        if not good.all():
            raise ValueError(not_finite(name, rows.start + int(good.int().argmin())))
    raise AssertionError("unreachable: the extremes are entries")


def keep_largest(coefs: Tensor, sparsity: Tensor, most: int) -> Tensor:
    """Codes: the largest magnitudes of each row, of equal ones the first; the others zero.

    `sparsity` has one entry, or one for each row; `most` is the largest.
    """
    import torch

    sizes, wanted = coefs.abs(), sparsity[:, None]
    if most == 0:
        return torch.zeros_like(coefs)
    if len(sparsity) == 1:
        least = sizes.kthvalue(sizes.shape[1] - most + 1, dim=1, keepdim=True).values
    else:
        least = sizes.topk(most, dim=1).values.gather(1, (wanted - 1).clamp(min=0).long())
    kept = sizes >= least
    if bool((kept.sum(1, keepdim=True, dtype=torch.int32) != wanted).any()):
        above, ties = sizes > least, sizes == least
        missing = wanted - above.sum(1, keepdim=True)
        kept = above | (ties & (ties.cumsum(1, dtype=torch.int32) <= missing))
    return torch.where(kept, coefs, 0)


def allows_tf32() -> bool:
    """Whether torch may round the factors of a float32 product on a GPU to 10 bits."""
    import torch

    matmul: Any = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)  # where torch has it, the older one warns
    return bool(matmul.allow_tf32 if precision is None else precision == "tf32")
