"""Small images with groups of every kind, for arrays and for tensors."""

import numpy as np

from kappaform.imaging.cleaning.groups import Rounds, Search

PLANE = Search((1, 4, 4), (1, 3, 3), (0, 5, 5), 1, 10)
CASES = {
    "plane": ((1, 17, 22), PLANE),
    "several strips": ((1, 61, 9), Search((1, 3, 3), (1, 2, 2), (0, 4, 4), 1, 12)),
    "no context": ((1, 14, 15), Search((1, 3, 4), (1, 3, 2), (0, 3, 6), 0, 9)),
    "wide context": ((1, 14, 15), Search((1, 3, 4), (1, 3, 2), (0, 3, 6), 3, 9)),
    "volume": ((6, 7, 8), Search((3, 3, 3), (2, 2, 2), (2, 2, 2), 1, 14)),
    "flat patches of a movie": ((5, 12, 11), Search((1, 4, 4), (1, 3, 3), (2, 3, 3), 1, 16)),
    "window larger than the image": ((1, 8, 9), Search((1, 4, 4), (1, 3, 3), (0, 32, 32), 1, 64)),
    "last references off the grid": (
        (1, 13, 17),
        Search((1, 4, 4), (1, 4, 4), (0, 32, 32), 1, 12),
    ),
    "few of a window like the image": (
        (1, 14, 15),
        Search((1, 4, 4), (1, 3, 3), (0, 32, 32), 1, 10),
    ),
    "patch as large as the image": ((1, 5, 7), Search((1, 5, 7), (1, 4, 4), (0, 9, 9), 1, 64)),
    "one row": ((1, 1, 40), Search((1, 1, 6), (1, 4, 4), (0, 8, 8), 1, 10)),
    "one column": ((1, 40, 1), Search((1, 6, 1), (1, 4, 4), (0, 8, 8), 1, 10)),
    "only the patch itself": ((1, 12, 12), Search((1, 4, 4), (1, 2, 2), (0, 3, 3), 1, 1)),
}
ROUNDS = Rounds(4, per_search=2, first_fraction=0.6, guided=0.5)


def picture(shape, rng, dtype=np.float64):
    """Something with edges and slopes, its noise of deviation 1, and a guess of what is clean."""
    a, b, c = np.indices(shape)
    clean = 4.0 * ((b // 5 + c // 4) % 2) + 0.3 * c + np.sin(a)
    noisy = clean + rng.standard_normal(shape)
    guess = clean + 0.3 * rng.standard_normal(shape)
    return [image.astype(dtype) for image in (clean, noisy, guess)]


def some_covariance(n, rng):
    factor = np.eye(n) + 0.3 * rng.standard_normal((n, n))
    covariance = factor @ factor.T
    return covariance / np.diag(covariance).mean()
