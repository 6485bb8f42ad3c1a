"""The pass over Dask arrays: every block where it lies, sums in a tree whose order is fixed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from kappaform.arrays import (
    Array,
    as_sparsity,
    as_transform,
    check_at_most,
    check_rows,
    not_finite,
    real_dtype,
    scale_exponent,
    working_dtype,
)
from kappaform.engines.dask_blocks import coded, encoded, gram_of, lost, peak_of, product
from kappaform.engines.engine import Float64Array, Statistics
from kappaform.engines.stores import SignalsUnreadable

_BRANCHES = 32  # of the tree of sums: its order, and so its rounding, depends on nothing else


class DaskEngine:
    """One pass over a Dask array of signals, in blocks of whole rows.

    The scheduler is whatever Dask uses at the call: threads, processes or a cluster. A block is the
    work of one thread, and of a pass only sums of size (n, n) travel. For given chunks results have
    the same bits on any number of workers. Every pass computes the signals: `persist` those that
    take long to make. Good blocks have 50 to 200 MB: a few for each worker, and so long that the
    milliseconds which Dask needs to hand out a task do not count.

    Codes and products are Dask arrays, computed when they are needed: only then signals that are
    not finite are refused, while a pass refuses them at once.

    Attributes
    ----------
    signals : dask.array.Array of shape (n_signals, n_features)
    n_signals, n_features, dtype, scale
        As those of `NumpyEngine`.
    """

    def __init__(self, signals: Any, name: str = "signals") -> None:
        self.signals, self._name = _as_blocks_of_rows(signals, name), name
        self.n_signals, self.n_features = map(int, signals.shape)
        self.dtype = working_dtype(signals.dtype)
        self._key = uuid4().hex

    @cached_property
    def scale(self) -> float:
        """Power of two by which signals are multiplied in all that is summed."""
        return 2.0**self._exponent

    @cached_property
    def gram(self) -> Float64Array:
        """G = YᵀY of the scaled signals, float64."""
        n = self.n_features
        return self._summed(gram_of, n * n, exponent=self._exponent).reshape(n, n)

    def run_pass(self, transform: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> Statistics:
        """Statistics of the scaled signals with their codes H_s(Y Wᵀ)."""
        n = self.n_features
        gram = self.gram
        sums = self._summed(
            coded,
            n * n + 2,
            *self._sparsity(n_nonzero),
            transform=self._sent(transform),
            exponent=self._exponent,
            key=self._key,
        )
        code_energy, discarded_energy = map(float, sums[:2])
        return Statistics(
            gram,
            sums[2:].reshape(n, n),
            code_energy,
            discarded_energy,
            self.n_signals,
            self._exponent,
        )

    def lost_energy(
        self, transform: npt.ArrayLike, inverse: Float64Array, n_nonzero: int | npt.ArrayLike
    ) -> float:
        """‖Y − X W⁻ᵀ‖² of the scaled signals: what codes do not give back."""
        sums = self._summed(
            lost,
            1,
            *self._sparsity(n_nonzero),
            transform=self._sent(transform),
            inverse=self._sent(inverse, np.float64),
            exponent=self._exponent,
        )
        return float(sums[0])

    def encode(self, transform: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> Any:
        """Codes H_s(Y Wᵀ) of the signals as given (not scaled): a Dask array."""
        return self._rows(encoded, *self._sparsity(n_nonzero), transform=self._sent(transform))

    def apply(self, matrix: npt.ArrayLike) -> Any:
        """Product of every signal as given with a matrix, Y Mᵀ: a Dask array."""
        return self._rows(product, matrix=self._sent(matrix, np.float64))

    @cached_property
    def _exponent(self) -> int:
        """Exponent of `scale`. Refuses signals that are not finite."""
        peaks, bad_rows, lengths = self._computed(self._one_for_each_block(peak_of, 3)).T
        wrong = np.flatnonzero(lengths != self.signals.chunks[0])
        if wrong.size:
            i = wrong[0]
            raise SignalsUnreadable(
                f"block {i} of {self._name} has {lengths[i]:.0f} rows, not the "
                f"{self.signals.chunks[0][i]} that its chunks say: mend what it is computed from."
            )
        bad_blocks = np.flatnonzero(bad_rows >= 0)
        if bad_blocks.size:
            first = bad_blocks[0]
            raise ValueError(not_finite(self._name, int(self._starts[first] + bad_rows[first])))
        return scale_exponent(float(peaks.max()), self.dtype)

    @property
    def _starts(self) -> Array:
        """Number of the first row of each block."""
        return np.cumsum((0, *self.signals.chunks[0][:-1]))

    def _sparsity(self, n_nonzero: int | npt.ArrayLike) -> tuple[Any, ...]:
        """One integer, or a column of them in blocks like those of the signals."""
        import dask.array as da

        sparsity = as_sparsity(n_nonzero, self.n_signals)
        check_at_most(sparsity, self.n_features)
        if np.ndim(n_nonzero) == 0:
            return (int(sparsity[0]),)
        small = sparsity.astype(np.min_scalar_type(self.n_features))  # they travel with every pass
        return (da.from_array(small[:, np.newaxis], chunks=(self.signals.chunks[0], 1)),)

    def _sent(self, matrix: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Any:
        """A matrix that is in the graph once, not once for each block; made again if it is lost."""
        from dask.delayed import delayed

        return delayed(as_transform(matrix, self.n_features, np.dtype(dtype or self.dtype)))

    def _one_for_each_block(
        self, function: Callable[..., Array], width: int, *arguments: Any, **options: Any
    ) -> Any:
        """Rows of `width` numbers, one for each block of signals."""
        import dask.array as da

        return da.map_blocks(
            function,
            self.signals,
            *arguments,
            **options,
            chunks=((1,) * self.signals.numblocks[0], (width,)),
            meta=np.empty((0, 0)),
        )

    def _summed(
        self, function: Callable[..., Array], width: int, *args: Any, **options: Any
    ) -> Any:
        each = self._one_for_each_block(function, width, *args, **options)
        return self._computed(each.sum(axis=0, split_every=_BRANCHES))

    def _rows(self, function: Callable[..., Array], *arguments: Any, **options: Any) -> Any:
        """A Dask array with a row for each signal."""
        import dask.array as da
        from dask.delayed import delayed

        return da.map_blocks(
            function,
            self.signals,
            *arguments,
            **options,
            called=self._name,
            starts=delayed(self._starts),
            meta=np.empty((0, 0), self.dtype),
        )

    def _computed(self, lazy: Any) -> Array:
        try:
            return np.asarray(lazy.compute())
        except Exception as error:
            raise SignalsUnreadable(
                f"{self._name} could not be computed: {type(error).__name__}: {error}. Mend what "
                "they are computed from and call again; if learning had begun, `.result` of this "
                "error is where to go on (init=...)."
            ) from error


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
            f"{name} has blocks of type {type(values._meta).__name__}: they must be plain arrays, "
            f"{name}.map_blocks(numpy.asarray) if that loses nothing."
        )


def _as_blocks_of_rows(signals: Any, name: str) -> Any:
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
