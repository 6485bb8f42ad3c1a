"""Photographs as cameras save them: what is gained without being told the noise.

Simulated cameras: the light of pictures of scikit-image, photons and read noise, a Bayer mosaic,
demosaicking, gamma and JPEG. Real pairs, where KAPPAFORM_REAL_PAIRS names their folder: noisy
pictures (``*_real.JPG``) and means of many shots (``*_mean.JPG``). "Given" is the same denoiser
with the covariance of noisy minus clean. The constants of the estimate were chosen on these cameras
and on 42 pairs of the set of Xu et al. (2018).
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pictures import folder_named_by, missing, psnr
from PIL import Image
from scipy.ndimage import convolve, median_filter
from skimage import data

import kappaform as kf

ANY_MACHINE = True
PATCH = 11
OPTIONS: dict[str, Any] = {"channel_axis": -1, "value_range": (0, 255), "patch_size": PATCH}
PICTURES = ("astronaut", "coffee", "cat", "rocket")
#: Photons of white and quality of the JPEG.
CAMERAS = ((2000, None), (500, 98), (150, 90), (60, 75))
READ_NOISE = 2.0


def rows(*parts: str) -> Iterator[dict]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in parts or PARTS:
            yield from PARTS[name]()


def _simulated() -> Iterator[dict]:
    losses = []
    for name in PICTURES:
        for demosaicking in (bilinear, smooth_hue):
            for photons, quality in CAMERAS:
                clean = getattr(data, name)()[:384, :384, :3]
                noisy, clean = photographed(clean, demosaicking, photons, quality)
                words = f"{name}, {demosaicking.__name__}, {photons} photons, JPEG {quality}"
                row = _loss(words, clean, noisy)
                losses.append(row["value"])
                yield row
    yield _row("simulated cameras, mean lost by estimating", float(np.mean(losses)), "dB lost", 0.4)


def _real() -> Iterator[dict]:
    folder = folder_named_by("KAPPAFORM_REAL_PAIRS")
    if folder is None:
        yield missing("KAPPAFORM_REAL_PAIRS", "real pairs")
        return
    before, after = [], []
    for path in sorted(folder.glob("*_real.JPG")):
        noisy = np.array(Image.open(path))
        clean = np.array(Image.open(path.with_name(path.name.replace("_real", "_mean"))))
        found = kf.denoise_with_details(noisy, **OPTIONS)
        before.append(psnr(clean, noisy))
        after.append(psnr(clean, found.image))
        yield _row(f"real, {path.stem}", after[-1], "dB", before[-1] - 0.1, before[-1], found) | _UP
    yield _row("real pairs, mean", float(np.mean(after)), "dB", 37.8, float(np.mean(before))) | _UP


PARTS = {"simulated": _simulated, "real": _real}


# --- A camera


def photographed(
    picture: np.ndarray, demosaicking: Callable, photons: int, quality: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """A picture as a camera saves it, and as one without noise and JPEG would."""
    light = (picture / 255) ** 2.2
    rows, columns = np.indices(light.shape[:2]) % 2
    masks = [(rows == 0) & (columns == 0), rows != columns, (rows == 1) & (columns == 1)]
    raw = sum(light[..., channel] * mask for channel, mask in enumerate(masks))
    rng = np.random.default_rng(0)
    seen = rng.poisson(photons * raw) + READ_NOISE * rng.standard_normal(raw.shape)
    noisy, clean = (
        np.rint(255 * np.clip(demosaicking(each, masks), 0, 1) ** (1 / 2.2)).astype(np.uint8)
        for each in (seen / photons, raw)
    )
    if quality is not None:
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=quality)
        noisy = np.array(Image.open(file))
    return noisy, clean


def bilinear(raw: np.ndarray, masks: list[np.ndarray]) -> np.ndarray:
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4
    weights = [convolve(mask.astype(float), kernel) for mask in masks]
    values = [convolve(raw * mask, kernel) for mask in masks]
    return np.stack([v / w for v, w in zip(values, weights, strict=True)], axis=-1)


def smooth_hue(raw: np.ndarray, masks: list[np.ndarray]) -> np.ndarray:
    """Bilinear, with a median filter of the differences to green."""
    colours = bilinear(raw, masks)
    for channel in (0, 2):
        difference = colours[..., channel] - colours[..., 1]
        colours[..., channel] = colours[..., 1] + median_filter(difference, 5)
    return colours


# --- Rows

_UP = {"better": "higher"}


def _loss(words: str, clean: np.ndarray, noisy: np.ndarray) -> dict:
    """What estimating costs against the covariance of noisy minus clean."""
    found = kf.denoise_with_details(noisy, **OPTIONS)
    given = kf.denoise(
        noisy, noise=kf.Correlated(covariance_of(noisy - clean.astype(float))), **OPTIONS
    )
    loss = psnr(clean, given) - psnr(clean, found.image)
    return _row(f"simulated, {words}", loss, "dB lost", 1.0, psnr(clean, noisy), found)


def covariance_of(residual: np.ndarray) -> np.ndarray:
    """Second moments (channels, channels, n, n) of all patches, made positive."""
    patches = np.lib.stride_tricks.sliding_window_view(
        residual - residual.mean(axis=(0, 1)), (PATCH, PATCH), axis=(0, 1)
    )
    flat = patches[::2, ::2].reshape(-1, 3 * PATCH**2)
    values, vectors = np.linalg.eigh(flat.T @ flat / len(flat))
    whole = (vectors * np.maximum(values, 1e-3 * values.mean())) @ vectors.T
    return whole.reshape(3, PATCH**2, 3, PATCH**2).transpose(0, 2, 1, 3)


def _row(
    name: str,
    value: float,
    unit: str,
    target: float | None,
    before: float | None = None,
    found: kf.DenoiseResult | None = None,
) -> dict:
    more: dict[str, object] = {} if before is None else {"before": before}
    more |= {} if found is None else {"noise": str(found.noise)}
    return {"name": name, "value": float(value), "unit": unit, "target": target} | more
