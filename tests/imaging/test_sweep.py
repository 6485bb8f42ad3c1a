"""Sweeps and cleaners against loops over patches."""

import math

import naive
import numpy as np
import pytest

from kappaform import dct_basis, random_basis
from kappaform.imaging.cleaning.kernels import leave_out
from kappaform.imaging.cleaning.patchwise import patch_denoiser, rule_of, sweep
from kappaform.imaging.patches import grid_of
from kappaform.paper.denoiser import error_denoiser

DOUBLE = np.dtype(np.float64)
SHAPES = [
    ((13, 9), (3, 3)),
    ((3, 700), (2, 2)),
    ((5, 5), (5, 5)),
    ((40, 3), (4, 2)),
    ((5, 6, 7), (2, 3, 2)),
]


def conditioned(n, rng):
    """A transform with condition number 2."""
    spectrum = np.linspace(1, 2, n)
    return (random_basis(n, rng) * spectrum) @ random_basis(n, rng)


def some_covariance(n, rng):
    """Of noise that its n pixels share, with eigenvalues from 0.1 to 3."""
    basis = random_basis(n, rng)
    return (basis * np.linspace(0.1, 3, n)) @ basis.T


def keep_everything(patches, _guides, _workspace):
    number = patches.shape[1]
    return np.ones(number, patches.dtype), np.full(number, 2, patches.dtype)


@pytest.mark.parametrize(("shape", "patch_shape"), SHAPES)
def test_patches_that_are_not_changed_give_the_image_back(rng, shape, patch_shape):
    image = rng.standard_normal(shape)
    cleaned, counts = sweep(image, patch_shape, keep_everything)
    np.testing.assert_allclose(cleaned, image, atol=1e-13)
    np.testing.assert_allclose(counts, 2, rtol=1e-6)


@pytest.mark.parametrize(("shape", "patch_shape"), SHAPES)
def test_overlaps_count_the_patches_over_each_pixel(shape, patch_shape):
    expected = np.zeros(shape)
    for corner in np.ndindex(*(a - p + 1 for a, p in zip(shape, patch_shape, strict=True))):
        expected[tuple(slice(c, c + p) for c, p in zip(corner, patch_shape, strict=True))] += 1
    np.testing.assert_array_equal(grid_of(shape, patch_shape).overlaps(), expected)


@pytest.mark.parametrize(("shape", "patch_shape"), SHAPES)
@pytest.mark.parametrize("bounds", [(-math.inf, math.inf), (-0.5, 0.7)])
@pytest.mark.parametrize("is_white", [True, False])
def test_thresholds_clean_as_the_loop_does(rng, shape, patch_shape, bounds, is_white):
    image = rng.standard_normal(shape)
    n = math.prod(patch_shape)
    transform, covariance = conditioned(n, rng), some_covariance(n, rng)
    clean = naive.threshold_cleaner(transform, np.eye(n) if is_white else covariance, 0.8)
    expected = naive.sweep(image, patch_shape, clean, bounds)
    rule = rule_of(transform, None if is_white else covariance, threshold=0.8)
    cleaned, counts = sweep(image, patch_shape, patch_denoiser(rule, image), bounds=bounds)
    np.testing.assert_allclose(cleaned, expected[0], atol=1e-12)
    np.testing.assert_allclose(counts, expected[1], rtol=1e-6)


@pytest.mark.parametrize("is_white", [True, False])
def test_wieners_rule_denoises_as_the_loop_does(rng, is_white):
    image, guide = rng.standard_normal((2, 12, 11))
    transform, covariance = conditioned(9, rng), some_covariance(9, rng)
    clean = naive.wiener_cleaner(transform, np.eye(9) if is_white else covariance, 0.7)
    expected = naive.sweep(image, (3, 3), clean, guide=guide)
    rule = rule_of(transform, None if is_white else covariance, noise=0.7)
    cleaned, counts = sweep(image, (3, 3), patch_denoiser(rule, image), guide=guide)
    np.testing.assert_allclose(cleaned, expected[0], atol=1e-12)
    np.testing.assert_allclose(counts, expected[1], rtol=1e-6)


