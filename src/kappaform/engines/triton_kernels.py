"""The compiled kernels of the pass on a GPU.

Tensor cores multiply halves. A number is the sum of two of them, to 22 bits, once a power of two
has moved it into their range; of the four products of two such sums the smallest is left out
(EXACT), or only the largest is taken, which has the precision of TF32. All sums are float32, and
short: what a program returns is added up in float64.

Columns beyond n_features are zeros. Rows beyond n_signals want no entry.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that Triton infers.

from __future__ import annotations

import triton
import triton.language as tl

from kappaform.engines.triton_selection import select, selected


@triton.jit(do_not_specialize=["n_signals"])
def pass_kernel(
    signals,
    row_stride,
    column_stride,
    high,
    low,
    thresholds,
    sparsity,
    sparsity_stride,
    cross,
    energies,
    n_signals,
    n_features: tl.constexpr,
    rows_each,
    scale,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Sums of XᵀY, ‖X‖² and ‖Z − X‖² over `rows_each` rows, one set for each program.

    AHEAD loads the next block before the present one is coded, where registers suffice for both.
    """
    program = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    square = columns[:, None] * WIDTH + columns[None, :]
    weights_high, weights_low = tl.load(high + square), tl.load(low + square)
    first = program.to(tl.int64) * rows_each
    signals += first * row_stride
    thresholds += first
    sparsity += first * sparsity_stride
    n_rows = tl.minimum(n_signals - first, rows_each).to(tl.int32)
    total = tl.zeros((WIDTH, WIDTH), tl.float32)
    kept = tl.zeros((ROWS,), tl.float32)
    dropped = tl.zeros((ROWS,), tl.float32)
    source = signals + columns[None, :] * column_stride
    is_feature = (columns < n_features)[None, :]
    whole: tl.constexpr = n_features == WIDTH
    following = _rows(source, row_stride, 0, n_rows, is_feature, ROWS, whole)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = rows < n_rows
        wanted = tl.load(sparsity + rows * sparsity_stride, mask=inside, other=0)
        threshold = tl.load(thresholds + rows, mask=inside, other=1)
        if not AHEAD:
            following = _rows(source, row_stride, start, n_rows, is_feature, ROWS, whole)
        block_high, block_low = _halves(following * scale)
        if AHEAD:
            following = _rows(source, row_stride, start + ROWS, n_rows, is_feature, ROWS, whole)
        coefs = tl.zeros((ROWS, WIDTH), tl.float32)
        coefs = _product(block_high, block_low, weights_high, weights_low, coefs, EXACT)
        threshold, end, any_tied = select((coefs,), (columns,), wanted, threshold, STEPS=1)
        tl.store(thresholds + rows, threshold, mask=inside)
        codes = selected(coefs, columns, threshold, end, any_tied)
        kept += tl.sum(codes * codes, 1)
        dropped += tl.sum((coefs - codes) * (coefs - codes), 1)
        codes_high, codes_low = _halves(codes)
        total = _added(total, codes_high, codes_low, block_high, block_low, EXACT)
    tl.store(cross + program.to(tl.int64) * WIDTH * WIDTH + square, total)
    _store_sums(kept, dropped, energies, program)


