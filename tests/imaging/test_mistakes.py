"""Likely mistakes of newcomers: a warning or an error says what is meant."""

import re
from pathlib import Path

import numpy as np
import pytest

import kappaform as kf

SQUARE = np.eye(9)  # a transform, so that nothing is learned


@pytest.fixture
def noisy(rng):
    return np.clip(rng.normal(0.5, 0.1, (32, 32)), 0, 1)


def told(message):
    return pytest.warns(UserWarning, match=re.escape(message))


# --- sigma on another scale


@pytest.mark.parametrize("preset", [None, "paper"])
def test_a_sigma_for_grey_levels_is_warned_about_for_values_from_0_to_1(noisy, preset):
    noisy[0, :2] = -0.23, 1.23
    message = (
        "sigma=20 exceeds the range of the image, -0.23 to 1.23: sigma is in image units; for "
        "values from 0 to 1 use 20/255 = 0.078."
    )
    with told(message) as caught:
        kf.denoise(noisy, sigma=20, preset=preset, **({} if preset else {"transform": SQUARE}))
    assert caught[0].filename == __file__


def test_a_sigma_beyond_other_values_is_warned_about_without_that_remedy(noisy):
    with told("range of the image, 0 to 100: sigma is in image units.") as caught:
        noisy[0, :2] = 0, 1
        kf.denoise(100 * noisy, sigma=[300], transform=SQUARE)
    assert len(caught) == 1


def test_a_sigma_below_the_rounding_error_of_integers_is_warned_about(noisy):
    image = (255 * noisy).astype(np.uint8)
    message = (
        "sigma=0.08 is below the rounding error of integers, 0.29: sigma is in image units; for "
        "values from 0 to 255 use 255*0.08 = 20.4."
    )
    with told(message):
        kf.denoise(image, sigma=0.08, transform=SQUARE)
    with told("rounding error of integers, 0.29: sigma is in image units."):
        kf.denoise(image * np.uint16(257), sigma=0.08, transform=SQUARE)


def test_ordinary_sigmas_are_not_warned_about(noisy):
    kf.denoise(noisy, sigma=0.08, transform=SQUARE)
    kf.denoise(noisy, sigma=0, transform=SQUARE)
    kf.denoise(np.zeros((20, 20)), sigma=5, transform=SQUARE)  # constant
    image = (255 * noisy).astype(np.uint8)
    for sigma in (0, 0.3, 20):
        kf.denoise(image, sigma=sigma, transform=SQUARE)


# --- Ranges on another scale


@pytest.mark.parametrize("mask", [None, np.arange(32 * 32).reshape(32, 32) % 7 == 0])
def test_a_range_in_other_units_is_warned_about(noisy, mask):
    message = "value_range=(0, 1) excludes most values of the image, "
    options = {"sigma": 20, "transform": SQUARE, "quality": "fast", "mask": mask}
    with told(message) as caught:
        kf.denoise(100 + 100 * noisy, value_range=(0, 1), **options)
    assert [each.filename for each in caught] == [__file__]
    kf.denoise(100 + 100 * noisy, value_range=(100, 200), **options)
    if mask is not None:  # what the image holds there is not used
        noisy[mask] = 1e6
        noisy[~mask] = noisy[~mask].clip(0.3, 0.7)
        kf.denoise(noisy, value_range=(0, 1), **options | {"sigma": 0.1})


def test_each_range_of_a_dask_image_is_taken_for_what_is_meant(noisy):
    array = pytest.importorskip("dask.array")
    image = array.from_array(noisy + 100, chunks=16)  # to count values, it would be read again
    denoised = kf.denoise(image, 0.1, value_range=(0, 1), transform=SQUARE, quality="fast")
    assert denoised.max().compute() <= 1


# --- Axes


@pytest.mark.parametrize(
    ("shape", "axis", "message"),
    [
        ((40, 32, 3), 0, "channel_axis=0 has 40 entries and the last axis 3: is channel_axis=-1"),
        ((12, 32, 4), 1, "channel_axis=1 has 32 entries and the last axis 4: is channel_axis=-1"),
        ((3, 12, 40), -1, "channel_axis=-1 has 40 entries and the first axis 3: is channel_axis=0"),
    ],
)
def test_channels_that_look_like_rows_or_columns_are_warned_about(shape, axis, message, rng):
    with told(message + " meant?"):
        kf.denoise(rng.random(shape), sigma=0.1, patch_size=3, channel_axis=axis, quality="fast")


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((12, 12, 40), (-1, None)), ((31, 12, 3), (0, None)), ((3, 9, 9, 40), (-1, 0))],
)
def test_many_channels_are_not_warned_about(shape, axes, rng):
    channel, stack = axes
    options = {"sigma": 0.1, "patch_size": 3, "quality": "fast"}
    kf.denoise(rng.random(shape), channel_axis=channel, stack_axis=stack, **options)


def test_a_grey_image_has_no_axis_of_channels(noisy):
    message = "image has 2 axes, and channel_axis takes one of them: omit channel_axis for a grey"
    with pytest.raises(ValueError, match=message):
        kf.denoise(noisy, channel_axis=-1)


@pytest.mark.parametrize(("shape", "axis"), [((12, 12, 3), -1), ((4, 12, 12), 0)])
def test_patches_larger_than_colours_name_their_axis(shape, axis):
    with pytest.raises(ValueError, match=f"; if it has colours, give channel_axis={axis}"):
        kf.extract_patches(np.ones(shape), 8)
    with pytest.raises(ValueError, match=r"give at most \(12, 3\)\.$"):
        kf.extract_patches(np.ones((12, 3)), 8)


