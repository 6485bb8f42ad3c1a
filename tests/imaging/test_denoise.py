"""Denoising as its users see it."""

import inspect
import re
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from helpers import psnr
from skimage import data
from threadpoolctl import ThreadpoolController, threadpool_limits

import kappaform as kf
from kappaform import Shot, White

SMALL = {"patch_size": 6}  # five times as fast as the patches of 11 that are usual
FAST = {**SMALL, "quality": "fast"}  # where the quality does not matter
QUALITIES = ["fast", "balanced", "best"]


@pytest.fixture(scope="module")
def clean():
    return data.camera()[100:196, 150:246].astype(np.float64)


@pytest.fixture(scope="module")
def noisy(clean):
    return kf.add_noise(clean, 20.0, rng=1)


@pytest.fixture(scope="module")
def details(noisy):
    return kf.denoise_with_details(noisy, 20.0, **SMALL)


@pytest.fixture(scope="module")
def quick(noisy):
    return kf.denoise(noisy, 20.0, **FAST)


@pytest.mark.parametrize("method", ["conditioned", "log-det", "orthonormal"])
def test_every_method_removes_most_of_the_noise(clean, noisy, method):
    assert psnr(clean, kf.denoise(noisy, 20.0, method=method, **FAST)) > psnr(clean, noisy) + 7


def test_the_preset_of_the_paper_denoises(clean, noisy):
    for method in ("conditioned", "log-det", "orthonormal"):
        result = kf.denoise_with_details(noisy, 20.0, method=method, preset="paper", **SMALL)
        assert psnr(clean, result.image) > psnr(clean, noisy) + 5
        assert len(result.history) == 20
        assert result.image.min() >= 0
        assert result.image.max() <= 255


def test_the_default_is_better_than_the_paper(clean, noisy):
    clean, noisy = clean[:56, :56], noisy[:56, :56]
    by_default, paper = kf.denoise(noisy, 20.0), kf.denoise(noisy, 20.0, preset="paper")
    assert psnr(clean, np.clip(by_default, 0, 255)) > psnr(clean, paper) + 0.5


@pytest.mark.parametrize("bound", [1.0, 1.3, 5.0])
def test_the_transform_used_keeps_the_bound(noisy, bound):
    result = kf.denoise_with_details(noisy, 20.0, max_condition=bound, **FAST)
    assert np.linalg.cond(result.transform) <= bound * (1 + 1e-9)
    assert result.condition_number == np.linalg.cond(result.transform)
    for learned in result.history:
        assert learned.condition_number <= bound * (1 + 1e-9)


# Rounding decides between patches that are equally near, and whether a coefficient at its threshold
# is kept: one such decision can change pixels by some levels. What is exact is compared bit by bit,
# and everything else by its PSNR.


@pytest.mark.parametrize("unit", [2.0**-10, 2.0**17])
def test_a_power_of_two_as_unit_changes_no_bit(noisy, details, unit):
    scaled = kf.denoise(noisy * unit, 20.0 * unit, **SMALL)
    np.testing.assert_array_equal(scaled / unit, details.image)


@pytest.mark.parametrize("unit", [1e-3, 1e5])
def test_denoising_commutes_with_scaling(clean, noisy, details, unit):
    scaled = kf.denoise(noisy * unit, 20.0 * unit, **SMALL)
    assert psnr(clean, scaled / unit) == pytest.approx(psnr(clean, details.image), abs=0.05)


@pytest.mark.parametrize("quality", QUALITIES)
def test_an_offset_that_adds_no_rounding_changes_nothing_but_the_offset(noisy, quality):
    noisy, options = np.round(noisy[:64] * 16) / 16, {"quality": quality}
    options["transform"] = kf.dct_basis((6, 6))
    raised = kf.denoise(noisy + 2.0**13, 20.0, **options)
    expected = kf.denoise(noisy, 20.0, **options)
    np.testing.assert_allclose(raised - 2.0**13, expected, atol=2.0**-38)  # of the last addition


