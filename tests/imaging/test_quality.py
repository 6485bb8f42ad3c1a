"""How near a picture is to its reference, against the definitions."""

import math

import naive
import numpy as np
import pytest

from kappaform.imaging.quality import psnr, ssim


def pair(rng, shape, dtype):
    reference = (255 * rng.random(shape)).astype(dtype)
    return reference, np.clip(reference + 20 * rng.standard_normal(shape), 0, 255)


@pytest.mark.parametrize(("dtype", "span"), [(np.uint8, 255), (np.uint16, 65535)])
def test_integers_span_the_values_of_their_type(rng, dtype, span):
    reference, image = pair(rng, (12, 15), dtype)
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


def test_equal_pictures_are_as_near_as_can_be(rng):
    reference, _ = pair(rng, (12, 15), np.uint8)
    assert psnr(reference, reference) == math.inf
    assert ssim(reference, reference) == pytest.approx(1)
