"""
Noise of real photographs
=========================

A sensor counts photons, and counts scatter: their variance equals their mean (*shot noise*). Its
electronics add *read noise*, the same everywhere. Every pixel sees red, green or blue only, and
*demosaicing* interpolates the other two. Each noisy value is thus spread over its neighbours and
over the three channels. A *gamma curve* brightens shadows and compresses highlights, and the noise
with them: it is now strongest in the shadows. *JPEG* removes the finest details, and with them the
part of the noise in which noise is usually measured. What is left is neither white nor the same at
every brightness. A denoiser that assumes white noise leaves coloured blotches, or removes texture.
So the noise has to be estimated from the photograph, as `denoise` does, or measured once for the
camera. This tutorial simulates a camera, so that the clean image is known, and compares both.
"""

import io

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from scipy.ndimage import convolve
from skimage.data import astronaut

import kappaform as kf

clean = astronaut()[:224, 120:344]


# %%
# A camera
# --------
#
# At most 300 photons per pixel, read noise of 2 photons, a Bayer mosaic, bilinear demosaicing, a
# gamma of 2.2, and JPEG of quality 95.


def photograph(image, rng=None, photons=300, read_noise=2, quality=95):
    light = (image / 255) ** 2.2
    rows, columns = np.indices(image.shape[:2]) % 2
    mosaic = [(rows == 0) & (columns == 0), rows != columns, (rows == 1) & (columns == 1)]
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 4
    channels = []
    for c, mask in enumerate(mosaic):
        counts = photons * light[..., c]
        if rng is not None:
            counts = rng.poisson(counts) + read_noise * rng.normal(size=mask.shape)
        channels.append(convolve(counts / photons * mask, kernel) / convolve(mask * 1.0, kernel))
    developed = 255 * np.clip(np.stack(channels, axis=-1), 0, 1) ** (1 / 2.2)
    file = io.BytesIO()
    Image.fromarray(np.rint(developed).astype(np.uint8)).save(file, "JPEG", quality=quality)
    return np.array(Image.open(file)).astype(float)


rng = np.random.default_rng(0)
noisy = photograph(clean, rng)
reference = photograph(clean)  # what the camera would make of the scene without noise
options = {"channel_axis": -1, "value_range": (0, 255), "quality": "fast"}

# %%
# Estimated
# ---------
#
# By default the noise is estimated from the photograph: it is correlated, and its strength depends
# on brightness.

estimated = kf.denoise_with_details(noisy, **options)
print(estimated.noise)
print(f"confidence {estimated.noise.confidence:.2f}: {estimated.noise.evidence}")

# %%
# Measured
# --------
#
# A burst of another, still scene shows nothing but noise in its differences. What it measures holds
# for all photographs of this camera with these settings, so it is saved for them. The command does
# the same: ``kappaform noise burst/ -o camera.json``.

scene = astronaut()[288:, 120:376]
noise = kf.measure_noise([photograph(scene, rng) for _ in range(4)], channel_axis=-1)
print(noise)
print(noise.evidence)
kf.save_noise("camera.json", noise, iso=3200, dtype="uint8")
measured = kf.denoise(noisy, noise=kf.load_noise("camera.json"), **options)

# %%
# Comparison
# ----------
#
# For comparison: white noise, whose standard deviation is known exactly. It is what CBM3D assumes;
# if the package ``bm3d`` is installed, its result is shown as well.

sigma = (noisy - reference).std()
images = {
    "noisy": noisy,
    "white noise, true sigma": kf.denoise(noisy, sigma, **options),
    "estimated (default)": estimated.image,
    "measured in a burst": measured,
}
try:
    from bm3d import bm3d_rgb

    images["white noise, true sigma"] = np.clip(bm3d_rgb(noisy, sigma), 0, 255)
    images = {name.replace("white noise", "CBM3D"): image for name, image in images.items()}
except ImportError:
    pass


def psnr(image):
    return 10 * np.log10(255**2 / np.mean((image - reference) ** 2))


crop = slice(70, 166), slice(20, 116)
figure = Figure(figsize=(10, 2.9), layout="constrained")
for axes, (name, image) in zip(figure.subplots(1, 4), images.items(), strict=True):
    axes.imshow(np.clip(image[crop] / 255, 0, 1))
    axes.set_title(f"{name}\n{psnr(image):.1f} dB", fontsize=10)
    axes.set_axis_off()

# %%
# If some grain is welcome, colour noise can be removed on its own, as in raw converters:
# ``kf.denoise(noisy, channel_axis=-1, strength=0.5, colour_strength=1)``.
# :doc:`/denoising` describes what is estimated and measured, and the limits of both.