def test_denoising_commutes_with_an_offset(clean, noisy, details):
    raised = kf.denoise(noisy + 1e4, 20.0, **SMALL)
    assert psnr(clean, raised - 1e4) == pytest.approx(psnr(clean, details.image), abs=0.05)


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_transposed_image_gives_the_transposed_result_with_the_same_transform(
    noisy, details, quality
):
    swap = np.arange(36).reshape(6, 6).T.ravel()
    expected = kf.denoise(noisy, 20.0, transform=details.transform, quality=quality)
    other = details.transform[:, swap]
    transposed = kf.denoise(noisy.T, 20.0, transform=other, quality=quality)
    difference = np.sqrt(np.mean((transposed.T - expected) ** 2))
    assert difference < 0.05  # a noise of 20 is removed; without the swap it is above 1


def test_same_seed_same_result_and_another_seed_another(noisy):
    one, same, other = (kf.denoise(noisy, 20.0, rng=seed, **FAST) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0


def test_no_seed_is_seed_zero(noisy, quick):
    np.testing.assert_array_equal(kf.denoise(noisy, 20.0, rng=0, **FAST), quick)


@pytest.mark.parametrize("quality", QUALITIES)
def test_any_number_of_threads_gives_the_same_bits(noisy, quality, monkeypatch):
    options = {"transform": kf.dct_basis((7, 7)), "quality": quality}
    results = []
    for number in (1, 2, 3):
        monkeypatch.setenv("KAPPAFORM_NUM_THREADS", str(number))
        results.append(kf.denoise(noisy[:, :64], 20.0, **options))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_keep_their_dtype(noisy, quick, dtype):
    cleaned = kf.denoise(noisy.astype(dtype), 20.0, **FAST)
    assert cleaned.dtype == dtype
    assert np.abs(cleaned.astype(np.float64) - quick).mean() < 1


def test_by_default_floats_keep_their_dtype_and_slices_are_denoised_as_alone(noisy):
    stack = np.stack([noisy[:40, :40], noisy[40:80, :40]]).astype(np.float16)
    found = kf.denoise(stack, 20.0, stack_axis=0, **SMALL)
    assert found.dtype == np.float16
    for image, cleaned in zip(stack, found, strict=True):
        np.testing.assert_array_equal(cleaned, kf.denoise(image, 20.0, **SMALL))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
def test_integers_come_back_as_floats_of_their_range(noisy, clean, dtype):
    cleaned = kf.denoise(np.clip(noisy, 0, 255).astype(dtype), 20.0, **FAST)
    assert cleaned.dtype == np.float64
    assert psnr(clean, cleaned) > 27


def test_values_are_clipped_only_when_asked(noisy):
    dark = noisy[:64, :64] - 120
    options = {"transform": kf.dct_basis((7, 7))}
    assert kf.denoise(dark, 20.0, **options).min() < 0
    with pytest.warns(UserWarning, match="excludes most values"):
        bounded = kf.denoise(dark, 20.0, value_range=(0, 100), **options)
    assert bounded.min() >= 0
    assert bounded.max() <= 100


def test_sigma_is_estimated_when_not_given(clean, noisy):
    result = kf.denoise_with_details(noisy, **SMALL)
    assert result.sigma == pytest.approx(20.0, rel=0.15)
    assert psnr(clean, result.image) > psnr(clean, noisy) + 6.5


def test_no_noise_returns_the_image(clean):
    np.testing.assert_array_equal(kf.denoise(clean, 0.0), clean)
    large = 2**60 + np.arange(400).reshape(20, 20)
    np.testing.assert_array_equal(kf.denoise(large, 0.0), large.astype(np.float64))


@pytest.mark.parametrize("noise", [White(10.0), White(0.0), Shot(2.0)], ids=str)
@pytest.mark.parametrize("n_channels", [1, 3])
def test_a_range_of_values_holds_where_there_is_nothing_to_remove(noise, n_channels):
    image = np.full((20, 20, n_channels), 300.0)
    image[..., 0] = 100.0
    options = {"noise": noise, "channel_axis": -1, "value_range": (120, 255)}
    with pytest.warns(UserWarning, match="excludes most values"):
        found = kf.denoise(image, **options)
    np.testing.assert_array_equal(found, np.clip(image, 120, 255))


@pytest.mark.parametrize("value", [0.0, -3.5, 1e20])
@pytest.mark.parametrize("sigma", [None, 10.0])
def test_a_constant_image_returns_itself(value, sigma):
    image = np.full((30, 20), value)
    np.testing.assert_array_equal(kf.denoise(image, sigma), image)


def test_noise_stronger_than_the_image_leaves_something_smooth(clean, noisy):
    with pytest.warns(UserWarning, match="sigma=500 exceeds the range of the image"):
        cleaned = kf.denoise(noisy, 500.0, **SMALL)
    # The mean and what is smooth are left; the steps are 0.31 of those of the clean image.
    assert cleaned.mean() == pytest.approx(clean.mean(), abs=2)
    assert np.abs(np.diff(cleaned)).mean() < 0.5 * np.abs(np.diff(clean)).mean()
    assert np.corrcoef(cleaned.ravel(), clean.ravel())[0, 1] > 0.6


def test_colour_is_better_denoised_together(rng):
    clean = data.astronaut()[:64, 150:214].astype(np.float64)
    noisy = kf.add_noise(clean, 25.0, rng)
    for options in (FAST, {"transform": kf.dct_basis((8, 8))}):
        together = kf.denoise(noisy, 25.0, channel_axis=-1, **options)
        apart = kf.denoise(noisy, 25.0, stack_axis=-1, **options)
        assert psnr(clean, together) > psnr(clean, apart) + 0.5
        first = kf.denoise(np.moveaxis(noisy, -1, 0), 25.0, channel_axis=0, **options)
        np.testing.assert_allclose(np.moveaxis(first, 0, -1), together, atol=1e-9)


def test_grey_that_is_stored_as_colour_is_denoised_as_grey(noisy, quick):
    colour = np.repeat(noisy[..., np.newaxis], 3, axis=-1)
    cleaned = kf.denoise(colour, 20.0, channel_axis=-1, **FAST)
    np.testing.assert_array_equal(cleaned, np.repeat(quick[..., np.newaxis], 3, axis=-1))


def test_noise_common_to_the_channels_is_estimated_as_such(clean, rng):
    common = 20 * rng.standard_normal(clean.shape)
    own = 2 * rng.standard_normal((*clean.shape, 3))
    noisy = clean[..., np.newaxis] + common[..., np.newaxis] + own
    reference = np.repeat(clean[..., np.newaxis], 3, axis=-1)
    cleaned = kf.denoise(noisy, channel_axis=-1, **FAST)
    assert psnr(reference, cleaned) > psnr(reference, noisy) + 6


@pytest.mark.parametrize(("channel_axis", "stack_axis"), [(0, 1), (3, -4), (-1, 0), (1, 3)])
def test_axes_of_channels_and_stack_may_be_anywhere(rng, channel_axis, stack_axis):
    image = rng.standard_normal((2, 14, 12, 3))  # stack, rows, columns, channels
    rest = [i for i in range(4) if i not in (channel_axis % 4, stack_axis % 4)]
    order = np.empty(4, int)
    order[stack_axis % 4], order[channel_axis % 4] = 0, 3
    order[rest] = 1, 2
    options = {"patch_size": 3, "transform": kf.dct_basis((3, 3))}
    plain = kf.denoise_with_details(image, 1.0, channel_axis=-1, stack_axis=0, **options)
    moved = kf.denoise_with_details(
        image.transpose(order), 1.0, channel_axis=channel_axis, stack_axis=stack_axis, **options
    )
    np.testing.assert_array_equal(moved.image, plain.image.transpose(order))
    expected = [image.shape[i] for i in order if i != 3]
    assert list(moved.sparsity_map.shape) == expected


def test_each_image_of_a_stack_may_have_its_own_noise(noisy, quick):
    stack = np.stack([noisy, noisy])
    result = kf.denoise_with_details(stack, [20.0, 5.0], stack_axis=0, **FAST)
    np.testing.assert_array_equal(result.image[0], quick)
    again = kf.denoise_with_details(stack, result.sigma, stack_axis=0, **FAST)
    np.testing.assert_array_equal(again.image, result.image)


def test_one_sigma_for_each_channel_or_image_is_not_guessed(rng):
    stack = rng.standard_normal((3, 12, 12, 3))
    options = {"stack_axis": 0, "channel_axis": -1, "patch_size": 3, "quality": "fast"}
    with pytest.raises(
        ValueError, match=r"sigma=\[0, 1, 2\] is ambiguous, .* shape \(1, 3\) for ch"
    ):
        kf.denoise(stack, [0, 1, 2], **options)
    of_channels = kf.denoise(stack, [[0, 1, 2]], **options)
    np.testing.assert_array_equal(of_channels[..., 0], stack[..., 0])
    assert not np.array_equal(of_channels[0, ..., 1], stack[0, ..., 1])
    of_images = kf.denoise(stack, [[0], [1], [2]], **options)
    np.testing.assert_array_equal(of_images[0], stack[0])
    assert not np.array_equal(of_images[1, ..., 0], stack[1, ..., 0])
    # Two images of three channels leave no doubt.
    two = kf.denoise(stack[:2], [0, 1], **options)
    np.testing.assert_array_equal(two[0], stack[0])
    np.testing.assert_array_equal(two[1], of_images[1])


@pytest.mark.parametrize("sigma", [True, np.True_, [True, False]])
def test_a_boolean_is_no_sigma(sigma):
    with pytest.raises(TypeError, match=r"sigma=.* is a boolean: give a number"):
        kf.denoise(np.eye(20), sigma)
    with pytest.raises(TypeError, match=r"sigma=.* is a boolean: give a number"):
        White(sigma)
    with pytest.raises(TypeError, match=r"sigma=.* is a boolean: give a number"):
        kf.add_noise(np.eye(20), sigma)


def test_a_kind_of_noise_is_no_sigma():
    with pytest.raises(TypeError, match=r"sigma=White\(.* is a kind of noise: give it as noise="):
        kf.denoise(np.eye(20), White(20.0))


@pytest.mark.parametrize("patch_size", [True, (True, 4)])
def test_a_boolean_is_no_size_of_patches(patch_size):
    with pytest.raises(TypeError, match=r"patch_size=.*True.* is not an integer"):
        kf.denoise(np.eye(20), 1.0, patch_size=patch_size)


@pytest.mark.parametrize(
    "function",
    [kf.denoise, kf.denoise_with_details, kf.learn_from_images],
    ids=lambda f: f.__name__,
)
def test_a_text_is_no_sigma_to_a_type_checker(function):
    def accepts_text(hint):
        # A str is a sequence of str: no type that a sequence may hold must be one.
        return hint in (str, object, Any) or any(map(accepts_text, get_args(hint)))

    hint = get_type_hints(function)["sigma"]
    assert float in get_args(hint)
    assert not accepts_text(hint)


@pytest.mark.parametrize("quality", QUALITIES)
def test_half_precision_survives_little_noise(rng, quality):
    image = rng.random((20, 20)).astype(np.float16)
    np.testing.assert_array_equal(kf.denoise(image, 1e-6, quality=quality), image)


def test_each_channel_may_have_its_own_noise(rng):
    clean = data.astronaut()[:64, 150:214].astype(np.float64)
    sigmas = np.array([5.0, 0.0, 30.0])
    noisy = clean + sigmas * rng.standard_normal(clean.shape)
    result = kf.denoise_with_details(noisy, sigmas, channel_axis=-1, **SMALL)
    np.testing.assert_array_equal(result.image[..., 1], clean[..., 1])
    assert psnr(clean, result.image) > psnr(clean, noisy) + 3
    np.testing.assert_array_equal(result.sigma, sigmas)


def test_a_stack_is_denoised_slice_by_slice(noisy, quick):
    stack = np.stack([noisy, noisy[::-1]], axis=1)
    result = kf.denoise_with_details(stack, 20.0, stack_axis=1, **FAST)
    assert result.image.shape == result.sparsity_map.shape == stack.shape
    np.testing.assert_array_equal(result.image[:, 0], quick)
    assert len(result.transforms) == 2


def test_a_volume_is_denoised_by_its_own_patches(rng):
    clean = 40 * np.sin(np.indices((20, 24, 22)).sum(axis=0) / 4)
    noisy = kf.add_noise(clean, 10.0, rng)
    result = kf.denoise_with_details(noisy, 10.0)
    assert result.patch_shape == (4, 4, 4)
    assert np.std(result.image - clean) < 0.35 * np.std(noisy - clean)


def test_a_given_transform_is_used(noisy):
    noisy, basis = noisy[:64, :64], kf.dct_basis((7, 7))
    result = kf.denoise_with_details(noisy, 20.0, transform=basis)
    np.testing.assert_array_equal(result.transform, basis)
    assert result.patch_shape == (7, 7)
    assert result.history == ()
    patches = kf.extract_patches(noisy, 6)[::7]
    estimator = kf.OrthonormalTransform(4, tol=1e-2).fit(patches)
    by_estimator = kf.denoise(noisy, 20.0, transform=estimator)
    by_result = kf.denoise(noisy, 20.0, transform=estimator.result_)
    np.testing.assert_array_equal(by_estimator, by_result)


def test_sparsity_map_is_high_where_the_image_is_rich(clean, details):
    rows, columns = np.gradient(clean)
    edges = np.hypot(rows, columns) > 40
    assert details.sparsity_map.shape == clean.shape
    assert details.sparsity_map[edges].mean() > 2 * details.sparsity_map[~edges].mean()


@pytest.mark.parametrize("n_halves", [0, 1, 2])
@pytest.mark.parametrize(("quality", "n_rounds"), [("fast", 4), ("balanced", 3)])
def test_callback_sees_the_learning_and_may_end_it(noisy, n_halves, quality, n_rounds):
    seen = []
    image = noisy[: (22, 33, 60)[n_halves]]
    callback = lambda state: seen.append(state) or True  # noqa: E731
    kf.denoise(image, 20.0, callback=callback, **FAST | {"quality": quality})
    assert len(seen) == n_rounds + n_halves  # and one for each size that the image is halved to


def test_small_images_have_small_patches(rng):
    result = kf.denoise_with_details(rng.standard_normal((6, 30)), 1.0)
    assert result.patch_shape == (6, 10)
    assert np.isfinite(result.image).all()


@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 2), (1, 40), (40, 1), (3, 5), (7, 6), (2, 2, 2), (5, 1, 1), (1, 6, 7)]
)
def test_images_smaller_than_window_and_patch_are_denoised(shape, quality, rng):
    image = 10 * rng.standard_normal(shape)
    cleaned = kf.denoise(image, 1.0, quality=quality)
    assert cleaned.shape == shape
    assert np.isfinite(cleaned).all()
    assert np.abs(cleaned - image).max() < 10
    np.testing.assert_array_equal(kf.denoise(np.full(shape, 3.0), 1.0, quality=quality), 3.0)


