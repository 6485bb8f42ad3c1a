"""Denoising on the paper's images, beside the results of its table."""

import csv

import numpy as np
import pytest
from scipy.io import loadmat

import kappaform as kf
from kappaform.imaging.published import published_denoise
from kappaform.imaging.quality import psnr

pytestmark = pytest.mark.paper

IMAGES = ("Cameraman", "Barbara", "Lena", "MRI", "Couple", "Hill")
LEVELS = (5, 10, 15, 20, 100)


def read(folder, name, level, file):
    contents = loadmat(folder / "img" / name / f"sigma{level}" / f"{file}.mat")
    return next(value for key, value in contents.items() if not key.startswith("__"))


def test_the_default_beats_the_papers_best_in_every_cell(paper_data, paper_facts):
    with (paper_facts / "table1.csv").open() as file:
        rows = list(csv.DictReader(file))
    scores = []
    for name in IMAGES:
        for level in LEVELS:
            clean, noisy = (read(paper_data, name, level, file) for file in ("I7", "I1"))
            score = psnr(clean, kf.denoise(noisy, float(level), value_range=(0, 255)))
            cell = [r for r in rows if r["image"] == name and int(r["sigma"]) == level]
            assert score > max(float(row["psnr_db"]) for row in cell)
            scores.append(score)
    assert np.mean(scores) >= 32.24


@pytest.mark.parametrize(
    ("method", "tolerance"), [("log-det", 1e-4), ("orthonormal", 1e-4), ("conditioned", 0.05)]
)
def test_the_preset_gives_what_the_public_code_gives_for_the_same_patches(
    paper_data, paper_facts, method, tolerance
):
    replay = np.load(paper_facts / "replay_cameraman20.npz", allow_pickle=False)
    clean, noisy = (read(paper_data, "Cameraman", 20, file).T for file in ("I7", "I1"))
    values = np.ascontiguousarray(noisy, np.float64)  # their patches are flattened by columns
    positions = iter(replay["patch_index"].T)
    cleaned, _, _ = published_denoise(values, 20.0, method, (11, 11), positions)
    expected = float(replay[f"{method.replace('-', '')}_psnr"])
    assert psnr(clean, cleaned) == pytest.approx(expected, abs=tolerance)
