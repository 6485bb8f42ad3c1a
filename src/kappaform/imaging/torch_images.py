"""Images that are tensors: on a GPU they are learned from and cleaned there.

All else, the axes, the colours and the noise, is looked after on the host, as for arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import library_of
from kappaform.engines.torch_engine import check_tensor
from kappaform.imaging.adaptive import NOISE, THRESHOLD, learn_rounds, training_positions
from kappaform.imaging.slabs import precision_for
from kappaform.imaging.task import Task
from kappaform.imaging.torch_sweep import patches_at, shrinking_cleaner, sweep, threshold_cleaner
from kappaform.learning import LearnResult

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def on_host(values: Any, name: str) -> Any:
    """Array of the entries of a tensor; anything else as it is."""
    import torch

    if library_of(values) != "torch":
        return values
    check_tensor(values, name)
    host = values.detach().cpu()
    return (host.float() if host.dtype == torch.bfloat16 else host).numpy()


def as_given(image: NDArray, given: Tensor) -> Tensor:
    """Tensor of an image on the device of the given one, and of its dtype where that is a float."""
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(image)).to(given.device)
    return tensor.to(given.dtype) if given.dtype.is_floating_point else tensor


def device_named(name: str) -> torch.device:
    """Device of torch, from an argument of the user."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"device {name!r} needs the package torch: pip install 'kappaform[torch]'"
        ) from error
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"device {name!r} is no device of torch: choose 'cuda' or 'cpu'."
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r}: torch finds no CUDA GPU here; choose 'cpu'.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r}: torch finds only {torch.cuda.device_count()} GPU(s).")
    return device


def denoise_on_device(
    image: NDArray, sigma: float, out: NDArray, counts: NDArray, task: Task
) -> tuple[NDArray, list[LearnResult]]:
    """Learn from an image and clean it on the device of the task."""
    import torch

    floats = image if image.dtype.kind == "f" else image.astype(np.float64)
    values = torch.as_tensor(np.ascontiguousarray(floats), device=task.device)
    lowest, highest = (float(value) for value in values.aminmax())
    history: list[LearnResult] = []
    transform = task.transform
    if transform is None:
        positions = training_positions(image.shape, task.patch_shape, task.rng)
        drawn = (patches_at(values, task.patch_shape, some) for some in positions)
        history = learn_rounds(drawn, sigma, task.patch_shape, task.method, task.callback)
        transform = history[-1].transform
    exact = values.double()
    centre = float(exact.mean())
    single = precision_for(lowest, highest, centre, sigma) == np.float32
    noisy = ((exact - centre) / sigma).to(torch.float32 if single else torch.float64)
    low, high = task.value_range
    bounds = (low - centre) / sigma, (high - centre) / sigma
    cleaned, numbers = clean_image(noisy, task.patch_shape, transform, bounds)
    torch.from_numpy(out).copy_((cleaned.double() * sigma + centre).clamp_(low, high))
    torch.from_numpy(counts).copy_(numbers)
    return transform, history


def clean_image(
    image: Tensor, patch_shape: tuple[int, ...], transform: NDArray, bounds: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """What `adaptive.clean_image` does, on the device of the image."""
    first = threshold_cleaner(transform, THRESHOLD, image)
    second = shrinking_cleaner(transform, NOISE, image)
    guide, counts = sweep(image, patch_shape, first, bounds=bounds)
    cleaned, _ = sweep(image, patch_shape, second, guide=guide, bounds=bounds)
    return cleaned, counts
