"""What is done with blocks of rows: threads, stores and Dask map these functions and add.

How rows are cut follows from their number and width alone, so that no result depends on the number
of threads. A run of blocks is the work of one thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kappaform.checks import Array, first_bad_row, max_magnitude, working_dtype
from kappaform.engines import refit_kernels
from kappaform.engines.engine import Float64Array, Refit, Statistics
from kappaform.engines.kernels import WORD, accumulate, list_largest, mark_largest
from kappaform.engines.scale import scale_exponent
from kappaform.errors import not_finite
from kappaform.threads import Workspace

_CACHE_LINE = 64  # bytes
_DOUBLE = np.dtype(np.float64)
# A transform whose largest entry is between 2**-8 and 2**8 is left alone: with signals that are
# left alone (`scale_exponent`), squares of coefficients are then within the range of float32.
_ORDINARY_TRANSFORM = 8

# A part has so many entries at least: 3 to 30 ms of work (measured for 16 to 256 features), beside
# which the 0.1 to 0.3 ms that 2 to 8 threads need to start and to meet are little. There are no
# more than `_MOST_PARTS`, with results of `_SUM_ENTRIES` (32 MB) in all: enough for 64 cores, and
# for large n, where one result is that large, still for `_FEW_PARTS`.
_PART_ENTRIES, _SUM_ENTRIES = 2**20, 2**22
_MOST_PARTS, _FEW_PARTS = 64, 8

#: What signals on disk, or a Dask worker, remember of cuts at most: 8 million rows in float64. The
#: rest is searched anew in every pass.
MOST_CUTS_BYTES = 2**26

#: Integers that share the memory of floats, through which kernels compare magnitudes.
BITS: dict[np.dtype, np.dtype] = {
    np.dtype(np.float32): np.dtype(np.int32),
    np.dtype(np.float64): np.dtype(np.int64),
}


class NotFinite(ValueError):  # noqa: N818 - says what the signals are
    """Signals with NaN or inf: the message, and the number of the first such row."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message, row)
        self.row = row

    def __str__(self) -> str:
        return str(self.args[0])


class Kind(NamedTuple):
    """What all blocks of some signals share."""

    n_features: int
    dtype: np.dtype  #: of coefficients and codes: float32 or float64
    n_rows: int  #: of a block, at most
    name: str  #: of the signals, in errors
    first_row: int = 0  #: number of row 0 among all signals, in errors


class Run(NamedTuple):
    """Some blocks, one after the other, and what is needed to work on them."""

    blocks: Iterable[tuple[slice, Array]]  #: each with its rows
    kind: Kind
    sparsity: Array  #: of every row
    workspace: Workspace  #: memory that is used again


class Weights(NamedTuple):
    """A transposed transform times 2**exponent, in the dtype of coefficients."""

    matrix: Array
    exponent: int


class ScaledSums:
    """Sums of squares and products of signals, at the scale that the largest so far asks for.

    Attributes
    ----------
    sums : float64 array
        Of signals times ``2**exponent``.
    peak : float
        Largest magnitude of the signals.
    """

    def __init__(self, shape: tuple[int, ...] | int, dtype: np.dtype) -> None:
        self.sums, self.peak, self.exponent, self._dtype = np.zeros(shape), 0.0, 0, dtype

    def add(self, peak: float, sums: Array, exponent: int) -> None:
        """Add sums of more signals. Powers of two lose no digit, unless a sum vanishes."""
        self.peak = max(self.peak, peak)
        common = scale_exponent(self.peak, self._dtype)
        if common != self.exponent:
            self.sums = np.ldexp(self.sums, 2 * (common - self.exponent))
            self.exponent = common
        self.sums += np.ldexp(sums, 2 * (common - exponent)) if common != exponent else sums

    def merge(self, other: ScaledSums) -> None:
        """Add those of another run of blocks."""
        self.add(other.peak, other.sums, other.exponent)


def kind_of(signals: Any, name: str, first_row: int = 0) -> Kind:
    """How checked rows are cut and computed with."""
    n_signals, n_features = map(int, signals.shape)
    dtype = working_dtype(np.dtype(signals.dtype))
    return Kind(
        n_features, dtype, min(block_rows(n_features, dtype), max(n_signals, 1)), name, first_row
    )


def weights_of(transform: Array, dtype: np.dtype) -> Weights:
    """A transform as blocks are multiplied by it: scaled, if its scale is out of the ordinary."""
    exponent = -math.frexp(max_magnitude(transform))[1]
    if abs(exponent) <= _ORDINARY_TRANSFORM:
        exponent, scaled = 0, transform
    else:
        scaled = np.ldexp(transform, exponent)
    return Weights(scaled.astype(dtype, order="C", copy=False).T, exponent)


