"""Slow, obvious versions of what the package does: the oracles of its tests.

They share no code with the package.
"""

import collections
import itertools
import math

import numpy as np
from numba import njit
from scipy.fft import dctn, idctn

# --- engines: codes and the statistics of a pass -------------------------------------------------


def hard_threshold(coefs, n_nonzero):
    """Rows with all but their n_nonzero largest magnitudes zero; of equal ones the first stay."""
    coefs = np.asarray(coefs)
    codes = np.zeros_like(coefs)
    wanted = np.broadcast_to(n_nonzero, len(coefs))
    for row, code, s in zip(coefs, codes, wanted, strict=True):
        by_magnitude = sorted(range(len(row)), key=lambda j, row=row: (-abs(float(row[j])), j))
        for j in by_magnitude[:s]:
            code[j] = row[j]
    return codes


def pass_statistics(signals, transform, n_nonzero):
    """Gram, cross, code energy and discarded energy of signals and their codes, in float64."""
    signals = np.asarray(signals, dtype=np.float64)
    n_features = signals.shape[1]
    coefs = np.array([[math.fsum(w * y) for w in np.asarray(transform)] for y in signals])
    coefs = coefs.reshape(-1, n_features)  # there may be no signals
    codes = hard_threshold(coefs, n_nonzero)
    gram, cross = np.zeros((2, n_features, n_features))
    for y, x in zip(signals, codes, strict=True):
        gram += np.outer(y, y)
        cross += np.outer(x, y)
    kept = math.fsum((codes**2).ravel())
    discarded = math.fsum(((coefs - codes) ** 2).ravel())
    return gram, cross, kept, discarded


def union_statistics(signals, transforms, weights, n_nonzero):
    """Number of the best transform of each signal, and `pass_statistics` of those of each."""
    signals = np.asarray(signals, dtype=np.float64)
    wanted = np.broadcast_to(n_nonzero, len(signals))
    numbers = []
    for y, s in zip(signals, wanted, strict=True):
        scores = []
        for transform, (of_discarded, of_energy, constant) in zip(transforms, weights, strict=True):
            _, _, kept, discarded = pass_statistics(y[None], transform, s)
            scores.append(of_discarded * discarded + of_energy * (kept + discarded) + constant)
        numbers.append(scores.index(min(scores)))
    numbers = np.array(numbers)
    parts = [
        pass_statistics(signals[numbers == k], transform, wanted[numbers == k])
        for k, transform in enumerate(transforms)
    ]
    return numbers, parts


def rebuilding_codes(signals, transform, n_nonzero):
    """Codes of signals that rebuild them best, of two choices of entries.

    The first are the largest coefficients, each times the norm of its atom (column of the inverse).
    Then every atom of norm 1 is asked again, by its value plus its product with what is left. Both
    have the values of least squares.
    """
    transform = np.asarray(transform, np.float64)
    atoms = np.linalg.inv(transform)
    norms = np.linalg.norm(atoms, axis=0)
    atoms = atoms / norms
    wanted = np.broadcast_to(n_nonzero, len(signals))
    rows = []
    for y, s in zip(np.asarray(signals, np.float64), wanted, strict=True):
        first = _fitted(y, atoms, hard_threshold([norms * (transform @ y)], s)[0] != 0)
        left = y - atoms @ first
        second = _fitted(y, atoms, hard_threshold([first + atoms.T @ left], s)[0] != 0)
        others_are_better = np.linalg.norm(y - atoms @ second) < np.linalg.norm(left)
        rows.append((second if others_are_better else first) / norms)
    return np.array(rows).reshape(-1, len(transform))


def _fitted(y, atoms, kept):
    values = np.zeros(len(kept))
    q, r = np.linalg.qr(atoms[:, kept])
    values[kept] = np.linalg.solve(r, q.T @ y)
    return values


