"""Noise as pictures have it: what estimating its kind and its strength costs in decibels.

PSNR of pictures of scikit-image, and of the paper's where KAPPAFORM_PAPER_DATA says where they are.
"Given" is the same denoiser with the noise that was added. The constants of the estimates were
chosen on pictures of scikit-image and 16 photographs; the paper's pictures had no part in it.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from itertools import chain, islice, product
from typing import Any

import cameras
import numpy as np
from pictures import (
    NO_BM3D,
    Pair,
    Part,
    folder_named_by,
    missing,
    paper_pictures,
    psnr,
    rows_of,
    with_bm3d,
    without_calls,
)
from PIL import Image
from scipy.ndimage import convolve, gaussian_filter
from skimage import color, data

import kappaform as kf
from kappaform.paper.data import SIGMAS

ANY_MACHINE = True
GREY = ["camera", "coins", "moon", "page", "text", "clock", "brick", "grass", "gravel"]
SMOOTH = ["camera", "coins", "moon", "page", "brick", "cat", "rocket"]
GREY += ["astronaut", "coffee", "cat", "rocket", "immunohistochemistry"]
# Electrons of a white pixel, and standard deviation of the read noise in electrons.
SENSORS = {"ccd": (510, 2.5), "scmos": (2000, 1.5), "counter": (60, 0.0), "phone": (150, 4.0)}
SMALL_CHOSEN = ["camera", "coins", "astronaut", "brick", "cat", "rocket", "retina", "cell"]
SMALL_HELD_OUT = ["clock", "coffee", "moon", "gravel"]


def rows(*parts: str) -> Iterator[dict]:
    """Rows as they come, of the chosen parts or all."""
    return rows_of(PARTS[name]() for name in parts or PARTS)


def _silently(function: Callable, *arguments: Any) -> Any:
    """Without the warning that a picture is all texture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


def _part(function: Callable[..., list[dict]], *cases: tuple) -> Part:
    """Rows of one case after another."""
    return Part([(_silently, function, *case) for case in cases], chain.from_iterable)


def _colour() -> Part:
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
    return _part(
        _colour_rows,
        *product(pictures.items(), (10, 20), ("8 bit", "JPEG 95")),
    )


def _colour_rows(picture: tuple[str, np.ndarray], sigma: float, saved: str) -> list[dict]:
    name, clean = picture
    noisy = _eight_bit(kf.add_noise(clean.astype(float), sigma, rng=0))
    noisy = noisy if saved == "8 bit" else _jpeg(noisy, 95)
    options: dict[str, Any] = {"channel_axis": -1, "value_range": (0, 255)}
    found = kf.denoise_with_details(noisy, **options)
    given = kf.denoise(noisy, sigma, **options)
    loss = psnr(clean, given) - psnr(clean, found.image)
    words = f"colour, {name}, sigma {sigma}, {saved}"
    return [_row(words, loss, "dB lost", 0.1, psnr(clean, noisy), found)]


def _shot() -> Part:
    return _part(_shot_rows, *product(("camera", "coins"), (1000, 100, 30, 5, 1)))


def _shot_rows(name: str, peak: int) -> list[dict]:
    clean = getattr(data, name)()
    noise = kf.Shot(255 / peak)
    noisy = kf.add_noise(clean.astype(float), noise=noise, rng=0)
    found, given = kf.denoise_with_details(noisy), kf.denoise(noisy, noise=noise)
    words = f"shot, {name}, peak {peak}"
    before, after, best = (psnr(clean, each) for each in (noisy, found.image, given))
    floor = {"shot, camera, peak 100": 31.3}.get(words)
    written = psnr(clean, _eight_bit(kf.denoise(_eight_bit(noisy), value_range=(0, 255))))
    goal = 29.0 if (name, peak) == ("camera", 30) else None
    return [
        _row(f"{words}, lost by estimating", best - after, "dB lost", 0.1, before, found),
        _row(f"{words}, noise estimated", after, "dB", floor) | _UP,
        _row(f"{words}, noise given", best, "dB", None) | _UP,
        _row(f"{words}, 8 bit", written, "dB", goal) | _UP,
    ]


