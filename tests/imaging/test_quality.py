"""How near an image is to its reference, against the definitions."""

import math

import naive
import numpy as np
import pytest

from kappaform.imaging.metrics import data_range, psnr, ssim


def pair(rng, shape, dtype):
    reference = (255 * rng.random(shape)).astype(dtype)
    return reference, np.clip(reference + 20 * rng.standard_normal(shape), 0, 255)


@pytest.mark.parametrize(
    ("dtype", "lowest", "highest", "span"),
    [
        (np.uint8, 0, 255, 255),
        (np.uint8, 10, 40, 255),  # dark, but of 8 bit
        (np.uint16, 0, 200, 255),
        (np.uint16, 0, 256, 511),
        (np.uint16, 64, 4095, 4095),
        (np.uint16, 64, 4096, 8191),
        (np.uint16, 0, 40_000, 65_535),
        (np.int16, 0, 4000, 4095),
        (np.int16, -1024, 3071, 8191),
        (np.int8, -128, 127, 255),
        (np.uint32, 0, 2**31, 2**32 - 1),
        (np.int64, -(2**63), 2**63 - 1, 2**64 - 1),
        (np.uint64, 0, 2**64 - 1, 2**64 - 1),
    ],
)
def test_integers_span_the_fewest_bits_that_hold_them(dtype, lowest, highest, span):
    assert data_range(np.array([lowest, highest], dtype)) == float(span)


@pytest.mark.parametrize(("dtype", "scale", "span"), [(np.uint8, 1, 255), (np.uint16, 16, 4095)])
def test_the_measures_are_relative_to_the_span(rng, dtype, scale, span):
    reference, image = (scale * values for values in pair(rng, (12, 15), dtype))
    error = np.mean((reference.astype(np.float64) - image) ** 2)
    assert psnr(reference, image) == pytest.approx(10 * math.log10(span**2 / error), rel=1e-12)
    assert ssim(reference, image) == pytest.approx(naive.ssim(reference, image, span), rel=1e-9)


@pytest.mark.parametrize(("shape", "window"), [((12, 15), 7), ((6, 9), 5), ((20, 4), 3)])
def test_floats_span_their_own_values_in_windows_that_fit(rng, shape, window):
    reference, image = pair(rng, shape, np.float64)
    span = np.ptp(reference)
    error = np.mean((reference - image) ** 2)
    assert psnr(reference, image) == pytest.approx(10 * math.log10(span**2 / error), rel=1e-12)
    assert ssim(reference, image) == pytest.approx(
        naive.ssim(reference, image, span, window), rel=1e-9
    )


def test_equal_images_are_as_near_as_can_be(rng):
    reference, _ = pair(rng, (12, 15), np.uint8)
    assert psnr(reference, reference) == math.inf
    assert ssim(reference, reference) == pytest.approx(1)
