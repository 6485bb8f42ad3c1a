"""Sweeps and cleaners against loops over patches."""

import math

import naive
import numpy as np
import pytest

from kappaform import dct_basis, random_basis
from kappaform.imaging.clean import cleaner, rule_of, sweep
from kappaform.imaging.kernels import leave_out
from kappaform.imaging.patches import grid_of
from kappaform.imaging.published import error_cleaner

DOUBLE = np.dtype(np.float64)
SHAPES = [((13, 9), (3, 3)), ((5, 5), (5, 5)), ((40, 3), (4, 2)), ((5, 6, 7), (2, 3, 2))]


def conditioned(n, rng):
    """A transform with condition number 2."""
    spectrum = np.linspace(1, 2, n)
    return (random_basis(n, rng) * spectrum) @ random_basis(n, rng)


def keep_everything(patches, _guides, _workspace):
    return np.ones(len(patches), patches.dtype), np.full(len(patches), 2, patches.dtype)


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
def test_thresholds_clean_as_the_loop_does(rng, shape, patch_shape, bounds):
    image = rng.standard_normal(shape)
    transform = conditioned(math.prod(patch_shape), rng)

    def clean(patch):
        coefs = transform @ patch
        codes = np.where(np.abs(coefs) > 0.8 * np.linalg.norm(transform, axis=1), coefs, 0)
        count = np.count_nonzero(codes)
        return np.linalg.solve(transform, codes), 1 / (1 + count), count

    expected = naive.sweep(image, patch_shape, clean, bounds)
    rule = rule_of(transform, threshold=0.8)
    cleaned, counts = sweep(image, patch_shape, cleaner(rule, DOUBLE), bounds=bounds)
    np.testing.assert_allclose(cleaned, expected[0], atol=1e-12)
    np.testing.assert_allclose(counts, expected[1], rtol=1e-6)


def test_wieners_rule_cleans_as_the_loop_does(rng):
    image, guide = rng.standard_normal((2, 12, 11))
    transform = conditioned(9, rng)

    def clean(patch, shown):
        power = (transform @ shown) ** 2
        share = power / (power + 0.7 * np.sum(transform**2, axis=1))
        weight = 1 / (1 / 9 + np.sum(share**2))
        return np.linalg.solve(transform, share * (transform @ patch)), weight, np.sum(share**2)

    expected = naive.sweep(image, (3, 3), clean, guide=guide)
    clean = cleaner(rule_of(transform, noise=0.7), DOUBLE)
    cleaned, counts = sweep(image, (3, 3), clean, guide=guide)
    np.testing.assert_allclose(cleaned, expected[0], atol=1e-12)
    np.testing.assert_allclose(counts, expected[1], rtol=1e-6)


@pytest.mark.parametrize("damping", [0.0, 0.05])
@pytest.mark.parametrize("most", [3, 9])
def test_coding_to_an_error_cleans_as_the_loop_does(rng, damping, most):
    image = rng.standard_normal((12, 11))
    transform = conditioned(9, rng)
    expected = naive.sweep(
        image,
        (3, 3),
        lambda patch: naive.clean_to_error(patch, transform, 1.5, most, damping),
    )
    cleaned, counts = sweep(image, (3, 3), error_cleaner(transform, 1.5, most, damping, DOUBLE))
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
    clean = cleaner(rule_of(dct_basis((5, 5)), 1.0), image.dtype)
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "1")
    one = sweep(image, (5, 5), clean)
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", threads)
    many = sweep(image, (5, 5), clean)
    np.testing.assert_array_equal(one, many)
