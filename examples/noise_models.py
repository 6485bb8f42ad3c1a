"""
Noise as pictures have it
=========================

Noise of real pictures is seldom the same everywhere. Where light is dim, photons can be counted,
and bright places are noisier than dark ones. Where a picture was rescaled or demosaicked,
neighbouring pixels share their noise. Both look wrong to a denoiser that expects white noise.
"""

import numpy as np
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter
from skimage.data import camera

import kappaform as kf

clean = camera()[40:296, 110:366].astype(float)


def psnr(picture):
    return 10 * np.log10(255**2 / np.mean((picture - clean) ** 2))


# %%
# Photons
# -------
#
# At most 20 photons for each pixel. The values are scaled back to grey levels, so one photon is
# 255 / 20 of them: that is the *gain*.

gain = 255 / 20
dim = gain * np.random.default_rng(0).poisson(clean / gain)

found = kf.estimate_noise(dim)
print("found:   ", found)
print("in truth:", kf.Shot(gain))

# %%
# The denoiser finds that out by itself. To see what it is worth, we also tell it the wrong kind.

as_found = kf.denoise(dim, quality="fast")
as_white = kf.denoise(dim, noise="white", quality="fast")

# %%
# Noise that neighbours share
# ---------------------------
#
# White noise, slightly blurred. It has little energy at high frequencies, where one usually looks
# for noise, so that its size is underestimated by far if it is taken for white.

rng = np.random.default_rng(0)
grain = gaussian_filter(rng.standard_normal(clean.shape), 0.9)
rescaled = clean + 20 * grain / grain.std()
print("found:", kf.estimate_noise(rescaled))

rescaled_as_found = kf.denoise(rescaled, quality="fast")
rescaled_as_white = kf.denoise(rescaled, noise="white", quality="fast")

# %%
# What the right kind is worth
# ----------------------------

rows = {
    "photons": (dim, as_white, as_found),
    "shared by neighbours": (rescaled, rescaled_as_white, rescaled_as_found),
}
figure = Figure(figsize=(10, 7), layout="constrained")
for axes, (name, pictures) in zip(figure.subplots(2, 3), rows.items(), strict=True):
    titles = (name, "taken for white noise", "kind of noise estimated")
    for panel, picture, title in zip(axes, pictures, titles, strict=True):
        panel.imshow(picture, cmap="gray", vmin=0, vmax=255)
        panel.set_title(f"{title}, {psnr(picture):.1f} dB", fontsize=10)
        panel.set_axis_off()

# %%
# In doubt noise is taken for white. If you know the gain of your camera, or have a dark frame, give
# it: ``kf.denoise(image, noise=kf.Shot(gain=2.5, read_noise=3))``. :doc:`/denoising` has the kinds,
# how they are estimated, and the limits.
