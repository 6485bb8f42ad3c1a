"""`kappaform demo`: a photograph with known noise, denoised and explained."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

import kappaform as kf
from kappaform.cli.denoise import compared
from kappaform.cli.io import check_output, progress, saved_figure, say, say_json
from kappaform.cli.models import random_patches

_SIGMA = 20.0
_BOUNDS = (1, 1.25, 1.5, 2, 3, 5, 10)


def demo(arguments: Namespace) -> int:
    from skimage.data import camera

    started = time.perf_counter()
    folder = Path(arguments.folder)
    folder.mkdir(exist_ok=True)
    report, plot = folder / "report.png", folder / "path.png"
    for path in (report, plot):
        check_output(path, ())
    clean = camera()
    noisy = kf.add_noise(clean, _SIGMA, rng=0)
    with progress("denoising") as callback:
        options: dict[str, Any] = {"value_range": (0, 255), "rng": 0, "callback": callback}
        details = kf.denoise_with_details(noisy, _SIGMA, **options)
    patches = random_patches(clean, 8, 10_000, np.random.default_rng(0))
    with progress("path") as callback:
        options = {"n_nonzero_coefs": 6, "max_iter": 30, "tol": 1e-3, "callback": callback}
        table = kf.condition_path(patches[::2], _BOUNDS, validation=patches[1::2], **options)
    with (
        saved_figure(report, kf.plots.plot_denoising(noisy, details, clean)),
        saved_figure(plot, kf.plots.plot_path(table)),
    ):
        pass
    facts: dict[str, Any] = {
        "sigma": _SIGMA,
        "sigma_estimated": kf.estimate_sigma(noisy),
        **compared(clean, noisy, details.image),
        "condition_number": details.condition_number,
        "seconds": round(time.perf_counter() - started, 1),
        "written": [str(report), str(plot)],
    }
    if arguments.json:
        say_json(facts | {"path": table.table})
    else:
        _explain(facts, table)
    return 0


def _explain(facts: dict[str, Any], table: Any) -> None:
    say(f"A photograph with Gaussian noise of deviation {_SIGMA:g}")
    say(f"(estimated from the noisy picture alone: {facts['sigma_estimated']:.2f})\n")
    say("                  before    after")
    say("PSNR (dB)     {psnr_before:10.2f} {psnr_after:8.2f}".format(**facts))
    say("SSIM          {ssim_before:10.4f} {ssim_after:8.4f}\n".format(**facts))
    say(f"condition number of the transform: {facts['condition_number']:.6f}, bound 2\n")
    say("relative errors over the bound, on other patches than were learned from:")
    say("max_condition  sparsification  reconstruction")
    names = ("max_condition", "validation_relative", "validation_reconstruction")
    for row in zip(*(table[name] for name in names), strict=True):
        say("{:13g} {:15.4f} {:15.4f}".format(*row))
    say(f"\n{facts['seconds']} s; drawn: {', '.join(facts['written'])}")
