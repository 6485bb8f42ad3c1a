"""The public code's spectrum step: what it gives, and that it is not the minimiser."""

import naive
import numpy as np
import pytest

from kappaform.learning.published import first_accepted_spectrum
from kappaform.linalg import project_spectrum


def cost(spectrum, targets, weights):
    return float(np.sum(weights * (spectrum - targets) ** 2))


def test_clamped_entries_need_not_belong_there():
    targets, weights = np.array([10.0, 9.0, 1.0]), np.ones(3)
    spectrum = first_accepted_spectrum(targets, weights, 2.0)
    assert spectrum == pytest.approx([10, 5, 5])
    assert cost(spectrum, targets, weights) == pytest.approx(32)
    best = project_spectrum(targets, weights, 2.0)
    assert cost(best, targets, weights) == pytest.approx(13)


def test_equals_the_search_written_out(rng):
    for _ in range(500):
        n = int(rng.integers(2, 9))
        targets, weights = rng.uniform(0, 3, n), rng.uniform(0.1, 2, n)
        bound = float(rng.uniform(1, 4))
        spectrum = first_accepted_spectrum(targets, weights, bound)
        oracle = naive.first_accepted_spectrum(targets, weights, bound)
        assert spectrum == pytest.approx(oracle, rel=1e-12)
        assert spectrum.max() <= bound * spectrum.min() * (1 + 1e-12)
        best = project_spectrum(targets, weights, bound)
        assert cost(spectrum, targets, weights) >= cost(best, targets, weights) - 1e-12


def test_a_spectrum_within_the_bound_is_kept(rng):
    targets = rng.uniform(1, 2, 10)
    assert first_accepted_spectrum(targets, np.ones(10), 2.5) == pytest.approx(targets, rel=1e-15)


def test_entries_without_weight_are_within_the_bound():
    spectrum = first_accepted_spectrum(np.array([5.0, 1.0, 0.1]), np.array([1.0, 1.0, 0.0]), 2.0)
    assert spectrum.max() <= 2 * spectrum.min() * (1 + 1e-12)
    spectrum = first_accepted_spectrum(np.array([5.0, 1.0]), np.zeros(2), 2.0)
    assert spectrum.max() <= 2 * spectrum.min() * (1 + 1e-12)
