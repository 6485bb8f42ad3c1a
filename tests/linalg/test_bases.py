import numpy as np
import pytest
import scipy.fft
from numpy.testing import assert_allclose, assert_array_equal

from kappaform import dct_basis, random_basis

SHAPES = [1, 2, 7, (5,), (1, 1), (8, 8), (3, 5), (1, 6), (2, 3, 4), (2, 2, 1, 3), np.array([3, 4])]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dct_basis_times_a_patch_is_its_dct(shape, rng):
    patch = rng.standard_normal(shape)
    expected = scipy.fft.dctn(patch, norm="ortho").ravel()
    assert_allclose(dct_basis(shape) @ patch.ravel(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dct_basis_is_orthonormal(shape):
    basis = dct_basis(shape)
    assert basis.dtype == np.float64
    assert_allclose(basis @ basis.T, np.eye(np.prod(shape)), rtol=0, atol=1e-14)


def test_only_the_first_dct_atom_sees_the_mean():
    coefs = dct_basis((4, 6)) @ np.ones(24)
    assert_allclose(coefs, [np.sqrt(24)] + 23 * [0.0], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "shape", [0, -3, 2.0, 2.5, True, None, (), (8, 0), (8, -1), (8, 2.5), "8", "88", [[2, 2]]]
)
def test_dct_basis_rejects_what_is_no_shape(shape):
    with pytest.raises(ValueError, match=r"shape=.* is not the shape of a signal: give a positive"):
        dct_basis(shape)


@pytest.mark.parametrize("n_features", [1, 2, 30])
def test_random_basis_is_orthonormal(n_features, rng):
    basis = random_basis(n_features, rng)
    assert basis.dtype == np.float64
    assert_allclose(basis @ basis.T, np.eye(n_features), rtol=0, atol=1e-14)


def test_same_seed_same_random_basis():
    assert_array_equal(random_basis(6, 3), random_basis(6, np.random.default_rng(3)))
    assert_array_equal(random_basis(6), random_basis(6, 0))
    assert not np.array_equal(random_basis(6, 3), random_basis(6, 4))


def test_random_basis_is_uniform_on_the_orthogonal_group(rng):
    """Entries of a Haar matrix have mean 0 and variance 1/n, its determinant no preferred sign.

    Without the correction of signs, QR makes the first entry negative in every draw.
    """
    n_draws = 2000
    bases = np.array([random_basis(3, rng) for _ in range(n_draws)])
    spread = 5 / np.sqrt(n_draws)  # five standard errors of a variable of variance at most 1
    assert np.abs(bases.mean(axis=0)).max() < spread
    assert np.abs((bases**2).mean(axis=0) - 1 / 3).max() < spread
    assert abs(np.linalg.det(bases).mean()) < spread


@pytest.mark.parametrize("n_features", [0, -1, 2.5, True, None, (8, 8)])
def test_random_basis_rejects_what_is_no_length(n_features):
    with pytest.raises(ValueError, match=r"n_features=.* is not a length: give a positive integer"):
        random_basis(n_features)
