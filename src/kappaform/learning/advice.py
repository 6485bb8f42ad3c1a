"""Warnings of what can be learned, but hardly be meant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kappaform.arrays import warn
from kappaform.engines import Engine
from kappaform.learning.method import Method, bound_of

# Bound beyond which float32 coefficients are rounding: measured on patches, the relative error of
# float32 signals is then off by more than 1 % (docs/mathematics.md, section 8).
_LARGEST_BOUND_OF_FLOAT32 = 1e6


def warn_of_little(engine: Engine, n_nonzero: Any) -> None:
    """Warn of signals or codes from which little can be learned."""
    if np.ndim(n_nonzero) > 0:  # one for each signal: rows are signals for sure
        return
    warn_of_empty_codes(n_nonzero)
    if engine.n_signals < engine.n_features:
        warn(
            f"signals has shape ({engine.n_signals}, {engine.n_features}), fewer signals than "
            "features: signals are rows; transpose them if yours are columns."
        )


def warn_of_empty_codes(n_nonzero: Any) -> None:
    if n_nonzero == 0:
        warn("n_nonzero_coefs=0: all codes are zero, so nothing is learned; give at least 1.")


def warn_of_float32(engine: Engine, method: Method) -> None:
    bound = bound_of(method)
    if engine.dtype == np.float32 and _LARGEST_BOUND_OF_FLOAT32 < bound < math.inf:
        warn(
            f"max_condition={bound:g} with float32 signals: beyond "
            f"{_LARGEST_BOUND_OF_FLOAT32:g} the smallest coefficients are rounding, and so are the "
            "errors; give float64 signals."
        )
