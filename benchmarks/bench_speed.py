"""How long denoising takes, next to BM3D, and how much memory.

Noise of sigma 25, which is given. Times are the least of two or three, taken in turns: the speed
of a machine varies. Processor time, on one thread, is what is compared with BM3D, which has no
option for threads, but starts no more than there are cores: the comparison is on one core. It is
made only when asked for (`run.py --bm3d speed`).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench_inpaint import random_mask
from pictures import NO_BM3D, with_bm3d, with_noise
from skimage import data
from timing import least_seconds

import kappaform as kf
from kappaform.imaging.cleaning import stages, tiles
from kappaform.imaging.options import Quality
from kappaform.threads import at_most_threads

QUALITIES: tuple[Quality, ...] = ("fast", "balanced", "best")
OF_BM3D = {"fast": 0.08, "balanced": 0.17, "best": 0.4}


def rows(*parts: str) -> Iterator[dict]:
    for name in parts or PARTS:
        yield from PARTS[name]()


def _threads() -> Iterator[dict]:
    """512 x 512 on one thread, and what a second one brings."""
    noisy = _picture(512)
    kf.denoise(noisy[:64, :64], 25)  # kernels are loaded once
    runs = _runs(noisy)
    with _one_core():
        if with_bm3d():
            import bm3d

            runs["BM3D"] = lambda: bm3d.bm3d(noisy, 25)
        else:
            yield NO_BM3D
        seconds = least_seconds(runs, 1, clock=time.process_time)
    runs.pop("BM3D", None)
    for name, value in seconds.items():
        yield _row(f"512 x 512, processor time, one thread, {name}", value, "s")
    for name in QUALITIES if "BM3D" in seconds else ():
        ratio = seconds[name] / seconds["BM3D"]
        yield _row(f"512 x 512, processor time, {name} / BM3D", ratio, "BM3D", OF_BM3D[name])
    # Both by the clock on the wall: threads share the processor time, they do not lessen it.
    one, two = (least_seconds(runs, threads, repeats=3) for threads in (1, 2))
    for quality in QUALITIES:
        gain = one[quality] / two[quality]
        name = f"512 x 512, {quality}, one thread / two"
        yield _row(name, gain, "times faster", 1.85, better="higher")


def _small() -> Iterator[dict]:
    """Processor time per pixel, 256 x 256 over 1024 x 1024, one thread."""
    for sigma, how in ((25, "sigma given"), (None, "noise estimated")):
        per_pixel = {}
        for side in (256, 1024):
            kf.denoise(_picture(64), sigma, quality="best")
            runs = _runs(_picture(side), sigma)
            found = least_seconds(runs, 1, repeats=3 if side == 256 else 2, clock=time.process_time)
            per_pixel[side] = {name: value / side**2 for name, value in found.items()}
        for quality in QUALITIES:
            ratio = per_pixel[256][quality] / per_pixel[1024][quality]
            name = f"processor time per pixel, 256 x 256 / 1024 x 1024, {how}, {quality}"
            yield _row(name, ratio, "1024 x 1024", 2)


def _sizes() -> Iterator[dict]:
    """Time per pixel of smaller and larger pictures."""
    for side in (256, 512, 2048):
        found = least_seconds(_runs(_picture(side)), 2, repeats=3 if side < 2048 else 1)
        for quality, value in found.items():
            name = f"{side} x {side}, two threads, {quality}"
            yield _row(name, value / side**2 * 1e6, "s per megapixel", seconds=value)


def _megapixel() -> Iterator[dict]:
    """Processor time per megapixel, one thread, of a grey and of a colour image."""
    colour = with_noise(np.tile(data.astronaut(), (2, 2, 1)), 25, 0)
    pictures: list[tuple[int, str, dict, dict[str, float]]] = [
        (2048, "", _runs(_picture(2048)), {"fast": 2.4, "balanced": 9.8}),
        (1024, " in colour", _runs(colour, channel_axis=-1), {"fast": 6, "balanced": 18}),
    ]
    for side, words, runs, targets in pictures:
        chosen = {quality: runs[quality] for quality in targets}
        for quality, value in least_seconds(chosen, 1, 2, time.process_time).items():
            name = f"{side} x {side}{words}, processor time, one thread, {quality}"
            yield _row(name, value / side**2 * 1e6, "s per megapixel", targets[quality])


def _estimate() -> Iterator[dict]:
    noisy = _picture(512)
    runs = {"estimate": lambda: kf.estimate_noise(noisy), "denoise": lambda: kf.denoise(noisy, 25)}
    times = least_seconds(runs, 1)
    fraction = times["estimate"] / times["denoise"]
    yield _row("cost of estimating the noise, 512 x 512", 100 * fraction, "% of denoising", 15)


def _missing() -> Iterator[dict]:
    """Filling 512 x 512, next to denoising with the same quality: processor time, one thread."""
    clean = data.camera().astype(float)
    noisy = with_noise(clean, 25, 0)
    runs: dict[str, Callable[[], object]] = {"denoise": partial(kf.denoise, noisy, 25)}
    targets = {0.02: 1.5, 0.5: 10.0, 0.8: 10.0}
    for fraction in targets:
        mask = random_mask(clean.shape, fraction)
        kf.inpaint(clean[:64, :64], mask[:64, :64])  # kernels are loaded once
        runs[f"{fraction:.0%} missing"] = partial(kf.inpaint, clean, mask)
    seconds = least_seconds(runs, 1, repeats=2, clock=time.process_time)
    for fraction, target in targets.items():
        ratio = seconds[f"{fraction:.0%} missing"] / seconds["denoise"]
        yield _row(f"filling 512 x 512, {fraction:.0%} missing", ratio, "denoisings", target)


def _memory() -> Iterator[dict]:
    """Of a process that denoises 4096 x 4096 float32 pixels, beyond image and result.

    Every tile takes the same memory, in addition to what the one before has left: so the last two
    are denoised, and the pixels of the others copied. For 2048 x 2048 that gave 144 MB, all tiles
    134.
    """
    found = subprocess.run([sys.executable, __file__], stdout=subprocess.PIPE, check=True)
    name = "memory of 4096 x 4096, best, beyond image and result"
    yield _row(name, float(found.stdout), "MB", 230)


def _photograph() -> Iterator[dict]:
    """12 megapixels in colour, 8 bits, with estimated noise: time on two threads, and memory."""
    for quality, most in (("fast", 45), ("balanced", 130)):
        command = [sys.executable, __file__, quality]
        found = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        seconds, megabytes = map(float, found.stdout.split())
        name = f"12 megapixels in colour, noise estimated, {quality}"
        yield _row(f"{name}, two threads", seconds, "s", most)
        yield _row(f"{name}, resident memory", megabytes, "MB", 900)


PARTS = {
    "threads": _threads,
    "small": _small,
    "sizes": _sizes,
    "megapixel": _megapixel,
    "estimate": _estimate,
    "missing": _missing,
    "memory": _memory,
    "photograph": _photograph,
}


def _picture(side: int) -> np.ndarray:
    noisy = with_noise(data.camera().astype(float), 25, 0)
    return np.tile(noisy, (4, 4))[:side, :side]


def _runs(
    noisy: np.ndarray, sigma: float | None = 25, channel_axis: int | None = None
) -> dict[str, Callable[[], object]]:
    call = partial(kf.denoise, noisy, sigma, channel_axis=channel_axis)
    return {quality: partial(call, quality=quality) for quality in QUALITIES}


@contextmanager
def _one_core() -> Iterator[None]:
    """This thread, and what it starts, on one core: libraries that are imported count one."""
    if not hasattr(os, "sched_setaffinity"):  # macOS, Windows
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _peak() -> None:
    small = np.zeros((64, 64), np.float32)
    small += np.random.default_rng(0).normal(size=small.shape)
    kf.denoise(small, 1.0, quality="best")  # what is loaded once does not count
    image = np.tile(small, (64, 64))
    out = np.ones_like(image)  # as large as the result, and given back before it is made
    n_tiles = len(list(tiles.tiles_of(image.shape, (8, 8))))
    seen: list[tuple] = []

    def denoise_the_last_two(noisy: list[np.ndarray], *arguments: Any) -> Any:
        seen.append(noisy[0].shape)
        if len(seen) >= n_tiles - 1:
            return stages.denoised(noisy, *arguments)
        return noisy, noisy

    tiles.denoised = denoise_the_last_two  # type: ignore[attr-defined, assignment]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    del out
    kf.denoise(image, 1.0, quality="best")
    assert len(seen) == n_tiles
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print((after - before) / 1024)


def _colour(quality: Quality) -> None:
    """Denoise a photograph of 12 megapixels; print seconds, and the most memory in megabytes."""
    noisy = with_noise(np.tile(data.astronaut(), (6, 8, 1))[:3000, :4000], 15, 0)
    # As a file is read: nothing else is in memory, and the process has not taken more before.
    image = np.empty(noisy.shape, np.uint8)
    np.clip(np.rint(noisy, out=noisy), 0, 255, out=noisy)
    image[:] = noisy
    del noisy
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak from now on
    with at_most_threads(2):
        start = time.perf_counter()
        kf.denoise(image, channel_axis=-1, quality=quality)
        print(time.perf_counter() - start)
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(float(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")))


def _row(name: str, value: float, unit: str, target: float | None = None, **more: Any) -> dict:
    return {"name": name, "value": float(value), "unit": unit, "target": target, **more}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _colour(sys.argv[1])  # type: ignore[arg-type]
    else:
        _peak()
