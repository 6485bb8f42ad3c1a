"""Compiled kernel that finds similar patches: block matching.

Images have three axes; a plane has a first axis of length 1. A member of a group is the number of
its shift from the reference patch.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np

from kappaform.imaging.cleaning.vector_kernels import (
    LANES,
    add_squares,
    lowest_bit,
    set_squares,
    sums_below,
)
from kappaform.jit import inlined, kernel

# Sums may be reordered: that is what makes them fast, and on one machine they are always the same.
_FLAGS = {"contract", "reassoc", "nsz", "arcp"}
_kernel, _inlined = kernel(_FLAGS), inlined(_FLAGS)


@_kernel
def nearest(planes, size, sides, stride, first, lane, shifts, run, members):
    """The shifts of the patches that are nearest to reference patches, themselves included.

    References begin at `first`, at every `stride` rows, and at every S columns, where S is the
    number of planes: plane v has the columns v, v + S, v + 2 S, ... of the image. Vectors of the
    entries of a plane then hold what S columns contribute to neighbouring references. A distance
    is a sum over blocks of `stride` x S pixels, each of which serves several references; if blocks
    do not fill what is compared, their first rows and columns, the heads, are summed apart.

    planes : (S, *axes of the image); rows have room for all shifts and for LANES references more
    size : of the image
    sides : of what is compared
    lane : place of the first reference in a row of a plane
    shifts : in runs of length `run` that differ in their last entry, which are the same in each
    members : (rows, references of a row, members) receives the numbers of shifts; of equally near
        patches the first are taken
    """
    n_planes, _, height, pitch = planes.shape
    n_rows, n_refs, n_members = members.shape
    n_blocks, n_head = sides[1] // stride, sides[1] % stride
    across, n_heads = sides[2] // n_planes, (sides[2] % n_planes) * sides[0]
    lanes = -(-(n_refs + across + (n_heads > 0)) // LANES) * LANES
    # Sums of squares of the last blocks: rows of the head, all rows; columns likewise. Lanes are
    # followed by zeros, which sums of neighbouring blocks read.
    parts = np.zeros((n_blocks + 1, 2, 2, run, lanes + LANES), planes.dtype)
    terms = np.zeros((n_blocks + 1) * (across + 1), np.int64)
    here, there = _steps_of_pixels(planes, sides[0], shifts[:run, 2])
    room = size[2] - sides[2] - first[2]
    bounds = _references_inside(first[2], room, n_planes, n_refs, shifts[:run, 2])
    near = np.zeros((n_rows, n_refs, 2 * n_members), np.float32)  # distances that may be the least
    numbers = np.zeros((n_rows, n_refs, 2 * n_members), np.uint16)
    counts = np.zeros((n_rows, n_refs), np.int64)
    limits = np.full((n_rows, lanes), np.float32(-1.0))  # lanes without a reference find nothing
    limits[:, :n_refs] = np.inf
    for base in range(0, shifts.shape[0], run):
        a, shift = first[0] + shifts[base, 0], shifts[base, 1]
        low = max(0, -((first[1] + shift) // stride))
        high = min(n_rows, (size[1] - sides[1] - first[1] - shift) // stride + 1)
        if a < 0 or a + sides[0] > size[0] or low >= high:
            continue
        for block in range(low, high + n_blocks - (n_head == 0)):
            b = first[1] + block * stride
            ours = (first[0] * height + b) * pitch + lane
            theirs = (a * height + b + shift) * pitch + lane
            n_rows_here = stride if block < high + n_blocks - 1 else n_head
            some = parts[block % (n_blocks + 1)]
            _square(planes, ours, theirs, here, there, n_rows_here, n_head, n_heads, some)
            row = block - n_blocks + (n_head == 0)
            if row >= low:
                n_terms = _set_terms(parts, row, n_head > 0, across, n_heads > 0, terms)
                _take_nearer(
                    parts, terms, n_terms, bounds, base, limits[row], near[row], numbers[row],
                    counts[row],
                )  # fmt: skip
    for row in range(n_rows):
        for ref in range(n_refs):
            _keep_nearest(near[row, ref], numbers[row, ref], counts[row, ref], n_members)
            for i in range(n_members):
                members[row, ref, i] = numbers[row, ref, i]


@_inlined
def _steps_of_pixels(planes, depth, columns):
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


@_inlined
def _references_inside(first, room, step, n_refs, columns):
    """First and last (excluded) reference whose patch is inside the image, for each shift."""
    bounds = np.zeros((columns.shape[0], 2), np.int64)
    for j in range(columns.shape[0]):
        bounds[j, 0] = min(max(0, -((first + columns[j]) // step)), n_refs)
        bounds[j, 1] = max(min(n_refs, (room - columns[j]) // step + 1), bounds[j, 0])
    return bounds


@_inlined
def _square(planes, ours, theirs, here, there, n_rows, n_head, n_heads, parts):
    """Sums of squared differences of some rows of a block, and of its heads."""
    _, _, run, length = parts.shape
    row, n, later = planes.shape[3], here.shape[0], n_head * planes.shape[3]
    for j in range(run):
        for u in range(0, length - LANES, LANES):
            one, other, place = ours + u, theirs + u, j * length + u
            top, side = place + run * length, place + 2 * run * length
            whole = side + run * length
            if n_head == 0 and n_heads == 0:
                set_squares(
                    planes, one, here, other, there, j * n, 0, n, row, n_rows, parts, whole, whole
                )
                continue
            # The sum over the corner is a part of those over the top rows and the first columns.
            set_squares(
                planes, one, here, other, there, j * n, 0, n_heads, row, n_head, parts, place, place
            )
            add_squares(
                planes, one, here, other, there, j * n, n_heads, n, row, n_head, parts, place, top
            )
            one, other, n_more = one + later, other + later, n_rows - n_head
            add_squares(
                planes, one, here, other, there, j * n, 0, n_heads, row, n_more, parts, place, side
            )
            add_squares(
                planes, one, here, other, there, j * n, 0, n, row, n_more, parts, top, whole
            )


@_inlined
def _set_terms(parts, first, has_head, across, has_heads, terms):
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


@_inlined
def _take_nearer(parts, terms, n_terms, bounds, base, limits, near, numbers, counts):
    """Add the patches at the shifts of a run that are nearer than the farthest of those found."""
    run, length = parts.shape[3:]
    n_members = near.shape[1] // 2
    distances = np.empty(LANES, np.float32)
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
                        limits[ref] = _keep_nearest(near[ref], numbers[ref], count, n_members)
                        count = n_members
                    counts[ref] = count


@_inlined
def _keep_nearest(distances, numbers, count, n_members):
    """Move the nearest members to the front, in their order; return the largest distance of these.

    It is bracketed by bisection of the distances as integers, which have the same order.
    """
    values = distances.view(np.int32)
    low, high = values[0], values[0]
    for i in range(count):
        low, high = min(low, values[i]), max(high, values[i])
    while low < high:
        middle = low + (high - low) // 2
        n_below = 0
        for i in range(count):
            n_below += values[i] <= middle
        if n_below < n_members:
            low = middle + 1
        else:
            high = middle
            if n_below == n_members:
                break
    n_equal = n_members
    for i in range(count):
        n_equal -= values[i] < high
    place = 0
    for i in range(count):
        value, number = values[i], numbers[i]
        values[place], numbers[place] = value, number
        place += value < high or (value == high and n_equal > 0)
        n_equal -= value == high
    bound = distances[0]
    for i in range(n_members):
        bound = max(bound, distances[i])
    return bound
