"""
A scikit-learn pipeline with grid search
========================================

The estimators are ordinary scikit-learn transformers: they can be cloned, pickled, searched and
used in pipelines. Here one encodes handwritten digits; its bound and sparsity are selected by
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
# 1797 digits of 8 × 8 pixels. Transforms do not centre the signals, so the pipeline does.

digits, _ = load_digits(return_X_y=True)
train, test = train_test_split(digits, random_state=0)

pipeline = Pipeline(
    [
        ("centre", StandardScaler(with_std=False)),
        ("codes", kf.ConditionedTransform(tol=1e-2)),
    ]
)

# %%
# ``score`` is the negative relative reconstruction error, so the search selects the transform that
# reconstructs held-out digits best.

grid = {"codes__max_condition": [1.0, 1.5, 2.0], "codes__n_nonzero_coefs": [4, 8]}
search = GridSearchCV(pipeline, grid, cv=3).fit(train)
print("best:", search.best_params_)
print(f"error on held-out digits: {-search.score(test):.4f}")

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
# The atoms of the best transform are parts of digits:

atoms = kf.plots.plot_atoms(search.best_estimator_["codes"])

# %%
# Codes are optimised for reconstruction. For classification, the pixels themselves or PCA are as
# good or better: see :doc:`compare_with_scikit_learn`.