@pytest.mark.parametrize("quality", QUALITIES)
@pytest.mark.parametrize("sigma", [1e-9, 1e-3, 1e6])
def test_a_sigma_that_is_far_off_gives_something_finite(noisy, quality, sigma):
    options = {"transform": kf.dct_basis((6, 6)), "quality": quality}
    beyond = pytest.warns(UserWarning, match=r"sigma=1e\+06 exceeds the range of the image")
    with beyond if sigma > 1 else nullcontext():
        cleaned = kf.denoise(noisy[:40, :40], sigma, **options)
    assert np.isfinite(cleaned).all()
    if sigma < 1:
        np.testing.assert_allclose(cleaned, noisy[:40, :40], rtol=0, atol=sigma)
    else:
        assert cleaned.std() < noisy.std()


@pytest.mark.parametrize("quality", QUALITIES)
def test_constant_regions_stay_nearly_constant(noisy, quality):
    image = noisy[:64, :64].copy()
    image[10:50, 8:48] = 0
    options = {"transform": kf.dct_basis((5, 5)), "quality": quality}
    cleaned = kf.denoise(image, 20.0, **options)
    assert np.isfinite(cleaned).all()
    assert np.abs(cleaned[18:42, 16:40]).max() < 0.1 * 20  # of halves, so far from the noise


