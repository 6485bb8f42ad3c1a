"""Denoising of every kind of noise: given, estimated, in colour, in stacks, on every path."""

from functools import cache

import numpy as np
import pytest
from helpers import psnr
from scipy.signal import correlate2d
from skimage import data

import kappaform as kf
from kappaform import Correlated, Shot, Varying, White
from kappaform.imaging.components import levels_of

KERNEL = np.array([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 16
BLURRED = correlate2d(KERNEL, KERNEL) / (KERNEL**2).sum()  # of variance 1
VARYING = Varying([0.0, 128.0, 255.0], [4.0, 16.0, 30.0])
KINDS = {
    "white": White(20.0),
    "shot": Shot(255 / 30),
    "shot with read noise": Shot(2.0, 6.0),
    "varying": VARYING,
    "correlated": Correlated(autocovariance=225 * BLURRED),
}
PATCHES = {"patch_size": 6}  # smaller than by default, to be fast
OPTIONS = {**PATCHES, "quality": "fast"}
TINY = {"patch_size": 4, "quality": "fast"}  # where two calls give the same, whatever it is


@pytest.fixture(scope="module")
def camera():
    return data.camera()[50:210, 100:260].astype(np.float64)


@pytest.fixture(scope="module")
def small():
    return data.camera()[100:190, 150:230].astype(np.float64)


@pytest.fixture(scope="module")
def astronaut():
    return data.astronaut()[60:156, 140:236].astype(np.float64)


def mixed(noises, image):
    """An image with noise of each kind, as a stack."""
    return np.stack([kf.add_noise(image, noise=noise, rng=1) for noise in noises])


# --- Quality


# Groups see the same image, stabilised, or the same covariance: one kind of each is enough.
@pytest.mark.parametrize(
    ("kind", "quality"),
    [*((kind, "fast") for kind in KINDS), ("shot", "balanced"), ("correlated", "balanced")],
)
def test_noise_that_is_known_is_removed_better_than_as_white_noise(camera, kind, quality):
    noise = KINDS[kind]
    clean = camera[50:146, :96]  # edges: in plain sky a strong white filter may do as well
    noisy = kf.add_noise(clean, noise=noise, rng=1)
    options = {**PATCHES, "quality": quality}
    known = psnr(clean, kf.denoise(noisy, noise=noise, **options))
    assert known > psnr(clean, noisy) + 4
    if kind != "white":
        # Even with the best sigma that white noise could be given.
        usual = float(np.mean(noise.level(clean.ravel()[::50])))
        as_white = [kf.denoise(noisy, factor * usual, **options) for factor in (1, 1.5)]
        assert known > max(psnr(clean, image) for image in as_white) + 0.2


@cache
def cleaned_with_given_noise(name, kind):
    """A clean image, a noisy one, and what patches make of that if the noise is known."""
    clean = getattr(data, name)()[100:228, 100:228].astype(np.float64)
    noisy = kf.add_noise(clean, noise=KINDS[kind], rng=1)
    return clean, noisy, kf.denoise(noisy, noise=KINDS[kind], **OPTIONS)


@pytest.mark.parametrize("kind", ["white", "shot", "shot with read noise", "correlated"])
@pytest.mark.parametrize("name", ["camera", "coins"])
def test_estimated_noise_is_nearly_as_good_as_given_noise(kind, name):
    clean, noisy, given = cleaned_with_given_noise(name, kind)
    estimated = kf.denoise_with_details(noisy, **OPTIONS)
    assert type(estimated.noise) is type(KINDS[kind])
    assert psnr(clean, estimated.image) > psnr(clean, given) - 0.3


# Measured over three seeds, in dB: white 0.49 to 0.56, shot 0.39 to 0.47, correlated 0.09 to 0.28,
# where groups need the covariance more exactly than patches.
@pytest.mark.parametrize(
    ("name", "kind", "gain"),
    [("camera", "white", 0.3), ("coins", "shot", 0.3), ("camera", "correlated", 0.0)],
)
def test_groups_with_estimated_noise_are_better_than_patches_with_given_noise(name, kind, gain):
    clean, noisy, given = cleaned_with_given_noise(name, kind)
    assert psnr(clean, kf.denoise(noisy, **PATCHES)) > psnr(clean, given) + gain


@pytest.mark.parametrize(("quality", "least"), [("fast", -0.1), ("balanced", 0.0)])
def test_very_few_photons_are_denoised_without_a_bias(camera, quality, least, rng):
    camera = camera[:128, :128]
    noisy = rng.poisson(camera / 255 * 2) * 127.5
    cleaned = kf.denoise(noisy, noise=Shot(127.5), patch_size=6, quality=quality)
    assert cleaned.min() >= 127.5 * least  # there may be rings around what the halves say
    assert cleaned.mean() == pytest.approx(camera.mean(), rel=0.03)
    dark, bright = camera < 50, camera > 150
    assert cleaned[dark].mean() == pytest.approx(camera[dark].mean(), rel=0.25)
    assert cleaned[bright].mean() == pytest.approx(camera[bright].mean(), rel=0.05)


# --- What is given and what is told


def test_white_noise_is_sigma(small):
    noisy = kf.add_noise(small, 20.0, rng=1)
    expected = kf.denoise_with_details(noisy, 20.0, **OPTIONS)
    found = kf.denoise_with_details(noisy, noise=White(20.0), **OPTIONS)
    np.testing.assert_array_equal(found.image, expected.image)
    assert found.sigma == expected.sigma == 20.0
    assert isinstance(expected.noise, White)


@pytest.mark.parametrize("kind", ["white", "shot", "correlated"])
def test_the_name_of_a_kind_is_what_estimate_noise_finds(camera, kind):
    noisy = kf.add_noise(camera, noise=KINDS[kind], rng=1)
    noise = kf.estimate_noise(noisy, kind=kind, patch_size=4)
    expected = kf.denoise(noisy, noise=noise, **TINY)
    found = kf.denoise_with_details(noisy, noise=kind, **TINY)
    np.testing.assert_array_equal(found.image, expected)
    assert str(found.noise) == str(noise)
    again = kf.denoise(noisy, noise=found.noise, **TINY)
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_sigma_reports_the_standard_deviation_at_the_mean_brightness(small, kind):
    noisy = kf.add_noise(small, noise=KINDS[kind], rng=1)
    found = kf.denoise_with_details(
        noisy, noise=KINDS[kind], transform=kf.dct_basis((4, 4)), patch_size=4
    )
    expected = KINDS[kind].level(np.array([noisy.mean()])).item()
    assert found.sigma == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_denoising_commutes_with_scaling(small, kind):
    noise = KINDS[kind]
    noisy = kf.add_noise(small, noise=noise, rng=1)
    expected = kf.denoise(noisy, noise=noise, **TINY)
    for factor in (2.0**-10, 2.0**12):
        found = kf.denoise(factor * noisy, noise=noise.scaled(factor), **TINY)
        np.testing.assert_allclose(found / factor, expected, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", ["shot", "varying", "correlated"])
def test_dtypes_are_kept_and_integers_become_floats(small, kind, dtype):
    noisy = np.clip(kf.add_noise(small, noise=KINDS[kind], rng=1), 0, 255).astype(dtype)
    options = {"noise": KINDS[kind], "transform": kf.dct_basis((5, 5)), "quality": "fast"}
    found = kf.denoise(noisy, **options)
    assert found.dtype == (np.float64 if dtype == np.uint8 else dtype)
    expected = kf.denoise(noisy.astype(np.float64), **options)
    assert np.abs(found.astype(np.float64) - expected).max() < 0.3


@pytest.mark.parametrize("kind", ["shot", "varying"])
def test_values_are_clipped_only_when_asked(small, kind):
    noisy = kf.add_noise(small, noise=KINDS[kind], rng=1)
    options = {"noise": KINDS[kind], "transform": kf.dct_basis((5, 5)), "quality": "fast"}
    free = kf.denoise(noisy, **options)
    assert free.min() < 20
    assert free.max() > 200
    bounded = kf.denoise(noisy, value_range=(20, 200), **options)
    assert bounded.min() >= 20
    assert bounded.max() <= 200
    wide = kf.denoise(noisy, value_range=(-1e4, 1e4), **options)
    np.testing.assert_allclose(wide, free, atol=1e-3)


@pytest.mark.parametrize("noise", [Shot(2.0), VARYING, Correlated(np.eye(16))], ids=str)
@pytest.mark.parametrize("value", [0.0, 100.0])
def test_a_constant_image_returns_itself(noise, value):
    image = np.full((30, 20), value)
    np.testing.assert_array_equal(kf.denoise(image, noise=noise, patch_size=4), image)


@pytest.mark.parametrize("noise", [None, "shot", Shot(1.0)])
def test_one_photon_is_no_error(noise):
    image = np.pad([[1.0]], 20)
    cleaned = kf.denoise(image, noise=noise)
    assert np.isfinite(cleaned).all()
    assert cleaned.min() >= -1e-6  # rounding


# --- Colours


def test_clipped_colours_are_estimated_nearly_as_well_as_given(astronaut):
    noisy = np.clip(np.round(kf.add_noise(astronaut, 20, rng=1)), 0, 255).astype(np.uint8)
    given = kf.denoise(noisy, 20.0, channel_axis=-1, **OPTIONS)
    estimated = kf.denoise(noisy, channel_axis=-1, **OPTIONS)
    assert psnr(astronaut, estimated) > psnr(astronaut, given) - 0.2


def test_each_channel_has_its_own_sigma(astronaut, rng):
    sigmas = np.array([5.0, 15.0, 40.0])
    noisy = astronaut + sigmas * rng.standard_normal(astronaut.shape)
    found = kf.denoise_with_details(noisy, channel_axis=-1, **OPTIONS)
    np.testing.assert_allclose(found.sigma, sigmas, rtol=0.15)
    given = kf.denoise(noisy, sigmas, channel_axis=-1, **OPTIONS)
    assert psnr(astronaut, found.image) > psnr(astronaut, given) - 0.3


def test_photons_of_colours_are_denoised(astronaut, rng):
    noisy = rng.poisson(astronaut / 255 * 20) * 12.75
    by_shot = kf.denoise(noisy, noise=Shot(12.75), channel_axis=-1, **OPTIONS)
    by_white = kf.denoise(noisy, noise="white", channel_axis=-1, **OPTIONS)
    assert psnr(astronaut, by_shot) > psnr(astronaut, by_white) + 1


def test_noise_that_channels_share_is_removed_by_its_correlation(astronaut, rng):
    common, own = (
        rng.standard_normal((*astronaut.shape[:2], 1)),
        rng.standard_normal(astronaut.shape),
    )
    noisy = astronaut + 15 * common + 5 * own
    sigma = np.sqrt(15**2 + 5**2)
    correlation = np.full((3, 3), 15**2 / sigma**2)
    np.fill_diagonal(correlation, 1)
    options = {"channel_axis": -1, **OPTIONS}
    known = kf.denoise(noisy, noise=White(sigma, correlation), **options)
    assert psnr(astronaut, known) > psnr(astronaut, kf.denoise(noisy, sigma, **options)) + 1
    estimated = kf.denoise_with_details(noisy, noise="white", **options)
    np.testing.assert_allclose(estimated.noise.correlation, correlation, atol=0.1)
    assert psnr(astronaut, estimated.image) > psnr(astronaut, known) - 0.3


@pytest.mark.parametrize("kind", ["shot", "varying", "correlated"])
def test_grey_that_is_stored_as_colour_is_denoised_as_grey(small, kind):
    noisy = kf.add_noise(small, noise=KINDS[kind], rng=1)
    colour = np.repeat(noisy[..., np.newaxis], 3, axis=-1)
    options = {"noise": KINDS[kind], **TINY}
    found = kf.denoise(colour, channel_axis=-1, **options)
    expected = kf.denoise(noisy, **options)
    np.testing.assert_array_equal(found, np.repeat(expected[..., np.newaxis], 3, axis=-1))


def test_a_channel_without_noise_is_left_alone(astronaut, rng):
    noisy = kf.add_noise(astronaut[:90, :90], 20, rng)
    noisy[..., 1] = np.indices((90, 90)).sum(axis=0) // 30  # a drawing
    found = kf.denoise_with_details(noisy, channel_axis=-1, **OPTIONS)
    assert found.sigma[1] == 0
    np.testing.assert_array_equal(found.image[..., 1], noisy[..., 1])
    assert np.abs(found.image - noisy)[..., [0, 2]].mean() > 5


# --- Stacks


def test_each_image_of_a_stack_is_as_if_it_came_alone():
    kinds, clean = ["white", "shot", "correlated"], data.camera()[100:228, 100:228]
    stack = mixed([KINDS[kind] for kind in kinds], clean.astype(np.float64))
    found = kf.denoise_with_details(stack, stack_axis=0, **OPTIONS)
    assert [type(noise) for noise in found.noise] == [White, Shot, Correlated]
    for image, cleaned, noise in zip(stack, found.image, found.noise, strict=True):
        alone = kf.denoise_with_details(image, **OPTIONS)
        np.testing.assert_array_equal(cleaned, alone.image)
        assert str(noise) == str(alone.noise)
    again = kf.denoise(stack, noise=found.noise, stack_axis=0, **OPTIONS)
    np.testing.assert_array_equal(again, found.image)


def test_a_generator_gives_each_image_of_a_stack_the_seed_that_it_has_alone(small):
    stack = mixed([White(20.0)] * 2, small)
    options = {"sigma": 20.0, **TINY}
    found = kf.denoise(stack, stack_axis=0, rng=np.random.default_rng(7), **options)
    for image, cleaned in zip(stack, found, strict=True):
        alone = kf.denoise(image, rng=np.random.default_rng(7), **options)
        np.testing.assert_array_equal(cleaned, alone)


def test_one_kind_may_hold_for_all_images(small):
    stack = mixed([KINDS["shot"]] * 2, small)
    options = {"noise": KINDS["shot"], **TINY}
    found = kf.denoise(stack, stack_axis=0, **options)
    np.testing.assert_array_equal(found[0], kf.denoise(stack[0], **options))


def test_images_of_a_stack_may_share_one_transform(camera):
    stack = mixed([White(20.0), Shot(8.5), White(10.0)], camera[:128, :128])
    noises = [White(20.0), Shot(8.5), White(10.0)]
    options = {"stack_axis": 0, "noise": noises, "share": True, **OPTIONS}
    shares = []
    found = kf.denoise_with_details(stack, progress=shares.append, **options)
    assert len(found.transforms) == 3
    assert all(np.array_equal(each, found.transform) for each in found.transforms)
    assert len(found.history) == 4  # rounds of one learning
    np.testing.assert_array_equal(found.history[-1].transform, found.transform)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    np.testing.assert_array_equal(kf.denoise(stack, **options), found.image)
    given = {"noise": noises, "stack_axis": 0, "transform": found.transform, "quality": "fast"}
    np.testing.assert_array_equal(kf.denoise(stack, **given), found.image)
    own = kf.denoise(stack, stack_axis=0, noise=noises, **OPTIONS)
    for cleaned, other in zip(found.image, own, strict=True):
        assert psnr(camera[:128, :128], cleaned) > psnr(camera[:128, :128], other) - 0.3


def test_colours_may_share_one_transform(astronaut):
    noisy = kf.add_noise(astronaut[:80, :80], 20, rng=1)
    found = kf.denoise_with_details(noisy, 20.0, channel_axis=-1, share=True, **OPTIONS)
    assert len(found.transforms) == 3
    assert all(each is found.transform for each in found.transforms)
    assert psnr(astronaut[:80, :80], found.image) > psnr(astronaut[:80, :80], noisy) + 5


def test_images_without_noise_share_nothing():
    stack = np.stack([np.full((20, 20), 3.0), np.full((20, 20), 7.0)])
    found = kf.denoise_with_details(stack, stack_axis=0, share=True)
    np.testing.assert_array_equal(found.image, stack)
    assert found.transforms == found.history == ()


@pytest.mark.parametrize("given", [{"transform": np.eye(9)}, {"preset": "paper"}])
def test_share_with_a_transform_is_rejected(given):
    with pytest.raises(ValueError, match="share=True learns a transform: leave out transform and"):
        kf.denoise(np.eye(20), 1.0, share=True, **given)


# --- Volumes and Dask arrays


@pytest.fixture(scope="module")
def volume():
    return 100 + 60 * np.sin(np.indices((20, 24, 22)).sum(axis=0) / 4)


@pytest.mark.parametrize("kind", ["shot", "varying", "correlated"])
def test_volumes_are_denoised(volume, kind):
    noise = KINDS[kind]
    if kind == "correlated":
        noise = Correlated(autocovariance=225 * BLURRED[np.newaxis])
    noisy = kf.add_noise(volume, noise=noise, rng=1)
    cleaned = kf.denoise(noisy, noise=noise)
    assert np.std(cleaned - volume) < 0.5 * np.std(noisy - volume)


@pytest.mark.parametrize("kind", ["shot", "shot with read noise", "varying", "correlated"])
def test_dask_images_are_denoised_when_they_are_asked_for(small, kind):
    da = pytest.importorskip("dask.array")
    noise = KINDS[kind]
    noisy = kf.add_noise(small, noise=noise, rng=1)
    options = {"noise": noise, "transform": kf.dct_basis((6, 6)), "quality": "fast"}
    expected = kf.denoise_with_details(noisy, **options)
    found = kf.denoise_with_details(da.from_array(noisy, chunks=(40, 35)), **options)
    assert isinstance(found.image, da.Array)
    assert found.image.dtype == expected.image.dtype
    computed = found.image.compute()
    assert computed.dtype == expected.image.dtype
    np.testing.assert_array_equal(computed, expected.image)
    np.testing.assert_array_equal(found.sparsity_map.compute(), expected.sparsity_map)
    assert found.sigma == pytest.approx(expected.sigma)


def test_the_noise_of_dask_images_is_estimated_and_learned_from(camera):
    da = pytest.importorskip("dask.array")
    stack = mixed([KINDS["white"], KINDS["shot"]], camera)
    lazy = da.from_array(stack, chunks=(1, 100, 100))
    for share in (False, True):
        options = {"stack_axis": 0, "share": share, **TINY}
        found = kf.denoise_with_details(lazy, **options)
        expected = kf.denoise_with_details(stack, **options)
        assert [str(noise) for noise in found.noise] == [str(noise) for noise in expected.noise]
        for cleaned, other in zip(found.image.compute(), expected.image, strict=True):
            assert psnr(camera, cleaned) == pytest.approx(psnr(camera, other), abs=0.02)


def test_the_mean_brightness_of_a_large_colour_image_is_summed_in_double_precision():
    image = np.full((1, 2000, 2000, 3), 100.3, np.float32)  # in single precision: 95.6
    assert levels_of([Shot(1.0)], image) == pytest.approx(np.sqrt(100.3), rel=1e-6)
