"""What learning is worth, and what groups of similar patches are worth.

Bricks and squares repeat, so that patches have atoms of their own, far from cosines. On images
without such texture a learned transform and the cosine basis are within 0.5 dB of each other: these
would show nothing. Groups make up for most of a bad transform, so what learning brings is measured
without them.
"""

import numpy as np
import pytest
from helpers import psnr

import kappaform as kf

SIGMA = 30.0
SMALL = {"patch_size": 7}  # of images of 64 x 64


def bricks():
    """Courses of bricks, each brick of its own shade."""
    rows, columns = np.indices((64, 64))
    course = rows // 6
    along = columns + 5 * (course % 2)
    shades = np.random.default_rng(0).uniform(90, 170, (11, 8))
    return np.where((rows % 6 == 0) | (along % 10 == 0), 210.0, shades[course, along // 10])


def squares():
    return 255.0 * (np.indices((64, 64)) // 9).sum(axis=0) % 510


# Measured over four seeds of the noise: PSNR of "fast" in dB, and what it gains over cosines
# and over a single iteration in each round.
#           fast             cosines         single iteration
# bricks    25.38 to 25.56   2.85 to 2.97    1.39 to 1.57
# squares   29.53 to 30.22   1.65 to 2.35    0.95 to 1.31
PICTURES = {"bricks": (bricks, 24.9, 1.1), "squares": (squares, 29.0, 0.7)}

# Measured over four seeds of noise of deviation 25: what "balanced" gains over "fast", and "best"
# over that.
#           fast             balanced        best
# bricks    26.31 to 26.67   2.10 to 2.57    0.40 to 0.51
# squares   31.37 to 31.94   1.87 to 2.38    0.76 to 0.96
GROUPS = {"bricks": (bricks, 1.7, 0.3), "squares": (squares, 1.5, 0.5)}


@pytest.mark.parametrize(("picture", "least", "gain"), PICTURES.values(), ids=PICTURES.keys())
def test_learning_beats_a_fixed_basis_and_a_single_iteration(picture, least, gain):
    clean = picture()
    noisy = kf.add_noise(clean, SIGMA, rng=0)
    options = {"sigma": SIGMA, "quality": "fast", **SMALL}
    score = psnr(clean, kf.denoise(noisy, **options))
    assert score > least
    cosines = kf.denoise(noisy, transform=kf.dct_basis((7, 7)), **options)
    assert score > psnr(clean, cosines) + gain
    hardly_learned = kf.denoise(noisy, callback=lambda _: True, **options)
    assert score > psnr(clean, hardly_learned) + gain


@pytest.mark.parametrize(("picture", "balanced", "best"), GROUPS.values(), ids=GROUPS.keys())
def test_each_quality_is_better_than_the_one_before(picture, balanced, best):
    clean = picture()
    noisy = kf.add_noise(clean, 25.0, rng=0)
    images = (
        kf.denoise(noisy, 25.0, quality=each, **SMALL) for each in ("fast", "balanced", "best")
    )
    scores = [psnr(clean, image) for image in images]
    assert scores[1] > scores[0] + balanced
    assert scores[2] > scores[1] + best
