"""Noise of processed photographs is found, and what is no noise is left alone."""

import io
from functools import cache

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import convolve, gaussian_filter, zoom
from skimage import data

import kappaform as kf
from kappaform.imaging.noise.photographs import Judged, _evidence, _level_curve, mixture_noise
from kappaform.imaging.noise.scale_mixture import fit_spectrum
from kappaform.imaging.noise.wavelets import sample_of

N_COEFS = 63


def samples_of(image):
    return [sample_of(image[..., c]) for c in range(image.shape[-1])]


def noise_in(image):
    return mixture_noise(samples_of(image))[0]


def blurred(shape, width, sigma, rng):
    noise = gaussian_filter(rng.standard_normal(shape), (width, width, 0))
    return sigma * noise / noise.std()


def photograph(sigma=6.0, quality=75, width=0.8):
    """A picture with the noise of interpolated pixels, as a JPEG with halved colours."""
    rng = np.random.default_rng(0)
    clean = gaussian_filter(data.astronaut()[:256, 100:356].astype(float), (1, 1, 0))
    noisy = np.clip(np.rint(clean + blurred(clean.shape, width, sigma, rng)), 0, 255)
    file = io.BytesIO()
    Image.fromarray(noisy.astype(np.uint8)).save(file, "JPEG", quality=quality, subsampling=2)
    return clean, np.array(Image.open(file))


@cache
def noise_of_the_photograph():
    return noise_in(photograph()[1])


def psnr(a, b):
    return 10 * np.log10(255**2 / np.mean((a - b) ** 2))


def test_white_squares_have_a_constant_spectrum_of_their_variance(rng):
    found = fit_spectrum(25 * rng.standard_normal((2000, N_COEFS)) ** 2)
    np.testing.assert_allclose(np.exp(found.log_variances / 2), 5.0, rtol=0.15)
    assert found.spread < 0.15


def test_signal_of_any_energy_does_not_raise_the_noise(rng):
    squares = 25 * rng.standard_normal((2000, N_COEFS)) ** 2
    frequencies = np.hypot(*(np.indices((8, 8)).reshape(2, -1)[:, 1:] / 8))
    energies = np.exp(rng.uniform(0, 8, 1400))[:, np.newaxis]
    signal = np.sqrt(energies) * frequencies**-1.2 * rng.standard_normal((1400, N_COEFS))
    squares[:1400] = (np.sqrt(squares[:1400]) * rng.choice([-1, 1], (1400, N_COEFS)) + signal) ** 2
    found = fit_spectrum(squares)
    np.testing.assert_allclose(found.level, 5.0, rtol=0.15)


def test_a_level_that_differs_from_place_to_place_is_a_spread(rng):
    levels = np.exp(0.4 * rng.standard_normal(3000))[:, np.newaxis]
    found = fit_spectrum((8 * levels * rng.standard_normal((3000, N_COEFS))) ** 2)
    assert found.spread == pytest.approx(0.4, abs=0.1)
    assert found.level == pytest.approx(8.0, rel=0.15)


def test_levels_of_groups_are_distinguished(rng):
    groups = np.repeat([0, 1, 2], 800)
    levels = np.array([0.5, 1.0, 2.0])[groups][:, np.newaxis]
    squares = (8 * levels * rng.standard_normal((2400, N_COEFS))) ** 2
    found = fit_spectrum(squares, groups=groups)
    np.testing.assert_allclose(np.diff(found.log_levels), np.log(2), atol=0.15)


@pytest.mark.parametrize("quality", [75, 95])
def test_the_noise_of_a_jpeg_is_removed_without_being_asked_for(quality):
    """The gain is larger than with the true deviation of the noise, if it is taken for white."""
    clean, noisy = photograph(quality=quality)
    options = {"channel_axis": -1, "patch_size": 5, "quality": "fast", "value_range": (0, 255)}
    found = kf.denoise_with_details(noisy, **options)
    assert isinstance(found.noise, kf.Correlated)
    taken_for_white = kf.denoise(noisy, np.std(noisy - clean, axis=(0, 1)), **options)
    assert psnr(clean, taken_for_white) > psnr(clean, noisy) + 1
    assert psnr(clean, found.image) > psnr(clean, taken_for_white) + 0.4