def test_a_callback_of_the_preset_has_the_blas_threads_of_the_user(noisy):
    seen = []

    def watch(_):
        found = ThreadpoolController().select(user_api="blas").info()
        seen.append({each["num_threads"] for each in found})
        return len(seen) == 2

    with threadpool_limits(2, user_api="blas"):
        kf.denoise(noisy[:40, :40], 100.0, preset="paper", patch_size=5, callback=watch)
    assert seen == [{2}, {2}]


def test_denoise_and_its_details_have_the_same_explicit_parameters():
    assert not hasattr(kf.denoise, "__signature__")
    short, long = (inspect.signature(f) for f in (kf.denoise, kf.denoise_with_details))
    assert short.parameters == long.parameters
    assert all(p.kind is not p.VAR_KEYWORD for p in short.parameters.values())


def test_every_parameter_of_denoise_is_described():
    parameters = inspect.getdoc(kf.denoise).partition("Returns\n")[0]
    described = re.findall(r"^(\w+) : ", parameters, re.M)
    assert set(inspect.signature(kf.denoise).parameters) == set(described)


def test_every_option_of_denoise_reaches_its_details(monkeypatch):
    module = sys.modules["kappaform.imaging.denoise"]
    seen = {}
    monkeypatch.setattr(
        module, "denoise_with_details", lambda **k: seen.update(k) or SimpleNamespace(image=1)
    )
    options = {name: object() for name in inspect.signature(kf.denoise).parameters}
    assert kf.denoise(**options) == 1
    assert seen == options


