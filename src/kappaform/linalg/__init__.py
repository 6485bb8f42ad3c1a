"""Mathematics of n×n matrices: no data, no files."""

from kappaform.linalg.orthogonal import dct_basis as dct_basis
from kappaform.linalg.orthogonal import polar as polar
from kappaform.linalg.orthogonal import random_basis as random_basis
from kappaform.linalg.orthogonal import scaled_inverse as scaled_inverse
from kappaform.linalg.orthogonal import svd as svd
from kappaform.linalg.spectrum import closest_spectrum as closest_spectrum
from kappaform.linalg.spectrum import project_spectrum as project_spectrum
