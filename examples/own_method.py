"""
A method of one's own
=====================

The pieces of kappaform are public. With three of them one can write another method in a few lines,
and still measure, draw and use its result as any other.

The method here keeps coefficients **above a threshold**, instead of a fixed number of them, and its
singular values obey a bound:

.. math:: \\min_{W, X} \\|X - Y W^T\\|^2 + t^2 \\|X\\|_0
          \\quad \\text{s.t.} \\quad \\kappa(W) \\le \\kappa, \\; \\|W\\|_F = \\sqrt n
"""

import numpy as np
from matplotlib.figure import Figure
from skimage.data import camera

import kappaform as kf

signals = kf.extract_patches(camera() / 255, 8, stride=3)
signals -= signals.mean(axis=1, keepdims=True)

# %%
# The steps
# ---------
#
# :math:`W = U \Sigma V^T`, of which the right factor :math:`V` stays the cosine basis. Then each
# step has an exact solution:
#
# - the codes: keep :math:`z` where :math:`|z| > t`;
# - the left factor: the orthogonal matrix nearest to :math:`C V \Sigma`, with :math:`C = X^T Y`;
# - the spectrum: a least-squares problem with a bound, which is
#   :func:`kappaform.project_spectrum`.


def nearest_orthogonal(matrix):
    left, _, right = np.linalg.svd(matrix)
    return left @ right


def learn_with_threshold(signals, threshold, max_condition, n_iter=30):
    n = signals.shape[1]
    right = kf.dct_basis((8, 8)).T
    left, spectrum = np.eye(n), np.ones(n)  # together: the cosine basis
    gram = signals.T @ signals
    weights = np.einsum("ij,ij->j", right, gram @ right).clip(0)  # rounding may say otherwise
    losses = []
    for _ in range(n_iter):
        coefs = signals @ ((left * spectrum) @ right.T).T
        codes = np.where(np.abs(coefs) > threshold, coefs, 0)
        losses.append(np.sum((codes - coefs) ** 2) + threshold**2 * np.count_nonzero(codes))
        cross = codes.T @ signals
        left = nearest_orthogonal(cross @ right * spectrum)
        wanted = np.einsum("ij,ij->j", left, cross @ right).clip(0)
        targets = np.divide(wanted, weights, out=np.zeros(n), where=weights > 1e-9 * weights.max())
        spectrum = kf.project_spectrum(targets, weights, max_condition, norm=np.sqrt(n))
    return (left * spectrum) @ right.T, np.array(losses)


transform, losses = learn_with_threshold(signals, threshold=0.1, max_condition=1.5)

# %%
# Every step is exact, so the loss never rises, and the bound holds.

print("the loss never rises:", bool((np.diff(losses) <= 1e-9 * losses[0]).all()))
print("condition number:    ", round(float(np.linalg.cond(transform)), 6))

figure = Figure(figsize=(6, 3.2), layout="constrained")
axes = figure.subplots()
axes.plot(losses, "o-", markersize=3)
axes.set(xlabel="iteration", ylabel="loss")

# %%
# Use it like any other
# ---------------------
#
# A matrix is enough for :func:`kappaform.evaluate`, for the figures, for ``denoise(transform=...)``
# and as a start, ``learn(init=...)``.

for name, matrix in {"cosine basis": kf.dct_basis((8, 8)), "our method": transform}.items():
    print(f"{name:13} reconstruction error {kf.evaluate(signals, matrix, 6).reconstruction:.4f}")

noisy = kf.add_noise(camera().astype(float), 20)
cleaned = kf.denoise(noisy, sigma=20, transform=transform, patch_size=8)
print(f"noise left: {np.std(cleaned - camera()):.2f} of {np.std(noisy - camera()):.2f}")

atoms = kf.plots.plot_atoms(transform)
