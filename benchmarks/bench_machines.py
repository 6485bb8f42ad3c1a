"""How far results differ between machines, as different CPUs of one kind show it.

The kernels of BLAS and of numba depend on the CPU. Other CPUs are imitated here: OpenBLAS uses the
kernels of an older or a different one (OPENBLAS_CORETYPE), numba compiles for a generic CPU, each
in a process with a compile cache of its own. A result then differs by the order of its sums and by
fused multiplications, as it does between real machines. Pictures are crops of 256 x 256 pixels of
scikit-image with white noise of standard deviation 20, which is given; signals are 8 x 8 patches.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pictures import in_parallel, psnr
from skimage import data

import kappaform as kf
from kappaform.imaging.options import Quality

ANY_MACHINE = True
GENERIC = {"NUMBA_CPU_NAME": "generic"}
CPUS = {
    "this CPU": {},
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell", **GENERIC},
    "Zen": {"OPENBLAS_CORETYPE": "Zen"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "Prescott": {"OPENBLAS_CORETYPE": "Prescott", **GENERIC},
}
SIGMA = 20.0
QUALITIES: tuple[Quality, ...] = ("fast", "balanced", "best")
PICTURES = {
    "camera": lambda: data.camera()[100:356, 100:356],
    "astronaut": lambda: data.astronaut()[:256, 100:356],
    "brick": lambda: data.brick()[:256, :256],
}
METHODS = {
    "orthonormal": kf.Orthonormal(),
    "conditioned, bound 2": kf.Conditioned(2.0),
    "conditioned, bound 10": kf.Conditioned(10.0),
    "conditioned, bound 100": kf.Conditioned(100.0),
}
MOST = {"PSNR": 0.01, "loss": 0.5}  # dB; %


def rows() -> Iterator[dict]:
    """Spread of PSNR, pixels and losses over the CPUs that can be imitated here."""
    found: dict[str, dict[str, np.ndarray]] = {}
    each = in_parallel(_of_another_process, ((settings,) for settings in CPUS.values()))
    for cpu, result in zip(CPUS, each, strict=True):
        if isinstance(result, int):
            yield {"skipped": f"{cpu}: the process ended with {result}"}
        else:
            found[cpu] = result
    n_equal = sum(
        all(np.array_equal(found["this CPU"][key], each[key]) for key in each)
        for each in list(found.values())[1:]
    )
    yield _row("imitated CPUs that return the bits of this one", n_equal, f"of {len(found) - 1}")
    for quality in QUALITIES:
        yield from _pixel_rows(quality, found)
    for method in METHODS:
        losses = np.array([each[method][-1] for each in found.values()])
        spread = 100 * np.ptp(losses) / losses.min()
        name = f"spread of the final loss, {method}"
        yield _row(name, spread, "%", MOST["loss"], each=losses.tolist())


def _pixel_rows(quality: str, found: dict[str, dict[str, np.ndarray]]) -> Iterator[dict]:
    spreads, largest = {}, 0.0
    for picture, make in PICTURES.items():
        clean = make().astype(float)
        images = [each[f"{picture}, {quality}"] for each in found.values()]
        spreads[picture] = float(np.ptp([psnr(clean, image) for image in images]))
        largest = max(largest, float(np.ptp(images, axis=0).max()))
    worst = max(spreads.values())
    yield _row(f"spread of PSNR, {quality}, worst picture", worst, "dB", MOST["PSNR"], each=spreads)
    yield _row(f"largest difference of a pixel, {quality}", largest, "of 255 grey levels")


def _of_another_process(settings: dict[str, str]) -> dict[str, np.ndarray] | int:
    """Results by their names, or the status with which the process failed."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder, **settings}
        output = Path(folder, "results.npz")
        command = [sys.executable, __file__, str(output)]
        if status := subprocess.run(command, env=environment, check=False).returncode:
            return status
        with np.load(output) as arrays:
            return dict(arrays)


def results() -> dict[str, np.ndarray]:
    """What one machine returns: denoised pictures, and the loss after every iteration."""
    found: dict[str, np.ndarray] = {}
    for picture, make in PICTURES.items():
        noisy = kf.add_noise(make(), SIGMA, rng=0)
        axis = -1 if noisy.ndim == 3 else None
        for quality in QUALITIES:
            image = kf.denoise(noisy, SIGMA, quality=quality, channel_axis=axis)
            found[f"{picture}, {quality}"] = image
    signals = kf.extract_patches(data.camera().astype(float), (8, 8))[::25]
    signals = signals - signals.mean(axis=1, keepdims=True)
    for name, method in METHODS.items():
        found[name] = np.asarray(kf.learn(signals, method, n_nonzero_coefs=6).loss)
    return found


def _row(name: str, value: float, unit: str, target: float | None = None, **more: object) -> dict:
    return {"name": name, "value": float(value), "unit": unit, "target": target, **more}


if __name__ == "__main__":
    found: dict[str, Any] = results()
    np.savez(sys.argv[1], **found)
