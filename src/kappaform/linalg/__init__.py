"""Mathematics of n×n matrices: no data, no files."""

from kappaform.linalg.orthogonal import dct_basis, polar, random_basis, scaled_inverse, svd
from kappaform.linalg.spectrum import project_spectrum

__all__ = [
    "dct_basis",
    "polar",
    "project_spectrum",
    "random_basis",
    "scaled_inverse",
    "svd",
]
