"""Passes and denoising on a GPU, beside what operations of torch take for the same pass.

Runs only where torch finds a CUDA GPU. The signals are patches of photographs with a little noise,
their means removed. A warm pass sees a transform a little different from the previous one, as it
does while one is learned; times are medians, and include bringing the sums to the host.

    python benchmarks/bench_gpu.py results.json      table on stdout, JSON in the file
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench_pass import nearby_transforms
from run import table
from skimage import data

import kappaform as kf
from kappaform.engines import engine_for

CASES = ((8, 6, 20_000_000), (11, 12, 5_000_000), (12, 14, 5_000_000), (16, 26, 5_000_000))
MILLISECONDS = {("default", 8): 8.0, ("tf32", 8): 4.0}
RATIO = 8.0
SIDE, SIGMA, SECONDS = 4096, 20.0, 1.0
REPEATS = 7


def rows() -> list[dict]:
    """Passes for four patch sizes in both precisions, and denoising of a large image."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    found = [row for case in CASES for row in _pass_rows(*case)]
    return found + _denoise_rows()


def _pass_rows(side: int, n_nonzero: int, n_signals: int) -> list[dict]:
    import torch

    signals = patches(side, n_signals)
    transforms = nearby_transforms(side, REPEATS + 1)
    name = f"pass, {n_signals // 10**6} M x {side**2}, s={n_nonzero}"
    found = []
    for precision, setting in (("default", "highest"), ("tf32", "high")):
        torch.set_float32_matmul_precision(setting)
        engine = engine_for(signals)
        _ = engine.gram  # computed once, not a part of the pass
        engine.run_pass(transforms[0], n_nonzero)  # compiled: that is not counted
        engine._fused._cuts.zero_()
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


def _denoise_rows() -> list[dict]:
    import torch

    clean = np.tile(data.camera(), (SIDE // 512, SIDE // 512)).astype(np.float32)
    noisy = torch.from_numpy(kf.add_noise(clean, SIGMA, rng=0)).cuda()
    found = []
    for quality, goal in (("fast", SECONDS), ("balanced", None)):
        options = {"quality": quality}
        result = kf.denoise_with_details(noisy, SIGMA, **options)  # compiled: that is not counted
        known = options | {"transform": result.transform}
        name = f"denoise {SIDE}x{SIDE} float32, {quality}"
        found += [
            _row(f"{name}, sigma given", _best_of_three(noisy, options), "s", goal),
            _row(f"{name}, sigma and transform given", _best_of_three(noisy, known), "s"),
        ]
    return found


def _best_of_three(noisy: Any, options: dict) -> float:
    return min(_seconds(kf.denoise, noisy, SIGMA, **options) for _ in range(3))


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


def machine() -> dict:
    """What the numbers were measured with."""
    import platform

    import torch
    import triton

    return {
        "gpu": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "versions": {m.__name__: m.__version__ for m in (torch, triton, np)},
        "date": datetime.now(UTC).date().isoformat(),
    }


if __name__ == "__main__":
    measured = rows()
    print(table(measured) if measured else "torch finds no CUDA GPU here.")
    if measured and len(sys.argv) > 1:
        report = {"machine": machine(), "rows": [{"benchmark": "bench_gpu"} | r for r in measured]}
        Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
