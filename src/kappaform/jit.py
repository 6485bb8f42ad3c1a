"""How kernels are compiled: in one way for all of them.

A kernel calls kernels of its own file only: numba compiles again what changed in a file, but does
not look into the files that it imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(fastmath: set[str]) -> Callable[[Callable[..., Any]], Any]:
    """Decorator that compiles a function on its first call, without the GIL, and caches the result.

    Where no folder for a cache can be written, it is compiled anew in every process.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, nogil=True, fastmath=fastmath)(function)
        except RuntimeError:  # numba finds no place for its cache
            return njit(nogil=True, fastmath=fastmath)(function)

    return compiled
