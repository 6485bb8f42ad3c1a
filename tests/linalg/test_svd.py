"""The decomposition that never gives up."""

import numpy as np
import pytest

from kappaform.linalg import svd


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
