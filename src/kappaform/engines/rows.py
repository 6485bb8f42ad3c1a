"""Some rows of signals, as signals of their own, wherever they live."""

from __future__ import annotations

from typing import Any

import numpy as np

from kappaform.arrays import Array, is_store, library_of, memory_map

# Runs of rows that a store is read in, at most: each is a request of its own.
_MOST_RUNS = 1000


def take_rows(signals: Any, rows: Array) -> Any:
    """Signals with these row numbers, ascending.

    What is in memory, or on a device, is copied. Dask arrays stay lazy. Memory-maps and stores are
    read where they are, which asks for few runs of rows.
    """
    runs = _runs(rows)
    if len(runs) == 1:
        return signals[runs[0]] if not is_store(signals) else JoinedRows(signals, runs)
    library = library_of(signals)
    if library == "dask":
        import dask.array as da

        return da.concatenate([signals[run] for run in runs])
    if library != "torch" and (is_store(signals) or memory_map(signals) is not None):
        return JoinedRows(signals, runs)
    return signals[rows]


class JoinedRows:
    """Runs of rows of a store, one after the other: a store, too."""

    def __init__(self, store: Any, runs: list[slice]) -> None:
        if len(runs) > _MOST_RUNS:
            raise ValueError(
                f"cv takes {len(runs)} runs of rows of signals on disk: folds must be of rows that "
                "follow one another there; give a number of folds, or signals in memory."
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


def _runs(rows: Array) -> list[slice]:
    """Row numbers as slices of numbers that follow one another."""
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    return [slice(int(run[0]), int(run[-1]) + 1) for run in np.split(rows, cuts)]
