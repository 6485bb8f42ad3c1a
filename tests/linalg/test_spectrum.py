import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from kappaform import project_spectrum


def problem(rng):
    """Targets, weights, bound and norm, of every kind that data can produce and some they cannot."""
    n = round(10 ** rng.uniform(0, math.log10(300)))
    weights = 10 ** rng.uniform(-rng.choice([0, 2, 6, 12]), 0, n)
    targets = rng.exponential(size=n) * 10 ** rng.uniform(-rng.choice([0, 1, 4]), 0, n)
    kind = rng.integers(10)
    if kind == 0:
        targets = np.round(3 * targets) / 3  # ties, and zeros
    elif kind == 1:
        weights = np.ceil(3 * weights) / 3
    elif kind == 2:
        targets[rng.random(n) < rng.random()] = 0
    elif kind == 3:
        weights[rng.random(n) < rng.random()] = 0
    elif kind == 4:
        targets[rng.random(n) < rng.random()] = 0
        weights[rng.random(n) < rng.random()] = 0
        targets[weights == 0] = 0
    elif kind == 5:
        weights[rng.integers(n)] = 0  # as of patches without their mean
        targets[weights == 0] = 0
    elif kind == 6 and rng.random() < 0.3:
        weights[:] = 0
    elif kind == 7 and rng.random() < 0.3:
        targets[:] = 0
    bounds = [1, 1 + 1e-9, 2, 10 ** rng.uniform(0, 1), 10 ** rng.uniform(0, 8), 1e8, math.inf]
    length = np.linalg.norm(targets) or 1.0
    norms = [math.sqrt(n), length, length * (1 + 1e-9), length * 10 ** rng.uniform(-1, 1)]
    norms += [length * 10 ** rng.uniform(-6, 6)] * 2
    return targets, weights, float(rng.choice(bounds)), float(rng.choice(norms))


def cost(spectrum, targets, weights):
    return np.sum(weights * (spectrum - targets) ** 2)


def tolerance(targets, weights, least):
    """1e-9 of the energy of the targets.

    Where the norm forces a cost far above that energy, so that 1e-9 of it is below the rounding of
    the cost itself, 1e-12 of the cost.
    """
    energy = np.sum(weights * targets**2)
    return 1e-9 * energy if least <= 1e5 * energy else 1e-12 * least


def assert_bounded(spectrum, max_condition):
    assert np.all(np.isfinite(spectrum))
    assert spectrum.min() >= 0
    assert spectrum.max() <= max_condition * spectrum.min() * (1 + 1e-12) or max_condition == math.inf


SEEDS = range(10)  # a thousand problems each
