"""The decomposition that never gives up."""

import numpy as np
import pytest
from helpers import orthogonal

from kappaform.linalg import polar, scaled_inverse, svd


# Singular matrices with a proximal term, on which divide and conquer leaves factors that are
# orthonormal to 4e-10 with OpenBLAS 0.3.30: three quarters of their singular values are large.
@pytest.mark.parametrize("seed", [3935, 2040, 28260, 26305, 10325])
def test_factors_are_orthonormal_although_small_singular_values_are_in_a_cluster(seed):
    rng, n = np.random.default_rng(seed), 64
    matrix = rng.standard_normal((n, 48)) @ rng.standard_normal((48, n))
    near = orthogonal(rng, n)
    matrix /= np.abs(matrix).max()
    left, spectrum, right = svd(matrix + 1e-10 * np.linalg.norm(matrix) * near)
    for factor in (left, right, polar(matrix, near)):
        np.testing.assert_allclose(factor @ factor.T, np.eye(n), rtol=0, atol=1e-14 * n)
    assert np.all(np.diff(spectrum) <= 0)


@pytest.mark.parametrize("exponent", [0, 1010, -1010, -1060])
@pytest.mark.parametrize("condition", [1.0, 1e8])
def test_a_scaled_inverse_inverts_at_every_scale(condition, exponent, rng):
    left, right = (orthogonal(rng, 12) for _ in range(2))
    matrix = np.ldexp((left * np.geomspace(1, 1 / condition, 12)) @ right, exponent)
    inverse, scale = scaled_inverse(matrix)
    half, other = scale // 2, scale - scale // 2  # in two steps: neither overflows
    exact = np.ldexp(np.ldexp(matrix, -half), -other)
    np.testing.assert_allclose(exact.T @ inverse, np.eye(12), rtol=0, atol=1e-14 * condition)


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10, 1e13])
def test_no_signal_loses_more_than_the_condition_number_when_it_comes_back(condition, rng):
    for _ in range(20):
        left, right = (orthogonal(rng, 24) for _ in range(2))
        transform = (left * np.geomspace(1, 1 / condition, 24)) @ right
        inverse, exponent = scaled_inverse(transform)
        product = transform.T.astype(np.longdouble) @ np.ldexp(inverse, -exponent)
        worst = np.linalg.norm((product - np.eye(24)).astype(np.float64), 2)
        assert worst <= 4 * np.finfo(np.float64).eps * condition


def test_rows_that_differ_in_scale_cost_no_digit(rng):
    basis = orthogonal(rng, 24)
    signals = rng.standard_normal((500, 24))
    for condition in (1e2, 1e6, 1e12):
        transform = np.geomspace(1, 1 / condition, 24)[:, np.newaxis] * basis
        inverse, exponent = scaled_inverse(transform)
        found = np.ldexp(signals @ transform.T @ inverse, -exponent)
        np.testing.assert_allclose(found, signals, rtol=0, atol=1e-14)


def test_a_singular_matrix_has_no_inverse_at_any_scale(rng):
    matrix = rng.standard_normal((6, 3)) @ rng.standard_normal((3, 6))
    for exponent in (0, 1000, -1000):
        with pytest.raises(ValueError, match=r"transform is singular .*give a regular one"):
            scaled_inverse(np.ldexp(matrix, exponent))
    with pytest.raises(ValueError, match="transform is singular"):
        scaled_inverse(np.zeros((3, 3)))


@pytest.mark.parametrize("fails", [False, True])
def test_factors_multiply_to_the_matrix_whichever_driver_finds_them(rng, monkeypatch, fails):
    if fails:

        def give_up(_):
            raise np.linalg.LinAlgError("SVD did not converge")

        monkeypatch.setattr(np.linalg, "svd", give_up)
    matrix = rng.standard_normal((9, 4)) @ rng.standard_normal((4, 9))
    left, spectrum, right = svd(matrix)
    np.testing.assert_allclose((left * spectrum) @ right, matrix, atol=1e-13)
    for factor in (left, right):
        np.testing.assert_allclose(factor @ factor.T, np.eye(9), atol=1e-13)
    assert np.all(np.diff(spectrum) <= 0)
