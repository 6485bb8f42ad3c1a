"""
Noise models
============

The noise of real images is seldom white. Shot noise is stronger where an image is brighter; after
rescaling or demosaicing, the noise of neighbouring pixels is correlated. This tutorial shows how
much the right noise model gains.
"""

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter
from skimage.data import camera

import kappaform as kf

clean = camera()[40:296, 110:366].astype(float)


def psnr(image):
    return 10 * np.log10(255**2 / np.mean((image - clean) ** 2))


# %%
# Shot noise
# ----------
#
# On average at most 20 photons per pixel. Values are scaled to grey levels, so that one photon
# corresponds to 255 / 20 of them: this is the *gain*.

gain = 255 / 20
dim = gain * np.random.default_rng(0).poisson(clean / gain)

estimated = kf.estimate_noise(dim)
print("estimated:", estimated)
print("true:     ", kf.Shot(gain))

# %%
# The denoiser uses this estimate by default. For comparison, we also specify white noise.

as_estimated = kf.denoise(dim, quality="fast")
as_white = kf.denoise(dim, noise="white", quality="fast")

# %%
# Correlated noise
# ----------------
#
# White noise, slightly blurred. It has little energy at high frequencies, where noise is usually
# measured, so its standard deviation is underestimated by far under the white noise model.

rng = np.random.default_rng(0)
grain = gaussian_filter(rng.standard_normal(clean.shape), 0.9)
rescaled = clean + 20 * grain / grain.std()
print("estimated:", kf.estimate_noise(rescaled))

rescaled_as_estimated = kf.denoise(rescaled, quality="fast")
rescaled_as_white = kf.denoise(rescaled, noise="white", quality="fast")

# %%
# Comparison
# ----------

rows = {
    "shot noise": (dim, as_white, as_estimated),
    "correlated noise": (rescaled, rescaled_as_white, rescaled_as_estimated),
}
figure = Figure(figsize=(10, 7), layout="constrained")
for axes, (name, images) in zip(figure.subplots(2, 3), rows.items(), strict=True):
    titles = (name, "white noise assumed", "noise model estimated")
    for panel, image, title in zip(axes, images, titles, strict=True):
        panel.imshow(image, cmap="gray", vmin=0, vmax=255)
        panel.set_title(f"{title}, {psnr(image):.1f} dB", fontsize=10)
        panel.set_axis_off()

# %%
# In ambiguous cases white noise is assumed. If you know the gain of your camera, or have a dark
# frame, specify the model: ``kf.denoise(image, noise=kf.Shot(gain=2.5, read_noise=3))``.
# :doc:`/denoising` describes the models, how they are estimated, and their limits.
