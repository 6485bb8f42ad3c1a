"""
Learn a transform
=================

A square matrix under which signals become sparse: of 64 coefficients a handful says nearly all. The
condition number of the matrix is bounded, so that the way back is safe.
"""

import numpy as np
from skimage.data import camera
from sklearn.feature_extraction.image import extract_patches_2d

import kappaform as kf

# %%
# The signals are patches of a photograph, one in each **row**, with their means removed.

patches = extract_patches_2d(camera() / 255, (8, 8), max_patches=10_000, random_state=0)
signals = patches.reshape(-1, 64)
signals -= signals.mean(axis=1, keepdims=True)
train, test = signals[::2], signals[1::2]

# %%
# The estimator follows the rules of scikit-learn. ``max_condition`` is the bound: it holds after
# every iteration, whatever the signals are.

transform = kf.ConditionedTransform(n_nonzero_coefs=6, max_condition=2.0, tol=1e-3).fit(train)
codes = transform.transform(test)
approximation = transform.inverse_transform(codes)

print("nonzero coefficients:", np.count_nonzero(codes, axis=1).max(), "of", codes.shape[1])
print("condition number:    ", round(transform.condition_number_, 6))
print("relative error:      ", round(-transform.score(test), 4))

# %%
# The rows of the matrix are the *atoms*, the patterns that a patch is compared with. Here they are,
# from low to high frequency.

atoms = kf.plots.plot_atoms(transform)

# %%
# Three methods on the same patches
# ---------------------------------
#
# An orthonormal transform has condition number 1. The log-determinant penalty leads to a condition
# number that is known only afterwards. The conditioned method takes it as a bound.


def learned(method):
    return kf.learn(train, method, n_nonzero_coefs=6, tol=1e-3)


results = {
    "orthonormal": learned(kf.Orthonormal()),
    "log-det": learned(kf.LogDet()),
    "condition ≤ 1.25": learned(kf.Conditioned(1.25)),
    "condition ≤ 4": learned(kf.Conditioned(4.0)),
}
print(f"{'':17} condition  sparsification  reconstruction")
for name, result in results.items():
    errors = kf.evaluate(test, result, 6)
    print(
        f"{name:17} {result.condition_number:9.4f} {errors.relative:15.4f} "
        f"{errors.reconstruction:15.4f}"
    )

spectra = kf.plots.plot_spectrum(results)

# %%
# The *sparsification* error is what is lost among the coefficients, the *reconstruction* error what
# is lost among the signals. A loose bound improves the first, not always the second:
# :doc:`choose_the_bound` goes on from here.
