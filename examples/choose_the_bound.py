"""
Choosing the bound
==================

A looser bound lowers the error of the codes. What it costs shows when signals are rebuilt from
them, best on signals that were not learned from.
"""

import numpy as np
from skimage.data import moon
from sklearn.feature_extraction.image import extract_patches_2d

import kappaform as kf

# %%
# Patches of the left half of a photograph are learned from, those of the right half validate.


def patches_of(image, count=3000):
    patches = extract_patches_2d(image, (6, 6), max_patches=count, random_state=0)
    signals = patches.reshape(count, -1)
    return signals - signals.mean(axis=1, keepdims=True)


left, right = np.hsplit(moon() / 255, 2)
train, validation = patches_of(left), patches_of(right)

# %%
# :func:`kappaform.condition_path` learns a transform for every bound and measures three errors.
# Each bound starts from what the previous one found, and from fresh starts; the best is kept.

bounds = [1, 1.25, 1.5, 2, 3, 5]
path = kf.condition_path(train, bounds, n_nonzero_coefs=5, validation=validation, tol=1e-2)

errors = path["validation_reconstruction"]
for bound, error in zip(path["max_condition"], errors, strict=True):
    mark = "  <- chosen" if bound == path.chosen else ""
    print(f"max_condition {bound:5g}: reconstruction error {error:.4f}{mark}")
print(f"\n{1 - errors.min() / errors[0]:.1%} less error than an orthonormal transform")

# %%
# On the signals that were learned from, the first error falls with the bound. The third falls, then
# rises: its minimum on the others, with the ring, is the bound to take.

figure = kf.plots.plot_path(path)

# %%
# All results are kept, and ``path.best`` is the one to go on with.

print(f"condition number {path.best.condition_number:.4f} after {path.best.n_iter} iterations")

# %%
# By cross-validation
# -------------------
#
# Without other signals, :class:`kappaform.ConditionedTransformCV` leaves out a part of those that
# there are, each in turn, and then learns from all of them. Both measure with the codes that the
# estimators make, which reconstruct signals best.

chooser = kf.ConditionedTransformCV(5, max_conditions=[1, 1.5, 2, 3, 5], cv=3, tol=1e-2).fit(train)
print(f"chosen: max_condition {chooser.max_condition_:g}")
print(f"error of rebuilt patches of the other half: {-chooser.score(validation):.4f}")

cross_validated = kf.plots.plot_path(chooser.condition_path_)

# %%
# The command does the same for pictures, ``kappaform path photo.png --choose``; and ``kappaform
# explore photo.png -o explore.html`` writes a page on which you can drag the bound
# (:doc:`/explorer`).
