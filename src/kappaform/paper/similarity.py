"""Structural similarity as the paper measures it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_SIDE = 256  # of the size at which pictures are compared, about


def downsampled_ssim(reference: NDArray, image: NDArray) -> float:
    """Mean SSIM of pictures of grey levels 0 to 255, 1 for equal ones, after downsampling.

    Both are averaged over f by f pixels, f = max(1, round(shorter side / 256)), and every f-th mean
    is kept. Then the Gaussian window of 11 by 11 pixels and deviation 1.5 moves over the places
    where it fits, with the constants (0.01, 0.03).
    """
    from skimage.metrics import structural_similarity

    if reference.shape != image.shape or min(reference.shape) < 11:
        raise ValueError(
            f"the reference has shape {reference.shape}, the picture {image.shape}: they must be "
            "of the same size, of at least 11 pixels a side."
        )
    factor = max(1, math.floor(min(reference.shape) / _SIDE + 0.5))
    one, other = (_downsampled(array.astype(np.float64), factor) for array in (reference, image))
    return float(
        structural_similarity(
            one,
            other,
            data_range=255.0,
            gaussian_weights=True,  # sigma = 1.5 makes the window 11 pixels wide
            sigma=1.5,
            use_sample_covariance=False,
        )
    )


def _downsampled(values: NDArray, factor: int) -> NDArray:
    from scipy.ndimage import uniform_filter

    if factor == 1:
        return values
    # The middle of an even window is the earlier of its two middle pixels; SciPy takes the later.
    origin = -1 if factor % 2 == 0 else 0
    means = uniform_filter(values, factor, mode="reflect", origin=origin)
    return means[::factor, ::factor]
