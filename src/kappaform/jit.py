"""How kernels are compiled: in one way for all of them.

A kernel calls functions of its own file only: numba compiles again what changed in a file, but does
not look into the files that it imports.

What a kernel calls is inlined into it. Otherwise numba keeps a compiled copy for every caller, and
which of them is linked depends on what was compiled or loaded before: where sums may be reordered
or fused, the copies round differently, and the first process would return other bits than the next.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from numba import njit


def inlined(fastmath: set[str]) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for a function that kernels call: it becomes a part of each of them."""
    return njit(nogil=True, fastmath=fastmath, forceinline=True)


def kernel(fastmath: set[str]) -> Callable[[Callable[..., Any]], Any]:
    """Decorator that compiles a function on its first call, without the GIL, and caches the result.

    Where no folder for a cache can be written or read, it is compiled anew in every process.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"nogil": True, "fastmath": fastmath}
        try:
            found = njit(cache=True, **options)(function)
        except (RuntimeError, OSError):  # numba finds no place for its cache
            return njit(**options)(function)
        for operation in ("load_overload", "save_overload"):
            setattr(found._cache, operation, _if_possible(getattr(found._cache, operation)))
        return found

    return compiled


def _if_possible(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of a cache; if the disk is full, or the folder gone, it does nothing."""

    def tried(*arguments: Any) -> Any:
        with suppress(OSError):
            return operation(*arguments)
        return None

    return tried
