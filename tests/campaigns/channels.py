"""A campaign about images of many channels."""

from __future__ import annotations

import numpy as np
from campaigns.common import MOST_SECONDS, Facts, bounded
from scipy.ndimage import uniform_filter
from skimage.data import camera

import kappaform as kf

SECONDS_OF_A_CHANNEL = 2.0  # to denoise it, beyond those of any image


def many_channels(rng: np.random.Generator, facts: Facts) -> None:
    """Up to a hundred channels are estimated and denoised in bounded time and memory."""
    facts["n_channels"] = n_channels = int(np.exp(rng.uniform(0, np.log(100.5))))
    facts["side"] = side = int(rng.integers(32, 97))
    facts["sigma"] = sigma = float(rng.uniform(2, 40))
    facts["width"] = width = int(rng.integers(1, 4))  # of a blur that makes neighbours alike
    facts["kind"] = kind = [None, "correlated"][rng.integers(2)]
    clean = _spectral(rng, side, n_channels)
    noise = uniform_filter(rng.normal(0, sigma * width, clean.shape), (width, width, 1))
    bounded(
        lambda: kf.estimate_noise(clean + noise, kind=kind, channel_axis=-1),
        ValueError,  # too small, or flat
    )
    noisy = kf.add_noise(clean, sigma, rng=rng)
    denoised = bounded(
        lambda: kf.denoise(noisy, sigma, channel_axis=-1, quality="fast", patch_size=6),
        seconds=MOST_SECONDS + SECONDS_OF_A_CHANNEL * n_channels,
    )
    assert denoised.shape == clean.shape
    assert np.mean((denoised - clean) ** 2) < np.mean((noisy - clean) ** 2)


def _spectral(rng: np.random.Generator, side: int, n_channels: int) -> np.ndarray:
    """Three materials, each with a smooth spectrum of its own."""
    tops, lefts = rng.integers(0, 512 - side, (2, 3))
    places = [camera()[i : i + side, j : j + side] for i, j in zip(tops, lefts, strict=True)]
    bands = np.linspace(0, 1, n_channels)
    centres, widths = rng.random(3), rng.uniform(0.2, 0.6, 3)
    spectra = np.exp(-(((bands - centres[:, None]) / widths[:, None]) ** 2))
    return np.einsum("mij,mc->ijc", np.array(places, np.float64), spectra / 3)
