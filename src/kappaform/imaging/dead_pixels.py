"""Dead and hot pixels: far from all their neighbours, by more than noise and texture explain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter, median_filter, minimum_filter

_FAR = 6.0  # standard deviations of the noise: normal noise is next to never so far
_MOST_DEAD = 1e-3  # of the pixels; where more differ from most others, they are rare photons


def dead_pixels(
    image: NDArray, known: NDArray | None = None, channel_axis: int | None = None
) -> NDArray:
    """Which pixels of a plane are beyond the range of their eight neighbours by far.

    That is by more than this range, and by more than six standard deviations of the noise, which is
    estimated from the differences to the median of the neighbours; if most are zero, as where there
    are few photons, from the others. Two dead pixels next to each other hide each other. Pixels
    that are not `known` do not count.
    """
    known = np.ones(image.shape, bool) if known is None else known
    if channel_axis is not None:
        planes = zip(
            np.moveaxis(image, channel_axis, 0), np.moveaxis(known, channel_axis, 0), strict=True
        )
        return np.stack([dead_pixels(*plane) for plane in planes], axis=channel_axis)
    ring = np.ones((3, 3), bool)
    ring[1, 1] = False
    around: dict[str, Any] = {"footprint": ring, "mode": "mirror"}
    values = np.where(known, image, np.median(image[known]) if known.any() else 0.0)
    calm = np.where(known, values, median_filter(values, **around))
    lowest, highest = minimum_filter(calm, **around), maximum_filter(calm, **around)
    differences = np.abs(calm - median_filter(calm, **around))
    noise, others = float(np.median(differences)), differences[differences > 0]
    if noise == 0 and others.size > _MOST_DEAD * differences.size:
        noise = float(np.median(others))
    beyond = np.maximum(calm - highest, lowest - calm)
    return np.asarray(known & (beyond > np.maximum(_FAR * 1.4826 * noise, highest - lowest)))
