r"""
From paper to code
==================

Algorithm 1 of Pătrașcu, Rusu and Irofti, *Learning Explicitly Conditioned Sparsifying Transforms*
(`arXiv:2403.03168 <https://arxiv.org/abs/2403.03168>`_), line by line in NumPy, next to
the same algorithm in kappaform.

.. math:: \min_{W, X} \|X - Y W^T\|^2 \quad \text{s.t.} \quad
          \kappa(W) \le \kappa, \quad \|W\|_F = \tau, \quad
          X \text{ with } s \text{ nonzeros in each row}

The transform is stored as :math:`W = U \Sigma V^T`, and its factors are updated in turn.
"""

import numpy as np
from matplotlib.figure import Figure
from skimage.data import camera

import kappaform as kf

SPARSITY, BOUND, N_ITER = 6, 3.0, 40

signals = kf.extract_patches(camera() / 255, 8, stride=4)
signals -= signals.mean(axis=0)
n = signals.shape[1]
gram = signals.T @ signals


def nearest_orthogonal(matrix):
    """Orthogonal matrix with the largest inner product (the Procrustes problem)."""
    left, _, right = np.linalg.svd(matrix)
    return left @ right


# %%
# One iteration
# -------------
#
# 1. **Left factor**: Procrustes, exact.
# 2. **Spectrum**: least squares within the cone :math:`\ell \le \sigma_i \le \kappa \ell`. The
#    paper searches for :math:`\ell`; :func:`kappaform.project_spectrum` computes it. Then the
#    spectrum is scaled to the norm :math:`\tau`.
# 3. **Right factor**: it has no closed form. The paper takes the minimiser of an upper bound.
# 4. **Codes**: the :math:`s` largest coefficients of each signal.


def iterate(codes, left, spectrum, right):
    cross = codes.T @ signals
    left = nearest_orthogonal(cross @ right * spectrum)
    weights = np.einsum("ij,ij->j", right, gram @ right)
    targets = np.einsum("ij,ij->j", left, cross @ right) / weights
    spectrum = kf.project_spectrum(targets, weights, BOUND)
    spectrum *= np.sqrt(n) / np.linalg.norm(spectrum)
    right = nearest_orthogonal((cross.T @ left) / spectrum)
    codes = kf.hard_threshold(signals @ ((left * spectrum) @ right.T).T, SPARSITY)
    return codes, left, spectrum, right


# %%
# The initialisation is the least-squares fit to the codes of the DCT basis.

codes = kf.hard_threshold(signals @ kf.dct_basis((8, 8)).T, SPARSITY)
left, spectrum, right = np.linalg.svd(np.linalg.lstsq(signals, codes)[0].T)
state = codes, left, spectrum, right.T
by_hand = []
for _ in range(N_ITER):
    state = iterate(*state)
    codes, left, spectrum, right = state
    by_hand.append(np.linalg.norm(codes - signals @ ((left * spectrum) @ right.T).T))
print("condition number:", round(spectrum.max() / spectrum.min(), 6))

# %%
# The same in one call
# --------------------
#
# ``variant="paper"`` is this algorithm. The default, ``"monotone"``, has a spectrum step that
# accounts for the norm and a right step that never raises the error. It starts from several
# initialisations: its curve is that of the best one, and the others took the rest of the
# iterations.

options = {"n_nonzero_coefs": SPARSITY, "max_iter": N_ITER, "tol": 0}
paper = kf.learn(signals, kf.Conditioned(BOUND, variant="paper"), **options)
monotone = kf.learn(signals, kf.Conditioned(BOUND), **options)
print("largest difference between the two:", np.abs(by_hand - paper.errors.absolute[1:]).max())
print(f"by hand            {by_hand[-1]:.4f}")
print(f"variant='paper'    {paper.errors.absolute[-1]:.4f}")
print(f"variant='monotone' {monotone.errors.absolute[-1]:.4f}")

# %%
# The errors by hand and with ``variant="paper"`` agree except for a few thousandths: if a
# coefficient is in no code, the best left factor is not unique.
#
# The error of the published steps may rise. That of the monotone ones cannot.

figure = Figure(figsize=(7, 4), layout="constrained")
axes = figure.subplots()
axes.plot(range(1, N_ITER + 1), by_hand, "k--", label="by hand")
for name, result in {"paper": paper, "monotone": monotone}.items():
    errors = result.errors.absolute[1:]
    axes.plot(range(1, len(errors) + 1), errors, label=f'variant="{name}"')
axes.set(xlabel="iteration", ylabel="absolute error")
axes.legend(frameon=False)

# %%
# :doc:`/paper` reproduces the table and the figures of the paper and corrects some formulas.
# :doc:`/mathematics` has the proofs.
