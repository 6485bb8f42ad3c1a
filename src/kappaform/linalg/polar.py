"""The orthonormal polar factor: the solution of the orthogonal Procrustes problem."""

import numpy as np
from numpy.typing import NDArray

from kappaform.linalg.svd import svd

# So small a proximal term moves nothing that the data determine, and decides what they leave open.
_PROXIMITY = 1e-10


def polar(matrix: NDArray, near: NDArray | None = None) -> NDArray:
    r"""Orthonormal matrix closest to `matrix`.

    .. math:: \arg\max_{Q^T Q = I} \langle Q, M \rangle = R S^T
              \quad \text{for} \quad M = R \Sigma S^T

    A singular `matrix` leaves part of Q open, and rounding would decide it. With `near`, an
    orthonormal matrix, the factor is taken of M + epsilon * near instead: a proximal term, so the
    result is unique, never worse than `near` in the problem above, and `near` itself where the
    matrix is zero.
    """
    if near is not None:
        largest = np.abs(matrix).max()
        if largest == 0:
            return near
        matrix = matrix / largest  # so that no square overflows or underflows
        matrix = matrix + (_PROXIMITY * np.linalg.norm(matrix)) * near
    left, _, right = svd(matrix)
    return left @ right
