"""Functions of blocks of rows: threads, stores and Dask map them and add the results.

The division into blocks depends on the number and the width of the rows alone, so that no result
depends on the number of threads. A run of blocks is the work of one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kappaform.checks import Array, Float64Array
from kappaform.engines import refit_kernels
from kappaform.engines.codes import Inverse, Refit
from kappaform.engines.engine import (
    Engine,
    PassSums,
    ScaledSums,
    ScaledTransform,
    Sparsity,
    scale_exponent,
    scaled_transform,
)
from kappaform.engines.kernels import FLUSH_ROWS, WORD, accumulate, list_largest, mark_largest
from kappaform.errors import NotFinite
from kappaform.threads import Workspace, blas_kernels

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_CACHE_LINE = 64  # bytes
_DOUBLE = np.dtype(np.float64)

# Most entries of one of a few parts: 1 to 12 ms of work (for 16 to 256 features), compared to which
# the 0.1 to 0.3 ms that 2 to 8 threads need to start and to meet are little. More than `_FEW_PARTS`
# are twice as long. There are no more than `_MOST_PARTS`, with results of `_SUM_ENTRIES`
# (32 MB) in all: enough for 64 cores, and for large n, where one result is that large, still for
# `_FEW_PARTS`.
_PART_ENTRIES, _SUM_ENTRIES = 400_000, 2**22
_MOST_PARTS, _FEW_PARTS = 64, 8

# Entries times columns of a product that these kernels of OpenBLAS compute without packing: in such
# parts it takes 0.74 (float64) and 0.91 (float32) of the time for 64 features. Parts of fewer rows,
# and other kernels, lose a few percent.
_SMALL_PRODUCT, _LEAST_ROWS = 10**6, 240
_SMALL_KERNELS = {"SkylakeX", "Cooperlake", "SapphireRapids"}

#: Memory for the thresholds of signals on disk, or on a Dask worker: 8 million rows in float64. All
#: others are searched anew in every pass.
MOST_THRESHOLD_BYTES = 2**26

#: Integers that share the memory of floats, through which kernels compare magnitudes.
BITS: dict[np.dtype, np.dtype] = {
    np.dtype(np.float32): np.dtype(np.int32),
    np.dtype(np.float64): np.dtype(np.int64),
}


class Run(NamedTuple):
    """Some blocks, one after the other, and what is needed to work on them."""

    blocks: Iterable[tuple[slice, Array]]  #: each with its rows
    n_features: int
    n_rows: int  #: of a block, at most
    dtype: np.dtype  #: of coefficients and codes
    name: str  #: of the signals, in errors
    sparsity: Array  #: of every row
    workspace: Workspace  #: memory that is used again


class BlockEngine(Engine):
    """Functions of blocks of rows, mapped over the signals and added up: on the host, or by Dask.

    What has a row for each signal is an array of the kind that the signals are.
    """

    #: (function, width, *arguments): a row of this width for each signal, filled by the function.
    _rows: Callable[..., Any]
    #: (function, *arguments): its results, each with `n_sums` (n, n) sums, added up. A function
    #: with `n_guesses` also receives thresholds, those that the last pass with so many transforms
    #: has found.
    _total: Callable[..., Any]

    def encode(
        self, transform: Float64Array, n_nonzero: Sparsity, refit: Refit | None = None, **how: Any
    ) -> Any:
        return self._rows(encode, self.n_features, n_nonzero, transform, refit, **how)

    def decode(self, inverse: Inverse) -> Any:
        return self._rows(decode, inverse[0].shape[1], 0, inverse)

    def _gram_sums(self) -> ScaledSums:
        return self._total(survey, 0)

    def _pass_sums(self, transform: ScaledTransform, n_nonzero: Sparsity) -> PassSums:
        return self._total(pass_over, n_nonzero, transform, self.exponent, n_guesses=1)

    def _energy_sums(
        self, transform: ScaledTransform, inverse: Inverse, n_nonzero: Sparsity, refit: Refit | None
    ) -> ScaledSums:
        return self._total(energies, n_nonzero, transform, inverse, refit)


def working_dtype(dtype: np.dtype) -> np.dtype:
    """Precision of coefficients: float32 for float16 and float32 signals, else float64."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def check_finite(run: Run) -> None:
    for rows, block in run.blocks:
        checked_peak(rows, block, run.name)