def _small_shot() -> Part:
    """Crops of 128 and 256 pixels, 8 and 16 bit, of four sensors.

    The constants of the estimate were chosen on the first pictures; the shot noise of the others
    was held out (their white noise was not).
    """
    groups = {"chosen on": SMALL_CHOSEN, "held out": SMALL_HELD_OUT}
    cases = [
        (kind, case)
        for kind, names in groups.items()
        for case in product(names, (128, 256), (8, 16), SENSORS)
    ]

    def rows(results: Iterator[float]) -> Iterator[dict]:
        losses = list(zip(cases, results, strict=True))
        for kind in groups:
            for side in (128, 256):
                found = {c: x for (k, c), x in losses if k == kind and c[1] == side}
                words = f"small shot, {kind}, {side} x {side}, lost by estimating"
                yield _row(
                    f"{words}, mean of {len(found)}", float(np.mean([*found.values()])), "dB", 0.3
                )
                worst = max(found, key=lambda case: found[case])
                yield _row(f"{words}, worst", found[worst], "dB", None) | {"case": str(worst)}
                many = sum(loss > 0.3 for loss in found.values())
                yield _row(f"{words}, cases above 0.3 dB", many, "cases", None)

    return Part([(_silently, _small_shot_loss, *case) for _, case in cases], rows)


