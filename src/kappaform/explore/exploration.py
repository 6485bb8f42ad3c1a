"""The effects of a path of bounds on one image: transforms, errors, and resulting images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from kappaform.checks import generator
from kappaform.engines import hard_threshold
from kappaform.imaging import average_patches, denoise, estimate_noise, extract_patches
from kappaform.imaging.noise.kinds import Noise
from kappaform.imaging.patches import random_patches
from kappaform.imaging.progress import Listener, Progress
from kappaform.learning import LearnResult, condition_path
from kappaform.learning.path import number_of_least
from kappaform.plots.pictures import frequency_of

_N_PATCHES = 10_000  # every second one is held out
_LEAST_PATCHES_ALONG = 4  # per side: then there are nine times as many positions as features
_LEARNING = 0.6  # approximate fraction of the work: measured on a photograph of 512 x 512 pixels
_LIMITS: dict[str, Any] = {"max_iter": 100, "tol": 1e-3}


class View(NamedTuple):
    """Everything that is shown for one bound."""

    bound: float
    condition_number: float
    spectrum: NDArray
    atoms: NDArray  #: (n, side, side), in the order and with the signs of the previous view
    sparsification: float  #: error over the norm of held-out patches
    #: error over the norm of the same patches, from their largest coefficients
    reconstruction: float
    reconstructed: NDArray  #: from the largest coefficients of patches that do not overlap
    denoised: NDArray  #: with this transform


class Exploration(NamedTuple):
    """An image, the noise assumed in it, and one view for each bound."""

    image: NDArray  #: (H, W), or (H, W, channels)
    noise: Noise
    patch_size: int
    n_nonzero: int
    views: tuple[View, ...]

    @property
    def best(self) -> int:
        """Number of the view with the smallest reconstruction error."""
        return number_of_least(np.array([view.reconstruction for view in self.views]))


def explore(
    image: NDArray,
    bounds: Sequence[float],
    *,
    grey: NDArray | None = None,
    noise: Noise | str | None = None,
    patch_size: int = 8,
    n_nonzero: int | None = None,
    value_range: tuple[float, float] | None = None,
    rng: int = 0,
    progress: Listener | None = None,
) -> Exploration:
    """Learn a transform from the patches of an image for each bound, and apply it to the image.

    Parameters
    ----------
    image : array of shape (H, W), or (H, W, channels)
    bounds : sequence of floats >= 1
    grey : array of shape (H, W), optional
        Image to learn from, if the image has channels. By default their mean.
    noise : White, Shot, Varying, Correlated or the name of a kind, optional
        As for `kappaform.denoise`; by default kind and strength are estimated.
    patch_size : int
    n_nonzero : int, optional
        Coefficients kept per patch. By default a tenth.
    value_range : (low, high), optional
        Smallest and largest possible value.
    rng : int
        Seed of the choice of patches to learn from.
    progress : callable, optional
        Called with the completed fraction, a float that never decreases and ends at 1.
    """
    if grey is None:
        grey = image.mean(axis=-1) if image.ndim == 3 else image
    _check(grey, patch_size)
    progress = Progress.checked(progress)
    if noise is None or isinstance(noise, str):
        kind: Any = noise
        channel_axis = -1 if image.ndim == 3 else None
        noise = estimate_noise(image, kind=kind, channel_axis=channel_axis, patch_size=patch_size)
    n_nonzero = max(1, round(0.1 * patch_size**2)) if n_nonzero is None else n_nonzero
    signals = random_patches(grey, patch_size, _N_PATCHES, generator(rng))
    limits = _LIMITS | {"n_nonzero_coefs": n_nonzero, "validation": signals[1::2]}
    limits |= {"coding": "largest"}  # as in the reconstructed image
    path = condition_path(signals[::2], bounds, callback=_watched(bounds, progress), **limits)
    found = Exploration(image, noise, patch_size, n_nonzero, ())
    # All transforms have the same norm. Relative to that of the signals their errors can be
    # compared, and the error of a rotation equals its reconstruction error.
    names = ("validation_sparsification", "validation_reconstruction")
    errors = zip(*(path[name] for name in names), strict=True)
    for result, its_errors in zip(path.results, errors, strict=True):
        found = found._replace(views=(*found.views, _view(found, result, its_errors, value_range)))
        progress(_LEARNING + (1 - _LEARNING) * len(found.views) / len(path.results))
    return found


def _view(
    before: Exploration,
    result: LearnResult,
    errors: tuple[float, float],
    value_range: tuple[float, float] | None,
) -> View:
    """The view of one result; `before` has the views of smaller bounds."""
    image, side = before.image, before.patch_size
    denoised = denoise(
        image,
        noise=before.noise,
        transform=result.transform,
        patch_size=side,
        quality="fast",  # sweeps with this transform only: shows the effect of the bound
        value_range=value_range,
        channel_axis=-1 if image.ndim == 3 else None,
    )
    return View(
        bound=float(getattr(result.method, "max_condition", math.inf)),
        condition_number=result.condition_number,
        spectrum=result.spectrum,
        atoms=_atoms(result.transform, before.views),
        sparsification=float(errors[0]),
        reconstruction=float(errors[1]),
        reconstructed=reconstructed(image, result.transform, side, before.n_nonzero),
        denoised=denoised,
    )


def _watched(bounds: Sequence[float], progress: Progress) -> Callable[[LearnResult], None]:
    """A callback of learning that reports progress."""
    ascending = sorted(set(map(float, bounds)))

    def watch(result: LearnResult) -> None:
        n_done = ascending.index(getattr(result.method, "max_condition", ascending[0]))
        fraction = min(1.0, result.n_iter / _LIMITS["max_iter"])
        progress(_LEARNING * (n_done + fraction) / len(ascending))

    return watch


def _check(grey: NDArray, patch_size: int) -> None:
    least = _LEAST_PATCHES_ALONG * patch_size
    if min(grey.shape) < least:
        height, width = grey.shape
        raise ValueError(
            f"the image has {width} × {height} pixels, too few patches to learn from: give at "
            f"least {least} × {least}, or a smaller patch_size."
        )
    if not np.isfinite(grey).all():
        raise ValueError("the image contains NaN or inf: fill such pixels first.")
    if grey.min() == grey.max():
        raise ValueError("the image is constant: there is nothing to learn.")


def reconstructed(image: NDArray, transform: NDArray, side: int, n_nonzero: int) -> NDArray:
    """The image from the mean and the largest coefficients of patches, per channel.

    Patches do not overlap, except the last ones along a side that is not a multiple of theirs.
    """
    inverse = np.linalg.inv(transform)
    planes = []
    for plane in np.moveaxis(image[..., np.newaxis] if image.ndim == 2 else image, -1, 0):
        patches = extract_patches(plane.astype(np.float64), side, stride=side)
        means = patches.mean(axis=1, keepdims=True)
        codes = hard_threshold((patches - means) @ transform.T, n_nonzero)
        planes.append(average_patches(codes @ inverse.T + means, plane.shape, side, stride=side))
    return planes[0] if image.ndim == 2 else np.stack(planes, axis=-1)


def _atoms(transform: NDArray, views: Sequence[View]) -> NDArray:
    """Rows as patches of norm 1, each at the position of the most similar one of the last view.

    So a row keeps its position while the bound moves. Those of the first view are sorted by
    frequency.
    """
    side = round(len(transform) ** 0.5)
    rows = transform / np.linalg.norm(transform, axis=1, keepdims=True)
    if not views:
        atoms = rows.reshape(-1, side, side)
        return np.array(sorted(atoms, key=frequency_of))
    similarity = views[-1].atoms.reshape(rows.shape) @ rows.T
    places, numbers = linear_sum_assignment(-np.abs(similarity))
    signs = np.where(similarity[places, numbers] < 0, -1.0, 1.0)
    return (signs[:, np.newaxis] * rows[numbers]).reshape(-1, side, side)
