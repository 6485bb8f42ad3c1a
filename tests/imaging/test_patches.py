"""Extracting patches and averaging them are an adjoint pair and undo each other."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappaform.imaging import average_patches, extract_patches
from kappaform.imaging.patches import grid_of


@st.composite
def layouts(draw, covering=False):
    """Shape, patch size and stride of up to three axes, of up to 400 patches."""
    shape, patch_size, stride = [], [], []
    for _ in range(draw(st.integers(1, 3))):
        p = draw(st.integers(1, 4))
        n = draw(st.integers(p, p + 6))
        shape.append(n)
        patch_size.append(p)
        stride.append(draw(st.integers(1, p if covering else p + 3)))
    return tuple(shape), tuple(patch_size), tuple(stride)


seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@given(layouts(), seeds)
def test_rows_are_the_patches_in_order(layout, rng):
    shape, *where = layout
    image = rng.standard_normal(shape)
    np.testing.assert_array_equal(extract_patches(image, *where), naive.patches(image, *where))


@given(layouts(), seeds, st.integers(0, 3))
def test_channels_are_last_in_a_patch_wherever_their_axis_is(layout, rng, axis):
    shape, *where = layout
    image = rng.standard_normal((*shape, 3))
    axis = min(axis, len(shape))
    patches = extract_patches(np.moveaxis(image, -1, axis), *where, channel_axis=axis)
    np.testing.assert_array_equal(patches, naive.patches(image, *where))


@given(layouts(covering=True), seeds)
def test_averaging_undoes_extracting(layout, rng):
    shape, *where = layout
    image = rng.standard_normal(shape)
    again = average_patches(extract_patches(image, *where), shape, *where)
    np.testing.assert_allclose(again, image, rtol=64 * np.finfo(np.float64).eps)


@given(layouts(covering=True), seeds, st.sampled_from([np.uint8, np.float16, np.float32]))
def test_averaging_undoes_extracting_to_the_bit_for_short_numbers(layout, rng, dtype):
    shape, *where = layout
    image = (255 * rng.random(shape)).astype(dtype)
    again = average_patches(extract_patches(image, *where), shape, *where)
    np.testing.assert_array_equal(again, image)


@given(layouts(covering=True), seeds, st.integers(0, 3))
def test_averaging_undoes_extracting_with_channels(layout, rng, axis):
    shape, *where = layout
    axis = min(axis, len(shape)) - len(shape) - 1
    image = np.moveaxis(rng.random((*shape, 2)).astype(np.float32), -1, axis)
    patches = extract_patches(image, *where, channel_axis=axis)
    again = average_patches(patches, image.shape, *where, channel_axis=axis)
    np.testing.assert_array_equal(again, image)


@given(layouts(covering=True), seeds)
def test_sums_of_patches_are_the_adjoint_of_extracting(layout, rng):
    shape, *where = layout
    image = rng.integers(-9, 10, shape)
    patches = extract_patches(image, *where)
    others = rng.integers(-9, 10, patches.shape)
    sums = average_patches(others, shape, *where) * grid_of(shape, *where).overlaps()
    assert np.vdot(image, sums) == pytest.approx(np.vdot(patches, others), abs=1e-9)


@given(layouts(covering=True), seeds)
def test_pixels_are_weighted_means_of_what_patches_say(layout, rng):
    shape, *where = layout
    patches = rng.standard_normal(extract_patches(np.empty(shape), *where).shape)
    weights = rng.random(len(patches)) + 0.01
    expected = naive.average_of_patches(patches, shape, *where, weights)
    image = average_patches(patches, shape, *where, weights=weights)
    np.testing.assert_allclose(image, expected, rtol=1e-12, atol=1e-13)


@given(layouts(covering=True), seeds)
def test_weights_that_are_equal_change_nothing(layout, rng):
    shape, *where = layout
    patches = rng.standard_normal(extract_patches(np.empty(shape), *where).shape)
    weighted = average_patches(patches, shape, *where, weights=np.full(len(patches), 0.25))
    np.testing.assert_array_equal(weighted, average_patches(patches, shape, *where))


@given(layouts(covering=True), seeds, st.integers(1, 50))
def test_blocks_average_to_the_same_image(layout, rng, max_patches):
    shape, *where = layout
    patches = rng.standard_normal(extract_patches(np.empty(shape), *where).shape)
    weights = rng.random(len(patches)) + 0.01
    blocks = (patches[i : i + max_patches] for i in range(0, len(patches), max_patches))
    image = average_patches(blocks, shape, *where, weights=weights)
    whole = average_patches(patches, shape, *where, weights=weights)
    np.testing.assert_allclose(image, whole, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [(7,), (5, 6), (3, 4, 5)])
def test_a_patch_as_large_as_the_image_is_the_image(shape, rng):
    image = rng.standard_normal(shape)
    patches = extract_patches(image, shape)
    np.testing.assert_array_equal(patches, image.reshape(1, -1))
    np.testing.assert_array_equal(average_patches(patches, shape, shape), image)


def test_an_integer_is_the_same_along_every_axis(rng):
    image = rng.random((9, 8, 7), np.float32)
    same = extract_patches(image, (3, 3, 3), [2, 2, 2])
    np.testing.assert_array_equal(extract_patches(image, 3, 2), same)
    np.testing.assert_array_equal(average_patches(same, image.shape, 3, 2), image)


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [(np.float16,) * 2, (np.float32,) * 2, (np.float64,) * 2]
    + [(dtype, np.float64) for dtype in (bool, np.uint8, np.int16, np.int64)],
)
def test_floats_keep_their_dtype_and_integers_become_float64(given_dtype, expected):
    image = np.ones((6, 7), given_dtype)
    patches = extract_patches(image, 3)
    assert patches.dtype == expected
    assert average_patches(patches, image.shape, 3).dtype == expected
    assert average_patches(iter([patches]), image.shape, 3).dtype == expected
    assert average_patches(patches.astype(given_dtype), image.shape, 3).dtype == expected


def test_patches_are_copies():
    image = np.zeros((5, 5))
    extract_patches(image, 5)[:] = 1
    assert not image.any()


def test_an_image_in_any_memory_order_has_the_same_patches(rng):
    image = rng.standard_normal((10, 12))
    expected = extract_patches(image, (3, 4), 2)
    np.testing.assert_array_equal(extract_patches(np.asfortranarray(image), (3, 4), 2), expected)
    np.testing.assert_array_equal(extract_patches(image[::-1][::-1], (3, 4), 2), expected)


def test_not_a_number_stays_in_the_patches_over_it():
    image = np.zeros((6, 6))
    image[2, 3] = np.nan
    patches = extract_patches(image, 2)
    assert np.isnan(patches).any(axis=1).sum() == 4
    np.testing.assert_array_equal(average_patches(patches, image.shape, 2), image)


@pytest.mark.parametrize(
    ("patch_size", "stride", "channel_axis", "message"),
    [
        (9, 1, None, r"patch_size=9 is larger than the image: .* at most \(8, 10\)"),
        ((3, 11), 1, None, r"patch_size=\(3, 11\) is larger"),
        (11, 1, 0, r"patch_size=11 is larger .* at most \(10,\)"),
        (0, 1, None, "patch_size=0 is too small: every entry must be at least 1"),
        (3, 0, None, "stride=0 is too small: every entry must be at least 1"),
        (3, (1, -1), None, r"stride=\(1, -1\) is too small"),
        ((3, 3, 3), 1, None, r"patch_size=\(3, 3, 3\) has 3 entries: .* each of the 2 axes"),
        ((3, 3), 1, 1, r"patch_size=\(3, 3\) has 2 entries: .* each of the 1 axes"),
        (3, 1, 2, r"channel_axis=2 is not an axis of an image of shape \(8, 10\)"),
    ],
)
def test_what_is_no_grid_of_patches_is_rejected(patch_size, stride, channel_axis, message):
    image = np.zeros((8, 10))
    with pytest.raises(ValueError, match=message):
        extract_patches(image, patch_size, stride, channel_axis=channel_axis)


@pytest.mark.parametrize("name", ["patch_size", "stride"])
@pytest.mark.parametrize("value", [2.0, "3", (2, 1.5), None])
def test_sizes_are_integers(name, value):
    with pytest.raises(TypeError, match=f"{name}=.* is not an integer or a tuple of integers"):
        extract_patches(np.zeros((8, 8)), **{"patch_size": 3, name: value})


@pytest.mark.parametrize("shape", [(), (0, 5), (5, 0)])
def test_an_image_without_pixels_has_no_patches(shape):
    with pytest.raises(ValueError, match="at least one axis and one pixel"):
        extract_patches(np.zeros(shape), 1)


@pytest.mark.parametrize("as_given", [np.asarray, lambda rows: iter([rows])])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((36, 8), r"patches has shape \(36, 8\): it must be 2-D with 9 columns"),
        ((36, 3, 3), r"patches has shape \(36, 3, 3\): it must be 2-D"),
        ((35, 9), "patches has 35 rows: .* have 36 patches"),
        ((37, 9), "patches has more than 36 rows: .* have 36 patches"),
    ],
)
def test_patches_of_another_shape_are_rejected(as_given, shape, message):
    with pytest.raises(ValueError, match=message):
        average_patches(as_given(np.zeros(shape)), (8, 8), 3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(35), r"weights has shape \(35,\): .* each of the 36 patches"),
        (np.ones((36, 1)), r"weights has shape \(36, 1\)"),
        ([*np.ones(35), -1], r"weights\[35\]=-1.0: each must be finite and 0 or more"),
        ([np.nan, *np.ones(35)], r"weights\[0\]=nan"),
        ([1, np.inf, *np.ones(34)], r"weights\[1\]=inf"),
        ([0, *np.ones(35)], r"pixel \(0, 0\) is in no patch that counts: weights must be positive"),
    ],
)
def test_weights_that_do_not_serve_are_rejected(weights, message):
    with pytest.raises(ValueError, match=message):
        average_patches(np.zeros((36, 9)), (8, 8), 3, weights=weights)


def test_gaps_between_patches_are_rejected_in_an_average():
    patches = extract_patches(np.ones((8, 8)), 2, 3)
    message = r"pixel \(0, 2\) is in no patch that counts: stride=3 must not exceed patch_size=2"
    with pytest.raises(ValueError, match=message):
        average_patches(patches, (8, 8), 2, 3)


def test_a_shape_that_is_none_is_rejected():
    with pytest.raises(TypeError, match="shape=64 is not a tuple of integers"):
        average_patches(np.zeros((1, 64)), 64, 64)


def test_complex_images_are_rejected():
    with pytest.raises(TypeError, match="image has dtype complex128"):
        extract_patches(np.zeros((8, 8), complex), 3)


# --- Missing pixels


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("shape", [(9, 11), (5, 6, 7)])
def test_patches_with_missing_pixels_are_left_out(shape, stride, rng):
    image, mask = rng.random(shape), rng.random(shape) < 0.03
    every = extract_patches(np.where(mask, np.nan, image), 3, stride)
    expected = every[~np.isnan(every).any(axis=1)]
    assert 0 < len(expected) < len(every)
    for some, its in (
        (image, mask),
        (np.where(mask, np.nan, image), "nan"),
        (np.ma.array(image, mask=mask), np.zeros(shape, bool)),
    ):
        np.testing.assert_array_equal(extract_patches(some, 3, stride, mask=its), expected)


def test_a_patch_needs_all_channels_of_its_pixels(rng):
    image = rng.random((3, 8, 9))
    mask = np.zeros(image.shape, bool)
    mask[1, 4, 5] = True
    found = extract_patches(image, 2, channel_axis=0, mask=mask)
    common = extract_patches(image, 2, channel_axis=0, mask=mask.any(axis=0))
    assert found.shape == (7 * 8 - 4, 12)
    np.testing.assert_array_equal(found, common)
    nothing = extract_patches(image, 8, channel_axis=0, mask=mask)
    assert nothing.shape == (0, 192)


def test_masks_of_patches_are_checked(rng):
    image = rng.random((8, 9))
    with pytest.raises(ValueError, match=r"mask has shape \(3, 3\), the image \(8, 9\)"):
        extract_patches(image, 2, mask=np.zeros((3, 3), bool))
    with pytest.raises(TypeError, match="give booleans"):
        extract_patches(image, 2, mask=image)
    with pytest.raises(ValueError, match="'zero' is unknown"):
        extract_patches(image, 2, mask="zero")