def survey(run: Run) -> ScaledSums:
    """YᵀY, and the largest magnitude. Refuses rows that are not finite."""
    n = run.kind.n_features
    total = ScaledSums((n, n), run.kind.dtype)
    for rows, block in run.blocks:
        peak = _checked_peak(rows, block, run.kind)
        exponent = scale_exponent(peak, run.kind.dtype)
        signals = _scaled(block, exponent, _DOUBLE, run)[:, :n]
        total.add(peak, signals.T @ signals, exponent)
    return total


def pass_over(
    run: Run, weights: Weights, exponent: int, cuts: Array
) -> tuple[Float64Array, float, float]:
    """XᵀY, ‖X‖² and ‖Z − X‖² of signals times 2**exponent, for the scaled transform.

    `cuts` has what an earlier pass left for each row, zeros at first. It changes no result, makes
    this pass faster and receives what it finds; it may be shorter than there are rows.
    """
    n, dtype = run.kind.n_features, run.kind.dtype
    cross, block_cross = np.zeros((n, n)), _buffer(run, "cross", n, dtype)
    code_energy = discarded_energy = 0.0
    for rows, block in run.blocks:
        signals = _scaled(block, exponent, dtype, run)
        coefs = _coefs(signals, weights, run)
        kept, discarded = accumulate(
            signals,
            coefs,
            coefs.view(BITS[dtype]),
            run.sparsity[rows].astype(np.int64),
            _cuts_of(rows, cuts, run.workspace),
            block_cross,
            cross,
        )
        code_energy += kept
        discarded_energy += discarded
    return cross, code_energy, discarded_energy


def energies(
    run: Run, weights: Weights, inverse: tuple[Float64Array, int], refit: Refit | None = None
) -> ScaledSums:
    """‖Y‖², and ‖X‖², ‖Z − X‖² for the scaled transform, and ‖Y − X W⁻ᵀ‖².

    With a refit the last one is that of codes that rebuild best.
    """
    n, dtype = run.kind.n_features, run.kind.dtype
    total = ScaledSums(4, dtype)
    # Codes of the scaled transform, and the scaled inverse: what is left of both scales is near 1.
    matrix, inverse_exponent = inverse
    back = np.ldexp(matrix, -(weights.exponent + inverse_exponent))
    own = weights if refit is None else weights_of(refit.transform, dtype)
    for rows, block in run.blocks:
        peak = _checked_peak(rows, block, run.kind)
        exponent = scale_exponent(peak, dtype)
        scaled = _scaled(block, exponent, dtype, run)
        coefs = _coefs(scaled, weights, run)
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


def encode(run: Run, transform: Float64Array, codes: Array, refit: Refit | None = None) -> None:
    """Write the codes of the signals as given into `codes`, zeros before."""
    dtype = run.kind.dtype
    weights = weights_of(transform if refit is None else refit.transform, dtype)
    for rows, block in run.blocks:
        exponent = scale_exponent(_checked_peak(rows, block, run.kind), dtype)
        signals, sparsity = _scaled(block, exponent, dtype, run), run.sparsity[rows]
        if refit is None:
            coefs, shift = _coefs(signals, weights, run), exponent + weights.exponent
            chosen, counts = _listed(coefs, sparsity, np.zeros(len(coefs), dtype))
            values = np.take_along_axis(coefs, chosen, axis=1)
            refit_kernels.write(chosen, counts, values, counts > 0, codes[rows])
        else:
            shift = exponent - refit.exponent
            _refitted(signals, weights, refit, sparsity, run, codes[rows])
        if shift:
            np.ldexp(codes[rows], -shift, out=codes[rows])


def decode(run: Run, inverse: tuple[Float64Array, int], signals: Array) -> None:
    """Write rows as given times the inverse into `signals`."""
    matrix, inverse_exponent = inverse
    for rows, block in run.blocks:
        exponent = scale_exponent(_checked_peak(rows, block, run.kind), _DOUBLE)
        codes = _scaled(block, exponent, _DOUBLE, run)[:, : run.kind.n_features]
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


