"""Mathematics of n×n matrices: no data, no files."""

from kappaform.linalg.accepted import first_accepted_spectrum
from kappaform.linalg.bases import dct_basis, random_basis
from kappaform.linalg.polar import polar
from kappaform.linalg.spectrum import project_spectrum
from kappaform.linalg.svd import svd

__all__ = [
    "dct_basis",
    "first_accepted_spectrum",
    "polar",
    "project_spectrum",
    "random_basis",
    "svd",
]
