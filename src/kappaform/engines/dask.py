"""The pass over Dask arrays: every chunk where it lies, sums in a tree whose order is fixed."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np

from kappaform.checks import Array, as_real_array, check_rows, real_dtype
from kappaform.engines import blocks
from kappaform.engines.blocks import (
    BITS,
    Kind,
    NotFinite,
    Run,
    ScaledSums,
    Weights,
    scaled_statistics,
)
from kappaform.engines.engine import Energies, Float64Array, Refit, Statistics
from kappaform.engines.scale import check_energy, scale_exponent
from kappaform.errors import SignalsUnreadable, check_sums, not_finite, reading
from kappaform.threads import single_threaded_blas

_BRANCHES = 32  # of the tree of sums: its order, and so its rounding, depends on nothing else


class DaskEngine:
    """One pass over a Dask array of signals, in chunks of whole rows.

    The scheduler is whatever Dask uses at the call: threads, processes or a cluster. A chunk is the
    work of one thread, and of a pass only sums of size (n, n) travel. For given chunks results have
    the same bits on any number of workers. Every pass computes the signals: `persist` those that
    take long to make. Good chunks have 50 to 200 MB: a few for each worker, and so long that the
    milliseconds which Dask needs to hand out a task do not count.

    Codes and decoded signals are Dask arrays, computed when they are needed: only then signals that
    are not finite are refused, while a pass refuses them at once.

    Attributes
    ----------
    signals : dask.array.Array of shape (n_signals, n_features)
    n_signals, n_features, dtype
        As those of `NumpyEngine`.
    """

    def __init__(self, signals: Any, name: str = "signals", first_row: int = 0) -> None:
        self.signals = _as_chunks_of_rows(signals, name)
        self.n_signals, self.n_features = map(int, signals.shape)
        self._kind = blocks.kind_of(signals, name, first_row)
        self.dtype = self._kind.dtype
        self._surveyed: ScaledSums | None = None
        self._key = uuid4().hex  # of what workers remember of passes

    @property
    def exponent(self) -> int:
        """Of the power of two that multiplies signals in all that is summed."""
        return self._survey().exponent

    @property
    def gram(self) -> Float64Array:
        """G = YᵀY of the scaled signals, float64."""
        n = self.n_features
        return self._survey().sums.reshape(n, n)

    def run_pass(self, transform: Float64Array, n_nonzero: int | Array) -> Statistics:
        """Statistics of the scaled signals with their codes H_s(Y Wᵀ)."""
        n, exponent = self.n_features, self.exponent
        weights = blocks.weights_of(transform, self.dtype)
        each = self._mapped(
            _pass_over, n_nonzero, _sent(weights), exponent, self._key, width=n * n + 2
        )
        sums = self._computed(each.sum(axis=0, split_every=_BRANCHES))
        check_sums(self._kind.name, sums)
        return scaled_statistics(
            self.gram, sums[2:].reshape(n, n), sums[:2], self.n_signals, exponent, weights.exponent
        )

    def energies(
        self,
        transform: Float64Array,
        inverse: tuple[Float64Array, int],
        n_nonzero: int | Array,
        refit: Refit | None = None,
    ) -> Energies:
        """Squared norms of signals, codes and errors."""
        weights = blocks.weights_of(transform, self.dtype)
        matrices = _sent(weights), _sent(inverse), _sent(refit)
        total = self._scaled_sums(blocks.energies, n_nonzero, *matrices, width=4)
        check_energy(total.sums[0], total.exponent, self._kind.name)
        return Energies.of(total.sums, total.exponent, weights.exponent)

    def encode(
        self, transform: Float64Array, n_nonzero: int | Array, refit: Refit | None = None
    ) -> Any:
        """Codes of the signals as given (not scaled): a Dask array."""
        return self._mapped(_encoded, n_nonzero, _sent(transform), _sent(refit))

    def decode(self, inverse: tuple[Float64Array, int]) -> Any:
        """Rows times a matrix: a Dask array."""
        return self._mapped(_decoded, 0, _sent(inverse))

    def _survey(self) -> ScaledSums:
        if self._surveyed is None:
            total = self._scaled_sums(blocks.survey, 0, width=self.n_features**2)
            squares = total.sums[:: self.n_features + 1]
            check_energy(squares.sum(), total.exponent, self._kind.name)
            self._surveyed = total
        return self._surveyed

    def _scaled_sums(
        self,
        function: Callable[..., ScaledSums],
        n_nonzero: int | Array,
        *matrices: Any,
        width: int,
    ) -> ScaledSums:
        """Sums of all chunks. Refuses signals that are not finite."""
        import dask.array as da

        each = self._mapped(_as_row, n_nonzero, function, width, *matrices, width=width + 2)
        merged = da.reduction(
            each,
            chunk=_unchanged,
            combine=partial(_merged, dtype_of_sums=self.dtype),
            aggregate=partial(_merged, dtype_of_sums=self.dtype),
            axis=0,
            split_every=_BRANCHES,
            dtype=each.dtype,
        )
        bad_row, *rest = self._computed(merged)
        if math.isfinite(bad_row):
            raise ValueError(not_finite(self._kind.name, int(bad_row)))
        return _sums_of([bad_row, *rest], self.dtype)

    def _mapped(
        self,
        function: Callable[..., Array],
        n_nonzero: int | Array,
        *arguments: Any,
        width: int | None = None,
    ) -> Any:
        """What a function makes of each chunk: a row of numbers, or without a width a row each."""
        import dask.array as da

        sparsity: Any = n_nonzero
        if np.ndim(n_nonzero) == 1:  # a column, in chunks like those of the signals
            small = np.asarray(n_nonzero, np.min_scalar_type(self.n_features))  # it travels
            sparsity = da.from_array(small[:, np.newaxis], chunks=(self.signals.chunks[0], 1))
        rows = {} if width is None else {"chunks": ((1,) * self.signals.numblocks[0], (width,))}
        return da.map_blocks(
            _on_chunk,
            self.signals,
            sparsity,
            *arguments,
            function=function,
            kind=self._kind,
            starts=_sent(self._starts),
            meta=np.empty((0, 0), self.dtype if width is None else np.float64),
            **rows,
        )

    @property
    def _starts(self) -> Array:
        """Number of the first row of each chunk, and of the first row after all."""
        return np.cumsum((0, *self.signals.chunks[0]))

    def _computed(self, lazy: Any) -> Array:
        with reading(f"{self._kind.name} could not be computed"):
            # What another process has sent may lie anywhere, and BLAS may crash on odd addresses.
            return np.require(lazy.compute(), requirements=["ALIGNED"])


def _on_chunk(
    chunk: Array,
    sparsity: int | Array,
    *arguments: Any,
    function: Callable[..., Array],
    kind: Kind,
    starts: Array,
    block_id: tuple[int, int],
) -> Array:
    """What a worker does with a chunk, as the work of one thread: a run of blocks is made of it.

    A chunk of other rows than declared is refused.
    """
    chunk, i = as_real_array(chunk, kind.name), block_id[0]
    n_rows = int(starts[i + 1] - starts[i])
    if len(chunk) != n_rows:
        raise SignalsUnreadable(
            f"chunk {i} of {kind.name} has {len(chunk)} rows, not the {n_rows} that its chunks "
            "say: mend what it is computed from."
        )
    kind = kind._replace(first_row=kind.first_row + int(starts[i]))
    cut = blocks.blocks_of(chunk, slice(0, n_rows), kind.n_rows)
    run = Run(cut, kind, np.broadcast_to(np.ravel(sparsity), (n_rows,)), {})
    with single_threaded_blas():
        return function(run, *arguments)


def _pass_over(run: Run, weights: Weights, exponent: int, key: str) -> Array:
    cuts = _remembered_cuts((key, run.kind.first_row, len(run.sparsity)), run.kind.dtype)
    cross, *energies = blocks.pass_over(run, weights, exponent, cuts)
    return np.concatenate([energies, cross.ravel()])[np.newaxis]


def _encoded(run: Run, transform: Float64Array, refit: Refit | None) -> Array:
    codes = np.zeros((len(run.sparsity), run.kind.n_features), run.kind.dtype)
    blocks.encode(run, transform, codes, refit)
    return codes


def _decoded(run: Run, inverse: tuple[Float64Array, int]) -> Array:
    signals = np.empty((len(run.sparsity), run.kind.n_features), run.kind.dtype)
    blocks.decode(run, inverse, signals)
    return signals


def _as_row(run: Run, function: Callable[..., ScaledSums], width: int, *matrices: Any) -> Array:
    """The first row that is not finite (inf: none), the largest magnitude, and the sums."""
    try:
        total = function(run, *matrices)
    except NotFinite as error:
        return np.array([[error.row, 0.0, *[0.0] * width]])
    return np.concatenate([[math.inf, total.peak], total.sums.ravel()])[np.newaxis]


def _sums_of(row: Any, dtype: np.dtype) -> ScaledSums:
    total = ScaledSums(len(row) - 2, dtype)
    total.add(float(row[1]), np.asarray(row[2:]), scale_exponent(float(row[1]), dtype))
    return total


def _merged(rows: Array, dtype_of_sums: np.dtype, keepdims: bool = False, **_: Any) -> Array:
    """Rows of `ScaledSums` as one."""
    total = ScaledSums(rows.shape[1] - 2, dtype_of_sums)
    for row in rows:
        total.merge(_sums_of(row, dtype_of_sums))
    merged = np.concatenate([[rows[:, 0].min(initial=math.inf), total.peak], total.sums])
    return merged[np.newaxis] if keepdims else merged


def _unchanged(rows: Array, **_: Any) -> Array:
    return rows


def _sent(value: Any) -> Any:
    """A value that is in the graph once, not once for each chunk; made again if it is lost."""
    from dask.delayed import delayed

    return delayed(value, traverse=False)


# Guesses of earlier passes stay on the worker that made them. They change no result, so nothing is
# lost with a worker, and a chunk that moves to another is a little slower once.
_cuts: dict[tuple[str, int, int], Array] = {}  # by engine, first row and number of rows
_cuts_lock = threading.Lock()


def _begin_as_child() -> None:
    global _cuts_lock
    _cuts_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_as_child)


def _remembered_cuts(chunk: tuple[str, int, int], dtype: np.dtype) -> Array:
    with _cuts_lock:
        if chunk in _cuts:
            return _cuts[chunk]
        cuts = np.zeros(chunk[2], BITS[dtype])
        if _bytes_with(cuts) > blocks.MOST_CUTS_BYTES:
            for other in [other for other in _cuts if other[0] != chunk[0]]:
                del _cuts[other]
        if _bytes_with(cuts) <= blocks.MOST_CUTS_BYTES:
            _cuts[chunk] = cuts
        return cuts


def _bytes_with(cuts: Array) -> int:
    return cuts.nbytes + sum(kept.nbytes for kept in _cuts.values())


def check_dask_array(values: Any, name: str) -> None:
    """Refuse a Dask collection that is no array of real numbers in chunks of known size."""
    from dask.array import Array as DaskArray

    if not isinstance(values, DaskArray):
        raise TypeError(
            f"{name} is a {type(values).__name__}: of Dask's collections give an array; a data "
            f"frame becomes one by {name}.to_dask_array(lengths=True)."
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
    """Check all of a Dask array that can be seen without computing it."""
    check_dask_array(signals, name)
    check_rows(signals.shape, name)
    # Putting columns together moves all data between workers, at every pass: users should know.
    if signals.numblocks[1] > 1:
        raise ValueError(
            f"{name} has {signals.numblocks[1]} chunks along its features: a chunk needs whole "
            f"rows, {name}.rechunk({{1: -1}}), best followed by .persist()."
        )
    return signals
