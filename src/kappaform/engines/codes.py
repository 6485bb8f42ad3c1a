"""What codes need of a transform, and the energies of codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kappaform.checks import Float64Array
from kappaform.linalg import scaled_inverse

#: A matrix times 2**exponent, and the exponent: that of `kappaform.linalg.scaled_inverse`.
Inverse = tuple[Float64Array, int]


class Energies(NamedTuple):
    """Squared norms of signals, codes and errors, with the exponents of their scales.

    They are those of signals times ``2**exponent`` and, for `codes` and `discarded`, of a transform
    times ``2**transform_exponent``. Both are 0 unless scales are out of the ordinary.
    """

    signals: float  #: ‖Y‖²
    codes: float  #: ‖X‖²
    discarded: float  #: ‖Z − X‖²
    lost: float  #: ‖Y − X W⁻ᵀ‖²
    exponent: int = 0
    transform_exponent: int = 0

    @property
    def absolute(self) -> float:
        """‖X − Y Wᵀ‖ of signals and transform as given; inf, where it is beyond float64."""
        with np.errstate(over="ignore", under="ignore"):
            shift = -(self.exponent + self.transform_exponent)
            return float(np.ldexp(math.sqrt(self.discarded), shift))

    @property
    def sparsification(self) -> float:
        """‖X − Y Wᵀ‖ / ‖Y‖, 0 for signals that are all zero."""
        error = math.sqrt(self.discarded / self.signals) if self.signals else 0.0
        with np.errstate(over="ignore", under="ignore"):
            return float(np.ldexp(error, -self.transform_exponent))

    @property
    def relative(self) -> float:
        """‖X − Y Wᵀ‖ / ‖Y Wᵀ‖, 0 for coefficients that are all zero."""
        energy = self.codes + self.discarded
        return math.sqrt(self.discarded / energy) if energy else 0.0

    @property
    def reconstruction(self) -> float:
        """‖Y − X W⁻ᵀ‖ / ‖Y‖, 0 for signals that are all zero."""
        return math.sqrt(self.lost / self.signals) if self.signals else 0.0


class Refit(NamedTuple):
    r"""What refitted codes, which reconstruct signals best, need for one transform W.

    A signal is the sum of the columns of :math:`W^{-1}` times its coefficients. Codes are chosen
    among the coefficients of columns scaled to norm 1, and have the values of least squares
    (docs/mathematics.md, section 3).
    """

    transform: Float64Array  #: the rows of W, each times the norm of its column of the inverse
    columns: Float64Array  #: of the inverse, of norm 1, one in each row
    gram: Float64Array  #: their inner products
    scale: Float64Array  #: (n,), times 2**exponent: from codes of this transform to those of W
    exponent: int


#: For each transform of a union, how its codes are refitted, or that they are not.
Refits = Sequence[Refit | None]


def refit_of(transform: Float64Array) -> Refit:
    """The refit of a finite matrix. Rejects a singular one."""
    columns, exponent = scaled_inverse(transform)  # one in each row, times 2**exponent
    norms = np.linalg.norm(columns, axis=1)
    columns = columns / norms[:, np.newaxis]
    rows = np.ldexp(transform, -exponent) * norms[:, np.newaxis]
    return Refit(rows, columns, columns @ columns.T, 1 / norms, exponent)