# --- linalg: spectra under a condition bound -----------------------------------------------------
#
# The objective depends on one unknown, the floor, once the others are eliminated, and has a single
# valley in it: golden section on the logarithm of the floor, by values alone. The costs are
# compiled, because thousands of cases are compared, and in loops, which compile fastest.


def closest_spectrum(targets, weights, max_condition, norm=None):
    """Spectrum with min sum w (s - t)^2, max s <= max_condition * min s and, if given, the norm."""
    if norm is not None:
        floor, ceiling = _floors_on_sphere(targets.size, max_condition, norm)
        if max_condition < math.inf:
            floor = _golden_section(_cost_on_sphere, floor, targets, weights, max_condition, norm)
            ceiling = max_condition * floor
        return _spectrum_on_sphere(floor, ceiling, targets, weights, norm)
    if max_condition == math.inf or not targets.any():
        return targets.copy()
    floors = 1e-45 * targets.max(), targets.max()
    floor = _golden_section(_cost_of_floor, floors, targets, weights, max_condition, 0.0)
    return np.clip(targets, floor, max_condition * floor)


def least_cost(targets, weights, max_condition, norm, multiplier):
    """Lower bound on sum w (s - t)^2 over all spectra that `closest_spectrum` chooses from.

    Weak duality: the minimum of the Lagrangian, whatever the multiplier. The floor and the entries
    of a spectrum of that norm lie in known intervals, so there always is one.
    """
    energy = np.sum(weights * targets**2)
    floor, ceiling = _floors_on_sphere(targets.size, max_condition, norm)
    if max_condition < math.inf:
        args = targets, weights, max_condition, (norm, multiplier)
        floor = _golden_section(_lagrangian_of_floor, floor, *args)
        ceiling = min(norm, max_condition * floor)
    return energy + _lagrangian(floor, ceiling, targets, weights, norm, multiplier)


def _floors_on_sphere(n, max_condition, norm):
    if max_condition == math.inf:
        return 0.0, norm
    return (norm / (max_condition * math.sqrt(n)), norm / math.sqrt(n)), None


def _golden_section(cost, interval, targets, weights, max_condition, extra):
    ratio = 0.5 * (math.sqrt(5) - 1)
    a, d = math.log(interval[0]), math.log(interval[1])
    b, c = d - ratio * (d - a), a + ratio * (d - a)
    cost_b = cost(math.exp(b), targets, weights, max_condition, extra)
    cost_c = cost(math.exp(c), targets, weights, max_condition, extra)
    for _ in range(80):
        if cost_b < cost_c:
            d, c, cost_c = c, b, cost_b
            b = d - ratio * (d - a)
            cost_b = cost(math.exp(b), targets, weights, max_condition, extra)
        else:
            a, b, cost_b = b, c, cost_c
            c = a + ratio * (d - a)
            cost_c = cost(math.exp(c), targets, weights, max_condition, extra)
    return math.exp(0.5 * (a + d))


@njit(cache=True)
def _cost_of_floor(floor, targets, weights, max_condition, _):
    cost = 0.0
    for i in range(targets.size):
        value = min(max(targets[i], floor), max_condition * floor)
        cost += weights[i] * (value - targets[i]) ** 2
    return cost


@njit(cache=True)
def _cost_on_sphere(floor, targets, weights, max_condition, norm):
    spectrum = _spectrum_on_sphere(floor, max_condition * floor, targets, weights, norm)
    cost = 0.0
    for i in range(targets.size):
        cost += weights[i] * (spectrum[i] - targets[i]) ** 2
    return cost


