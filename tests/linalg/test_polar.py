import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from kappaform.linalg import polar, random_basis

SIZES = [1, 2, 5, 30]


def of_rank(rank, n, rng):
    return rng.standard_normal((n, rank)) @ rng.standard_normal((rank, n))


@pytest.mark.parametrize("n", SIZES)
def test_polar_factor_is_that_of_newtons_iteration(n, rng):
    matrix = rng.standard_normal((n, n)) + 3 * n * random_basis(n, rng)  # far from singular
    assert_allclose(polar(matrix), naive.polar(matrix), rtol=0, atol=1e-13)


@pytest.mark.parametrize("smallest", [0.999, 0.8, 0.4, 0.2, -0.2, -0.4])
@pytest.mark.parametrize("n", [1, 2, 5, 30, 121])
def test_polar_factor_of_nearly_orthonormal_matrices_is_that_of_the_svd(n, smallest, rng):
    """Whether products find it or the SVD; a negative one of the values is a reflection."""
    left, right = random_basis(n, rng), random_basis(n, rng)
    values = np.append(rng.uniform(abs(smallest), 1 / abs(smallest), n - 1), smallest)
    matrix = (left * values) @ right
    expected = (left * np.sign(values)) @ right
    for scale in (1.0, 1e-200, 1e200):
        factor = polar(scale * matrix, near=random_basis(n, rng))
        assert_allclose(factor @ factor.T, np.eye(n), rtol=0, atol=4e-15)
        assert_allclose(factor, expected, rtol=0, atol=1e-8)  # `near` counts, if little


def test_products_do_not_reflect_what_is_far_from_orthonormal():
    """Beyond the root of 3 a step changes the sign of a singular value; columns do not show it."""
    mean = np.full((8, 8), 1 / 8)  # all columns of the matrix have the same norm
    matrix = np.eye(8) + (np.sqrt(7) - 1) * mean  # scaled, the largest value is 2, and -1 next
    assert_allclose(polar(matrix, near=np.eye(8)), np.eye(8), rtol=0, atol=1e-13)


@pytest.mark.parametrize("near", [False, True], ids=["alone", "near"])
@pytest.mark.parametrize("n", SIZES)
def test_polar_factor_is_orthonormal_whatever_the_rank(n, near, rng):
    for rank in range(n + 1):
        factor = polar(of_rank(rank, n, rng), random_basis(n, rng) if near else None)
        assert_allclose(factor @ factor.T, np.eye(n), rtol=0, atol=1e-13)


@pytest.mark.parametrize("near", [False, True], ids=["alone", "near"])
@pytest.mark.parametrize("n", SIZES)
def test_rest_of_the_matrix_is_symmetric_and_positive_semidefinite(n, near, rng):
    """The certificate of the Procrustes problem: Q^T M is, if and only if Q maximises <Q, M>."""
    for rank in range(n + 1):
        matrix = of_rank(rank, n, rng)
        rest = polar(matrix, random_basis(n, rng) if near else None).T @ matrix
        scale = np.linalg.norm(matrix)
        # The proximal term costs up to its own size.
        allowed = (1e-9 if near else 1e-14) * scale
        assert_allclose(rest, rest.T, rtol=0, atol=allowed)
        assert np.linalg.eigvalsh(rest + rest.T).min() >= -allowed


def test_no_orthonormal_matrix_is_closer(rng):
    matrix = rng.standard_normal((4, 4))
    distance = np.linalg.norm(matrix - polar(matrix))
    for _ in range(1000):
        assert np.linalg.norm(matrix - random_basis(4, rng)) >= distance


@pytest.mark.parametrize("n", SIZES)
def test_factor_is_never_worse_than_the_matrix_it_is_near_to(n, rng):
    for rank in range(n + 1):
        matrix, near = of_rank(rank, n, rng), random_basis(n, rng)
        gain = np.sum((polar(matrix, near) - near) * matrix)
        assert gain >= -1e-13 * np.linalg.norm(matrix)


@pytest.mark.parametrize("rank", [1, 5, 9, 10])
def test_factor_near_a_solution_is_that_solution(rank, rng):
    near, rows = random_basis(10, rng), rng.standard_normal((rank, 10))
    # Rounding of the matrix is divided by the proximal term where the matrix is zero.
    assert_allclose(polar(near @ rows.T @ rows, near), near, rtol=0, atol=1e-4)


def test_what_the_matrix_leaves_open_comes_from_near(rng):
    block, near_block, open_block = (
        rng.standard_normal((4, 4)),
        random_basis(4, rng),
        random_basis(3, rng),
    )
    matrix, near = np.zeros((7, 7)), np.zeros((7, 7))
    matrix[:4, :4], near[:4, :4], near[4:, 4:] = block, near_block, open_block
    factor = polar(matrix, near)
    assert_allclose(factor[:4, :4], polar(block), rtol=0, atol=1e-8)
    assert_allclose(factor[4:, 4:], open_block, rtol=0, atol=1e-13)


def test_zero_matrix_leaves_near_as_it_is(rng):
    near = random_basis(5, rng)
    assert_array_equal(polar(np.zeros((5, 5)), near), near)


def test_rounding_does_not_decide_the_factor_of_a_singular_matrix(rng):
    near, matrix = random_basis(10, rng), of_rank(9, 10, rng)
    matrix /= np.linalg.norm(matrix)
    noisy = matrix + 2e-16 * rng.standard_normal((10, 10))
    assert_allclose(polar(noisy, near), polar(matrix, near), rtol=0, atol=1e-3)


@pytest.mark.parametrize("exponent", [-1000, -600, -1, 3, 600, 1000])
def test_scale_of_the_matrix_does_not_matter(exponent, rng):
    matrix, near = of_rank(4, 5, rng), random_basis(5, rng)
    assert_array_equal(polar(2.0**exponent * matrix, near), polar(matrix, near))
