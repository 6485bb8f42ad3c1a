"""What a path of bounds does to one picture: transforms, their errors, and what they make of it."""

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
from kappaform.imaging.patches import grid_of, patches_at
from kappaform.learning import LearnResult, condition_path
from kappaform.learning.path import number_of_least
from kappaform.plots.pictures import frequency_of

_N_PATCHES = 10_000  # every second one is not learned from
_LEAST_PATCHES_ALONG = 4  # of a side: then there are nine times as many places as features
_LEARNING = 0.6  # of the work, about: measured on a photograph of 512 x 512 pixels
_LIMITS: dict[str, Any] = {"max_iter": 100, "tol": 1e-3}


class View(NamedTuple):
    """All that is shown for one bound."""

    bound: float
    condition_number: float
    spectrum: NDArray
    atoms: NDArray  #: (n, side, side), in the order and with the signs of the view before
    sparsification: float  #: error over the norm of the patches, which were not learned from
    reconstruction: float  #: error of the same patches over their norm
    rebuilt: NDArray  #: the picture from the largest coefficients of patches that do not overlap
    cleaned: NDArray  #: the picture denoised with this transform


class Exploration(NamedTuple):
    """A picture, what was assumed of it, and one view for each bound."""

    image: NDArray  #: (H, W), or (H, W, channels)
    noise: Noise
    patch_size: int
    n_nonzero: int
    views: tuple[View, ...]

    @property
    def best(self) -> int:
        """Number of the view that rebuilds best what was not learned from."""
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
    progress: Callable[[float], None] | None = None,
) -> Exploration:
    """Learn a transform of the patches of a picture for each bound, and use each on the picture.

    Parameters
    ----------
    image : array of shape (H, W), or (H, W, channels)
    bounds : sequence of floats >= 1
    grey : array of shape (H, W), optional
        What is learned from, if the picture has channels. By default their mean.
    noise : White, Shot, Varying, Correlated or the name of a kind, optional
        As for `kappaform.denoise`; by default kind and size are estimated.
    patch_size : int
    n_nonzero : int, optional
        Coefficients that are kept of a patch. By default a tenth.
    value_range : (low, high), optional
        Values that are possible.
    rng : int
        Chooses the patches to learn from.
    progress : callable, optional
        Told the share of the work that is done, a float that never falls and ends at 1.
    """
    if grey is None:
        grey = image.mean(axis=-1) if image.ndim == 3 else image
    _check(grey, patch_size)
    if noise is None or isinstance(noise, str):
        kind: Any = noise
        channel_axis = -1 if image.ndim == 3 else None
        noise = estimate_noise(image, kind=kind, channel_axis=channel_axis, patch_size=patch_size)
    n_nonzero = max(1, round(0.1 * patch_size**2)) if n_nonzero is None else n_nonzero
    signals = _random_patches(grey, patch_size, rng)
    limits = _LIMITS | {"n_nonzero_coefs": n_nonzero, "validation": signals[1::2]}
    limits |= {"coding": "largest"}  # what the rebuilt picture is made of
    path = condition_path(signals[::2], bounds, callback=_watched(bounds, progress), **limits)
    # All transforms have the same norm. In units of the signals their errors can be compared, and
    # that of a rotation is its reconstruction error.
    sparsification = path["validation_absolute"] / np.linalg.norm(signals[1::2])
    found = Exploration(image, noise, patch_size, n_nonzero, ())
    errors = zip(sparsification, path["validation_reconstruction"], strict=True)
    for result, its_errors in zip(path.results, errors, strict=True):
        found = found._replace(views=(*found.views, _view(found, result, its_errors, value_range)))
        if progress is not None:
            progress(_LEARNING + (1 - _LEARNING) * len(found.views) / len(path.results))
    return found


def _view(
    before: Exploration,
    result: LearnResult,
    errors: tuple[float, float],
    value_range: tuple[float, float] | None,
) -> View:
    """What one result does to the picture; `before` has the views of smaller bounds."""
    image, side = before.image, before.patch_size
    cleaned = denoise(
        image,
        noise=before.noise,
        transform=result.transform,
        patch_size=side,
        quality="fast",  # sweeps with this transform: what is seen is what the bound does
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
        rebuilt=rebuilt(image, result.transform, side, before.n_nonzero),
        cleaned=cleaned,
    )


def _watched(
    bounds: Sequence[float], progress: Callable[[float], None] | None
) -> Callable[[LearnResult], None] | None:
    """A callback of learning that tells the progress."""
    if progress is None:
        return None
    ascending = sorted(set(map(float, bounds)))

    def watch(result: LearnResult) -> None:
        n_done = ascending.index(getattr(result.method, "max_condition", ascending[0]))
        share = min(1.0, result.n_iter / _LIMITS["max_iter"])
        progress(_LEARNING * (n_done + share) / len(ascending))

    return watch


def _check(grey: NDArray, patch_size: int) -> None:
    least = _LEAST_PATCHES_ALONG * patch_size
    if min(grey.shape) < least:
        height, width = grey.shape
        raise ValueError(
            f"the picture has {width} × {height} pixels, too few patches to learn from: give at "
            f"least {least} × {least}, or a smaller patch_size."
        )
    if not np.isfinite(grey).all():
        raise ValueError("the picture contains NaN or inf: fill or crop these pixels first.")
    if grey.min() == grey.max():
        raise ValueError("the picture is constant, there is nothing to learn: give another one.")


def _random_patches(grey: NDArray, side: int, rng: int) -> NDArray:
    """Mean-free patches from different places, one per row, in random order."""
    grid = grid_of(grey.shape, (side, side))
    n_patches = min(_N_PATCHES, grid.n_patches)
    chosen = generator(rng).choice(grid.n_patches, n_patches, replace=False)
    return patches_at(grey, grid, chosen)


def rebuilt(image: NDArray, transform: NDArray, side: int, n_nonzero: int) -> NDArray:
    """The picture from the mean and the largest coefficients of patches, each channel by itself.

    Patches do not overlap, but for the last ones along a side that is not a multiple of theirs.
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
    """Atoms as patches of norm 1, each in the place of the one of the view before it is most like.

    So an atom stays where it is while the bound moves. Those of the first view are in the order of
    their frequencies.
    """
    side = round(len(transform) ** 0.5)
    rows = transform / np.linalg.norm(transform, axis=1, keepdims=True)
    if not views:
        atoms = rows.reshape(-1, side, side)
        return np.array(sorted(atoms, key=frequency_of))
    likeness = views[-1].atoms.reshape(rows.shape) @ rows.T
    places, numbers = linear_sum_assignment(-np.abs(likeness))
    signs = np.where(likeness[places, numbers] < 0, -1.0, 1.0)
    return (signs[:, np.newaxis] * rows[numbers]).reshape(-1, side, side)