@njit(cache=True)
def _spectrum_on_sphere(floor, ceiling, targets, weights, norm):
    """Best spectrum of that norm between two bounds: bisection on the multiplier of the norm."""
    heaviest = largest = 0.0
    for i in range(targets.size):
        heaviest = max(heaviest, weights[i])
        largest = max(largest, weights[i] * targets[i])
    low, high = -heaviest - 1, 2 * math.sqrt(targets.size) * largest / norm + 1
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if _energy(floor, ceiling, targets, weights, middle) >= norm**2:
            low = middle
        else:
            high = middle
    # The norm may jump at the multiplier: squares between the two sides are optimal as well.
    longer = _energy(floor, ceiling, targets, weights, low)
    shorter = _energy(floor, ceiling, targets, weights, high)
    share = (norm**2 - shorter) / (longer - shorter) if longer > shorter else 0.0
    share = min(max(share, 0.0), 1.0)
    spectrum = np.empty(targets.size)
    for i in range(targets.size):
        one = _between(floor, ceiling, weights[i] * targets[i], weights[i] + low) ** 2
        other = _between(floor, ceiling, weights[i] * targets[i], weights[i] + high) ** 2
        spectrum[i] = math.sqrt(other + share * (one - other))
    return spectrum


@njit(cache=True)
def _energy(floor, ceiling, targets, weights, multiplier):
    energy = 0.0
    for i in range(targets.size):
        linear, quadratic = weights[i] * targets[i], weights[i] + multiplier
        energy += _between(floor, ceiling, linear, quadratic) ** 2
    return energy


@njit(cache=True)
def _between(floor, ceiling, linear, quadratic):
    """Minimiser of quadratic * s^2 - 2 * linear * s between two bounds."""
    return min(max(linear / quadratic, floor), ceiling) if quadratic > 0 else ceiling


@njit(cache=True)
def _lagrangian_of_floor(floor, targets, weights, max_condition, norm_and_multiplier):
    norm, multiplier = norm_and_multiplier
    ceiling = min(norm, max_condition * floor)
    return _lagrangian(floor, ceiling, targets, weights, norm, multiplier)


@njit(cache=True)
def _lagrangian(floor, ceiling, targets, weights, norm, multiplier):
    cost = 0.0
    for i in range(targets.size):
        linear, quadratic = weights[i] * targets[i], weights[i] + multiplier
        value = _between(floor, ceiling, linear, quadratic)
        cost += weights[i] * value**2 - 2 * linear * value + multiplier * value**2
    return cost - multiplier * norm**2


# --- linalg: the polar factor --------------------------------------------------------------------


def polar(matrix):
    """Newton's iteration on the singular values, s <- (s + 1/s) / 2, without computing them."""
    factor = np.array(matrix, dtype=np.float64)
    for _ in range(100):
        factor = 0.5 * (factor + np.linalg.inv(factor).T)
    return factor


# --- imaging: patches ----------------------------------------------------------------------------


def patch_corners(shape, patch_size, stride):
    """First pixel of every patch, in C order; the last place along an axis is always taken."""
    places = [
        sorted({*range(0, n - p + 1, step), n - p})
        for n, p, step in zip(shape, patch_size, stride, strict=True)
    ]
    return list(itertools.product(*places))


def patches(image, patch_size, stride):
    """Patches of an image, or of an image with channels last, as rows."""
    n_axes = len(patch_size)
    rows = []
    for corner in patch_corners(image.shape[:n_axes], patch_size, stride):
        box = tuple(slice(i, i + p) for i, p in zip(corner, patch_size, strict=True))
        rows.append(image[box].ravel())
    return np.array(rows)


def average_of_patches(rows, shape, patch_size, stride, weights):
    """Weighted mean of what patches say of each pixel of an image without channels."""
    said = collections.defaultdict(list)
    corners = patch_corners(shape, patch_size, stride)
    for row, corner, weight in zip(rows, corners, weights, strict=True):
        for value, offset in zip(row, np.ndindex(*patch_size), strict=True):
            pixel = tuple(i + j for i, j in zip(corner, offset, strict=True))
            said[pixel].append((weight, value))
    image = np.empty(shape)
    for pixel, words in said.items():
        total = math.fsum(w for w, _ in words)
        image[pixel] = math.fsum(w * value for w, value in words) / total
    return image


