"""Denoising of single patches with a union of transforms, beside one: thresholding, Wiener filter.

Both are learned from the noisy patches and denoise all of them in the same two steps, so that the
difference is that of the transforms. A patch is denoised by the transform with the least estimated
risk. The quality "fast", which has one transform of larger patches, is the third.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import kappaform as kf
from kappaform.linalg import dct_basis

# Coefficients of a transform, to shrunk ones, estimated risks and weights of all patches.
Shrink = Callable[[NDArray], tuple[NDArray, NDArray, NDArray]]

SIDE, N_TRANSFORMS = 8, 4
THRESHOLD = 2.7  # standard deviations of the noise, as in BM3D


def gains(clean: NDArray, sigma: float) -> dict[str, float]:
    """PSNR with a union minus that of others, by their names."""
    noisy = kf.add_noise(clean, sigma, rng=0)
    patches, _ = _patches(noisy)
    kept = np.maximum(1, _n_above(patches, sigma))
    one = kf.learn(patches, kf.Orthonormal(), n_nonzero_coefs=kept).transform[np.newaxis]
    several = kf.learn_union(
        patches, kf.Orthonormal(), n_transforms=N_TRANSFORMS, n_nonzero_coefs=kept
    ).transforms
    first, second = (
        [_psnr(clean, step(noisy, each, sigma)) for each in (one, several)]
        for step in (_thresholded, _filtered)
    )
    fast = _psnr(clean, kf.denoise(noisy, sigma, quality="fast"))
    return {
        "one, thresholding": first[1] - first[0],
        "one, Wiener filter": second[1] - second[0],
        '"fast"': second[1] - fast,
    }


def _n_above(patches: NDArray, sigma: float) -> NDArray:
    """Number of DCT coefficients of each patch that are above the noise."""
    return (np.abs(patches @ dct_basis((SIDE, SIDE)).T) > THRESHOLD * sigma).sum(axis=1)


def _thresholded(noisy: NDArray, transforms: NDArray, sigma: float) -> NDArray:
    """Hard thresholding; the risk is Stein's estimate of it for the entries that are kept."""
    patches, means = _patches(noisy)

    def shrink(coefs: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        kept = np.abs(coefs) > THRESHOLD * sigma
        risk = np.where(kept, sigma**2, coefs**2 - sigma**2).sum(axis=1)
        return np.where(kept, coefs, 0), risk, 1 / (1 + kept.sum(axis=1))

    return _aggregated(patches, means, transforms, shrink, noisy.shape)


def _filtered(noisy: NDArray, transforms: NDArray, sigma: float) -> NDArray:
    """Wiener filter with the thresholded image as the guide."""
    guides, _ = _patches(_thresholded(noisy, transforms, sigma))
    patches, means = _patches(noisy)
    which = iter([guides @ each.T for each in transforms])

    def shrink(coefs: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        energy = next(which) ** 2
        gain = energy / (energy + sigma**2)
        return gain * coefs, (sigma**2 * gain).sum(axis=1), 1 / (1 + (gain**2).sum(axis=1))

    return _aggregated(patches, means, transforms, shrink, noisy.shape)


def _aggregated(
    patches: NDArray, means: NDArray, transforms: NDArray, shrink: Shrink, shape: tuple[int, ...]
) -> NDArray:
    """Patches of the transform of least risk, averaged with their weights."""
    best = np.full(len(patches), np.inf)
    estimates, weights = np.empty_like(patches), np.empty(len(patches))
    for transform in transforms:
        coefs, risk, weight = shrink(patches @ transform.T)
        wins = risk < best
        best[wins], weights[wins] = risk[wins], weight[wins]
        estimates[wins] = coefs[wins] @ transform
    height, width = (size - SIDE + 1 for size in shape)
    total, norm = np.zeros(shape), np.zeros(shape)
    each = (weights[:, np.newaxis] * (estimates + means)).reshape(height, width, SIDE, SIDE)
    for i, j in np.ndindex(SIDE, SIDE):
        window = np.s_[i : i + height, j : j + width]
        total[window] += each[:, :, i, j]
        norm[window] += weights.reshape(height, width)
    return total / norm


def _patches(image: NDArray) -> tuple[NDArray, NDArray]:
    windows = np.lib.stride_tricks.sliding_window_view(image, (SIDE, SIDE)).reshape(-1, SIDE**2)
    means = windows.mean(axis=1, keepdims=True)
    return windows - means, means


def _psnr(clean: NDArray, image: NDArray) -> float:
    return float(10 * np.log10(255**2 / np.mean((clean - image) ** 2)))
