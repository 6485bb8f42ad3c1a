"""Correlated noise: its covariance in a patch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kappaform.checks import Array
from kappaform.imaging.noise.kinds import (
    ROUNDING,
    Noise,
    Shot,
    Varying,
    check_covariance,
    check_magnitude,
    check_n_channels,
    in_words,
    shot_in_words,
)

MOST_TOGETHER = 4  #: channels, those of colour, with one covariance; more are independent
_LARGEST_FACTOR = 1e140  # whose square is far from the ends of float64


@dataclass(frozen=True, eq=False)
class Correlated(Noise):
    """Noise that is correlated between pixels, as after demosaicing, rescaling or blurring.

    Give either `covariance` or `autocovariance`.

    Parameters
    ----------
    covariance : array of shape (n, n), (channels, n, n) or (channels, channels, n, n), optional
        Covariance of the n pixels of a patch, in C order. Channels are independent with one matrix
        for all of them, or one for each.
    autocovariance : array of odd sides, optional
        Covariance of two pixels as a function of their distance along each axis, with distance zero
        in the middle. It is zero beyond. With shape (channels, channels, ...), entry (a, b, d) is
        the covariance of channel a and channel b at distance d from it; else channels are
        independent.
    stabiliser : Shot or Varying, optional
        How the noise depends on brightness, which is removed first by a variance-stabilising
        transform. The covariance is that of the stabilised values.
    confidence, evidence, alternative : float and two str, optional
        How sure an estimate is, 0 to 1, and why; what to give if it is wrong, a kind of noise or
        "sigma", empty for any. A noise that is given is certain.

    Examples
    --------
    Noise with a correlation of 0.5 between neighbours in a row:

    >>> import numpy as np
    >>> import kappaform as kf
    >>> noise = kf.Correlated(autocovariance=15**2 * np.array([[0.5, 1.0, 0.5]]))
    >>> streaky = kf.add_noise(np.zeros((64, 64)), noise=noise)
    >>> denoised = kf.denoise(streaky, noise=noise)
    """

    covariance: Array | None = None
    autocovariance: Array | None = None
    stabiliser: Shot | Varying | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.covariance is None) == (self.autocovariance is None):
            raise ValueError(
                "Correlated needs covariance (of a patch) or autocovariance (over distances), and "
                "only one of them."
            )
        if self.covariance is not None:
            check_covariance("covariance", np.asarray(self.covariance))
        else:
            _check_autocovariance(np.asarray(self.autocovariance))
        if not isinstance(self.stabiliser, Shot | Varying | None):
            raise TypeError(f"stabiliser={self.stabiliser!r}: give Shot, Varying or None.")

    def check_channels(self, n_channels: int) -> None:
        if self.covariance is not None and np.ndim(self.covariance) > 2:
            check_n_channels("covariance", len(self.covariance), n_channels)
        if self.autocovariance is not None and _has_channels(self.autocovariance):
            check_n_channels("autocovariance", len(self.autocovariance), n_channels)
        if self.stabiliser is not None:
            self.stabiliser.check_channels(n_channels)

    def stabilised(self, image: Any) -> Any:
        return image if self.stabiliser is None else self.stabiliser.stabilised(image)

    def restored(self, image: Any) -> Any:
        return image if self.stabiliser is None else self.stabiliser.restored(image)

    def check_values(self, highest: Array) -> None:
        if self.stabiliser is not None:
            self.stabiliser.check_values(highest)

    def mixed(self, weights: Array, patch_shape: tuple[int, ...]) -> tuple[float, Array | None]:
        matrix = self._of_patch(patch_shape)
        if matrix.ndim == 4:
            mixed = np.einsum("a,b,abij->ij", weights, weights, matrix)
        elif matrix.ndim == 3:
            mixed = np.tensordot(weights**2, matrix, axes=1)
        else:
            mixed = (weights @ weights) * matrix
        variance = float(np.trace(mixed)) / len(mixed)
        return (math.sqrt(variance), mixed / variance) if variance > 0 else (0.0, None)

    def _of_patch(self, patch_shape: tuple[int, ...]) -> Array:
        n = math.prod(patch_shape)
        if self.covariance is not None:
            matrix = np.asarray(self.covariance, np.float64)
            if matrix.shape[-1] != n:
                raise ValueError(
                    f"covariance has shape {matrix.shape}: patches of shape {patch_shape} need "
                    f"({n}, {n}); give the patch_size that it was measured for."
                )
            return matrix.reshape(n, n) if len(matrix) == 1 and matrix.ndim > 2 else matrix
        array = np.asarray(self.autocovariance, np.float64)
        if array.ndim - 2 * _has_channels(array) != len(patch_shape):
            raise ValueError(
                f"autocovariance has shape {array.shape}: patches of shape {patch_shape} need one "
                f"of {len(patch_shape)} axes."
            )
        if _has_channels(array):
            pairs = array.reshape(-1, *array.shape[2:])
            # Entry (i, j) of a matrix belongs to the distance from i to j.
            rows = [covariance_of(each, patch_shape).T for each in pairs]
            matrix = np.reshape(rows, (*array.shape[:2], *rows[0].shape))
        else:
            matrix = covariance_of(array, patch_shape)
        try:
            check_covariance("autocovariance", matrix)
        except ValueError as error:
            farthest = max(array.shape[-len(patch_shape) :]) // 2
            if max(patch_shape) <= farthest + 1:
                raise
            raise ValueError(
                f"{error} It is 0 beyond a distance of {farthest}, which patches of shape "
                f"{patch_shape} exceed: a patch_size of at most {farthest + 1} does not."
            ) from error
        return matrix

    def among(self, channels: list[int], n_channels: int) -> Correlated:
        matrices = np.asarray(self.covariance)
        if matrices.ndim == 4 and n_channels > MOST_TOGETHER:
            matrices = np.einsum("aaij->aij", matrices)
        n_axes = matrices.ndim - 2
        covariance = np.zeros((n_channels,) * n_axes + matrices.shape[-2:])
        covariance[np.ix_(*[channels] * n_axes)] = matrices
        stabiliser = self.stabiliser and self.stabiliser.among(channels, n_channels)
        return replace(self, covariance=covariance, stabiliser=stabiliser)

    def scaled(self, factor: float) -> Correlated:
        if self.stabiliser is not None:
            return replace(self, stabiliser=self.stabiliser.scaled(factor))
        if not 1 / _LARGEST_FACTOR <= factor <= _LARGEST_FACTOR:  # variances are beyond float64
            unit = Varying(np.array([0.0, 1.0]), np.ones(2))
            return replace(self, stabiliser=unit.scaled(factor))
        covariance, autocovariance = (
            None if each is None else np.asarray(each) * factor**2
            for each in (self.covariance, self.autocovariance)
        )
        return replace(self, covariance=covariance, autocovariance=autocovariance)

    def level(self, mean: Array) -> Array:
        size = np.ones(mean.shape) if self.stabiliser is None else self.stabiliser.level(mean)
        return size * self._sigma(mean.size)

    def _sigma(self, n_channels: int) -> Array:
        if self.autocovariance is not None:
            array = np.asarray(self.autocovariance)
            centre = tuple(side // 2 for side in array.shape[2 * _has_channels(array) :])
            variances = np.diag(array[..., *centre]) if _has_channels(array) else array[centre]
            return np.sqrt(np.broadcast_to(variances, n_channels))
        matrix = np.asarray(self.covariance)
        if matrix.ndim == 2:
            return np.full(n_channels, math.sqrt(np.trace(matrix) / len(matrix)))
        variances = np.einsum("aaii->a" if matrix.ndim == 4 else "aii->a", matrix)
        return np.sqrt(np.maximum(variances / matrix.shape[-1], 0))

    def __str__(self) -> str:
        matrix = self.covariance
        n_channels = 1 if matrix is None or np.ndim(matrix) == 2 else len(matrix)
        if self.autocovariance is not None and _has_channels(self.autocovariance):
            n_channels = len(self.autocovariance)
        size = np.squeeze(self._sigma(n_channels))
        if self.stabiliser is None:
            return f"correlated, sigma {in_words(size)}"
        if isinstance(self.stabiliser, Shot):
            shot = self.stabiliser
            gain, read_noise = np.multiply(shot.gain, size**2), np.multiply(shot.read_noise, size)
            words = shot_in_words(gain, read_noise, shot.offset)
            return f"correlated, {words}"
        sizes = np.atleast_2d(self.stabiliser.sigma) * np.reshape(size, (-1, 1))
        rows = sizes if len(sizes) <= MOST_TOGETHER else [sizes]
        ranges = ", ".join(f"{np.min(row):.4g} to {np.max(row):.4g}" for row in rows)
        return f"correlated, sigma {ranges} depending on brightness"


def covariance_of(autocovariance: Array, patch_shape: tuple[int, ...]) -> Array:
    """Covariance of the pixels of a patch, flattened in C order."""
    places = np.indices(patch_shape).reshape(len(patch_shape), -1)
    distances = places[:, :, np.newaxis] - places[:, np.newaxis]
    middle = np.array(autocovariance.shape)[:, np.newaxis, np.newaxis] // 2
    within = (np.abs(distances) <= middle).all(axis=0)
    return np.where(within, autocovariance[tuple(np.where(within, distances + middle, 0))], 0.0)


def _has_channels(autocovariance: Any) -> bool:
    """Whether the first two axes are channels; those of space are two or three."""
    return np.ndim(autocovariance) > 3


def _check_autocovariance(array: Array) -> None:
    sides = array.shape[2 * _has_channels(array) :]
    if not array.size or not np.isfinite(array).all() or not all(n % 2 for n in sides):
        raise ValueError(
            f"autocovariance has shape {array.shape}: give finite numbers with odd sides, those of "
            "distance zero in the middle."
        )
    mirrored = np.flip(array, tuple(range(-len(sides), 0)))
    if _has_channels(array):
        if len(array) != array.shape[1]:
            raise ValueError(
                f"autocovariance has shape {array.shape}: the first two axes are channels, and "
                "have the same length."
            )
        mirrored = mirrored.swapaxes(0, 1)
    centre = array[..., *(n // 2 for n in sides)]
    variances = np.diag(centre) if _has_channels(array) else centre
    largest = np.max(variances)
    check_magnitude("autocovariance", largest)
    if np.abs(array - mirrored).max() > ROUNDING * largest or np.min(variances) <= 0:
        raise ValueError(
            "autocovariance is not symmetric about its middle, or the middle, which is the "
            "variance, is not positive."
        )
