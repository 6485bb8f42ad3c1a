"""What the workers of a cluster do with one block of signals.

Each is the work of one thread. Rows that are to be summed have shape (1, width).
"""

from __future__ import annotations

import threading

import numpy as np

from kappaform.arrays import (
    Array,
    first_bad_row,
    max_magnitude,
    not_finite,
    scale_exponent,
    working_dtype,
)
from kappaform.engines.blocks import BITS
from kappaform.engines.numpy_engine import NumpyEngine
from kappaform.threads import at_most_threads


def peak_of(block: Array) -> Array:
    """Largest magnitude, the first row that is not finite (-1: there is none), number of rows."""
    if len(block) == 0:
        return np.array([[0.0, -1.0, 0.0]])
    peak = max_magnitude(block)
    return np.array([[peak, -1.0 if np.isfinite(peak) else first_bad_row(block), len(block)]])


def gram_of(block: Array, exponent: int) -> Array:
    """YᵀY of the scaled block, flat."""
    n = block.shape[1]
    if len(block) == 0:
        return np.zeros((1, n * n))
    with at_most_threads(1):
        return NumpyEngine(block, exponent=exponent).gram.reshape(1, -1)


def coded(
    block: Array,
    sparsity: int | Array,
    transform: Array,
    exponent: int,
    key: str,
    block_id: tuple[int, int],
) -> Array:
    """‖X‖², ‖Z − X‖² and XᵀY of the scaled block, flat."""
    n = block.shape[1]
    if len(block) == 0:
        return np.zeros((1, n * n + 2))
    cuts = _remembered_cuts(key, block_id[0], len(block), working_dtype(block.dtype))
    with at_most_threads(1):
        engine = NumpyEngine(block, exponent=exponent, cuts=cuts)
        cross, *energies = engine.coded(transform, _flat(sparsity))
    return np.concatenate([energies, cross.ravel()])[np.newaxis]


def lost(
    block: Array, sparsity: int | Array, transform: Array, inverse: Array, exponent: int
) -> Array:
    """‖Y − X W⁻ᵀ‖² of the scaled block."""
    if len(block) == 0:
        return np.zeros((1, 1))
    with at_most_threads(1):
        engine = NumpyEngine(block, exponent=exponent)
        return np.array([[engine.lost_energy(transform, inverse, _flat(sparsity))]])


def encoded(
    block: Array,
    sparsity: int | Array,
    transform: Array,
    called: str,
    starts: Array,
    block_id: tuple[int, int],
) -> Array:
    """Codes of the block as given."""
    if len(block) == 0:
        return np.empty(block.shape, transform.dtype)
    with at_most_threads(1):
        engine = _checked_engine(block, called, starts[block_id[0]])
        return engine.encode(transform, _flat(sparsity)).astype(transform.dtype, copy=False)


def product(
    block: Array, matrix: Array, called: str, starts: Array, block_id: tuple[int, int]
) -> Array:
    """Y Mᵀ of the block as given."""
    if len(block) == 0:
        return np.empty(block.shape, working_dtype(block.dtype))
    with at_most_threads(1):
        return _checked_engine(block, called, starts[block_id[0]]).apply(matrix)


def _checked_engine(block: Array, called: str, start: int) -> NumpyEngine:
    """Engine of one block with a scale of its own; errors name the row among all signals."""
    peak, bad_row, _ = peak_of(block)[0]
    if bad_row >= 0:
        raise ValueError(not_finite(called, int(start + bad_row)))
    return NumpyEngine(block, exponent=scale_exponent(peak, working_dtype(block.dtype)))


def _flat(sparsity: int | Array) -> int | Array:
    return sparsity if np.ndim(sparsity) == 0 else np.ravel(sparsity)


# Guesses of earlier passes stay on the worker that made them. They change no result, so nothing is
# lost with a worker, and a block that moves to another is a little slower once.
_MOST_CUTS_BYTES = 2**26
_cuts: dict[tuple[str, int], Array] = {}
_cuts_lock = threading.Lock()


def _remembered_cuts(key: str, block: int, n_rows: int, dtype: np.dtype) -> Array:
    with _cuts_lock:
        if (key, block) in _cuts:
            return _cuts[key, block]
        cuts = np.zeros(n_rows, BITS[dtype])
        if _bytes_with(cuts) > _MOST_CUTS_BYTES:
            for other in [other for other in _cuts if other[0] != key]:
                del _cuts[other]
        if _bytes_with(cuts) <= _MOST_CUTS_BYTES:
            _cuts[key, block] = cuts
        return cuts


def _bytes_with(cuts: Array) -> int:
    return cuts.nbytes + sum(kept.nbytes for kept in _cuts.values())
