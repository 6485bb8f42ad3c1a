"""Selection of the largest entries of every row, for the kernels of `triton_kernels`.

`coefs` is a tuple of blocks of columns, with the numbers of these columns in `columns`. Magnitudes
are compared through their bits, as integers where neighbours are searched. A threshold is such an
integer: entries at or above it are kept. Arguments in the singular, such as `threshold` or `wanted`
(how many entries to keep), have one value for each row.

The threshold of an earlier pass is tried first. After a small change of the transform it is right
for nearly all rows and misses the others by an entry, so that all rows take a step to the next
entry, or STEPS of them, without a branch. Rows that miss by more, or meet a tie, are settled by
stepping on, or bisected. Zeros are never kept: a threshold is at least 1.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that Triton infers.

from __future__ import annotations

import triton
import triton.language as tl

MOST = tl.constexpr(0x7FFFFFFF)  # the bits of all magnitudes are below
OCTAVE = tl.constexpr(2**23)  # distance between the bits of x and 2x
NEAR = tl.constexpr(3)  # entries to step over rather than to bisect

# What is left to do for a row; of rows together, the largest.
DONE, TIED, MOVES = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def select(coefs, columns, wanted, threshold, STEPS: tl.constexpr):
    """Threshold and end that keep the `wanted` largest entries, from a guess of the threshold.

    All entries at or above the threshold are kept and, in tied rows, those just below it in the
    columns before the end. Also returns whether any row is tied; the end of other rows is 0.
    """
    count = _count(coefs, threshold)
    for _ in tl.static_range(STEPS):
        threshold, count = _stepped(coefs, wanted, threshold, count)
    end = tl.zeros_like(threshold)
    any_tied = False
    if tl.max(_misses(wanted, threshold, count), 0) > 0:
        count = _count(coefs, threshold)
        most_misses = tl.max(_misses(wanted, threshold, count), 0)
        low, high = (
            tl.where(count > wanted, threshold, 0),
            tl.where(count < wanted, threshold, MOST),
        )
        if most_misses > NEAR:
            threshold, count, low, high = _bisected(coefs, wanted, threshold, count, low, high)
        threshold, low, tied, any_tied = _settled(coefs, wanted, threshold, count, low, high)
        if any_tied:
            end = tl.where(tied, _end_of_ties(coefs, columns, wanted, low), 0)
    return threshold, end, any_tied


@triton.jit
def selected(block, columns, threshold, end, any_tied):
    """Entries at or above the threshold, and in columns before `end` also those just below it."""
    above, tie = (
        threshold.to(tl.float32, bitcast=True),
        (threshold - 1).to(tl.float32, bitcast=True),
    )
    kept = tl.where(tl.abs(block) >= above[:, None], block, 0.0)
    if any_tied:
        limit = tl.where(columns[None, :] < end[:, None], tie[:, None], above[:, None])
        kept = tl.where(tl.abs(block) >= limit, block, 0.0)
    return kept


@triton.jit
def _stepped(coefs, wanted, threshold, count):
    """Thresholds that miss, moved past one entry into the middle of the next gap, and the counts.

    A threshold that meets a tie gets a count that misses: how many entries it passes is not known.
    """
    upwards, moves = count > wanted, _misses(wanted, threshold, count) > 0
    nearest, second = _next_two(coefs, threshold, upwards)
    above, below = tl.where(upwards, second, nearest), tl.where(upwards, nearest, second)
    past = tl.maximum(above - ((above - below) >> 1), 1)
    after = tl.where(nearest == second, wanted + 1, count + tl.where(upwards, -1, 1))
    after = tl.where(nearest == 0, count, after)  # only zeros are below: no entry is missing
    return tl.where(moves, past, threshold), tl.where(moves, after, count)


@triton.jit
def _bisected(coefs, wanted, threshold, count, low, high):
    """Thresholds that miss by at most NEAR entries, except where `low` and `high` are neighbours.

    More than `wanted` entries reach `low`, fewer reach `high`. From the largest entry, which the
    threshold is rarely far below, steps go down by two octaves and then double the way, until they
    can halve the distance between the two.
    """
    largest = _largest(coefs, threshold)
    high = tl.minimum(high, largest + 1)
    far = (_misses(wanted, threshold, count) > NEAR) & (high - low > 1)
    while tl.max(far.to(tl.int32), 0) > 0:
        step = tl.maximum(2 * OCTAVE, largest - high)
        threshold = tl.where(far, high - tl.minimum(step, (high - low) >> 1), threshold)
        count = _count(coefs, threshold)
        low = tl.where(count > wanted, threshold, low)
        high = tl.where(count < wanted, threshold, high)
        far = (_misses(wanted, threshold, count) > NEAR) & (high - low > 1)
    return threshold, count, low, high


@triton.jit
def _settled(coefs, wanted, threshold, count, low, high):
    """Thresholds that step from entry to entry, the last step into the middle of a gap; or ties.

    Of tied rows, if there are any, the threshold is just above the tie, which `low` is.
    """
    state = MOVES
    while state == MOVES:
        upwards = count > wanted
        moves = (_misses(wanted, threshold, count) > 0) & (high - low > 1)
        entry = _next_entry(coefs, threshold, upwards)
        low = tl.where(moves & upwards, entry, low)
        high = tl.where(moves & ~upwards, entry + 1, high)
        past = tl.where(upwards, entry + 1, tl.maximum(entry, 1))
        threshold = tl.where(moves, past, threshold)
        count = _count(coefs, threshold)
        entry = _next_entry(coefs, threshold, upwards)
        above, below = tl.where(upwards, entry, threshold), tl.where(upwards, threshold - 1, entry)
        threshold = tl.where(moves & (count == wanted), above - ((above - below) >> 1), threshold)
        open_state = tl.where(high - low > 1, MOVES, TIED)
        state = tl.max(tl.where(_misses(wanted, threshold, count) > 0, open_state, DONE), 0)
    tied = _misses(wanted, threshold, count) > 0
    return tl.where(tied, high, threshold), low, tied, state == TIED


@triton.jit
def _end_of_ties(coefs, columns, wanted, tie):
    """Where to stop keeping entries equal to the tie: before the first that is one too many."""
    missing = wanted - _count(coefs, tie + 1)
    level = tie.to(tl.float32, bitcast=True)[:, None]
    end = tl.zeros_like(tie)
    step = 128
    while step > 0:
        ties = tl.zeros_like(tie)
        for i in tl.static_range(len(coefs)):
            before = columns[i][None, :] < (end + step)[:, None]
            ties += tl.sum(tl.where((tl.abs(coefs[i]) == level) & before, 1, 0), 1)
        end = tl.where(ties <= missing, end + step, end)
        step = step // 2
    return end


@triton.jit
def _next_entry(coefs, threshold, upwards):
    """Least magnitude at or above the threshold, or largest below it; if none, it or 0."""
    # Flipped bits turn "largest below" into "least above"; those on the other side of the threshold
    # become the largest of all unsigned integers. The sign is masked last: a compiler that can
    # take it off first keeps all magnitudes in registers, next to the entries.
    flip = tl.where(upwards, 0, -1)
    bound = tl.where(upwards, threshold, MOST - threshold + 1)
    nearest = (tl.zeros_like(threshold) - 1).to(tl.uint32, bitcast=True)
    for i in tl.static_range(len(coefs)):
        sizes = (coefs[i].to(tl.int32, bitcast=True) ^ flip[:, None]) & MOST
        distances = (sizes - bound[:, None]).to(tl.uint32, bitcast=True)
        nearest = tl.minimum(nearest, tl.min(distances, 1))
    distance = nearest.to(tl.int32, bitcast=True)
    return tl.where(
        distance < 0, tl.where(upwards, threshold, 0), ((distance + bound) ^ flip) & MOST
    )


@triton.jit
def _next_two(coefs, threshold, upwards):
    """The two least magnitudes at or above the threshold, or the two largest below it.

    If there is no second one above, it is taken just above the first; below, missing ones are 0.
    """
    flip = tl.where(upwards, 0, -1)  # as in `_next_entry`
    bound = tl.where(upwards, threshold, MOST - threshold + 1)
    least = (tl.zeros_like(threshold) - 1).to(tl.uint32, bitcast=True)
    next_least = least
    for i in tl.static_range(len(coefs)):
        sizes = (coefs[i].to(tl.int32, bitcast=True) ^ flip[:, None]) & MOST
        distances = (sizes - bound[:, None]).to(tl.uint32, bitcast=True)
        beyond = (tl.zeros_like(sizes) - 1).to(tl.uint32, bitcast=True)
        one, two = tl.reduce((distances, beyond), 1, _two_least)
        least, next_least = _two_least(least, next_least, one, two)
    near, far = least.to(tl.int32, bitcast=True), next_least.to(tl.int32, bitcast=True)
    nearest = tl.where(near < 0, 0, ((near + bound) ^ flip) & MOST)
    beside = tl.where(upwards, nearest + 1, 0)
    return nearest, tl.where(far < 0, beside, ((far + bound) ^ flip) & MOST)


@triton.jit
def _two_least(least, next_least, other, next_other):
    """The two least of four numbers; of each pair the first is the smaller one."""
    larger = tl.maximum(least, other)
    return tl.minimum(least, other), tl.minimum(larger, tl.minimum(next_least, next_other))


@triton.jit
def _largest(coefs, threshold):
    largest = tl.zeros_like(threshold)
    for i in tl.static_range(len(coefs)):
        magnitude = tl.max(tl.abs(coefs[i]), 1)
        largest = tl.maximum(largest, magnitude.to(tl.int32, bitcast=True))
    return largest


@triton.jit
def _count(coefs, threshold):
    """Number of entries at or above the threshold."""
    level = threshold.to(tl.float32, bitcast=True)[:, None]
    count = tl.zeros_like(threshold)
    for i in tl.static_range(len(coefs)):
        reached = tl.where(tl.abs(coefs[i]) >= level, 1.0, 0.0)
        count += tl.sum(reached, 1).to(tl.int32)
    return count


@triton.jit
def _misses(wanted, threshold, count):
    """By how many entries a threshold misses; one that keeps all but zeros does not miss."""
    return tl.where((threshold == 1) & (count < wanted), 0, tl.abs(count - wanted))
