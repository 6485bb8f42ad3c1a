"""Passes and denoising on a GPU, beside what operations of torch take for the same pass.

Runs only where torch finds a CUDA GPU. The signals are patches of photographs with a little noise,
their means removed. A warm pass sees a transform a little different from the previous one, as it
does while one is learned; times are medians, and include bringing the sums to the host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
from bench_pass import nearby_transforms, two_unions
from skimage import data

import kappaform as kf
from kappaform.engines import engine_for
from kappaform.imaging.options import Quality

CASES = ((8, 6, 20_000_000), (11, 12, 5_000_000), (12, 14, 5_000_000), (16, 26, 5_000_000))
MILLISECONDS = {("default", 8): 5.5, ("tf32", 8): 4.0}
RATIO = 8.0
SIDE, SIGMA = 4096, 20.0
SECONDS: dict[Quality, float] = {"fast": 1.5, "balanced": 3.0, "best": 6.0}
GIVEN_SECONDS = {("fast", "sigma given"): 1.0}
FILLING_SECONDS = 60.0
REPEATS = 7


def rows(*parts: str) -> Iterator[dict]:
    """Rows as they come, of the chosen parts or all: passes for four patch sizes in both
    precisions, of a union, learning, denoising of a large image, filling of its missing pixels."""
    if not find_spec("torch") or not _has_gpu():
        yield {"skipped": "all: torch finds no CUDA GPU here"}
        return
    for name in parts or PARTS:
        yield from PARTS[name]()


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _pass_rows() -> Iterator[dict]:
    for case in CASES:
        yield from _pass_rows_of(*case)


def _pass_rows_of(side: int, n_nonzero: int, n_signals: int) -> list[dict]:
    import torch

    signals = patches(side, n_signals)
    transforms = nearby_transforms(side, REPEATS + 1)
    name = f"pass, {n_signals // 10**6} M x {side**2}, s={n_nonzero}"
    found = []
    for precision, setting in (("default", "highest"), ("tf32", "high")):
        torch.set_float32_matmul_precision(setting)
        engine: Any = engine_for(signals)
        _ = engine.gram  # computed once, not a part of the pass
        engine.run_pass(transforms[0], n_nonzero)  # compiled: that is not counted
        engine._fused._thresholds.zero_()
        cold = _seconds(engine.run_pass, transforms[0], n_nonzero)
        warm = median(_seconds(engine.run_pass, t, n_nonzero) for t in transforms[1:])
        by_torch = min(_seconds(cross_by_torch, signals, t, n_nonzero) for t in transforms[:3])
        goal = MILLISECONDS.get((precision, side))
        found += [
            _row(f"{name}, {precision}, warm", 1e3 * warm, "ms", goal),
            _row(f"{name}, {precision}, first", 1e3 * cold, "ms"),
            _row(f"{name}, {precision}, torch", 1e3 * by_torch, "ms"),
            _row(f"{name}, {precision}, torch / warm", by_torch / warm, "times faster", RATIO)
            | {"better": "higher"},
        ]
    torch.set_float32_matmul_precision("highest")
    gram = _seconds(lambda: engine_for(signals).gram)
    return [*found, _row(f"{name}: look at all signals and gram", 1e3 * gram, "ms")]


def _union_rows() -> Iterator[dict]:
    """A warm pass with four transforms, beside four warm passes with one."""
    import torch

    signals, n_nonzero = patches(8, 20_000_000), 6
    unions, singles = two_unions(8), nearby_transforms(8, REPEATS + 1)
    for precision, setting in (("default", "highest"), ("tf32", "high")):
        torch.set_float32_matmul_precision(setting)
        engine: Any = engine_for(signals)
        engine.run_pass(singles[0], n_nonzero)
        single = median(_seconds(engine.run_pass, t, n_nonzero) for t in singles[1:])
        for union in unions:  # compiled, and warm: that is not counted
            engine.run_union_pass(union, n_nonzero)
        warm = median(
            _seconds(engine.run_union_pass, unions[i % 2], n_nonzero) for i in range(REPEATS)
        )
        name = f"pass with 4 transforms, 20 M x 64, s={n_nonzero}, {precision}"
        yield _row(f"{name}, warm", 1e3 * warm, "ms")
        yield _row(f"{name}, over four passes with one", warm / (4 * single), "of their time", 1.0)
    torch.set_float32_matmul_precision("highest")


def cross_by_torch(signals: Any, transform: np.ndarray, n_nonzero: int) -> Any:
    """The pass as one writes it in torch: product, largest entries, mask, product."""
    import torch

    weights = torch.as_tensor(transform.T, dtype=signals.dtype, device=signals.device)
    cross = torch.zeros_like(weights)
    for block in signals.split(max(1, len(signals) // 10)):
        coefs = block @ weights
        largest = coefs.abs().topk(n_nonzero, dim=1).indices
        codes = torch.zeros_like(coefs).scatter_(1, largest, coefs.gather(1, largest))
        cross += codes.T @ block
    return cross.cpu()


def _learn_rows() -> Iterator[dict]:
    signals = patches(8, 1_000_000)
    for where, some in (("GPU", signals), ("host", signals.cpu().numpy())):
        kf.learn(some[:1000], n_nonzero_coefs=6, max_iter=2)  # compiled: that is not counted
        seconds = _seconds(kf.learn, some, n_nonzero_coefs=6)
        yield _row(f"learn, 1 M x 64, s=6, {where}", seconds, "s")


def _denoise_rows() -> Iterator[dict]:
    import torch

    clean = np.tile(data.camera(), (SIDE // 512, SIDE // 512)).astype(np.float32)
    on_host = torch.from_numpy(kf.add_noise(clean, SIGMA, rng=0))
    noisy = on_host.cuda()
    for quality, goal in SECONDS.items():
        result = kf.denoise_with_details(noisy, SIGMA, quality=quality)  # compiled: not counted
        name = f"denoise {SIDE}x{SIDE} float32, {quality}"
        for words, sigma, options in (
            ("sigma given", SIGMA, {}),
            ("sigma and transform given", SIGMA, {"transform": result.transform}),
            ("noise estimated", None, {}),
        ):
            seconds = _best_of_two(kf.denoise, noisy, sigma, quality=quality, **options)
            target = goal if sigma is None else GIVEN_SECONDS.get((quality, words))
            yield _row(f"{name}, {words}", seconds, "s", target)

    def there_and_back() -> Any:
        denoised: Any = kf.denoise(on_host.cuda(), quality="best")
        return denoised.cpu()

    name = f"denoise {SIDE}x{SIDE} float32, best, host to host, noise estimated"
    yield _row(name, _best_of_two(there_and_back), "s")


def _inpaint_rows() -> Iterator[dict]:
    """Half of a large image is missing, without noise and with it."""
    import torch

    clean = np.tile(data.camera(), (SIDE // 512, SIDE // 512)).astype(np.float32)
    image = torch.from_numpy(clean).cuda()
    mask = torch.from_numpy(np.random.default_rng(1).random(clean.shape) < 0.5).cuda()
    noisy = torch.from_numpy(kf.add_noise(clean, SIGMA, rng=0)).cuda()
    corner = np.s_[:512, :512]
    kf.inpaint(image[corner], mask[corner])  # compiled: that is not counted
    kf.denoise(noisy[corner], SIGMA, mask=mask[corner])
    name = f"{SIDE}x{SIDE} float32, half missing"
    start = time.perf_counter()
    filled: Any = kf.inpaint(image, mask)
    yield _row(f"inpaint {name}", time.perf_counter() - start, "s", FILLING_SECONDS)
    error = float((filled - image).square().mean())
    yield _row(f"inpaint {name}: PSNR", 10 * np.log10(255**2 / error), "dB") | {"better": "higher"}
    seconds = _seconds(kf.denoise, noisy, SIGMA, mask=mask)
    yield _row(f"denoise with mask, {name}", seconds, "s")


def _best_of_two(call: Callable, *arguments: Any, **options: Any) -> float:
    return min(_seconds(call, *arguments, **options) for _ in range(2))


PARTS = {
    "pass": _pass_rows,
    "union": _union_rows,
    "learn": _learn_rows,
    "denoise": _denoise_rows,
    "inpaint": _inpaint_rows,
}


def _row(name: str, value: float, unit: str, target: float | None = None) -> dict:
    return {"name": name, "value": value, "unit": unit, "target": target}


def _seconds(call: Callable, *arguments: Any, **options: Any) -> float:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    call(*arguments, **options)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def patches(side: int, number: int) -> Any:
    """Random patches of photographs on the GPU, with noise of deviation 2, means removed."""
    import torch

    images = [data.camera(), data.moon(), data.coins(), data.brick(), data.grass()]
    generator = torch.Generator("cuda").manual_seed(0)
    signals = torch.empty((number, side * side), device="cuda")
    for part, image in zip(signals.tensor_split(5), images, strict=True):
        pixels = torch.tensor(image, dtype=torch.float32, device="cuda")
        windows = pixels.unfold(0, side, 1).unfold(1, side, 1)
        for chunk in part.split(2**19):
            top, left = (
                torch.randint(size, (len(chunk),), generator=generator, device="cuda")
                for size in windows.shape[:2]
            )
            chunk[...] = windows[top, left].reshape(len(chunk), -1)
            chunk += 2 * torch.randn(chunk.shape, generator=generator, device="cuda")
            chunk -= chunk.mean(1, keepdim=True)
    return signals


def machine() -> str:
    """What the rows were measured on."""
    import torch

    return torch.cuda.get_device_name()
