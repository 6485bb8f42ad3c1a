"""`kappaform demo`: a photograph with known noise, denoised and explained."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

import kappaform as kf
from kappaform.cli import files, messages
from kappaform.cli.words import compared
from kappaform.imaging.patches import random_patches

_SIGMA = 20.0
_BOUNDS = (1, 1.25, 1.5, 2, 3, 5, 10)
_LIMITS: dict[str, Any] = {"n_nonzero_coefs": 6, "max_iter": 30, "tol": 1e-3}


def demo(arguments: Namespace) -> None:
    from skimage.data import camera

    started = time.perf_counter()
    folder = Path(arguments.folder)
    folder.mkdir(exist_ok=True)
    report, plot = folder / "report.png", folder / "path.png"
    for path in (report, plot):  # which replace those of an earlier demonstration
        files.check_output(path, set(), files.FIGURES, overwrite=True)
    clean = camera()
    noisy = kf.add_noise(clean, _SIGMA, rng=0)
    with messages.progress("denoising", "the work") as progress:
        details = kf.denoise_with_details(noisy, _SIGMA, value_range=(0, 255), progress=progress)
    patches = random_patches(clean, 8, 10_000, np.random.default_rng(0), in_order=True)
    with messages.progress("path") as callback:
        options = _LIMITS | {"validation": patches[1::2], "callback": callback}
        table = kf.condition_path(patches[::2], _BOUNDS, **options)
    with (
        files.saved_figure(report, kf.plots.plot_denoising(noisy, details, clean)),
        files.saved_figure(plot, kf.plots.plot_path(table)),
    ):
        pass
    facts: dict[str, Any] = {
        "sigma": _SIGMA,
        "sigma_estimated": kf.estimate_sigma(noisy),
        **compared(clean, noisy, details.image),
        "condition_number": details.condition_number,
        "seconds": round(time.perf_counter() - started, 1),
    }
    if arguments.json:
        messages.say_json(facts | {"path": table.table, "written": [report, plot]})
        return
    messages.say(
        "A photograph with Gaussian noise, denoised. Its grey levels are 0 to 255;\n"
        "sigma is the standard deviation of the noise, in grey levels.\n"
    )
    messages.report(facts, as_json=False)
    messages.say(f"\nerrors on held-out patches over the bound, as drawn in {plot}:")
    errors = ("sparsification", "relative", "reconstruction")
    messages.say("max_condition  sparsification  relative  reconstruction")
    columns = [table["max_condition"], *(table[f"validation_{error}"] for error in errors)]
    for row in zip(*columns, strict=True):
        messages.say("{:13g} {:15.4f} {:9.4f} {:15.4f}".format(*row))
    messages.say(
        "sparsification: what codes leave out of the coefficients, relative to the patches;\n"
        "relative: the same, relative to the coefficients; reconstruction: of patches from codes"
    )
    messages.say(f"\nwritten: {report}, {plot}")
