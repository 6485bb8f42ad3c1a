"""The parts of the compiled kernel that denoises groups of patches (`kernels.denoise_groups`).

Matrices are padded with zeros to whole tiles.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np

from kappaform.imaging.cleaning.vector_kernels import (
    RUN,
    TILE_COLUMNS,
    TILE_ROWS,
    copy_run,
    set_tile,
    subtract_tile,
)
from kappaform.jit import REORDERED, inlined

_inlined = inlined(REORDERED)


@_inlined
def padded(number, side):
    return -(-number // side) * side


@_inlined
def gather_group(image, places, runs, width, patches):
    """Patches of an image, one in each row."""
    columns, n = patches.shape[1], runs.shape[0] * width
    for i in range(places.shape[0]):
        for j in range(runs.shape[0]):
            copy_run(image, places[i] + runs[j], patches, i * columns + j * width)
        for j in range(n, n + RUN - width):  # the last run has copied more
            patches[i, j] = 0


@_inlined
def deviation(patches, others, k, n):
    """Standard deviation of the difference of two groups."""
    total = patches[0, 0] * 0
    power = patches[0, 0] * 0
    for i in range(k):
        ours, theirs = patches[i], others[i]
        for j in range(ours.shape[0]):
            difference = ours[j] - theirs[j]
            total += difference
            power += difference * difference
    mean = total / (n * k)
    return np.sqrt(max(power / (n * k) - mean * mean, 0.0))


@_inlined
def centre(patches, k, mean):
    """Subtract the mean of k patches, and return it in `mean`."""
    mean[:] = 0
    for i in range(k):
        row = patches[i]
        for j in range(mean.shape[0]):
            mean[j] += row[j]
    for j in range(mean.shape[0]):
        mean[j] /= k
    for i in range(k):
        row = patches[i]
        for j in range(mean.shape[0]):
            row[j] -= mean[j]


@_inlined
def power(patches, k):
    """Sum of the squares of k patches."""
    total = patches[0, 0] * 0
    for i in range(k):
        row = patches[i]
        for j in range(row.shape[0]):
            total += row[j] * row[j]
    return total


@_inlined
def multiply(left, steps, right, depth, out, is_symmetric):
    """A product of two matrices; `steps` lead from row to row and from column to column.

    Of a symmetric one, tiles below the diagonal are left out.
    """
    columns = right.shape[1]
    for i in range(0, out.shape[0], TILE_ROWS):
        for j in range(i - i % TILE_COLUMNS if is_symmetric else 0, columns, TILE_COLUMNS):
            place = i * columns + j
            set_tile(left, i * steps[0], *steps, right, j, columns, depth, out, place, columns)


@_inlined
def add_noise(matrix, variance, covariance, rounding):
    """Add the covariance of the noise, and as much as rounding may hide; return that."""
    n = covariance.shape[0]
    largest = matrix[0, 0]
    for i in range(n):
        largest = max(largest, matrix[i, i])
    for i in range(n):
        row, noise = matrix[i], covariance[i]
        for j in range(n):
            row[j] += variance * noise[j]
        row[i] += rounding * largest
    return rounding * largest


@_inlined
def solve(matrix, columns, n, inverse):
    """Solve Uᵀ F = columns in place, where Uᵀ U = matrix, of n rows: U takes its place.

    Both lose what the rows above contribute, tile by tile; then the rows of a tile are multiplied
    by the inverse of the transposed triangle that they have in U.
    """
    width, length = matrix.shape[1], columns.shape[1]
    for i in range(0, n, TILE_ROWS):
        first, row, other = i - i % TILE_COLUMNS, i * width, i * length
        for j in range(first, width, TILE_COLUMNS):
            subtract_tile(matrix, i, 1, width, matrix, j, width, i, matrix, row + j, width)
        for j in range(0, length, TILE_COLUMNS):
            subtract_tile(matrix, i, 1, width, columns, j, length, i, columns, other + j, length)
        _invert_triangle(matrix, i, min(TILE_ROWS, n - i), inverse)
        for j in range(first, width, TILE_COLUMNS):
            set_tile(
                inverse, 0, TILE_ROWS, 1, matrix, row + j, width, TILE_ROWS, matrix, row + j, width
            )
        for j in range(0, length, TILE_COLUMNS):
            set_tile(
                inverse, 0, TILE_ROWS, 1, columns, other + j, length, TILE_ROWS,
                columns, other + j, length,
            )  # fmt: skip


@_inlined
def _invert_triangle(matrix, first, number, inverse):
    """The inverse of L, where L Lᵀ is a block on the diagonal; rows after the number are zero."""
    inverse[:] = 0
    for i in range(number):
        for j in range(i + 1):
            rest = matrix[first + j, first + i]
            for m in range(j):
                rest -= inverse[i, m] * inverse[j, m]
            inverse[i, j] = 1 / np.sqrt(rest) if i == j else rest * inverse[j, j]
    for i in range(number):  # L, with the inverses of its diagonal, becomes its inverse
        for j in range(i):
            total = inverse[i, j] * inverse[j, j]
            for m in range(j + 1, i):
                total += inverse[i, m] * inverse[m, j]
            inverse[i, j] = -total * inverse[i, i]


@_inlined
def square_norms(rows, n, norms):
    """Add the squared norms of the columns of the first n rows."""
    for i in range(n):
        row = rows[i]
        for j in range(norms.shape[0]):
            norms[j] += row[j] * row[j]
