"""
Learn a transform
=================

Learn a square matrix in whose domain signals are nearly sparse: a few of 64 coefficients hold
almost all of the energy. Its condition number is bounded, so that the inverse amplifies relative
errors by at most this bound.
"""

import numpy as np
from skimage.data import camera
from sklearn.feature_extraction.image import extract_patches_2d

import kappaform as kf

# %%
# The signals are patches of a photograph, one per **row**, with their means removed.

patches = extract_patches_2d(camera() / 255, (8, 8), max_patches=10_000, random_state=0)
signals = patches.reshape(-1, 64)
signals -= signals.mean(axis=1, keepdims=True)
train, test = signals[::2], signals[1::2]

# %%
# The estimator follows the scikit-learn API. ``max_condition`` is the bound: it holds after every
# iteration, for any signals.

transform = kf.ConditionedTransform(n_nonzero_coefs=6, max_condition=2.0, tol=1e-3).fit(train)
codes = transform.transform(test)
approximation = transform.inverse_transform(codes)

print("nonzero coefficients:", np.count_nonzero(codes, axis=1).max(), "of", codes.shape[1])
print("condition number:    ", round(transform.condition_number_, 6))
print("relative error:      ", round(-transform.score(test), 4))

# %%
# The rows of the matrix are its *atoms*: a coefficient is the inner product of a patch with an
# atom. Here they are sorted from low to high frequency.

atoms = kf.plots.plot_atoms(transform)

# %%
# Three methods on the same patches
# ---------------------------------
#
# An orthonormal transform has condition number 1. With a log-determinant penalty the condition
# number is known only after learning. The conditioned method takes it as a bound.


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
# The *sparsification* error is that of the coefficients, the *reconstruction* error that of the
# signals. A looser bound improves the first, but not always the second: see
# :doc:`choose_the_bound`.
