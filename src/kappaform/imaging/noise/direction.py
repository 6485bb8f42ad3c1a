r"""Whether what is taken for noise has a direction: fur, grass and fabric have one, noise has none.

With the gradients :math:`(g_x, g_y)` of the pixels in a window,

.. math:: d = 2 |\sum g_x g_y| / \sum (g_x^2 + g_y^2)

is 0 but for chance if no direction is preferred, and 1 if all gradients are along one diagonal. It
is one of the two components of the coherence of Kass and Witkin (Analyzing oriented patterns,
1987). The other one, of the axes, is left out: cosines that a JPEG has kept, and the lines of a
demosaicing, are along the axes.

Windows that show about as much energy as the noise alone would are compared with normal noise of
the same spectrum, from random numbers: by their lower quartiles, because an edge may cross some of
the windows of a photograph, while a texture is in all of them. What is smooth, as edges out of
focus, is subtracted before.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from kappaform.checks import Array

_WIDTH = 0.7  # pixels, of the Gaussian whose derivatives are the gradients
_SMOOTH = 3.0  # of that behind which the image is subtracted before
_SIDE = 16  # of the windows: two blocks of a JPEG
_STEP = 8  # from window to window
_MOST_CLIPPED = 0.05  # of the pixels of a window: those without any may be unlike the others
_NEAR = math.log(2)  # in log energy: about that of the noise alone
_LEAST_WINDOWS = 16  # whose quartile has a standard error of about 40 %
_LEAST_SHARE = 0.01  # of the windows, the nearest ones, if fewer are that near
_SIMULATED = 256  # pixels of a side


def directedness(slabs: list[tuple[Array, Array]], spectrum: Callable[[Array], Array]) -> float:
    """How much more direction there is than in noise, where there is as much energy as it has.

    Each slab is brightness and where it is clipped; windows with many such pixels do not count. The
    spectrum is the variance of an orthonormal cosine over its radial frequency (1: one half of the
    sampling rate along an axis). 1 if fewer than 16 windows are left.
    """
    seen = [_windows(slab, clipped) for slab, clipped in slabs if min(slab.shape) > _SIDE]
    energies, directions = np.concatenate([np.empty((2, 0)), *seen], axis=1)
    if len(energies) < _LEAST_WINDOWS:
        return 1.0
    noise_energies, of_noise = _windows(_simulated(spectrum))
    distances = np.abs(np.log(energies / noise_energies.mean()))
    limit = max(_NEAR, float(np.quantile(distances, _LEAST_SHARE)))
    quartiles = [np.quantile(each, 0.25) for each in (directions[distances <= limit], of_noise)]
    return float(quartiles[0] / quartiles[1])


def _windows(slab: Array, clipped: Array | None = None) -> Array:
    """Energies and directions (2, windows) of the gradients in windows that are not flat."""
    from scipy.ndimage import gaussian_filter, uniform_filter

    def means(values: Array) -> Array:
        inner = slice(_SIDE // 2, 1 - _SIDE // 2, _STEP)
        found: Array = uniform_filter(values, _SIDE)[inner, inner].ravel()
        return found

    fine = slab - gaussian_filter(slab, _SMOOTH)
    down, across = (gaussian_filter(fine, _WIDTH, order=order) for order in ((1, 0), (0, 1)))
    energies = means(down**2 + across**2)
    kept = energies > 1e-9 * max(float(energies.max()), 1e-300)  # rounding of running sums
    if clipped is not None:
        kept &= means(clipped.astype(np.float64)) < _MOST_CLIPPED
    return np.stack([energies[kept], 2 * np.abs(means(down * across)[kept]) / energies[kept]])


def _simulated(spectrum: Callable[[Array], Array]) -> Array:
    """Normal noise with a spectrum; periodic."""
    frequencies = 2 * np.fft.fftfreq(_SIMULATED)
    radial = np.hypot(frequencies[:, np.newaxis], frequencies)
    white = np.random.default_rng(0).standard_normal(radial.shape)
    filtered: Array = np.fft.ifft2(np.fft.fft2(white) * np.sqrt(spectrum(radial))).real
    return filtered
