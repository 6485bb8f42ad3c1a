"""The compiled kernels of the pass.

Magnitudes are compared through their bits: with the sign bit cleared, floats of one width are
ordered as the integers that share their bits. A search among integers is exact, ends, sees ties.

The scan of a row turns 64 comparisons into the bits of one integer. Counting and visiting the
survivors then costs a few instructions, without a branch that the processor would mispredict. Rows
are therefore padded with zeros to whole words of 64 entries; a threshold is at least 1, so that no
zero is ever marked.

Arguments: `coefs` is (rows, padded), `bits` its memory as integers, `n_nonzero` (rows,) int64.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types

from kappaform.jit import FUSED, inlined, intrinsic, kernel

WORD = 64  #: columns that one mask describes, one bit each

# Rows that are summed in the dtype of the signals before they join the float64 total: few enough
# for float32 to keep six digits.
FLUSH_ROWS = 256  #: of a partial sum

_kernel, _inlined = kernel(FUSED), inlined(FUSED)


@_kernel
def accumulate(signals, coefs, bits, n_nonzero, thresholds, partial, cross):
    """Add XᵀY of a block to `cross` and return (‖X‖², ‖Z − X‖²).

    `thresholds` holds a guess per row, 0 for none, and receives a better one: after a small change
    of the transform it still separates the same entries, and nothing is searched. `signals` is
    padded as `coefs`; `partial` is (n, padded) of the same dtype, zero before and after.
    """
    width = coefs.shape[1]
    flat_signals, flat_coefs, flat_bits = signals.ravel(), coefs.ravel(), bits.ravel()
    flat_partial = partial.ravel()
    marks = np.empty(width // WORD, np.uint64)
    code_energy = discarded_energy = 0.0
    threshold = without_sign(bits) // 2  # about 1
    for i in range(signals.shape[0]):
        start = i * width
        threshold = mark_code(bits, flat_bits, i, n_nonzero[i], thresholds[i], threshold, marks)
        thresholds[i] = threshold
        for w in range(0, width, WORD):
            word = marks[w // WORD]
            discarded_energy += energy_outside(flat_coefs, start + w, word)
            while word != 0:
                j = w + lowest_bit(word)
                word &= word - np.uint64(1)
                code = flat_coefs[start + j]
                code_energy += np.float64(code) * np.float64(code)
                for k in range(0, width, WORD):
                    add_multiple(flat_partial, j * width + k, code, flat_signals, start + k)
        if (i + 1) % FLUSH_ROWS == 0 or i + 1 == signals.shape[0]:
            flush(partial, cross)
    return code_energy, discarded_energy


@_kernel
def mark_largest(bits, n_nonzero, kept):
    """Set kept[i, j] to whether entry j is among the n_nonzero[i] largest of row i.

    A zero is never marked as kept: as a code it is the same.
    """
    flat_bits = bits.ravel()
    marks = np.empty(bits.shape[1] // WORD, np.uint64)
    threshold = without_sign(bits) // 2  # about 1
    for i in range(kept.shape[0]):
        start = i * bits.shape[1]
        n_marked = _mark(flat_bits, start, threshold, marks)
        step = _octave(bits) // 2
        threshold = _search(flat_bits, start, n_nonzero[i], threshold, n_marked, step, marks)
        for j in range(kept.shape[1]):
            kept[i, j] = (marks[j // WORD] >> np.uint64(j % WORD)) & np.uint64(1)


@_kernel
def list_largest(bits, n_nonzero, guesses, chosen, counts):
    """Write where the n_nonzero[i] largest entries of row i are into chosen[i], ascending.

    counts[i] becomes their number, which counts no zeros. `guesses` are thresholds, 0 for none.
    """
    flat_bits = bits.ravel()
    marks = np.empty(bits.shape[1] // WORD, np.uint64)
    threshold = without_sign(bits) // 2  # about 1
    for i in range(chosen.shape[0]):
        start = i * bits.shape[1]
        threshold = guesses[i] if guesses[i] > 0 else threshold
        step = _octave(bits) // 8 if guesses[i] > 0 else _octave(bits) // 2
        n_marked = _mark(flat_bits, start, threshold, marks)
        threshold = _search(flat_bits, start, n_nonzero[i], threshold, n_marked, step, marks)
        count = 0
        for w in range(marks.shape[0]):
            word = marks[w]
            while word != 0:
                chosen[i, count] = w * WORD + lowest_bit(word)
                word &= word - np.uint64(1)
                count += 1
        counts[i] = count


@_inlined
def mark_code(bits, flat_bits, i, n_nonzero, guess, threshold, marks):
    """Mark the n_nonzero largest entries of row i and return their threshold.

    The search begins at the guess, or at the given threshold if the guess is 0.
    """
    start = i * bits.shape[1]
    if guess > 0:
        threshold = guess
    n_marked = _mark(flat_bits, start, threshold, marks)
    if n_marked != n_nonzero:
        step = _octave(bits) // 32 if guess > 0 else _octave(bits) // 2
        threshold = _search(flat_bits, start, n_nonzero, threshold, n_marked, step, marks)
        threshold = _centred(bits[i], threshold)
    return threshold


@_inlined
def _mark(bits, start, threshold, marks):
    """Mark the entries of a row that are >= threshold and return their number."""
    count = 0
    for w in range(marks.shape[0]):
        marks[w] = mask_at_least(bits, start + w * WORD, threshold)
        count += n_bits(marks[w])
    return count


@_inlined
def _search(bits, start, n_nonzero, threshold, n_marked, step, marks):
    """Mark the n_nonzero largest entries of a row and return their threshold.

    The given threshold marks n_marked entries. The search takes growing steps until two thresholds
    enclose the right one, then bisects. Once these are neighbours, entries between them are equal:
    the first are marked.
    """
    low, high = 0, without_sign(bits)
    if n_marked < n_nonzero and _mark(bits, start, 1, marks) <= n_nonzero:
        return 1  # no more than n_nonzero entries differ from zero
    while n_marked != n_nonzero:
        if n_marked > n_nonzero:
            low = threshold
        else:
            high = threshold
        if high - low == 1:
            _mark_ties(bits, start, n_nonzero, low, high, marks)
            return high
        move = min(step, (high - low) // 2)
        step = 2 * move
        threshold = low + move if n_marked > n_nonzero else high - move
        n_marked = _mark(bits, start, threshold, marks)
    return threshold


@_inlined
def _mark_ties(bits, start, n_nonzero, tie, above, marks):
    """Mark the entries >= above and the first of those equal to `tie`, n_nonzero in all."""
    missing = n_nonzero - _mark(bits, start, above, marks)
    for w in range(marks.shape[0]):
        ties = mask_at_least(bits, start + w * WORD, tie) & ~marks[w]
        while ties != 0 and missing > 0:
            others = ties & (ties - np.uint64(1))
            marks[w] |= ties ^ others
            ties = others
            missing -= 1


@_inlined
def _centred(row, threshold):
    """Middle of the gap between the entries of a row that are >= threshold and the others."""
    below, above = 0, without_sign(row)
    for j in range(row.shape[0]):
        size = row[j] & without_sign(row)
        if size >= threshold:
            above = min(above, size)
        else:
            below = max(below, size)
    return above - (above - below) // 2


@_inlined
def without_sign(bits):
    """The largest bits without a sign."""
    return 2**63 - 1 if bits.itemsize == 8 else 2**31 - 1


@_inlined
def _octave(bits):
    """Distance between the bits of x and 2x."""
    return 2**52 if bits.itemsize == 8 else 2**23


@_inlined
def flush(partial, total):
    for j in range(total.shape[0]):
        for k in range(total.shape[1]):
            total[j, k] += partial[j, k]
            partial[j, k] = 0


# Five operations on 64 numbers at once that LLVM knows and numba has no name for. They are written
# for vectors of 64 entries; LLVM splits those into registers of the machine at hand.


@intrinsic
def mask_at_least(typing_context, bits, start, threshold):  # noqa: ARG001
    """Mask of those of bits[start : start + 64] that are >= threshold, sign bits ignored."""

    def generate(context, builder, signature, arguments):
        array, start, threshold = arguments
        values = load(context, builder, signature.args[0], array, start)
        width = signature.args[0].dtype.bitwidth
        if width < WORD:
            threshold = builder.trunc(threshold, ir.IntType(width))
        without_sign = ir.Constant(ir.IntType(width), 2 ** (width - 1) - 1)
        sizes = builder.and_(values, repeat(builder, without_sign))
        at_least = builder.icmp_signed(">=", sizes, repeat(builder, threshold))
        return builder.bitcast(at_least, ir.IntType(WORD))

    return types.uint64(bits, types.int64, types.int64), generate


@intrinsic
def energy_outside(typing_context, values, start, mask):  # noqa: ARG001
    """Sum of squares of those of values[start : start + 64] that `mask` does not hold."""

    def generate(context, builder, signature, arguments):
        array, start, mask = arguments
        values = load(context, builder, signature.args[0], array, start)
        held = builder.bitcast(mask, ir.VectorType(ir.IntType(1), WORD))
        outside = builder.select(held, ir.Constant(values.type, [0.0] * WORD), values)
        sums = builder.fmul(outside, outside)
        while sums.type.count > 1:  # halves are added: the same order on every machine
            half = sums.type.count // 2
            lower = builder.shuffle_vector(sums, sums, _indices(range(half)))
            upper = builder.shuffle_vector(sums, sums, _indices(range(half, 2 * half)))
            sums = builder.fadd(lower, upper)
        return builder.extract_element(sums, ir.Constant(ir.IntType(32), 0))

    return values.dtype(values, types.int64, types.uint64), generate


@intrinsic
def add_multiple(typing_context, sums, first, factor, values, start):  # noqa: ARG001
    """sums[first : first + 64] += factor * values[start : start + 64]."""

    def generate(context, builder, signature, arguments):
        sums, first, factor, values, start = arguments
        old = load(context, builder, signature.args[0], sums, first)
        more = load(context, builder, signature.args[3], values, start)
        product = builder.fmul(repeat(builder, factor), more, flags=("contract",))
        pointer = pointer_to(context, builder, signature.args[0], sums, first)
        stored = builder.store(builder.fadd(old, product, flags=("contract",)), pointer)
        stored.align = signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(sums, types.int64, sums.dtype, values, types.int64), generate


@intrinsic
def n_bits(typing_context, mask):  # noqa: ARG001
    """Number of bits set."""

    def generate(_context, builder, _signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def lowest_bit(typing_context, mask):  # noqa: ARG001
    """Position of the lowest bit set; the mask must not be zero."""

    def generate(_context, builder, _signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def load(context, builder, array_type, array, start, count=WORD):
    """So many entries of a contiguous 1-D array, from `start` on, as one vector."""
    values = builder.load(pointer_to(context, builder, array_type, array, start, count))
    values.align = array_type.dtype.bitwidth // 8  # that of an entry: a row may begin anywhere
    return values


def pointer_to(context, builder, array_type, array, start, count=WORD):
    element = context.get_value_type(array_type.dtype)
    pointer = builder.gep(context.make_array(array_type)(context, builder, array).data, [start])
    return builder.bitcast(pointer, ir.VectorType(element, count).as_pointer())


def repeat(builder, value, count=WORD):
    empty = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, empty, _indices([0] * count))


def _indices(values):
    values = list(values)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(values)), values)