def parts(n_signals: int, n_features: int, dtype: np.dtype) -> list[slice]:
    """Runs of blocks, each the work of one thread.

    Few, because each has an (n, n) result, and long, because threads have to meet after each.
    """
    most = min(_MOST_PARTS, max(_FEW_PARTS, _SUM_ENTRIES // n_features**2))
    length = block_rows(n_features, dtype)
    n_blocks = -(-n_signals // length)
    shortest = -(-_PART_ENTRIES // (n_features * length))
    return list(split_rows(0, n_signals, max(shortest, -(-n_blocks // most)) * length))


def padded(n_features: int) -> int:
    """Columns of the rows that kernels see: whole words."""
    return -(-n_features // WORD) * WORD


def aligned_zeros(shape: tuple[int, int], dtype: np.dtype) -> Array:
    """Zeros that begin with a cache line, so that no vector of them straddles two."""
    memory = np.zeros(math.prod(shape) * dtype.itemsize + _CACHE_LINE, np.uint8)
    return np.ndarray(shape, dtype, memory, offset=-memory.ctypes.data % _CACHE_LINE)


def _checked_peak(rows: slice, block: Array, kind: Kind) -> float:
    """Largest magnitude of a block of finite rows."""
    peak = max_magnitude(block)
    if not math.isfinite(peak):
        row = kind.first_row + rows.start + first_bad_row(block)
        raise NotFinite(not_finite(kind.name, row), row)
    return peak


def _scaled(block: Array, exponent: int, dtype: np.dtype, run: Run) -> Array:
    """A block times 2**exponent, padded, in the one layout that kernels are compiled for.

    It is copied unless it is C-ordered, writeable, of this dtype and needs no padding.
    """
    n = run.kind.n_features
    if not exponent and block.dtype == dtype and block.flags.carray and n == padded(n):
        return block
    scaled = _buffer(run, "signals", run.kind.n_rows, dtype)[: len(block)]
    scaled[:, :n] = block
    return np.ldexp(scaled, exponent, out=scaled) if exponent else scaled


def _coefs(signals: Array, weights: Weights, run: Run) -> Array:
    n = run.kind.n_features
    coefs = _buffer(run, "coefs", run.kind.n_rows, run.kind.dtype)[: len(signals)]
    np.matmul(signals[:, :n], weights.matrix, out=coefs[:, :n])
    return coefs


def _kept(coefs: Array, sparsity: Array, n_features: int) -> Array:
    kept = np.empty((len(coefs), n_features), np.bool_)
    mark_largest(coefs.view(BITS[coefs.dtype]), sparsity.astype(np.int64), kept)
    return kept


def _refitted(
    signals: Array, weights: Weights, refit: Refit, sparsity: Array, run: Run, codes: Array
) -> None:
    """Write codes that rebuild a block best into `codes`, zeros before.

    The weights are those of the transform of the refit. Codes are those of the transform that it
    was made for, divided by 2**refit.exponent.
    """
    n, dtype = run.kind.n_features, run.kind.dtype
    coefs, products, again = (
        _buffer(run, name, run.kind.n_rows, dtype)[: len(signals)]
        for name in ("coefs", "products", "again")
    )
    gram = _buffer(run, "gram", n, dtype)
    gram[:, :n] = refit.gram
    np.matmul(signals[:, :n], weights.matrix, out=coefs[:, :n])
    np.matmul(signals[:, :n], refit.atoms.T.astype(dtype), out=products[:, :n])
    first = _listed(coefs, sparsity, np.zeros(len(coefs), dtype))
    values, explained = _fitted(products, refit.gram, *first)
    guesses = np.empty(len(coefs), dtype)
    refit_kernels.ask_again(products, gram, *first, values, again, guesses)
    second = _listed(again, sparsity, guesses)
    other_values, explained_by_others = _fitted(products, refit.gram, *second)
    whole = sparsity >= n  # nothing is left: coefficients are exact, and least squares less so
    better = explained_by_others > explained
    codes[whole] = np.ldexp(coefs[whole, :n], -weights.exponent)
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


def _cuts_of(rows: slice, cuts: Array, workspace: Workspace) -> Array:
    """Guesses for some rows: none beyond those that are remembered."""
    if rows.stop <= len(cuts):
        return cuts[rows]
    n_rows = rows.stop - rows.start
    if len(workspace.get("cuts", ())) < n_rows:
        workspace["cuts"] = np.empty(n_rows, cuts.dtype)
    guesses = workspace["cuts"][:n_rows]
    guesses[:] = 0
    return guesses


def _buffer(run: Run, name: str, n_rows: int, dtype: np.dtype) -> Array:
    """Padded rows, zeros at first."""
    if name not in run.workspace:
        run.workspace[name] = aligned_zeros((n_rows, padded(run.kind.n_features)), dtype)
    return run.workspace[name]


def scaled_statistics(
    gram: Float64Array,
    cross: Float64Array,
    energies: Float64Array,
    n_signals: int,
    exponent: int,
    transform_exponent: int,
) -> Statistics:
    """Statistics from XᵀY and (‖X‖², ‖Z − X‖²) of a transform times a power of two."""
    if transform_exponent:
        with np.errstate(over="ignore", under="ignore"):
            cross = np.ldexp(cross, -transform_exponent)
            energies = np.ldexp(energies, -2 * transform_exponent)
    code_energy, discarded_energy = map(float, energies)
    return Statistics(gram, cross, code_energy, discarded_energy, n_signals, exponent)
