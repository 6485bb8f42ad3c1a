"""What learning is worth, and what groups of similar patches are worth.

Bricks and squares repeat, so that patches have atoms of their own, far from cosines. On pictures
without such texture a learned transform and the cosine basis are within 0.5 dB of each other: these
would show nothing. Groups make up for most of a bad transform, so what learning brings is measured
without them.
"""

import numpy as np
import pytest
from skimage import data

import kappaform as kf

SIGMA = 30.0

# Measured over four seeds of the noise: PSNR of "fast" in dB, and what it gains over cosines
# and over a single iteration in each round.
#                             fast             cosines         single iteration
# bricks, every third pixel   27.88 to 28.19   2.22 to 2.48    1.64 to 1.84
# squares                     32.35 to 32.93   0.88 to 1.09    0.45 to 0.61
PICTURES = {
    "bricks, every third pixel": (lambda: data.brick()[:384:3, :384:3], 27.4, 1.3),
    "squares": (lambda: data.checkerboard()[:128, :128], 32.3, 0.3),
}

# Measured over three seeds of noise of deviation 25: what "balanced" gains over "fast", and "best"
# over that.
#             fast             balanced        best
# camera      28.84 to 28.98   0.47 to 0.55    0.01 to 0.05
# bricks      28.46 to 28.71   1.64 to 1.79    0.22 to 0.24
# squares     34.47 to 35.00   1.74 to 2.52    0.53 to 0.76
# coffee      31.53 to 31.61   1.10 to 1.29    0.11 to 0.13
GROUPS = {
    "camera": (lambda: data.camera()[100:196, 150:246], 0.4, 0.0),
    "bricks": (lambda: data.brick()[:288:3, :288:3], 1.5, 0.15),
    "squares": (lambda: data.checkerboard()[:96, :96], 1.2, 0.3),
    "coffee": (lambda: data.coffee()[100:196, 200:296, 1], 0.9, 0.07),
}


def psnr(reference, image):
    return 10 * np.log10(255**2 / np.mean((reference - image) ** 2))


@pytest.mark.parametrize(("picture", "least", "gain"), PICTURES.values(), ids=PICTURES.keys())
def test_learning_beats_a_fixed_basis_and_a_single_iteration(picture, least, gain):
    clean = picture().astype(np.float64)
    noisy = kf.add_noise(clean, SIGMA, rng=0)
    options = {"sigma": SIGMA, "quality": "fast"}
    score = psnr(clean, kf.denoise(noisy, **options))
    assert score > least
    cosines = kf.denoise(noisy, transform=kf.dct_basis((11, 11)), **options)
    assert score > psnr(clean, cosines) + gain
    hardly_learned = kf.denoise(noisy, callback=lambda _: True, **options)
    assert score > psnr(clean, hardly_learned) + gain


@pytest.mark.parametrize(("picture", "balanced", "best"), GROUPS.values(), ids=GROUPS.keys())
def test_each_quality_is_better_than_the_one_before(picture, balanced, best):
    clean = picture().astype(np.float64)
    noisy = kf.add_noise(clean, 25.0, rng=0)
    qualities = ("fast", "balanced", "best")
    scores = [psnr(clean, kf.denoise(noisy, 25.0, quality=quality)) for quality in qualities]
    assert scores[1] > scores[0] + balanced
    assert scores[2] > scores[1] + best
