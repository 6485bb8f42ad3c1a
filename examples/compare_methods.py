"""Three methods on the same patches: errors, condition numbers, convergence.

The condition number that the log-determinant penalty leads to is only seen afterwards. The
conditioned method is given this number as its bound, once for the absolute and once for the
relative error: each wins in what it minimises, and neither in the reconstruction.

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
    bound = round(log_det.condition_number, 2)
    results = {
        "orthonormal": learned(kf.Orthonormal()),
        "log-det": log_det,
        f"conditioned to {bound}": learned(kf.Conditioned(bound)),
        "the same, relative objective": learned(kf.Conditioned(bound, objective="relative")),
    }
    # The absolute error scales with the transform: only per norm can it be compared.
    print(f"{'method':28} condition  absolute/norm  relative  reconstruction")
    for name, result in results.items():
        errors = kf.evaluate(signals, result, SPARSITY)
        per_norm = errors.absolute / np.linalg.norm(result.transform)
        print(
            f"{name:28} {result.condition_number:9.4f} {per_norm:14.4f} "
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
