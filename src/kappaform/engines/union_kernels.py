"""The compiled kernels of the pass for a union of transforms.

Transforms compete for the rows of a block, one after the other. Then the rows of each are gathered,
a few at a time, and their sums computed while they are in the cache: the gram matrix in tiles that
stay in registers, its upper triangle only.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from kappaform.engines.kernels import (
    FLUSH_ROWS,
    WORD,
    add_multiple,
    energy_outside,
    flush,
    load,
    lowest_bit,
    mark_code,
    pointer_to,
    repeat,
    without_sign,
)
from kappaform.jit import FUSED, inlined, intrinsic, kernel

_kernel, _inlined = kernel(FUSED), inlined(FUSED)
_allocating = inlined(FUSED, allocates=True)

GATHERED = 64  #: rows that are gathered at a time: 32 kB of float64 for 64 features
_REGISTER_BYTES = 64
# A tile: 8 sums that do not wait for each other, and hide the latency of a fused multiply-add.
_TILE_ROWS, _TILE_BYTES = 4, 2 * _REGISTER_BYTES


@_kernel
def compete(coefs, bits, n_nonzero, thresholds, weights, number, best, chosen, counts, values):
    """Let a transform compete for the rows of a block: it wins those whose score it lowers.

    The score of a row is weights @ (‖z − x‖², ‖z‖², 1). Where it is below best[i, 0], the row of
    `best` becomes (score, number, ‖x‖², ‖z − x‖²), and the code is written to `chosen`, `counts`
    and `values`. `thresholds` as for `kernels.accumulate`.
    """
    width = coefs.shape[1]
    flat_coefs, flat_bits = coefs.ravel(), bits.ravel()
    marks = np.empty(width // WORD, np.uint64)
    threshold = without_sign(bits) // 2  # about 1
    for i in range(coefs.shape[0]):
        start = i * width
        threshold = mark_code(bits, flat_bits, i, n_nonzero[i], thresholds[i], threshold, marks)
        thresholds[i] = threshold
        discarded_energy = energy = 0.0
        for w in range(0, width, WORD):
            discarded_energy += energy_outside(flat_coefs, start + w, marks[w // WORD])
            if weights[1] != 0:
                energy += energy_outside(flat_coefs, start + w, np.uint64(0))
        score = weights[0] * discarded_energy + weights[1] * energy + weights[2]
        if score >= best[i, 0]:
            continue
        count, code_energy = 0, 0.0
        for w in range(0, width, WORD):
            word = marks[w // WORD]
            while word != 0:
                j = w + lowest_bit(word)
                word &= word - np.uint64(1)
                code = flat_coefs[start + j]
                chosen[i, count], values[i, count] = j, code
                code_energy += np.float64(code) * np.float64(code)
                count += 1
        counts[i] = count
        best[i, 0], best[i, 1] = score, number
        best[i, 2], best[i, 3] = code_energy, discarded_energy


@_kernel
def accumulate_won(
    signals, best, chosen, counts, values, gathered, partials, crosses, grams, energies
):
    """Add the sums of the rows of a block to those of the transform that won each.

    What `compete` has written of a block. XᵀY joins `crosses`, the upper triangle of YᵀY `grams`,
    and ‖X‖², ‖Z − X‖² and the number of rows `energies`, (transforms, 3). `gathered` is (GATHERED,
    padded), `partials` (2, padded, padded), zero before and after.
    """
    n, width = grams.shape[1], signals.shape[1]
    flat_rows, flat_cross, flat_gram = gathered.ravel(), partials[0].ravel(), partials[1].ravel()
    order, ends = _order(best, grams.shape[0])
    first = 0
    for k in range(grams.shape[0]):
        start = first
        while first < ends[k]:
            n_rows = min(GATHERED, ends[k] - first)
            for t in range(n_rows):
                i = order[first + t]
                gathered[t] = signals[i]
                energies[k, 0] += best[i, 2]
                energies[k, 1] += best[i, 3]
                energies[k, 2] += 1
                for c in range(counts[i]):
                    row = chosen[i, c] * width
                    for w in range(0, width, WORD):
                        add_multiple(flat_cross, row + w, values[i, c], flat_rows, t * width + w)
            _add_gram(flat_rows, n_rows, n, width, flat_gram)
            first += n_rows
            if (first - start) % FLUSH_ROWS == 0 or first == ends[k]:
                flush(partials[0], crosses[k])
                flush(partials[1], grams[k])


@_allocating
def _order(best, n_transforms):
    """The rows of a block, those of the first transform first, and where those of each end."""
    ends = np.zeros(n_transforms, np.int64)
    for i in range(best.shape[0]):
        ends[int(best[i, 1])] += 1
    ends = np.cumsum(ends)
    order, places = np.empty(best.shape[0], np.int64), ends.copy()
    for i in range(best.shape[0] - 1, -1, -1):
        k = int(best[i, 1])
        places[k] -= 1
        order[places[k]] = i
    return order, ends


@_inlined
def _add_gram(rows, n_rows, n, width, sums):
    """Add RᵀR of some rows to a sum, in tiles that hold its upper triangle."""
    columns = _TILE_BYTES // rows.itemsize
    for a in range(0, n, _TILE_ROWS):
        for b in range(a - a % columns, n, columns):
            _add_tile(rows, n_rows, width, a, b, sums)


@intrinsic
def _add_tile(typing_context, rows, n_rows, width, a, b, sums):  # noqa: ARG001
    """sums[a + i, b + j] += rows[:n_rows, a + i] @ rows[:n_rows, b + j] for i, j of a tile."""

    def generate(context, builder, signature, arguments):
        rows, n_rows, width, a, b, sums = arguments
        count = _REGISTER_BYTES * 8 // signature.args[0].dtype.bitwidth
        steps = [ir.Constant(width.type, i * count) for i in range(_TILE_BYTES // _REGISTER_BYTES)]
        columns = [builder.add(b, step) for step in steps]
        places, totals = [], []
        for i in range(_TILE_ROWS):
            row = builder.mul(builder.add(a, ir.Constant(a.type, i)), width)
            places += [builder.add(row, column) for column in columns]
        for place in places:
            old = load(context, builder, signature.args[5], sums, place, count)
            totals.append(cgutils.alloca_once_value(builder, old))
        with cgutils.for_range(builder, n_rows) as loop:
            start = builder.mul(loop.index, width)
            right = [
                load(context, builder, signature.args[0], rows, builder.add(start, column), count)
                for column in columns
            ]
            data = context.make_array(signature.args[0])(context, builder, rows).data
            first = builder.gep(data, [builder.add(start, a)])
            for i in range(_TILE_ROWS):
                left = builder.load(builder.gep(first, [ir.Constant(a.type, i)]))
                left = repeat(builder, left, count)
                for total, values in zip(totals[i * len(columns) :], right, strict=False):
                    product = builder.fmul(left, values, flags=("contract",))
                    old = builder.load(total)
                    builder.store(builder.fadd(old, product, flags=("contract",)), total)
        for place, total in zip(places, totals, strict=True):
            pointer = pointer_to(context, builder, signature.args[5], sums, place, count)
            stored = builder.store(builder.load(total), pointer)
            stored.align = signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    i = types.int64
    return types.void(rows, i, i, i, i, sums), generate
