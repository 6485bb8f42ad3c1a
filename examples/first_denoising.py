"""
A first denoising
=================

Add noise to a photograph and remove it with one call. No training set is needed: the transform is
learned from the noisy image itself.
"""

from skimage.data import astronaut, camera
from skimage.metrics import peak_signal_noise_ratio as psnr

import kappaform as kf

# %%
# The values of the photograph are grey levels from 0 to 255; the noise is white with a standard
# deviation of 20.

clean = camera()[40:232, 130:322]
noisy = kf.add_noise(clean, sigma=20, rng=0)

# %%
# :func:`kappaform.denoise` needs nothing but the image. It estimates the noise.

denoised = kf.denoise(noisy)
for name, image in {"noisy": noisy, "denoised": denoised}.items():
    print(f"{name:8} PSNR {psnr(clean, image, data_range=255):.2f} dB")

# %%
# ``quality="fast"`` takes less than half of the time and leaves somewhat more noise;
# ``quality="best"`` takes more than twice as long and leaves a little less (:doc:`/denoising`).
#
# :func:`kappaform.denoise_with_details` also returns the noise that was assumed, the learned
# transform, and the number of coefficients that the patches over each pixel needed.

details = kf.denoise_with_details(noisy)
print("assumed noise:   ", details.noise)
print("condition number:", round(details.condition_number, 4))

figure = kf.plots.plot_denoising(noisy, details, clean)

# %%
# Colour
# ------
#
# ``channel_axis`` names the axis of the channels, which are denoised together.

colours = astronaut()[20:148, 160:288].astype(float)
noisy = kf.add_noise(colours, sigma=25, rng=1)
details = kf.denoise_with_details(noisy, channel_axis=-1, quality="fast")
colour_figure = kf.plots.plot_denoising(noisy, details, colours, channel_axis=-1)

# %%
# On the command line: ``kappaform denoise noisy.png`` (:doc:`/howto/denoise-images`).
