"""
Select the bound
================

A looser bound always lowers the sparsification error. Whether it helps shows in the reconstruction
error on held-out signals.
"""

import numpy as np
from skimage.data import moon
from sklearn.feature_extraction.image import extract_patches_2d

import kappaform as kf

# %%
# Patches of the left half of a photograph are used for learning, those of the right half for
# validation.


def patches_of(image, count=3000):
    patches = extract_patches_2d(image, (6, 6), max_patches=count, random_state=0)
    signals = patches.reshape(count, -1)
    return signals - signals.mean(axis=1, keepdims=True)


left, right = np.hsplit(moon() / 255, 2)
train, validation = patches_of(left), patches_of(right)

# %%
# :func:`kappaform.condition_path` learns a transform for every bound and computes four errors.
# Each bound starts from the previous solution and from fresh initialisations; the best is kept.

bounds = [1, 1.25, 1.5, 2, 3, 5]
path = kf.condition_path(train, bounds, n_nonzero_coefs=5, validation=validation, tol=1e-2)

errors = path["validation_reconstruction"]
for bound, error in zip(path["max_condition"], errors, strict=True):
    mark = "  <- selected" if bound == path.chosen else ""
    print(f"max_condition {bound:5g}: reconstruction error {error:.4f}{mark}")
print(f"\n{1 - errors.min() / errors[0]:.1%} lower error than an orthonormal transform")

# %%
# On the training signals the sparsification error falls with the bound. The reconstruction error
# falls, then rises: its minimum on the validation signals, marked by a ring, is the bound to use.

figure = kf.plots.plot_path(path)

# %%
# The path holds all results; ``path.best`` is the one with the selected bound.

print(f"condition number {path.best.condition_number:.4f} after {path.best.n_iter} iterations")

# %%
# By cross-validation
# -------------------
#
# Without a validation set, :class:`kappaform.ConditionedTransformCV` selects the bound by
# cross-validation and then learns from all signals. Both evaluate the codes of the estimators
# (``coding="refit"``).

search = kf.ConditionedTransformCV(5, max_conditions=[1, 1.5, 2, 3, 5], cv=3, tol=1e-2).fit(train)
print(f"selected: max_condition {search.max_condition_:g}")
print(f"reconstruction error on the other half: {-search.score(validation):.4f}")

cross_validated = kf.plots.plot_path(search.condition_path_)

# %%
# On the command line, ``kappaform path photo.png --choose`` does the same for images, and
# ``kappaform explore photo.png -o explore.html`` writes a page with a slider over the bound
# (:doc:`/explorer`).
