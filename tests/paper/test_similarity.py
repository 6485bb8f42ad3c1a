"""The similarity that the paper's table shows."""

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose
from skimage import data

from kappaform.imaging.published import published_denoise
from kappaform.paper.dataset import read_pair
from kappaform.paper.similarity import downsampled_ssim


# From 384 pixels a side on means of 2 by 2 are compared, from 640 on of 3 by 3.
@pytest.mark.parametrize("shape", [(11, 11), (33, 40), (384, 384), (640, 640)])
def test_it_is_the_mean_over_all_windows_of_the_downsampled_pictures(shape, rng):
    clean = np.resize(data.camera(), shape)
    noisy = clean + 20 * rng.standard_normal(shape)
    assert_allclose(downsampled_ssim(clean, noisy), naive.downsampled_ssim(clean, noisy), rtol=1e-9)


def test_equal_pictures_have_similarity_1():
    assert downsampled_ssim(data.camera(), data.camera()) == 1


@pytest.mark.parametrize(("one", "other"), [((10, 40), (10, 40)), ((20, 20), (20, 21))])
def test_pictures_that_cannot_be_compared_are_refused(one, other):
    with pytest.raises(ValueError, match="the same size, of at least 11 pixels a side"):
        downsampled_ssim(np.zeros(one), np.zeros(other))


@pytest.mark.paper
@pytest.mark.parametrize("method", ["log-det", "orthonormal"])
def test_a_replayed_run_has_the_similarity_of_the_public_code(paper_data, paper_facts, method):
    replay = np.load(paper_facts / "replay_cameraman20.npz", allow_pickle=False)
    clean, noisy, _ = read_pair(paper_data, "Cameraman", 20)
    values = np.ascontiguousarray(noisy.T)  # their patches are flattened by columns
    positions = iter(replay["patch_index"].T)
    cleaned, _, _ = published_denoise(values, 20.0, method, (11, 11), positions)
    expected = float(replay[f"{method.replace('-', '')}_ssim"])
    assert downsampled_ssim(clean.T, cleaned) == pytest.approx(expected, abs=1e-5)
