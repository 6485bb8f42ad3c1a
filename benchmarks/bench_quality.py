"""How well pictures are denoised, next to BM3D and to the denoisers of scikit-image.

White noise, sigma given, results clipped to 0..255, PSNR. The paper's pictures are in the folder
KAPPAFORM_PAPER_DATA, photographs (grey PNG) in KAPPAFORM_PHOTOGRAPHS. BM3D is the package of that
name (`pip install bm3d`; it is not free for commercial use). Its rows are stored, and are measured
again only when asked for: `python benchmarks/run.py --bm3d quality`.

Constants were chosen on eight of 16 photographs at sigma 15, 25 and 50, and on the paper's pictures
at sigma 10, 20 and 100; so these are no test of them. Pictures of scikit-image had no part in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, SupportsFloat

import numpy as np
from pictures import (
    NO_BM3D,
    PUBLIC,
    Pair,
    Part,
    folder_named_by,
    missing,
    paper_pictures,
    photographs,
    psnr,
    rows_of,
    with_bm3d,
    with_noise,
    without_calls,
)
from skimage import color, data, restoration

import kappaform as kf
from kappaform.imaging.options import Quality
from kappaform.paper.data import METHODS, SIGMAS, printed_table

ANY_MACHINE = True
QUALITIES: tuple[Quality, ...] = ("fast", "balanced", "best")
PEERS = {"non-local means": "skimage", "total variation": "skimage", "wavelets": "pywt"}
OTHERS = ("camera", "coins", "moon", "brick", "grass", "gravel", "astronaut", "coffee", "cat")
# Means over all pictures and sigmas, in decibels: what was measured, less 0.03.
FLOORS = {
    ("paper's 30", "fast"): 32.52,
    ("paper's 30", "balanced"): 32.96,
    ("paper's 30", "best"): 33.01,
    ("photographs", "fast"): 27.60,
    ("photographs", "balanced"): 28.02,
    ("photographs", "best"): 28.07,
    ("others", "fast"): 29.99,
    ("others", "balanced"): 30.55,
    ("others", "best"): 30.62,
    ("colour", "balanced"): 32.52,
    ("colour", "best"): 32.58,
}


def rows(*parts: str) -> Iterator[dict]:
    """Rows as they come, of the chosen parts or all."""
    if not with_bm3d():
        yield NO_BM3D
    yield from rows_of(PARTS[name]() for name in parts or PARTS)


def _paper() -> Part:
    folder = folder_named_by("KAPPAFORM_PAPER_DATA")
    if folder is None:
        return without_calls(missing("KAPPAFORM_PAPER_DATA", "the paper's pictures"))
    return _compared("paper's 30", {sigma: paper_pictures(folder, sigma) for sigma in SIGMAS})


def _photographs() -> Part:
    folder = folder_named_by("KAPPAFORM_PHOTOGRAPHS")
    if folder is None:
        return without_calls(missing("KAPPAFORM_PHOTOGRAPHS", "photographs"))
    cases = {sigma: photographs(folder, sigma) for sigma in (15, 25, 50)}
    return _compared("photographs", cases)


def _others() -> Part:
    """Pictures of scikit-image, grey and at most 320 x 320."""
    clean = []
    for name in OTHERS:
        image = getattr(data, name)()
        image = 255 * color.rgb2gray(image) if image.ndim == 3 else image.astype(float)
        clean.append(image[:320, :320])
    cases = {s: [(c, with_noise(c, s, i)) for i, c in enumerate(clean)] for s in (15, 25, 50)}
    return _compared("others", cases)


def _colour() -> Part:
    pictures = [getattr(data, name)().astype(float) for name in ("astronaut", "coffee", "cat")]
    noisy = [(c, with_noise(c, 25, i)) for i, c in enumerate(pictures)]
    return _compared("colour", {25: noisy}, ("balanced", "best"), channel_axis=-1)


def _channels() -> Part:
    """Colours together, and each channel on its own: crops of 256 x 256."""
    calls = {}
    for picture, left in (("astronaut", 100), ("coffee", 100)):
        clean = getattr(data, picture)()[:256, left : left + 256].astype(float)
        for sigma in (10, 25, 50):
            noisy = with_noise(clean, sigma, 0)
            for how, axis in (("together", "channel_axis"), ("each on its own", "stack_axis")):
                name = f"channels {how}, {picture}, sigma {sigma}"
                calls[name] = (_score, "balanced", sigma, clean, noisy, {axis: -1})
    return Part([*calls.values()], lambda scores: map(_row, calls, scores))


def _movie() -> Part:
    """One picture that shakes, each frame with noise of its own."""
    steps = np.random.default_rng(0).integers(0, 7, (8, 2))
    frames = [data.camera()[a : a + 160, b + 100 : b + 260] for a, b in steps]
    clean = np.stack(frames).astype(float)
    noisy = with_noise(clean, 25, 0)

    def gain(scores: Iterator[float]) -> Iterator[dict]:
        alone, together = scores
        yield _row("movie over single frames, sigma 25", together - alone, target=1.05)

    hows = ({"stack_axis": 0, "movie": movie} for movie in (False, True))
    return Part([(_score, "balanced", 25, clean, noisy, how) for how in hows], gain)


def _peers() -> Part:
    """Means over the paper's 30 of denoisers of scikit-image, one setting each, and its own."""
    best = [
        max(printed_table()[name, sigma, method]["psnr"] for method in METHODS)
        for name in PUBLIC
        for sigma in SIGMAS
    ]
    printed = _row("paper's 30, mean, the paper's best of three", np.mean(best))
    folder = folder_named_by("KAPPAFORM_PAPER_DATA")
    if folder is None:
        return without_calls(printed, missing("KAPPAFORM_PAPER_DATA", "the paper's pictures"))
    cases: list[tuple] = [(s, *pair, {}) for s in SIGMAS for pair in paper_pictures(folder, s)]
    peers = [peer for peer, package in PEERS.items() if find_spec(package)]

    def means(scores: Iterator[float]) -> Iterator[dict]:
        yield printed
        for peer, package in PEERS.items():
            if peer not in peers:
                yield {"skipped": f"{peer}: {package} is not installed"}
                continue
            each = [next(scores) for _ in cases]
            yield _row(f"paper's 30, mean, {peer}", np.mean(each))

    return Part([(_score, peer, *case) for peer in peers for case in cases], means)


