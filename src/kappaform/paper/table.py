"""Table 1 of the paper: three methods on seven images at five levels of noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import kappaform
from kappaform.imaging.published import published_denoise, random_positions
from kappaform.imaging.quality import psnr
from kappaform.learning.methods import Variant
from kappaform.paper.dataset import check_data, read_pair, seed_of
from kappaform.paper.parts import Part, Watch, open_parts, run_parts
from kappaform.paper.printed import IMAGES, METHODS, SIGMAS, printed_table
from kappaform.paper.similarity import downsampled_ssim
from kappaform.threads import n_threads

Choice = TypeVar("Choice")
Row = dict[str, Any]

QUICK_IMAGES, QUICK_SIGMAS = ("Cameraman",), (20, 100)
_SSIM_SIDE = 11  # of its window


@dataclass(frozen=True, eq=False)
class Table:
    """What was computed, beside what the paper prints.

    Attributes
    ----------
    rows : list of dicts, one for each cell that could be computed
        ``image``, ``sigma``, ``method``; ``noise``, "public" or "made" here; ``noisy_psnr``
        and ``noisy_ssim`` of the input; ``psnr`` and ``ssim`` with the paper's and the difference,
        ours minus the paper's; the ``condition_number`` of the last transform; ``run``,
        "full" or "quick".
    seconds : dict from part to seconds
    failures : dict from part to what is wrong with its images
    settings : dict
    """

    rows: list[Row]
    seconds: dict[str, float]
    failures: dict[str, str]
    settings: dict[str, Any]


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
    """Denoise the paper's noisy images with its settings; what `out` holds already is kept.

    The methods see the same training patches of an image, which depend on the seed, the image and
    the level only. `variant` is that of the conditioned method.
    """
    names = chosen(images, QUICK_IMAGES if quick else IMAGES, IMAGES, "image")
    levels = chosen(sigmas, QUICK_SIGMAS if quick else SIGMAS, SIGMAS, "sigma")
    check_data(data)
    settings = {
        "patch_size": patch_size,
        "variant": variant,
        "seed": seed,
        "kappaform": kappaform.__version__,
    }
    folder = open_parts(out, "table1", settings)
    common = {"patch_size": patch_size, "variant": variant, "seed": seed}
    parts, failures = _parts(data, names, levels, common)
    finished = run_parts(denoise_cell, parts, folder, n_workers or n_threads(), watch)
    run = "quick" if quick else "full"
    rows = [beside_the_paper(result, run) for result in finished.results.values()]
    failures |= finished.failures
    return Table(rows, finished.seconds, failures, settings | {"quick": quick})


def chosen(
    wanted: Sequence[Choice] | None, default: Sequence[Choice], known: Sequence[Choice], what: str
) -> list[Choice]:
    """Those of the known that are wanted, in the order of the paper; capitals do not matter."""
    by_name = {str(one).lower(): one for one in known}
    for one in wanted or ():
        if str(one).lower() not in by_name:
            available = ", ".join(map(str, known))
            raise ValueError(f"{what} {one!r} is not in the table: available are {available}.")
    picked = {by_name[str(one).lower()] for one in (wanted or default)}
    return [one for one in known if one in picked]


def _parts(
    data: Path, images: Iterable[str], sigmas: Sequence[int], common: dict[str, Any]
) -> tuple[list[Part], dict[str, str]]:
    """One part for each cell; images are read now, so that what is wrong is known at once."""
    parts: list[Part] = []
    failures: dict[str, str] = {}
    for image in images:
        for sigma in sigmas:
            try:
                pair = read_pair(data, image, sigma)
                _check_size(image, pair.clean.shape, common["patch_size"])
            except (OSError, ValueError) as error:
                failures[f"{image}-sigma{sigma}"] = " ".join(str(error).split())
                continue
            for method in METHODS:
                arguments = {"data": data, "image": image, "sigma": sigma, "method": method}
                cost = _cost(pair.clean.size, sigma, method)
                name = f"{image}-sigma{sigma}-{method}"
                parts.append(Part(name, arguments | common, pair.digest, cost))
    return parts, failures


def _check_size(image: str, shape: tuple[int, ...], patch_size: int) -> None:
    least = max(patch_size, _SSIM_SIDE)
    if min(shape) < least:
        raise ValueError(f"{image} has shape {shape}: patches and SSIM need {least} pixels a side.")


def _cost(n_pixels: int, sigma: int, method: str) -> float:
    """Seconds, roughly: rounds of learning, then one sweep over the image."""
    rounds = (5 if sigma >= 100 else 20) * (0.3 if method == "conditioned" else 0.1)
    return rounds + 1e-5 * n_pixels


def denoise_cell(
    data: Path,
    image: str,
    sigma: int,
    method: str,
    patch_size: int,
    variant: Variant,
    seed: int,
) -> Row:
    """One cell of the table: quality of one method on one image."""
    clean, noisy, made = read_pair(data, image, sigma)
    shape = (patch_size, patch_size)
    rng = np.random.default_rng([seed, seed_of(image), sigma])
    positions = random_positions(noisy.shape, shape, rng)
    cleaned, _, history = published_denoise(
        noisy, float(sigma), method, shape, positions, variant=variant
    )
    return {
        "image": image,
        "sigma": sigma,
        "method": method,
        "noise": "made" if made else "public",
        "noisy_psnr": psnr(clean, noisy),
        "noisy_ssim": downsampled_ssim(clean, noisy),
        "psnr": psnr(clean, cleaned),
        "ssim": downsampled_ssim(clean, cleaned),
        "condition_number": history[-1].condition_number,
    }


def beside_the_paper(result: Row, run: str) -> Row:
    """A row of the table: rounded, so that its differences are those of what is shown."""
    printed = printed_table()[result["image"], result["sigma"], result["method"]]
    reached, similarity = round(result["psnr"], 4), round(result["ssim"], 5)
    return {
        **{name: result[name] for name in ("image", "sigma", "method", "noise")},
        "noisy_psnr": round(result["noisy_psnr"], 4),
        "noisy_ssim": round(result["noisy_ssim"], 5),
        "paper_psnr": printed.psnr,
        "psnr": reached,
        "psnr_difference": round(reached - printed.psnr, 4),
        "paper_ssim": printed.ssim,
        "ssim": similarity,
        "ssim_difference": round(similarity - printed.ssim, 5),
        "condition_number": round(result["condition_number"], 4),
        "run": run,
    }


def summary_of(table: Table) -> dict[str, Any]:
    """Mean and largest differences from the paper, over the cells with public noisy images.

    `gain_over_...` is the mean PSNR of the conditioned method minus that of another one, over the
    images and levels for which there are both; with `paper_`, the same of the paper's figures.
    """
    rows = [row for row in table.rows if row["noise"] == "public"]
    facts: dict[str, Any] = {"cells": len(table.rows), "cells_with_public_noise": len(rows)}
    if not rows:
        return facts
    worst = max(rows, key=lambda row: abs(row["psnr_difference"]))
    facts["mean_absolute_psnr_difference"] = _mean(abs(row["psnr_difference"]) for row in rows)
    facts["mean_absolute_ssim_difference"] = _mean(abs(row["ssim_difference"]) for row in rows)
    facts["worst_cell"] = {
        name: worst[name]
        for name in ("image", "sigma", "method", "psnr_difference", "ssim_difference")
    }
    for other in ("log-det", "orthonormal"):
        for prefix in ("", "paper_"):
            gains = _gains(rows, other, f"{prefix}psnr")
            if gains:
                facts[f"{prefix}gain_over_{other.replace('-', '_')}"] = _mean(gains)
    return facts


def _gains(rows: Iterable[Row], other: str, column: str) -> list[float]:
    values = {(row["image"], row["sigma"], row["method"]): row[column] for row in rows}
    return [
        value - values[image, sigma, other]
        for (image, sigma, method), value in values.items()
        if method == "conditioned" and (image, sigma, other) in values
    ]


def _mean(values: Iterable[float]) -> float:
    return round(float(np.mean(list(values))), 6)
