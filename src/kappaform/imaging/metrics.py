"""PSNR and SSIM: how similar an image is to its reference."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_FEWEST_BITS = 8  # a dark image of 8 bit is still one of 8 bit


def data_range(reference: NDArray) -> float:
    """The range of values that the reference could have.

    For floats it is the range of their values. For integers it is 2^b - 1, with b the fewest bits,
    at least 8, that hold every value: cameras store 10, 12 or 14 bits in files of 16. With negative
    values, one bit is the sign.
    """
    if reference.dtype.kind not in "iu":
        return float(np.ptp(reference))
    low, high = int(reference.min()), int(reference.max())
    n_bits = max(high, -1 - low).bit_length() + (low < 0)
    return float(2 ** max(n_bits, _FEWEST_BITS) - 1)


def psnr(reference: NDArray, image: NDArray) -> float:
    r"""Peak signal-to-noise ratio in decibels; infinite for equal images.

    .. math:: 10 \log_{10} \frac{\text{range}^2}{\text{mean squared error}}
    """
    _check_shapes(reference, image)
    error = float(np.mean((reference.astype(np.float64) - image) ** 2))
    if error == 0:
        return math.inf
    span = data_range(reference)
    return 10 * math.log10(span**2 / error) if span else -math.inf


def ssim(
    reference: NDArray,
    image: NDArray,
    *,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
) -> float:
    """Structural similarity, 1 for equal images; for a stack, the mean over its images.

    The window has 7 pixels per side, or fewer in a smaller image; NaN if fewer than 3 remain.
    `channel_axis` counts from the end (-1) if there is a stack.
    """
    from skimage.metrics import structural_similarity

    _check_shapes(reference, image)
    one, other = (array.astype(np.float64) for array in (reference, image))
    span = data_range(reference) or 1.0
    if stack_axis is None:
        one, other, stack_axis = one[np.newaxis], other[np.newaxis], 0
    pairs = zip(np.moveaxis(one, stack_axis, 0), np.moveaxis(other, stack_axis, 0), strict=True)
    sides = list(np.delete(one.shape, stack_axis))
    if channel_axis is not None:
        del sides[channel_axis]
    window = min(7, min(sides) - 1 + min(sides) % 2)  # odd
    if window < 3:
        return math.nan
    options = {"data_range": span, "channel_axis": channel_axis, "win_size": window}
    return float(np.mean([structural_similarity(*pair, **options) for pair in pairs]))


def _check_shapes(reference: NDArray, image: NDArray) -> None:
    if reference.shape != image.shape:
        raise ValueError(
            f"the reference has shape {reference.shape}, the image {image.shape}: they must be "
            "of the same size."
        )
