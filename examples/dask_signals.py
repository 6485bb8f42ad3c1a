"""
Dask
====

Signals on a cluster stay there. Every worker sends back sums of size n × n, 33 kB for patches of
8 × 8 pixels, however many signals it has.

It needs ``pip install 'kappaform[dask]'``.
"""

import dask
import dask.array as da
import numpy as np
from skimage.data import camera

import kappaform as kf

# %%
# A Dask array of patches, one in each row, in blocks of whole rows. Here it is made from an array;
# yours would be read by the workers, ``da.from_zarr(...)`` for instance.

patches = kf.extract_patches(camera() / 255, 8, stride=3)
patches -= patches.mean(axis=1, keepdims=True)
signals = da.from_array(patches, chunks=(5000, -1))
print(signals)

# %%
# The call is the same as for an array, and so is the result, up to rounding. The scheduler is
# yours: threads here, a cluster with ``distributed.Client(address)``.

with dask.config.set(scheduler="threads", num_workers=2):
    on_dask = kf.learn(signals, kf.Conditioned(1.5), n_nonzero_coefs=6, max_iter=20)
in_memory = kf.learn(patches, kf.Conditioned(1.5), n_nonzero_coefs=6, max_iter=20)
errors = [result.errors.absolute[-1] for result in (on_dask, in_memory)]
print(f"absolute error: {errors[0]:.6f} on Dask, {errors[1]:.6f} in memory")

# %%
# Codes are a Dask array, too: nothing is computed until it is asked for.

estimator = kf.ConditionedTransform(6, max_condition=1.5, init=on_dask, tol=1e-2).fit(signals)
codes = estimator.transform(signals)
print(type(codes).__module__, codes.shape)
print("nonzeros in a row, at most:", int((codes != 0).sum(axis=1).max().compute()))

# %%
# A large picture is cleaned chunk by chunk, when the result is computed.

noisy = kf.add_noise(camera().astype(float), sigma=20)
picture = da.from_array(noisy, chunks=(256, 256))
details = kf.denoise_with_details(picture, sigma=20, quality="fast")
print("lazy:", type(details.image).__module__)
with dask.config.set(scheduler="threads", num_workers=2):
    cleaned = np.asarray(details.image)
print(f"noise left: {np.std(cleaned - camera()):.1f} of {np.std(noisy - camera()):.1f}")

# %%
# The atoms that Dask learned:

figure = kf.plots.plot_atoms(on_dask)
