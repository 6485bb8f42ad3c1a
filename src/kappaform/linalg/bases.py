"""Orthonormal bases to start from or to compare with; the rows of a basis are its atoms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct


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
        Seed or generator; the same seed gives the same basis.
    """
    if not _is_length(n_features):
        raise ValueError(f"n_features={n_features!r} is not a length: give a positive integer.")
    gaussian = np.random.default_rng(rng).standard_normal((n_features, n_features))
    orthonormal, triangular = np.linalg.qr(gaussian)
    # QR fixes signs by convention; only with a positive diagonal is the factor uniform.
    return orthonormal * np.copysign(1.0, np.diag(triangular))


def _is_length(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1
