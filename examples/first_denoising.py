"""
A first denoising
=================

A photograph, some noise, one call. No training set is needed: the noisy picture is what it learns
from.
"""

from skimage.data import astronaut, camera
from skimage.metrics import peak_signal_noise_ratio as psnr

import kappaform as kf

# %%
# We take a photograph and add noise to it, so that we know how the result should look. Values are
# grey levels from 0 to 255, and the noise has the deviation 20.

clean = camera()[40:232, 130:322]
noisy = kf.add_noise(clean, sigma=20, rng=0)

# %%
# :func:`kappaform.denoise` needs the picture, nothing else. It estimates which noise there is.

cleaned = kf.denoise(noisy)
for name, picture in {"noisy": noisy, "cleaned": cleaned}.items():
    print(f"{name:8} PSNR {psnr(clean, picture, data_range=255):.2f} dB")

# %%
# ``quality="fast"`` takes less than half of the time, and leaves somewhat more noise;
# ``quality="best"`` takes more than twice as long, and leaves a little less: :doc:`/denoising` says
# what they do.
#
# :func:`kappaform.denoise_with_details` does the same and tells how: the noise that it assumed, the
# transform that it learned, and how many coefficients the patches over each pixel needed.

details = kf.denoise_with_details(noisy)
print("assumed noise:   ", details.noise)
print("condition number:", round(details.condition_number, 4))

figure = kf.plots.plot_denoising(noisy, details, clean)

# %%
# Colour
# ------
#
# Say where the channels are. They are denoised together, because they show the same things.

colours = astronaut()[20:148, 160:288].astype(float)
noisy = kf.add_noise(colours, sigma=25, rng=1)
details = kf.denoise_with_details(noisy, channel_axis=-1, quality="fast")
colour_figure = kf.plots.plot_denoising(noisy, details, colours, channel_axis=-1)

# %%
# On the command line it is ``kappaform denoise noisy.png``: see :doc:`/howto/clean-pictures`.