def test_a_misspelt_keyword_blames_the_function_that_was_called(noisy):
    with pytest.raises(TypeError, match=r"^denoise\(\) got an unexpected keyword .*'max_conditon'"):
        kf.denoise(noisy, 20.0, max_conditon=2)


@pytest.mark.parametrize("is_colour", [False, True])
def test_the_number_of_blas_threads_does_not_change_the_result(noisy, is_colour):
    image, options = noisy[:80, :80], {"preset": "paper"}  # five rounds with so large a sigma
    if is_colour:
        image = np.stack([image, image[::-1], image[:, ::-1]], axis=-1)
        options = {"channel_axis": -1, "transform": kf.dct_basis((5, 5))}
    results = []
    for number in (1, 2):
        with threadpool_limits(number, user_api="blas"):
            results.append(kf.denoise(image, 100.0, **options))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("is_colour", [False, True], ids=["grey", "colour"])
def test_the_layout_of_an_image_in_memory_changes_no_bit(noisy, is_colour):
    image = np.float32(np.stack([noisy, noisy[::-1], noisy.T], axis=-1) if is_colour else noisy)
    options = {**FAST, "channel_axis": -1 if is_colour else None}
    expected = kf.denoise(image, 20.0, **options)
    every_other = np.zeros([2 * length for length in image.shape], np.float32)
    strided = every_other[tuple(slice(None, None, 2) for _ in image.shape)]
    strided[...] = image
    planes = np.moveaxis(np.ascontiguousarray(np.moveaxis(image, -1, 0)), 0, -1)
    for same in (np.asfortranarray(image), strided, planes):
        np.testing.assert_array_equal(kf.denoise(same, 20.0, **options), expected)


