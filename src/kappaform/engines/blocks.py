"""How rows are cut into blocks.

The shape of the signals alone decides, so that no result depends on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from kappaform.arrays import Array
from kappaform.engines.kernels import WORD

_CACHE_LINE = 64  # bytes

#: Integers that share the memory of floats, through which kernels compare magnitudes.
BITS: dict[np.dtype, np.dtype] = {
    np.dtype(np.float32): np.dtype(np.int32),
    np.dtype(np.float64): np.dtype(np.int64),
}


def block_rows(n_features: int, dtype: np.dtype) -> int:
    """Rows of a block: its coefficients take about 1 MB and stay in the cache of a core."""
    return min(4096, max(128, 2**20 // (padded(n_features) * dtype.itemsize)))


def split_rows(start: int, stop: int, length: int) -> Iterator[slice]:
    """Slices of `length` rows, the last one shorter, that cover start, ..., stop - 1."""
    for first in range(start, stop, length):
        yield slice(first, min(first + length, stop))


def parts(n_signals: int, n_features: int, dtype: np.dtype) -> list[slice]:
    """Runs of blocks, each the work of one thread.

    Few, because each has an (n, n) result, and long, because threads have to meet after each.
    """
    most = min(64, max(8, 2**22 // n_features**2))
    length = block_rows(n_features, dtype)
    n_blocks = -(-n_signals // length)
    shortest = -(-(2**20) // (n_features * length))
    return list(split_rows(0, n_signals, max(shortest, -(-n_blocks // most)) * length))


def padded(n_features: int) -> int:
    """Columns of the rows that kernels see: whole words."""
    return -(-n_features // WORD) * WORD


def aligned_zeros(shape: tuple[int, int], dtype: np.dtype) -> Array:
    """Zeros that begin with a cache line, so that no vector of them straddles two."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + _CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % _CACHE_LINE
    return memory[first : first + size].view(dtype).reshape(shape)
