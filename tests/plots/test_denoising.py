"""The figure of a denoising shows what was done, whatever the image was."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import kappaform as kf
from kappaform.imaging.metrics import psnr, ssim
from kappaform.plots import plot_denoising

RAMP = np.add.outer(np.arange(24.0), np.arange(30.0))


def denoised(image, **options):
    noisy = kf.add_noise(image, 3.0, rng=0)
    return noisy, kf.denoise_with_details(noisy, 3.0, patch_size=3, quality="fast", **options)


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


def pixels(figure, place):
    (image,) = figure.axes[place].images
    return np.asarray(image.get_array())


def test_titles_say_how_near_to_the_reference_before_and_after_are():
    noisy, result = denoised(RAMP)
    figure = plot_denoising(noisy, result, RAMP)
    before, after, *_ = titles(figure)
    assert before == f"before, PSNR {psnr(RAMP, noisy):.2f} dB"
    assert after == f"after, PSNR {psnr(RAMP, result.image):.2f} dB"
    assert titles(plot_denoising(noisy, result))[:2] == ["before", "after"]


@pytest.mark.parametrize("noise", [kf.White(3.0), kf.Shot(0.5, 2.0)])
def test_the_title_says_which_noise_was_assumed(noise):
    noisy = kf.add_noise(RAMP, 3.0, rng=0)
    result = kf.denoise_with_details(noisy, noise=noise, patch_size=3)
    assert plot_denoising(noisy, result).get_suptitle() == f"noise: {noise}"


def test_the_title_of_a_stack_says_the_noise_of_the_page_that_is_shown():
    noises = [kf.White(1.0), kf.Shot(2.0), kf.White(3.0)]
    stack = np.stack([RAMP, RAMP + 1, RAMP])
    result = kf.denoise_with_details(stack, noise=noises, patch_size=3, stack_axis=0)
    assert plot_denoising(stack, result).get_suptitle() == f"noise: {noises[1]}"


def test_the_difference_and_the_sparsity_map_are_shown_as_they_are():
    noisy, result = denoised(RAMP)
    figure = plot_denoising(noisy, result)
    assert_allclose(pixels(figure, 2), noisy - result.image)
    assert_array_equal(pixels(figure, 5), result.sparsity_map)


def test_the_title_of_the_difference_says_what_is_black_and_white():
    noisy, result = denoised(RAMP)
    axes = plot_denoising(noisy, result).axes[2]
    low, high = axes.images[0].get_clim()
    assert_allclose([-low, high], 3 * (noisy - result.image).std())
    assert axes.get_title(loc="left") == f"difference, from {low:.3g} (black) to {high:.3g}"


MASK = np.zeros(RAMP.shape, dtype=bool)
MASK[5:9, 10:15] = True
ORANGE = np.array([0xE6, 0x9F, 0x00]) / 255


def colours_of(figure, place):
    """The colours of the pixels of a panel."""
    (image,) = figure.axes[place].images
    return image.to_rgba(image.get_array())[..., :3]


@pytest.mark.parametrize("given", ["mask", "nan", "masked"])
@pytest.mark.parametrize("name", ["grey", "colour", "two channels"])
def test_missing_pixels_are_orange_where_they_are_not_filled(name, given):
    image, options = SHAPES[name]
    axis = options.get("channel_axis")
    mask = MASK if axis is None else np.stack([MASK] * image.shape[axis], axis=axis)
    noisy = kf.add_noise(image, 3.0, rng=0)
    if given == "nan":
        noisy = np.where(mask, np.nan, noisy)
    options = options | {"mask": MASK if given == "mask" else mask}
    result = kf.denoise_with_details(noisy, 3.0, patch_size=3, quality="fast", **options)
    if given == "masked":
        noisy = np.ma.array(noisy, mask=mask)
    shown = {"channel_axis": axis} | ({"mask": MASK} if given == "mask" else {})
    figure = plot_denoising(noisy, result, **shown)
    for place, orange in enumerate([MASK, MASK & False, MASK]):
        found = np.isclose(colours_of(figure, place), ORANGE).all(axis=-1)
        assert_array_equal(found, orange)
    assert titles(figure)[:2] == ["before (orange: missing)", "after"]
    assert np.isfinite(figure.axes[2].images[0].get_clim()).all()


@pytest.mark.parametrize("mask", [MASK[:5], MASK[0], MASK[np.newaxis]])
def test_a_mask_of_another_shape_is_rejected(mask):
    with pytest.raises(ValueError, match=r"mask has shape \(.*\): it must be that of the image"):
        plot_denoising(*denoised(RAMP), mask=mask)


@pytest.mark.parametrize("value", [np.nan, np.inf, -9999.0])
def test_pixels_left_as_they_are_stay_orange_and_do_not_change_the_greys(value):
    noisy, result = denoised(RAMP, mask=MASK)
    kept = np.where(MASK, value, result.image)
    figure = plot_denoising(np.where(MASK, value, noisy), replace(result, image=kept), mask=MASK)
    for place in range(3):
        assert_array_equal(np.isclose(colours_of(figure, place), ORANGE).all(axis=-1), MASK)
    assert titles(figure)[:2] == ["before (orange: missing)", "after (orange: missing)"]
    plain = colours_of(plot_denoising(noisy, result, mask=MASK), 1)
    assert_allclose(colours_of(figure, 1)[~MASK], plain[~MASK])


def test_atoms_have_a_frame_and_sigma_means_noise_alone():
    noisy, result = denoised(RAMP)
    figure = plot_denoising(noisy, result)
    atoms, spectrum = figure.axes[3:5]
    assert atoms.axison
    assert all(spine.get_visible() for spine in atoms.spines.values())
    assert not len(atoms.get_xticks()) + len(atoms.get_yticks())
    texts = [spectrum.get_ylabel(), *(text.get_text() for text in spectrum.texts)]
    assert texts == ["singular value", "largest / 1.1"]


def test_the_spectrum_is_that_of_the_transform_with_the_floor_of_its_bound():
    noisy, result = denoised(RAMP, max_condition=1.5)
    spectrum = np.linalg.svd(result.transform, compute_uv=False)
    curve, floor = plot_denoising(noisy, result).axes[4].lines
    assert_allclose(curve.get_ydata(), spectrum)
    assert_allclose(floor.get_ydata(), spectrum[0] / 1.5)


STACK = np.stack([RAMP + 100 * page for page in range(5)])
SHAPES = {
    "grey": (RAMP, {}),
    "colour": (np.stack([RAMP, 2 * RAMP, RAMP], axis=-1), {"channel_axis": -1}),
    "two channels": (np.stack([RAMP, 2 * RAMP]), {"channel_axis": 0}),
    "volume": (STACK, {}),
    "stack": (STACK, {"stack_axis": 0}),
    "constant": (None, {}),
    "given transform": (RAMP, {"transform": kf.dct_basis((3, 3))}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_kind_of_image_can_be_drawn(name):
    image, options = SHAPES[name]
    if image is None:
        noisy = np.ones((24, 30))
        result = kf.denoise_with_details(noisy, 3.0)
    else:
        noisy, result = denoised(image, **options)
    figure = plot_denoising(noisy, result, channel_axis=options.get("channel_axis"))
    figure.savefig(BytesIO(), dpi=30)
    assert pixels(figure, 2).shape == RAMP.shape
    assert ("not needed" in [text.get_text() for text in figure.axes[3].texts]) == (
        name == "constant"
    )


def test_the_colour_bar_leaves_all_panels_of_its_row_equal():
    noisy, result = denoised(RAMP)
    figure = plot_denoising(noisy, result)
    figure.draw_without_rendering()
    boxes = [axes.get_position(original=True) for axes in figure.axes[3:]]
    assert len(boxes) == 3
    assert_allclose([box.height for box in boxes], boxes[0].height)
    assert_allclose([box.y0 for box in boxes], boxes[0].y0)
    (scale,) = figure.axes[5].child_axes
    assert scale.get_xlabel() == "mean number per patch"


def test_of_a_stack_the_middle_slice_is_shown():
    noisy, result = denoised(STACK, stack_axis=0)
    assert_allclose(pixels(plot_denoising(noisy, result), 2), noisy[2] - result.image[2])


@pytest.mark.parametrize(("dtype", "span"), [(np.uint8, 255), (np.uint16, 255), (float, 200)])
def test_psnr_is_relative_to_the_range_of_the_reference(dtype, span):
    reference = np.array([[0, 100], [200, 50]], dtype)
    image = reference + np.array([[1.0, -1.0], [1.0, -1.0]])
    assert_allclose(psnr(reference, image), 20 * np.log10(span), rtol=1e-12)
    assert psnr(reference, reference) == np.inf


def test_ssim_of_a_stack_is_the_mean_over_its_slices():
    stack = (STACK / 3).astype(np.uint8)
    noisy = kf.add_noise(stack, 20, rng=0)
    alone = [ssim(one, other) for one, other in zip(stack, noisy, strict=True)]
    assert_allclose(ssim(stack, noisy, stack_axis=0), np.mean(alone), rtol=1e-12)
    assert ssim(stack, stack, stack_axis=0) == 1


def test_images_of_another_size_cannot_be_compared():
    for measure in (psnr, ssim):
        with pytest.raises(ValueError, match=r"shape \(24, 30\), the image \(23, 30\)"):
            measure(RAMP, RAMP[1:])


def test_an_image_without_its_details_is_rejected(rng):
    noisy = rng.standard_normal((16, 16))
    with pytest.raises(
        TypeError, match=r"result is of type ndarray: give a result of .*_with_details"
    ):
        kf.plots.plot_denoising(noisy, noisy)