def survey(run: Run) -> ScaledSums:
    """YᵀY, and the largest magnitude. Rejects rows that are not finite."""
    n = run.n_features
    total = ScaledSums(np.zeros((n, n)), run.dtype)
    for rows, block in run.blocks:
        peak = checked_peak(rows, block, run.name)
        exponent = scale_exponent(peak, run.dtype)
        signals = scaled_rows(block, exponent, _DOUBLE, run)[:, :n]
        total.add(peak, signals.T @ signals, exponent)
    return total


def pass_over(run: Run, transform: ScaledTransform, exponent: int, thresholds: Array) -> PassSums:
    """XᵀY, ‖X‖² and ‖Z − X‖² of signals times 2**exponent, for the scaled transform.

    `thresholds` holds in its one row, for each signal, the magnitude that separated its entries in
    an earlier pass, zeros at first. It changes no result, makes this pass faster and receives the
    new magnitudes; it may be shorter than there are signals.
    """
    n, dtype = run.n_features, run.dtype
    total, block_cross = PassSums(np.zeros((n, n)), np.zeros(2)), buffer(run, "cross", n, dtype)
    for rows, block in run.blocks:
        signals = scaled_rows(block, exponent, dtype, run)
        coefs = coefs_of(signals, transform, run)
        total.energies += accumulate(
            signals,
            coefs,
            coefs.view(BITS[dtype]),
            run.sparsity[rows].astype(np.int64),
            thresholds_of(rows, thresholds[0], run.workspace),
            block_cross,
            total.cross,
        )
    return total


def energies(
    run: Run, transform: ScaledTransform, inverse: Inverse, refit: Refit | None
) -> ScaledSums:
    """‖Y‖², and ‖X‖², ‖Z − X‖² for the scaled transform, and ‖Y − X W⁻ᵀ‖².

    With a refit the last one is that of the refitted codes.
    """
    n, dtype = run.n_features, run.dtype
    total = ScaledSums(np.zeros(4), dtype)
    # Codes of the scaled transform, and the scaled inverse: what is left of both scales is near 1.
    matrix, inverse_exponent = inverse
    back = np.ldexp(matrix, -(transform.exponent + inverse_exponent))
    own = transform if refit is None else scaled_transform(refit.transform, dtype)
    for rows, block in run.blocks:
        peak = checked_peak(rows, block, run.name)
        exponent = scale_exponent(peak, dtype)
        scaled = scaled_rows(block, exponent, dtype, run)
        coefs = coefs_of(scaled, transform, run)
        kept = _kept(coefs, run.sparsity[rows], n)
        signals, exact = scaled[:, :n].astype(np.float64), coefs[:, :n].astype(np.float64)
        codes, discarded = np.where(kept, exact, 0), np.where(kept, 0, exact)
        if refit is None:
            lost = signals - codes @ back
        else:
            best = np.zeros_like(block, dtype)
            _refitted(scaled, own, refit, run.sparsity[rows], run, best)
            lost = signals - best.astype(np.float64) @ matrix
        sums = [float(np.vdot(values, values)) for values in (signals, codes, discarded, lost)]
        total.add(peak, np.array(sums), exponent)
    return total


def encode(
    run: Run, transform: Float64Array, refit: Refit | None, codes: Array | None
) -> list[csr_array]:
    """Write the codes of the signals as given into `codes`, zeros before.

    If that is None, return them as sparse arrays instead, one for each block.
    """
    from scipy.sparse import csr_array

    dtype, pieces = run.dtype, []
    scaled = scaled_transform(transform if refit is None else refit.transform, dtype)
    for rows, block in run.blocks:
        some = np.zeros((len(block), run.n_features), dtype) if codes is None else codes[rows]
        exponent = scale_exponent(checked_peak(rows, block, run.name), dtype)
        signals, sparsity = scaled_rows(block, exponent, dtype, run), run.sparsity[rows]
        if refit is None:
            coefs, shift = coefs_of(signals, scaled, run), exponent + scaled.exponent
            chosen, counts = _listed(coefs, sparsity, np.zeros(len(coefs), dtype))
            values = np.take_along_axis(coefs, chosen, axis=1)
            refit_kernels.write(chosen, counts, values, counts > 0, some)
        else:
            shift = exponent - refit.exponent
            _refitted(signals, scaled, refit, sparsity, run, some)
        if shift:
            np.ldexp(some, -shift, out=some)
        if codes is None:
            pieces.append(csr_array(some))
    return pieces


