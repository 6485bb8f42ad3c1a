"""Compiled kernel that estimates the missing pixels of groups of similar patches.

Images are flat; a patch is where it begins plus `offsets`, as in `kernels`.
"""

# mypy: disable-error-code="no-untyped-def"
# The arguments have the types that numba infers.

from __future__ import annotations

import numpy as np

from kappaform.jit import inlined, kernel

# Sums may be reordered, which makes them fast; on one machine they are always the same.
_FLAGS = {"contract", "reassoc", "nsz", "arcp"}
_kernel, _inlined = kernel(_FLAGS), inlined(_FLAGS)


@_kernel
def fill_groups(
    guide,
    given,
    known,
    starts,
    members,
    steps,
    offsets,
    variance,
    rounding,
    denoises,
    values,
    weights,
):
    """Estimate patches from their known pixels, and add them to images of sums.

    The patches of a group are samples of a normal distribution with the mean and covariance of its
    patches in the guide, plus white noise of this variance. A patch becomes its conditional mean
    given its known pixels. Groups about a patch without missing pixels are left out.

    guide, given : flat images: the best estimate so far, and the image with its missing pixels
    known : flat, which pixels are given
    starts, members : the first pixels of the reference patches, and the members of their groups
    steps : how far the first pixel of a member is from that, for each number of a shift
    variance : of the white noise in known pixels, > 0
    rounding : relative rounding error of sums of n products
    denoises : whether known pixels are estimated as well
    values, weights : flat images that receive the sum of estimates, and their number
    """
    n, k = offsets.shape[0], members.shape[1]
    columns = np.empty((n, k), guide.dtype)
    mean = np.empty(n, guide.dtype)
    covariance = np.empty((n, n), guide.dtype)
    inverse = np.empty((n, n), guide.dtype)
    factor = np.empty((n, n), guide.dtype)
    residual = np.empty(n, guide.dtype)  # of the known pixels of a patch from the mean
    dual = np.empty(n, guide.dtype)  # the inverse covariance of the known pixels times that
    estimate = np.empty(n, guide.dtype)  # of the missing pixels
    there = np.empty(n, np.int64)
    absent = np.empty(n, np.int64)
    places = np.empty(k, np.int64)
    for group in range(starts.shape[0]):
        if _is_complete(known, starts[group], offsets):
            continue
        _place(starts[group], members[group], steps, places)
        _moments(guide, places, offsets, columns, mean, covariance)
        _add_variance(covariance, k, variance, rounding)
        has_inverse = False
        for i in range(k):
            n_known = _divide(known, places[i], offsets, there, absent)
            if n_known == n and not denoises:
                continue
            _residual(given, places[i], offsets, mean, there, n_known, residual)
            solved = False
            if 2 * n_known > n:
                if not has_inverse:
                    _invert(covariance, inverse)
                    has_inverse = True
                solved = _from_inverse(inverse, there, absent, n_known, residual, factor, estimate)
                if denoises and solved:
                    _dual(inverse, there, absent, n_known, residual, estimate, dual)
            if not solved:  # the smaller system, or an inverse that rounding has spoiled
                _from_known(covariance, there, absent, n_known, residual, factor, dual, estimate)
            _add(estimate, mean, absent, n - n_known, places[i], offsets, values, weights)
            if denoises:
                _add_denoised(
                    given, variance, dual, there, n_known, places[i], offsets, values, weights
                )


@_inlined
def _place(start, members, steps, places):
    """First pixels of the members of a group."""
    for i in range(places.shape[0]):
        places[i] = start + steps[members[i]]


@_inlined
def _residual(given, start, offsets, mean, there, n_known, residual):
    for j in range(n_known):
        residual[j] = given[start + offsets[there[j]]] - mean[there[j]]


@_inlined
def _add(estimate, mean, absent, n_absent, start, offsets, values, weights):
    """Add the missing pixels of a patch to the sums."""
    for j in range(n_absent):
        pixel = start + offsets[absent[j]]
        values[pixel] += mean[absent[j]] + estimate[j]
        weights[pixel] += 1


@_inlined
def _add_denoised(given, variance, dual, there, n_known, start, offsets, values, weights):
    """Add the known pixels of a patch, less their estimated noise."""
    for j in range(n_known):
        pixel = start + offsets[there[j]]
        values[pixel] += given[pixel] - variance * dual[j]
        weights[pixel] += 1


