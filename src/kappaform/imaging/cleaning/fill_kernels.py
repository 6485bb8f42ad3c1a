"""Compiled kernel that estimates the missing pixels of groups of similar patches.

Images are flat; a patch is where it begins plus `offsets`, as in `kernels`.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np

from kappaform.imaging.cleaning.group_kernels import centre, multiply, padded, solve
from kappaform.imaging.cleaning.lane_kernels import SIDE, solve_systems
from kappaform.imaging.cleaning.vector_kernels import (
    REGISTER_BYTES,
    TILE_COLUMNS,
    TILE_ROWS,
    set_tile,
)
from kappaform.jit import REORDERED, inlined, kernel

_kernel, _inlined = kernel(REORDERED), inlined(REORDERED)


@_kernel
def fill_groups(
    guide,
    given,
    known,
    n_known,
    starts,
    members,
    steps,
    offsets,
    variance,
    rounding,
    denoises,
    values,
    marks,
):
    """Estimate patches from their known pixels, and add them to images of sums.

    The patches of a group are samples of a normal distribution with the mean and covariance of its
    patches in the guide, plus white noise of this variance. A patch becomes its conditional mean
    given its known pixels. Groups about a patch without missing pixels are left out.

    A patch is a row, less the mean of the group. The system of its missing pixels is a part of the
    inverse covariance, that of its known pixels a part of the covariance: the smaller one is
    solved, as many patches at once as a register has lanes. With z the row (known pixels as given,
    missing ones as estimated) and its dual, the inverse covariance times z, the row without noise
    is z - variance * dual: at missing pixels the dual is zero.

    guide, given : flat images: the best estimate so far, and the image with its missing pixels
    known : flat, which pixels are given
    n_known : flat, how many pixels are known of the patch that begins at a pixel
    starts, members : the first pixels of the reference patches, and the members of their groups
    steps : how far the first pixel of a member is from that, for each number of a shift
    variance : of the white noise in known pixels, > 0
    rounding : relative rounding error of sums of n products
    denoises : whether known pixels are estimated as well
    values : flat image that receives the sum of estimates; at known pixels, if these are not
        estimated, of no meaning
    marks : flat image that receives the number of estimated patches that begin at a pixel
    """
    n, k, lanes = offsets.shape[0], members.shape[1], REGISTER_BYTES // guide.itemsize
    rows = padded(n, TILE_ROWS)
    columns = padded(rows, TILE_COLUMNS)
    patches = np.zeros((k, columns), guide.dtype)
    mean = np.zeros(columns, guide.dtype)
    covariance = np.zeros((rows, columns), guide.dtype)
    precision = np.zeros((rows, columns), guide.dtype)
    factor = np.zeros((rows, columns), guide.dtype)
    triangle = np.zeros((rows, columns), guide.dtype)
    corner = np.zeros((TILE_ROWS, TILE_ROWS), guide.dtype)
    places = np.empty(k, np.int64)
    # Patches in the order of their systems; some may be tried twice.
    order = np.empty(2 * k, np.int64)
    ends = np.empty(n + 3, np.int64)
    unknown = np.zeros((2 * k, n), np.uint32)
    sizes = np.zeros(2 * k, np.int64)
    left = np.zeros((2 * k + TILE_ROWS, columns), guide.dtype)
    product = np.zeros((2 * k + TILE_ROWS, columns), guide.dtype)
    most = padded(n, SIDE)
    systems = np.empty((most + 1) * most * lanes, guide.dtype)
    for group in range(starts.shape[0]):
        if n_known[starts[group]] == n:
            continue
        _gather(guide, starts[group], members[group], steps, offsets, places, patches)
        centre(patches, k, mean)
        multiply(patches, (1, columns), patches, k, covariance, True)
        _add_variance(covariance, n, k, variance, rounding)
        n_many, n_rows = _order(n_known, places, n, denoises, ends, order)
        for row in range(n_rows):
            place = places[order[row]]
            sizes[row] = _choose(known, place, offsets, row < n_many, unknown[row])
            _residual(given, known, place, offsets, mean, left[row])
        if n_many:
            _invert(covariance, n, triangle, factor, corner, precision)
            _multiply_rows(left, 0, n_many, precision, n, product)
            _solve(precision, product, -1, 0, n_many, unknown, sizes, lanes, systems, left)
            for row in range(n_many):
                if sizes[row] < 0:  # an inverse that rounding has spoiled: known pixels decide
                    place = places[order[row]]
                    order[n_rows], order[row] = order[row], -1
                    sizes[n_rows] = _choose(known, place, offsets, False, unknown[n_rows])
                    _residual(given, known, place, offsets, mean, left[n_rows])
                    n_rows += 1
            if denoises:
                _multiply_rows(left, 0, n_many, precision, n, product)
                _subtract(left, variance, product, 0, n_many, n)
        _add_rows(left, 0, n_many, mean, order, places, offsets, values, marks)
        _solve(covariance, left, 1, n_many, n_rows, unknown, sizes, lanes, systems, left)
        _multiply_rows(left, n_many, n_rows, covariance, n, product)
        if denoises:
            _subtract(product, variance, left, n_many, n_rows, n)
        _add_rows(product, n_many, n_rows, mean, order, places, offsets, values, marks)


@_inlined
def _gather(guide, start, members, steps, offsets, places, patches):
    """Where the members of a group begin, and their pixels."""
    for i in range(places.shape[0]):
        places[i] = start + steps[members[i]]
        for j in range(offsets.shape[0]):
            patches[i, j] = guide[places[i] + offsets[j]]


@_inlined
def _order(n_known, places, n, denoises, ends, order):
    """Members with few missing pixels, then those with few known ones, each by that number.

    Returns how many there are of the first, and of both. Complete ones are left out, or the first.
    """
    ends[:] = 0  # of members whose smaller number is this, after n: in the second part
    half = (n + 1) // 2
    for i in range(places.shape[0]):
        here = n_known[places[i]]
        ends[(n - here if 2 * here > n else half + here) + 1] += 1
    if not denoises:
        ends[1] = 0
    for i in range(1, ends.shape[0]):
        ends[i] += ends[i - 1]
    n_many, number = ends[half], ends[ends.shape[0] - 1]
    for i in range(places.shape[0]):
        here = n_known[places[i]]
        if here < n or denoises:
            key = n - here if 2 * here > n else half + here
            order[ends[key]] = i
            ends[key] += 1
    return n_many, number


@_inlined
def _choose(known, start, offsets, missing, chosen):
    """Indices of the missing pixels of a patch, or of the others; returns how many there are."""
    number = 0
    for j in range(offsets.shape[0]):
        chosen[number] = j
        number += known[start + offsets[j]] != missing
    return number


@_inlined
def _residual(given, known, start, offsets, mean, row):
    """The known pixels of a patch, less the mean; missing ones are zero."""
    for j in range(offsets.shape[0]):
        pixel = start + offsets[j]
        row[j] = given[pixel] - mean[j] if known[pixel] else 0


@_inlined
def _solve(matrix, right, sign, first, last, unknown, sizes, lanes, systems, solutions):
    """Solve the systems of some rows, as many at once as a register has lanes.

    Where a solution is not finite, the row becomes zero, and its size -1.
    """
    for start in range(first, last, lanes):
        stop = min(start + lanes, last)
        size = 0
        for row in range(start, stop):
            size = max(size, padded(sizes[row], SIDE))
        _set_systems(matrix, unknown, sizes, start, stop, lanes, size, systems)
        _set_right(right, sign, unknown, sizes, start, stop, lanes, size, systems)
        solve_systems(systems, size)
        for row in range(start, stop):
            chosen, solution = unknown[row], solutions[row]
            if not _take(systems, chosen, sizes[row], row - start, lanes, size, solution):
                solution[:] = 0
                sizes[row] = -1


@_inlined
def _set_systems(matrix, unknown, sizes, first, last, lanes, size, systems):
    """The lower triangles of parts of a matrix, one in each lane; beyond them, the identity."""
    for lane in range(lanes):
        number = sizes[first + lane] if first + lane < last else 0
        chosen = unknown[min(first + lane, last - 1)]
        for i in range(number):
            row, place = matrix[chosen[i]], i * size * lanes + lane
            for j in range(i + 1):
                systems[place + j * lanes] = row[chosen[j]]
        for i in range(number, size):
            place = i * size * lanes + lane
            for j in range(i):
                systems[place + j * lanes] = 0
            systems[place + i * lanes] = 1


@_inlined
def _set_right(rows, sign, unknown, sizes, first, last, lanes, size, systems):
    """Right-hand sides: entries of some rows, after the systems."""
    right = size * size * lanes
    for lane in range(lanes):
        row = first + lane
        number = sizes[row] if row < last else 0
        for j in range(number):
            systems[right + j * lanes + lane] = sign * rows[row, unknown[row, j]]
        for j in range(number, size):
            systems[right + j * lanes + lane] = 0


@_inlined
def _take(systems, chosen, number, lane, lanes, size, row):
    """Write a solution into a row; returns whether it is finite."""
    right = size * size * lanes + lane
    total = row[0] * 0
    for j in range(number):
        value = systems[right + j * lanes]
        row[chosen[j]] = value
        total += value * 0
    return total == 0


@_inlined
def _subtract(rows, factor, others, first, last, n):
    for row in range(first, last):
        for j in range(n):
            rows[row, j] -= factor * others[row, j]


@_inlined
def _add_rows(rows, first, last, mean, order, places, offsets, values, marks):
    for row in range(first, last):
        if order[row] >= 0:
            start = places[order[row]]
            marks[start] += 1
            for j in range(offsets.shape[0]):
                values[start + offsets[j]] += rows[row, j] + mean[j]


@_inlined
def _add_variance(products, n, k, variance, rounding):
    """Make a covariance of sums over k patches, plus white noise and what rounding may hide."""
    largest = products[0, 0]
    for j in range(n):
        largest = max(largest, products[j, j])
    for j in range(n):
        products[j, j] += k * variance + rounding * largest
        for m in range(j, n):
            products[j, m] /= k
            products[m, j] = products[j, m]


@_inlined
def _multiply_rows(left, first, last, matrix, n, out):
    """Some rows times a matrix; up to a tile of rows after them is written as well."""
    columns = matrix.shape[1]
    for i in range(first, last, TILE_ROWS):
        for j in range(0, columns, TILE_COLUMNS):
            place = i * columns + j
            set_tile(left, i * columns, columns, 1, matrix, j, columns, n, out, place, columns)


@_inlined
def _invert(matrix, n, triangle, factor, corner, inverse):
    """The inverse of a positive definite matrix, by its Cholesky factor."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            triangle[i, j] = matrix[i, j]
            factor[i, j] = i == j and i < n
    solve(triangle, factor, n, corner)
    multiply(factor, (1, factor.shape[1]), factor, n, inverse, True)
    for i in range(n):
        for j in range(i):
            inverse[i, j] = inverse[j, i]
