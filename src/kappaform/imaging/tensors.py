"""Tensors of torch: their entries on the host, and pixels on a device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import library_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def as_array(values: Any, name: str) -> Any:
    """Array of the entries of a tensor; anything else as it is."""
    if library_of(values) != "torch":
        return values
    import torch

    from kappaform.engines.torch import check_tensor

    check_tensor(values, name)
    values = values.detach()
    return to_host(values.float() if values.dtype == torch.bfloat16 else values)


def to_host(tensor: Tensor) -> NDArray:
    """The entries of a tensor, which leave its device here and nowhere else."""
    array: NDArray = tensor.cpu().numpy()
    return array


def to_device(array: NDArray, device: Any) -> Tensor:
    """A tensor of the pixels of an array, which arrive on a device here and nowhere else."""
    import torch

    return torch.as_tensor(array, device=device)


def as_given(image: NDArray, given: Tensor) -> Tensor:
    """Tensor of an image on the device of the given one, and of its dtype where that is a float."""
    import torch

    tensor = to_device(np.ascontiguousarray(image), given.device)
    if not given.dtype.is_floating_point:
        return tensor
    info = torch.finfo(given.dtype)
    return tensor.clamp(info.min, info.max).to(given.dtype)


def device_named(name: str) -> torch.device:
    """Device of torch, from an argument of the user."""
    if not re.fullmatch(r"(cpu|cuda)(:\d+)?", name):
        raise ValueError(
            f"device {name!r} is unknown: choose 'cpu', 'cuda' or, by its number, 'cuda:1'."
        )
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"device {name!r} needs the package torch: pip install 'kappaform[torch]'"
        ) from error
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r}: torch finds no CUDA GPU here; choose 'cpu'.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r}: torch finds only {torch.cuda.device_count()} GPU(s).")
    return device
