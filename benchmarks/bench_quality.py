"""How well pictures are denoised, and how long it takes, beside BM3D.

White noise, sigma given, results clipped to 0..255, PSNR. The paper's pictures are in the folder
KAPPAFORM_PAPER_DATA, photographs (grey PNG) in KAPPAFORM_PHOTOGRAPHS: their noise has seeds 500,
501, ... of NumPy's generator, in the order of names. BM3D is the package of that name
(`pip install bm3d`; it is not free for commercial use), if it is there: of each picture the
difference to it is given, and times are compared in one run, on one thread.

Constants were chosen on eight of 16 photographs at sigma 15, 25 and 50, and on the paper's pictures
at sigma 10, 20 and 100; so these are no test of them. Pictures of scikit-image had no part in it.

    python benchmarks/bench_quality.py [paper photographs others colour movie time memory]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from skimage import color, data

import kappaform as kf
from kappaform.paper.data import IMAGES, SIGMAS, read_pair

try:
    import bm3d
except ImportError:
    bm3d = None

QUALITIES = ("fast", "balanced", "best")
OTHERS = ("camera", "coins", "moon", "brick", "grass", "gravel", "astronaut", "coffee", "cat")


def rows() -> list[dict]:
    return list(measured())


def measured(chosen: tuple[str, ...] = ()) -> Iterator[dict]:
    """Rows as they come, of the chosen parts or all."""
    parts = {
        "paper": _paper,
        "photographs": _photographs,
        "others": _others,
        "colour": _colour,
        "movie": _movie,
        "time": _time,
        "memory": _memory,
    }
    for name in chosen or parts:
        yield from parts[name]()


def _paper() -> Iterator[dict]:
    folder = os.environ.get("KAPPAFORM_PAPER_DATA")
    if not folder:
        return
    for sigma in SIGMAS:
        pairs = [read_pair(Path(folder), name, sigma) for name in IMAGES if name != "Man"]
        noisy = [(pair.clean.astype(float), pair.noisy) for pair in pairs]
        yield from _compared(f"paper's six, sigma {sigma}", noisy, sigma)


def _photographs() -> Iterator[dict]:
    folder = os.environ.get("KAPPAFORM_PHOTOGRAPHS")
    if not folder:
        return
    clean = [np.asarray(Image.open(path), float) for path in sorted(Path(folder).glob("*.png"))]
    for sigma in (15, 25, 50):
        noisy = [(c, _with_noise(c, sigma, 500 + i)) for i, c in enumerate(clean)]
        yield from _compared(f"photographs, sigma {sigma}", noisy, sigma)


def _others() -> Iterator[dict]:
    """Pictures of scikit-image, grey and at most 320 x 320."""
    clean = []
    for name in OTHERS:
        image = getattr(data, name)()
        image = 255 * color.rgb2gray(image) if image.ndim == 3 else image.astype(float)
        clean.append(image[:320, :320])
    for sigma in (15, 25, 50):
        noisy = [(c, _with_noise(c, sigma, i)) for i, c in enumerate(clean)]
        yield from _compared(f"others, sigma {sigma}", noisy, sigma)


def _colour() -> Iterator[dict]:
    pictures = [getattr(data, name)().astype(float) for name in ("astronaut", "coffee", "cat")]
    noisy = [(c, _with_noise(c, 25, i)) for i, c in enumerate(pictures)]
    yield from _compared("colour, sigma 25", noisy, 25, ("balanced", "best"), channel_axis=-1)


def _movie() -> Iterator[dict]:
    """One picture that shakes, each frame with noise of its own."""
    steps = np.random.default_rng(0).integers(0, 7, (8, 2))
    clean = np.stack([data.camera()[a : a + 160, b + 100 : b + 260] for a, b in steps]).astype(
        float
    )
    noisy = _with_noise(clean, 25, 0)
    alone = _psnr(clean, kf.denoise(noisy, 25, stack_axis=0))
    together = _psnr(clean, kf.denoise(noisy, 25, stack_axis=0, movie=True))
    yield _row("movie over single frames, sigma 25", together - alone, "dB", 0.5, better="higher")


def _compared(
    name: str,
    pairs: list[tuple[np.ndarray, np.ndarray]],
    sigma: float,
    qualities: tuple[str, ...] = QUALITIES,
    **how: Any,
) -> Iterator[dict]:
    """Mean PSNR of each quality, and of BM3D."""
    methods: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    for quality in qualities:
        methods[quality] = lambda y, q=quality: kf.denoise(y, sigma, quality=q, **how)
    if bm3d is not None:
        theirs = bm3d.bm3d_rgb if "channel_axis" in how else bm3d.bm3d
        methods["BM3D"] = lambda y: theirs(y, sigma)
    for method, clean_up in methods.items():
        scores = [_psnr(clean, clean_up(noisy)) for clean, noisy in pairs]
        each = [round(float(score), 3) for score in scores]
        yield _row(f"{name}, {method}", np.mean(scores), "dB", better="higher", each=each)


def _time() -> Iterator[dict]:
    """One thread, 512 x 512; two threads; time per pixel of smaller and larger pictures."""
    noisy = _with_noise(data.camera().astype(float), 25, 0)
    kf.denoise(noisy[:64, :64], 25)  # kernels are loaded once
    methods = {q: (lambda q=q: kf.denoise(noisy, 25, quality=q)) for q in QUALITIES}
    targets = {"balanced": 0.4, "best": 1.0}
    if bm3d is not None:
        methods["BM3D"] = lambda: bm3d.bm3d(noisy, 25)
    seconds = _seconds(methods, "1")
    unit = seconds.get("BM3D", 1.0)
    for name, value in seconds.items():
        target = targets.get(name) if bm3d else None
        yield _row(f"512 x 512, one thread, {name}", value / unit, "BM3D", target, seconds=value)
    best = {"best": methods["best"]}
    speedup = _seconds(best, "1")["best"] / _seconds(best, "2")["best"]
    yield _row("best, two threads over one", speedup, "x", 1.8, better="higher")
    for side in (256, 512, 1024, 2048):
        tiled = np.tile(noisy, (4, 4))[:side, :side]
        runs = {q: (lambda q=q, y=tiled: kf.denoise(y, 25, quality=q)) for q in QUALITIES}
        for quality, value in _seconds(runs, "2", 3 if side < 1024 else 1).items():
            name = f"{side} x {side}, two threads, {quality}"
            yield _row(name, value / side**2 * 1e6, "s per megapixel")


def _seconds(
    runs: dict[str, Callable[[], object]], threads: str, repeats: int = 3
) -> dict[str, float]:
    """The least time of each, one after another in turn: the speed of a machine varies.

    Of one thread the time of the processor: BM3D takes more threads whatever it is told.
    """
    clock = time.process_time if threads == "1" else time.perf_counter
    before = os.environ.get("KAPPAFORM_NUM_THREADS")
    os.environ["KAPPAFORM_NUM_THREADS"] = threads
    least = dict.fromkeys(runs, float("inf"))
    try:
        for _ in range(repeats):
            for name, run in runs.items():
                start = clock()
                run()
                least[name] = min(least[name], clock() - start)
        return least
    finally:
        del os.environ["KAPPAFORM_NUM_THREADS"]
        if before is not None:
            os.environ["KAPPAFORM_NUM_THREADS"] = before


def _memory() -> Iterator[dict]:
    """Of a process that denoises 4096 x 4096 float32 pixels, beyond image and result."""
    found = subprocess.run([sys.executable, __file__, "peak"], capture_output=True, check=True)
    yield _row(
        "memory of 4096 x 4096, best, beyond image and result", float(found.stdout), "MB", 250
    )


def _peak() -> None:
    small = np.zeros((64, 64), np.float32)
    small += np.random.default_rng(0).normal(size=small.shape)
    kf.denoise(small, 1.0, quality="best")  # what is loaded once does not count
    image = np.tile(small, (64, 64))
    out = np.ones_like(image)  # as large as the result, and given back before it is made
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    del out
    kf.denoise(image, 1.0, quality="best")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print((after - before) / 1024)


def _with_noise(clean: np.ndarray, sigma: float, seed: int) -> np.ndarray:
    return clean + np.random.default_rng(seed).normal(0, sigma, clean.shape)


def _psnr(clean: np.ndarray, found: np.ndarray) -> float:
    return 10 * np.log10(255**2 / np.mean((np.clip(found, 0, 255) - clean) ** 2))


def _row(name: str, value: float, unit: str, target: float | None = None, **more: Any) -> dict:
    return {"name": name, "value": float(value), "unit": unit, "target": target, **more}


if __name__ == "__main__":
    if sys.argv[1:] == ["peak"]:
        _peak()
    else:
        for row in measured(tuple(sys.argv[1:])):
            print(
                f"{row['name']}: {row['value']:.3f} {row['unit']}", row.get("each", ""), flush=True
            )
