"""Subsets of the rows of signals, wherever these are, and rows of sparse arrays, as signals."""

from __future__ import annotations

from typing import Any

import numpy as np

from kappaform.checks import Array, is_store, library_of, memory_map

# Runs of rows that a store is read in, at most: each is a request of its own.
_MOST_RUNS = 1000


def take_rows(signals: Any, rows: Array) -> Any:
    """Signals with these row numbers, ascending.

    Rows in memory, or on a device, are copied. Dask arrays stay lazy, and every chunk keeps its
    rows. Memory-maps and stores are read in place; the rows must form few runs.
    """
    if library_of(signals) == "dask":  # first, because it would also pass for a store
        return _rows_of_chunks(signals, rows)
    runs = _runs(rows)
    if is_store(signals):
        return JoinedRows(signals, runs)
    if len(runs) == 1:
        return signals[runs[0]]
    return signals[rows] if memory_map(signals) is None else JoinedRows(signals, runs)


class JoinedRows:
    """Runs of rows of a store, one after the other: a store, too."""

    def __init__(self, store: Any, runs: list[slice]) -> None:
        if len(runs) > _MOST_RUNS:
            raise ValueError(
                f"the rows asked for lie in {len(runs)} separate places of signals on disk: take "
                "rows that follow one another (for folds, give their number), or signals in memory."
            )
        self._store, self._runs = store, runs
        self._ends = np.cumsum([run.stop - run.start for run in runs])
        self.shape, self.dtype = (int(self._ends[-1]), *store.shape[1:]), store.dtype

    def __getitem__(self, rows: slice) -> Array:
        pieces = []
        for run, end in zip(self._runs, self._ends.tolist(), strict=True):
            begin = end - (run.stop - run.start)
            first, last = max(rows.start, begin), min(rows.stop, end)
            if first < last:
                shift = run.start - begin
                pieces.append(np.asarray(self._store[first + shift : last + shift]))
        return np.concatenate(pieces)


class DenseRows:
    """Rows of a sparse CSR array, made dense when they are read: a store, too."""

    def __init__(self, rows: Any) -> None:
        self._rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __getitem__(self, rows: slice) -> Array:
        return self._rows[rows].toarray()


def _rows_of_chunks(signals: Any, rows: Array) -> Any:
    """Rows of a Dask array in chunks: those that one of its chunks has make one.

    Dask's own indexing would join them into chunks of the old size, and move rows between workers
    in every pass.
    """
    import dask.array as da

    starts = np.cumsum((0, *signals.chunks[0]))
    chunk_of = np.searchsorted(starts, rows, side="right") - 1
    used, counts = np.unique(chunk_of, return_counts=True)
    within = (rows - starts[chunk_of])[:, np.newaxis]
    chunks = tuple(counts.tolist())
    return da.map_blocks(
        _rows_of_chunk,
        signals.blocks[used],
        da.from_array(within, chunks=(chunks, 1)),
        chunks=(chunks, signals.chunks[1]),
        meta=signals._meta,
    )


def _rows_of_chunk(chunk: Array, rows: Array) -> Array:
    return chunk[rows[:, 0]]


def _runs(rows: Array) -> list[slice]:
    """Row numbers as slices of numbers that follow one another."""
    ends = np.flatnonzero(np.diff(rows) != 1) + 1
    return [slice(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, ends)]
