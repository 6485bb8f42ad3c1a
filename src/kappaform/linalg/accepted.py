"""The spectrum step of the method's public code, kept to reproduce its results."""

import numpy as np
from numpy.typing import NDArray


def first_accepted_spectrum(targets: NDArray, weights: NDArray, max_condition: float) -> NDArray:
    """Spectrum within the bound, not always the closest one: see `project_spectrum` for that.

    Tries numbers of entries at the ceiling and, for each, at the floor, in ascending order, and
    takes the first pair with which the entries between them are within the bounds. Whether those at
    the floor and at the ceiling belong there is not asked: for targets (10, 9, 1), weights 1 and
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
