"""The images of the paper: where they are looked for, and what is made of them."""

import math
import shutil

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image
from scipy.io import loadmat, savemat

from kappaform.imaging.metrics import psnr
from kappaform.paper.data import clean_pictures, read_pair, signals_of

#: What the paper prints for each level: the PSNR of Barbara, cut off after two decimals.
NOISY_PSNR = {5: 34.15, 10: 28.13, 15: 24.58, 20: 22.12, 100: 8.11}


def test_public_images_are_what_the_files_hold(images):
    home = images / "img" / "Barbara" / "sigma20"
    clean, noisy, made = read_pair(images, "Barbara", 20)
    assert_array_equal(clean, loadmat(home / "I7.mat")["I7"])
    assert_array_equal(noisy, loadmat(home / "I1.mat")["I1"])
    assert (clean.dtype, noisy.dtype, made) == (np.uint8, np.float64, False)


def test_made_noise_has_its_standard_deviation_and_is_neither_rounded_nor_clipped(images):
    savemat(images / "img" / "Man" / "clean" / "I7.mat", {"I7": np.zeros((300, 300), np.uint8)})
    _, noisy, made = read_pair(images, "Man", 20)
    assert made
    assert np.std(noisy) == pytest.approx(20, rel=0.02)
    assert np.mean(noisy < 0) == pytest.approx(0.5, abs=0.02)
    assert np.mean(noisy == np.rint(noisy)) < 0.01
    assert_array_equal(noisy, noisy.astype(np.float32))  # as the public ones


def test_made_noise_depends_on_name_and_level_alone(images):
    once, again, other = (read_pair(images, "Man", sigma).noisy for sigma in (20, 20, 10))
    assert_array_equal(once, again)
    clean = read_pair(images, "Man", 20).clean
    assert not np.allclose((once - clean) / 20, (other - clean) / 10)


def test_clean_images_may_lie_in_the_folders_of_the_levels(images):
    before = read_pair(images, "Man", 20)
    home = images / "img" / "Man"
    shutil.move(home / "clean", home / "sigma20")
    for one, other in zip(read_pair(images, "Man", 20), before, strict=True):
        assert_array_equal(one, other)


def test_a_missing_noisy_image_is_not_made_up_where_others_are_public(images):
    (images / "img" / "Barbara" / "sigma20" / "I1.mat").unlink()
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*I1\.mat'"):
        read_pair(images, "Barbara", 20)


def test_signals_are_the_mean_free_patches_that_do_not_overlap(images):
    grey = np.arange(17 * 30, dtype=np.uint8).reshape(17, 30)
    Image.fromarray(grey).save(images / "Peppers.png")
    pictures = clean_pictures(images)
    assert pictures.keys() == {"barbara", "cameraman", "man", "peppers"}
    signals = signals_of([pictures["man"], pictures["peppers"]])
    assert signals.shape == (25 + 6, 64)
    np.testing.assert_allclose(signals.mean(axis=1), 0, atol=1e-12)
    last = grey[8:16, 16:24].astype(float).ravel()
    np.testing.assert_allclose(signals[-1], last - last.mean())


@pytest.mark.paper
@pytest.mark.parametrize("sigma", NOISY_PSNR)
def test_barbara_has_the_noisy_psnr_that_the_paper_prints(paper_data, sigma):
    clean, noisy, made = read_pair(paper_data, "Barbara", sigma)
    assert not made
    assert math.floor(100 * psnr(clean, noisy)) / 100 == NOISY_PSNR[sigma]
