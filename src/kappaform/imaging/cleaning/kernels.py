"""Compiled kernels that denoise patches, alone or in groups, and aggregate them into an image.

Images are flat. The pixels of a patch are its first pixel (`starts`) plus `offsets`, in C order,
whatever the dimension of the image.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np

from kappaform.imaging.cleaning.group_kernels import (
    add_noise,
    centre,
    deviation,
    gather_group,
    multiply,
    padded,
    power,
    solve,
    square_norms,
)
from kappaform.imaging.cleaning.matching_kernels import (
    keep_nearest,
    references_inside,
    set_terms,
    square_block,
    steps_of_pixels,
    take_nearer,
)
from kappaform.imaging.cleaning.vector_kernels import (
    LANES,
    RUN,
    TILE_COLUMNS,
    TILE_ROWS,
    add_run,
    set_squares,
    transpose_square,
)
from kappaform.jit import REORDERED, inlined, kernel

_MOST_IN_RUN = 512  # patches: a few rows of the image and of patches stay in the cache

# Below are loops in place of array expressions: those take numba seconds to compile.

_kernel, _inlined = kernel(REORDERED), inlined(REORDERED)


@_inlined
def run_of_starts(starts, first):
    """How many patches from the first on begin next to each other, or as many as cache holds."""
    last = first + 1
    most = min(starts.shape[0], first + _MOST_IN_RUN)
    while last < most and starts[last] == starts[last - 1] + 1:
        last += 1
    return last - first


@_kernel
def gather(image, starts, offsets, patches, means):
    """Patches (columns) without their means, and the means.

    Patches that begin next to each other are read row by row: pixel j of all of them is one piece
    of the image.
    """
    n = offsets.shape[0]
    first = 0
    while first < starts.shape[0]:
        length = run_of_starts(starts, first)
        whole = means[first : first + length]
        whole[:] = 0
        for j in range(n):
            there = starts[first] + offsets[j]
            pixels = image[there : there + length]
            for i in range(length):
                whole[i] += pixels[i]
        for i in range(length):
            whole[i] /= n
        for j in range(n):
            there = starts[first] + offsets[j]
            pixels, row = image[there : there + length], patches[j, first : first + length]
            for i in range(length):
                row[i] = pixels[i] - whole[i]
        first += length


@_kernel
def gather_means(image, corners, sides, factors, unit, patches):
    """Patches of local sums, without their means, in other units.

    The image has three axes and any layout. `sides` are those of the patches that are returned; a
    pixel of these is a sum over `factors` of pixels. Patches are rounded once, at the end.
    """
    row = np.empty(patches.shape[1])
    is_sum = factors[0] * factors[1] * factors[2] > 1
    for i in range(corners.shape[0]):
        a, b, c = corners[i, 0], corners[i, 1], corners[i, 2]
        j = 0
        whole = 0.0
        for x in range(a, a + sides[0] * factors[0], factors[0]):
            for y in range(b, b + sides[1] * factors[1], factors[1]):
                for z in range(c, c + sides[2] * factors[2], factors[2]):
                    total = float(image[x, y, z])
                    if is_sum:
                        total = 0.0
                        for u in range(x, x + factors[0]):
                            for v in range(y, y + factors[1]):
                                for w in range(z, z + factors[2]):
                                    total += image[u, v, w]
                    row[j] = total
                    whole += total
                    j += 1
        mean = whole / j
        for m in range(j):
            patches[i, m] = np.divide(row[m] - mean, unit)  # without a check for 0


@_kernel
def scatter(patches, means, weights, starts, offsets, bounds, sums):
    """Add weighted patches (columns) to a flat image of sums."""
    low, high = bounds[0], bounds[1]
    first = 0
    while first < starts.shape[0]:
        length = run_of_starts(starts, first)
        some = slice(first, first + length)
        mean, weight = means[some], weights[some]
        for j in range(offsets.shape[0]):
            there = starts[first] + offsets[j]
            row, total = patches[j, some], sums[there : there + length]
            for i in range(length):
                total[i] += weight[i] * min(max(row[i] + mean[i], low), high)
        first += length


@_kernel
def keep_above(coefs, thresholds, energies, counts, left):
    """Hard thresholding of coefficients (n, patches); `counts` receives how many are kept.

    `left` receives the noise that is left in each patch, the sum of their `energies`.
    """
    counts[:] = 0
    left[:] = 0
    for j in range(coefs.shape[0]):
        row, threshold, energy = coefs[j], thresholds[j], energies[j]
        for i in range(row.shape[0]):
            kept = counts.dtype.type(abs(row[i]) > threshold)
            row[i] *= kept
            counts[i] += kept
            left[i] += kept * energy


@_kernel
def shrink(coefs, guides, variances, energies, counts, left):
    """Wiener filter: scale every coefficient by g² / (g² + variance), where g is its guide.

    Coefficients are (n, patches). `counts` receives the sums of the squared factors, `left` those
    times the energies of the noise: what is left of it in each patch.
    """
    counts[:] = 0
    left[:] = 0
    for j in range(coefs.shape[0]):
        row, guide, variance, energy = coefs[j], guides[j], variances[j], energies[j]
        for i in range(row.shape[0]):
            power = guide[i] * guide[i]
            factor = np.divide(power, power + variance)  # unlike `/` without a check for 0
            row[i] *= factor
            counts[i] += factor * factor
            left[i] += factor * factor * energy


@_kernel
def leave_out(coefs, gradients, form, limit, most, counts):
    """Leave in each row the coefficients that can be omitted with an error of at most `limit`.

    The largest ones are taken, as few as possible and at most `most`, and set to zero here. With d
    what is left, the error is dᵀ Q d for Q = `form`. `gradients` holds Q d for d = all coefficients
    and is updated for each that is taken, in O(n). `counts` receives how many were taken.
    """
    n = coefs.shape[1]
    sizes = np.empty(n, coefs.dtype)
    for i in range(coefs.shape[0]):
        error = coefs[i, 0] * 0
        for j in range(n):
            sizes[j] = abs(coefs[i, j])
            error += coefs[i, j] * gradients[i, j]
        count = 0
        while error > limit and count < most:
            best = 0
            for j in range(1, n):
                if sizes[j] > sizes[best]:
                    best = j
            value = coefs[i, best]
            sizes[best] = -1
            coefs[i, best] = 0
            error += value * (value * form[best, best] - 2 * gradients[i, best])
            for j in range(n):
                gradients[i, j] -= value * form[best, j]
            count += 1
        counts[i] = count


# --- Groups of similar patches. A member of a group is the number of its shift from the reference.

#: Least standard deviation of the noise in the partially denoised image: its estimate may be 0.
LEAST_LEFT = 0.01
#: Least fraction of its weight that a group keeps where rounding hides what its patches show.
LEAST_TRUST = 2.0**-10
#: Factor and summand that make a sum of squares larger than the same sum in any other order, even
#: if it is 0.
BEYOND_ROUNDING, LEAST_DISTANCE = 1.001, 1e-30
#: Power of a group around its mean, as the guide shows it, over the noise of one patch: up to here
#: patches are estimated by their mean. Ridge regression would take more than half of what they have
#: in any direction. Chosen on a part of camera and three photographs, sigma 15 and 50, and on coins
#: and camera with at most one photon per pixel: 0.3 spares 2 to 6 % of the time of groups; 1 up to
#: 13 %, but it costs 0.1 dB where there are so few photons.
FLAT = 0.3


@_kernel
def nearest(planes, size, sides, stride, first, lane, shifts, run, farthest, members):
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
    farthest : (rows, references of a row) distances that at least as many patches as there are
        members are below; infinite: not known
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
    here, there = steps_of_pixels(planes, sides[0], shifts[:run, 2])
    room = size[2] - sides[2] - first[2]
    bounds = references_inside(first[2], room, n_planes, n_refs, shifts[:run, 2])
    near = np.zeros(
        (n_rows, n_refs, 2 * n_members), planes.dtype
    )  # distances that may be the least
    numbers = np.zeros((n_rows, n_refs, 2 * n_members), np.uint16)
    counts = np.zeros((n_rows, n_refs), np.int64)
    limits = np.zeros((n_rows, lanes), planes.dtype)  # lanes without a reference find nothing
    limits[:, :n_refs] = farthest
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
            square_block(planes, ours, theirs, here, there, n_rows_here, n_head, n_heads, some)
            row = block - n_blocks + (n_head == 0)
            if row >= low:
                n_terms = set_terms(parts, row, n_head > 0, across, n_heads > 0, terms)
                take_nearer(
                    parts, terms, n_terms, bounds, base, limits[row], near[row], numbers[row],
                    counts[row],
                )  # fmt: skip
    for row in range(n_rows):
        for ref in range(n_refs):
            keep_nearest(near[row, ref], numbers[row, ref], counts[row, ref], n_members)
            for i in range(n_members):
                members[row, ref, i] = numbers[row, ref, i]


@_kernel
def set_farthest(image, starts, members, steps, runs, width, farthest):
    """Upper bound on the distance of all members of a group in an image, for each group.

    What is compared are `runs` of pixels, each of the same `width` of at most `LANES`. Vectors of
    `LANES` pixels are read: the image is longer by this number than its pixels.

    starts, members, steps : as for `denoise_groups`
    farthest : receives the distances
    """
    squares = np.zeros(LANES, image.dtype)
    for group in range(starts.shape[0]):
        largest, here = image.dtype.type(0), starts[group]
        for member in members[group]:
            there = here + steps[member]
            set_squares(
                image, here, runs, there, runs, 0, 0, 0, runs.shape[0], 0, 1, squares, 0, 0, 0
            )  # fmt: skip
            distance = squares[0]
            for i in range(1, width):
                distance += squares[i]
            largest = max(largest, distance)
        farthest[group] = largest * BEYOND_ROUNDING + LEAST_DISTANCE


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
    least,
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
    least : eigenvalue of the covariance
    values : two flat images that receive weighted patches: denoised, and with that part of noise
    weights : two that receive the weights at the first pixel of each patch: the same for both, and
        of the part of `partial` that is kept in the second
    """
    n, k = covariance.shape[0], members.shape[1]
    rows = padded(n, TILE_ROWS)
    columns = padded(max(n + RUN - width, rows), TILE_COLUMNS)
    ranks = padded(k, TILE_COLUMNS)
    known = np.zeros((padded(ranks, TILE_ROWS), columns), guide.dtype)  # patches of the guide
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
        gather_group(noisy, places, runs, width, denoised)
        gather_group(partial, places, runs, width, given)
        gather_group(guide, places, runs, width, known)
        removed = deviation(denoised, given, k, n)
        left = max(1 - removed, fraction, LEAST_LEFT)
        centre(known, k, mean_known)
        centre(given, k, mean)
        trust = 1.0
        denoised[:], norms[:] = 0, 0
        if power(known, k) > FLAT * n * left * left * least:
            for i in range(0, ranks, TILE_COLUMNS):
                for j in range(0, columns, TILE_COLUMNS):
                    transpose_square(known, i * columns + j, columns, factors, j * ranks + i, ranks)
            multiply(known, (1, columns), known, k, matrix, True)
            hidden = add_noise(matrix, n * left * left, covariance, rounding)
            trust = max(n / max(n, hidden), LEAST_TRUST)  # 1 without values of 10**7 times noise
            solve(matrix, factors, n, inverse)
            multiply(factors, (ranks, 1), given, k, product, False)
            multiply(factors, (1, ranks), product, n, denoised, False)
            square_norms(factors, n, norms)
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
