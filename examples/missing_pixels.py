"""
Missing pixels
==============

Fill scratches, random holes and holes in a noisy image. ``mask`` is True where pixels are missing.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage.data import camera
from skimage.metrics import peak_signal_noise_ratio as psnr
from skimage.restoration import inpaint_biharmonic

import kappaform as kf

clean = camera()[60:188, 150:278].astype(float)

# %%
# Four of five pixels are missing. What the image holds there is not used: it may be NaN.

mask = np.random.default_rng(0).random(clean.shape) < 0.8
filled = kf.inpaint(np.where(mask, np.nan, clean))
print(f"biharmonic PSNR {psnr(clean, inpaint_biharmonic(clean, mask), data_range=255):.2f} dB")
print(f"kappaform  PSNR {psnr(clean, filled, data_range=255):.2f} dB")

# %%
# Known pixels are kept exactly.

assert np.array_equal(filled[~mask], clean[~mask])

# %%
# Holes and noise
# ---------------
#
# With ``mask``, :func:`kappaform.denoise` fills the holes and denoises the rest, from known pixels
# only.

noisy = kf.add_noise(clean, sigma=15, rng=0)
scratches = np.zeros(clean.shape, bool)
for start in (10, 55, 90):
    rows = np.arange(clean.shape[0])
    for width in range(3):
        scratches[rows, (start + width + rows // 3) % clean.shape[1]] = True
denoised = kf.denoise(noisy, sigma=15, mask=scratches)
print(f"denoised   PSNR {psnr(clean, denoised, data_range=255):.2f} dB")

# %%
# The results next to what was given:

pictures = {
    "80 % missing": np.where(mask, 0, clean),
    "filled": filled,
    "scratches and noise": np.where(scratches, 255, noisy),
    "denoised": denoised,
}
figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
for axis, (title, image) in zip(axes, pictures.items(), strict=True):
    axis.imshow(image, cmap="gray", vmin=0, vmax=255)
    axis.set(title=title, xticks=[], yticks=[])

# %%
# On the command line: ``kappaform inpaint photo.png --mask scratches.png -o filled.png``
# (:doc:`/howto/fill-missing-pixels`). :doc:`/inpainting` has the figures and the limits.
