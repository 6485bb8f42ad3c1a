"""The steps of the paper and of its authors' public code, kept to reproduce their results.

All project the spectrum without the norm and then rescale it, and all replace the error by an upper
bound in the right step, so the error may rise. `updates` has the steps that never raise it.
"""

from __future__ import annotations

from collections.abc import Callable
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
    within,
)
from kappaform.linalg import closest_spectrum, polar, svd


def update_published(
    statistics: Statistics,
    transform: Transform,
    _: Steps,
    variant: str,
    constraints: Constraints,
) -> Transform:
    """One iteration as published: in print ("paper") or as code ("reference", "public").

    The first iteration takes of the transform only the codes it gave: it has its own start.
    """
    gram, cross = statistics.gram, statistics.cross
    factors = transform if isinstance(transform, Factors) else None
    if not cross.any():
        # Nothing to learn: the start, which need not keep bound and norm, moves to where it does.
        return factors or within(transform, constraints.kappa).scaled_to(constraints.norm)
    project = first_accepted_spectrum if variant == "public" else closest_spectrum
    fit = partial(fit_spectrum, gram=gram, cross=cross, constraints=constraints, project=project)
    if variant == "paper":
        factors = factors or _printed_start(statistics, constraints.kappa)
        left = polar(cross @ factors.right * factors.spectrum, near=factors.left)
        factors = fit(left, factors).scaled_to(constraints.norm)
        right = polar((cross.T @ left) / factors.spectrum, near=factors.right)
        return Factors(left, factors.spectrum, right)
    if factors is None:
        start = _coded_start(statistics, constraints.kappa)
        factors = fit(start.left, start)
    return _turned(statistics, factors, constraints, project)


def _turned(
    statistics: Statistics,
    factors: Factors,
    constraints: Constraints,
    project: Callable[..., NDArray],
) -> Factors:
    """Left, right and spectrum step in this order, the right one as if the spectrum were flat."""
    gram, cross = statistics.gram, statistics.cross
    left = polar(cross @ factors.right * factors.spectrum, near=factors.left)
    right = polar(cross.T @ left, near=factors.right)
    turned = Factors(left, factors.spectrum, right)
    return fit_spectrum(left, turned, gram, cross, constraints, project).scaled_to(constraints.norm)


def _printed_start(statistics: Statistics, kappa: float) -> Factors:
    """Least squares or, for small bounds, Procrustes, whatever transform made the first codes."""
    if kappa > 2:
        return decompose(least_squares(statistics))
    left, _, right = svd(statistics.cross)
    return Factors(left, np.ones(len(left)), right.T)


def _coded_start(statistics: Statistics, kappa: float) -> Factors:
    """The same in the public code, which for small bounds decomposes the transposed cross matrix.

    That swaps left and right: kept here, because published results depend on it.
    """
    start = _printed_start(statistics, kappa)
    return start if kappa > 2 else Factors(start.right, start.spectrum, start.left)


def first_accepted_spectrum(targets: NDArray, weights: NDArray, max_condition: float) -> NDArray:
    """Spectrum within the bound, not always the closest one: see `project_spectrum` for that.

    Tries numbers of entries at the ceiling and, for each, at the floor, in ascending order, and
    takes the first pair with which the entries between them are within floor and ceiling. Whether
    those at floor and ceiling belong there is not asked: for targets (10, 9, 1), weights 1 and
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
