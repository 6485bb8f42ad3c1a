"""The kind of noise of an image is found, and its size; white, unless there is no doubt."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from skimage import data
from threadpoolctl import threadpool_limits

from kappaform import (
    Correlated,
    Shot,
    Varying,
    White,
    add_noise,
    dct_basis,
    estimate_noise,
    estimate_sigma,
    extract_patches,
)

RAMP = np.linspace(0.02, 1, 256)[:, np.newaxis] * np.ones(200)


def picture(name):
    return getattr(data, name)().astype(np.float64)


def blurred_noise(shape, width, sigma, rng):
    noise = gaussian_filter(rng.standard_normal(shape), width)
    return sigma * noise / noise.std()


def level_of(noise, mean=0.0):
    return noise.level(np.array([float(mean)])).item()


# --- White


@pytest.mark.parametrize("shape", [(200, 150), (30, 1000), (24, 30, 36)])
@pytest.mark.parametrize("sigma", [0.01, 300.0])
def test_pure_white_noise_is_white(shape, sigma, rng):
    found = estimate_noise(add_noise(np.full(shape, 3 * sigma), sigma, rng))
    assert isinstance(found, White)
    assert found.sigma == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("sigma", [5, 10, 20])
@pytest.mark.parametrize("name", ["camera", "coins", "page", "moon", "brick"])
def test_images_with_white_noise_are_called_white_without_a_warning(name, sigma):
    found = estimate_noise(add_noise(picture(name), sigma))
    assert isinstance(found, White)
    assert found.sigma == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize(("name", "sigma"), [("astronaut", 10), ("coffee", 20), ("cat", 5)])
def test_colours_with_white_noise_are_called_white_without_a_warning(name, sigma):
    # Smaller patches than the default: as good for the verdict, and faster.
    noisy = add_noise(picture(name)[:250, :250], sigma)
    found = estimate_noise(noisy, channel_axis=-1, patch_size=7)
    assert isinstance(found, White)
    np.testing.assert_allclose(found.sigma, sigma, rtol=0.1)


def test_of_white_noise_sigma_is_that_of_estimate_sigma():
    noisy = add_noise(picture("camera"), 10)
    for kind in (None, "white"):
        assert estimate_noise(noisy, kind=kind).sigma == estimate_sigma(noisy)


@pytest.mark.parametrize("factor", [2.0**-20, 4.0, 2.0**100])
def test_white_noise_scales_with_the_image(factor):
    noisy = add_noise(picture("camera")[:256, :256], 10)
    assert estimate_noise(factor * noisy).sigma == factor * estimate_noise(noisy).sigma


@pytest.mark.parametrize("offset", [-500.0, 1e5])
def test_an_offset_does_not_change_white_noise(offset):
    noisy = add_noise(picture("camera")[:256, :256], 10)
    found = estimate_noise(noisy + offset)
    assert isinstance(found, White)
    assert found.sigma == pytest.approx(estimate_noise(noisy).sigma, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
def test_integers_and_floats_of_the_same_values_have_the_same_noise(dtype):
    noisy = np.clip(np.round(add_noise(picture("camera"), 10)), 0, 255)
    expected, found = estimate_noise(noisy), estimate_noise(noisy.astype(dtype))
    assert type(found) is type(expected) is White
    assert found.sigma == pytest.approx(expected.sigma, rel=1e-4)


# --- Shot


@pytest.mark.parametrize("name", ["camera", "coins"])
@pytest.mark.parametrize("peak", [100, 30, 5])
def test_counts_of_photons_are_called_shot(name, peak, rng):
    noisy = rng.poisson(picture(name) / 255 * peak) * (255 / peak)
    found = estimate_noise(noisy)
    assert isinstance(found, Shot)
    assert found.gain == pytest.approx(255 / peak, rel=0.15)
    assert level_of(found, 128) == pytest.approx(np.sqrt(128 * 255 / peak), rel=0.15)


@pytest.mark.parametrize("read_noise", [3.0, 8.0])
@pytest.mark.parametrize("offset", [0.0, 400.0])
def test_shot_noise_of_a_ramp_is_found_with_its_parameters(read_noise, offset, rng):
    given = Shot(2.0, read_noise, offset)
    found = estimate_noise(add_noise(offset + 500 * RAMP, noise=given, rng=rng))
    assert isinstance(found, Shot)
    assert found.gain == pytest.approx(2.0, rel=0.15)
    for mean in (offset + 50, offset + 400):
        assert level_of(found, mean) == pytest.approx(level_of(given, mean), rel=0.1)


@pytest.mark.parametrize("factor", [2.0**-10, 2.0**30])
def test_shot_noise_scales_with_the_image(factor, rng):
    noisy = add_noise(500 * RAMP, noise=Shot(2.0, 5.0), rng=rng)
    expected, found = estimate_noise(noisy).scaled(factor), estimate_noise(factor * noisy)
    assert type(found) is Shot
    for name in ("gain", "read_noise", "offset"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9)


def test_channels_have_their_own_gains(rng):
    gains = np.array([1.0, 2.0, 5.0])
    noisy = rng.poisson(60 * RAMP[..., np.newaxis] * np.ones(3)) * gains
    found = estimate_noise(noisy, channel_axis=-1)
    assert isinstance(found, Shot)
    np.testing.assert_allclose(found.gain, gains, rtol=0.05)


def test_shot_noise_that_is_asked_for_is_measured_where_it_is_in_doubt(rng):
    noisy = add_noise(200 * RAMP, noise=Shot(0.1, 10.0), rng=rng)
    assert isinstance(estimate_noise(noisy), White)
    assert isinstance(estimate_noise(noisy, kind="shot"), Shot)


def test_noise_that_does_not_grow_is_not_measured_as_shot(rng):
    falling = 100 * RAMP + (12 - 10 * RAMP) * rng.standard_normal(RAMP.shape)
    with pytest.raises(ValueError, match=r"noise='shot': the noise .* does not grow with its bri"):
        estimate_noise(falling, kind="shot")


# --- Correlated


@pytest.mark.parametrize("name", ["camera", "coins"])
@pytest.mark.parametrize("width", [0.6, 1.0])
def test_blurred_noise_is_called_correlated(name, width, rng):
    image = picture(name)
    found = estimate_noise(image + blurred_noise(image.shape, width, 15, rng))
    assert isinstance(found, Correlated)
    assert level_of(found) == pytest.approx(15, rel=0.15)


def deviations_of_cosines(covariance):
    cosines = dct_basis((10, 10))[1:]  # patches have no mean
    return np.sqrt(np.einsum("ij,jk,ik->i", cosines, covariance, cosines))


@pytest.mark.parametrize("width", [0.6, 1.0])
def test_the_frequencies_of_blurred_noise_are_found(width, rng):
    noise = blurred_noise((400, 400), width, 10, rng)
    found = estimate_noise(noise)
    assert isinstance(found, Correlated)
    assert found.stabiliser is None
    expected = deviations_of_cosines(np.cov(extract_patches(noise, 10).T))
    assert expected.max() > 4 * expected.min()
    # Single frequencies are off by up to 0.45, all of them by 0.04 to 0.08, in eight cases.
    ratios = deviations_of_cosines(found.covariance[0, 0]) / expected
    assert np.sqrt(np.mean((ratios - 1) ** 2)) < 0.1


@pytest.mark.parametrize("factor", [2.0**-10, 2.0**30])
def test_correlated_noise_scales_with_the_image(factor, rng):
    noisy = picture("camera")[:256, :256] + blurred_noise((256, 256), 1.0, 15, rng)
    expected, found = estimate_noise(noisy).scaled(factor), estimate_noise(factor * noisy)
    assert type(expected) is type(found) is Correlated
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-6, atol=1e-9 * factor)


def test_all_frequencies_of_white_noise_are_alike_if_its_covariance_is_asked_for(rng):
    found = estimate_noise(5 * rng.standard_normal((300, 300)), kind="correlated")
    assert isinstance(found, Correlated)
    np.testing.assert_allclose(deviations_of_cosines(found.covariance[0, 0]), 5, rtol=0.2)


def test_the_channels_of_correlated_noise_are_distinguished(rng):
    noise = np.stack([blurred_noise((300, 300), 1.0, sigma, rng) for sigma in (5, 20)], axis=-1)
    noise[..., 0] += noise[..., 1] / 4
    found = estimate_noise(noise, channel_axis=-1, kind="correlated")
    assert isinstance(found, Correlated)
    between = np.einsum("abii->ab", found.covariance) / found.covariance.shape[-1]
    np.testing.assert_allclose(between, [[50, 100], [100, 400]], rtol=0.25)


def test_a_patch_size_gives_a_covariance_of_such_patches(rng):
    noise = blurred_noise((200, 200), 1.0, 10, rng)
    for patch_size, n in (((5, 4), 20), (7, 49), (None, 100)):
        found = estimate_noise(noise, kind="correlated", patch_size=patch_size)
        assert found.covariance.shape == (1, 1, n, n)


def test_too_few_patches_for_a_covariance_are_rejected(rng):
    with pytest.raises(ValueError, match=r"noise='correlated': too little of this image is"):
        estimate_noise(rng.standard_normal((30, 30)), kind="correlated")


# --- All kinds


def with_noise(kind, rng):
    image = picture("camera")[:256, :300]
    if kind is Correlated:
        return image + blurred_noise(image.shape, 1.0, 15, rng)
    return add_noise(image, noise=White(12.0) if kind is White else Shot(6.0), rng=rng)


@pytest.mark.parametrize("kind", [White, Shot, Correlated])
def test_a_transposed_image_has_the_same_noise(kind, rng):
    noisy = with_noise(kind, rng)
    found, other = estimate_noise(noisy), estimate_noise(noisy.T)
    assert type(found) is type(other) is kind
    # Of correlated noise, other patches are drawn.
    tolerance = 0.03 if kind is Correlated else 1e-6
    assert level_of(found, 128) == pytest.approx(level_of(other, 128), rel=tolerance)


@pytest.mark.parametrize("kind", [White, Shot, Correlated])
def test_single_precision_changes_nothing(kind, rng):
    noisy = with_noise(kind, rng)
    found, other = estimate_noise(noisy), estimate_noise(noisy.astype(np.float32))
    assert type(found) is type(other) is kind
    assert level_of(found, 128) == pytest.approx(level_of(other, 128), rel=1e-3)


@pytest.mark.parametrize("kind", [White, Shot, Correlated])
def test_a_dask_array_has_the_noise_of_the_array(kind, rng):
    da = pytest.importorskip("dask.array")
    noisy = with_noise(kind, rng)
    found = estimate_noise(da.from_array(noisy, chunks=(100, 140)))
    assert str(found) == str(estimate_noise(noisy))
    assert type(found) is kind


def test_the_number_of_blas_threads_does_not_change_the_noise(rng):
    noisy = with_noise(Correlated, rng)
    found = []
    for number in (1, 2):
        with threadpool_limits(number, user_api="blas"):
            found.append(estimate_noise(noisy).covariance)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("kind", [None, "white", "shot", "correlated"])
@pytest.mark.parametrize(
    "image",
    [
        np.full((40, 50), 7.5),
        np.zeros((40, 50), np.uint8),
        np.full((40, 50), 255, np.uint8),
        np.pad([[1.0]], 30),  # one photon
        np.ones((1, 1)),
        np.ones((12, 14, 16)),
    ],
    ids=["constant", "black", "saturated", "one photon", "one pixel", "volume"],
)
def test_an_image_without_noise_has_white_noise_of_level_zero(image, kind):
    found = estimate_noise(image, kind=kind)
    assert isinstance(found, White)
    assert found.sigma == 0


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (1, 9), (4, 4), (7, 5), (12, 12), (1, 500)])
def test_the_noise_of_a_tiny_image_is_white_and_finite(shape, rng):
    found = estimate_noise(rng.standard_normal(shape))
    assert isinstance(found, White)
    assert 0 <= found.sigma < 5


@pytest.mark.parametrize("n_photons", [2, 40, 300])
def test_a_few_photons_are_no_error(n_photons, rng):
    image = np.zeros(64 * 64)
    image[rng.choice(image.size, n_photons, replace=False)] = 1
    found = estimate_noise(image.reshape(64, 64))
    assert 0 <= level_of(found, image.mean()) < 1


def test_a_channel_without_noise_makes_the_rest_no_error(rng):
    image = 10 + rng.standard_normal((90, 80, 3))
    image[..., 1] = 5
    found = estimate_noise(image, channel_axis=-1)
    assert isinstance(found, White)
    np.testing.assert_allclose(found.sigma, [1, 0, 1], rtol=0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", [None, "shot"])
def test_images_that_are_not_finite_are_rejected(bad, kind):
    image = np.zeros((30, 30))
    image[3, 4] = bad
    with pytest.raises(ValueError, match="image contains NaN or inf"):
        estimate_noise(image, kind=kind)


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        (np.ones(30), {}, r"shape \(30,\), 1 dimensions of space"),
        (np.ones((20, 20, 3)), {}, "looks like colour: give channel_axis=-1"),
        (np.ones((20, 20)), {"channel_axis": 3}, "channel_axis=3 is not an axis"),
        (np.ones((20, 20)), {"patch_size": 30}, "patch_size=30 is larger than the image"),
    ],
)
def test_bad_input_is_named(image, options, message):
    with pytest.raises(ValueError, match=message):
        estimate_noise(image, **options)


def test_noise_says_itself_in_a_line():
    assert str(White(3.14159)) == "white, sigma 3.142"
    assert str(White(np.array([1.0, 2.5]))) == "white, sigma 1, 2.5"
    assert str(White(np.array([1.0, 1.0, 1.0]))) == "white, sigma 1"
    assert str(White(np.array([1.0, 2.0, 1.0]))) == "white, sigma 1, 2, 1"
    assert str(Shot(2.0, 0.5)) == "shot, gain 2, read noise 0.5"
    assert str(Shot(2.0, 0.5, 100.0)) == "shot, gain 2, read noise 0.5, offset 100"
    assert str(Varying([0, 1], [2, 3])) == "varying, sigma 2 to 3"
    assert str(Correlated(autocovariance=[[4.0]])) == "correlated, sigma 2"
    assert str(Correlated(4 * np.eye(9))) == "correlated, sigma 2"
    stabilised = Correlated(4 * np.eye(9), stabiliser=Shot(2.0, 3.0))
    assert str(stabilised) == "correlated, shot, gain 8, read noise 6"


@pytest.mark.parametrize(
    ("covariance", "sigma", "words"),
    [
        (4 * np.eye(9), [0.5, 3.0], "1 to 6"),
        (np.stack([np.eye(9), 4 * np.eye(9)]), [0.5, 3.0], "0.5 to 3, 1 to 6"),
        (4 * np.eye(9), [[0.5, 3.0], [1.0, 2.0]], "1 to 6, 2 to 4"),
        (np.stack([np.eye(9)] * 5), [0.5, 3.0], "0.5 to 3"),
    ],
)
def test_noise_that_depends_on_brightness_says_its_range_in_image_units(covariance, sigma, words):
    brightness = np.broadcast_to([0.0, 1.0], np.shape(sigma))
    noise = Correlated(covariance, stabiliser=Varying(brightness, sigma))
    assert str(noise) == f"correlated, sigma {words} depending on brightness"


# --- Warnings


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_salt_and_pepper_is_warned_of(share, rng):
    noisy = np.clip(add_noise(picture("camera"), 8), 0, 255)
    where = rng.random(noisy.shape)
    noisy[where < share / 2] = 0
    noisy[where > 1 - share / 2] = 255
    with pytest.warns(UserWarning, match=r"% of the pixels are impulses \(salt and pepper\)"):
        estimate_noise(noisy)


@pytest.mark.parametrize("name", ["grass", "gravel"])
def test_an_image_that_is_texture_everywhere_is_warned_of(name):
    with pytest.warns(UserWarning, match=r"could not be told from texture, .* white, sigma .* is"):
        estimate_noise(add_noise(picture(name), 5))


@pytest.mark.parametrize("name", ["camera", "coins", "page", "moon", "brick", "cell", "text"])
def test_ordinary_images_do_not_warn(name):
    estimate_noise(picture(name))  # warnings are errors


def test_noise_is_examined_in_patches_of_11_pixels_and_given_for_those_of_denoising(rng):
    noise = blurred_noise((200, 200), 1.0, 10, rng)
    larger = estimate_noise(noise, patch_size=11).covariance[0, 0].reshape((11,) * 4)
    default = estimate_noise(noise).covariance[0, 0].reshape((10,) * 4)
    np.testing.assert_array_equal(default, larger[:10, :10, :10, :10])