@pytest.mark.parametrize(
    ("exponent", "dtype"),
    [(100, np.float32), (-100, np.float32), (1000, np.float64), (-1000, np.float64)],
)
def test_the_scale_of_a_given_transform_does_not_matter(noisy, exponent, dtype):
    noisy = noisy[:64, :64]
    basis = kf.dct_basis((6, 6)).astype(dtype)
    expected = kf.denoise(noisy, 20.0, transform=basis)
    scaled = np.ldexp(basis, exponent)
    result = kf.denoise_with_details(noisy, 20.0, transform=scaled)
    np.testing.assert_array_equal(result.transform, scaled)
    np.testing.assert_array_equal(result.image, expected)


@pytest.mark.parametrize("offset", [1e5, 4e5])
def test_a_large_offset_of_single_precision_does_not_hide_the_noise(clean, noisy, offset):
    cleaned = kf.denoise((noisy / 20 + offset).astype(np.float32), **SMALL).astype(np.float64)
    assert psnr(clean, 20 * (cleaned - offset)) > psnr(clean, noisy) + 6.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [-9999.0, -1e9])
def test_a_pixel_without_data_leaves_the_rest_as_it_was(clean, noisy, details, value, dtype):
    image = (noisy / 2000).astype(dtype)
    image[60, 50] = value
    cleaned = 2000 * kf.denoise(image, **SMALL).astype(np.float64)
    rest = np.ones(image.shape, bool)
    rest[50:71, 40:61] = False
    assert psnr(clean[rest], cleaned[rest]) > psnr(clean[rest], details.image[rest]) - 0.5


