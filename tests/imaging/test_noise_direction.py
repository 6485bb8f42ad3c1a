"""Texture has a direction, noise has none."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from kappaform.imaging.noise.direction import directedness

CLEAR = np.zeros((256, 256), bool)
ROWS, COLUMNS = np.indices(CLEAR.shape)


def white(frequencies):
    return np.full(frequencies.shape, 25.0)


def of_blurred_noise(frequencies):
    """The spectrum of unit noise behind a Gaussian of one pixel."""
    return np.exp(-((np.pi * frequencies) ** 2))


def lines(rng, turn):
    """Lines in a direction (0: along the rows; 1: along a diagonal), of the energy of `white`."""
    noise = gaussian_filter(rng.standard_normal(CLEAR.shape), (0.7, 6), mode="wrap")
    sheared = noise[(ROWS + turn * COLUMNS) % len(noise), COLUMNS]
    return 5 * sheared / sheared.std()


def test_white_noise_has_no_direction(rng):
    assert directedness([(5 * rng.standard_normal(CLEAR.shape), CLEAR)], white) < 1.2


def test_noise_is_compared_with_noise_of_its_own_spectrum(rng):
    blurred = gaussian_filter(rng.standard_normal(CLEAR.shape), 1.0)
    assert 0.8 < directedness([(blurred, CLEAR)], of_blurred_noise) < 1.25


def test_lines_along_a_diagonal_are_a_direction(rng):
    assert directedness([(lines(rng, 1), CLEAR)], white) > 4


def test_lines_along_the_axes_may_be_those_of_a_jpeg(rng):
    assert directedness([(lines(rng, 0), CLEAR)], white) < 1.2


def test_what_is_out_of_focus_is_no_direction_of_noise(rng):
    slope = 60 * gaussian_filter(rng.standard_normal(CLEAR.shape), 12)
    image = 5 * rng.standard_normal(CLEAR.shape) + 20 * slope + 2.0 * (ROWS + COLUMNS)
    assert directedness([(image, CLEAR)], white) < 1.2


def test_texture_in_a_part_of_the_image_does_not_count(rng):
    image = 5 * rng.standard_normal(CLEAR.shape)
    image[:100] = lines(rng, 1)[:100]
    assert directedness([(image, CLEAR)], white) < 1.8


def test_stronger_texture_does_not_count(rng):
    image = 40 * lines(rng, 1)
    image[:60] = 5 * rng.standard_normal((60, 256))
    assert directedness([(image, CLEAR)], white) < 1.2


def test_clipped_places_do_not_count(rng):
    image, clipped = lines(rng, 1), CLEAR.copy()
    image[:60] = 5 * rng.standard_normal((60, 256))
    clipped[60::3, ::3] = True
    assert directedness([(image, clipped)], white) < 1.3


def test_texture_that_is_clipped_here_and_there_has_a_direction(rng):
    clipped = CLEAR.copy()
    clipped[::8, ::8] = True  # in every window
    assert directedness([(lines(rng, 1), clipped)], white) > 4


def test_a_slab_of_texture_among_slabs_is_seen(rng):
    slabs = [(lines(rng, 1), CLEAR), (np.zeros((9, 256)), CLEAR[:9])]
    assert directedness(slabs, white) == directedness(slabs[:1], white) > 4


def test_a_few_windows_say_nothing(rng):
    clipped = np.ones_like(CLEAR)
    clipped[:32, :32] = False
    assert directedness([(lines(rng, 1), clipped)], white) == 1.0


@pytest.mark.parametrize("image", [np.zeros((256, 256)), np.ones((9, 40))], ids=["flat", "narrow"])
def test_an_image_without_windows_has_no_direction(image):
    assert directedness([(image, np.zeros(image.shape, bool))], white) == 1.0
