"""Compiled kernel that denoises the patches of a group jointly.

Images are flat. A member of a group is the number of its shift from the reference patch. Matrices
are padded with zeros to whole tiles.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np

from kappaform.imaging.cleaning.vector_kernels import (
    RUN,
    TILE_COLUMNS,
    TILE_ROWS,
    add_run,
    copy_run,
    set_tile,
    subtract_tile,
    transpose_square,
)
from kappaform.jit import inlined, kernel

# Sums may be reordered: that is what makes them fast, and on one machine they are always the same.
_FLAGS = {"contract", "reassoc", "nsz", "arcp"}
_kernel, _inlined = kernel(_FLAGS), inlined(_FLAGS)

#: Least standard deviation of the noise in the partially denoised image: its estimate may be 0.
LEAST_LEFT = 0.01
#: Least fraction of its weight that a group keeps where rounding hides what its patches show.
LEAST_TRUST = 2.0**-10


@_kernel
def denoise_groups(
    noisy,
    partial,
    guide,
    covariance,
    starts,
    members,
    steps,
    runs,
    width,
    fraction,
    rounding,
    values,
    weights,
):
    """Denoise groups of patches and add them to images of sums.

    A patch consists of `runs` of pixels, each of the same `width` of at most `RUN`. Whole runs of
    `RUN` pixels are read and written: all images are longer by this number than their pixels.

    noisy, partial, guide : flat images: as given, partially denoised, and the best estimate so far
    covariance : of the noise of a patch; the mean of its diagonal is 1
    starts, members : first pixels of the reference patches, and the members of their groups
    steps : from a reference to the first pixel of a member, for each number of a shift
    runs : from the first pixel of a patch to the first one of each run
    fraction : of the noise that `partial` shall keep
    rounding : relative, of sums of n products
    values : two flat images that receive weighted patches: denoised, and with that part of noise
    weights : two that receive the weights at the first pixel of each patch: the same for both, and
        of the part of `partial` that is kept in the second
    """
    n, k = covariance.shape[0], members.shape[1]
    rows = _padded(n, TILE_ROWS)
    columns = _padded(max(n + RUN - width, rows), TILE_COLUMNS)
    ranks = _padded(k, TILE_COLUMNS)
    known = np.zeros((_padded(ranks, TILE_ROWS), columns), guide.dtype)  # patches of the guide
    given = np.zeros_like(known)  # and of the partially denoised image
    denoised = np.zeros_like(known)
    mean, mean_known = np.zeros(columns, guide.dtype), np.zeros(columns, guide.dtype)
    factors = np.zeros((columns, ranks), guide.dtype)
    matrix = np.zeros((rows, columns), guide.dtype)
    product = np.zeros((rows, columns), guide.dtype)
    inverse = np.zeros((TILE_ROWS, TILE_ROWS), guide.dtype)
    norms = np.zeros(ranks, guide.dtype)
    shares = np.zeros((2, RUN), guide.dtype)  # of a patch in both sums, none beyond its runs
    places = np.empty(k, np.int64)
    for group in range(starts.shape[0]):
        for i in range(k):
            places[i] = starts[group] + steps[members[group, i]]
        _gather(noisy, places, runs, width, denoised)
        _gather(partial, places, runs, width, given)
        _gather(guide, places, runs, width, known)
        removed = _deviation(denoised, given, k, n)
        left = max(1 - removed, fraction, LEAST_LEFT)
        _centre(known, k, mean_known)
        _centre(given, k, mean)
        for i in range(0, ranks, TILE_COLUMNS):
            for j in range(0, columns, TILE_COLUMNS):
                transpose_square(known, i * columns + j, columns, factors, j * ranks + i, ranks)
        _multiply(known, (1, columns), known, k, matrix, True)
        hidden = _add_noise(matrix, n * left * left, covariance, rounding)
        trust = max(n / max(n, hidden), LEAST_TRUST)  # 1 without values of 10**7 times the noise
        _solve(matrix, factors, n, inverse)
        _multiply(factors, (ranks, 1), given, k, product, False)
        _multiply(factors, (1, ranks), product, n, denoised, False)
        _square_norms(factors, n, norms)
        kept = fraction / left
        for i in range(k):
            weight = trust / (norms[i] + 1 / k)
            weights[0, places[i]] += weight
            weights[1, places[i]] += weight * kept
            for j in range(width):
                shares[0, j] = weight
                shares[1, j] = weight * (1 - kept)
            for j in range(runs.shape[0]):
                here, there = i * columns + j * width, places[i] + runs[j]
                add_run(denoised, here, mean, j * width, shares[0], values[0], there)
                add_run(denoised, here, mean, j * width, shares[1], values[1], there)


@_inlined
def _padded(number, side):
    return -(-number // side) * side


@_inlined
def _gather(image, places, runs, width, patches):
    """Patches of an image, one in each row."""
    columns, n = patches.shape[1], runs.shape[0] * width
    for i in range(places.shape[0]):
        for j in range(runs.shape[0]):
            copy_run(image, places[i] + runs[j], patches, i * columns + j * width)
        for j in range(n, n + RUN - width):  # the last run has copied more
            patches[i, j] = 0


@_inlined
def _deviation(patches, others, k, n):
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
def _centre(patches, k, mean):
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
def _multiply(left, steps, right, depth, out, is_symmetric):
    """A product of two matrices; `steps` lead from row to row and from column to column.

    Of a symmetric one, tiles below the diagonal are left out.
    """
    columns = right.shape[1]
    for i in range(0, out.shape[0], TILE_ROWS):
        for j in range(i - i % TILE_COLUMNS if is_symmetric else 0, columns, TILE_COLUMNS):
            place = i * columns + j
            set_tile(left, i * steps[0], *steps, right, j, columns, depth, out, place, columns)


@_inlined
def _add_noise(matrix, variance, covariance, rounding):
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
def _solve(matrix, columns, n, inverse):
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
def _square_norms(rows, n, norms):
    """Squared norms of the columns of the first n rows."""
    norms[:] = 0
    for i in range(n):
        row = rows[i]
        for j in range(norms.shape[0]):
            norms[j] += row[j] * row[j]
