"""
Dask arrays
===========

Signals on a cluster stay there. In every pass, each worker returns n × n sums, 33 kB for patches of
8 × 8 pixels, whatever the number of its signals.

This needs Dask: ``pip install '.[dask]'`` in a clone.
"""

import dask
import dask.array as da
import numpy as np
from skimage.data import camera

import kappaform as kf

# %%
# A Dask array of patches, one per row, in blocks of whole rows. Here it is made from an array; for
# large data the workers would read it, for example with ``da.from_zarr(...)``.

patches = kf.extract_patches(camera() / 255, 8, stride=3)
patches -= patches.mean(axis=1, keepdims=True)
signals = da.from_array(patches, chunks=(5000, -1))
print(signals)

# %%
# The call is the same as for an array, and so is the result up to rounding. You select the
# scheduler: threads here, a cluster with ``distributed.Client(address)``.

with dask.config.set(scheduler="threads", num_workers=2):
    on_dask = kf.learn(signals, kf.Conditioned(1.5), n_nonzero_coefs=6, max_iter=20)
in_memory = kf.learn(patches, kf.Conditioned(1.5), n_nonzero_coefs=6, max_iter=20)
errors = [result.errors.absolute[-1] for result in (on_dask, in_memory)]
print(f"absolute error: {errors[0]:.6f} on Dask, {errors[1]:.6f} in memory")

# %%
# Codes are a lazy Dask array.

estimator = kf.ConditionedTransform(6, max_condition=1.5, init=on_dask, tol=1e-2).fit(signals)
codes = estimator.transform(signals)
print(type(codes).__module__, codes.shape)
print("largest number of nonzeros in a row:", int((codes != 0).sum(axis=1).max().compute()))

# %%
# A large image is denoised chunk by chunk when the result is computed.

noisy = kf.add_noise(camera().astype(float), sigma=20)
image = da.from_array(noisy, chunks=(256, 256))
details = kf.denoise_with_details(image, sigma=20, quality="fast")
print("lazy:", type(details.image).__module__)
with dask.config.set(scheduler="threads", num_workers=2):
    denoised = np.asarray(details.image)
errors = [np.std(each - camera()) for each in (noisy, denoised)]
print(f"standard deviation of the error: {errors[0]:.1f}, denoised {errors[1]:.1f}")

# %%
# The learned atoms:

figure = kf.plots.plot_atoms(on_dask)
