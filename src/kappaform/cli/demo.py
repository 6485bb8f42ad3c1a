"""`kappaform demo`: a photograph with known noise, denoised and explained."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

import kappaform as kf
from kappaform.cli.console import progress, say, say_json
from kappaform.cli.denoise import compared
from kappaform.cli.sources import random_patches, save_figure

_SIGMA = 20.0
_BOUNDS = (1, 1.25, 1.5, 2, 3, 5, 10)


def demo(arguments: Namespace) -> int:
    from skimage.data import camera

    started = time.perf_counter()
    folder = Path(arguments.folder)
    folder.mkdir(exist_ok=True)
    clean = camera()
    noisy = kf.add_noise(clean, _SIGMA, rng=0)
    with progress("denoising") as callback:
        details = kf.denoise_with_details(
            noisy, _SIGMA, value_range=(0, 255), rng=0, callback=callback
        )
    measured = compared(clean, noisy, details.image)
    report, plot = folder / "report.png", folder / "path.png"
    save_figure(report, kf.plots.plot_denoising(noisy, details, clean))
    path = _path(clean)
    save_figure(plot, kf.plots.plot_path(path))
    facts: dict[str, Any] = {
        "sigma": _SIGMA,
        "sigma_estimated": kf.estimate_sigma(noisy),
        **measured,
        "condition_number": details.condition_number,
        "seconds": round(time.perf_counter() - started, 1),
        "written": [str(report), str(plot)],
    }
    if arguments.json:
        say_json(facts | {"path": path.table})
    else:
        _explain(facts, path)
    return 0


def _explain(facts: dict[str, Any], path: Any) -> None:
    say(f"A photograph with Gaussian noise of deviation {_SIGMA:g}")
    say(f"(estimated from the noisy picture alone: {facts['sigma_estimated']:.2f})\n")
    say("                  before    after")
    say("PSNR (dB)     {psnr_before:10.2f} {psnr_after:8.2f}".format(**facts))
    say("SSIM          {ssim_before:10.4f} {ssim_after:8.4f}\n".format(**facts))
    say(f"condition number of the transform: {facts['condition_number']:.6f}, bound 2\n")
    say("relative errors over the bound, on other patches than were learned from:")
    say("max_condition  sparsification  reconstruction")
    names = ("max_condition", "validation_relative", "validation_reconstruction")
    for row in zip(*(path[name] for name in names), strict=True):
        say("{:13g} {:15.4f} {:15.4f}".format(*row))
    say(f"\n{facts['seconds']} s; drawn: {', '.join(facts['written'])}")


def _path(image: np.ndarray) -> Any:
    """Trade-off curve of the patches of a picture, half of them for validation."""
    patches = random_patches(image, 8, 10_000, np.random.default_rng(0))
    with progress("path") as callback:
        return kf.condition_path(
            patches[::2],
            _BOUNDS,
            n_nonzero_coefs=6,
            validation=patches[1::2],
            max_iter=30,
            tol=1e-3,
            callback=callback,
        )
