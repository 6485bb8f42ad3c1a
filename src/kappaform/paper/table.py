"""Table 1 of the paper: three methods on seven images at five levels of noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.metrics import psnr
from kappaform.learning.methods import Variant
from kappaform.paper import data as paper
from kappaform.paper.denoiser import published_denoise, random_positions
from kappaform.paper.run import Part, Watch, run_parts

Choice = TypeVar("Choice")
Cell = dict[str, Any]

_SSIM_SIDE = 256  # approximate side at which images are compared


class Table(NamedTuple):
    """Computed values, next to those printed in the paper."""

    cells: list[Cell]  #: as `denoise_cell` makes them; and ``run``, "full" or "quick"
    summary: dict[str, Any]
    left_out: dict[str, str]  #: errors of the files of an image and level
    settings: dict[str, Any]
    seconds: dict[str, float]


def reproduce_table(
    data: Path,
    out: Path,
    *,
    images: Sequence[str] | None = None,
    sigmas: Sequence[int] | None = None,
    patch_size: int = 11,
    variant: Variant = "public",
    seed: int = 0,
    n_workers: int | None = None,
    quick: bool = False,
    watch: Watch | None = None,
) -> Table:
    """Denoise the paper's noisy images with its settings; finished parts in `out` are reused.

    All methods use the same training patches of an image, which depend on the seed, the image and
    the level only. `variant` is that of the conditioned method.
    """
    names = _chosen(images or (["Cameraman"] if quick else paper.IMAGES), paper.IMAGES, "image")
    levels = _chosen(sigmas or ([20, 100] if quick else paper.SIGMAS), paper.SIGMAS, "sigma")
    paper.check_data(data)
    common = {"patch_size": patch_size, "variant": variant, "seed": seed}
    parts, left_out = [], {}
    for image, sigma in ((image, sigma) for image in names for sigma in levels):
        try:
            clean, noisy, made = paper.read_pair(data, image, sigma)
        except (OSError, ValueError) as error:
            left_out[f"{image}-sigma{sigma}"] = " ".join(str(error).split())
            continue
        for method in paper.METHODS:
            cell = {"image": image, "sigma": sigma, "method": method, "made": made, **common}
            name = f"{image}-sigma{sigma}-{method}"
            parts.append(Part(name, denoise_cell, (clean, noisy), cell))
    results, seconds = run_parts(parts, out, "table1", n_workers, watch)
    cells = [cell | {"run": "quick" if quick else "full"} for cell in results]
    settings = common | {"kappaform": version("kappaform"), "quick": quick}
    return Table(cells, summary_of(cells), left_out, settings, seconds)


def _chosen(wanted: Sequence[Choice], known: Sequence[Choice], what: str) -> list[Choice]:
    """The wanted ones among the known, in the order of the paper; case does not matter."""
    names = {str(one).lower(): one for one in known}
    for one in wanted:
        if str(one).lower() not in names:
            available = ", ".join(map(str, known))
            raise ValueError(f"{what} {one!r} is not in the table: available are {available}.")
    picked = {str(one).lower() for one in wanted}
    return [one for name, one in names.items() if name in picked]


def denoise_cell(
    clean: NDArray,
    noisy: NDArray,
    *,
    image: str,
    sigma: int,
    method: str,
    made: bool,
    patch_size: int,
    variant: Variant,
    seed: int,
) -> Cell:
    """One cell of the table, rounded, with that of the paper and ours minus the paper's.

    ``noise`` is "public" or "made" (simulated). ``condition_number`` is that of the last transform.
    """
    shape = (patch_size, patch_size)
    rng = np.random.default_rng([seed, paper.seed_of(image), sigma])
    positions = random_positions(noisy.shape, shape, rng)
    denoised, _, history = published_denoise(
        noisy, float(sigma), method, shape, positions, variant=variant
    )
    cell: Cell = {"image": image, "sigma": sigma, "method": method}
    cell["noise"] = "made" if made else "public"
    measures = (("psnr", psnr, 4), ("ssim", downsampled_ssim, 5))
    for name, measure, digits in measures:
        cell[f"noisy_{name}"] = round(measure(clean, noisy), digits)
    for name, measure, digits in measures:
        printed = paper.printed_table()[image, sigma, method][name]
        cell[f"paper_{name}"] = printed
        cell[name] = round(measure(clean, denoised), digits)
        cell[f"{name}_difference"] = round(cell[name] - printed, digits)
    return cell | {"condition_number": round(history[-1].condition_number, 4)}


def downsampled_ssim(reference: NDArray, image: NDArray) -> float:
    """Mean SSIM of images with grey levels 0 to 255, as the paper measures it.

    Both are averaged over f × f pixels, f = max(1, round(shorter side / 256)), and every f-th mean
    is used. The Gaussian window of 11 × 11 pixels has standard deviation 1.5 and moves over all
    positions inside the image; the constants are (0.01, 0.03).
    """
    from scipy.ndimage import uniform_filter
    from skimage.metrics import structural_similarity

    factor = max(1, math.floor(min(reference.shape) / _SSIM_SIDE + 0.5))
    # The centre of an even window is the earlier of its two middle pixels; SciPy uses the later.
    origin = -1 if factor % 2 == 0 else 0
    one, other = (
        uniform_filter(array.astype(np.float64), factor, origin=origin)[::factor, ::factor]
        for array in (reference, image)
    )
    # sigma = 1.5 makes the window 11 pixels wide
    window = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    return float(structural_similarity(one, other, data_range=255.0, **window))


def summary_of(cells: Sequence[Cell]) -> dict[str, Any]:
    """Mean and largest differences from the paper, over the cells with public noisy images.

    `gain_over_...` is the mean PSNR of the conditioned method minus that of another one;
    `paper_gain_over_...` is the same for the values of the paper.
    """
    public = [cell for cell in cells if cell["noise"] == "public"]
    facts: dict[str, Any] = {"cells": len(cells), "cells_with_public_noise": len(public)}
    if not public:
        return facts

    def mean(column: str, method: str) -> float:
        return float(np.mean([cell[column] for cell in public if cell["method"] == method]))

    for name in ("psnr", "ssim"):
        differences = [abs(cell[f"{name}_difference"]) for cell in public]
        facts[f"mean_absolute_{name}_difference"] = round(float(np.mean(differences)), 6)
    worst = max(public, key=lambda cell: abs(cell["psnr_difference"]))
    columns = ("image", "sigma", "method", "psnr_difference", "ssim_difference")
    facts["worst_cell"] = {name: worst[name] for name in columns}
    for other in paper.METHODS[1:]:
        for prefix in ("", "paper_"):
            gain = mean(f"{prefix}psnr", "conditioned") - mean(f"{prefix}psnr", other)
            facts[f"{prefix}gain_over_{other.replace('-', '_')}"] = round(gain, 6)
    return facts
