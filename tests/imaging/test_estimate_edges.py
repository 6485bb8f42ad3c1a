"""Noise is estimated right where axes, signs and channels could lead astray."""

import io
import logging

import numpy as np
import pytest
from helpers import psnr
from PIL import Image
from scipy.ndimage import gaussian_filter, gaussian_filter1d
from skimage import data

import kappaform as kf
from kappaform import Correlated, Shot, Varying, White

FAST = {"quality": "fast", "patch_size": 5}  # what is found of the noise is the same


def test_an_offset_of_the_values_changes_nothing_of_shot_noise():
    clean = data.camera()[100:260, 100:260].astype(float)
    noisy = kf.add_noise(clean, noise=Shot(2.55, 4.0), rng=0)
    expected = psnr(clean, kf.denoise(noisy, **FAST))
    for shift in (-300.0, -50.0, 1000.0):
        found = kf.denoise_with_details(noisy + shift, **FAST)
        assert isinstance(found.noise, Shot)
        assert psnr(clean, found.image - shift) == pytest.approx(expected, abs=0.1)


def test_values_below_the_offset_are_not_lost():
    noise = Shot(2.0, 3.0, 100.0)
    values = np.linspace(60, 140, 81)[:, np.newaxis]
    assert (np.diff(noise.stabilised(values)[:, 0]) > 0).all()
    assert (np.diff(noise.restored(noise.stabilised(values))[:, 0]) > 0).all()


@pytest.mark.parametrize("shape", [(1100, 2000), (2000, 1100), (700, 700)])
def test_noise_that_neighbours_of_a_row_share_is_that_of_rows(shape, rng):
    noise = gaussian_filter1d(rng.standard_normal(shape), 1.0, axis=1)
    found = kf.estimate_noise(noise, kind="correlated", patch_size=7)
    covariance = found.covariance.reshape(7, 7, 7, 7)
    variance, beside, below = (covariance[3, 3][place] for place in ((3, 3), (3, 4), (4, 3)))
    assert beside > 0.5 * variance
    assert below < 0.1 * variance


def test_photons_of_a_volume_are_found(rng):
    places = np.indices((40, 96, 96)) - np.array([20, 48, 48])[:, None, None, None]
    clean = 5 + 200 * np.exp(
        -np.sum((places / np.array([12, 24, 24])[:, None, None, None]) ** 2, 0)
    )
    found = kf.estimate_noise(rng.poisson(clean).astype(float))
    assert isinstance(found, Shot)
    assert found.gain == pytest.approx(1.0, rel=0.25)


def test_a_channel_without_light_does_not_hide_the_noise_of_the_others(rng):
    clean = data.astronaut()[:160, 140:300].astype(float)
    clean[..., 2] = 0
    noisy = rng.poisson(clean / 8.5) * 8.5
    found = kf.denoise_with_details(noisy, channel_axis=-1, **FAST)
    assert isinstance(found.noise, Shot)
    np.testing.assert_array_equal(found.image[..., 2], 0)
    as_white = kf.denoise(noisy, noise="white", channel_axis=-1, **FAST)
    assert psnr(clean, found.image) > psnr(clean, as_white) + 1


def test_a_constant_channel_stays_as_it_is(rng):
    image = np.full((64, 64, 2), 5.0)
    image[..., 0] = rng.poisson(20, (64, 64))
    cleaned = kf.denoise(image, noise=Shot(1.0), channel_axis=-1)
    np.testing.assert_array_equal(cleaned[..., 1], 5.0)


def test_colours_that_a_jpeg_has_halved_have_correlated_noise():
    clean = data.astronaut()[:192, 140:332]
    noisy = np.clip(np.rint(kf.add_noise(clean, 15, rng=0)), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=90, subsampling=2)
    noisy = np.array(Image.open(file))
    found = kf.denoise_with_details(noisy, channel_axis=-1, **FAST)
    assert isinstance(found.noise, Correlated)
    as_white = kf.denoise(noisy, noise="white", channel_axis=-1, **FAST)
    assert psnr(clean, found.image) > psnr(clean, as_white) + 0.5


@pytest.mark.parametrize("sigma", [0, 10])
def test_grey_that_is_stored_as_colour_has_the_noise_of_grey(sigma):
    grey = kf.add_noise(data.camera()[100:228, 100:228], sigma, rng=0)
    found = kf.estimate_noise(np.stack([grey] * 3, axis=-1), channel_axis=-1)
    assert isinstance(found, White)
    np.testing.assert_allclose(found.sigma, kf.estimate_sigma(grey))


def test_an_offset_above_all_values_is_rejected():
    with pytest.raises(ValueError, match="offset=1000 is above all values"):
        kf.denoise(data.camera()[:64, :64], noise=Shot(1.0, 0.0, 1000.0))


@pytest.mark.parametrize("matrix", [np.ones((1, 1)), 2 * np.eye(3)])
def test_a_correlation_fits_the_channels_and_is_one_of_each_with_itself(matrix):
    with pytest.raises(ValueError, match="correlation"):
        kf.denoise(data.astronaut()[:32, :32], noise=White(5.0, matrix), channel_axis=-1)


@pytest.mark.parametrize("offset", [79, -40])
@pytest.mark.parametrize("gain", [1, 3])
def test_the_offset_of_counts_is_where_no_photon_falls(offset, gain, rng):
    photons = rng.poisson(np.linspace(30, 90, 200)[:, np.newaxis] * np.ones(160))
    found = kf.estimate_noise(gain * (photons + offset))
    assert isinstance(found, Shot)
    assert found.gain == pytest.approx(gain, rel=0.1)
    assert found.offset == pytest.approx(gain * offset, abs=10 * gain)