@pytest.mark.parametrize("factor", [1e-290, 1e290])
def test_values_of_any_ordinary_size_are_denoised(noisy, details, factor):
    cleaned = kf.denoise(noisy * factor, 20.0 * factor, **SMALL)
    np.testing.assert_allclose(cleaned / factor, details.image, atol=1e-3)
    assert kf.estimate_sigma(noisy * factor) == pytest.approx(factor * kf.estimate_sigma(noisy))


@pytest.mark.parametrize("preset", [None, "paper"])
def test_noise_beyond_the_digits_of_the_image_is_rejected_by_the_name_of_sigma(noisy, preset):
    with pytest.raises(ValueError, match=r"image has values from .*, and sigma is 1e-30"):
        kf.denoise(noisy, 1e-30, preset=preset)


def test_values_without_a_limit_are_rejected_by_the_name_of_the_image(noisy):
    missing = noisy.copy()
    missing[3, 4] = np.finfo(np.float32).min
    for image in (missing, missing.astype(np.float32)):
        with pytest.raises(ValueError, match=r"image has values from -3\.4e\+38 .* without data"):
            kf.denoise(image)
    with pytest.raises(ValueError, match=r"image has values from .*e\+30\d to"):
        kf.denoise(noisy * 4e305, 20 * 4e305)


def test_half_precision_stays_finite_at_its_limits(rng):
    image = np.where(rng.random((40, 40)) < 0.5, np.float16(65504), np.float16(-65504))
    cleaned = kf.denoise(image, 3e4)
    assert cleaned.dtype == np.float16
    assert np.isfinite(cleaned).all()


@pytest.mark.parametrize("n_channels", [3, 4])
def test_channels_in_front_without_their_name_are_warned_of(n_channels, rng):
    image = rng.standard_normal((n_channels, 30, 20))
    cube, square = kf.dct_basis((2, 2, 2)), kf.dct_basis((3, 3))
    warning = rf"taken for a volume of {n_channels} slices: .* channel_axis=0, .* stack_axis=0"
    for denoise in (kf.denoise, kf.denoise_with_details):
        with pytest.warns(UserWarning, match=warning) as caught:
            denoise(image, 1.0, transform=cube)
        assert {each.filename for each in caught} == {__file__}  # at the line of the user
    with pytest.warns(UserWarning, match="channel_axis=0"):
        kf.denoise(np.stack([image, image], axis=1), 1.0, stack_axis=1, transform=cube)
    kf.denoise(image, 1.0, channel_axis=0, transform=square)
    kf.denoise(image, 1.0, stack_axis=0, transform=square)


