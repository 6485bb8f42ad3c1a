"""Three methods on the same patches: errors, condition numbers, convergence.

The log-determinant penalty decides the condition number itself, and how much is only seen
afterwards. The conditioned method is given bounds: one below it, and then exactly that number,
with the same norm.

    python compare_methods.py [FOLDER]      draws into FOLDER, by default demo/
"""

import sys
from pathlib import Path

import numpy as np
from skimage.data import camera
from sklearn.feature_extraction.image import extract_patches_2d

import kappaform as kf

SPARSITY = 6


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    patches = extract_patches_2d(camera() / 255.0, (8, 8), max_patches=10_000, random_state=0)
    signals = patches.reshape(len(patches), -1)
    signals -= signals.mean(axis=1, keepdims=True)

    def learned(method):
        return kf.learn(signals, method, n_nonzero_coefs=SPARSITY, tol=1e-4)

    log_det = learned(kf.LogDet())
    reached = log_det.condition_number
    bound = rf"$\kappa \leq$ {reached:.3g}"
    results = {
        "orthonormal": learned(kf.Orthonormal()),
        "log-det": log_det,
        f"conditioned, {bound}": learned(kf.Conditioned(reached)),
        f"the same, relative": learned(kf.Conditioned(reached, objective="relative")),
    }
    print(f"{'method':24} {'condition':>9} {'per norm':>9} {'relative':>9} {'reconstruction':>15}")
    for name, result in results.items():
        errors = kf.evaluate(signals, result, SPARSITY)
        plain = name.replace(r"$\kappa \leq$", "<=")
        print(
            f"{plain:24} {result.condition_number:9.4f} {errors.absolute/np.linalg.norm(result.transform):9.4f} "
            f"{errors.relative:9.4f} {errors.reconstruction:15.4f}"
        )
    pictures = {
        "compare_convergence.png": kf.plots.plot_convergence(results, error="relative"),
        "compare_spectrum.png": kf.plots.plot_spectrum(results),
    }
    for file, figure in pictures.items():
        figure.savefig(folder / file, dpi=150)
        print(f"drawn: {folder / file}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