@pytest.mark.parametrize("sign", [1, -1])
def test_noise_that_varies_goes_on_beyond_the_brightness_that_was_seen(sign, rng):
    ramp = np.linspace(20, 220, 256)[:, np.newaxis, np.newaxis] * np.ones((200, 3))
    noise = gaussian_filter(rng.standard_normal(ramp.shape), (0.8, 0.8, 0))
    image = sign * (ramp + (2 + 0.06 * ramp) * noise / noise.std())
    found = kf.estimate_noise(image, channel_axis=-1, patch_size=6)
    assert isinstance(found.stabiliser, Varying)
    steps = np.diff(found.stabiliser.sigma)  # the first and the last one are beyond what was seen
    assert (steps[:, 0] * steps[:, 1] > 0).all()
    assert (steps[:, -1] * steps[:, -2] > 0).all()


def test_values_near_the_largest_number_have_noise(rng):
    white = rng.uniform(-1, 1, (64, 64)) * 1.79e308
    photons = rng.poisson(np.linspace(1, 900, 90_000).reshape(300, 300)) * 1.5e305
    assert isinstance(kf.estimate_noise(white), White)
    assert isinstance(kf.estimate_noise(photons), Shot)
    with pytest.raises(ValueError, match="near the largest number of float64: scale them"):
        kf.denoise(white, patch_size=4)


# --- What is logged


def logged(caplog, image, **options):
    caplog.clear()
    with caplog.at_level(logging.INFO, "kappaform"):
        kf.denoise(image, patch_size=4, quality="fast", **options)
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_the_estimated_noise_is_logged_and_the_given_one_is_not(caplog):
    noisy = kf.add_noise(data.camera()[100:200, 150:250], 15, rng=0)
    noise = kf.estimate_noise(noisy, kind="white")
    assert noise.evidence.startswith("measured in ")
    expected = f"estimated noise: {noise} (confidence {noise.confidence:.2f}: {noise.evidence})"
    assert logged(caplog, noisy, noise="white") == [("INFO", expected)]
    assert logged(caplog, noisy, sigma=15) == []


@pytest.mark.parametrize("sigma", [0.0, 0.05])
def test_next_to_no_noise_is_logged_as_a_warning(caplog, sigma):
    smooth = 100 + 50 * np.sin(np.hypot(*np.indices((64, 64))) / 9)
    ((first, _), (level, message)) = logged(caplog, kf.add_noise(smooth, sigma), noise="white")
    assert (first, level) == ("INFO", "WARNING")
    assert message.startswith("next to no noise was found (white, sigma 0")
    assert "give sigma or noise" in message
    nothing = "(confidence 1.00: most of the image has no details at all)"
    expected = [("INFO", f"estimated noise: white, sigma 0 {nothing}")]
    assert logged(caplog, np.full((20, 20), 3.0)) == expected


def test_a_doubtful_estimate_is_logged_as_a_warning(caplog):
    clipped = np.clip(kf.add_noise(np.zeros((40, 40)), 20, rng=0), 0, 255)
    movie = {"stack_axis": 0, "movie": True}
    for image, options in ((clipped, {}), (np.stack([clipped] * 5), movie)):
        records = [
            (level, text.partition(":")[0]) for level, text in logged(caplog, image, **options)
        ]
        assert records.count(("WARNING", "the estimated noise is doubtful")) == 1


def test_the_library_prints_nothing_of_its_own_accord(capfd):
    kf.estimate_noise(np.clip(kf.add_noise(np.zeros((40, 40)), 20, rng=0), 0, 255))
    assert capfd.readouterr() == ("", "")
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("kappaform").handlers)


# --- How sure an estimate is


def test_more_details_make_an_estimate_more_certain(rng):
    sides = (12, 64, 200)
    found = [kf.estimate_noise(rng.standard_normal((n, n)), kind="white") for n in sides]
    assert 0 < found[0].confidence < 0.7 < found[1].confidence < found[2].confidence
    assert found[2].confidence > 0.99


def test_an_image_that_is_too_small_is_no_evidence(rng):
    found = kf.estimate_noise(rng.standard_normal((3, 3)))
    assert found.confidence == 0
    assert "too small" in found.evidence


@pytest.mark.filterwarnings("ignore")
def test_noise_that_could_be_texture_is_uncertain():
    found = kf.estimate_noise(data.grass()[:256, :256])
    assert found.confidence <= 0.5
    assert "texture" in found.evidence


def test_a_photograph_with_clear_noise_is_certain(rng):
    noise = gaussian_filter(rng.standard_normal((256, 256, 3)), (0.8, 0.8, 0))
    noisy = np.clip(np.rint(data.astronaut()[:256, 100:356] + 8 * noise / noise.std()), 0, 255)
    found = kf.estimate_noise(noisy, channel_axis=-1)
    assert isinstance(found, kf.Correlated)
    assert found.confidence > 0.8
    assert found.evidence


@pytest.mark.filterwarnings("ignore:the noise could not be told from texture")
def test_slices_that_are_equal_are_estimated_without_a_warning(rng):
    noise = 20 * rng.standard_normal((64, 64))
    one = gaussian_filter(rng.standard_normal((64, 64)), 3) * 300 + noise
    with np.errstate(all="raise", under="ignore"):
        found = kf.estimate_noise(np.stack([one, one], axis=-1))
    assert found.deviations(1, (4, 4, 2)) > 0
