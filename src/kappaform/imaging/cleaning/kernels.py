"""Compiled kernels that denoise single patches and aggregate them into an image.

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
