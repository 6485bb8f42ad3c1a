"""What the paper prints: its settings, and its Table 1."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

IMAGES = ("Barbara", "Cameraman", "Couple", "Hill", "Lena", "Man", "MRI")  # MRI: its "brain"
SIGMAS = (5, 10, 15, 20, 100)
METHODS = ("conditioned", "log-det", "orthonormal")

#: Its PSNR of the noisy images, one for each sigma: that of Barbara, cut off after two decimals.
NOISY_PSNR = {5: 34.15, 10: 28.13, 15: 24.58, 20: 22.12, 100: 8.11}

#: Of Figures 1 and 2: images, numbers of nonzeros and weights of the log-det penalty.
FIGURE_IMAGES = ("barbara", "peppers", "lena")
SPARSITIES = (6, 8)
WEIGHTS = (2.1e-5, 2.1e-6, 2.1e-8, 1e-9)


class Quality(NamedTuple):
    """PSNR in decibels, and SSIM."""

    psnr: float
    ssim: float


@cache
def printed_table() -> dict[tuple[str, int, str], Quality]:
    """Table 1, for patches of 11 by 11 pixels: quality of each image, sigma and method."""
    with files("kappaform.paper").joinpath("table1.csv").open(encoding="utf-8") as file:
        return {
            (row["image"], int(row["sigma"]), row["method"]): Quality(
                float(row["psnr_db"]), float(row["ssim"])
            )
            for row in csv.DictReader(file)
        }