def sweep(image, patch_shape, clean, bounds=(-np.inf, np.inf), guide=None):
    """Clean every patch by itself and average; also the mean count over each pixel."""
    total, weights, counts, overlaps = np.zeros((4, *image.shape))
    positions = (a - p + 1 for a, p in zip(image.shape, patch_shape, strict=True))
    for corner in np.ndindex(*positions):
        window = tuple(slice(c, c + p) for c, p in zip(corner, patch_shape, strict=True))
        patch = image[window].ravel()
        others = () if guide is None else (guide[window].ravel() - guide[window].mean(),)
        cleaned, weight, count = clean(patch - patch.mean(), *others)
        restored = np.clip(cleaned + patch.mean(), *bounds).reshape(patch_shape)
        total[window] += weight * restored
        weights[window] += weight
        counts[window] += count
        overlaps[window] += 1
    return total / weights, counts / overlaps


def threshold_cleaner(transform, covariance, threshold):
    """Keep coefficients above so many deviations of their noise; weigh by the noise that stays."""
    columns = np.linalg.inv(transform).T

    def clean(patch):
        restored, left, count = np.zeros(len(patch)), 0.0, 0
        for atom, column in zip(transform, columns, strict=True):
            variance = atom @ covariance @ atom
            if abs(atom @ patch) > threshold * math.sqrt(variance):
                restored += (atom @ patch) * column
                left += variance * (column @ column)
                count += 1
        return restored, 1 / (1 + left), count

    return clean


def wiener_cleaner(transform, covariance, noise):
    """Scale each coefficient by its fraction of signal; weigh by the noise that is left."""
    columns = np.linalg.inv(transform).T

    def clean(patch, guide):
        restored, left, count = np.zeros(len(patch)), 0.0, 0.0
        for atom, column in zip(transform, columns, strict=True):
            variance = atom @ covariance @ atom
            fraction = (atom @ guide) ** 2 / ((atom @ guide) ** 2 + noise * variance)
            restored += fraction * (atom @ patch) * column
            left += fraction**2 * variance * (column @ column)
            count += fraction**2
        return restored, 1 / (1 / len(patch) + left), count

    return clean


def clean_to_error(patch, transform, error, most, damping):
    """Try 0, 1, 2, ... of the largest coefficients until the patch is near enough."""
    n = len(patch)
    inverse = np.linalg.inv(damping * np.eye(n) + transform.T @ transform) @ transform.T
    coefs = transform @ patch
    order = np.argsort(-np.abs(coefs), kind="stable")
    for count in range(most + 1):
        codes = np.zeros(n)
        codes[order[:count]] = coefs[order[:count]]
        residual = inverse @ (coefs - codes)
        if np.linalg.norm(residual) <= error:
            break
    return patch - residual, 1.0, count


# --- imaging: groups of similar patches ----------------------------------------------------------
#
# Images have three axes, the first of length 1 for a plane. A patch is named by its first pixel.


def distances_of_patches(image, corner, patch_shape, radius, context):
    """Squared distance from a patch to every one within the radius, itself included.

    So many pixels around a patch are compared as well, the border pixels repeated beyond the image;
    not along an axis on which a patch has one pixel.
    """
    around = [context if side > 1 else 0 for side in patch_shape]
    padded = np.pad(image.astype(np.float64), [(c, c) for c in around], mode="edge")

    def compared(place):
        sides = zip(place, patch_shape, around, strict=True)
        return padded[tuple(slice(i, i + side + 2 * c) for i, side, c in sides)]

    found = {}
    for place in np.ndindex(*(n - p + 1 for n, p in zip(image.shape, patch_shape, strict=True))):
        steps = zip(place, corner, radius, strict=True)
        if all(abs(i - j) <= reach for i, j, reach in steps):
            found[place] = float(np.sum((compared(place) - compared(corner)) ** 2))
    return found