# --- Values


@pytest.mark.parametrize("noise", [None, "white", "auto"])
@pytest.mark.parametrize("axis", [None, 0])
def test_the_noise_of_booleans_is_not_estimated(noisy, noise, axis):
    image = np.stack([noisy] * 2) > 0.5 if axis == 0 else noisy > 0.5
    with pytest.raises(ValueError, match="booleans: the noise of black and white cannot be est"):
        kf.denoise(image, noise=noise, stack_axis=axis)
    denoised = kf.denoise(image, sigma=0.3, stack_axis=axis, transform=SQUARE)
    given = kf.denoise(image.astype(float), sigma=0.3, stack_axis=axis, transform=SQUARE)
    np.testing.assert_array_equal(denoised, given)


def test_the_first_value_that_is_not_finite_is_named(noisy):
    noisy[3, 5] = noisy[20, 1] = np.nan
    noisy[4, 4] = np.inf
    with pytest.raises(ValueError, match=r"NaN or inf in 3 of 1024 values, first at \(3, 5\): fil"):
        kf.denoise(noisy)
    stack = np.stack([np.ones((32, 32)), noisy])
    message = r"in 3 of 2048 values, first in image 1 of the stack \(counted from 0\) at \(3, 5\)"
    with pytest.raises(ValueError, match=message):
        kf.denoise(stack, stack_axis=0)


@pytest.mark.parametrize("name", ["noisy.png", Path("photos") / "noisy"])
def test_a_file_name_is_no_image(name):
    with pytest.raises(TypeError, match=r"noisy.* is the name of a file: read it first, for "):
        kf.denoise(name)


def test_a_file_name_is_no_transform(noisy):
    with pytest.raises(TypeError, match=r"transform='model.kappaform' .* by kappaform\.load"):
        kf.denoise(noisy, transform="model.kappaform")


def test_a_transform_of_no_square_patch_needs_a_patch_size(noisy):
    message = r"shape \(6, 6\): patches of equal sides do not have 6 pixels; give the patch_size"
    with pytest.raises(ValueError, match=message):
        kf.denoise(noisy, 0.1, transform=np.eye(6), quality="fast")
    kf.denoise(noisy, 0.1, transform=np.eye(6), quality="fast", patch_size=(2, 3))


def test_bounds_that_amplify_noise_are_warned_about(noisy):
    options = {"max_condition": 50, "patch_size": 3, "quality": "fast"}
    for sigma, several in ((0.1, {}), ([0.0, 0.1], {"stack_axis": 0}), (0.1, {"stack_axis": 0})):
        image = np.stack([noisy] * 2) if several else noisy
        with told("max_condition=50 lets the inverse of the transform amplify the noise") as caught:
            kf.denoise(image, sigma, **options, **several)
        assert [each.filename for each in caught] == [__file__]
    with told("max_condition=50"):
        del options["quality"]
        kf.learn_from_images([noisy], 0.1, **options)
    # Nothing is learned.
    kf.denoise(noisy, 0.1, **options, transform=SQUARE)
    kf.denoise(noisy, 0, **options)
    kf.denoise(np.ones((20, 20)), 0.1, **options)


def test_patches_that_take_hours_are_warned_about(rng):
    with told("patch_size=25: patches of 625 pixels take minutes or hours: 8 to 16 are usual"):
        kf.learn_from_images([rng.normal(0.5, 0.1, (25, 25))], 0.1, patch_size=25, callback=bool)
    kf.denoise(rng.normal(0.5, 0.1, (25, 25)), 0, patch_size=25)  # nothing is learned


@pytest.mark.parametrize("axis", ["last", "0", -1.0, True])
@pytest.mark.parametrize(
    "function",
    [
        kf.denoise,
        kf.estimate_noise,
        kf.inpaint,
        lambda image, **k: kf.extract_patches(image, 3, **k),
    ],
    ids=["denoise", "estimate_noise", "inpaint", "extract_patches"],
)
def test_an_axis_is_an_integer(rng, function, axis):
    with pytest.raises(TypeError, match=rf"channel_axis={axis!r}: give the number of an axis"):
        function(rng.normal(size=(20, 20, 3)), channel_axis=axis)


def test_complex_images_are_rejected_with_a_remedy(noisy):
    with pytest.raises(TypeError, match=r"must hold real numbers \(\.real, \.imag or abs\)"):
        kf.denoise(noisy + 1j)


# --- Noise


@pytest.mark.parametrize("preset", [None, "paper"])
def test_auto_is_the_noise_that_is_estimated(noisy, preset):
    found = kf.denoise(255 * noisy, noise="auto", preset=preset)
    np.testing.assert_array_equal(found, kf.denoise(255 * noisy, preset=preset))


# --- Results


def test_a_result_is_shown_in_a_line(noisy):
    options = {"transform": SQUARE, "quality": "fast"}
    details = kf.denoise_with_details(noisy, 0.1, **options)
    words = "white, sigma 0.1, patches 3 × 3, condition number 1)"
    assert repr(details) == f"DenoiseResult(32 × 32, {words}"
    details = kf.denoise_with_details(np.stack([noisy] * 2), 0.1, stack_axis=0, **options)
    words = words.replace("0.1,", "0.1 (and 1 more),")
    assert repr(details) == f"DenoiseResult(2 × 32 × 32, {words}"
