"""The pass over arrays, in memory or memory-mapped, and over stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kappaform.arrays import (
    Array,
    as_signals,
    as_sparsity,
    as_transform,
    check_at_most,
    first_bad_row,
    max_magnitude,
    not_finite,
    scale_exponent,
    working_dtype,
)
from kappaform.engines.blocks import BITS, aligned_zeros, block_rows, padded, parts
from kappaform.engines.engine import Float64Array, Statistics
from kappaform.engines.kernels import accumulate, mark_largest
from kappaform.engines.stores import is_on_disk, reader_of
from kappaform.threads import Workspace, mapped_in_order

Result = TypeVar("Result")

# Of signals on disk, no more is remembered than this: memory does not grow with their number.
_MOST_CUTS_BYTES = 2**26


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
    exponent : int, optional
        Of the scale, where it is known; these signals are finite, and are not looked at for it.
    cuts : array of shape (n_signals,), optional
        Of the dtype ``BITS[engine.dtype]``: what passes of another engine left, zeros at first.
        Passes are faster with it and leave there what they find.

    Attributes
    ----------
    signals : ndarray or store
        As given, never copied as a whole.
    n_signals, n_features : int
    dtype : dtype
        Of coefficients and codes: float32 for float16 and float32 signals, else float64.
    scale : float
        Power of two by which signals are multiplied in `gram` and `run_pass`: 1 unless their
        squares could overflow or vanish.
    """

    def __init__(
        self,
        signals: Any,
        name: str = "signals",
        *,
        exponent: int | None = None,
        cuts: Array | None = None,
    ) -> None:
        self.signals, self._name = as_signals(signals, name), name
        self.n_signals, self.n_features = map(int, self.signals.shape)
        self.dtype = working_dtype(np.dtype(self.signals.dtype))
        self._block_rows = min(block_rows(self.n_features, self.dtype), self.n_signals)
        self._read = reader_of(self.signals, name)
        self._exponent = self._find_exponent() if exponent is None else exponent
        self.scale = 2.0**self._exponent
        # Where the last pass separated the magnitudes of each row: the guess of the next one.
        self._cuts = self._new_cuts() if cuts is None else cuts

    @cached_property
    def gram(self) -> Float64Array:
        """G = YᵀY of the scaled signals, float64."""
        return sum(self._mapped_parts(self._gram_of), np.zeros((self.n_features,) * 2))

    def run_pass(self, transform: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> Statistics:
        """Statistics of the scaled signals with their codes H_s(Y Wᵀ).

        `n_nonzero` is one integer for all signals or one for each.
        """
        return Statistics(
            self.gram, *self.coded(transform, n_nonzero), self.n_signals, self._exponent
        )

    def coded(
        self, transform: npt.ArrayLike, n_nonzero: int | npt.ArrayLike
    ) -> tuple[Float64Array, float, float]:
        """What depends on the codes: XᵀY, ‖X‖² and ‖Z − X‖² of the scaled signals."""
        weights = as_transform(transform, self.n_features, self.dtype).T
        sparsity = self._sparsity(n_nonzero)
        cross = np.zeros((self.n_features, self.n_features))
        code_energy = discarded_energy = 0.0
        pass_over = partial(self._pass_over, weights=weights, sparsity=sparsity)
        for part_cross, part_code_energy, part_discarded_energy in self._mapped_parts(pass_over):
            cross += part_cross
            code_energy += part_code_energy
            discarded_energy += part_discarded_energy
        return cross, code_energy, discarded_energy

    def lost_energy(
        self, transform: npt.ArrayLike, inverse: Float64Array, n_nonzero: int | npt.ArrayLike
    ) -> float:
        """‖Y − X W⁻ᵀ‖² of the scaled signals: what codes do not give back."""
        weights = as_transform(transform, self.n_features, self.dtype).T
        sparsity = self._sparsity(n_nonzero)
        lost = partial(self._lost, weights=weights, inverse=inverse.T, sparsity=sparsity)
        return sum(self._mapped_parts(lost))

    def encode(self, transform: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> Array:
        """Codes H_s(Y Wᵀ) of the signals as given (not scaled), (n_signals, n_features).

        They are an array in memory, also those of signals on disk.
        """
        weights = as_transform(transform, self.n_features, self.dtype).T
        sparsity = self._sparsity(n_nonzero)
        codes = np.zeros((self.n_signals, self.n_features), self.dtype)
        self._mapped_parts(partial(self._encode, codes=codes, weights=weights, sparsity=sparsity))
        return codes

    def apply(self, matrix: npt.ArrayLike) -> Array:
        """Product of every signal as given with a matrix: Y Mᵀ, an array in memory."""
        weights = as_transform(matrix, self.n_features, np.dtype(np.float64)).T
        products = np.empty((self.n_signals, self.n_features), self.dtype)

        def multiply(part: slice, _: Workspace) -> None:
            for rows, block in self._read(part, self._block_rows):
                products[rows] = block @ weights

        self._mapped_parts(multiply)
        return products

    def _gram_of(self, part: slice, workspace: Workspace) -> Float64Array:
        gram = np.zeros((self.n_features, self.n_features))
        for _, block in self._blocks(part, np.dtype(np.float64), workspace):
            signals = block[:, : self.n_features]
            gram += signals.T @ signals
        return gram

    def _pass_over(
        self, part: slice, workspace: Workspace, weights: Array, sparsity: Array
    ) -> tuple[Float64Array, float, float]:
        cross = np.zeros((self.n_features, self.n_features))
        block_cross = self._buffer(workspace, "cross", self.n_features, self.dtype)
        code_energy = discarded_energy = 0.0
        for rows, block, coefs in self._coefs(part, workspace, weights):
            bits, wanted = coefs.view(BITS[self.dtype]), sparsity[rows].astype(np.int64)
            cuts = self._cuts_of(rows, workspace)
            energies = accumulate(block, coefs, bits, wanted, cuts, block_cross, cross)
            code_energy += energies[0]
            discarded_energy += energies[1]
        return cross, code_energy, discarded_energy

    def _encode(
        self, part: slice, workspace: Workspace, codes: Array, weights: Array, sparsity: Array
    ) -> None:
        for rows, _, coefs in self._coefs(part, workspace, weights):
            kept = np.empty(codes[rows].shape, np.bool_)
            mark_largest(coefs.view(BITS[self.dtype]), sparsity[rows].astype(np.int64), kept)
            if self._exponent:
                np.ldexp(coefs, -self._exponent, out=coefs)
            np.copyto(codes[rows], coefs[:, : self.n_features], where=kept)

    def _lost(
        self, part: slice, workspace: Workspace, weights: Array, inverse: Array, sparsity: Array
    ) -> float:
        energy = 0.0
        for rows, block, coefs in self._coefs(part, workspace, weights):
            kept = np.empty((len(block), self.n_features), np.bool_)
            mark_largest(coefs.view(BITS[self.dtype]), sparsity[rows].astype(np.int64), kept)
            codes = np.where(kept, coefs[:, : self.n_features], 0).astype(np.float64)
            residual = block[:, : self.n_features] - codes @ inverse
            energy += float(np.vdot(residual, residual))
        return energy

    def _find_exponent(self) -> int:
        """Exponent of `scale`. Refuses signals that are not finite."""
        peak = float(np.max(self._mapped_parts(self._peak)))
        if not np.isfinite(peak):
            raise ValueError(not_finite(self._name, self._first_bad_row()))
        return scale_exponent(peak, self.dtype)

    def _peak(self, part: slice, _: Workspace) -> float:
        """Largest magnitude of some rows, NaN if one is."""
        peaks = [max_magnitude(block) for _, block in self._read(part, self._block_rows)]
        return float(np.max(peaks))

    def _first_bad_row(self) -> int:
        blocks = self._read(slice(0, self.n_signals), self._block_rows)
        bad = ((rows, first_bad_row(block)) for rows, block in blocks)
        return next(rows.start + row for rows, row in bad if row is not None)

    def _new_cuts(self) -> Array:
        cuts, most = np.dtype(BITS[self.dtype]), self.n_signals
        if is_on_disk(self.signals):
            most = min(most, _MOST_CUTS_BYTES // cuts.itemsize)
        return np.zeros(most, cuts)

    def _cuts_of(self, rows: slice, workspace: Workspace) -> Array:
        """Guesses for some rows: none beyond those that are remembered."""
        if rows.stop <= len(self._cuts):
            return self._cuts[rows]
        if "cuts" not in workspace:
            workspace["cuts"] = np.empty(self._block_rows, self._cuts.dtype)
        guesses = workspace["cuts"][: rows.stop - rows.start]
        guesses[:] = 0
        return guesses

    def _sparsity(self, n_nonzero: int | npt.ArrayLike) -> Array:
        sparsity = as_sparsity(n_nonzero, self.n_signals)
        check_at_most(sparsity, self.n_features)
        return sparsity

    def _mapped_parts(self, function: Callable[[slice, Workspace], Result]) -> list[Result]:
        return mapped_in_order(function, parts(self.n_signals, self.n_features, self.dtype))

    def _coefs(
        self, part: slice, workspace: Workspace, weights: Array
    ) -> Iterator[tuple[slice, Array, Array]]:
        """Rows, scaled signals and their coefficients, block by block; both padded with zeros."""
        n = self.n_features
        buffer = self._buffer(workspace, "coefs", self._block_rows, self.dtype)
        for rows, block in self._blocks(part, self.dtype, workspace):
            coefs = buffer[: len(block)]
            np.matmul(block[:, :n], weights, out=coefs[:, :n])
            yield rows, block, coefs

    def _blocks(
        self, part: slice, dtype: np.dtype, workspace: Workspace
    ) -> Iterator[tuple[slice, Array]]:
        """Scaled blocks of some rows, in the one layout that kernels are compiled for.

        A block is copied unless it is C-ordered, writeable, of this dtype and needs no padding.
        """
        n = self.n_features
        for rows, block in self._read(part, self._block_rows):
            fits = block.dtype == dtype and block.flags.carray and n == padded(n)
            if self._exponent or not fits:
                buffer = self._buffer(workspace, "signals", self._block_rows, dtype)
                buffer[: len(block), :n] = block
                block = buffer[: len(block)]
                if self._exponent:
                    np.ldexp(block, self._exponent, out=block)
            yield rows, block

    def _buffer(self, workspace: Workspace, name: str, n_rows: int, dtype: np.dtype) -> Array:
        """Padded rows, zeros at first."""
        if name not in workspace:
            workspace[name] = aligned_zeros((n_rows, padded(self.n_features)), dtype)
        return workspace[name]
