"""Mathematics of n×n matrices: no data, no files."""

from kappaform.linalg.orthogonal import dct_basis, inverse_factors, polar, random_basis, svd
from kappaform.linalg.spectrum import project_spectrum

__all__ = [
    "dct_basis",
    "inverse_factors",
    "polar",
    "project_spectrum",
    "random_basis",
    "svd",
]
