"""A mosaic of four textures, and ways to find its parts without knowing them."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from scipy.optimize import linear_sum_assignment
from skimage import data
from skimage.filters import gabor
from sklearn.cluster import KMeans

import kappaform as kf
from kappaform.engines import engine_for

TEXTURES = ("brick", "grass", "gravel", "coins")
# Corners of the crops: those on which features were chosen, and others of the same textures.
LEARNED = ((0, 0),) * 4
OTHER = (*((300, 300),) * 3, (143, 224))
TILE, SIDE, WINDOW, N_NONZERO = 160, 8, 25, 6
SEEDS = range(5)


def mosaic(corners: tuple[tuple[int, int], ...]) -> NDArray:
    """Two by two textures of equal mean and standard deviation."""
    crops = [
        getattr(data, name)()[top : top + TILE, left : left + TILE].astype(float)
        for name, (top, left) in zip(TEXTURES, corners, strict=True)
    ]
    one, two, three, four = [(crop - crop.mean()) / crop.std() for crop in crops]
    return np.block([[one, two], [three, four]])


def truth() -> NDArray:
    return np.kron([[0, 1], [2, 3]], np.ones((TILE, TILE), int))


def share_right(labels: NDArray) -> float:
    """Share of the pixels in the right segment, for the best naming of the segments."""
    table = np.zeros((4, 4))
    np.add.at(table, (truth().ravel(), labels.ravel()), 1)
    return float(table[linear_sum_assignment(-table)].sum() / labels.size)


def segmentations(corners: tuple[tuple[int, int], ...]) -> dict[str, list[NDArray]]:
    """Labels of all pixels by several methods, those with k-means from several seeds."""
    image = mosaic(corners)
    signals = patches_around(image)
    found: dict[str, list[NDArray]] = {}
    for bound in (1.0, 2.0, 4.0):
        union = kf.learn_union(
            signals[::4], kf.Conditioned(bound), n_transforms=4, n_nonzero_coefs=N_NONZERO
        )
        losses = [loss_of(signals, each, N_NONZERO) for each in union.transforms]
        smooth = [smoothed(each) for each in losses]
        if bound == 2:
            numbers = engine_for(signals).assign(union.union, N_NONZERO)
            found["union, bound 2, assignment"] = [np.asarray(numbers, int).reshape(image.shape)]
        found[f"union, bound {bound:g}, least loss of the window"] = [np.argmin(smooth, axis=0)]
        features = loss_features(signals, losses)
        found[f"union, losses as features, bound {bound:g}"] = clustered(features)
    one = kf.learn(signals[::4], kf.Conditioned(2.0), n_nonzero_coefs=N_NONZERO)
    losses = [loss_of(signals, one.transform, s) for s in (2, 6, 16)]
    found["one transform, losses as features, bound 2"] = clustered(loss_features(signals, losses))
    losses = [loss_of(signals, kf.dct_basis((SIDE, SIDE)), s) for s in (2, 6, 16)]
    found["DCT, losses as features"] = clustered(loss_features(signals, losses))
    found["k-means of patches"] = clustered(signals.T, standardised=False)
    found["Gabor magnitudes, k-means"] = clustered(gabor_magnitudes(image))
    return found


def patches_around(image: NDArray) -> NDArray:
    """The patch around every pixel, mean removed, one per row."""
    padded = np.pad(image, (SIDE // 2, SIDE - 1 - SIDE // 2), mode="reflect")
    found = sliding_window_view(padded, (SIDE, SIDE)).reshape(-1, SIDE**2)
    return found - found.mean(axis=1, keepdims=True)


def loss_of(signals: NDArray, transform: NDArray, n_nonzero: int) -> NDArray:
    """Energy of all but the largest coefficients of each patch."""
    coefs = signals @ transform.T
    return ((coefs - kf.hard_threshold(coefs, n_nonzero)) ** 2).sum(axis=1)


def smoothed(values: NDArray) -> NDArray:
    return uniform_filter(values.reshape(2 * TILE, 2 * TILE), WINDOW, mode="reflect")


def loss_features(signals: NDArray, losses: list[NDArray]) -> NDArray:
    """Logarithms of energy and of relative losses, averaged over a window around each pixel."""
    energy = (signals**2).sum(axis=1) + 1e-6
    logs = [np.log(energy), *(np.log(loss / energy + 1e-6) for loss in losses)]
    return np.stack([smoothed(each).ravel() for each in logs])


def gabor_magnitudes(image: NDArray) -> NDArray:
    """Magnitudes of 4 frequencies in 6 directions, averaged over the same window.

    The best of three sets of frequencies, and better than their energies or logarithms.
    """
    responses = [
        gabor(image, frequency, np.pi * direction / 6)
        for frequency in (0.05, 0.1, 0.2, 0.35)
        for direction in range(6)
    ]
    return np.stack([smoothed(np.hypot(*each).ravel()).ravel() for each in responses])


def clustered(features: NDArray, standardised: bool = True) -> list[NDArray]:
    """k-means of pixels into four, from several seeds."""
    columns = features.T
    if standardised:
        columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    found = [
        KMeans(4, n_init=4, random_state=seed).fit(columns[::7]).predict(columns) for seed in SEEDS
    ]
    return [labels.reshape(2 * TILE, 2 * TILE) for labels in found]