@pytest.mark.parametrize("name", ["coffee", "ramp"])
def test_blurred_noise_that_channels_do_not_share_is_no_texture(name, rng):
    ramp = np.add.outer(np.linspace(40, 210, 256), np.zeros((256, 3)))
    clean = ramp if name == "ramp" else data.coffee()[:256, :256].astype(float)
    noisy = clean + blurred(clean.shape, 1.0, 20.0, rng)
    found = kf.denoise_with_details(noisy, channel_axis=-1, patch_size=5, quality="fast")
    assert isinstance(found.noise, kf.Correlated)
    assert psnr(clean, found.image) > psnr(clean, noisy) + 3


def test_white_noise_is_no_correlated_noise(rng):
    noisy = kf.add_noise(data.astronaut()[:256, :256].astype(float), 10, rng)
    assert noise_in(noisy) is None


@pytest.mark.parametrize("name", ["astronaut", "coffee", "cat", "immunohistochemistry"])
def test_a_clean_image_has_no_noise(name):
    assert noise_in(getattr(data, name)()[:300, :300]) is None


@pytest.mark.parametrize("name", ["grass", "gravel"])
def test_texture_is_no_noise(name):
    grey = getattr(data, name)()[:256, :256].astype(float)
    tinted = grey[..., np.newaxis] * [1.0, 0.8, 0.6]
    assert noise_in(tinted) is None


@pytest.mark.parametrize("quality", [40, 60, 75])
def test_fur_that_a_jpeg_has_blurred_is_no_noise(quality):
    file = io.BytesIO()
    Image.fromarray(data.cat()[:256, 100:356]).save(file, "JPEG", quality=quality)
    assert noise_in(np.array(Image.open(file))) is None


@pytest.mark.parametrize("width", [0.5, 0.6])
def test_fur_behind_little_noise_is_not_removed(width, rng):
    clean = data.cat()[22:278, 97:353].astype(float)
    noisy = np.clip(np.rint(clean + blurred(clean.shape, width, 4.0, rng)), 0, 255)
    file = io.BytesIO()
    Image.fromarray(noisy.astype(np.uint8)).save(file, "JPEG", quality=90)
    noisy = np.array(Image.open(file))
    found, judged = mixture_noise(samples_of(noisy))
    assert found is None
    assert judged.confidence <= 0.5
    assert judged.evidence.endswith("because it has a direction, as texture has")


def fur_in_noise(n_channels, rng):
    """Fur, and with blurred noise of one channel or of three."""
    clean = data.cat()[22:278, 97:353].astype(float)
    return clean, np.clip(np.rint(clean + blurred((256, 256, n_channels), 0.7, 4.0, rng)), 0, 255)


def test_noise_in_fur_is_as_strong_as_in_its_colours(rng):
    clean, noisy = fur_in_noise(3, rng)
    lowest = np.exp([spectrum[0] for spectrum in noise_in(noisy).spectra])
    assert lowest[0] == pytest.approx(lowest[1:].mean(), rel=1e-6)
    found = kf.denoise_with_details(noisy, channel_axis=-1, patch_size=5, quality="fast")
    assert psnr(clean, found.image) > psnr(clean, noisy) + 1.5
    assert found.noise.confidence <= 0.5
    assert "its colours show noise" in found.noise.evidence


def test_noise_in_fur_that_no_colour_shows_is_left(rng):
    assert noise_in(fur_in_noise(1, rng)[1]) is None


def demosaiced(light):
    """The bilinear interpolation of a Bayer mosaic, behind a gamma curve."""
    rows, columns = np.indices(light.shape[:2]) % 2
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4
    masks = [(rows == 0) & (columns == 0), rows != columns, (rows == 1) & (columns == 1)]
    channels = [
        convolve(light[..., c] * mask, kernel) / convolve(mask * 1.0, kernel)
        for c, mask in enumerate(masks)
    ]
    return np.rint(255 * np.stack(channels, axis=-1) ** (1 / 2.2)).astype(np.uint8)


@pytest.mark.parametrize("name", ["grass", "gravel", "cat"])
def test_colours_that_demosaicing_makes_are_no_noise(name):
    picture = getattr(data, name)()[22:278, 97:353] / 255
    colours = picture if name == "cat" else picture[..., np.newaxis] * [1.0, 0.8, 0.6]
    assert noise_in(demosaiced(colours**2.2)) is None


def test_a_texture_whose_green_hardly_differs_is_no_noise():
    colours = data.gravel()[:256, :256, np.newaxis] / 255 * [1.0, 0.75, 0.5]
    file = io.BytesIO()
    Image.fromarray(demosaiced(colours**2.2)).save(file, "JPEG", quality=98)
    assert noise_in(np.array(Image.open(file))) is None


