"""The compiled kernels of refitted codes (docs/mathematics.md, section 3).

Columns are those of the inverse, of norm 1. Arguments: `products` (rows, padded) are those of each
signal with the columns, `gram` (n, n) those of the columns with each other, in double precision.
The first counts[i] entries of chosen[i] are the columns that signal i is coded with.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba import types

from kappaform.engines.kernels import load, pointer_to
from kappaform.jit import FUSED, inlined, intrinsic, kernel

LANES = 8  #: signals whose systems are solved side by side: a vector of doubles
_EPS = float(np.finfo(np.float64).eps)
_kernel, _inlined = kernel(FUSED), inlined(FUSED)


@_kernel
def fit(products, gram, chosen, counts, values, explained):
    """Values of least squares, and how much of the energy of each signal they explain."""
    n_rows, most = chosen.shape
    system = np.empty((most, most + 1, LANES))
    flat = system.ravel()
    for first in range(0, n_rows, LANES):
        last = min(first + LANES, n_rows)
        size = counts[first:last].max()
        _gather(products, gram, chosen, counts, first, last, size, system)
        _solve(system, flat, size)
        for i in range(first, last):
            explained[i] = 0.0
            for a in range(counts[i]):
                values[i, a] = system[a, size, i - first] * system[a, a, i - first]
                explained[i] += values[i, a] * products[i, chosen[i, a]]


@_kernel
def ask_again(products, rows_of_gram, chosen, counts, values, again, guesses):
    """Gradient step: the value of each column plus its product with the residual of the signal.

    `again` receives it, and `guesses` the least of those that were chosen: if no other is larger,
    they are the largest. `rows_of_gram` is the gram matrix, padded as `again` and of its dtype.
    """
    n_rows, width = again.shape
    for i in range(n_rows):
        for j in range(width):
            again[i, j] = products[i, j]
        for a in range(counts[i]):
            factor, row = again.dtype.type(values[i, a]), rows_of_gram[chosen[i, a]]
            for j in range(width):
                again[i, j] -= factor * row[j]
        least = np.inf
        for a in range(counts[i]):
            j = chosen[i, a]
            again[i, j] += values[i, a]
            least = min(least, abs(again[i, j]))
        guesses[i] = least if counts[i] > 0 else 0.0


@_kernel
def write(chosen, counts, values, which, codes):
    """Write the values of those rows of which[i] into `codes`, zeros before."""
    for i in range(codes.shape[0]):
        if which[i]:
            for a in range(counts[i]):
                codes[i, chosen[i, a]] = values[i, a]


@_inlined
def _gather(products, gram, chosen, counts, first, last, size, system):
    """Normal equations of some signals, side by side: upper triangles, the right side behind them.

    Those of fewer columns are filled up with zeros.
    """
    for lane in range(LANES):
        i = first + lane
        count = counts[i] if i < last else 0
        for a in range(count):
            row = gram[chosen[i, a]]
            for b in range(a, count):
                system[a, b, lane] = row[chosen[i, b]]
            system[a, size, lane] = products[i, chosen[i, a]]
        for b in range(count, size):
            for a in range(b + 1):
                system[a, b, lane] = 0.0
            system[b, size, lane] = 0.0


@_inlined
def _solve(system, flat, size):
    """Eliminate in place: the diagonal becomes inverse pivots, times which the right side solves.

    A pivot that is zero, or rounding, belongs to no column, or to one in the span of the others:
    its inverse is set to 0.
    """
    row, least = system.shape[1] * LANES, size * _EPS
    right, step = size * LANES, row + LANES  # from one pivot to the next
    for k in range(size):
        for lane in range(LANES):
            pivot = system[k, k, lane]
            system[k, k, lane] = 1 / pivot if pivot > least else 0.0
        for i in range(k + 1, size):
            for j in range(i * LANES, right + LANES, LANES):
                subtract(flat, i * row + j, k * row + i * LANES, k * step, k * row + j)
    for k in range(size - 1, -1, -1):
        for i in range(k):
            subtract(flat, i * row + right, i * row + k * LANES, k * step, k * row + right)


@intrinsic
def subtract(typing_context, array, first, one, two, three):  # noqa: ARG001
    """array[first:] -= array[one:] * array[two:] * array[three:], of each the next 8 entries."""

    def generate(context, builder, signature, arguments):
        array, *places = arguments
        kind = signature.args[0]
        old, *factors = (load(context, builder, kind, array, place, LANES) for place in places)
        product = builder.fmul(factors[0], factors[1])
        product = builder.fmul(product, factors[2], flags=("contract",))
        pointer = pointer_to(context, builder, kind, array, places[0], LANES)
        stored = builder.store(builder.fsub(old, product, flags=("contract",)), pointer)
        stored.align = kind.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, *[types.int64] * 4), generate
