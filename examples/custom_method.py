r"""
A custom method
===============

A custom method is a subclass of :class:`kappaform.Method` with a single function, ``update``.
Learning, streams, files, plots and the estimators accept it like a built-in one.

This example implements doubly sparse transforms (Ravishankar and Bresler, *Learning doubly sparse
transforms for images*, IEEE Trans. Image Processing 22, 2013): :math:`W = B \Phi`, with the DCT
basis :math:`\Phi` and a **sparse** matrix :math:`B`, which needs less storage and fewer operations.
"""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from skimage.data import camera
from sklearn.feature_extraction.image import extract_patches_2d

import kappaform as kf

BASIS = kf.dct_basis((8, 8))

# %%
# The class
# ---------
#
# A pass over the signals :math:`Y` with their codes :math:`X` computes the sums that an update
# receives: ``gram``, :math:`Y^T Y`, and ``cross``, :math:`X^T Y`. Here an update is the closed form
# of the log-det method, of which :math:`B` keeps the largest entries. The fields are the
# parameters.


@dataclass(frozen=True)
class DoublySparse(kf.Method):
    """W = B Φ, where a fraction `density` of the entries of B is nonzero."""

    density: float = 0.25
    weight: float = 0.0031

    def update(self, statistics, transform):
        penalty = self.weight * np.trace(statistics.gram)
        values, vectors = np.linalg.eigh(statistics.gram + penalty * np.eye(len(transform)))
        root = (vectors / np.sqrt(values)) @ vectors.T
        left, singular, right = np.linalg.svd(statistics.cross @ root)
        singular = 0.5 * (singular + np.sqrt(singular**2 + 2 * penalty))
        correction = (left * singular) @ right @ root @ BASIS.T
        n_kept = round(self.density * correction.size)
        least = np.partition(np.abs(correction), -n_kept, axis=None)[-n_kept]
        return np.where(np.abs(correction) >= least, correction, 0) @ BASIS

    def loss(self, statistics, transform):
        penalty = np.sum(transform**2) - np.linalg.slogdet(transform)[1]
        error = statistics.discarded_energy / np.trace(statistics.gram)
        return float(error + self.weight * penalty)


# %%
# Use it like a built-in method
# -----------------------------
#
# :class:`kappaform.LearnedTransform` is the estimator for any method. Every second patch is held
# out for the evaluation.

patches = extract_patches_2d(camera() / 255, (8, 8), max_patches=8000, random_state=0)
signals = patches.reshape(len(patches), -1)
signals -= signals.mean(axis=1, keepdims=True)
train, test = signals[::2], signals[1::2]

methods = {
    "5 % of B": DoublySparse(0.05),
    "25 % of B": DoublySparse(),
    "log-det, all": kf.LogDet(),
}
learned = {
    name: kf.LearnedTransform(6, method=method, max_iter=100, tol=1e-3).fit(train)
    for name, method in methods.items()
}
error = kf.evaluate(test, BASIS, 6).reconstruction
print(f"{'DCT basis':12}  condition 1.00  reconstruction error {error:.4f}")
for name, estimator in learned.items():
    condition, error = estimator.condition_number_, -estimator.score(test)
    print(f"{name:12}  condition {condition:.2f}  reconstruction error {error:.4f}")

# %%
# The magnitudes of :math:`B`. Low frequencies, which come first, remain those of the DCT basis;
# high frequencies are mixed.

figure = Figure(figsize=(9, 3.4), layout="constrained")
for axes, (name, estimator) in zip(figure.subplots(1, 3), learned.items(), strict=True):
    correction = np.abs(estimator.components_ @ BASIS.T)
    axes.imshow(np.sqrt(correction), cmap="gray_r", interpolation="nearest")
    axes.set(title=name, xticks=[], yticks=[])

# %%
# A field ``max_condition`` is a bound on the condition number: it is checked after every update,
# and :func:`kappaform.condition_path` varies it. If a method fails, :exc:`kappaform.MethodFailed`
# carries the result so far.