def decode(run: Run, inverse: Inverse, signals: Array) -> None:
    """Write rows as given times the inverse into `signals`."""
    matrix, inverse_exponent = inverse
    for rows, block in run.blocks:
        exponent = scale_exponent(checked_peak(rows, block, run.name), _DOUBLE)
        codes = scaled_rows(block, exponent, _DOUBLE, run)[:, : run.n_features]
        product = codes @ matrix
        if exponent + inverse_exponent:
            np.ldexp(product, -(exponent + inverse_exponent), out=product)
        signals[rows] = product


def block_rows(n_features: int, dtype: np.dtype) -> int:
    """Rows of a block: its coefficients take about 1 MB and stay in the cache of a core."""
    return min(4096, max(128, 2**20 // (padded(n_features) * dtype.itemsize)))


def split_rows(start: int, stop: int, length: int) -> Iterator[slice]:
    """Slices of `length` rows, the last one shorter, that cover start, ..., stop - 1."""
    for first in range(start, stop, length):
        yield slice(first, min(first + length, stop))


def blocks_of(signals: Array, part: slice, length: int) -> Iterator[tuple[slice, Array]]:
    """Blocks of some rows of an array."""
    for rows in split_rows(part.start, part.stop, length):
        yield rows, signals[rows]


def parts(n_signals: int, n_features: int, n_sums: int = 1) -> list[slice]:
    """Runs of blocks, each the work of one thread.

    Few, because each has `n_sums` (n, n) results, and long, because threads meet after each. A
    power of two of equal parts keeps 2, 4 or 8 threads busy to the end.
    """
    most = min(_MOST_PARTS, max(_FEW_PARTS, _SUM_ENTRIES // (n_sums * n_features**2)))
    few = _power_of_two(n_signals * n_features / _PART_ENTRIES)
    number = max(min(few, _FEW_PARTS), min(few // 2, most))
    length = -(-n_signals // number)
    return list(split_rows(0, n_signals, -(-length // FLUSH_ROWS) * FLUSH_ROWS))


def _power_of_two(number: float) -> int:
    """The next power of two that is not smaller."""
    return 1 << (math.ceil(number) - 1).bit_length()


def padded(n_features: int) -> int:
    """Columns of the rows that kernels see: whole words."""
    return -(-n_features // WORD) * WORD


def aligned_zeros(shape: tuple[int, int], dtype: np.dtype) -> Array:
    """Zeros that begin with a cache line, so that no vector of them straddles two."""
    memory = np.zeros(math.prod(shape) * dtype.itemsize + _CACHE_LINE, np.uint8)
    return np.ndarray(shape, dtype, memory, offset=-memory.ctypes.data % _CACHE_LINE)


def checked_peak(rows: slice, block: Array, name: str) -> float:
    """Largest magnitude of a block of finite rows."""
    peak = max(float(block.max()), -float(block.min()))
    if not math.isfinite(peak):
        good = (np.abs(block) <= np.finfo(working_dtype(block.dtype)).max).all(axis=1)
        raise NotFinite(name, rows.start + int(good.argmin()))
    return peak


def scaled_rows(block: Array, exponent: int, dtype: np.dtype, run: Run) -> Array:
    """A block times 2**exponent, padded, in the one layout that kernels are compiled for.

    It is copied unless it is C-ordered, writeable, of this dtype and needs no padding.
    """
    n = run.n_features
    if not exponent and block.dtype == dtype and block.flags.carray and n == padded(n):
        return block
    scaled = buffer(run, "signals", run.n_rows, dtype)[: len(block)]
    scaled[:, :n] = block
    return np.ldexp(scaled, exponent, out=scaled) if exponent else scaled


def coefs_of(signals: Array, transform: ScaledTransform, run: Run) -> Array:
    n = run.n_features
    coefs = buffer(run, "coefs", run.n_rows, run.dtype)[: len(signals)]
    small = _SMALL_PRODUCT // n**2
    in_parts = small >= _LEAST_ROWS and not _SMALL_KERNELS.isdisjoint(blas_kernels())
    for rows in split_rows(0, len(signals), small if in_parts else run.n_rows):
        np.matmul(signals[rows, :n], transform.matrix, out=coefs[rows, :n])
    return coefs


def _kept(coefs: Array, sparsity: Array, n_features: int) -> Array:
    kept = np.empty((len(coefs), n_features), np.bool_)
    mark_largest(coefs.view(BITS[coefs.dtype]), sparsity.astype(np.int64), kept)
    return kept


def _refitted(
    signals: Array,
    transform: ScaledTransform,
    refit: Refit,
    sparsity: Array,
    run: Run,
    codes: Array,
) -> None:
    """Write the refitted codes of a block into `codes`, zeros before.

    The transform is that of the refit. Codes are those of the transform that the refit was made
    for, divided by 2**refit.exponent.
    """
    n, dtype = run.n_features, run.dtype
    coefs, products, again = (
        buffer(run, name, run.n_rows, dtype)[: len(signals)]
        for name in ("coefs", "products", "again")
    )
    gram = buffer(run, "gram", n, dtype)
    gram[:, :n] = refit.gram
    np.matmul(signals[:, :n], transform.matrix, out=coefs[:, :n])
    np.matmul(signals[:, :n], refit.columns.T.astype(dtype), out=products[:, :n])
    first = _listed(coefs, sparsity, np.zeros(len(coefs), dtype))
    values, explained = _fitted(products, refit.gram, *first)
    guesses = np.empty(len(coefs), dtype)
    refit_kernels.ask_again(products, gram, *first, values, again, guesses)
    second = _listed(again, sparsity, guesses)
    other_values, explained_by_others = _fitted(products, refit.gram, *second)
    whole = sparsity >= n  # nothing is left: coefficients are exact, and least squares less so
    better = explained_by_others > explained
    codes[whole] = np.ldexp(coefs[whole, :n], -transform.exponent)
    refit_kernels.write(*first, values, ~better & ~whole, codes)
    refit_kernels.write(*second, other_values, better & ~whole, codes)
    codes *= refit.scale.astype(dtype)


def _listed(values: Array, sparsity: Array, guesses: Array) -> tuple[Array, Array]:
    """Where the largest entries of each row are, and how many they are."""
    bits, n_nonzero = BITS[values.dtype], sparsity.astype(np.int64)
    chosen = np.zeros((len(values), max(1, int(n_nonzero.max(initial=0)))), np.int32)
    counts = np.empty(len(values), np.int64)
    list_largest(values.view(bits), n_nonzero, guesses.view(bits), chosen, counts)
    return chosen, counts


def _fitted(products: Array, gram: Array, chosen: Array, counts: Array) -> tuple[Array, Array]:
    values, explained = np.empty(chosen.shape), np.empty(len(chosen))
    refit_kernels.fit(products, gram, chosen, counts, values, explained)
    return values, explained


def thresholds_of(rows: slice, thresholds: Array, workspace: Workspace) -> Array:
    """Thresholds of some rows: zeros beyond those that are remembered."""
    if rows.stop <= len(thresholds):
        return thresholds[rows]
    n_rows = rows.stop - rows.start
    if len(workspace.get("thresholds", ())) < n_rows:
        workspace["thresholds"] = np.empty(n_rows, thresholds.dtype)
    guesses = workspace["thresholds"][:n_rows]
    guesses[:] = 0
    return guesses


def buffer(run: Run, name: str, n_rows: int, dtype: np.dtype) -> Array:
    """Padded rows, zeros at first."""
    if name not in run.workspace:
        run.workspace[name] = aligned_zeros((n_rows, padded(run.n_features)), dtype)
    return run.workspace[name]
