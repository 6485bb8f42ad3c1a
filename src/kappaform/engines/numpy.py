"""The engine of arrays, in memory or memory-mapped, and of stores; and which engine serves whom."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

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
    working_dtype,
)
from kappaform.engines import blocks
from kappaform.engines.blocks import BITS, ScaledSums
from kappaform.engines.engine import Energies, Engine, Float64Array, Refit, Statistics
from kappaform.engines.kernels import mark_largest
from kappaform.engines.scale import check_energy
from kappaform.engines.stores import reader_of
from kappaform.errors import check_sums
from kappaform.threads import Workspace, mapped_in_order

Result = TypeVar("Result")


class NumpyEngine:
    """One pass over an array of signals, block of rows by block of rows.

    Results have the same bits with any number of threads, in any memory layout of the signals and
    from any store. Beyond the data, a pass needs a few megabytes a thread and 8 bytes a signal; of
    signals on disk, which are read while earlier ones are in use, 64 MB at most for the latter.

    Parameters
    ----------
    signals : array, or store of shape (n_signals, n_features)
        A store has a shape, a dtype and rows that can be sliced.
    name : str
        What errors call the signals.
    first_row : int
        What errors call the first of the rows.

    Attributes
    ----------
    signals : ndarray or store
        As given, never copied as a whole, and not read before something is asked for.
    n_signals, n_features : int
    dtype : dtype
        Of coefficients and codes: float32 for float16 and float32 signals, else float64.
    """

    def __init__(self, signals: Any, name: str = "signals", first_row: int = 0) -> None:
        self.signals = as_signals(signals, name)
        self.n_signals, self.n_features = map(int, self.signals.shape)
        self._kind = blocks.kind_of(self.signals, name, first_row)
        self.dtype = self._kind.dtype
        self._on_disk = is_store(self.signals) or memory_map(self.signals) is not None
        in_place = partial(blocks.blocks_of, self.signals)
        self._read = reader_of(self.signals, name) if self._on_disk else in_place
        self._surveyed: ScaledSums | None = None
        # Where the last pass separated the magnitudes of each row: the guess of the next one.
        self._cuts: Array | None = None

    @property
    def exponent(self) -> int:
        """Of the power of two that multiplies signals in all that is summed."""
        return self._survey().exponent

    @property
    def gram(self) -> Float64Array:
        """G = YᵀY of the scaled signals, float64."""
        return self._survey().sums

    def run_pass(self, transform: Float64Array, n_nonzero: int | Array) -> Statistics:
        """Statistics of the scaled signals with their codes H_s(Y Wᵀ)."""
        exponent = self.exponent
        if self._cuts is None:
            self._cuts = self._no_cuts()
        weights = blocks.weights_of(transform, self.dtype)
        cross, energies = np.zeros((self.n_features, self.n_features)), np.zeros(2)
        for part_cross, *part_energies in self._mapped(
            blocks.pass_over, n_nonzero, weights, exponent, self._cuts
        ):
            cross += part_cross
            energies += part_energies
        check_sums(self._kind.name, cross, energies)
        return blocks.scaled_statistics(
            self.gram, cross, energies, self.n_signals, exponent, weights.exponent
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
        total = ScaledSums(4, self.dtype)
        for part in self._mapped(blocks.energies, n_nonzero, weights, inverse, refit):
            total.merge(part)
        check_energy(total.sums[0], total.exponent, self._kind.name)
        return Energies.of(total.sums, total.exponent, weights.exponent)

    def encode(
        self, transform: Float64Array, n_nonzero: int | Array, refit: Refit | None = None
    ) -> Array:
        """Codes of the signals as given (not scaled), (n_signals, n_features).

        They are an array in memory, also those of signals on disk.
        """
        codes = np.zeros((self.n_signals, self.n_features), self.dtype)
        self._mapped(blocks.encode, n_nonzero, transform, codes, refit)
        return codes

    def decode(self, inverse: tuple[Float64Array, int]) -> Array:
        """Rows times a matrix: an array in memory."""
        signals = np.empty((self.n_signals, self.n_features), self.dtype)
        self._mapped(blocks.decode, 0, inverse, signals)
        return signals

    def _survey(self) -> ScaledSums:
        if self._surveyed is None:
            total = ScaledSums((self.n_features, self.n_features), self.dtype)
            for part in self._mapped(blocks.survey, 0):
                total.merge(part)
            check_energy(np.trace(total.sums), total.exponent, self._kind.name)
            self._surveyed = total
        return self._surveyed

    def _no_cuts(self) -> Array:
        cuts, most = BITS[self.dtype], self.n_signals
        if self._on_disk:  # memory does not grow with the number of signals
            most = min(most, blocks.MOST_CUTS_BYTES // cuts.itemsize)
        return np.zeros(most, cuts)

    def _mapped(
        self, function: Callable[..., Result], n_nonzero: int | Array, *arguments: Any
    ) -> list[Result]:
        """Results of a function of runs of blocks, in their order."""
        sparsity = np.broadcast_to(n_nonzero, (self.n_signals,))

        def work(part: slice, workspace: Workspace) -> Result:
            read = self._read(part, self._kind.n_rows)
            return function(blocks.Run(read, self._kind, sparsity, workspace), *arguments)

        return mapped_in_order(work, blocks.parts(self.n_signals, self.n_features, self.dtype))


def engine_for(signals: Any, name: str = "signals", first_row: int = 0) -> Engine:
    """The engine that performs the pass where `signals` live; errors call them `name`.

    Torch tensors and Dask arrays have engines of their own. Arrays, memory-maps, stores whose rows
    can be sliced and whatever `numpy.asarray` understands are passed over by `NumpyEngine`. Where
    the signals are some rows of others, `first_row` is the number of their first among these: the
    rows that errors name are counted from there.
    """
    library = library_of(signals)
    if library == "torch":
        from kappaform.engines.torch import TorchEngine

        return TorchEngine(signals, name, first_row)
    if library == "dask":
        from kappaform.engines.dask import DaskEngine

        return DaskEngine(signals, name, first_row)
    return NumpyEngine(signals, name, first_row)


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
    dtype = working_dtype(coefs.dtype)
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
