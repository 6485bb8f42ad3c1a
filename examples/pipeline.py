"""
A scikit-learn pipeline with grid search
========================================

The estimators are ordinary transformers: they can be cloned, searched, pickled and put into
pipelines. Here one codes handwritten digits, and its bound and sparsity are chosen by
cross-validation.
"""

import pandas
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import kappaform as kf

# %%
# 1797 digits of 8 × 8 pixels. Transforms never centre signals by themselves, so the pipeline does.

digits, _ = load_digits(return_X_y=True)
train, test = train_test_split(digits, random_state=0)

pipeline = Pipeline(
    [
        ("centre", StandardScaler(with_std=False)),
        ("codes", kf.ConditionedTransform(tol=1e-2)),
    ]
)

# %%
# ``score`` is minus the relative reconstruction error, so the search looks for the transform that
# rebuilds unseen digits best.

grid = {"codes__max_condition": [1.0, 1.5, 2.0], "codes__n_nonzero_coefs": [4, 8]}
search = GridSearchCV(pipeline, grid, cv=3).fit(train)
print("best:", search.best_params_)
print(f"error of unseen digits: {-search.score(test):.4f}")

# %%
# All results of the search:

found = pandas.DataFrame(search.cv_results_)
figure = Figure(figsize=(6, 3.6), layout="constrained")
axes = figure.subplots()
for sparsity, rows in found.groupby("param_codes__n_nonzero_coefs"):
    errors = -rows["mean_test_score"]
    axes.plot(rows["param_codes__max_condition"], errors, "o-", label=f"{sparsity} coefficients")
axes.set(xlabel="max_condition", ylabel="reconstruction error in cross-validation")
axes.legend(frameon=False)

# %%
# And the atoms of the best transform: parts of digits.

atoms = kf.plots.plot_atoms(search.best_estimator_["codes"])

# %%
# Is it good for classification? Sparse codes of a square transform are made to rebuild signals. For
# a classifier the pixels themselves, or PCA, are as good or better: see
# :doc:`beside_scikit_learn`.
