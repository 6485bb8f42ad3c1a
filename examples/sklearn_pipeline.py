"""A transform inside a scikit-learn pipeline, its parameters chosen by cross-validation.

Handwritten digits are centred, coded by a few coefficients each, and classified by their codes.

    python sklearn_pipeline.py [FOLDER]      draws into FOLDER, by default demo/
"""

import sys
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import kappaform as kf


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    digits, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(digits, labels, random_state=0)

    pipeline = Pipeline(
        [
            ("centre", StandardScaler(with_std=False)),
            ("codes", kf.ConditionedTransform(tol=1e-2)),
            ("classify", KNeighborsClassifier(n_neighbors=3)),
        ]
    )
    grid = {"codes__n_nonzero_coefs": [8, 16], "codes__max_condition": [1.0, 1.5, 3.0]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(train, train_labels)

    rows = zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True)
    for parameters, score in rows:
        print(f"{score:.3f}  {parameters}")
    print(f"best: {search.best_params_}")
    print(f"accuracy on unseen digits: {search.score(test, test_labels):.3f}")

    transform = search.best_estimator_["codes"]
    kf.plots.plot_atoms(transform.result_, (8, 8)).savefig(folder / "digit_atoms.png", dpi=150)
    print(f"drawn: {folder / 'digit_atoms.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
