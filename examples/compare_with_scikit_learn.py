"""
Comparison with scikit-learn
============================

Three ways to represent a patch of 64 pixels by 6 coefficients, and when to use which: PCA,
dictionary learning, and a transform with a bounded condition number.
"""

import time
import warnings

import numpy as np
from matplotlib.figure import Figure
from skimage.data import brick, camera, coins
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, MiniBatchDictionaryLearning
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.image import extract_patches_2d
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import kappaform as kf

SPARSITY = 6


def patches_of(image, seed):
    patches = extract_patches_2d(image / 40, (8, 8), max_patches=2000, random_state=seed)
    signals = patches.reshape(-1, 64)
    return signals - signals.mean(axis=1, keepdims=True)


train = np.concatenate([patches_of(image(), 0) for image in (camera, coins, brick)])
test = np.concatenate([patches_of(image(), 1) for image in (camera, coins, brick)])

# %%
# Reconstruction from 6 coefficients
# ----------------------------------
#
# PCA uses the same 6 components for all patches. A transform selects 6 atoms for each patch, and so
# does a dictionary, which may be overcomplete and searches for a good combination. Times are
# processor times.

# Values are divided by 40 above because the default sparsity penalty of dictionaries, 1, suits
# them.
warnings.simplefilter("ignore", ConvergenceWarning)  # of the sparse coding in a dictionary's fit


def dictionary(n_atoms):
    return MiniBatchDictionaryLearning(
        n_atoms,
        fit_algorithm="cd",
        transform_algorithm="omp",
        transform_n_nonzero_coefs=SPARSITY,
        max_iter=3,
        batch_size=512,
        random_state=0,
    )


models = {
    "PCA, 6 components": PCA(SPARSITY),
    "kappaform, κ ≤ 1.25": kf.ConditionedTransform(SPARSITY, max_condition=1.25, tol=1e-3),
    "dictionary, 64 atoms": dictionary(64),
    "dictionary, 128 atoms": dictionary(128),
}
rows = {}
for name, model in models.items():
    start = time.process_time()
    model.fit(train)
    model.transform(test[:1])  # the first call loads compiled kernels
    fitted = time.process_time()
    codes = model.transform(test)
    coded = time.process_time()
    if hasattr(model, "inverse_transform"):
        reconstructed = model.inverse_transform(codes)
    else:
        reconstructed = codes @ model.components_
    error = np.linalg.norm(test - reconstructed) / np.linalg.norm(test)
    rows[name] = error, fitted - start, coded - fitted
    print(f"{name:22} error {error:.3f}, fit {fitted - start:5.2f} s, code {coded - fitted:5.2f} s")

# %%
# A dictionary has the lowest error for a given sparsity: use it if that matters most and coding
# time does not. Coding with a transform takes a few matrix products, and all 64 coefficients
# together reconstruct the signal exactly, up to rounding.

figure = Figure(figsize=(8, 3), layout="constrained")
titles = ("relative error on held-out patches", "seconds to code 6000 patches")
panels = figure.subplots(1, 2, sharey=True)
panels[0].invert_yaxis()
for axes, title, column in zip(panels, titles, (0, 2), strict=True):
    values = [row[column] for row in rows.values()]
    bars = axes.barh(list(rows), values, color=["#56B4E9", "#0072B2", "#E69F00", "#D55E00"])
    axes.bar_label(bars, fmt="%.3f", padding=3)
    axes.margins(x=0.2)
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)

# %%
# Why the condition number matters
# --------------------------------
#
# If coefficients are perturbed, by noise or by quantisation, the relative error of the signals is
# at most κ times that of the coefficients. Here noise of 10 % of their norm is added to all
# coefficients.

for bound in (1.0, 2.0, 10.0):
    result = kf.learn(train, kf.Conditioned(bound), n_nonzero_coefs=SPARSITY, tol=1e-2)
    matrix = result.transform
    coefs = test @ matrix.T
    noise = np.random.default_rng(0).standard_normal(coefs.shape)
    noise *= 0.1 * np.linalg.norm(coefs) / np.linalg.norm(noise)
    error = np.linalg.norm(noise @ np.linalg.inv(matrix).T) / np.linalg.norm(test)
    print(f"condition number {np.linalg.cond(matrix):7.3f}: 10 % noise becomes {error:.1%}")

# %%
# Not for classification
# ----------------------
#
# Codes that reconstruct well need not separate classes. Here digits are classified by their nearest
# neighbours:

digits, labels = load_digits(return_X_y=True)
digits -= digits.mean(axis=0)
classifiers = {
    "pixels": KNeighborsClassifier(3),
    "PCA, 20 components": make_pipeline(PCA(20), KNeighborsClassifier(3)),
    "kappaform, 8 of 64": make_pipeline(
        kf.ConditionedTransform(8, max_condition=1.25, tol=1e-2), KNeighborsClassifier(3)
    ),
}
for name, classifier in classifiers.items():
    score = cross_val_score(classifier, digits, labels, cv=3).mean()
    print(f"{name:19} accuracy {score:.3f}")
