"""Positive definite systems, one in each lane of the vector registers: Cholesky factors in tiles.

Systems are small and differ in their entries only, so that the same instruction serves one entry
of all of them. The factor L takes the place of the lower triangle of a system, with the inverses of
its diagonal; the right-hand side is one row more, which becomes the solution. Entries are those of
a flat array: of row i and column j the lanes begin at (i * pitch + j) * lanes.

A system that is not positive definite leads to a solution that is not finite.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.
# ruff: noqa: ARG001
# Numba passes the types of the arguments by their names.

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types

from kappaform.imaging.cleaning.vector_kernels import (
    REGISTER_BYTES,
    Vectors,
    write_loop,
)
from kappaform.jit import REORDERED, inlined, intrinsic

#: Rows and columns of a tile, one register each: 16 of the 32 that AVX-512 has.
SIDE = 4

_inlined = inlined(REORDERED)


@_inlined
def solve_systems(systems, size):
    """Solve systems of so many equations, a multiple of `SIDE`, in place; the pitch is the size."""
    for column in range(0, size, SIDE):
        _factor_diagonal(systems, column, column, size)
        for row in range(column + SIDE, size, SIDE):
            _factor_below(systems, row, column, size)
        _factor_right(systems, size, column, size)
    for column in range(size - SIDE, -1, -SIDE):
        _substitute(systems, size, column, size)


class _Lanes:
    """Entries of systems, in a function that is being written."""

    def __init__(self, context, builder, array_type, array, pitch):
        size = array_type.dtype.bitwidth // 8
        self.builder, self.number = builder, ir.IntType(64)
        self.vectors = Vectors(context, builder, array_type, REGISTER_BYTES // size)
        self.first = self.vectors.pointer(array_type, array, ir.Constant(self.number, 0))
        self.lanes = ir.Constant(self.number, self.vectors.type.count)
        self.pitch = builder.mul(pitch, self.lanes)

    def rows(self, first, number):
        """Pointers to the first entries of some rows."""
        row = self.builder.gep(self.first, [self.builder.mul(first, self.pitch)])
        return self.vectors.pointers(row, self.pitch, number)

    def entry(self, row, column):
        return self.builder.gep(row, [self.builder.mul(column, self.lanes)])

    def entries(self, row, column, number):
        """Pointers to the entries of a row from a column on."""
        return self.vectors.pointers(self.entry(row, column), self.lanes, number)

    def less(self, value, one, other):
        return self.vectors.product_plus(self.builder.fneg(one), other, value)


def _tile_function(n_rows, is_diagonal):
    """The function that computes a tile of the factor from those on its left.

    In the diagonal tile, its entries are eliminated from each other; below, those of the diagonal.
    """

    @intrinsic
    def tile(_, systems, row, column, pitch):
        def write(context, builder, signature, values):
            array, row, column, pitch = values
            lanes = _Lanes(context, builder, signature.args[0], array, pitch)
            load, store = lanes.vectors.load, lanes.vectors.store
            ours, theirs = lanes.rows(row, n_rows), lanes.rows(column, SIDE)
            places = [lanes.entries(each, column, SIDE) for each in ours]
            pairs = [
                (a, b) for a in range(n_rows) for b in range(SIDE) if b <= a or not is_diagonal
            ]

            def subtract(which, totals):
                left = [load(lanes.entry(each, which)) for each in ours]
                right = left if is_diagonal else [load(lanes.entry(each, which)) for each in theirs]
                return [
                    lanes.less(total, left[a], right[b])
                    for (a, b), total in zip(pairs, totals, strict=True)
                ]

            starts = [load(places[a][b]) for a, b in pairs]
            zero = ir.Constant(ir.IntType(64), 0)
            found = write_loop(builder, zero, column, starts, subtract)
            entries = dict(zip(pairs, found, strict=True))
            if is_diagonal:
                corner = entries
            else:
                their_places = [lanes.entries(each, column, SIDE) for each in theirs]
                corner = {
                    (b, q): load(their_places[b][q]) for b in range(SIDE) for q in range(b + 1)
                }
            for b in range(SIDE):
                for a in range(b if is_diagonal else 0, n_rows):
                    value = entries[a, b]
                    for q in range(b):
                        value = lanes.less(value, entries[a, q], corner[b, q])
                    if is_diagonal and a == b:
                        entries[a, b] = _inverse_root(lanes.vectors, value)
                    else:
                        entries[a, b] = builder.fmul(value, corner[b, b])
            for a, b in pairs:
                store(entries[a, b], places[a][b])
            return context.get_dummy_value()

        return types.void(systems, types.intp, types.intp, types.intp), write

    return tile


def _inverse_root(vectors, value):
    builder = vectors.builder
    name = f"llvm.sqrt.v{vectors.type.count}f{8 * vectors.size}"
    root_type = ir.FunctionType(vectors.type, [vectors.type])
    root = cgutils.get_or_insert_function(builder.module, root_type, name)
    one = ir.Constant(vectors.type, [1.0] * vectors.type.count)
    return builder.fdiv(one, builder.call(root, [value]))


_factor_diagonal = _tile_function(SIDE, is_diagonal=True)
_factor_below = _tile_function(SIDE, is_diagonal=False)
_factor_right = _tile_function(1, is_diagonal=False)


@intrinsic
def _substitute(_, systems, size, column, pitch):
    """Some entries of the solution, given all later ones."""

    def write(context, builder, signature, values):
        array, size, column, pitch = values
        lanes = _Lanes(context, builder, signature.args[0], array, pitch)
        load, store = lanes.vectors.load, lanes.vectors.store
        (right,) = lanes.rows(size, 1)
        places = lanes.entries(right, column, SIDE)

        def subtract(which, totals):
            (row,) = lanes.rows(which, 1)
            known = load(lanes.entry(right, which))
            entries = lanes.entries(row, column, SIDE)
            return [
                lanes.less(total, load(entry), known)
                for total, entry in zip(totals, entries, strict=True)
            ]

        after = builder.add(column, ir.Constant(ir.IntType(64), SIDE))
        found = write_loop(builder, after, size, [load(place) for place in places], subtract)
        corner = [lanes.entries(row, column, SIDE) for row in lanes.rows(column, SIDE)]
        for b in reversed(range(SIDE)):
            value = found[b]
            for q in range(b + 1, SIDE):
                value = lanes.less(value, load(corner[q][b]), found[q])
            found[b] = builder.fmul(value, load(corner[b][b]))
        for place, value in zip(places, found, strict=True):
            store(value, place)
        return context.get_dummy_value()

    return types.void(systems, types.intp, types.intp, types.intp), write