def most_members(shape, patch_shape, radius):
    """The largest number of patches that every patch has within the radius."""
    windows = []
    for n, side, reach in zip(shape, patch_shape, radius, strict=True):
        places = range(n - side + 1)
        windows.append(min(sum(abs(i - j) <= reach for j in places) for i in places))
    return math.prod(windows)


def nearest_patches(image, corner, patch_shape, radius, context, n_members):
    """First pixels of the patches of a group, the nearest first."""
    distances = distances_of_patches(image, corner, patch_shape, radius, context)
    number = min(n_members, most_members(image.shape, patch_shape, radius))
    return sorted(distances, key=distances.__getitem__)[:number]


def mixing_matrix(guides, left, covariance=None):
    r"""Matrix that makes clean patches (rows) of noisy ones, if these guides are the truth.

    :math:`\Theta = 1/k + X (X^T X + n l^2 \Sigma)^{-1} X^T`, where X are the guides less their mean
    and l is the deviation of the noise that is left. X = 0 if it shows at most 0.3 of the power
    that the noise of a patch would have if it were the least one, in all directions.
    """
    k, n = guides.shape
    noise = np.eye(n) if covariance is None else covariance
    centred = guides - guides.mean(axis=0)
    if np.sum(centred**2) <= 0.3 * n * left**2 * np.linalg.eigvalsh(noise)[0]:
        centred = np.zeros_like(centred)
    inverse = np.linalg.inv(centred.T @ centred + n * left**2 * noise)
    return 1 / k + centred @ inverse @ centred.T


def cleaned_group(noisy, mixed, guides, share, covariance=None):
    """Clean patches (rows) of a group, their weights, and the deviation of the noise in `mixed`."""
    left = max(1 - np.std(noisy - mixed), share, 0.01)
    matrix = mixing_matrix(guides, left, covariance)
    return matrix @ mixed, 1 / np.diag(matrix), left


def round_of_groups(noisy, mixed, guide, groups, patch_shape, share, covariance=None):
    """A clean image and one with a share of the noise; each group is a list of first pixels."""
    clean, less, totals = np.zeros((3, *noisy.shape))
    for places in groups:
        boxes = [
            tuple(slice(i, i + p) for i, p in zip(place, patch_shape, strict=True))
            for place in places
        ]
        rows = (np.array([image[box].ravel() for box in boxes]) for image in (noisy, mixed, guide))
        patches, weights, left = cleaned_group(*rows, share, covariance)
        for box, patch, weight in zip(boxes, patches, weights, strict=True):
            patch = patch.reshape(patch_shape)
            clean[box] += weight * patch
            less[box] += weight * (patch + share / left * (mixed[box] - patch))
            totals[box] += weight
    return clean / totals, less / totals


def rounds_of_groups(noisy, estimates, covariances, search, rounds):
    """Components of an image, cleaned little by little; groups are found in the first one."""
    mixed, guides = noisy, estimates
    places = (search.patch_shape, search.radius, search.context, search.n_members)
    corners = patch_corners(noisy[0].shape, search.patch_shape, search.stride)
    for number in range(rounds.number):
        if number % rounds.per_search == 0:
            seen = (1 - rounds.guided) * mixed[0] + rounds.guided * guides[0]
            groups = [nearest_patches(seen, corner, *places) for corner in corners]
        share = rounds.first_fraction * (1 - (number + 1) / rounds.number)
        results = [
            round_of_groups(*images, groups, search.patch_shape, share, covariance)
            for *images, covariance in zip(noisy, mixed, guides, covariances, strict=True)
        ]
        guides, mixed = zip(*results, strict=True)
    return guides


# --- imaging: groups with missing pixels ---------------------------------------------------------


