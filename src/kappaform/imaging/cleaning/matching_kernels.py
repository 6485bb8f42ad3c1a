"""The parts of the compiled kernel that finds similar patches (`kernels.nearest`)."""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np

from kappaform.engines.kernels import lowest_bit
from kappaform.imaging.cleaning.vector_kernels import (
    LANES,
    SHIFTS,
    add_many_squares,
    add_squares,
    set_many_squares,
    set_squares,
    sums_below,
)
from kappaform.jit import REORDERED, inlined

_inlined, _allocating = inlined(REORDERED), inlined(REORDERED, allocates=True)


@_allocating
def steps_of_pixels(planes, depth, columns):
    """Steps to the planes of the columns of a block, for each layer: of references, and at shifts.

    Those at shifts are (shifts, S times layers).
    """
    n_planes, size = planes.shape[0], planes[0].size
    layer = planes.shape[2] * planes.shape[3]
    here = np.zeros(n_planes * depth, np.int64)
    there = np.zeros((columns.shape[0], n_planes * depth), np.int64)
    for v in range(n_planes):
        for a in range(depth):
            here[v * depth + a] = v * size + a * layer
            for j in range(columns.shape[0]):
                column = v + columns[j]
                step = column % n_planes * size + column // n_planes
                there[j, v * depth + a] = step + a * layer
    return here, there


@_allocating
def references_inside(first, room, step, n_refs, columns):
    """First and last (excluded) reference whose patch is inside the image, for each shift."""
    bounds = np.zeros((columns.shape[0], 2), np.int64)
    for j in range(columns.shape[0]):
        bounds[j, 0] = min(max(0, -((first + columns[j]) // step)), n_refs)
        bounds[j, 1] = max(min(n_refs, (room - columns[j]) // step + 1), bounds[j, 0])
    return bounds


def _squares_at(set_squares, add_squares):
    """The function that computes the sums of some rows of a block, and of its heads, at shifts."""

    @_inlined
    def squares(planes, ours, theirs, here, there, j, n_rows, n_head, n_heads, parts):
        _, _, run, length = parts.shape
        row, n, later = planes.shape[3], here.shape[0], n_head * planes.shape[3]
        for u in range(0, length - LANES, LANES):
            one, other, place = ours + u, theirs + u, j * length + u
            top, side = place + run * length, place + 2 * run * length
            whole = side + run * length
            if n_head == 0 and n_heads == 0:
                set_squares(
                    planes, one, here, other, there, j * n, n, 0, n, row, n_rows,
                    parts, whole, whole, length,
                )  # fmt: skip
                continue
            # The sum over the corner is a part of those over the top rows and the first columns.
            set_squares(
                planes, one, here, other, there, j * n, n, 0, n_heads, row, n_head,
                parts, place, place, length,
            )  # fmt: skip
            add_squares(
                planes, one, here, other, there, j * n, n, n_heads, n, row, n_head,
                parts, place, top, length,
            )  # fmt: skip
            one, other, n_more = one + later, other + later, n_rows - n_head
            add_squares(
                planes, one, here, other, there, j * n, n, 0, n_heads, row, n_more,
                parts, place, side, length,
            )  # fmt: skip
            add_squares(
                planes, one, here, other, there, j * n, n, 0, n, row, n_more,
                parts, top, whole, length,
            )  # fmt: skip

    return squares


_squares_at_one = _squares_at(set_squares, add_squares)
_squares_at_many = _squares_at(set_many_squares, add_many_squares)


@_inlined
def square_block(planes, ours, theirs, here, there, n_rows, n_head, n_heads, parts):
    """Sums of squared differences of some rows of a block, and of its heads, at all shifts."""
    run = parts.shape[2]
    rest = run - run % SHIFTS
    for j in range(0, rest, SHIFTS):
        _squares_at_many(planes, ours, theirs, here, there, j, n_rows, n_head, n_heads, parts)
    for j in range(rest, run):
        _squares_at_one(planes, ours, theirs, here, there, j, n_rows, n_head, n_heads, parts)


@_inlined
def set_terms(parts, first, has_head, across, has_heads, terms):
    """Steps to the parts of blocks that make up the distances of a row; returns their number."""
    n_ring, _, _, run, length = parts.shape
    count = 0
    for i in range(n_ring if has_head else n_ring - 1):
        block, m = (first + i) % n_ring, int(i < n_ring - 1)
        for j in range(across + 1 if has_heads else across):
            v = int(j < across)
            terms[count] = ((block * 2 + m) * 2 + v) * run * length + j
            count += 1
    return count


@_allocating
def take_nearer(parts, terms, n_terms, bounds, base, limits, near, numbers, counts):
    """Add the patches at the shifts of a run that are nearer than the farthest of those found."""
    run, length = parts.shape[3:]
    n_members = near.shape[1] // 2
    distances = np.empty(LANES, parts.dtype)
    for j in range(run):
        low, high = bounds[j, 0], bounds[j, 1]
        for u in range(0, limits.shape[0], LANES):
            bits = sums_below(parts, j * length + u, terms, n_terms, limits, u, distances)
            while bits != 0:
                lane = lowest_bit(bits)
                bits &= bits - 1
                ref = u + lane
                if low <= ref < high:
                    count = counts[ref]
                    near[ref, count] = distances[lane]
                    numbers[ref, count] = base + j
                    count += 1
                    if count == 2 * n_members:
                        limits[ref] = keep_nearest(near[ref], numbers[ref], count, n_members)
                        count = n_members
                    counts[ref] = count


@_inlined
def keep_nearest(distances, numbers, count, n_members):
    """Move the nearest members to the front, in their order; return the largest distance of these.

    A bound that separates them from the others is found by bisection.
    """
    low, high = distances[0], distances[0]
    for i in range(count):
        low, high = min(low, distances[i]), max(high, distances[i])
    if _n_within(distances, count, low) >= n_members:
        high = low
    while low < high:
        middle = low + (high - low) / 2
        if middle <= low or middle >= high:
            break
        n_within = _n_within(distances, count, middle)
        if n_within < n_members:
            low = middle
        else:
            high = middle
            if n_within == n_members:
                break
    n_equal = n_members  # of those at the bound that are kept
    for i in range(count):
        n_equal -= distances[i] < high
    place = 0
    for i in range(count):
        distance, number = distances[i], numbers[i]
        distances[place], numbers[place] = distance, number
        place += distance < high or (distance == high and n_equal > 0)
        n_equal -= distance == high
    bound = distances[0]
    for i in range(n_members):
        bound = max(bound, distances[i])
    return bound


@_inlined
def _n_within(distances, count, bound):
    number = 0
    for i in range(count):
        number += distances[i] <= bound
    return number
