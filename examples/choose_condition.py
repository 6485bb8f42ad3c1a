"""How to choose the bound on the condition number: errors over the bound, on unseen signals.

Learns from patches of the left half of a photograph and validates on the right half. The
sparsification errors fall with the bound. The reconstruction error, what a user of the codes sees,
falls first and then rises: its minimum is the bound to take.

    python choose_condition.py [FOLDER]      draws into FOLDER, by default demo/
"""

import sys
from pathlib import Path

import numpy as np
from skimage.data import moon
from sklearn.feature_extraction.image import extract_patches_2d

import kappaform as kf


def patches_of(image: np.ndarray, count: int) -> np.ndarray:
    """Random 8×8 patches without their means, one per row."""
    patches = extract_patches_2d(image, (8, 8), max_patches=count, random_state=0)
    signals = patches.reshape(count, -1)
    return signals - signals.mean(axis=1, keepdims=True)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    left, right = np.hsplit(moon() / 255.0, 2)
    path = kf.condition_path(
        patches_of(left, 4000),
        [1, 1.5, 2, 3, 5],
        n_nonzero_coefs=8,
        validation=patches_of(right, 4000),
        coding="refit",
        tol=1e-3,
    )
    print(path)

    errors = path["validation_reconstruction"]
    print(
        f"\nmax_condition = {path.chosen:g} rebuilds unseen patches best: "
        f"{1 - errors.min() / errors[0]:.1%} less error than an orthonormal transform."
    )
    kf.plots.plot_path(path).savefig(folder / "choose_condition.png", dpi=150)
    print(f"drawn: {folder / 'choose_condition.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
