"""Five operations on 64 numbers at once that LLVM knows and numba has no name for.

They are written for vectors of 64 entries; LLVM cuts those into registers of the machine at hand.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments are numba types and LLVM values, which have no stubs.

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

WORD = 64  #: columns that one mask describes, one bit each


@intrinsic
def mask_at_least(typing_context, bits, start, cut):  # noqa: ARG001
    """Mask of those of bits[start : start + 64] that are >= cut, sign bits ignored."""

    def generate(context, builder, signature, arguments):
        array, start, cut = arguments
        values = _load_word(context, builder, signature.args[0], array, start)
        width = signature.args[0].dtype.bitwidth
        if width < WORD:
            cut = builder.trunc(cut, ir.IntType(width))
        without_sign = ir.Constant(ir.IntType(width), 2 ** (width - 1) - 1)
        sizes = builder.and_(values, _repeat(builder, without_sign))
        at_least = builder.icmp_signed(">=", sizes, _repeat(builder, cut))
        return builder.bitcast(at_least, ir.IntType(WORD))

    return types.uint64(bits, types.int64, types.int64), generate


@intrinsic
def energy_outside(typing_context, values, start, mask):  # noqa: ARG001
    """Sum of squares of those of values[start : start + 64] that `mask` does not hold."""

    def generate(context, builder, signature, arguments):
        array, start, mask = arguments
        values = _load_word(context, builder, signature.args[0], array, start)
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
        old = _load_word(context, builder, signature.args[0], sums, first)
        more = _load_word(context, builder, signature.args[3], values, start)
        product = builder.fmul(_repeat(builder, factor), more, flags=("contract",))
        pointer = _word_pointer(context, builder, signature.args[0], sums, first)
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


def _load_word(context, builder, array_type, array, start):
    """Entries start, ..., start + 63 of a contiguous 1-D array as one vector."""
    values = builder.load(_word_pointer(context, builder, array_type, array, start))
    values.align = array_type.dtype.bitwidth // 8  # that of an entry: a row may begin anywhere
    return values


def _word_pointer(context, builder, array_type, array, start):
    element = context.get_value_type(array_type.dtype)
    pointer = builder.gep(context.make_array(array_type)(context, builder, array).data, [start])
    return builder.bitcast(pointer, ir.VectorType(element, WORD).as_pointer())


def _repeat(builder, value):
    empty = ir.Constant(ir.VectorType(value.type, WORD), ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, empty, _indices([0] * WORD))


def _indices(values):
    values = list(values)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(values)), values)
