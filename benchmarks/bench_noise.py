"""Noise as pictures have it: what estimating its kind and size costs in decibels, and in time.

PSNR of pictures of scikit-image, and of the paper's where KAPPAFORM_PAPER_DATA says where they are.
"Given" is the same denoiser with the noise that was added. The constants of the estimates were
chosen on pictures of scikit-image and 16 photographs; the paper's pictures had no part in it.

    python benchmarks/bench_noise.py [colour shot correlated bayer white clean cost]
"""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import convolve, gaussian_filter
from skimage import color, data

import kappaform as kf
from kappaform.imaging.correlated import Correlated
from kappaform.imaging.noise import Noise, Shot, White
from kappaform.paper.data import read_pair

GREY = ["camera", "coins", "moon", "page", "text", "clock", "brick", "grass", "gravel"]
SMOOTH = ["camera", "coins", "moon", "page", "brick", "cat", "rocket"]
GREY += ["astronaut", "coffee", "cat", "rocket", "immunohistochemistry"]


def rows() -> list[dict]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a picture is all texture
        return list(measured())


def measured(chosen: tuple[str, ...] = ()) -> Iterator[dict]:
    """Rows as they come, of the chosen parts or all."""
    parts = {
        "colour": _colour,
        "shot": _shot,
        "correlated": _correlated,
        "bayer": _bayer,
        "white": _white,
        "clean": _clean,
        "cost": _cost,
    }
    for name in chosen or parts:
        yield from parts[name]()


def _colour() -> Iterator[dict]:
    """Pictures with black or white areas, rounded and clipped."""
    coffee = data.coffee()[:, 100:500]
    mask = np.hypot(*(np.indices((400, 400)) - 200)) < 150
    thing = data.astronaut()[:400, :400]
    pictures = {
        "astronaut": data.astronaut(),
        "coffee": coffee,
        "object on black": np.where(mask[..., None], thing, 0),
        "object on white": np.where(mask[..., None], thing, 255),
    }
    for name, clean in pictures.items():
        for sigma in (10, 20):
            for saved in ("8 bit", "JPEG 95"):
                noisy = _eight_bit(kf.add_noise(clean.astype(float), sigma, rng=0))
                noisy = noisy if saved == "8 bit" else _jpeg(noisy, 95)
                options = {"channel_axis": -1, "value_range": (0, 255)}
                found = kf.denoise_with_details(noisy, **options)
                given = kf.denoise(noisy, sigma, **options)
                loss = _psnr(clean, given) - _psnr(clean, found.image)
                words = f"colour, {name}, sigma {sigma}, {saved}"
                yield _row(words, loss, "dB lost", 0.15, _psnr(clean, noisy), found)


def _shot() -> Iterator[dict]:
    for name, clean in (("camera", data.camera()), ("coins", data.coins())):
        for peak in (1000, 100, 30, 5, 1):
            noise = Shot(255 / peak)
            noisy = kf.add_noise(clean.astype(float), noise=noise, rng=0)
            found, given = kf.denoise_with_details(noisy), kf.denoise(noisy, noise=noise)
            words = f"shot, {name}, peak {peak}"
            after = _psnr(clean, found.image)
            loss = _psnr(clean, given) - after
            yield _row(words, loss, "dB lost", 0.2, _psnr(clean, noisy), found)
            yield _row(words, after, "dB", {"shot, camera, peak 100": 30.8}.get(words)) | _UP
            written = _eight_bit(noisy)
            result = _eight_bit(kf.denoise(written, value_range=(0, 255)))
            goal = 27.8 if (name, peak) == ("camera", 30) else None
            yield _row(f"{words}, 8 bit", _psnr(clean, result), "dB", goal) | _UP


def _correlated() -> Iterator[dict]:
    clean = data.camera()[100:356, 100:356]
    rng = np.random.default_rng(0)
    blurred = gaussian_filter(rng.standard_normal((296, 296)), 1)[20:-20, 20:-20]
    noisy = clean + 20 * blurred / blurred.std()
    squares = np.arange(-10, 11) ** 2
    true = 400 * np.exp(-np.add.outer(squares, squares) / 4)
    found = kf.denoise_with_details(noisy)
    given = kf.denoise(noisy, noise=Correlated(autocovariance=true))
    before = _psnr(clean, noisy)
    words = "correlated, camera, sigma 20"
    yield _row(words, _psnr(clean, found.image), "dB", 27.2, before, found) | _UP
    yield _row(f"{words}, covariance given", _psnr(clean, given), "dB", 27.5, before) | _UP


def _bayer() -> Iterator[dict]:
    """A sensor with a mosaic of colours: noise, demosaicing, gamma, JPEG."""
    for name, clean in (("astronaut", data.astronaut()), ("coffee", data.coffee())):
        light = (clean / 255) ** 2.2
        rng = np.random.default_rng(0)
        noisy = _jpeg(_eight_bit(255 * _demosaiced(light, rng) ** (1 / 2.2)), 92)
        found = kf.denoise_with_details(noisy, channel_axis=-1, value_range=(0, 255))
        before = _psnr(clean, noisy)
        gain = _psnr(clean, _eight_bit(found.image)) - before
        yield _row(f"bayer, {name}", gain, "dB gained", 1.6, before, found) | _UP


