"""The steps of the paper and of its authors' public code, kept to reproduce their results.

All project the spectrum without the norm and then rescale it, and all replace the error by an upper
bound in the right step, so the error may rise. `updates` has the steps that never raise it.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Statistics
from kappaform.learning.updates import (
    Constraints,
    Factors,
    Steps,
    Transform,
    decompose,
    fit_spectrum,
    least_squares,
    project_condition,
)
from kappaform.linalg import closest_spectrum, polar, svd


def update_published(
    statistics: Statistics, transform: Transform, _: Steps, variant: str, constraints: Constraints
) -> Factors:
    """One iteration as published: in print ("paper") or as code ("reference", "public").

    The first iteration uses only the codes of the transform: it has its own start.
    """
    gram, cross = statistics.gram, statistics.cross
    factors = transform if isinstance(transform, Factors) else None
    if not cross.any():
        if factors is None:  # nothing to learn: a start, which may violate bound and norm
            factors = project_condition(transform, constraints.kappa).scaled_to(constraints.norm)
        return factors
    project = first_accepted_spectrum if variant == "public" else closest_spectrum
    fit = partial(fit_spectrum, gram=gram, cross=cross, constraints=constraints, project=project)
    if factors is None:
        start = _first_factors(statistics, constraints.kappa, swapped=variant != "paper")
        factors = start if variant == "paper" else fit(start.left, start)
    left = polar(cross @ factors.right * factors.spectrum, near=factors.left)
    if variant == "paper":
        factors = fit(left, factors).scaled_to(constraints.norm)
        right = polar((cross.T @ left) / factors.spectrum, near=factors.right)
        return Factors(left, factors.spectrum, right)
    # Left, right and spectrum in this order, the right step as if the spectrum were flat.
    right = polar(cross.T @ left, near=factors.right)
    return fit(left, Factors(left, factors.spectrum, right)).scaled_to(constraints.norm)


def _first_factors(statistics: Statistics, kappa: float, *, swapped: bool) -> Factors:
    """Least squares or, for small bounds, Procrustes, whatever transform made the first codes.

    For small bounds the public code decomposes the transposed cross matrix, which swaps left and
    right: kept here, because published results depend on it.
    """
    if kappa > 2:
        return decompose(least_squares(statistics))
    left, _, right = svd(statistics.cross)
    left, right = (right.T, left) if swapped else (left, right.T)
    return Factors(left, np.ones(len(left)), right)


def first_accepted_spectrum(targets: NDArray, weights: NDArray, max_condition: float) -> NDArray:
    """Spectrum within the bound, not always the closest one: see `project_spectrum` for that.

    Tries numbers of entries at the ceiling and, for each, at the floor, in ascending order, and
    takes the first pair with which the entries between them are within floor and ceiling. It does
    not check whether those at floor and ceiling belong there: for targets (10, 9, 1), weights 1 and
    bound 2 it gives (10, 5, 5), cost 32, where (8.67, 8.67, 4.33) costs 13.
    """
    n = targets.size
    order = np.argsort(-targets, kind="stable")
    sorted_targets, sorted_weights = targets[order], weights[order]
    if sorted_targets[0] <= max_condition * sorted_targets[-1] or not weights.any():
        return np.clip(targets, sorted_targets[0] / max_condition, sorted_targets[0])
    moments = sorted_weights * sorted_targets
    # Rows: entries at the ceiling; columns: entries at the floor.
    above, below = np.arange(1, n)[:, np.newaxis], np.arange(1, n)
    numerator = np.cumsum(moments[::-1])[below - 1] + max_condition * np.cumsum(moments)[above - 1]
    energy_below = np.cumsum(sorted_weights[::-1])[below - 1]
    energy_above = np.cumsum(sorted_weights)[above - 1]
    denominator = energy_below + max_condition**2 * energy_above
    floors = numerator / np.where(denominator > 0, denominator, 1.0)
    accepted = (sorted_targets[n - 1 - below] >= floors) & (denominator > 0)
    accepted &= (sorted_targets[above] <= max_condition * floors) & (above + below <= n)
    if not accepted.any():
        return np.full(n, moments.sum() / sorted_weights.sum())
    n_above, n_below = (1 + int(i) for i in np.unravel_index(accepted.argmax(), accepted.shape))
    floor = floors[n_above - 1, n_below - 1]
    spectrum = sorted_targets.copy()
    spectrum[:n_above] = max_condition * floor
    spectrum[n - n_below :] = floor
    result = np.empty(n)
    result[order] = spectrum
    return result
