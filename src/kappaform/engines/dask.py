"""The pass over Dask arrays: each chunk where it is, and sums in a tree of fixed order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from kappaform.checks import Array, as_real_array, check_rows, real_dtype
from kappaform.engines import blocks
from kappaform.engines.blocks import BITS, Run
from kappaform.engines.engine import Sparsity, reading
from kappaform.engines.union import UnionBlockEngine
from kappaform.errors import NotFinite, SignalsUnreadable
from kappaform.threads import after_fork, single_threaded_blas

_BRANCHES = 32  # of the tree of sums: its order, and so its rounding, depends on nothing else


class DaskEngine(UnionBlockEngine):
    """One pass over a Dask array of signals, in chunks of whole rows.

    The scheduler is whatever Dask uses at the call: threads, processes or a cluster. A chunk is the
    work of one thread, and a pass sends only sums of size (n, n). For given chunks results have the
    same bits on any number of workers. Every pass computes the signals: `persist` those that take
    long to compute. Good chunks have 50 to 200 MB: a few for each worker, and so long that the
    milliseconds which Dask needs to schedule a task do not matter.

    Codes and decoded signals are Dask arrays, computed when they are needed. Signals that are not
    finite are rejected only then, while a pass rejects them at once.
    """

    def __init__(self, signals: Any, name: str = "signals") -> None:
        signals = _as_chunks_of_rows(signals, name)
        super().__init__(signals, name, blocks.working_dtype(np.dtype(signals.dtype)))
        self._key = uuid4().hex  # of the thresholds that workers remember

    def _rows(
        self, function: Callable[..., Any], width: int, *arguments: Any, dtype: Any = None
    ) -> Any:
        """A Dask array."""
        dtype = dtype or self.dtype
        chunks, meta = (self.signals.chunks[0], (width,)), np.empty((0, 0), dtype)
        filled = partial(_filled, function, width, dtype)
        return self._mapped(filled, *arguments, chunks=chunks, meta=meta)

    def _total(
        self, function: Callable[..., Any], *arguments: Any, n_guesses: int = 0, **_: int
    ) -> Any:
        from dask.delayed import delayed

        if n_guesses:
            arguments = *arguments, _Remembered(self._key, n_guesses)
        chunks, meta = ((1,) * self.signals.numblocks[0], (1,)), np.empty((0, 0))  # objects
        sums = self._mapped(function, *arguments, chunks=chunks, meta=meta, returns_error=True)
        each = sums.to_delayed().ravel()
        while len(each) > 1:
            groups = (each[i : i + _BRANCHES] for i in range(0, len(each), _BRANCHES))
            each = [delayed(_added)(list(group)) for group in groups]
        with reading(f"{self.name} could not be computed"):
            total = each[0].compute()
        if isinstance(total, NotFinite):
            raise total
        # What another process has sent may lie anywhere, and BLAS may crash on odd addresses.
        return deepcopy(total)

    def _mapped(
        self, function: Callable[..., Any], n_nonzero: Sparsity, *arguments: Any, **options: Any
    ) -> Any:
        """Results of a function of each chunk."""
        import dask.array as da

        sparsity: Any = n_nonzero
        if np.ndim(n_nonzero) == 1:  # a column, in chunks like those of the signals
            small = np.asarray(n_nonzero, np.min_scalar_type(self.n_features))  # it travels
            sparsity = da.from_array(small[:, np.newaxis], chunks=(self.signals.chunks[0], 1))
        return da.map_blocks(
            _on_chunk,
            self.signals,
            sparsity,
            *map(_sent, arguments),
            function=function,
            dtype_of_codes=self.dtype,
            name_of_signals=self.name,
            starts=_sent(np.cumsum((0, *self.signals.chunks[0]))),
            **options,
        )


def _on_chunk(
    chunk: Array,
    sparsity: int | Array,
    *arguments: Any,
    function: Callable[..., Any],
    dtype_of_codes: np.dtype,
    name_of_signals: str,
    starts: Array,
    block_id: tuple[int, int],
    returns_error: bool = False,
) -> Any:
    """What a worker does with a chunk, as the work of one thread: a run of blocks is made of it.

    `starts` has the number of the first row of each chunk, and of the first row after all.
    """
    name, i = name_of_signals, block_id[0]
    chunk, n_rows = as_real_array(chunk, name), int(starts[i + 1] - starts[i])
    if len(chunk) != n_rows:
        raise SignalsUnreadable(
            f"chunk {i} of {name} has {len(chunk)} rows, not the {n_rows} that its array declares: "
            "fix what it is computed from."
        )
    n_features = chunk.shape[1]
    length = min(blocks.block_rows(n_features, dtype_of_codes), max(n_rows, 1))
    read = blocks.blocks_of(chunk, slice(0, n_rows), length)
    wanted = np.broadcast_to(np.ravel(sparsity), (n_rows,))
    run = Run(read, n_features, length, dtype_of_codes, name, wanted, {})
    if arguments and isinstance(arguments[-1], _Remembered):
        key, n_transforms = arguments[-1]
        guesses = _remembered_thresholds((key, i, n_rows, n_transforms), dtype_of_codes)
        arguments = *arguments[:-1], guesses
    try:
        with single_threaded_blas():
            return function(run, *arguments)
    except NotFinite as error:
        found = NotFinite(name, int(starts[i]) + error.row)
        if returns_error:
            return found
        raise found from None


def _added(each: list[Any]) -> Any:
    """The sum; if there are errors, that of the first row, whichever chunk was computed first."""
    errors = [one for one in each if isinstance(one, NotFinite)]
    return min(errors, key=lambda error: error.row) if errors else reduce(add, each)


def _filled(
    function: Callable[..., Any], width: int, dtype: np.dtype, run: Run, *arguments: Any
) -> Array:
    rows = np.zeros((len(run.sparsity), width), dtype)
    function(run, *arguments, rows)
    return rows


def _sent(value: Any) -> Any:
    """A value that is in the graph once, not once for each chunk; sent again if it is lost."""
    from dask.delayed import delayed

    return delayed(value, traverse=False)


class _Remembered(NamedTuple):
    """Stands for the thresholds of each chunk, which stay on the worker that found them.

    They change no result, so nothing is lost with a worker, and a chunk that moves to another is a
    little slower once.
    """

    key: str  #: of the engine
    n_transforms: int


_Chunk = tuple[str, int, int, int]  # engine, chunk, numbers of rows and of transforms
_thresholds: dict[_Chunk, Array] = {}
_thresholds_lock = threading.Lock()


@after_fork
def _begin_as_child() -> None:
    global _thresholds_lock
    _thresholds_lock = threading.Lock()


def _remembered_thresholds(chunk: _Chunk, dtype: np.dtype) -> Array:
    with _thresholds_lock:
        if chunk in _thresholds:
            return _thresholds[chunk]
        new, most = np.zeros(chunk[:1:-1], BITS[dtype]), blocks.MOST_THRESHOLD_BYTES
        for other in [other for other in _thresholds if other[:3] == chunk[:3]]:
            del _thresholds[other]  # of another number of transforms
        if _bytes_with(new) > most:
            for other in [other for other in _thresholds if other[0] != chunk[0]]:
                del _thresholds[other]
        if _bytes_with(new) <= most:
            _thresholds[chunk] = new
        return new


def _bytes_with(new: Array) -> int:
    return new.nbytes + sum(kept.nbytes for kept in _thresholds.values())


def check_dask_array(values: Any, name: str) -> None:
    """Reject a Dask collection that is no array of real numbers in chunks of known size."""
    from dask.array import Array as DaskArray

    if not isinstance(values, DaskArray):
        raise TypeError(
            f"{name} is a {type(values).__name__}, not a Dask array: convert it, a data frame by "
            f"{name}.to_dask_array(lengths=True)."
        )
    if np.isnan(values.shape).any():
        raise ValueError(
            f"{name} has chunks of unknown size, shape {values.shape}: call "
            f"{name}.compute_chunk_sizes() first."
        )
    real_dtype(values.dtype, name)
    if type(values._meta) is not np.ndarray:
        raise TypeError(
            f"{name} has chunks of type {type(values._meta).__name__}: they must be plain arrays, "
            f"{name}.map_blocks(numpy.asarray) if that loses nothing."
        )


def _as_chunks_of_rows(signals: Any, name: str) -> Any:
    """Check everything about a Dask array that needs no computation."""
    check_dask_array(signals, name)
    check_rows(signals.shape, name)
    # Putting columns together moves all data between workers, at every pass: users should know.
    if signals.numblocks[1] > 1:
        raise ValueError(
            f"{name} has {signals.numblocks[1]} chunks along its features: a chunk needs whole "
            f"rows, {name}.rechunk({{1: -1}}), best followed by .persist()."
        )
    return signals