@pytest.mark.parametrize("name", ["astronaut", "coffee", "cat"])
def test_a_magnified_image_has_no_noise(name):
    small = getattr(data, name)()[100:228, 100:228].astype(float)
    large = np.clip(np.rint(zoom(small, (2, 2, 1), order=3)), 0, 255)
    assert noise_in(large) is None


@pytest.mark.parametrize("factor", [2.0**-12, 2.0**20])
def test_the_noise_scales_with_the_image(factor):
    expected, found = noise_of_the_photograph(), noise_in(factor * photograph()[1].astype(float))
    np.testing.assert_allclose(found.covariance((5, 5)), factor**2 * expected.covariance((5, 5)))


@pytest.mark.parametrize("patch_shape", [(4, 4), (11, 11), (5, 9)])
def test_the_covariance_is_that_of_patches_of_any_shape(patch_shape):
    matrix = noise_of_the_photograph().covariance(patch_shape)
    n = np.prod(patch_shape)
    assert matrix.shape == (3, 3, n, n)
    whole = matrix.transpose(0, 2, 1, 3).reshape(3 * n, 3 * n)
    np.testing.assert_allclose(whole, whole.T, atol=1e-9 * whole.max())
    assert np.linalg.eigvalsh(whole).min() > 0


@pytest.mark.parametrize(
    "image",
    [np.full((64, 64, 3), 7.0), np.zeros((20, 6, 3)), np.eye(64)[..., np.newaxis] * np.ones(3)],
    ids=["flat", "narrow", "grey"],
)
def test_an_image_with_nothing_to_measure_is_no_error(image):
    assert noise_in(image) is None


def test_evidence_that_is_close_to_what_is_needed_is_no_certainty():
    found = fit_spectrum(np.full((3000, N_COEFS), 25.0))
    for gain in (0.68, 0.72):
        evidence = _evidence(Judged(found, gain, 0.7))
        assert 0.5 <= evidence.confidence < 0.6
        assert f"by {gain} nats; 0.70 are needed" in evidence.evidence
    assert _evidence(Judged(found, 1.6, 0.7)).confidence > 0.95
    assert _evidence(Judged(found._replace(n_patches=100, spread=0.5), 1.6, 0.7)).confidence < 0.6


def test_a_level_in_an_image_that_is_mostly_clipped_is_unsure():
    judged = Judged(fit_spectrum(np.full((3000, N_COEFS), 25.0)), 5.0, 0.5)
    assert _evidence(judged, 1.0).confidence > 0.99
    assert "clipped" not in _evidence(judged, 1.0).evidence
    mostly = _evidence(judged, 0.4)
    assert mostly.confidence == pytest.approx(0.7, abs=0.01)
    assert mostly.evidence.endswith("; 60% of the image is clipped")


def curve_of(rng, n_patches, slope):
    """The curve found for noise whose log level is `slope` times the brightness, 0 to 1."""
    means = rng.uniform(0, 1, n_patches)
    levels = 8 * np.exp(slope * means)[:, np.newaxis]
    squares = (levels * rng.standard_normal((n_patches, N_COEFS))) ** 2
    return _level_curve(squares, means, fit_spectrum(squares))


def test_a_level_that_does_not_depend_on_brightness_has_no_curve(rng):
    assert curve_of(rng, 3000, 0.0) is None


@pytest.mark.parametrize(("n_patches", "least", "most"), [(3000, 0.9, 1.05), (400, 0.2, 0.9)])
def test_a_curve_is_as_steep_as_there_is_evidence_for(rng, n_patches, least, most):
    brightness, levels = curve_of(rng, n_patches, 1.0)
    assert least < np.ptp(np.log(levels)) / np.ptp(brightness) < most


def test_noise_is_also_measured_where_some_of_it_is_clipped(rng):
    clean = np.broadcast_to(np.linspace(0, 200, 256)[:, np.newaxis, np.newaxis], (256, 256, 3))
    levels = np.interp(clean, [0, 100], [30, 5])
    noisy = np.clip(clean + levels * blurred(clean.shape, 0.8, 1.0, rng), 0, 255)
    brightness, sigma = noise_in(np.rint(noisy)).stabiliser.parameters.values()
    assert brightness[0] < 40
    assert sigma[0] > 1.1 * sigma[-1]


def test_a_curve_ends_where_patches_do(rng):
    brightness, _ = curve_of(rng, 3000, 1.0)
    assert 0 < brightness[0] < brightness[-1] < 1