def conditional_mean(patch, known, mean, covariance, variance):
    """Mean of a normal vector given some of its entries with white noise of this variance."""
    seen = np.flatnonzero(known)
    noisy = covariance[np.ix_(seen, seen)] + variance * np.eye(len(seen))
    weights = np.linalg.solve(noisy, patch[seen] - mean[seen])
    return mean + covariance[:, seen] @ weights


def round_with_holes(guide, given, known, groups, patch_shape, variance, denoises):
    """Sum of the estimates of each pixel, and their number: over all members of all groups.

    Groups are lists of corners, that of the reference first; those whose reference has no missing
    pixels are left out. Without `denoises` only missing pixels are estimated.
    """
    values, counts = np.zeros((2, *guide.shape))
    for corners in groups:
        boxes = [
            tuple(slice(c, c + side) for c, side in zip(corner, patch_shape, strict=True))
            for corner in corners
        ]
        if known[boxes[0]].all():
            continue
        rows = np.array([guide[box].ravel() for box in boxes])
        covariance = np.cov(rows, rowvar=False, bias=True).reshape(rows.shape[1], -1)
        for box in boxes:
            seen = known[box].ravel()
            found = conditional_mean(
                given[box].ravel(), seen, rows.mean(axis=0), covariance, variance
            )
            counted = np.ones_like(seen) if denoises else ~seen
            values[box] += np.where(counted, found, 0).reshape(patch_shape)
            counts[box] += counted.reshape(patch_shape)
    return values, counts


# --- imaging: scales -----------------------------------------------------------------------------


