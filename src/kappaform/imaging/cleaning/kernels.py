"""Compiled kernels that denoise patches, alone or in groups, and aggregate them into an image.

Images are flat. The pixels of a patch are its first pixel (`starts`) plus `offsets`, in C order,
whatever the dimension of the image. Coefficients are (patches, n); row j of `synthesis` is what
coefficient j adds to a patch.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np

from kappaform.jit import inlined, kernel

# Below are loops in place of array expressions: those take numba seconds to compile.

# Sums may be reordered: that is what makes them fast, and on one machine they are always the same.
_FLAGS = {"contract", "reassoc", "nsz", "arcp"}
_kernel, _inlined = kernel(_FLAGS), inlined(_FLAGS)

#: Least standard deviation of the noise in the partially denoised image: its estimate may be 0.
LEAST_LEFT = 0.01
#: Least fraction of its weight that a group keeps where rounding hides what its patches show.
LEAST_TRUST = 2.0**-10


@_kernel
def gather(image, starts, offsets, patches, means):
    """Patches without their means, and the means."""
    n = offsets.shape[0]
    for i in range(starts.shape[0]):
        start = starts[i]
        total = image[start] * 0
        for j in range(n):
            value = image[start + offsets[j]]
            patches[i, j] = value
            total += value
        mean = total / n
        means[i] = mean
        for j in range(n):
            patches[i, j] -= mean


@_kernel
def scatter(patches, means, weights, counts, starts, offsets, bounds, sums):
    """Add weighted patches, their weights and their counts to the three images of `sums`."""
    n = offsets.shape[0]
    low, high = bounds[0], bounds[1]
    for i in range(starts.shape[0]):
        weight, mean, count = weights[i], means[i], counts[i]
        for j in range(n):
            pixel = starts[i] + offsets[j]
            value = min(max(patches[i, j] + mean, low), high)
            sums[0, pixel] += weight * value
            sums[1, pixel] += weight
            sums[2, pixel] += count


@_kernel
def keep_above(coefs, thresholds, energies, synthesis, patches, counts, left):
    """Patches made of the coefficients above their thresholds, and how many these are.

    `left` receives the noise that is left in each patch, the sum of their `energies`.
    """
    n = coefs.shape[1]
    for i in range(coefs.shape[0]):
        count = 0
        energy = coefs[i, 0] * 0
        for j in range(n):
            patches[i, j] = 0
        for j in range(n):
            value = coefs[i, j]
            if abs(value) > thresholds[j]:
                count += 1
                energy += energies[j]
                for k in range(n):
                    patches[i, k] += value * synthesis[j, k]
        counts[i] = count
        left[i] = energy


@_kernel
def shrink(coefs, guides, variances, energies, counts, left):
    """Wiener filter: scale every coefficient by g² / (g² + variance), where g is its guide.

    `counts` receives the sums of the squared factors, `left` those times the energies of the noise:
    what is left of it in each patch.
    """
    for i in range(coefs.shape[0]):
        count = coefs[i, 0] * 0
        energy = coefs[i, 0] * 0
        for j in range(coefs.shape[1]):
            power = guides[i, j] * guides[i, j]
            factor = power / (power + variances[j])
            coefs[i, j] *= factor
            count += factor * factor
            energy += factor * factor * energies[j]
        counts[i] = count
        left[i] = energy


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


# --- Groups of similar patches: block matching and joint estimation. Images have three axes here;
# a plane has a first axis of length 1. A member of a group is the number of its shift from the
# reference patch.


@_kernel
def nearest(guide, sides, first, columns, shifts, members):
    """The shifts of the patches that are nearest to some patches of one row, themselves included.

    Patches have these `sides` and begin at `first` (two indices) and one of the `columns`. Shifts
    are tried in their order, and the first of equals is taken. Runs of shifts that differ in
    their last entry only share the rows that they compare.
    """
    n_refs, n_members = members.shape
    length = guide.shape[2]
    distances = np.full((n_refs, n_members), np.inf, guide.dtype)  # heaps, the farthest first
    squares = np.empty(length, guide.dtype)
    sums = np.empty(length, guide.dtype)
    for number in range(shifts.shape[0]):
        a, b = first[0] + shifts[number, 0], first[1] + shifts[number, 1]
        if min(a, b) < 0 or a + sides[0] > guide.shape[0] or b + sides[1] > guide.shape[1]:
            continue
        step = shifts[number, 2]
        begin, end = max(0, -step), min(length, length - step)
        _add_squares(guide, sides, first, (a, b), begin, begin + step, squares[: end - begin])
        _add_neighbours(squares[: end - begin], sides[2], sums[: end - begin])
        for ref in range(n_refs):
            column = columns[ref] - begin
            if column < 0 or column + sides[2] > end - begin:
                continue
            if sums[column] < distances[ref, 0]:
                _replace_farthest(distances[ref], members[ref], sums[column], number)


@_inlined
def _add_squares(guide, sides, here, there, begin, begin_there, squares):
    """Squared differences of the rows of two patches, summed over these rows."""
    n = squares.shape[0]
    squares[:] = 0
    for i in range(sides[0]):
        for j in range(sides[1]):
            ours = guide[here[0] + i, here[1] + j, begin : begin + n]
            theirs = guide[there[0] + i, there[1] + j, begin_there : begin_there + n]
            for column in range(n):
                difference = ours[column] - theirs[column]
                squares[column] += difference * difference


@_inlined
def _add_neighbours(values, number, sums):
    """Sums of each value and those after it, a number of them in all.

    The last sums lack some. Four at a time: the sums are read and written less often.
    """
    sums[:] = 0
    fours = number - number % 4
    for i in range(0, fours, 4):
        for column in range(values.shape[0] - i - 3):
            here = column + i
            pair, other = values[here] + values[here + 1], values[here + 2] + values[here + 3]
            sums[column] += pair + other
    for i in range(fours, number):
        later = values[i:]
        for column in range(later.shape[0]):
            sums[column] += later[column]


@_inlined
def _replace_farthest(distances, members, distance, member):
    """Put a member into a heap in place of the farthest one."""
    size = distances.shape[0]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and distances[child + 1] > distances[child]:
            child += 1
        if distances[child] <= distance:
            break
        distances[place] = distances[child]
        members[place] = members[child]
        place = child
    distances[place] = distance
    members[place] = member


@_kernel
def denoise_groups(
    noisy,
    partial,
    guide,
    covariance,
    starts,
    members,
    steps,
    offsets,
    fraction,
    rounding,
    values,
    weights,
):
    """Denoise groups of patches and add them to images of sums.

    noisy, partial, guide : flat images: as given, partially denoised, and the best estimate so far
    covariance : of the noise of a patch; the mean of its diagonal is 1
    starts, members : first pixels of the reference patches, and the members of their groups
    steps : from a reference to the first pixel of a member, for each number of a shift
    fraction : of the noise that `partial` shall keep
    rounding : relative, of sums of n products
    values : two flat images that receive weighted patches: denoised, and with that part of noise
    weights : two that receive the weights at the first pixel of each patch: the same for both, and
        of the part of `partial` that is kept in the second
    """
    n, k = offsets.shape[0], members.shape[1]
    known = np.empty((n, k), guide.dtype)  # patches of the guide, one in each column
    given = np.empty((n, k), guide.dtype)  # and of the partially denoised image
    denoised = np.empty((n, k), guide.dtype)
    means = np.empty(n, guide.dtype)
    factor = np.empty((n, n), guide.dtype)
    product = np.empty((n, n), guide.dtype)
    places = np.empty(k, np.int64)
    for group in range(starts.shape[0]):
        for i in range(k):
            places[i] = starts[group] + steps[members[group, i]]
        removed = _gather(noisy, partial, guide, places, offsets, known, given)
        left = max(1 - removed, fraction, LEAST_LEFT)
        _centre(known, means)
        _centre(given, means)
        np.dot(known, known.T, factor)
        hidden = _add_noise(factor, n * left * left, covariance, rounding)
        trust = max(n / max(n, hidden), LEAST_TRUST)  # 1 without values of 10**7 times the noise
        _solve(factor, known)
        np.dot(known, given.T, product)
        np.dot(product.T, known, denoised)
        kept = fraction / left
        for i in range(k):
            norm = known[0, i] * 0
            for j in range(n):
                norm += known[j, i] * known[j, i]
            weight = trust / (norm + 1 / k)
            weights[0, places[i]] += weight
            weights[1, places[i]] += weight * kept
            for j in range(n):
                value = weight * (denoised[j, i] + means[j])
                values[0, places[i] + offsets[j]] += value
                values[1, places[i] + offsets[j]] += (1 - kept) * value


@_inlined
def _gather(noisy, partial, guide, places, offsets, known, given):
    """Patches of the guide and of `partial`; the standard deviation of what `partial` has lost."""
    n, k = known.shape
    total = guide[0] * 0
    power = guide[0] * 0
    for i in range(k):
        for j in range(n):
            pixel = places[i] + offsets[j]
            known[j, i] = guide[pixel]
            given[j, i] = partial[pixel]
            lost = noisy[pixel] - partial[pixel]
            total += lost
            power += lost * lost
    mean = total / (n * k)
    return np.sqrt(max(power / (n * k) - mean * mean, 0.0))


@_inlined
def _centre(columns, means):
    """Subtract the mean of the columns, and return it in `means`."""
    for j in range(columns.shape[0]):
        total = columns[j, 0] * 0  # not of `means`: what is in there may be NaN
        for i in range(columns.shape[1]):
            total += columns[j, i]
        means[j] = total / columns.shape[1]
        for i in range(columns.shape[1]):
            columns[j, i] -= means[j]


@_inlined
def _add_noise(matrix, variance, covariance, rounding):
    """Add the covariance of the noise, and as much as rounding may hide; return that."""
    largest = matrix[0, 0]
    for i in range(matrix.shape[0]):
        largest = max(largest, matrix[i, i])
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[0]):
            matrix[i, j] += variance * covariance[i, j]
        matrix[i, i] += rounding * largest
    return rounding * largest


@_inlined
def _solve(matrix, columns):
    """Solve Uᵀ F = columns in place, where Uᵀ U = matrix: U takes its place."""
    for row in range(matrix.shape[0]):
        _subtract_rows_above(matrix, matrix, row, row)
        _subtract_rows_above(columns, matrix, row, 0)
        scale = 1 / np.sqrt(matrix[row, row])
        for j in range(row, matrix.shape[1]):
            matrix[row, j] *= scale
        for j in range(columns.shape[1]):
            columns[row, j] *= scale


@_inlined
def _subtract_rows_above(rows, factors, row, first):
    """Subtract from a row, beginning with column `first`, those above it times factors[:, row].

    Four at a time: the row is read and written less often.
    """
    ours, n = rows[row], rows.shape[1]
    fours = row - row % 4
    for i in range(0, fours, 4):
        a, b, c, d = factors[i, row], factors[i + 1, row], factors[i + 2, row], factors[i + 3, row]
        one, two, three, four = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for j in range(first, n):
            ours[j] -= (a * one[j] + b * two[j]) + (c * three[j] + d * four[j])
    for i in range(fours, row):
        factor, other = factors[i, row], rows[i]
        for j in range(first, n):
            ours[j] -= factor * other[j]