def test_the_variances_of_a_rule_are_those_of_the_coefficients_of_noise(rng):
    transform, covariance = conditioned(16, rng), some_covariance(16, rng)
    noise = rng.multivariate_normal(np.zeros(16), covariance, size=100_000)
    coefs = noise @ transform.T
    rule = rule_of(transform, covariance, threshold=3.0, noise=0.5)
    # The deviation of a variance of so many is 0.45 %.
    np.testing.assert_allclose(rule.variances / 0.5, coefs.var(axis=0), rtol=0.025)
    np.testing.assert_allclose(rule.thresholds / 3.0, coefs.std(axis=0), rtol=0.0125)
    # What each coefficient alone brings into a patch.
    brought = [
        np.sum(np.outer(z, column) ** 2)
        for z, column in zip(coefs.T, rule.synthesis.T, strict=True)
    ]
    np.testing.assert_allclose(rule.energies, np.array(brought) / len(coefs), rtol=0.025)


def test_a_covariance_of_equal_variances_is_white_noise(rng):
    transform = conditioned(12, rng)
    white, same, twice = (rule_of(transform, c) for c in (None, np.eye(12), 4 * np.eye(12)))
    for name in ("thresholds", "variances", "energies"):
        expected = getattr(white, name)
        np.testing.assert_allclose(getattr(same, name), expected, rtol=1e-12)
        factor = 2 if name == "thresholds" else 4
        np.testing.assert_allclose(getattr(twice, name), factor * expected, rtol=1e-12)


def test_a_coefficient_without_noise_does_not_divide_by_zero():
    basis = dct_basis((3, 3))
    mean_free = np.eye(9) - np.full((9, 9), 1 / 9)  # the covariance of patches without their mean
    rule = rule_of(basis, mean_free)
    assert (rule.variances > 0).all()
    assert rule.variances[0] < 1e-5 * rule.variances[1]


@pytest.mark.parametrize("damping", [0.0, 0.05])
@pytest.mark.parametrize("most", [3, 9])
def test_coding_to_an_error_denoises_as_the_loop_does(rng, damping, most):
    image = rng.standard_normal((12, 11))
    transform = conditioned(9, rng)
    expected = naive.sweep(
        image,
        (3, 3),
        lambda patch: naive.clean_to_error(patch, transform, 1.5, most, damping),
    )
    cleaned, counts = sweep(image, (3, 3), error_denoiser(transform, 1.5, most, damping, DOUBLE))
    np.testing.assert_allclose(cleaned, expected[0], atol=1e-11)
    np.testing.assert_allclose(counts, expected[1], rtol=1e-6)


def test_as_few_coefficients_as_possible_are_taken(rng):
    transform = conditioned(16, rng)
    inverse = np.linalg.inv(transform)
    form = inverse.T @ inverse
    coefs = rng.standard_normal((200, 16))
    left, counts = coefs.copy(), np.empty(200)
    leave_out(left, coefs @ form, form, 4.0, 16, counts)
    errors = np.einsum("ij,jk,ik->i", left, form, left)
    assert np.all(errors <= 4.0 * (1 + 1e-12))
    for row, rest, count in zip(coefs, left, counts.astype(int), strict=True):
        order = np.argsort(-np.abs(row), kind="stable")
        assert set(np.flatnonzero(rest == 0)) == set(order[:count])
        if count:
            fewer = row.copy()
            fewer[order[: count - 1]] = 0
            assert fewer @ form @ fewer > 4.0


@pytest.mark.parametrize("threads", ["2", "5"])
def test_threads_do_not_change_a_sweep(rng, monkeypatch, threads):
    image = rng.standard_normal((150, 40)).astype(np.float32)
    clean = patch_denoiser(rule_of(dct_basis((5, 5)), threshold=1.0), image)
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "1")
    one = sweep(image, (5, 5), clean)
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", threads)
    many = sweep(image, (5, 5), clean)
    np.testing.assert_array_equal(one, many)
