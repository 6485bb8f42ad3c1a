"""Missing pixels against scikit-image and OpenCV: random ones, text and scratches.

    python benchmarks/bench_inpaint.py             PSNR inside the mask, and seconds
    python benchmarks/bench_inpaint.py --noise     holes and noise: in one call, and one by one

OpenCV (opencv-python-headless) is compared where it is installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from skimage import data, restoration

import kappaform as kf

TEXT = "The quick brown fox jumps over the lazy dog. 0123456789 "


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


def psnr(image: NDArray, truth: NDArray, where: NDArray) -> float:
    return float(10 * np.log10(255**2 / np.mean((image - truth.astype(float))[where] ** 2)))


def fillers(colour: bool) -> Iterator[tuple[str, Callable[[NDArray, NDArray], NDArray]]]:
    axis = -1 if colour else None
    for quality in ("fast", "balanced", "best"):
        yield (
            f"kappaform {quality}",
            lambda image, mask, quality=quality: kf.inpaint(
                image, mask, quality=quality, channel_axis=axis, value_range=(0, 255)
            ),
        )
    yield (
        "biharmonic",
        lambda image, mask: (
            restoration.inpaint_biharmonic(image / 255, mask, channel_axis=axis) * 255
        ),
    )
    try:
        import cv2
    except ImportError:
        return
    for name, method in (("Telea", cv2.INPAINT_TELEA), ("Navier-Stokes", cv2.INPAINT_NS)):
        yield (
            f"OpenCV {name}",
            lambda image, mask, method=method: cv2.inpaint(
                image, mask.astype(np.uint8), 3, method
            ).astype(float),
        )


def compare(qualities: tuple[str, ...]) -> None:
    masks = {"text": text_mask, "scratches": scratch_mask}
    masks |= {f"{p:.0%}": lambda shape, p=p: random_mask(shape, p) for p in (0.02, 0.5, 0.8)}
    for name, picture in (("camera", data.camera()), ("astronaut", data.astronaut())):
        for what, make in masks.items():
            mask = make(picture.shape[:2])
            for filler, fill in fillers(picture.ndim == 3):
                if filler.startswith("kappaform") and filler.split()[1] not in qualities:
                    continue
                started = time.process_time()
                found = fill(picture, mask)
                seconds = time.process_time() - started
                print(
                    f"{name:9} {what:9} {mask.mean():6.1%} {filler:20} "
                    f"{psnr(found, picture, mask):6.2f} dB {seconds:7.1f} s",
                    flush=True,
                )


def compare_with_noise(sigma: float = 20.0, fraction: float = 0.5) -> None:
    for name, picture in (("camera", data.camera()), ("astronaut", data.astronaut()[..., 1])):
        clean = picture.astype(float)
        noisy, mask = kf.add_noise(clean, sigma), random_mask(clean.shape, fraction)
        everywhere = np.ones_like(mask)
        first = restoration.inpaint_biharmonic(noisy, mask)
        results = {
            "biharmonic, then denoise": kf.denoise(first, sigma),
            "inpaint, then denoise": kf.denoise(kf.inpaint(noisy, mask), sigma),
            "denoise with mask": kf.denoise(noisy, sigma, mask=mask),
        }
        for what, image in results.items():
            print(f"{name:9} {what:26} {psnr(image, clean, everywhere):6.2f} dB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--qualities", nargs="+", default=["fast", "balanced", "best"])
    arguments = parser.parse_args()
    if arguments.noise:
        compare_with_noise()
    else:
        compare(tuple(arguments.qualities))


if __name__ == "__main__":
    main()
