"""Salt and pepper: pixels far from all their neighbours, which the denoiser keeps."""

from __future__ import annotations

import math

import numpy as np

from kappaform.errors import warn
from kappaform.imaging.noise.wavelets import Sample

_IMPULSE = 6.0  # deviations from all neighbours: of normal noise, next to never
_LEAST_IMPULSES = 1e-3  # share of the pixels
_DARK = 0.1  # share of pixels with the lowest value, where there are few photons
_LEAST_STEP = (
    0.01  # from pixel to pixel, over the range of values: less is no noise to compare with
)


def warn_of_impulses(samples: list[Sample]) -> None:
    """Say that an image has salt and pepper: no kind of noise that is known here."""
    from scipy.ndimage import maximum_filter, minimum_filter

    n_salt = n_pepper = n_lowest = n_pixels = 0
    for sample in samples:
        for slab in sample.slabs:
            ring = np.ones((3,) * slab.ndim, bool)
            ring[(1,) * slab.ndim] = False
            above = slab - maximum_filter(slab, footprint=ring)
            below = minimum_filter(slab, footprint=ring) - slab
            steps = np.abs(np.diff(slab, axis=-1))
            usual = 1.4826 / math.sqrt(2) * float(np.median(steps)) if steps.size else math.inf
            usual = max(usual, _LEAST_STEP * (sample.highest - sample.lowest))
            far = _IMPULSE * usual
            n_salt += int(np.count_nonzero((slab == sample.highest) & (above > far)))
            n_pepper += int(np.count_nonzero((slab == sample.lowest) & (below > far)))
            n_lowest += int(np.count_nonzero(slab == sample.lowest))
            n_pixels += slab.size
    if not n_pepper and n_lowest > _DARK * n_pixels:  # single photons, or stars
        return
    if n_salt + n_pepper > _LEAST_IMPULSES * n_pixels:
        share = 100 * (n_salt + n_pepper) / n_pixels
        warn(
            f"{share:.2g} % of the pixels are impulses (salt and pepper): this "
            "denoiser keeps them; use a median filter first."
        )
