"""Adding noise to an image, to test a denoiser."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from kappaform.checks import Array, as_real_array, float_dtype, generator, representable
from kappaform.imaging.noise.correlated import Correlated
from kappaform.imaging.noise.kinds import (
    Noise,
    Shot,
    Varying,
    White,
    as_numbers,
    check_no_class,
)


def add_noise(
    image: npt.ArrayLike,
    sigma: float | None = None,
    rng: int | np.random.Generator | None = None,
    *,
    noise: Noise | None = None,
) -> Array:
    """Image plus noise, by default white Gaussian noise of standard deviation `sigma`; not clipped.

    Parameters
    ----------
    image : array
    sigma : float
        Standard deviation in image units, 0 or more.
    rng : int or numpy.random.Generator, optional
        Seed of the noise. None is seed 0: the same call gives the same result.
    noise : White, Shot, Varying or Correlated, optional
        In place of `sigma`. For `Shot`, the image holds the mean brightness. `Correlated` needs an
        autocovariance of as many axes as the image, and no `stabiliser`.

    Returns
    -------
    ndarray
        A new array with the shape and dtype of the image; float64 for integers.

    Examples
    --------
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> noisy = kf.add_noise(camera(), sigma=20, rng=7)
    >>> print(round(float((noisy - camera()).std())))
    20
    >>> dim = kf.add_noise(camera(), noise=kf.Shot(gain=5.0))
    """
    image = as_real_array(image, "image")
    if (sigma is None) == (noise is None):
        raise ValueError("give sigma or noise, and only one of them.")
    if sigma is not None and not (as_numbers("sigma", sigma).ndim == 0 and 0 <= sigma < math.inf):
        raise ValueError(f"sigma={sigma} is not a noise level: give one finite number >= 0.")
    check_no_class(noise)
    random = generator(rng)
    # Drawn in float64 for every dtype, so that a seed gives the same noise.
    noisy = random.standard_normal(image.shape)
    if noise is not None:
        noisy = _with_noise(image.astype(np.float64), noise, noisy, random)
    elif sigma is not None:
        noisy *= sigma
        noisy += image
    dtype = float_dtype(image.dtype)
    lowest, highest = representable((-math.inf, math.inf), dtype)
    return noisy.clip(lowest, highest, out=noisy).astype(dtype, copy=False)


def _with_noise(image: Array, noise: Noise, normal: Array, random: np.random.Generator) -> Array:
    """The image with noise made from independent normal numbers."""
    if isinstance(noise, White) and noise.correlation is None:
        return image + normal * noise.sigma
    if isinstance(noise, Varying) and np.ndim(noise.sigma) == 1:
        return image + normal * np.interp(image, noise.brightness, noise.sigma)
    if isinstance(noise, Shot):
        photons = (image - noise.offset) / noise.gain
        if photons.min() < 0:
            raise ValueError(
                f"image has values below offset={noise.offset}: photon counts are not negative."
            )
        return random.poisson(photons) * noise.gain + noise.offset + normal * noise.read_noise
    known = isinstance(noise, Correlated) and noise.stabiliser is None
    array = np.asarray(noise.autocovariance) if known else np.empty(0)  # type: ignore[attr-defined]
    shape = array.shape
    if len(shape) != image.ndim or image.ndim > 3 or array.dtype == object:
        raise ValueError(
            f"noise={noise}: to add it, give White without correlation, Shot, or Correlated by an "
            f"autocovariance of {image.ndim} axes."
        )
    # On a torus that is larger by the autocovariance, so that opposite borders do not meet.
    size = [n + side for n, side in zip(image.shape, shape, strict=True)]
    kernel = np.zeros(size)
    kernel[tuple(slice(side) for side in shape)] = array
    kernel = np.roll(kernel, [-(side // 2) for side in shape], axis=tuple(range(image.ndim)))
    power = np.maximum(np.fft.fftn(kernel).real, 0)
    made = np.fft.ifftn(np.fft.fftn(random.standard_normal(size)) * np.sqrt(power)).real
    return image + made[tuple(slice(n) for n in image.shape)]