@pytest.mark.parametrize(
    ("image", "options", "message"),
    [
        (np.ones(30), {}, r"shape \(30,\), 1 dimensions of space: 2 or 3 are needed"),
        (np.ones((2,) * 5), {}, "5 dimensions of space"),
        (np.ones((0, 9)), {}, r"image has shape \(0, 9\): axis 0 is empty"),
        (np.full((20, 20), np.nan), {}, "NaN or inf in 400 of 400 values, first at .0, 0.: fill"),
        (np.ones((20, 20, 3)), {}, "looks like colour: give channel_axis=-1"),
        (np.eye(20), {"sigma": -1.0}, r"sigma=-1\.0: a standard deviation is finite and >= 0"),
        (np.eye(20), {"sigma": np.nan}, "sigma=nan"),
        (np.eye(20), {"sigma": [1.0, 2.0]}, r"sigma has shape \(2,\)"),
        (np.eye(20), {"patch_size": 21}, "patch_size=21 is larger than the image"),
        (np.eye(20), {"patch_size": 0}, "patch_size=0 is too small"),
        (np.eye(20), {"patch_size": (3, 3, 3)}, "has 3 entries: give one integer, or one for each"),
        (np.ones((2, 9, 9, 3)), {"stack_axis": 0}, "looks like colour: give channel_axis=-1"),
        (np.eye(20), {"value_range": 5}, r"value_range=5: give \(low, high\)"),
        (np.eye(20), {"transform": kf.OrthonormalTransform()}, "transform is a Orthonormal"),
        (np.eye(20), {"method": "magic"}, "method='magic' is unknown: choose one of"),
        (np.eye(20), {"preset": "fast"}, "preset='fast' is unknown"),
        (
            np.eye(20),
            {"quality": "good"},
            r"quality='good' is unknown: choose one of \('fast', 'bal",
        ),
        (
            np.eye(20),
            {"quality": "best", "preset": "paper"},
            "quality='best' has no effect with preset='paper', which has one quality: leave one",
        ),
        (np.eye(20), {"max_condition": 0.5}, r"max_condition=0\.5"),
        (np.eye(20), {"value_range": (1, 0)}, r"value_range=\(1, 0\): give \(low, high\)"),
        (1000 + np.eye(20), {"sigma": 1.0, "preset": "paper"}, "made for grey levels from 0 to"),
        (
            np.eye(20),
            {"preset": "paper", "value_range": (0, 1)},
            r"value_range=\(0, 1\) with preset",
        ),
        (np.eye(20), {"channel_axis": 2}, "channel_axis=2 is not an axis"),
        (np.ones((9, 9, 9)), {"channel_axis": 0, "stack_axis": -3}, "are the same axis"),
        (np.eye(20), {"transform": np.eye(5)}, r"transform has shape \(5, 5\): patches of"),
        (np.eye(20), {"transform": np.zeros((9, 9))}, "transform is singular"),
        (np.eye(20), {"transform": np.eye(9), "preset": "paper"}, "exclude each other"),
        (np.eye(20), {"transform": np.full((9, 9), np.inf)}, "transform is singular or not finite"),
    ],
)
def test_bad_input_is_named(image, options, message):
    with pytest.raises(ValueError, match=message):
        kf.denoise(image, **options)


def test_balanced_is_the_quality_by_default(noisy):
    options = {"sigma": 20.0, "patch_size": 5}
    given = kf.denoise(noisy[:40, :40], quality="balanced", **options)
    np.testing.assert_array_equal(kf.denoise(noisy[:40, :40], **options), given)


def test_patch_sizes_that_are_no_integers_are_rejected():
    with pytest.raises(TypeError, match=r"patch_size=2\.5 is not an integer"):
        kf.denoise(np.eye(20), patch_size=2.5)


def test_images_that_are_no_numbers_are_rejected():
    with pytest.raises(TypeError, match="image has dtype"):
        kf.denoise(np.array([["a", "b"]]))


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">u2"])
def test_any_byte_order_is_denoised(dtype):
    """As files of other machines, FITS and memory-maps have it."""
    image = np.random.default_rng(0).integers(0, 255, (40, 40)).astype(dtype)
    native = image.astype(image.dtype.newbyteorder("="))
    found, expected = (kf.denoise(each, 30.0, quality="fast") for each in (image, native))
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.1)
