"""Slow, obvious versions of what the package does: the oracles of its tests.

They share no code with the package.
"""

import math

import numpy as np

# --- engines: codes and the statistics of a pass -------------------------------------------------


def hard_threshold(coefs, n_nonzero):
    """Rows with all but their n_nonzero largest magnitudes set to zero; of equal ones the first stay."""
    coefs = np.asarray(coefs)
    codes = np.zeros_like(coefs)
    wanted = np.broadcast_to(n_nonzero, len(coefs))
    for row, code, s in zip(coefs, codes, wanted, strict=True):
        by_magnitude = sorted(range(len(row)), key=lambda j, row=row: (-abs(float(row[j])), j))
        for j in by_magnitude[:s]:
            code[j] = row[j]
    return codes


def pass_statistics(signals, transform, n_nonzero):
    """gram, cross, code energy and discarded energy of signals (rows) and their codes, in float64."""
    signals = np.asarray(signals, dtype=np.float64)
    n_features = signals.shape[1]
    coefs = np.array([[math.fsum(w * y) for w in np.asarray(transform)] for y in signals])
    codes = hard_threshold(coefs, n_nonzero)
    gram, cross = np.zeros((2, n_features, n_features))
    for y, x in zip(signals, codes, strict=True):
        gram += np.outer(y, y)
        cross += np.outer(x, y)
    kept = math.fsum((codes**2).ravel())
    discarded = math.fsum(((coefs - codes) ** 2).ravel())
    return gram, cross, kept, discarded
