"""The engine of arrays, in memory or memory-mapped, and of stores; the choice of an engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from kappaform.checks import (
    Array,
    as_real_array,
    as_signals,
    as_sparsity,
    is_store,
    library_of,
    memory_map,
)
from kappaform.engines import blocks
from kappaform.engines.blocks import BITS
from kappaform.engines.engine import Engine, Sparsity
from kappaform.engines.kernels import mark_largest
from kappaform.engines.stores import reader_of
from kappaform.engines.union import UnionBlockEngine
from kappaform.threads import Workspace, mapped_in_order


class NumpyEngine(UnionBlockEngine):
    """One pass over an array of signals, block of rows by block of rows.

    Results have the same bits with any number of threads, in any memory layout of the signals and
    from any store. Beyond the data, a pass needs a few megabytes per thread and 8 bytes per signal,
    for signals on disk 64 MB at most for the latter.

    Parameters
    ----------
    signals : array, or store of shape (n_signals, n_features)
        A store has a shape, a dtype and rows that can be sliced.
    name : str
        What errors call the signals.
    """

    def __init__(self, signals: Any, name: str = "signals") -> None:
        signals = as_signals(signals, name)
        super().__init__(signals, name, blocks.working_dtype(np.dtype(signals.dtype)))
        self._on_disk = is_store(signals) or memory_map(signals) is not None
        in_place = partial(blocks.blocks_of, signals)
        self._read = reader_of(signals, name) if self._on_disk else in_place
        length = blocks.block_rows(self.n_features, self.dtype)
        self._block_rows = min(length, self.n_signals)
        self._guesses: Array = np.zeros((0, 0), BITS[self.dtype])

    def check_in_memory(self) -> None:
        if not self._on_disk:
            self._mapped(blocks.check_finite, 0)

    def _rows(
        self,
        function: Callable[..., Any],
        width: int,
        *arguments: Any,
        dtype: np.dtype | None = None,
        sparse: bool = False,
    ) -> Any:
        """An array in memory; or codes as a sparse CSR array.

        Of sparse codes, only those of one block per thread are in memory as an array.
        """
        rows = None if sparse else np.zeros((self.n_signals, width), dtype or self.dtype)
        pieces = self._mapped(function, *arguments, rows)
        if rows is not None:
            return rows
        from scipy.sparse import vstack

        return vstack([block for piece in pieces for block in piece], "csr")

    def _total(
        self, function: Callable[..., Any], *arguments: Any, n_sums: int = 1, n_guesses: int = 0
    ) -> Any:
        if n_guesses:
            arguments = *arguments, self._thresholds(n_guesses)
        return reduce(add, self._mapped(function, *arguments, n_sums=n_sums))

    def _thresholds(self, n_transforms: int) -> Array:
        """The magnitude that separated each row in the last pass: the guess of the next one.

        One for each transform. Those of another number of transforms are forgotten.
        """
        if len(self._guesses) != n_transforms:
            bits, most = BITS[self.dtype], self.n_signals
            if self._on_disk:  # memory does not grow with the number of signals
                most = min(most, blocks.MOST_THRESHOLD_BYTES // (n_transforms * bits.itemsize))
            self._guesses = np.zeros((n_transforms, most), bits)
        return self._guesses

    def _mapped(
        self, function: Callable[..., Any], n_nonzero: Sparsity, *arguments: Any, n_sums: int = 1
    ) -> list[Any]:
        """Results of a function of runs of blocks, in their order."""
        sparsity = np.broadcast_to(n_nonzero, (self.n_signals,))
        shape = self.n_features, self._block_rows, self.dtype, self.name

        def work(part: slice, workspace: Workspace) -> Any:
            read = self._read(part, self._block_rows)
            return function(blocks.Run(read, *shape, sparsity, workspace), *arguments)

        parts = blocks.parts(self.n_signals, self.n_features, n_sums)
        return mapped_in_order(work, parts)


def engine_for(signals: Any, name: str = "signals") -> Engine:
    """The engine that performs the pass where `signals` live; errors call them `name`.

    Torch tensors and Dask arrays have engines of their own. `NumpyEngine` handles arrays,
    memory-maps, stores whose rows can be sliced and whatever `numpy.asarray` understands.
    """
    library = library_of(signals)
    if library == "torch":
        from kappaform.engines.torch import TorchEngine

        return TorchEngine(signals, name)
    if library == "dask":
        from kappaform.engines.dask import DaskEngine

        return DaskEngine(signals, name)
    return NumpyEngine(signals, name)


def hard_threshold(coefs: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> npt.NDArray[Any]:
    """Keep the entries of largest magnitude of each row and set the others to zero.

    .. math:: H_s(z) = \\arg\\min_x \\|x - z\\|  \\quad \\text{s.t.} \\quad \\|x\\|_0 \\le s

    Parameters
    ----------
    coefs : array of shape (n_signals, n_features) or (n_features,)
        Real numbers without NaN. Integers are compared as float64.
    n_nonzero : int or integers of shape (n_signals,)
        How many to keep; all, where it exceeds n_features. Among equal magnitudes the first
        are kept.

    Returns
    -------
    ndarray
        Codes, of the shape and dtype of `coefs`.

    Examples
    --------
    >>> import kappaform as kf
    >>> kf.hard_threshold([[3.0, -4.0, 1.0], [2.0, -2.0, 2.0]], [1, 2])
    array([[ 0., -4.,  0.],
           [ 2., -2.,  0.]])
    """
    coefs = as_real_array(coefs, "coefs")
    if coefs.ndim == 1:
        return hard_threshold(coefs[np.newaxis], n_nonzero)[0]
    if coefs.ndim != 2:
        raise ValueError(
            f"coefs has shape {coefs.shape}: it must be 2-D, one signal per row, or 1-D."
        )
    n_signals, n_features = coefs.shape
    sparsity = np.minimum(as_sparsity(n_nonzero, n_signals), n_features).astype(np.int64)
    codes = np.zeros(coefs.shape, coefs.dtype)
    if codes.size == 0:
        return codes
    dtype = blocks.working_dtype(coefs.dtype)
    length = blocks.block_rows(n_features, dtype)
    buffer = blocks.aligned_zeros((length, blocks.padded(n_features)), dtype)
    for rows, block in blocks.blocks_of(coefs, slice(0, n_signals), length):
        if np.isnan(block).any():
            bad = rows.start + int(np.isnan(block).any(axis=1).argmax())
            raise ValueError(f"coefs contains NaN, first in row {bad}: magnitudes must be ordered.")
        buffer[: len(block), :n_features] = block
        kept = np.empty(block.shape, np.bool_)
        mark_largest(buffer.view(BITS[dtype]), sparsity[rows], kept)
        np.copyto(codes[rows], block, where=kept)
    return codes
