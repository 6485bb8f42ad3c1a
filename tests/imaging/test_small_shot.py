"""Shot noise of small images: a line of the variance over brightness, by its likelihood."""

import numpy as np
import pytest
from helpers import psnr
from scipy.ndimage import gaussian_filter
from skimage import data
from skimage.color import rgb2gray

from kappaform import Shot, White, add_noise, denoise, estimate_noise
from kappaform.imaging.noise.shot import blocks_of, fit_line
from kappaform.imaging.noise.wavelets import sample_of

CROPS = {
    "camera": np.s_[192:320, 192:320],
    "astronaut": np.s_[192:320, 192:320, 1],
    "coins": np.s_[87:215, 128:256],
}


def crop(name):
    return getattr(data, name)()[CROPS[name]].astype(float)


def photographed(clean, full, read, scale, rng):
    """Values of a sensor that counts `full` electrons where an image has 255."""
    electrons = rng.poisson(clean / 255 * full) + read * rng.standard_normal(clean.shape)
    return np.clip(np.rint(scale * electrons), 0, None)


@pytest.mark.parametrize("name", CROPS)
@pytest.mark.parametrize(("full", "read"), [(510, 2.5), (60, 0.0)])
def test_shot_noise_of_128_by_128_pixels_is_found(name, full, read, rng):
    clean, scale = crop(name), 255 / full
    noisy = photographed(clean, full, read, scale, rng)
    found = estimate_noise(noisy)
    assert isinstance(found, Shot)
    given = Shot(scale, read * scale)
    for level in np.quantile(clean, (0.3, 0.9)):
        at = np.array([level])
        assert found.level(at).item() == pytest.approx(given.level(at).item(), rel=0.25)


def test_a_small_image_is_as_clean_as_with_its_noise_given(rng):
    clean, options = crop("camera"), {"quality": "fast", "patch_size": 7}
    noisy = photographed(clean, 510, 2.5, 0.5, rng)
    found = denoise(noisy, **options)
    given = denoise(noisy, noise=Shot(0.5, 1.25), **options)
    white = denoise(noisy, noise="white", **options)
    assert psnr(clean, found) > psnr(clean, given) - 0.3
    assert psnr(clean, found) > psnr(clean, white) + 1


@pytest.mark.parametrize("sigma", [5, 10, 20])
@pytest.mark.parametrize("name", ["astronaut", "coins"])
def test_white_noise_of_small_images_stays_white(name, sigma):
    found = estimate_noise(add_noise(crop(name), sigma, rng=1))
    assert isinstance(found, White)
    assert 0 < found.confidence <= 1


@pytest.mark.parametrize("offset", [0, 800])
def test_counts_are_counted_however_many_levels_they_have(offset, rng):
    counts = rng.poisson(crop("camera") * 4)
    found = estimate_noise((8 * counts + offset).astype(np.uint16))
    assert isinstance(found, Shot)
    assert (found.gain, found.read_noise) == (8, 0)
    assert found.evidence.startswith("values are as far apart as the photons")


def test_values_with_a_common_step_that_is_not_their_gain_are_not_counted(rng):
    # 12 bits of a sensor, shifted by four: a photon is not a step.
    noisy = 16 * photographed(crop("camera"), 510, 2.5, 8.0, rng)
    found = estimate_noise(noisy.astype(np.uint16))
    assert isinstance(found, Shot)
    assert found.gain == pytest.approx(128, rel=0.25)


def test_texture_of_bright_places_is_not_shot_noise():
    clean = np.rint(255 * rgb2gray(data.coffee()))[128:256, :128]
    found = estimate_noise(add_noise(clean, 5, rng=1))
    assert isinstance(found, White)
    assert "but not that of the quietest details" in found.evidence
    assert found.alternative == "shot"


def test_the_evidence_names_what_is_needed(rng):
    found = estimate_noise(photographed(crop("astronaut"), 2000, 1.5, 2.0, rng))
    assert "explains the image better than constant noise by" in found.evidence
    assert found.confidence > 0.9


# --- The line


def line_of(image):
    blocks = blocks_of(sample_of(image), low=False, high=False)
    constant = fit_line(blocks)
    return blocks, constant, fit_line(blocks, start=constant)


def test_the_line_is_that_of_the_noise(rng):
    ramp = np.linspace(10, 250, 256)[:, np.newaxis] * np.ones(256)
    image = ramp + np.sqrt(4 + 0.5 * ramp) * rng.standard_normal(ramp.shape)
    sample = sample_of(image)
    blocks, constant, line = line_of(image)
    unit = 2.0**sample.exponent
    assert line.slope * unit == pytest.approx(0.5, rel=0.1)
    assert line.log_likelihood > constant.log_likelihood + 100
    at = np.array([0.2, 0.8]) * 250 / unit
    np.testing.assert_allclose(
        line.variances(at) * unit**2, 4 + 0.5 * 250 * np.array([0.2, 0.8]), rtol=0.1
    )
    assert blocks.n_blocks == 1024


def test_a_line_is_never_less_likely_than_the_constant_it_starts_from(rng):
    for name in CROPS:
        _, constant, line = line_of(add_noise(crop(name), 10, rng=rng))
        assert line.log_likelihood > constant.log_likelihood - 0.1


def test_texture_that_is_brighter_does_not_tilt_the_line(rng):
    ramp = np.linspace(20, 220, 256)[:, np.newaxis] * np.ones(256)
    texture = gaussian_filter(rng.standard_normal((256, 256)), 0.8)
    image = ramp + 0.05 * ramp * texture / texture.std() + 5 * rng.standard_normal(ramp.shape)
    blocks, _, line = line_of(image)
    dark, bright = np.sqrt(line.variances(blocks.means[[0, -1]]))
    assert bright < 1.25 * dark


@pytest.mark.parametrize("shape", [(7, 300), (40, 40), (5, 5, 5)])
def test_few_blocks_are_no_line(shape, rng):
    image = 100 + rng.standard_normal(shape)
    assert blocks_of(sample_of(image[:30, :30]), low=True, high=True) is None
