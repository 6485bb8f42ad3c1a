r"""
A method of one's own
=====================

A class with one function is a method: :class:`kappaform.Method`. Learning, streams, files, figures
and the estimators then take it as they take their own.

The method here is a published one (Ravishankar and Bresler, *Learning doubly sparse transforms for
images*, IEEE Trans. Image Processing 22, 2013). Its transform is :math:`W = B \Phi`, with the
cosine basis :math:`\Phi` and a **sparse** matrix :math:`B`: fewer numbers to keep, and to multiply
with.
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
# A pass over the signals :math:`Y` with their codes :math:`X` gives the sums that an update sees,
# ``gram`` :math:`Y^T Y` and ``cross`` :math:`X^T Y`. Here an update is the closed form of the
# log-det method, of which :math:`B` keeps the largest entries. The fields are the parameters.


@dataclass(frozen=True)
class DoublySparse(kf.Method):
    """W = B Φ, where a share of the entries of B, `density`, is not zero."""

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
# Use it like any other
# ---------------------
#
# :class:`kappaform.LearnedTransform` is the estimator of any method. It learns from every second
# patch, and is measured on the others.

patches = extract_patches_2d(camera() / 255, (8, 8), max_patches=8000, random_state=0)
signals = patches.reshape(len(patches), -1)
signals -= signals.mean(axis=1, keepdims=True)
train, others = signals[::2], signals[1::2]

methods = {
    "5 % of B": DoublySparse(0.05),
    "25 % of B": DoublySparse(),
    "log-det, all": kf.LogDet(),
}
learned = {
    name: kf.LearnedTransform(6, method=method, max_iter=100, tol=1e-3).fit(train)
    for name, method in methods.items()
}
error = kf.evaluate(others, BASIS, 6).reconstruction
print(f"{'cosine basis':12}  condition 1.00  error of rebuilt patches {error:.4f}")
for name, estimator in learned.items():
    condition, error = estimator.condition_number_, -estimator.score(others)
    print(f"{name:12}  condition {condition:.2f}  error of rebuilt patches {error:.4f}")

# %%
# The magnitudes of :math:`B`. Low frequencies, first, stay what they are in the cosine basis; high
# ones are mixed with each other.

figure = Figure(figsize=(9, 3.4), layout="constrained")
for axes, (name, estimator) in zip(figure.subplots(1, 3), learned.items(), strict=True):
    correction = np.abs(estimator.components_ @ BASIS.T)
    axes.imshow(np.sqrt(correction), cmap="gray_r", interpolation="nearest")
    axes.set(title=name, xticks=[], yticks=[])

# %%
# A bound on the condition number is a field ``max_condition``. It is checked after every update,
# and :func:`kappaform.condition_path` varies it. What a method does wrong is a
# :exc:`kappaform.MethodFailed`, which carries what was learned until then.
