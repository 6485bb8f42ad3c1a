"""Mathematics of n×n matrices: no data, no files."""

from kappaform.linalg.orthogonal import dct_basis, polar, random_basis, scaled_inverse, svd
from kappaform.linalg.spectrum import closest_spectrum, project_spectrum

__all__ = [
    "closest_spectrum",
    "dct_basis",
    "polar",
    "project_spectrum",
    "random_basis",
    "scaled_inverse",
    "svd",
]
