"""A transform inside a scikit-learn pipeline, its bound chosen by cross-validation.

Handwritten digits of 64 pixels are centred, coded by 8 coefficients each, and classified by these.

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
            ("codes", kf.ConditionedTransform(n_nonzero_coefs=8, tol=1e-2)),
            ("classify", KNeighborsClassifier(n_neighbors=3)),
        ]
    )
    bounds = [1.0, 1.5, 2.0, 3.0]
    search = GridSearchCV(pipeline, {"codes__max_condition": bounds}, cv=3)
    search.fit(train, train_labels)

    for bound, score in zip(bounds, search.cv_results_["mean_test_score"], strict=True):
        print(f"max_condition {bound}: accuracy {score:.3f} in cross-validation")
    transform = search.best_estimator_["codes"]
    print(f"best: {transform.max_condition}, reached {transform.condition_number_:.6f}")
    print(f"accuracy on unseen digits: {search.score(test, test_labels):.3f}")

    kf.plots.plot_atoms(transform.result_, (8, 8)).savefig(folder / "digit_atoms.png", dpi=150)
    print(f"drawn: {folder / 'digit_atoms.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
