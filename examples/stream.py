"""Learn a transform from patches that come in batches, and are gone when the next ones come.

python examples/stream.py [FOLDER]      a picture goes to FOLDER, by default ./demo
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from skimage import data

import kappaform as kf

SIDE, N_NONZERO, BATCH = 8, 6, 1000


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    photographs = [data.camera(), data.coins(), data.brick()]
    test = next(batches(photographs, 1, seed=1))

    estimator = kf.ConditionedTransform(N_NONZERO, max_condition=2.0)
    print(f"{'patches seen':>12} {'condition':>9} {'error of unseen patches':>24}")
    for n_batches, batch in enumerate(batches(photographs, 100), 1):
        estimator.partial_fit(batch)
        if n_batches in (1, 3, 10, 30, 100):
            seen, error = n_batches * BATCH, -estimator.score(test)
            print(f"{seen:12d} {estimator.condition_number_:9.6f} {error:24.4f}")

    # The same as a function, which stops when told to: here, when ten batches gained little.
    def is_settled(state: kf.LearnResult) -> bool:
        recent, earlier = state.errors.relative[-10:], state.errors.relative[-20:-10]
        return state.n_iter >= 30 and recent.mean() > 0.995 * earlier.mean()

    result = kf.learn_stream(
        batches(photographs, 200),
        kf.Conditioned(2.0),
        n_nonzero_coefs=N_NONZERO,
        callback=is_settled,
    )
    error = kf.evaluate(test, result, N_NONZERO).reconstruction
    print(f"\nlearn_stream: {result.n_iter} batches, {result.stop_reason}; error {error:.4f}")

    kf.plots.plot_atoms(result, (SIDE, SIDE)).savefig(folder / "stream_atoms.png", dpi=150)
    print(f"written: {folder / 'stream_atoms.png'}")


def batches(photographs: list[np.ndarray], number: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Random patches of all photographs, one per row, means removed; none is stored."""
    rng = np.random.default_rng(seed)
    windows = [sliding_window_view(photograph, (SIDE, SIDE)) for photograph in photographs]
    for _ in range(number):
        found = []
        for views in windows:
            top, left = (
                rng.integers(0, size, BATCH // len(windows) + 1) for size in views.shape[:2]
            )
            found.append(views[top, left].reshape(-1, SIDE * SIDE))
        signals = rng.permutation(np.concatenate(found))[:BATCH].astype(np.float64)
        yield signals - signals.mean(axis=1, keepdims=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
