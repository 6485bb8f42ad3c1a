"""The compiled kernels of the pass of a union on a GPU, with the products of `triton_kernels`.

Transforms are competitors for every row. Rows are then sorted by the number of the winner, and a
program sums rows of one transform: no sum is masked, and none depends on the order of programs.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that Triton infers.

from __future__ import annotations

import triton
import triton.language as tl

from kappaform.engines.triton_kernels import _added, _halves, _product, _rows, _store_sums
from kappaform.engines.triton_selection import select, selected


@triton.jit(do_not_specialize=["n_signals"])
def compete_kernel(
    signals,
    row_stride,
    column_stride,
    high,
    low,
    thresholds,
    threshold_stride,
    sparsity,
    sparsity_stride,
    weights,
    numbers,
    n_signals,
    n_features: tl.constexpr,
    n_transforms,
    rows_each,
    scale,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    EXACT: tl.constexpr,
    ENERGY: tl.constexpr,
):
    """The number of the transform with the lowest score of every row, of equal scores the first.

    The score is weights[k] @ (‖z − x‖², ‖z‖², 1); without ENERGY the second weight is 0. Each
    transform has its own thresholds, `threshold_stride` after those of the one before.
    """
    first = tl.program_id(0).to(tl.int64) * rows_each
    columns = tl.arange(0, WIDTH)
    square = columns[:, None] * WIDTH + columns[None, :]
    signals += first * row_stride
    thresholds += first
    sparsity += first * sparsity_stride
    numbers += first
    n_rows = tl.minimum(n_signals - first, rows_each).to(tl.int32)
    source = signals + columns[None, :] * column_stride
    is_feature = (columns < n_features)[None, :]
    whole: tl.constexpr = n_features == WIDTH
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = rows < n_rows
        wanted = tl.load(sparsity + rows * sparsity_stride, mask=inside, other=0)
        block = _rows(source, row_stride, start, n_rows, is_feature, ROWS, whole)
        block_high, block_low = _halves(block * scale)
        least = tl.full((ROWS,), float("inf"), tl.float64)
        winner = tl.zeros((ROWS,), tl.int32)
        for number in range(0, n_transforms):
            own = number * (DEPTH * WIDTH) + square
            guesses = thresholds + number * threshold_stride
            threshold = tl.load(guesses + rows, mask=inside, other=1)
            coefs = tl.zeros((ROWS, WIDTH), tl.float32)
            coefs = _product(
                block_high, block_low, tl.load(high + own), tl.load(low + own), coefs, EXACT
            )
            threshold, end, any_tied = select((coefs,), (columns,), wanted, threshold, STEPS=1)
            tl.store(guesses + rows, threshold, mask=inside)
            lost = coefs - selected(coefs, columns, threshold, end, any_tied)
            score = tl.load(weights + 3 * number) * tl.sum(lost * lost, 1).to(tl.float64)
            score += tl.load(weights + 3 * number + 2)
            if ENERGY:
                energy = tl.sum(coefs * coefs, 1).to(tl.float64)
                score += tl.load(weights + 3 * number + 1) * energy
            wins = score < least
            least = tl.where(wins, score, least)
            winner = tl.where(wins, number, winner)
        tl.store(numbers + rows, winner, mask=inside)


@triton.jit
def sum_kernel(
    signals,
    row_stride,
    column_stride,
    high,
    low,
    thresholds,
    threshold_stride,
    sparsity,
    sparsity_stride,
    order,
    ends,
    sums,
    energies,
    numbers,
    n_features: tl.constexpr,
    n_transforms,
    rows_each,
    scale,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    EXACT: tl.constexpr,
    GRAM: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Sums over up to `rows_each` rows of one transform, one set and its number for each program.

    `order` holds the rows sorted by transform: order[ends[k] : ends[k + 1]] are those of k. Sums
    are XᵀY, ‖X‖² and ‖Z − X‖²; with GRAM P, where P + Pᵀ = 2 YᵀY. Registers do not suffice for
    both. What the competition left as thresholds is right. AHEAD as in `pass_kernel`.
    """
    program = tl.program_id(0)
    number, first, last = _share(program, ends, n_transforms, rows_each)
    tl.store(numbers + program, number)
    order += first
    n_rows = (last - first).to(tl.int32)
    thresholds += number * threshold_stride
    columns = tl.arange(0, WIDTH)
    square = columns[:, None] * WIDTH + columns[None, :]
    own = number * (DEPTH * WIDTH) + square
    weights_high, weights_low = tl.load(high + own), tl.load(low + own)
    total = tl.zeros((WIDTH, WIDTH), tl.float32)
    kept = tl.zeros((ROWS,), tl.float32)
    dropped = tl.zeros((ROWS,), tl.float32)
    source = signals + columns[None, :] * column_stride
    is_feature = (columns < n_features)[None, :]
    lanes = tl.arange(0, ROWS)
    rows = tl.load(order + lanes, mask=lanes < n_rows, other=0)
    following = _gathered(source, row_stride, rows, lanes < n_rows, is_feature)
    for start in range(0, n_rows, ROWS):
        inside = start + lanes < n_rows
        present = rows
        if not AHEAD:
            following = _gathered(source, row_stride, present, inside, is_feature)
        block_high, block_low = _halves(following * scale)
        beyond = start + ROWS + lanes < n_rows
        rows = tl.load(order + start + ROWS + lanes, mask=beyond, other=0)
        if AHEAD:
            following = _gathered(source, row_stride, rows, beyond, is_feature)
        if GRAM:  # exact whatever the products are: an update takes it for that of the signals
            turned = tl.trans(block_high)
            part = tl.dot(turned, block_low + block_low, tl.zeros_like(total))
            total += tl.dot(turned, block_high, part)
        else:
            wanted = tl.load(sparsity + present * sparsity_stride, mask=inside, other=0)
            threshold = tl.load(thresholds + present, mask=inside, other=1)
            coefs = tl.zeros((ROWS, WIDTH), tl.float32)
            coefs = _product(block_high, block_low, weights_high, weights_low, coefs, EXACT)
            threshold, end, any_tied = select((coefs,), (columns,), wanted, threshold, STEPS=0)
            codes = selected(coefs, columns, threshold, end, any_tied)
            kept += tl.sum(codes * codes, 1)
            dropped += tl.sum((coefs - codes) * (coefs - codes), 1)
            codes_high, codes_low = _halves(codes)
            total = _added(total, codes_high, codes_low, block_high, block_low, EXACT)
    tl.store(sums + program.to(tl.int64) * WIDTH * WIDTH + square, total)
    if not GRAM:
        _store_sums(kept, dropped, energies, program)


@triton.jit
def _share(program, ends, n_transforms, rows_each):
    """The transform of a program, and where its rows begin and end in the order; none, if 0 and 0.

    Each transform has as many programs as its rows need, one after the other.
    """
    number = program * 0
    first = tl.load(ends) * 0
    last = first
    before = first
    for k in range(0, n_transforms):
        begin, end = tl.load(ends + k), tl.load(ends + k + 1)
        own = begin + (program - before) * rows_each
        before += (end - begin + rows_each - 1) // rows_each
        mine = (own >= begin) & (program < before)
        number = tl.where(mine, k, number)
        first = tl.where(mine, own, first)
        last = tl.where(mine, tl.minimum(own + rows_each, end), last)
    return number, first, last


@triton.jit
def _gathered(source, row_stride, rows, there, is_feature):
    """Rows of the given numbers, zeros elsewhere."""
    pointers = source + rows.to(tl.int64)[:, None] * row_stride
    return tl.load(pointers, mask=there[:, None] & is_feature, other=0.0).to(tl.float32)
