"""What hard thresholding keeps of the patches of an image: of the signal, and of the noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.cleaning.patchwise import THRESHOLD, Kept
from kappaform.imaging.cleaning.tiles import like

# Added to the energy of the signal, in units of that of the noise: half a percent of sigma may be
# wrong, and noise alone shall count as kept.
_DOUBT = 0.01
_LEAST_KEPT = 0.5  # smaller factors were not tried
_EXAMINED_AT_ONCE = 2_000  # patches: their coefficients stay in the cache


def kept_of(patches: Any, transform: NDArray, covariance: NDArray | None) -> Kept | None:
    r"""What thresholding keeps of mean-free patches in units of their noise; None if not white.

    Thresholding h reduces the signal s of the coefficients z = s + noise by the factor
    :math:`\sum s h(z) / \sum s^2`. In units of the noise, :math:`\sum s^2 \approx \sum (z^2 - 1)`,
    and by Stein's lemma, with the threshold t and n coefficients,
    :math:`\sum s h(z) \approx \sum_{|z| > t} (z^2 - 1) - 2 t \varphi(t) n`
    if coefficients near the threshold are noise.
    """
    if covariance is not None:
        return None
    rows = transform / np.linalg.norm(transform, axis=1, keepdims=True)
    variances = 1 - rows.sum(1) ** 2 / rows.shape[1]  # of the noise of patches without their means
    matrix, noise = (like(part.astype(np.float32), patches) for part in (rows.T, variances))
    whole = signal = number = 0.0
    for first in range(0, len(patches), _EXAMINED_AT_ONCE):
        squares = (patches[first : first + _EXAMINED_AT_ONCE] @ matrix) ** 2
        above, excess = squares > THRESHOLD**2, squares - noise
        whole += float(excess.sum())
        signal += float((excess * above).sum())
        number += float(above.sum())
    n_noisy = len(patches) * float(variances.sum())
    by_chance = n_noisy * math.erfc(THRESHOLD / math.sqrt(2))
    signal -= n_noisy * THRESHOLD * math.sqrt(2 / math.pi) * math.exp(-(THRESHOLD**2) / 2)
    whole, signal = whole + _DOUBT * n_noisy, signal + _DOUBT * n_noisy
    factor = min(max(signal / whole, _LEAST_KEPT), 1.0) if whole > 0 else 1.0
    return Kept(factor, min(by_chance / number, 1.0) if number else 1.0)
