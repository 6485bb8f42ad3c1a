"""The result of denoising."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.noise.kinds import Noise
from kappaform.learning import LearnResult


@dataclass(frozen=True, eq=False)
class DenoiseResult:
    """A denoised image, and how it was denoised.

    Attributes
    ----------
    image : array
        The denoised image, with the shape and axes of the input.
    noise : White, Shot, Varying or Correlated, or a tuple of them
        The noise that was assumed; for a stack, one for each image.
    sigma : float or array
        Standard deviation of the noise, in image units; one for each channel and image. If the
        noise depends on brightness, that at the mean brightness.
    patch_shape : tuple of int
    transforms : tuple of float64 arrays of shape (n, n)
        One for each (decorrelated) channel and image that has noise. Components after the four
        strongest have one in common. Transforms of coarser scales are in `history` only.
    sparsity_map : array
        Mean number of coefficients of the patches over each pixel, averaged over channels.
    history : tuple of LearnResult
        One for each round of learning.

    Examples
    --------
    Noise and transform of one picture can be used for others of the same camera.

    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> noisy = kf.add_noise(camera()[100:164, 200:264], sigma=20)
    >>> details = kf.denoise_with_details(noisy)
    >>> other = kf.add_noise(camera()[200:264, 200:264], sigma=20, rng=1)
    >>> denoised = kf.denoise(other, noise=details.noise, transform=details.transform)
    """

    image: NDArray
    noise: Noise | tuple[Noise, ...]
    sigma: float | NDArray
    patch_shape: tuple[int, ...]
    transforms: tuple[NDArray, ...]
    sparsity_map: NDArray
    history: tuple[LearnResult, ...]

    def __repr__(self) -> str:
        noises = self.noise if isinstance(self.noise, tuple) else (self.noise,)
        more = f" (and {len(noises) - 1} more)" if len(noises) > 1 else ""
        shape, patch = (" × ".join(map(str, each)) for each in (self.image.shape, self.patch_shape))
        return (
            f"DenoiseResult({shape}, {noises[0]}{more}, patches {patch}, "
            f"condition number {self.condition_number:.4g})"
        )

    @property
    def transform(self) -> NDArray | None:
        """The first or only transform: in colour, that of the strongest component."""
        return self.transforms[0] if self.transforms else None

    @property
    def condition_number(self) -> float:
        """The largest condition number of the transforms, 1 if there are none."""
        return max((float(np.linalg.cond(each)) for each in self.transforms), default=1.0)
