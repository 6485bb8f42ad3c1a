"""The noise that is added is the noise that is found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skimage import data
from skimage.restoration import estimate_sigma as median_over_all_details

from kappaform.imaging import add_noise, estimate_sigma
from kappaform.imaging.noise import wavelets as details

# Not those that look like colour.
small_shapes = (
    st.lists(st.integers(1, 9), min_size=1, max_size=4)
    .map(tuple)
    .filter(lambda shape: len(shape) != 3 or not {shape[0], shape[-1]} & {3, 4})
)


@pytest.fixture(scope="module")
def camera():
    return data.camera()


@pytest.mark.parametrize("sigma", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("shape", [(100, 100), (21, 500), (24, 25, 26), (70, 3, 70), (9000,)])
def test_the_level_of_pure_noise_is_found(shape, sigma, rng):
    noise = add_noise(np.full(shape, 5 * sigma), sigma, rng)
    # Off by 4 % if a thousand coefficients are used, the least from images of this size.
    assert estimate_sigma(noise) == pytest.approx(sigma, rel=0.12)


@pytest.mark.parametrize("sigma", [5, 10, 20, 50])
def test_texture_is_not_taken_for_noise(camera, sigma, rng):
    noisy = add_noise(camera, sigma, rng)
    assert estimate_sigma(noisy) == pytest.approx(sigma, rel=0.05)


@pytest.mark.parametrize("name", ["camera", "coins", "gravel", "grass", "page"])
def test_the_median_over_all_details_is_further_off_on_texture(name, rng):
    noisy = add_noise(getattr(data, name)(), 5, rng)
    assert abs(estimate_sigma(noisy) - 5) < 0.75 * abs(median_over_all_details(noisy) - 5)


@pytest.mark.parametrize("sigma", [5, 10, 20])
def test_clipping_does_not_hide_noise(sigma, rng):
    image = data.astronaut()[..., 0]  # large parts are black or nearly so
    noisy = np.clip(np.round(add_noise(image, sigma, rng)), 0, 255).astype(np.uint8)
    assert estimate_sigma(noisy) == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("background", [0, 77])
def test_a_background_without_noise_does_not_count(camera, background, rng):
    noisy = add_noise(camera, 10, rng)
    noisy[:, :350] = background
    assert estimate_sigma(noisy) == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("n", [14, 16, 18, 20])
def test_a_flat_half_does_not_hide_the_noise_of_a_very_small_image(n):
    found = []
    for seed in range(15):
        noisy = add_noise(np.full((n, n), 100.0), 20, seed)
        noisy[:, : n // 2] = 0
        found.append(estimate_sigma(noisy))
    assert np.median(found) == pytest.approx(20, rel=0.25)


@pytest.mark.parametrize("side", [32, 48, 64, 96])
@pytest.mark.parametrize("name", ["camera", "coins"])
def test_a_flat_half_does_not_hide_the_noise_of_a_small_image(name, side):
    noisy = add_noise(getattr(data, name)()[100 : 100 + side, 150 : 150 + side], 20)
    noisy[:, side // 2 :] = 0  # as the colours of what is transparent
    stored = np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
    for image in (noisy, stored, 255 - stored):
        assert estimate_sigma(image) == pytest.approx(20, rel=0.25)


@pytest.mark.parametrize("offset", [1e5, 4e5, 2e6])
def test_a_large_offset_does_not_change_the_level(camera, offset, rng):
    noisy = add_noise(camera, 10, rng)
    expected = estimate_sigma(noisy)
    assert estimate_sigma(noisy + offset) == pytest.approx(expected, rel=1e-6)
    assert estimate_sigma((noisy + offset).astype(np.float32)) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [-9999.0, np.finfo(np.float32).min])
def test_a_pixel_without_data_does_not_change_the_level(camera, value, dtype, rng):
    noisy = (add_noise(camera, 10, rng) / 1000).astype(dtype)
    noisy[100, 200] = value
    assert estimate_sigma(noisy) == pytest.approx(0.01, rel=0.05)


def test_a_smooth_background_in_single_precision_does_not_count(camera, rng):
    noisy = add_noise(camera, 10, rng).astype(np.float32)
    noisy[:, :350] = np.hypot(*np.indices((512, 350))) / 7
    assert estimate_sigma(noisy) == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("factor", [1e-300, 1e305])
def test_levels_of_any_size_are_found(camera, factor, rng):
    noisy = add_noise(camera[:200, :200], 10, rng)
    expected = pytest.approx(factor * estimate_sigma(noisy), rel=1e-6)
    assert estimate_sigma(factor * noisy) == expected
    assert estimate_sigma(factor * noisy[:3, :3]) == pytest.approx(factor * noisy[:3, :3].std())


def test_a_drawing_of_flat_areas_has_no_noise():
    assert estimate_sigma(data.checkerboard()) == 0.0
    assert estimate_sigma(data.horse()) == 0.0


def test_large_images_are_judged_by_parts(rng):
    noisy = rng.standard_normal((3000, 1500), dtype=np.float32)
    assert estimate_sigma(noisy) == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("first", [0, 100, 200, 300])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_parts_of_a_large_image_are_evenly_spread(first, axis, monkeypatch, rng):
    monkeypatch.setattr(details, "_LARGEST_SAMPLE", 2**14)
    noisy = 10 * rng.standard_normal((400, 100))
    noisy[first : first + 100] /= 10  # a quarter is quieter, wherever it is
    assert 0.9 < estimate_sigma(np.moveaxis(noisy, 0, axis)) < 1.5


@given(
    small_shapes,
    st.sampled_from([np.uint8, np.int16, np.float16, np.float32, np.float64]),
    st.floats(0, 255),
)
def test_a_constant_image_has_no_noise(shape, dtype, value):
    assert estimate_sigma(np.full(shape, value).astype(dtype)) == 0.0


@given(small_shapes, st.integers(0, 99))
def test_every_small_image_has_a_finite_level(shape, seed):
    noise = np.random.default_rng(seed).standard_normal(shape)
    sigma = estimate_sigma(noise)
    assert isinstance(sigma, float)
    assert 0 <= sigma < 10


@pytest.mark.parametrize("factor", [-1.0, 2.0**-20, 2.0**100])
def test_the_level_scales_with_the_image(camera, factor, rng):
    noisy = add_noise(camera, 10, rng)
    assert estimate_sigma(factor * noisy) == abs(factor) * estimate_sigma(noisy)


def test_the_level_does_not_depend_on_the_order_of_axes(camera, rng):
    noisy = add_noise(camera[:300], 10, rng)
    assert estimate_sigma(noisy.T) == pytest.approx(estimate_sigma(noisy), rel=1e-9)


def test_integers_and_floats_of_the_same_values_have_the_same_level(camera):
    sigma = estimate_sigma(camera)
    assert estimate_sigma(camera.astype(np.float64)) == sigma
    assert estimate_sigma(camera.astype(np.int32)) == sigma
    assert estimate_sigma(camera.astype(np.float32)) == pytest.approx(sigma, rel=1e-4)
    assert estimate_sigma(camera.astype(np.float16)) == pytest.approx(sigma, rel=1e-4)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_channels_are_estimated_each_on_its_own(axis, rng):
    channels = [add_noise(np.zeros((90, 80)), sigma, rng) for sigma in (1, 10, 100)]
    sigmas = estimate_sigma(np.stack(channels, axis=axis), channel_axis=axis)
    assert sigmas.dtype == np.float64
    np.testing.assert_array_equal(sigmas, [estimate_sigma(channel) for channel in channels])


def test_a_colour_image_without_its_channel_axis_is_rejected():
    with pytest.raises(ValueError, match=r"\(512, 512, 3\), which looks like colour: give channel"):
        estimate_sigma(data.astronaut())


def test_channels_in_front_without_their_name_are_warned_of():
    image = np.moveaxis(data.astronaut(), -1, 0)
    with pytest.warns(UserWarning, match=r"\(3, 512, 512\) and is taken for a volume of 3 slices"):
        estimate_sigma(image)


def test_a_channel_axis_that_is_none_is_rejected():
    with pytest.raises(
        ValueError, match=r"channel_axis=2 is not an axis of an image of shape \(8, 8\)"
    ):
        estimate_sigma(np.zeros((8, 8)), channel_axis=2)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channel_axis", [None, 0])
def test_images_that_are_not_finite_are_rejected(bad, channel_axis):
    image = np.zeros((2, 30, 30))
    image[1, 5, 5] = bad
    with pytest.raises(ValueError, match="image contains NaN or inf"):
        estimate_sigma(image, channel_axis=channel_axis)


def test_an_image_without_pixels_is_rejected():
    with pytest.raises(ValueError, match=r"image has shape \(0, 4\): at least one pixel"):
        estimate_sigma(np.zeros((0, 4)))


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [(np.float32, np.float32), (np.float64, np.float64), (np.uint8, np.float64)],
)
def test_noise_is_added_in_the_float_dtype_of_the_image(given_dtype, expected):
    image = np.full((300, 300), 250, given_dtype)
    noisy = add_noise(image, 20, 0)
    assert noisy.dtype == expected
    assert noisy.shape == image.shape
    assert noisy.max() > 255  # not clipped
    assert (image == 250).all()
    assert np.mean(noisy) == pytest.approx(250, abs=0.3)
    assert np.std(noisy) == pytest.approx(20, rel=0.02)


def test_the_same_seed_gives_the_same_noise():
    image = np.zeros((50, 60))
    first = add_noise(image, 3.0, 7)
    np.testing.assert_array_equal(add_noise(image, 3.0, 7), first)
    np.testing.assert_array_equal(add_noise(image, 3.0, np.random.default_rng(7)), first)
    np.testing.assert_array_equal(
        add_noise(image.astype(np.float32), 3.0, 7), first.astype(np.float32)
    )
    assert not np.array_equal(add_noise(image, 3.0, 8), first)
    np.testing.assert_array_equal(add_noise(image, 3.0), add_noise(image, 3.0, 0))


def test_noise_of_level_zero_changes_nothing(camera):
    np.testing.assert_array_equal(add_noise(camera, 0, 0), camera)


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf, [1.0, 2.0]])
def test_a_level_that_is_none_is_rejected(sigma):
    with pytest.raises(ValueError, match="is not a noise level: give one finite number >= 0"):
        add_noise(np.zeros((4, 4)), sigma)


def test_noise_at_the_limits_of_half_precision_stays_finite():
    image = np.full((8, 8), 65500, np.float16)
    assert np.isfinite(add_noise(image, 100.0)).all()
