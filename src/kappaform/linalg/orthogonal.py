"""Orthonormal matrices: the singular value decomposition, polar factors, and bases to start from.

The rows of a basis are its atoms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from kappaform.checks import generator

#: So small a proximal term moves nothing that the data determine, and decides what they leave open.
PROXIMITY = 1e-10
# Newton and Schulz for Q, with E = QᵀQ − I: no singular value changes its sign if the norm of E is
# below 2; after a norm of 1e-8 one step leaves rounding only; singular values above 0.3 take eight.
_SAME_SIGNS, _SQUARED_AWAY, _MOST_STEPS = 2.0, 1e-8, 8
_NEARLY = 0.5  # of a column of Q, deviation of the squared norm from 1


def svd(matrix: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Factors (left, spectrum, right) of ``matrix == (left * spectrum) @ right``.

    Divide and conquer is fast. On rare matrices it does not converge, or clusters of small singular
    values leave its factors orthonormal to nine digits only; the classical iteration then is right.
    """
    try:
        left, spectrum, right = np.linalg.svd(matrix)
        if not _has_cluster(spectrum) or (_is_orthonormal(left) and _is_orthonormal(right)):
            return left, spectrum, right
    except np.linalg.LinAlgError:
        pass
    return _classical_svd(matrix)


def _classical_svd(matrix: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    from scipy.linalg import svd as scipy_svd

    return scipy_svd(matrix, lapack_driver="gesvd")


def _has_cluster(spectrum: NDArray) -> bool:
    """Whether two or more singular values are tiny: only then factors were seen to lose digits."""
    return bool(spectrum[-2:][0] <= 1e-6 * spectrum[0])


def _is_orthonormal(matrix: NDArray) -> bool:
    error = matrix @ matrix.T
    error.flat[:: len(matrix) + 1] -= 1
    return bool(np.abs(error).max() <= 4 * len(matrix) * np.finfo(np.float64).eps)


def polar(matrix: NDArray, near: NDArray | None = None, proximity: float = PROXIMITY) -> NDArray:
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
        matrix = matrix + (proximity * np.linalg.norm(matrix)) * near
        factor = _polar_by_products(matrix)
        if factor is not None:
            return factor
    try:
        left, spectrum, right = np.linalg.svd(matrix)
        factor = left @ right
        if not _has_cluster(spectrum) or _is_orthonormal(factor):
            return factor
    except np.linalg.LinAlgError:
        pass
    left, _, right = _classical_svd(matrix)
    return left @ right


def _polar_by_products(matrix: NDArray) -> NDArray | None:
    r"""The polar factor of a matrix near a multiple of an orthonormal one, else None.

    Newton and Schulz: :math:`Q \leftarrow Q - \tfrac12 Q E` for :math:`E = Q^T Q - I` keeps the
    polar factor, and E becomes :math:`-\tfrac34 E^2 + \tfrac14 E^3` (docs/mathematics.md, section
    6.6). An SVD takes as long as 40 to 80 products of matrices, this as long as 4 to 16.
    """
    n = len(matrix)
    factor = matrix * (math.sqrt(n) / np.linalg.norm(matrix))
    if abs(np.einsum("ij,ij->j", factor, factor) - 1).max() > _NEARLY:  # spares most products
        return None
    for _ in range(_MOST_STEPS):
        rest = factor.T @ factor
        rest.flat[:: n + 1] -= 1
        error = float(np.linalg.norm(rest))
        if not error < _SAME_SIGNS:
            return None
        factor -= 0.5 * (factor @ rest)
        if error <= _SQUARED_AWAY:
            return factor
    return None


def scaled_inverse(matrix: NDArray) -> tuple[NDArray, int]:
    r"""The transposed inverse times 2**exponent, and this exponent. Rejects a singular matrix.

    The inverse itself may be beyond the range of float64. What is inverted is the transposed
    matrix: so :math:`W^T M - I` is within rounding times the condition number, and signals come
    back from their coefficients :math:`Y W^T`. ``inv(W).T`` was seen to lose ten times as much, and
    the factors of an SVD lose it also where only the rows of W differ in scale.
    """
    exponent = math.frexp(float(np.abs(matrix).max()))[1]
    scaled = np.ldexp(matrix, -exponent)
    spectrum = np.linalg.svd(scaled, compute_uv=False)
    # Half of what the bound on a learned transform leaves at least.
    if spectrum[-1] <= 0.5 * len(matrix) * float(np.finfo(np.float64).eps) * spectrum[0]:
        largest, smallest = np.ldexp(spectrum[[0, -1]], exponent)
        raise ValueError(
            f"transform is singular (singular values from {largest:.3g} to {smallest:.3g}): "
            "signals cannot be reconstructed from its codes, give a regular one."
        )
    return np.linalg.inv(scaled.T), exponent


def dct_basis(shape: int | Sequence[int]) -> NDArray[np.float64]:
    """Orthonormal DCT-II basis for signals, or for patches flattened in C order.

    The Kronecker product of one-dimensional bases, so that for every patch ``p``::

        dct_basis(p.shape) @ p.ravel() == scipy.fft.dctn(p, norm="ortho").ravel()

    Parameters
    ----------
    shape : int or sequence of int
        Length of a signal, or shape of a patch of any dimension.

    Returns
    -------
    basis : (n, n) array, n the product of `shape`
        Row 0 is constant.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> basis = kf.dct_basis((8, 8))
    >>> np.allclose(basis @ basis.T, np.eye(64))
    True
    """
    sides = shape if isinstance(shape, Sequence | np.ndarray) else (shape,)
    if isinstance(shape, str) or len(sides) == 0 or not all(map(_is_length, sides)):
        raise ValueError(
            f"shape={shape!r} is not the shape of a signal: give a positive integer, "
            "or one for each axis of a patch, e.g. (8, 8)."
        )
    return reduce(np.kron, [dct(np.eye(length), norm="ortho", axis=0) for length in sides])


def random_basis(
    n_features: int, rng: int | np.random.Generator | None = None
) -> NDArray[np.float64]:
    """Orthonormal basis drawn uniformly (Haar measure) from the orthogonal group.

    Parameters
    ----------
    n_features : int
        Length of a signal.
    rng : int, Generator or None
        Seed or generator; None is 0. The same seed gives the same basis.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> start = kf.random_basis(64, rng=0)
    >>> np.allclose(start @ start.T, np.eye(64))
    True
    """
    if not _is_length(n_features):
        raise ValueError(f"n_features={n_features!r} is not a length: give a positive integer.")
    gaussian = generator(rng).standard_normal((n_features, n_features))
    orthonormal, triangular = np.linalg.qr(gaussian)
    # QR fixes signs by convention; only with a positive diagonal is the factor uniform.
    return orthonormal * np.copysign(1.0, np.diag(triangular))


def _is_length(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1