PARTS = {
    "paper": _paper,
    "photographs": _photographs,
    "others": _others,
    "colour": _colour,
    "channels": _channels,
    "movie": _movie,
    "peers": _peers,
}


def _compared(
    name: str,
    cases: dict[int, list[Pair]],
    qualities: tuple[Quality, ...] = QUALITIES,
    **how: Any,
) -> Part:
    """PSNR of each method at each sigma, mean over the pictures; then the mean over all sigmas."""
    methods = [*qualities, "BM3D"] if with_bm3d() else [*qualities]
    groups = [(sigma, method) for sigma in cases for method in methods]

    def means_of(scores: Iterator[float]) -> Iterator[dict]:
        means: dict[str, list[float]] = defaultdict(list)
        for sigma, method in groups:
            each = [round(next(scores), 3) for _ in cases[sigma]]
            means[method].append(float(np.mean(each)))
            yield _row(f"{name}, sigma {sigma}, {method}", means[method][-1], each=each)
        for method, of_sigmas in means.items():
            target = FLOORS.get((name, method))
            yield _row(f"{name}, mean, {method}", np.mean(of_sigmas), target=target)

    calls = [
        (_score, method, sigma, *pair, how) for sigma, method in groups for pair in cases[sigma]
    ]
    return Part(calls, means_of)


def _score(method: str, sigma: float, clean: np.ndarray, noisy: np.ndarray, how: dict) -> float:
    return psnr(clean, np.clip(_denoised(method, sigma, noisy, how), 0, 255))


def _denoised(method: str, sigma: float, noisy: np.ndarray, how: dict) -> np.ndarray:
    for quality in QUALITIES:
        if method == quality:
            return kf.denoise(noisy, sigma, quality=quality, **how)
    if method == "BM3D":
        import bm3d

        return (bm3d.bm3d_rgb if "channel_axis" in how else bm3d.bm3d)(noisy, sigma)
    if method == "non-local means":
        return restoration.denoise_nl_means(
            noisy, patch_size=5, patch_distance=6, h=0.8 * sigma, sigma=sigma, fast_mode=True
        )
    if method == "total variation":
        return restoration.denoise_tv_chambolle(noisy, weight=sigma)
    return restoration.denoise_wavelet(noisy, sigma=sigma, method="BayesShrink")


def _row(name: str, value: SupportsFloat, target: float | None = None, **more: Any) -> dict:
    row = {"name": name, "value": float(value), "unit": "dB", "target": target}
    return row | {"better": "higher"} | more