def _demosaiced(light: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Colours of a Bayer mosaic, 150 photons at most and read noise 2, interpolated bilinearly."""
    rows, columns = np.indices(light.shape[:2]) % 2
    masks = [(rows == 0) & (columns == 0), rows != columns, (rows == 1) & (columns == 1)]
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4
    channels = []
    for channel, mask in enumerate(masks):
        photons = rng.poisson(150 * light[..., channel]) + 2 * rng.standard_normal(mask.shape)
        seen = photons / 150 * mask
        channels.append(convolve(seen, kernel) / convolve(mask.astype(float), kernel))
    return np.clip(np.stack(channels, axis=-1), 0, 1)


def _white() -> Iterator[dict]:
    """White noise: the kind must be found, and sigma no worse than where white was known."""
    worst, n_wrong, n_pictures = -np.inf, 0, 0
    for _, clean, noisy, _ in _grey_pictures():
        found = kf.denoise_with_details(noisy)
        known = kf.denoise(noisy, noise="white")
        n_wrong += not isinstance(found.noise, White)
        n_pictures += 1
        worst = max(worst, _psnr(clean, known) - _psnr(clean, found.image))
    yield _row("white, pictures called otherwise", n_wrong, f"of {n_pictures}", 0)
    yield _row("white, kind estimated, worst picture", worst, "dB lost", 0.05)
    means = {"given": [], "estimated": []}
    for clean, noisy, sigma in _paper_pictures():
        for name, level in (("given", sigma), ("estimated", None)):
            cleaned = kf.denoise(noisy, level, value_range=(0, 255))
            means[name].append(_psnr(clean, cleaned))
    if means["given"]:
        yield _row("white, paper's 30, sigma given", np.mean(means["given"]), "dB", None) | _UP
        mean = np.mean(means["estimated"])
        yield _row("white, paper's 30, noise estimated", mean, "dB", 32.40) | _UP


def _clean() -> Iterator[dict]:
    """Pictures as they are. Those that are all texture (grass), or have noise, change more."""
    least, n_wrong = np.inf, 0
    for name in GREY:
        clean = _grey(name)
        found = kf.denoise_with_details(clean)
        n_wrong += not isinstance(found.noise, White)
        if name in SMOOTH:
            least = min(least, _psnr(clean, found.image))
    yield _row("clean pictures called other than white", n_wrong, f"of {len(GREY)}", 0)
    words = f"clean pictures, least PSNR of what comes back of {len(SMOOTH)}"
    yield _row(words, least, "dB", 58.0) | _UP


def _cost() -> Iterator[dict]:
    noisy = kf.add_noise(data.camera().astype(float), 20, rng=0)
    best = {"estimate": np.inf, "denoise": np.inf}
    for _ in range(5):
        for name, call in (
            ("estimate", lambda: kf.estimate_noise(noisy)),
            ("denoise", lambda: kf.denoise(noisy, 20)),
        ):
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    share = best["estimate"] / best["denoise"]
    yield _row("cost of estimating, 512x512", 100 * share, "% of denoising", 15)


# --- Pictures


def _grey(name: str) -> np.ndarray:
    picture = getattr(data, name)()
    return np.rint(255 * color.rgb2gray(picture)) if picture.ndim == 3 else picture.astype(float)


def _grey_pictures() -> Iterator[tuple[str, np.ndarray, np.ndarray, float]]:
    for name in GREY:
        clean = _grey(name)[:512, :512]
        for sigma in (3, 5, 10, 20, 50):
            yield name, clean, kf.add_noise(clean, sigma, rng=1), sigma
    for clean, noisy, sigma in _paper_pictures():
        yield "paper", clean, noisy, sigma


def _paper_pictures() -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    folder = os.environ.get("KAPPAFORM_PAPER_DATA")
    if not folder:
        return
    for name in ("Barbara", "Cameraman", "Couple", "Hill", "Lena", "MRI"):
        for sigma in (5, 10, 15, 20, 100):
            pair = read_pair(Path(folder), name, sigma)
            yield pair.clean.astype(float), pair.noisy.astype(float), float(sigma)


def _eight_bit(image: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def _jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality, subsampling=0)
    return np.array(Image.open(file))


def _psnr(clean: np.ndarray, image: np.ndarray) -> float:
    error = np.mean((clean.astype(float) - image) ** 2)
    return float(10 * np.log10(255**2 / error)) if error else np.inf


_UP = {"better": "higher"}


def _row(
    name: str,
    value: float,
    unit: str,
    target: float | None,
    before: float | None = None,
    found: kf.DenoiseResult | None = None,
) -> dict:
    more = {} if before is None else {"before": before}
    noise: Noise | tuple | None = None if found is None else found.noise
    more |= {} if noise is None else {"noise": str(noise)}
    return {"name": name, "value": float(value), "unit": unit, "target": target} | more


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for row in measured(tuple(sys.argv[1:])):
        words = f"{row['name']}: {row['value']:.3f} {row['unit']} (target {row['target']})"
        print(words, {k: row[k] for k in ("before", "noise") if k in row}, flush=True)
