"""Denoising on the paper's images, beside the results of its table."""

import csv
import itertools

import numpy as np
import pytest
from scipy.io import loadmat

import kappaform as kf
from kappaform.imaging.metrics import psnr
from kappaform.paper.denoiser import published_denoise

pytestmark = pytest.mark.paper

IMAGES = ("Cameraman", "Barbara", "Lena", "MRI", "Couple", "Hill")
LEVELS = (5, 10, 15, 20, 100)


def read(folder, name, level, file):
    contents = loadmat(folder / "img" / name / f"sigma{level}" / f"{file}.mat")
    return next(value for key, value in contents.items() if not key.startswith("__"))


# One cell for each image, and each level of noise; all of them are in benchmarks/bench_quality.py.
@pytest.mark.parametrize(("name", "level"), list(zip(IMAGES, itertools.cycle(LEVELS))))
def test_the_default_beats_the_papers_best(paper_data, paper_facts, name, level):
    with (paper_facts / "table1.csv").open() as file:
        rows = list(csv.DictReader(file))
    clean, noisy = (read(paper_data, name, level, file) for file in ("I7", "I1"))
    score = psnr(clean, kf.denoise(noisy, float(level), value_range=(0, 255)))
    cell = [r for r in rows if r["image"] == name and int(r["sigma"]) == level]
    assert score > max(float(row["psnr_db"]) for row in cell) + 0.5  # measured: 0.56 to 2.93


@pytest.fixture(scope="module")
def replay(paper_facts):
    return dict(np.load(paper_facts / "replay_cameraman20.npz", allow_pickle=False))


def replayed(paper_data, replay, method, noise=0, variant="public"):
    """PSNR and transform for the public run's patches, which are flattened by columns.

    The files hold the noisy image in single precision: `noise` is the seed of one of the images
    that round to it.
    """
    clean, noisy = (read(paper_data, "Cameraman", 20, file).T for file in ("I7", "I1"))
    values = np.ascontiguousarray(noisy, np.float64)
    if noise:
        half = np.spacing(np.abs(noisy)).astype(np.float64) / 2
        values += half * np.random.default_rng(noise).uniform(-1, 1, values.shape)
    positions = iter(replay["patch_index"].T)
    cleaned, _, history = published_denoise(
        values, 20.0, method, (11, 11), positions, variant=variant
    )
    return psnr(clean, cleaned), history[-1].transform


@pytest.mark.parametrize("method", ["log-det", "orthonormal"])
def test_the_preset_learns_what_the_public_code_learns_from_the_same_patches(
    paper_data, replay, method
):
    key = method.replace("-", "")
    score, transform = replayed(paper_data, replay, method)
    # As far as the single precision of the noisy image lets it.
    assert np.abs(transform - replay[f"{key}_transform"]).max() < 1e-6
    assert score == pytest.approx(float(replay[f"{key}_psnr"]), abs=1e-4)


@pytest.mark.parametrize("method", ["log-det", "orthonormal"])
def test_an_image_within_the_rounding_of_the_file_gives_the_public_psnr(paper_data, replay, method):
    # One patch is close enough to the error limit that rounding decides whether it is within.
    expected = float(replay[f"{method.replace('-', '')}_psnr"])
    scores = (replayed(paper_data, replay, method, noise)[0] for noise in (19, 1, *range(30)))
    assert any(abs(score - expected) < 1e-6 for score in scores)


def test_the_conditioned_method_comes_close_to_its_public_run(paper_data, replay):
    # A run is chaotic: images that round to the same file end up to 0.1 dB apart.
    score, _ = replayed(paper_data, replay, "conditioned", variant="reference")
    assert score == pytest.approx(float(replay["conditioned_psnr"]), abs=0.05)
