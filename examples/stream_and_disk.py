"""
Streams and memory maps
=======================

Learning needs only n × n sums over the signals. The signals may therefore arrive in batches that
are not stored, or be in a file that is larger than memory.
"""

import tempfile
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from skimage.data import brick, camera, coins

import kappaform as kf

PHOTOGRAPHS = [sliding_window_view(each, (8, 8)) for each in (camera(), coins(), brick())]


def batches(number, size=999, seed=0):
    """Yield batches of random patches from all photographs."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        found = []
        for windows in PHOTOGRAPHS:
            top, left = (rng.integers(0, side, size // 3) for side in windows.shape[:2])
            found.append(windows[top, left].reshape(-1, 64).astype(float))
        signals = np.concatenate(found)
        yield signals - signals.mean(axis=1, keepdims=True)


test = next(batches(1, seed=1))

# %%
# A stream
# --------
#
# :func:`kappaform.learn_stream` uses each batch once. The bound holds after every batch.

streamed = kf.learn_stream(batches(100), kf.Conditioned(max_condition=1.5), n_nonzero_coefs=6)
print(f"{streamed.n_iter} batches, condition number {streamed.condition_number:.4f}")
print(f"error on held-out patches: {kf.evaluate(test, streamed, 6).reconstruction:.4f}")

# %%
# The errors of a stream are measured on each batch before it is used for learning, so they are
# out-of-sample errors. An estimator does the same with ``partial_fit``.

figure = kf.plots.plot_convergence(streamed, labels=["stream"], error="relative")

# %%
# A file
# ------
#
# The same patches in a file, of which only some rows are in memory at a time. Anything with
# ``shape``, ``dtype`` and slicing of rows can be used, such as HDF5 and Zarr datasets.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "signals.npy"
    np.save(path, np.concatenate(list(batches(100))))
    stored = np.load(path, mmap_mode="r")
    print(f"{stored.nbytes / 1e6:.0f} MB in {path.name}")
    from_file = kf.learn(stored, kf.Conditioned(1.5), n_nonzero_coefs=6, tol=1e-3)
    del stored  # some systems do not remove files that are open

print(f"error on held-out patches: {kf.evaluate(test, from_file, 6).reconstruction:.4f}")

# %%
# Both errors are about the same: the stream contained as many different patches as the file.
# :doc:`/scale` describes when to use which.

atoms = kf.plots.plot_atoms(streamed)