def halved(image, patch_shape):
    """The lowest half of the frequencies; axes on which a patch has one pixel are kept."""
    axes = [axis for axis, side in enumerate(patch_shape) if side > 1]
    low = tuple(
        slice(n // 2 if side > 1 else n) for n, side in zip(image.shape, patch_shape, strict=True)
    )
    return idctn(dctn(image, norm="ortho", axes=axes)[low], norm="ortho", axes=axes)


def with_smooth_part(image, half, taken):
    """An image with this part of the frequencies of its half: the lowest along each halved axis."""
    axes = [axis for axis in range(image.ndim) if half.shape[axis] < image.shape[axis]]
    low = tuple(
        slice(max(1, round(taken * n)) if axis in axes else n) for axis, n in enumerate(half.shape)
    )
    frequencies = dctn(image, norm="ortho", axes=axes)
    frequencies[low] = dctn(half, norm="ortho", axes=axes)[low]
    return idctn(frequencies, norm="ortho", axes=axes)


# --- imaging: noise that depends on brightness ---------------------------------------------------


def mean_of_stabilised_photons(mean, read_noise):
    """Mean of 2 sqrt(z + 3/8 + s**2), straight below z = 0, z a count plus normal noise: a sum."""
    shift = 3 / 8 + read_noise**2
    total = 0.0
    spread = 12 * math.sqrt(mean + 1) + 12
    for count in range(max(0, int(mean - spread)), int(mean + spread)):
        chance = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
        seen = count + read_noise * _NORMAL_PLACES
        straight = 2 * math.sqrt(shift) + seen / math.sqrt(shift)
        roots = np.where(seen < 0, straight, 2 * np.sqrt(np.maximum(seen, 0) + shift))
        total += chance * float(_NORMAL_CHANCES @ roots)
    return total


def mean_of_stabilised_levels(mean, level, start):
    """Mean of the integral of 1 / level from `start`, over normal noise of that level: sums."""
    seen = mean + level(np.array(mean)) * _NORMAL_PLACES
    places = np.linspace(min(start, seen[0]), max(start, seen[-1]), 200_001)
    steps = np.diff(places) / level((places[1:] + places[:-1]) / 2)
    integral = np.concatenate([[0.0], np.cumsum(steps)])
    integral -= np.interp(start, places, integral)
    return float(_NORMAL_CHANCES @ np.interp(seen, places, integral))


_NORMAL_PLACES = np.linspace(-8, 8, 4001)
_NORMAL_CHANCES = np.exp(-(_NORMAL_PLACES**2) / 2) / np.exp(-(_NORMAL_PLACES**2) / 2).sum()


# --- imaging: how near an image is to its reference ---------------------------------------------


def ssim(reference, image, data_range, window=7):
    """Structural similarity of grey images: mean over all windows inside, with equal weights."""
    one, other = (picture.astype(np.float64) for picture in (reference, image))
    a, b = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    values = []
    for i, j in np.ndindex(one.shape[0] - window + 1, one.shape[1] - window + 1):
        x, y = one[i : i + window, j : j + window], other[i : i + window, j : j + window]
        (variance_x, covariance), (_, variance_y) = np.cov(x.ravel(), y.ravel())
        luminance = (2 * x.mean() * y.mean() + a) / (x.mean() ** 2 + y.mean() ** 2 + a)
        values.append(luminance * (2 * covariance + b) / (variance_x + variance_y + b))
    return math.fsum(values) / len(values)


# --- paper: the similarity that its table shows --------------------------------------------------


def downsampled_ssim(reference, image):
    """SSIM of grey images, 0 to 255, after averaging over blocks; window by window."""
    factor = max(1, int(min(reference.shape) / 256 + 0.5))
    one, other = (block_means(picture, factor) for picture in (reference, image))
    offsets = range(-5, 6)
    weights = np.array([[math.exp(-(i * i + j * j) / 4.5) for i in offsets] for j in offsets])
    weights /= weights.sum()
    values = []
    for i, j in np.ndindex(one.shape[0] - 10, one.shape[1] - 10):
        x, y = one[i : i + 11, j : j + 11], other[i : i + 11, j : j + 11]
        mean_x, mean_y = (weights * x).sum(), (weights * y).sum()
        deviation_x, deviation_y = x - mean_x, y - mean_y
        variance_x, variance_y = (weights * deviation_x**2).sum(), (weights * deviation_y**2).sum()
        covariance = (weights * deviation_x * deviation_y).sum()
        a, b = 2.55**2, 7.65**2
        luminance = (2 * mean_x * mean_y + a) / (mean_x**2 + mean_y**2 + a)
        values.append(luminance * (2 * covariance + b) / (variance_x + variance_y + b))
    return math.fsum(values) / len(values)


def block_means(picture, factor):
    """Means over windows of factor x factor pixels, at every factor-th pixel, borders mirrored."""
    before, after = (factor - 1) // 2, factor // 2
    padded = np.pad(picture.astype(np.float64), (before, after), mode="symmetric")
    rows, columns = (range(0, n, factor) for n in picture.shape)
    return np.array(
        [[padded[i : i + factor, j : j + factor].mean() for j in columns] for i in rows]
    )


# --- the public code's spectrum step -------------------------------------------------------------


def first_accepted_spectrum(targets, weights, bound):
    """Clamp the k largest and the j smallest entries; take the first (k, j) that looks right."""
    n = len(targets)
    order = sorted(range(n), key=lambda i: -targets[i])
    t, w = [targets[i] for i in order], [weights[i] for i in order]
    if t[0] <= bound * t[-1]:
        return np.array(targets)
    for k in range(1, n):
        for j in range(1, n - k + 1):
            top, bottom = range(k), range(n - j, n)
            moment = sum(w[i] * t[i] for i in bottom) + bound * sum(w[i] * t[i] for i in top)
            floor = moment / (sum(w[i] for i in bottom) + bound**2 * sum(w[i] for i in top))
            if t[n - 1 - j] >= floor and t[k] <= bound * floor:
                spectrum = np.array(targets)
                spectrum[[order[i] for i in top]] = bound * floor
                spectrum[[order[i] for i in bottom]] = floor
                return spectrum
    return np.full(n, sum(a * b for a, b in zip(w, t, strict=True)) / sum(w))