@triton.jit(do_not_specialize=["n_signals"])
def code_kernel(
    signals,
    row_stride,
    column_stride,
    high,
    low,
    thresholds,
    sparsity,
    sparsity_stride,
    codes,
    codes_low,
    energies,
    n_signals,
    n_features,
    scale,
    unit,
    ROWS: tl.constexpr,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    DEPTH: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Codes in multiples of `unit`, ‖X‖² and ‖Z − X‖², ROWS rows to a program.

    Codes are float32, or halves; the others of these go to `codes_low`. Of the columns, LEFT and
    RIGHT (if not 0) are two blocks: their widths are powers of two.
    """
    program = tl.program_id(0)
    first = program.to(tl.int64) * ROWS
    signals += first * row_stride
    codes += first * n_features
    codes_low += first * n_features
    rows = tl.arange(0, ROWS)
    inside = rows < n_signals - first
    wanted = tl.load(sparsity + (first + rows) * sparsity_stride, mask=inside, other=0)
    threshold = tl.load(thresholds + first + rows, mask=inside, other=1)
    left_columns, right_columns = tl.arange(0, LEFT), LEFT + tl.arange(0, max(RIGHT, 16))
    left = tl.zeros((ROWS, LEFT), tl.float32)
    right = tl.zeros((ROWS, max(RIGHT, 16)), tl.float32)
    for start in range(0, n_features, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        block = _block(signals, row_stride, column_stride, rows, depth, inside, n_features, scale)
        block_high, block_low = _halves(block)
        offsets = depth[:, None] * (LEFT + RIGHT) + left_columns[None, :]
        left = _product(
            block_high, block_low, tl.load(high + offsets), tl.load(low + offsets), left, EXACT
        )
        if RIGHT > 0:
            offsets = depth[:, None] * (LEFT + RIGHT) + right_columns[None, :]
            right = _product(
                block_high, block_low, tl.load(high + offsets), tl.load(low + offsets), right, EXACT
            )
    if RIGHT > 0:
        threshold, end, any_tied = select(
            (left, right), (left_columns, right_columns), wanted, threshold, STEPS=2
        )
    else:
        threshold, end, any_tied = select((left,), (left_columns,), wanted, threshold, STEPS=1)
    tl.store(thresholds + first + rows, threshold, mask=inside)
    chosen = selected(left, left_columns, threshold, end, any_tied)
    kept = tl.sum(chosen * chosen, 1)
    dropped = tl.sum((left - chosen) * (left - chosen), 1)
    _store_codes(chosen * unit, codes, codes_low, rows, left_columns, inside, n_features, EXACT)
    if RIGHT > 0:
        chosen = selected(right, right_columns, threshold, end, any_tied)
        kept += tl.sum(chosen * chosen, 1)
        dropped += tl.sum((right - chosen) * (right - chosen), 1)
        _store_codes(
            chosen * unit, codes, codes_low, rows, right_columns, inside, n_features, EXACT
        )
    _store_sums(kept, dropped, energies, program)


@triton.jit(do_not_specialize=["n_signals"])
def cross_kernel(
    codes_high,
    codes_low,
    signals,
    row_stride,
    column_stride,
    cross,
    n_signals,
    n_features,
    rows_each,
    scale,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    EXACT: tl.constexpr,
):
    """A tile of XᵀY, summed over `rows_each` rows: one for each program."""
    program, side = tl.program_id(2), TILE * tl.num_programs(0)
    code_columns = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    first = program.to(tl.int64) * rows_each
    signals += first * row_stride
    codes_high += first * n_features
    codes_low += first * n_features
    n_rows = tl.minimum(n_signals - first, rows_each).to(tl.int32)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = rows < n_rows
        block = _block(signals, row_stride, column_stride, rows, columns, inside, n_features, scale)
        block_high, block_low = _halves(block)
        offsets = rows[:, None] * n_features + code_columns[None, :]
        there = inside[:, None] & (code_columns < n_features)[None, :]
        high = tl.load(codes_high + offsets, mask=there, other=0.0)
        low = high
        if EXACT:
            low = tl.load(codes_low + offsets, mask=there, other=0.0)
        total = _added(total, high, low, block_high, block_low, EXACT)
    offsets = code_columns[:, None] * side + columns[None, :]
    tl.store(cross + program.to(tl.int64) * side * side + offsets, total)


@triton.jit
def _rows(source, row_stride, first, n_rows, is_feature, ROWS: tl.constexpr, WHOLE: tl.constexpr):
    """Rows from the first on, zeros beyond the last; WHOLE: without columns that are no feature."""
    rows = first + tl.arange(0, ROWS)
    there = (rows < n_rows)[:, None]
    if not WHOLE:
        there = there & is_feature
    return tl.load(source + rows[:, None] * row_stride, mask=there, other=0.0).to(tl.float32)


@triton.jit
def _block(source, row_stride, column_stride, rows, columns, inside, n_columns, scale):
    """Rows of a matrix, scaled, zeros beyond its edges."""
    offsets = rows[:, None] * row_stride + columns[None, :] * column_stride
    there = inside[:, None] & (columns < n_columns)[None, :]
    return tl.load(source + offsets, mask=there, other=0.0).to(tl.float32) * scale


@triton.jit
def _store_codes(values, codes, codes_low, rows, columns, inside, n_features, EXACT: tl.constexpr):
    """Store codes as float32, or as halves."""
    offsets = rows[:, None] * n_features + columns[None, :]
    there = inside[:, None] & (columns < n_features)[None, :]
    if codes.dtype.element_ty == tl.float32:
        tl.store(codes + offsets, values, mask=there)
    else:
        high, low = _halves(values)
        tl.store(codes + offsets, high, mask=there)
        if EXACT:
            tl.store(codes_low + offsets, low, mask=there)


@triton.jit
def _store_sums(kept, dropped, energies, program):
    """Store the energies of all rows of a program."""
    tl.store(energies + 2 * program, tl.sum(kept.to(tl.float64), 0))
    tl.store(energies + 2 * program + 1, tl.sum(dropped.to(tl.float64), 0))


@triton.jit
def _halves(numbers):
    """Two halves whose sum is a number to 22 bits."""
    high = numbers.to(tl.float16)
    return high, (numbers - high.to(tl.float32)).to(tl.float16)


@triton.jit
def _added(total, codes_high, codes_low, block_high, block_low, EXACT: tl.constexpr):
    """Add XᵀY of a block to a total."""
    high, low = tl.trans(codes_high), tl.trans(codes_low)
    if EXACT:
        # Tensor cores round sums towards zero: none of theirs may be long.
        part = _product(high, low, block_high, block_low, tl.zeros_like(total), EXACT)
        return total + part
    else:
        return _product(high, low, block_high, block_low, total, EXACT)


@triton.jit
def _product(a_high, a_low, b_high, b_low, total, EXACT: tl.constexpr):
    """Add a product of matrices to a total, small terms first."""
    if EXACT:
        total = tl.dot(a_low, b_high, total)
        total = tl.dot(a_high, b_low, total)
    return tl.dot(a_high, b_high, total)
