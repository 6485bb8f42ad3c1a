"""What the kernels of groups do with whole vector registers: products of tiles, runs of pixels.

Numba does not keep a tile of a matrix in registers. These functions are therefore written in the
instructions of LLVM, with vectors of a fixed number of entries, which LLVM divides into those of
the processor. Arrays are C-contiguous and of one dtype; places in them are numbers of entries, and
nothing is checked.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.
# ruff: noqa: ARG001
# Numba passes the types of the arguments by their names.

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types

from kappaform.jit import intrinsic

#: Rows and columns of a tile: 12 registers of 8 floats, of the 16 that AVX2 has, or 6 of 16 floats.
#: With AVX-512, 12 rows were 14 % faster in a product of 36 x 64 x 48, and 4 rows 18 % slower.
TILE_ROWS, TILE_COLUMNS = 6, 16
#: Pixels of a run, at most: those of a row of a patch.
RUN = 8
#: Reference patches that are compared with others at once.
LANES = 16
#: Shifts for which they are compared at once: 8 sums that do not wait for each other. With 4 a
#: search takes 10 % longer (AVX-512); kernels for AVX2, with half the registers, like 8 as well.
SHIFTS = 8


#: Of a vector that is kept in one register, or in two of half the length.
REGISTER_BYTES = 64
_LARGEST = {4: 2.0**127, 8: 2.0**1023}  # powers of two, by bytes of a number
_FUSED = ("contract",)  # product and sum may be one instruction


class Vectors:
    """Vectors of entries of arrays of one type, in a function that is being written."""

    def __init__(self, context, builder, array_type, length):
        self.context, self.builder = context, builder
        self.size = array_type.dtype.bitwidth // 8
        self.type = ir.VectorType(context.get_value_type(array_type.dtype), length)

    def pointer(self, array_type, array, place):
        data = cgutils.create_struct_proxy(array_type)(self.context, self.builder, array).data
        return self.builder.gep(data, [place])

    def pointers(self, first, step, number):
        """Pointers to a number of rows."""
        found = [first]
        for _ in range(1, number):
            found.append(self.builder.gep(found[-1], [step]))
        return found

    def load(self, pointer):
        vector = self.builder.load(self.builder.bitcast(pointer, self.type.as_pointer()))
        vector.align = self.size
        return vector

    def store(self, vector, pointer):
        there = self.builder.bitcast(pointer, self.type.as_pointer())
        self.builder.store(vector, there).align = self.size

    def shuffled(self, one, other, numbers):
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(numbers)), numbers)
        return self.builder.shuffle_vector(one, other, mask)

    def broadcast(self, scalar):
        undefined = ir.Constant(self.type, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
        return self.shuffled(first, undefined, [0] * self.type.count)

    def product_plus(self, one, other, summand):
        product = self.builder.fmul(one, other, flags=_FUSED)
        return self.builder.fadd(product, summand, flags=_FUSED)


def _tile_function(subtracts):
    """The function that computes a tile of A B, or of C - A B, in C.

    A is (rows of a tile, depth), with steps from row to row and from column to column; B has
    `depth` rows. C may be in the place of B.
    """

    @intrinsic
    def tile(_, a, a_place, a_row, a_column, b, b_place, b_row, depth, c, c_place, c_row):
        i = types.intp

        def write(context, builder, signature, values):
            a, a_place, a_row, a_column, b, b_place, b_row, depth, c, c_place, c_row = values
            size = signature.args[0].dtype.bitwidth // 8
            vectors = Vectors(context, builder, signature.args[0], REGISTER_BYTES // size)
            ours = vectors.pointer(signature.args[0], a, a_place)
            theirs = vectors.pointer(signature.args[4], b, b_place)
            out = vectors.pointer(signature.args[8], c, c_place)
            rows = vectors.pointers(ours, a_row, TILE_ROWS)
            for column in range(0, TILE_COLUMNS, vectors.type.count):
                first = ir.Constant(ir.IntType(64), column)
                outs = vectors.pointers(builder.gep(out, [first]), c_row, TILE_ROWS)
                b_column = builder.gep(theirs, [first])
                _write_tile(vectors, rows, a_column, b_column, b_row, depth, outs, subtracts)
            return context.get_dummy_value()

        return types.void(a, i, i, i, b, i, i, i, c, i, i), write

    return tile


def _write_tile(vectors, rows, a_column, theirs, b_row, depth, outs, subtracts):
    """Write the loop over the rows of B, with one register for each row of the tile."""
    builder, number = vectors.builder, ir.IntType(64)
    zero = ir.Constant(vectors.type, [0.0] * vectors.type.count)
    sums_before = [vectors.load(out) if subtracts else zero for out in outs]
    before = builder.block
    head, body, end = (builder.append_basic_block(f"tile.{name}") for name in ("if", "do", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    step = builder.phi(number)
    step.add_incoming(ir.Constant(number, 0), before)
    sums = [builder.phi(vectors.type) for _ in rows]
    builder.cbranch(builder.icmp_signed("<", step, depth), body, end)
    builder.position_at_end(body)
    row_of_b = vectors.load(builder.gep(theirs, [builder.mul(step, b_row)]))
    column_of_a = builder.mul(step, a_column)
    for total, start, row in zip(sums, sums_before, rows, strict=True):
        factor = builder.load(builder.gep(row, [column_of_a]))
        factor = vectors.broadcast(builder.fneg(factor) if subtracts else factor)
        total.add_incoming(start, before)
        total.add_incoming(vectors.product_plus(factor, row_of_b, total), body)
    step.add_incoming(builder.add(step, ir.Constant(number, 1)), body)
    builder.branch(head)
    builder.position_at_end(end)
    for total, out in zip(sums, outs, strict=True):
        vectors.store(total, out)


set_tile, subtract_tile = _tile_function(subtracts=False), _tile_function(subtracts=True)


@intrinsic
def transpose_square(_, source, source_place, source_row, target, target_place, target_row):
    """Write the transpose of a square of as many rows as a tile has columns."""
    i, n = types.intp, TILE_COLUMNS

    def write(context, builder, signature, values):
        source, source_place, source_row, target, target_place, target_row = values
        vectors = Vectors(context, builder, signature.args[0], n)
        first = vectors.pointer(signature.args[0], source, source_place)
        rows = [vectors.load(row) for row in vectors.pointers(first, source_row, n)]
        half = n // 2
        while half:  # exchange the off-diagonal blocks of all squares of this size
            for a in range(n):
                if not a & half:
                    above = [j if not j & half else n + (j ^ half) for j in range(n)]
                    below = [j | half if not j & half else n + j for j in range(n)]
                    pair = rows[a], rows[a | half]
                    rows[a] = vectors.shuffled(*pair, above)
                    rows[a | half] = vectors.shuffled(*pair, below)
            half //= 2
        first = vectors.pointer(signature.args[3], target, target_place)
        for row, pointer in zip(rows, vectors.pointers(first, target_row, n), strict=True):
            vectors.store(row, pointer)
        return context.get_dummy_value()

    return types.void(source, i, i, target, i, i), write


@intrinsic
def copy_run(_, source, source_place, target, target_place):
    """Copy as many entries as a run may have."""
    i = types.intp

    def write(context, builder, signature, values):
        source, source_place, target, target_place = values
        vectors = Vectors(context, builder, signature.args[0], RUN)
        run = vectors.load(vectors.pointer(signature.args[0], source, source_place))
        vectors.store(run, vectors.pointer(signature.args[2], target, target_place))
        return context.get_dummy_value()

    return types.void(source, i, target, i), write


@intrinsic
def add_run(_, values, values_place, means, means_place, weights, target, target_place):
    """Add weights * (values + means) to as many entries as a run may have."""
    i = types.intp

    def write(context, builder, signature, arguments):
        values, values_place, means, means_place, weights, target, target_place = arguments
        vectors = Vectors(context, builder, signature.args[0], RUN)
        run = vectors.load(vectors.pointer(signature.args[0], values, values_place))
        mean = vectors.load(vectors.pointer(signature.args[2], means, means_place))
        first = ir.Constant(ir.IntType(64), 0)
        weight = vectors.load(vectors.pointer(signature.args[4], weights, first))
        pointer = vectors.pointer(signature.args[5], target, target_place)
        total = vectors.product_plus(builder.fadd(run, mean), weight, vectors.load(pointer))
        vectors.store(total, pointer)
        return context.get_dummy_value()

    return types.void(values, i, means, i, weights, target, i), write


def _squares_function(adds, n_shifts):
    """The function that computes sums of squared differences, or adds to such sums.

    For as many places next to each other as there are lanes, the sum is over some rows, `row`
    apart, at the places `ours` and `theirs` plus the steps of each number from `first` to before
    `last`; those of `theirs` begin at `at`. Sums that are added to are at `start` in `out`. For
    several shifts, whose steps are `apart` and whose sums `beyond` each other, what is at `ours` is
    read once, and their sums do not wait for each other.
    """

    @intrinsic
    def squares(
        _,
        image,
        ours,
        our_steps,
        theirs,
        their_steps,
        at,
        apart,
        first,
        last,
        row,
        n_rows,
        out,
        start,
        place,
        beyond,
    ):
        i = types.intp

        def write(context, builder, signature, values):
            image, ours, our_steps, theirs, their_steps, at, apart, *rest = values
            first, last, row, n_rows, out, start, place, beyond = rest
            zero = ir.Constant(ir.IntType(64), 0)
            vectors = Vectors(context, builder, signature.args[0], LANES)
            here, there = (vectors.pointer(signature.args[0], image, p) for p in (ours, theirs))
            our_step = vectors.pointer(signature.args[2], our_steps, zero)
            their_step = vectors.pointer(signature.args[4], their_steps, at)
            their_step = vectors.pointers(their_step, apart, n_shifts)

            def sums_at(begin):
                return vectors.pointers(
                    vectors.pointer(signature.args[11], out, begin), beyond, n_shifts
                )

            def add_rows(step, totals):
                one, *others = (
                    builder.gep(pointer, [builder.load(builder.gep(steps, [step]))])
                    for pointer, steps in zip(
                        [here] + [there] * n_shifts, [our_step, *their_step], strict=True
                    )
                )

                def add_row(which, totals):
                    place = [builder.mul(which, row)]
                    pixels = vectors.load(builder.gep(one, place))
                    found = []
                    for other, total in zip(others, totals, strict=True):
                        difference = builder.fsub(pixels, vectors.load(builder.gep(other, place)))
                        found.append(vectors.product_plus(difference, difference, total))
                    return found

                return write_loop(builder, zero, n_rows, totals, add_row)

            before = [ir.Constant(vectors.type, [0.0] * LANES)] * n_shifts
            if adds:
                before = [vectors.load(pointer) for pointer in sums_at(start)]
            totals = write_loop(builder, first, last, before, add_rows)
            for total, pointer in zip(totals, sums_at(place), strict=True):
                vectors.store(total, pointer)
            return context.get_dummy_value()

        return types.void(image, i, our_steps, i, their_steps, *[i] * 6, out, i, i, i), write

    return squares


set_squares, add_squares = (_squares_function(adds, n_shifts=1) for adds in (False, True))
set_many_squares, add_many_squares = (_squares_function(adds, SHIFTS) for adds in (False, True))


def _write_sum(vectors, first, last, start, add):
    """Write a loop in which `add` adds to a vector, for numbers from first to before last."""

    def add_one(which, totals):
        return [add(which, totals[0])]

    return write_loop(vectors.builder, first, last, [start], add_one)[0]


def write_loop(builder, first, last, starts, change):
    """Write a loop in which `change` changes some values, for numbers from first to before last."""
    before = builder.block
    head, body, end = (builder.append_basic_block(f"loop.{name}") for name in ("if", "do", "end"))
    builder.branch(head)
    builder.position_at_end(head)
    which, values = builder.phi(ir.IntType(64)), [builder.phi(start.type) for start in starts]
    which.add_incoming(first, before)
    for value, start in zip(values, starts, strict=True):
        value.add_incoming(start, before)
    builder.cbranch(builder.icmp_signed("<", which, last), body, end)
    builder.position_at_end(body)
    changed = change(which, values)
    which.add_incoming(builder.add(which, ir.Constant(ir.IntType(64), 1)), builder.block)
    for value, new in zip(values, changed, strict=True):
        value.add_incoming(new, builder.block)
    builder.branch(head)
    builder.position_at_end(end)
    return values


@intrinsic
def sums_below(_, terms, place, steps, n_terms, limits, limits_place, out):
    """Sums of some terms for as many places as there are lanes; a bit for each below its limit.

    The sums are written to `out`. A sum beyond the range counts as a large number.
    """
    i = types.intp

    def write(context, builder, signature, values):
        terms, place, steps, n_terms, limits, limits_place, out = values
        zero = ir.Constant(ir.IntType(64), 0)
        vectors = Vectors(context, builder, signature.args[0], LANES)
        here = vectors.pointer(signature.args[0], terms, place)
        step_pointer = vectors.pointer(signature.args[2], steps, zero)

        def add(which, total):
            step = builder.load(builder.gep(step_pointer, [which]))
            return builder.fadd(total, vectors.load(builder.gep(here, [step])))

        nothing = ir.Constant(vectors.type, [0.0] * LANES)
        total = _write_sum(vectors, zero, n_terms, nothing, add)
        largest = ir.Constant(vectors.type, [_LARGEST[vectors.size]] * LANES)
        total = builder.select(builder.fcmp_ordered("<", total, largest), total, largest)
        vectors.store(total, vectors.pointer(signature.args[6], out, zero))
        limit = vectors.load(vectors.pointer(signature.args[4], limits, limits_place))
        is_below = builder.fcmp_ordered("<", total, limit)
        return builder.zext(builder.bitcast(is_below, ir.IntType(LANES)), ir.IntType(64))

    return i(terms, i, steps, i, limits, i, out), write
