"""Missing pixels: how well they are filled, next to scikit-image and OpenCV.

The paper's clean pictures with pixels missing at random, others that had no part in the choice of
constants, text and scratches over pictures of scikit-image (PSNR inside the mask), and holes with
noise. OpenCV (opencv-python-headless) is compared where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pictures import folder_named_by, missing, psnr
from PIL import Image, ImageDraw
from skimage import color, data, restoration

import kappaform as kf
from kappaform.paper.data import read_pair

ANY_MACHINE = True
TEXT = "The quick brown fox jumps over the lazy dog. 0123456789 "
ONE_CALL, TWO_CALLS = "denoise with mask", "inpaint, then denoise"
OTHERS = ["coins", "moon", "brick", "grass", "gravel", "page", "clock", "coffee", "chelsea"]
MIDDLE = 192  # pixels per side
# PSNR to reach, of the paper's pictures with so many pixels missing.
FLOORS = {
    ("Barbara", 0.8): 31.0,
    ("Lena", 0.8): 32.2,
    ("Hill", 0.8): 29.9,
    ("Barbara", 0.5): 38.5,
    ("Lena", 0.5): 38.5,
    ("Hill", 0.5): 35.5,
}


def rows(*parts: str) -> Iterator[dict]:
    """Rows as they come, of the chosen parts or all."""
    for name in parts or PARTS:
        yield from PARTS[name]()


def _paper() -> Iterator[dict]:
    folder = folder_named_by("KAPPAFORM_PAPER_DATA")
    if folder is None:
        yield missing("KAPPAFORM_PAPER_DATA", "the paper's pictures")
        return
    for (name, fraction), floor in FLOORS.items():
        clean = read_pair(folder, name, 20).clean.astype(float)
        mask = random_mask(clean.shape, fraction)
        found = kf.inpaint(clean, mask, value_range=(0, 255))
        yield _row(f"{name}, {fraction:.0%} missing", psnr(clean, found), floor)
        smooth = 255 * restoration.inpaint_biharmonic(clean / 255, mask)
        yield _row(f"{name}, {fraction:.0%} missing, biharmonic", psnr(clean, smooth))


def _others() -> Iterator[dict]:
    """Gain over biharmonic filling on pictures that had no part in the choice of constants."""
    sets = {"scikit-image": [(name, getattr(data, name)()) for name in OTHERS]}
    folder = folder_named_by("KAPPAFORM_PHOTOGRAPHS")
    if folder is None:
        yield missing("KAPPAFORM_PHOTOGRAPHS", "photographs")
    else:
        paths = sorted(Path(folder).glob("*.png"))[1::2]  # the others may have been chosen on
        sets["photographs"] = [(path.stem, np.asarray(Image.open(path))) for path in paths]
    for what, pictures in sets.items():
        for fraction in (0.8, 0.5):
            gains = [_gain(picture, fraction) for _, picture in pictures]
            name = f"{what}, {fraction:.0%} missing, gain over biharmonic"
            yield _row(f"{name}, mean", float(np.mean(gains)), 1.5)
            yield _row(f"{name}, least", float(min(gains)), 0.0)


def _gain(picture: NDArray, fraction: float) -> float:
    """Decibels, of the middle of a picture."""
    grey = 255 * color.rgb2gray(picture) if picture.ndim == 3 else picture.astype(float)
    top, left = ((size - MIDDLE) // 2 for size in grey.shape)
    clean = grey[max(top, 0) :, max(left, 0) :][:MIDDLE, :MIDDLE]
    mask = random_mask(clean.shape, fraction)
    found = kf.inpaint(clean, mask, value_range=(0, 255))
    smooth = 255 * restoration.inpaint_biharmonic(clean / 255, mask)
    return psnr(clean, found) - psnr(clean, smooth)


def _drawn() -> Iterator[dict]:
    """Text and scratches, PSNR inside the mask."""
    if not find_spec("cv2"):
        yield {"skipped": "OpenCV: pip install opencv-python-headless"}
    for name in ("camera", "astronaut"):
        picture = getattr(data, name)()
        for what, make in {"text": text_mask, "scratches": scratch_mask}.items():
            mask = make(picture.shape[:2])
            for filler, found in _filled(picture, mask):
                yield _row(f"{name}, {what}, {filler}", psnr(picture[mask], found[mask]))


def _filled(picture: NDArray, mask: NDArray) -> Iterator[tuple[str, NDArray]]:
    axis = -1 if picture.ndim == 3 else None
    yield "kappaform", kf.inpaint(picture, mask, channel_axis=axis, value_range=(0, 255))
    yield "biharmonic", 255 * restoration.inpaint_biharmonic(picture / 255, mask, channel_axis=axis)
    if find_spec("cv2"):
        import cv2

        for name, method in {"Telea": cv2.INPAINT_TELEA, "Navier-Stokes": cv2.INPAINT_NS}.items():
            yield f"OpenCV, {name}", cv2.inpaint(picture, mask.astype(np.uint8), 3, method)


def _noise() -> Iterator[dict]:
    """Half of the pixels missing, noise in the others."""
    sigma = 20.0
    pictures = [("camera", data.camera()), ("astronaut", data.astronaut()[..., 1])]
    folder = folder_named_by("KAPPAFORM_PAPER_DATA")
    if folder is None:
        yield missing("KAPPAFORM_PAPER_DATA", "the paper's pictures")
    else:
        names = ("Barbara", "Lena", "Hill")
        pictures += [(name, read_pair(folder, name, 20).clean) for name in names]
    for name, picture in pictures:
        clean = picture.astype(float)
        noisy, mask = kf.add_noise(clean, sigma), random_mask(clean.shape, 0.5)
        smooth = restoration.inpaint_biharmonic(noisy, mask)
        results = {
            "biharmonic, then denoise": kf.denoise(smooth, sigma),
            TWO_CALLS: kf.denoise(kf.inpaint(noisy, mask), sigma),
            ONE_CALL: kf.denoise(noisy, sigma, mask=mask),
        }
        for what, image in results.items():
            yield _row(f"{name}, sigma 20, half missing, {what}", psnr(clean, image))
        gain = psnr(clean, results[ONE_CALL]) - psnr(clean, results[TWO_CALLS])
        yield _row(f"{name}, sigma 20, half missing, gain of one call", gain, 0.5)


PARTS = {"paper": _paper, "others": _others, "drawn": _drawn, "noise": _noise}


def _row(name: str, value: float, floor: float | None = None) -> dict:
    return {"name": name, "value": value, "unit": "dB", "target": floor, "better": "higher"}


def text_mask(shape: tuple[int, int], size: int = 16) -> NDArray:
    """Lines of text over the whole picture."""
    page = Image.new("L", shape[::-1])
    draw = ImageDraw.Draw(page)
    for i, top in enumerate(range(4, shape[0], size + 8)):
        draw.text((4, top), (TEXT * 4)[3 * i :], fill=255, font_size=size)
    return np.asarray(page) > 127


def scratch_mask(shape: tuple[int, int], number: int = 25) -> NDArray:
    """Long lines two or three pixels wide."""
    rng = np.random.default_rng(0)
    page = Image.new("L", shape[::-1])
    draw = ImageDraw.Draw(page)
    for _ in range(number):
        ends = rng.integers(0, shape[1], 2), rng.integers(0, shape[0], 2)
        line = [(int(x), int(y)) for x, y in zip(*ends, strict=True)]
        draw.line(line, fill=255, width=int(rng.integers(2, 4)))
    return np.asarray(page) > 0


def random_mask(shape: tuple[int, int], fraction: float) -> NDArray:
    return np.random.default_rng(1).random(shape) < fraction