def _small_shot_loss(name: str, side: int, bits: int, sensor: str) -> float:
    """What estimating costs; white is 255 or, with an offset of 100, 4180."""
    electrons, read = SENSORS[sensor]
    picture = _grey(name)
    top, left = ((n - side) // 2 for n in picture.shape)
    clean = picture[top : top + side, left : left + side] / 255
    rng = np.random.default_rng(0)
    seen = rng.poisson(clean * electrons) + read * rng.standard_normal(clean.shape)
    white, offset, dtype = (255, 0, np.uint8) if bits == 8 else (4080, 100, np.uint16)
    gain = white / electrons
    noisy = np.clip(np.rint(gain * seen + offset), 0, np.iinfo(dtype).max).astype(dtype)
    options: dict[str, Any] = {"value_range": (0, 255)} if bits == 8 else {}
    noise = kf.Shot(gain, gain * read, offset)
    images = kf.denoise(noisy, **options), kf.denoise(noisy, noise=noise, **options)
    found, given = (psnr(255 * clean, 255 * (image - offset) / white) for image in images)
    return given - found


def _correlated() -> Part:
    return _part(_correlated_rows, ())


def _correlated_rows() -> list[dict]:
    clean = data.camera()[100:356, 100:356]
    rng = np.random.default_rng(0)
    blurred = gaussian_filter(rng.standard_normal((296, 296)), 1)[20:-20, 20:-20]
    noisy = clean + 20 * blurred / blurred.std()
    squares = np.arange(-10, 11) ** 2
    true = 400 * np.exp(-np.add.outer(squares, squares) / 4)
    found = kf.denoise_with_details(noisy)
    given = kf.denoise(noisy, noise=kf.Correlated(autocovariance=true))
    before = psnr(clean, noisy)
    words = "correlated, camera, sigma 20"
    return [
        _row(words, psnr(clean, found.image), "dB", 27.8, before, found) | _UP,
        _row(f"{words}, covariance given", psnr(clean, given), "dB", 28.0, before) | _UP,
    ]


def _bayer() -> Part:
    return _part(_bayer_rows, ("astronaut",), ("coffee",))


def _bayer_rows(name: str) -> list[dict]:
    """A sensor with a mosaic of colours: noise, demosaicing, gamma, JPEG."""
    clean = getattr(data, name)()
    light = (clean / 255) ** 2.2
    rng = np.random.default_rng(0)
    noisy = _jpeg(_eight_bit(255 * _demosaiced(light, rng) ** (1 / 2.2)), 92)
    found = kf.denoise_with_details(noisy, channel_axis=-1, value_range=(0, 255))
    before = psnr(clean, noisy)
    after = psnr(clean, _eight_bit(found.image))
    return [
        _row(f"bayer, {name}, gained", after - before, "dB", 2.3, before, found) | _UP,
        _row(f"bayer, {name}", after, "dB", None) | _UP,
    ]


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


def _cameras() -> Part:
    """Simulated cameras, quality "fast": what estimating costs over the true covariance."""
    found = cameras.cases()

    def rows(results: Iterator[tuple[float, float, float]]) -> Iterator[dict]:
        before, after, best = np.transpose(list(results))
        losses, words = best - after, f"cameras, {len(found)}"
        yield _row(f"{words}, lost by estimating, mean", losses.mean(), "dB", 0.4, before.mean())
        worst = {"case": str(found[int(losses.argmax())])}
        yield _row(f"{words}, lost by estimating, worst", losses.max(), "dB", 1.0) | worst
        below = {"case": str(found[int((after - before).argmin())])}
        yield _row(f"{words}, over noisy, worst", np.min(after - before), "dB", None) | _UP | below

    return Part([(_silently, _camera_psnr, *case) for case in found], rows)


def _camera_psnr(*case: Any) -> tuple[float, float, float]:
    """PSNR of the photograph, with the noise estimated, and with the true one."""
    clean, noisy = cameras.photographed(*case)
    options: dict[str, Any] = {"channel_axis": -1, "value_range": (0, 255), "quality": "fast"}
    given = kf.denoise(noisy, noise=cameras.true_noise(clean, noisy), **options)
    return psnr(clean, noisy), psnr(clean, kf.denoise(noisy, **options)), psnr(clean, given)


def _white() -> Part:
    """White noise: the kind must be found, and sigma no worse than where white was known."""
    pairs, papers, folder = list(_grey_pictures()), [], folder_named_by("KAPPAFORM_PAPER_DATA")
    if folder is not None:
        papers = [(s, *pair) for s in SIGMAS for pair in paper_pictures(folder, s)]
        pairs += [(clean, noisy) for _, clean, noisy in papers]
    calls: list[tuple] = [(_called_white, *pair) for pair in pairs]
    for how in ("given", "estimated"):
        calls += [
            (_psnr_of_eight_bit, clean, noisy, sigma if how == "given" else None)
            for sigma, clean, noisy in papers
        ]

    def rows(results: Iterator) -> Iterator[dict]:
        are_white, losses = zip(*islice(results, len(pairs)), strict=True)
        name = f"white, pictures of {len(pairs)} called otherwise"
        yield _row(name, len(pairs) - sum(are_white), "pictures", 0)
        yield _row("white, kind estimated, worst picture", max(losses), "dB lost", 0.05)
        if not papers:
            yield missing("KAPPAFORM_PAPER_DATA", "the paper's pictures")
            return
        for how, floor in (("given", None), ("estimated", 32.96)):
            mean = np.mean(list(islice(results, len(papers))))
            yield _row(f"white, paper's 30, noise {how}", mean, "dB", floor) | _UP

    return Part([(_silently, *call) for call in calls], rows)


def _called_white(clean: np.ndarray, noisy: np.ndarray) -> tuple[bool, float]:
    """Whether the noise is found to be white, and what that costs where it was known.

    The same noise gives the same picture: only pictures whose estimates differ are denoised.
    """
    found, known = kf.estimate_noise(noisy), kf.estimate_noise(noisy, kind="white")
    assert isinstance(known, kf.White)
    if isinstance(found, kf.White) and found.sigma == known.sigma:
        return True, 0.0
    images = kf.denoise(noisy), kf.denoise(noisy, noise="white")
    found_psnr, known_psnr = (psnr(clean, image) for image in images)
    return isinstance(found, kf.White), known_psnr - found_psnr


def _psnr_of_eight_bit(clean: np.ndarray, noisy: np.ndarray, sigma: float | None) -> float:
    return psnr(clean, kf.denoise(noisy, sigma, value_range=(0, 255)))


def _clean() -> Part:
    """Pictures as they are. Those that are all texture (grass), or have noise, change more."""

    def rows(results: Iterator[tuple[bool, float]]) -> Iterator[dict]:
        found = dict(zip(GREY, results, strict=True))
        n_wrong = sum(not is_white for is_white, _ in found.values())
        yield _row(f"clean pictures of {len(GREY)} called other than white", n_wrong, "pictures", 0)
        words = f"clean pictures, least PSNR of what comes back of {len(SMOOTH)}"
        yield _row(words, min(found[name][1] for name in SMOOTH), "dB", 58.0) | _UP

    return Part([(_silently, _as_it_is, name) for name in GREY], rows)


def _as_it_is(name: str) -> tuple[bool, float]:
    """Whether the noise of a picture is called white, and how much of it is left."""
    clean = _grey(name)
    found = kf.denoise_with_details(clean)
    return isinstance(found.noise, kf.White), psnr(clean, found.image)


def _real_pairs() -> Part:
    """Real photographs, and the mean of many of the same scene: noise is estimated.

    Pairs *_real.JPG and *_mean.JPG in the folder KAPPAFORM_REAL_PAIRS (Xu et al. 2018). The
    constants of the estimate were chosen on 42 of them. CBM3D, if it is asked for, is given the
    standard deviation of each pair.
    """
    folder = folder_named_by("KAPPAFORM_REAL_PAIRS")
    files = sorted(folder.glob("*_real.JPG")) if folder else []
    if not files:
        return without_calls(missing("KAPPAFORM_REAL_PAIRS", "pairs of real photographs"))
    ways = ["noisy", "default", "correlated", "covariance given"]
    ways += ["CBM3D, true sigma"] * with_bm3d()

    def rows(results: Iterator[float]) -> Iterator[dict]:
        values = np.reshape(list(results), (len(ways), len(files)))
        for way, found in zip(ways, values, strict=True):
            goal = 37.8 if way == "default" else None
            yield _row(f"real pairs, mean of {len(files)}, {way}", found.mean(), "dB", goal) | _UP
        worst = float(np.min(values[1] - values[0]))
        yield _row("real pairs, default over noisy, worst pair", worst, "dB", -0.1) | _UP
        if not with_bm3d():
            yield NO_BM3D

    calls = [(_silently, _psnr_of_real, str(file), way) for way in ways for file in files]
    return Part(calls, rows)


def _psnr_of_real(file: str, way: str) -> float:
    noisy, clean = (
        np.array(Image.open(name)).astype(float)
        for name in (file, file.replace("_real.JPG", "_mean.JPG"))
    )
    if way.startswith("CBM3D"):
        from bm3d import bm3d_rgb

        return psnr(clean, np.clip(bm3d_rgb(noisy, float((noisy - clean).std())), 0, 255))
    if way == "noisy":
        return psnr(clean, noisy)
    noise: Any = None if way == "default" else way
    if way == "covariance given":
        noise = cameras.true_noise(clean, noisy)
    return psnr(clean, kf.denoise(noisy, noise=noise, channel_axis=-1, value_range=(0, 255)))


PARTS = {
    "colour": _colour,
    "shot": _shot,
    "small-shot": _small_shot,
    "correlated": _correlated,
    "bayer": _bayer,
    "cameras": _cameras,
    "white": _white,
    "clean": _clean,
    "real-pairs": _real_pairs,
}


# --- Pictures


def _grey(name: str) -> np.ndarray:
    picture = getattr(data, name)()
    return np.rint(255 * color.rgb2gray(picture)) if picture.ndim == 3 else picture.astype(float)


def _grey_pictures() -> Iterator[Pair]:
    for name in GREY:
        clean = _grey(name)[:512, :512]
        for sigma in (3, 5, 10, 20, 50):
            yield clean, kf.add_noise(clean, sigma, rng=1)


def _eight_bit(image: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def _jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality, subsampling=0)
    return np.array(Image.open(file))


_UP = {"better": "higher"}


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
