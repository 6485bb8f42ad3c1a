"""How kernels are compiled: in one way for all of them.

Kernels, and all that they are compiled from, are in files named ``*kernels.py``. Numba compiles a
kernel again when its file changed, but does not look into the files that this one imports: here the
cache depends on the contents of all these files.

What a kernel calls is inlined into it. Otherwise numba keeps a compiled copy for every caller, and
which of them is linked depends on what was compiled or loaded before: where sums may be reordered
or fused, the copies round differently, and the first process would return other bits than the next.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit
from numba.extending import intrinsic as _intrinsic

#: Decorator of a function that writes instructions of LLVM, of one argument less than it has.
intrinsic: Any = _intrinsic

#: Fused multiply-adds are permitted and nothing else: no sum is reordered.
FUSED = {"contract"}
#: Sums may be reordered: that is what makes them fast, and on one machine they are always the same.
REORDERED = {*FUSED, "reassoc", "nsz", "arcp"}


def inlined(fastmath: set[str], *, allocates: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for a function that kernels call: it becomes a part of each of them.

    References to its arrays are counted only if it allocates some. Counting is atomic, in every
    call, and takes longer than the search for the largest of 64 entries. Without it a function can
    take slices, but neither return an array nor call what does, such as `ravel`.
    """
    unnamed_in_stubs: Any = {"_nrt": allocates}
    return njit(nogil=True, fastmath=fastmath, forceinline=True, **unnamed_in_stubs)


def kernel(fastmath: set[str]) -> Callable[[Callable[..., Any]], Any]:
    """Decorator that compiles a function on its first call, without the GIL, and caches the result.

    It is compiled anew in every process where no folder for a cache can be written or read, and by
    versions of numba whose cache cannot be made to depend on all files of kernels.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"nogil": True, "fastmath": fastmath}
        try:
            found = njit(cache=True, **options)(function)
        except (RuntimeError, OSError):  # numba finds no place for its cache
            return njit(**options)(function)
        try:  # what numba does not promise to keep
            index = found._cache._cache_file
            index._source_stamp = (index._source_stamp, _contents())
            for operation in ("load_overload", "save_overload"):
                setattr(found._cache, operation, _if_possible(getattr(found._cache, operation)))
        except AttributeError:  # a cache that could be stale
            return njit(**options)(function)
        return found

    return compiled


@cache
def _contents() -> str:
    """Digest of all files that kernels are compiled from, and of this one."""
    here = Path(__file__)
    files = (here, *sorted(here.parent.rglob("*kernels.py")))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _if_possible(operation: Callable[..., Any]) -> Callable[..., Any]:
    """An operation of a cache; if the disk is full, or the folder gone, it does nothing."""

    def tried(*arguments: Any) -> Any:
        with suppress(OSError):
            return operation(*arguments)
        return None

    return tried
