"""Learn transforms from the patches of a photograph, and draw what was learned.

python examples/learn_patches.py [FOLDER]      pictures go to FOLDER, by default ./demo
"""

import sys
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from skimage import data

import kappaform as kf

SIDE, N_NONZERO = 8, 6


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    patches = sliding_window_view(data.camera(), (SIDE, SIDE))[::4, ::4]
    signals = patches.reshape(-1, SIDE * SIDE).astype(np.float64)
    signals -= signals.mean(axis=1, keepdims=True)
    train, validation = signals[::2], signals[1::2]
    print(f"{len(train)} patches of {SIDE} x {SIDE} pixels, {N_NONZERO} coefficients each\n")

    methods = {
        "orthonormal": kf.Orthonormal(),
        "log-det": kf.LogDet(),
        "condition ≤ 2": kf.Conditioned(2.0),
        "condition ≤ 5": kf.Conditioned(5.0),
    }
    results = {
        name: kf.learn(train, method, n_nonzero_coefs=N_NONZERO) for name, method in methods.items()
    }
    print(
        f"{'method':<14} {'condition':>9} {'iterations':>10} {'relative':>9} {'reconstruction':>14}"
    )
    for name, result in results.items():
        errors = kf.evaluate(validation, result, N_NONZERO)
        print(
            f"{name:<14} {result.condition_number:9.4f} {result.n_iter:10d} "
            f"{errors.relative:9.4f} {errors.reconstruction:14.4f}"
        )

    path = kf.condition_path(
        train,
        [1, 1.25, 1.5, 2, 3, 5, 10, 20],
        n_nonzero_coefs=N_NONZERO,
        validation=validation,
        max_iter=60,
    )
    pictures = {
        "convergence": kf.plots.plot_convergence(results, error="relative"),
        "spectrum": kf.plots.plot_spectrum(results),
        "atoms": kf.plots.plot_atoms(results["condition ≤ 2"]),
        "path": kf.plots.plot_path(path),
    }
    print()
    for name, figure in pictures.items():
        file = folder / f"{name}.png"
        figure.savefig(file, dpi=150)
        print(f"written: {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
