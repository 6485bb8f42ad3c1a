"""Simulated cameras: photons behind a Bayer mosaic, demosaicing, gamma, and JPEG."""

from __future__ import annotations

import io
from itertools import product

import numpy as np
from PIL import Image
from scipy.ndimage import convolve
from skimage import data

import kappaform as kf

DEMOSAICINGS = ("bilinear", "malvar", "hue", "nearest")
JPEGS = (75, 90, 98, None)  # qualities; None: not compressed
PHOTONS = (100, 250, 500, 2000)  # of a white pixel: four settings of the ISO speed
PICTURES = ("astronaut", "coffee", "chelsea", "rocket")
_READ_NOISE = 2.0  # electrons
_SIDE = 256
_GAMMA = 2.2
_REACH = 20  # pixels, of the covariance of the noise that is given

_BILINEAR = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4
# Malvar, He and Cutler 2004: at a pixel of one colour, the correction of the others.
_LAPLACE = np.zeros((5, 5))
_LAPLACE[2, 2], _LAPLACE[[0, 2, 2, 4], [2, 0, 4, 2]] = 1.0, -0.25


def cases() -> list[tuple[str, str, int | None, int]]:
    """Picture, demosaicing, quality of the JPEG and photons; pictures take turns."""
    settings = product(DEMOSAICINGS, JPEGS, PHOTONS)
    return [
        (PICTURES[(number + number // 4 + number // 16) % len(PICTURES)], *setting)
        for number, setting in enumerate(settings)
    ]


def photographed(
    name: str, demosaicing: str, quality: int | None, photons: int
) -> tuple[np.ndarray, np.ndarray]:
    """What the camera makes of a scene: without noise and JPEG, and with both."""
    picture = getattr(data, name)()
    top, left = ((n - _SIDE) // 2 for n in picture.shape[:2])
    light = (picture[top : top + _SIDE, left : left + _SIDE] / 255) ** _GAMMA
    rng = np.random.default_rng(0)
    seen = rng.poisson(photons * light) + _READ_NOISE * rng.standard_normal(light.shape)
    clean, noisy = (_developed(each, demosaicing) for each in (light, seen / photons))
    if quality is not None:
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=quality)
        noisy = np.array(Image.open(file))
    return clean.astype(float), noisy.astype(float)


def true_noise(clean: np.ndarray, noisy: np.ndarray) -> kf.Correlated:
    """The covariance of what differs, over all pixels.

    A triangular window over distances keeps it positive; that of neighbours is 5 % too small.
    """
    residual = np.moveaxis(noisy - clean, -1, 0)
    residual = residual - residual.mean(axis=(1, 2), keepdims=True)
    size = [n + _REACH for n in residual.shape[1:]]
    spectra = np.fft.fft2(residual, size)
    lags = np.fft.ifft2(spectra[:, np.newaxis].conj() * spectra).real
    for axis in (-2, -1):
        lags = np.roll(lags, _REACH, axis).take(range(2 * _REACH + 1), axis)
    window = 1 - np.abs(np.arange(-_REACH, _REACH + 1)) / (_REACH + 1)
    return kf.Correlated(autocovariance=lags * np.outer(window, window) / residual[0].size)


def _developed(light: np.ndarray, demosaicing: str) -> np.ndarray:
    channels = np.clip(_demosaiced(light, demosaicing), 0, 1) ** (1 / _GAMMA)
    return np.rint(255 * channels).astype(np.uint8)


def _demosaiced(light: np.ndarray, demosaicing: str) -> np.ndarray:
    rows, columns = np.indices(light.shape[:2]) % 2
    masks = [(rows == 0) & (columns == 0), rows != columns, (rows == 1) & (columns == 1)]
    mosaic = sum(light[..., c] * mask for c, mask in enumerate(masks))
    if demosaicing == "nearest":
        blocks = mosaic.reshape(len(mosaic) // 2, 2, -1, 2)
        green = (blocks[:, 0, :, 1] + blocks[:, 1, :, 0]) / 2
        small = np.stack([blocks[:, 0, :, 0], green, blocks[:, 1, :, 1]], axis=-1)
        return small.repeat(2, axis=0).repeat(2, axis=1)
    plain = [
        convolve(mosaic * mask, _BILINEAR) / convolve(mask.astype(float), _BILINEAR)
        for mask in masks
    ]
    if demosaicing == "malvar":
        edges = convolve(mosaic, _LAPLACE)
        weights = (5 / 8, 1 / 2, 5 / 8)
        plain = [
            np.where(mask, mosaic, channel + weight * edges)
            for channel, mask, weight in zip(plain, masks, weights, strict=True)
        ]
    if demosaicing == "hue":  # colours over green are interpolated, not colours
        green = np.maximum(plain[1], 1e-3)
        for c in (0, 2):
            ratio = np.where(masks[c], mosaic / green, 0)
            plain[c] = green * convolve(ratio, _BILINEAR) / convolve(masks[c] * 1.0, _BILINEAR)
    return np.stack(plain, axis=-1)
