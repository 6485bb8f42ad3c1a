"""The singular value decomposition, also where LAPACK's fast driver gives up."""

import numpy as np
from numpy.typing import NDArray


def svd(matrix: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Factors (left, spectrum, right) of ``matrix == (left * spectrum) @ right``.

    Divide and conquer is fast and, on rare singular matrices, does not converge; the classical
    iteration then does.
    """
    try:
        return np.linalg.svd(matrix)
    except np.linalg.LinAlgError:
        from scipy.linalg import svd as scipy_svd

        return scipy_svd(matrix, lapack_driver="gesvd")
