"""
Union of transforms
===================

Learn several transforms at once: each signal is coded in the one that fits it best. All of them
obey the same bound on their condition number. On the way the signals are sorted into kinds.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import uniform_filter
from scipy.optimize import linear_sum_assignment
from skimage import data
from sklearn.cluster import KMeans

import kappaform as kf

# %%
# The image is a mosaic of four textures with the same mean and standard deviation. The signals are
# the patches around all pixels, with their means removed.

crops = [getattr(data, name)()[:160, :160] for name in ("brick", "grass", "gravel", "coins")]
tiles = [(crop - crop.mean()) / crop.std() for crop in crops]
mosaic = np.block([tiles[:2], tiles[2:]])

padded = np.pad(mosaic, (4, 3), mode="reflect")
signals = np.lib.stride_tricks.sliding_window_view(padded, (8, 8)).reshape(-1, 64)
signals = signals - signals.mean(axis=1, keepdims=True)

# %%
# One transform has to serve all textures. Four transforms share them, at the same number of nonzero
# coefficients. One patch in sixteen is learned from; others measure the errors.

path = kf.union_path(
    signals[::16],
    [1, 2, 4],
    n_nonzero_coefs=6,
    validation=signals[8::16],
    method=kf.Conditioned(2.0),
    tol=1e-3,
)
for number, error in zip(path["n_transforms"], path["validation_reconstruction"], strict=True):
    print(f"{number} transform(s): reconstruction error {error:.4f}")
union = path.results[-1]
print("condition numbers:", union.condition_numbers.round(6))

# %%
# Which texture is where?
# -----------------------
#
# The *loss* of a patch under a transform is the energy that its code discards. A single patch says
# little about its texture, and so does the transform with its least loss. Averages over a window
# say more: the logarithms of energy and relative losses are the features of a pixel, and k-means
# sorts the pixels into four segments.


def losses(transform):
    coefs = signals @ transform.T
    return ((coefs - kf.hard_threshold(coefs, 6)) ** 2).sum(axis=1)


energy = (signals**2).sum(axis=1) + 1e-6
logs = [np.log(energy), *(np.log(losses(each) / energy + 1e-6) for each in union.transforms)]
features = np.stack([uniform_filter(each.reshape(mosaic.shape), 25).ravel() for each in logs]).T
features = (features - features.mean(axis=0)) / features.std(axis=0)
segments = KMeans(4, n_init=4, random_state=0).fit(features[::7]).predict(features)
segments = segments.reshape(mosaic.shape)

# %%
# The share of pixels in the right segment, for the best naming of the segments:

truth = np.kron([[0, 1], [2, 3]], np.ones((160, 160), int))
counts = np.array([[np.sum(segments[truth == i] == j) for j in range(4)] for i in range(4)])
print(f"{counts[linear_sum_assignment(-counts)].sum() / truth.size:.2f} of the pixels")

# %%
# Do several transforms make the difference? No, the features do: with the losses of a single
# transform, even of the DCT, at several sparsities the segments are as good, and averaged Gabor
# magnitudes are better (:doc:`/union` has the figures). Use a union for its codes; the segments
# come with it.

figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained")
axes[0].imshow(mosaic, cmap="gray")
axes[0].set(title="mosaic", xticks=[], yticks=[])
axes[1].imshow(mosaic, cmap="gray")
axes[1].imshow(segments, cmap="viridis", alpha=0.6)
axes[1].set(title="segments", xticks=[], yticks=[])

# %%
# The atoms of each transform, from low to high frequency:

atoms = kf.plots.plot_atoms(union)