@_inlined
def _from_known(covariance, there, absent, n_known, residual, factor, dual, estimate):
    """Conditional mean of the missing pixels (less their mean) by a system of the known ones.

    If rounding spoils that as well, the mean of the group is all that is known.
    """
    _part(covariance, there, n_known, factor)
    for j in range(n_known):
        dual[j] = residual[j]
    if not _solve(factor, dual, n_known):
        for j in range(n_known):
            dual[j] = 0
    for j in range(covariance.shape[0] - n_known):
        total = covariance[0, 0] * 0
        for m in range(n_known):
            total += covariance[absent[j], there[m]] * dual[m]
        estimate[j] = total


@_inlined
def _from_inverse(inverse, there, absent, n_known, residual, factor, estimate):
    """The same by a system of the missing pixels, given the inverse of the covariance.

    Returns whether that is positive definite, as it is but for rounding.
    """
    n_absent = inverse.shape[0] - n_known
    _part(inverse, absent, n_absent, factor)
    for j in range(n_absent):
        total = inverse[0, 0] * 0
        for m in range(n_known):
            total -= inverse[absent[j], there[m]] * residual[m]
        estimate[j] = total
    return _solve(factor, estimate, n_absent)


@_inlined
def _dual(inverse, there, absent, n_known, residual, estimate, dual):
    """The inverse covariance of the known pixels times their residual, from that of all pixels."""
    for j in range(n_known):
        row = there[j]
        total = inverse[0, 0] * 0
        for m in range(n_known):
            total += inverse[row, there[m]] * residual[m]
        for m in range(inverse.shape[0] - n_known):
            total += inverse[row, absent[m]] * estimate[m]
        dual[j] = total


@_inlined
def _is_complete(known, start, offsets):
    n_known = 0
    for j in range(offsets.shape[0]):
        n_known += known[start + offsets[j]]
    return n_known == offsets.shape[0]


@_inlined
def _divide(known, start, offsets, there, absent):
    """Indices of the known pixels of a patch and of the others; returns how many are known."""
    n_known = 0
    for j in range(offsets.shape[0]):
        if known[start + offsets[j]]:
            there[n_known] = j
            n_known += 1
        else:
            absent[j - n_known] = j
    return n_known


@_inlined
def _moments(image, places, offsets, columns, mean, products):
    """Mean of some patches, and the sum of products of their differences from it."""
    n, k = columns.shape
    for i in range(k):
        for j in range(n):
            columns[j, i] = image[places[i] + offsets[j]]
    for j in range(n):
        total = columns[j, 0] * 0  # not of `mean`: what is in there may be NaN
        for i in range(k):
            total += columns[j, i]
        mean[j] = total / k
        for i in range(k):
            columns[j, i] -= mean[j]
    np.dot(columns, columns.T, products)


@_inlined
def _add_variance(products, k, variance, rounding):
    """Make a covariance of sums over k patches, plus white noise and what rounding may hide."""
    largest = products[0, 0]
    for j in range(products.shape[0]):
        largest = max(largest, products[j, j])
    for j in range(products.shape[0]):
        for m in range(products.shape[0]):
            products[j, m] /= k
        products[j, j] += variance + rounding * largest / k


@_inlined
def _part(matrix, chosen, number, part):
    """The upper triangle of some rows and columns of a matrix."""
    for j in range(number):
        for m in range(j, number):
            part[j, m] = matrix[chosen[j], chosen[m]]


@_inlined
def _solve(matrix, vector, number):
    """Solve a positive definite system in place, given its upper triangle: Cholesky.

    Returns whether it is positive definite.
    """
    for j in range(number):
        if not matrix[j, j] > 0:
            return False
        scale = 1 / np.sqrt(matrix[j, j])
        for m in range(j, number):
            matrix[j, m] *= scale
        vector[j] *= scale
        for row in range(j + 1, number):
            ratio = matrix[j, row]
            vector[row] -= ratio * vector[j]
            for m in range(row, number):
                matrix[row, m] -= ratio * matrix[j, m]
    for j in range(number - 1, -1, -1):
        total = vector[j]
        for m in range(j + 1, number):
            total -= matrix[j, m] * vector[m]
        vector[j] = total / matrix[j, j]
    return True


@_inlined
def _invert(matrix, inverse):
    """The inverse of a positive definite matrix: Gauss and Jordan, which need no pivoting here."""
    n = matrix.shape[0]
    for j in range(n):
        for m in range(n):
            inverse[j, m] = matrix[j, m]
    for step in range(n):
        scale = 1 / inverse[step, step]
        inverse[step, step] = 1
        for m in range(n):
            inverse[step, m] *= scale
        for j in range(n):
            if j != step:
                ratio = inverse[j, step]
                inverse[j, step] = 0
                for m in range(n):
                    inverse[j, m] -= ratio * inverse[step, m]
