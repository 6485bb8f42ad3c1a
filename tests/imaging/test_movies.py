"""Frames of a movie clean each other."""

import re

import numpy as np
import pytest
from helpers import psnr
from skimage import data

import kappaform as kf
from kappaform.imaging.cleaning import tiles

SIGMA = 25.0
OPTIONS = {"transform": kf.dct_basis((6, 6)), "stack_axis": 0}


def shaking(picture, n_frames, size, top=100, left=150):
    """Frames of a camera that a hand holds: each is a few pixels off."""
    steps = np.random.default_rng(5).integers(-4, 5, (n_frames, 2))
    frames = [picture[top + a :, left + b :][:size, :size] for a, b in steps]
    return np.stack(frames).astype(np.float64)


@pytest.fixture(scope="module")
def clean():
    return shaking(data.camera(), 6, 56)


@pytest.fixture(scope="module")
def noisy(clean):
    return kf.add_noise(clean, SIGMA, rng=0)


@pytest.fixture(scope="module")
def cleaned(noisy):
    return kf.denoise(noisy, SIGMA, movie=True, **OPTIONS)


def test_a_movie_is_denoised_better_than_its_frames(clean, noisy, cleaned):
    frames = kf.denoise(noisy, SIGMA, **OPTIONS)
    assert psnr(clean, cleaned) > psnr(clean, frames) + 0.7  # of two seeds 1.0 and 1.1


def test_a_movie_learns_one_transform(clean, noisy):
    found = kf.denoise_with_details(noisy, SIGMA, stack_axis=0, movie=True, patch_size=6)
    assert len(found.transforms) == 1
    assert found.patch_shape == (1, 6, 6)
    assert found.image.shape == found.sparsity_map.shape == noisy.shape
    assert psnr(clean, found.image) > psnr(clean, noisy) + 8


def test_the_noise_of_a_movie_is_that_of_its_median_frame(noisy):
    found = kf.denoise_with_details(noisy, movie=True, quality="fast", **OPTIONS)
    assert found.sigma == sorted(kf.estimate_sigma(frame) for frame in noisy)[2]  # of six


@pytest.mark.parametrize("number", range(5))
def test_one_bad_frame_does_not_change_the_noise_of_a_movie(clean, number):
    movie = kf.add_noise(clean[:5], 10.0, rng=0)
    for bad in (kf.add_noise(clean[0], 80.0, rng=1), np.full_like(clean[0], 128)):
        movie[number] = bad
        found = kf.denoise_with_details(movie, movie=True, quality="fast", **OPTIONS)
        assert found.sigma == pytest.approx(10, rel=0.25)


@pytest.mark.parametrize("axis", [1, -1])
def test_frames_may_be_along_any_axis(noisy, cleaned, axis):
    moved = np.moveaxis(noisy, 0, axis)
    found = kf.denoise(moved, SIGMA, movie=True, **{**OPTIONS, "stack_axis": axis})
    np.testing.assert_array_equal(np.moveaxis(found, axis, 0), cleaned)


def test_colours_of_a_movie_are_denoised():
    clean = shaking(data.astronaut(), 4, 40, 60, 180)
    noisy = kf.add_noise(clean, SIGMA, rng=0)
    options = {"channel_axis": -1, **OPTIONS}
    frames = kf.denoise(noisy, SIGMA, **options)
    movie = kf.denoise(noisy, SIGMA, movie=True, **options)
    assert movie.shape == noisy.shape
    assert psnr(clean, movie) > psnr(clean, frames) + 0.5


@pytest.mark.parametrize("quality", ["fast", "balanced"])
@pytest.mark.parametrize("shape", [(1, 20, 20), (2, 7, 9), (5, 1, 12)])
def test_short_and_small_movies_are_denoised(shape, quality, rng):
    noisy = 10 * rng.standard_normal(shape)
    found = kf.denoise(noisy, 1.0, stack_axis=0, movie=True, quality=quality)
    assert found.shape == shape
    assert np.isfinite(found).all()


def test_long_movies_are_denoised_in_tiles(noisy, cleaned, monkeypatch):
    monkeypatch.setattr(tiles, "_FRAMES", (3, 2))
    tiled = kf.denoise(noisy, SIGMA, movie=True, **OPTIONS)
    assert 0 < np.sqrt(np.mean((tiled - cleaned) ** 2)) < 0.1 * SIGMA


@pytest.mark.parametrize(
    "kind", [kf.Shot(8.5), kf.Correlated(autocovariance=np.array([[99.0, 220.0, 99.0]]))], ids=str
)
def test_a_movie_may_have_any_noise(clean, kind):
    noisy = np.stack([kf.add_noise(clean[i], noise=kind, rng=i) for i in range(3)])
    found = kf.denoise(noisy, noise=kind, movie=True, **OPTIONS)
    assert psnr(clean[:3], found) > psnr(clean[:3], noisy) + 4


def test_any_number_of_threads_gives_the_same_bits(noisy, cleaned, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "3")
    np.testing.assert_array_equal(kf.denoise(noisy, SIGMA, movie=True, **OPTIONS), cleaned)


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        (np.eye(20), {}, "movie=True needs stack_axis, the axis of the frames."),
        (
            np.ones((3, 9, 9)),
            {"stack_axis": 0, "share": True},
            "share=True has no effect with movie=True, whose frames share a transform already:",
        ),
        (
            np.ones((3, 9, 9)),
            {"stack_axis": 0, "preset": "paper"},
            "preset='paper' with movie=True: the preset denoises each image on its own; leave out",
        ),
        (
            np.ones((5, 9, 9, 9)),
            {"stack_axis": 0},
            "image has shape (5, 9, 9, 9), frames of 3 dimension(s): planes are needed.",
        ),
        # Each of these would be taken for a volume, which is a warning, if it were no movie.
        (np.ones((3, 9, 9)), {}, "movie=True needs stack_axis, the axis of the frames."),
        (np.ones((5, 3, 9, 9)), {"stack_axis": 0}, "frames of 3 dimension(s): planes are needed."),
    ],
)
def test_what_is_no_movie_is_rejected_without_a_warning(image, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kf.denoise(image, 1.0, movie=True, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma": [1.0] * 5}, r"sigma has shape \(5,\), and a movie has one noise for all"),
        ({"noise": [kf.White(1.0)] * 5}, "noise has 5 entries, and a movie has one noise for all"),
    ],
)
def test_frames_have_no_noise_of_their_own(options, message):
    with pytest.raises(ValueError, match=f"movie=True: {message} its frames: give one, or one"):
        kf.denoise(np.ones((5, 9, 9)), stack_axis=0, movie=True, **options)


@pytest.mark.parametrize("movie", [True, False])
def test_the_first_frame_that_is_not_finite_is_named(movie):
    frames = np.ones((5, 9, 9))
    frames[3, 2, 2] = np.nan
    with pytest.raises(ValueError, match=r"NaN or inf .*first in image 3 of the stack \(counted"):
        kf.denoise(frames, stack_axis=0, movie=movie)


def test_a_movie_of_dask_is_rejected():
    da = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match=re.escape("in memory only, image.compute()")):
        kf.denoise(da.ones((3, 9, 9)), 1.0, stack_axis=0, movie=True)
