"""Noise models: strength, dependence on brightness, and correlation between pixels and channels.

A denoiser of patches needs two things: values whose noise does not depend on brightness
(`stabilised`, and the inverse, `restored`), and the covariance of the noise in a patch (`mixed`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from kappaform.checks import Array, as_real_array, is_number
from kappaform.imaging.noise import stabilise

ROUNDING = 1e-6  # how far a computed covariance may be from symmetric or positive, relatively
_LARGEST_COVARIANCE = 1e300  # sums of millions of them are within float64
_MOST_IN_WORDS = 4  # numbers, one for each colour


class Evidence(NamedTuple):
    """How sure an estimate is, and why."""

    confidence: float  #: 0 to 1
    evidence: str  #: a sentence
    alternative: str = ""  #: what to give if it is wrong, a kind or "sigma"; empty: any


NO_EVIDENCE = Evidence(1.0, "")


@dataclass(frozen=True, eq=False)
class Noise:
    """Base class of the noise models."""

    confidence: float = field(default=1.0, kw_only=True, repr=False)
    evidence: str = field(default="", kw_only=True, repr=False)
    alternative: str = field(default="", kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not is_number(self.confidence) or not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence={self.confidence!r}: give a number from 0 to 1.")
        for name in ("evidence", "alternative"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name}={value!r}: give a text.")

    @property
    def parameters(self) -> dict[str, Any]:
        """What describes the noise itself, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if not each.kw_only}

    def stabilised(self, image: Any) -> Any:
        """Values (channels last) whose noise does not depend on brightness."""
        return image

    def restored(self, image: Any) -> Any:
        """Unbiased inverse of `stabilised`: mean values, from the means of stabilised values."""
        return image

    def mixed(
        self,
        weights: Array,
        patch_shape: tuple[int, ...],  # noqa: ARG002
    ) -> tuple[float, Array | None]:
        """Standard deviation and covariance of a weighted sum of the stabilised channels.

        The covariance is that of a patch, in units of the variance; None: white. Stabilised noise
        has variance 1.
        """
        return math.sqrt(float(weights @ weights)), None

    def deviations(self, n_channels: int, patch_shape: tuple[int, ...]) -> Array:
        """Standard deviation of the noise of each stabilised channel."""
        return np.array([self.mixed(row, patch_shape)[0] for row in np.eye(n_channels)])

    def check_channels(self, n_channels: int) -> None:
        """Reject parameters for another number of channels than an image has."""
        for name, value in self.parameters.items():
            check_n_channels(name, len(value) if np.ndim(value) else 1, n_channels)

    @classmethod
    def of_channels(cls, noises: Sequence[Any]) -> Any:
        """The noise of an image whose channels have these noises of one kind."""
        if len(noises) == 1:
            return noises[0]
        least = min(noises, key=lambda each: each.confidence)
        values: dict[str, Any] = {
            name: np.array([getattr(each, name) for each in noises]) for name in least.parameters
        }
        return replace(least, **values)

    def among(self, channels: list[int], n_channels: int) -> Any:
        """The noise of more channels: those at these numbers have it, the others are constant."""
        values: dict[str, Any] = {
            name: among(value, channels, n_channels) for name, value in self.parameters.items()
        }
        return replace(self, **values)

    def check_values(self, highest: Array) -> None:
        """Reject channels with these highest values, if they cannot have such noise."""

    def scaled(self, factor: float) -> Any:
        """The noise of an image whose values are multiplied by a positive number."""
        given: Any = self.parameters.items()
        return replace(self, **{name: _times(value, factor) for name, value in given})

    def level(self, mean: Array) -> Array:
        """Standard deviation at this brightness of each channel, before stabilisation."""
        raise NotImplementedError


def other_name_of_kind(name: Any) -> str:
    """What to say of a kind of noise that is known by another name; empty: nothing."""
    is_other = str(name).lower() in ("poisson", "gaussian")
    return "Poisson noise is 'shot', Gaussian noise is 'white'." if is_other else ""


def check_no_class(noise: Any) -> None:
    """Reject a noise class given instead of an instance."""
    if isinstance(noise, type) and issubclass(noise, Noise) and noise is not Noise:
        needed = [each.name for each in fields(noise) if each.default is MISSING]
        example = f"{noise.__name__}({', '.join(needed) or 'covariance'})"
        raise TypeError(f"noise={noise.__name__} is a class: give an object, {example}.")


@dataclass(frozen=True, eq=False)
class White(Noise):
    """White noise: the same everywhere, and independent between pixels.

    Parameters
    ----------
    sigma : float, or one for each channel
        Standard deviation, in image units.
    correlation : array of shape (channels, channels), optional
        Correlation between the channels at one pixel; None: independent channels.
    confidence, evidence, alternative : float and two str, optional
        How sure an estimate is, 0 to 1, and why; what to give if it is wrong, a kind of noise or
        "sigma", empty for any. A noise that is given is certain.

    Examples
    --------
    >>> import kappaform as kf
    >>> print(kf.White(10.0).scaled(2))
    white, sigma 20
    """

    sigma: float | Array
    correlation: Array | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_numbers("sigma", self.sigma, least=0)
        if self.correlation is not None:
            matrix = np.asarray(self.correlation)
            check_covariance("correlation", matrix)
            if matrix.ndim != 2 or np.abs(np.diag(matrix) - 1).max() > ROUNDING:
                raise ValueError("correlation must be a matrix with 1 along its diagonal.")

    def check_channels(self, n_channels: int) -> None:
        super().check_channels(n_channels)
        if self.correlation is not None and len(self.correlation) != n_channels:
            raise ValueError(
                f"correlation is of {len(self.correlation)} channels, not {n_channels}."
            )

    def among(self, channels: list[int], n_channels: int) -> White:
        between = None if self.correlation is None else np.eye(n_channels)
        if between is not None:
            between[np.ix_(channels, channels)] = self.correlation
        sigma = among(self.sigma, channels, n_channels, 0.0)
        return replace(self, sigma=sigma, correlation=between)

    def mixed(self, weights: Array, _: tuple[int, ...]) -> tuple[float, None]:
        parts = weights * self.sigma
        largest = float(np.abs(parts).max())  # whose square may not be within float64
        parts = parts / (largest or 1.0)
        between = np.eye(len(parts)) if self.correlation is None else self.correlation
        return largest * math.sqrt(max(float(parts @ between @ parts), 0.0)), None

    def scaled(self, factor: float) -> White:
        return replace(self, sigma=_times(self.sigma, factor))

    def level(self, mean: Array) -> Array:
        return np.broadcast_to(self.sigma, mean.shape)

    def __str__(self) -> str:
        return f"white, sigma {in_words(self.sigma)}"


@dataclass(frozen=True, eq=False)
class Shot(Noise):
    """Shot (Poisson) noise with optional read noise.

    The variance at brightness x is gain * (x - offset) + read_noise**2. Each parameter is a number,
    or one for each channel.

    Parameters
    ----------
    gain : float > 0
        Image units per photon.
    read_noise : float >= 0
        Standard deviation where no light falls, in image units.
    offset : float
        Value where no light falls.
    confidence, evidence, alternative : float and two str, optional
        How sure an estimate is, 0 to 1, and why; what to give if it is wrong, a kind of noise or
        "sigma", empty for any. A noise that is given is certain.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> camera = kf.Shot(gain=2.0, read_noise=3.0)
    >>> camera.level(np.array([0.0, 8.0, 200.0]))  # at three brightnesses
    array([ 3.        ,  5.        , 20.22374842])
    """

    gain: float | Array
    read_noise: float | Array = 0.0
    offset: float | Array = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_numbers("gain", self.gain, above=0)
        _check_numbers("read_noise", self.read_noise, least=0)
        _check_numbers("offset", self.offset)

    def stabilised(self, image: Any) -> Any:
        return stabilise.anscombe(image, self.gain, self.read_noise, self.offset)

    def restored(self, image: Any) -> Any:
        return stabilise.inverse_anscombe(image, self.gain, self.read_noise, self.offset)

    def check_values(self, highest: Array) -> None:
        if np.any(highest < self.offset):
            raise ValueError(
                f"offset={in_words(self.offset)} is above all values of the image, which has at "
                f"most {in_words(highest)}: light only adds to the offset; give a smaller one."
            )

    def level(self, mean: Array) -> Array:
        # Not by variances, which may exceed the largest number.
        of_photons = np.sqrt(np.maximum(mean - self.offset, 0)) * np.sqrt(self.gain)
        return np.hypot(of_photons, self.read_noise)

    def __str__(self) -> str:
        return shot_in_words(self.gain, self.read_noise, self.offset)


@dataclass(frozen=True, eq=False)
class Varying(Noise):
    """Noise whose standard deviation is any function of brightness, independent between pixels.

    A gamma curve causes such noise, for instance. The standard deviation is interpolated linearly
    between the given points, and constant beyond them.

    Parameters
    ----------
    brightness : array of increasing numbers, or one such row for each channel
    sigma : array of the same shape
        Standard deviation at each brightness, above 0.
    confidence, evidence, alternative : float and two str, optional
        How sure an estimate is, 0 to 1, and why; what to give if it is wrong, a kind of noise or
        "sigma", empty for any. A noise that is given is certain.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> noise = kf.Varying(brightness=[0, 64, 255], sigma=[12, 8, 4])
    >>> noise.level(np.array([32.0]))
    array([10.])
    """

    brightness: Array
    sigma: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        points, sizes = (np.asarray(each, np.float64) for each in (self.brightness, self.sigma))
        if points.shape != sizes.shape or points.ndim not in (1, 2) or points.shape[-1] < 2:
            raise ValueError(
                f"brightness has shape {points.shape}, sigma {sizes.shape}: give as many of both, "
                "at least two, or a row of them for each channel."
            )
        if not (np.isfinite(points).all() and np.isfinite(sizes).all() and sizes.min() > 0):
            raise ValueError("brightness and sigma must be finite, sigma above 0.")
        if not (points[..., 1:] > points[..., :-1]).all():
            raise ValueError("brightness must increase from each number to the next.")
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            ends = self.stabilised(np.atleast_2d(points)[:, [0, -1]].T)
            ends = np.stack([ends, self.restored(ends)])
        if not np.isfinite(ends).all():
            raise ValueError("brightness and sigma exceed what float64 resolves: scale the image.")

    def check_channels(self, n_channels: int) -> None:
        check_n_channels("sigma", 1 if np.ndim(self.sigma) == 1 else len(self.sigma), n_channels)

    def stabilised(self, image: Any) -> Any:
        return stabilise.by_levels(image, self.brightness, self.sigma)

    def restored(self, image: Any) -> Any:
        return stabilise.inverse_by_levels(image, self.brightness, self.sigma)

    def level(self, mean: Array) -> Array:
        rows = zip(
            mean,
            *(
                np.broadcast_to(each, (mean.size, np.shape(each)[-1]))
                for each in (self.brightness, self.sigma)
            ),
            strict=True,
        )
        return np.array([np.interp(*row) for row in rows])

    def __str__(self) -> str:
        return f"varying, sigma {np.min(self.sigma):.4g} to {np.max(self.sigma):.4g}"


def among(value: Any, channels: list[int], n_channels: int, empty: float | None = None) -> Array:
    """A parameter of each channel; where there is none, `empty` or that of the first."""
    rows = np.broadcast_to(value, (len(channels), *np.shape(value)[1:]))
    full = np.full((n_channels, *rows.shape[1:]), rows[0] if empty is None else empty)
    full[channels] = rows
    return full


# --- Checks


def check_n_channels(name: str, n_given: int, n_channels: int) -> None:
    if n_given not in (1, n_channels):
        raise ValueError(
            f"{name} is for {n_given} channels, the image has {n_channels}: give what holds for "
            "all of them, or one for each."
        )


def as_numbers(name: str, value: Any) -> Array:
    """A parameter of noise as an array of real numbers."""
    if isinstance(value, Noise):
        raise TypeError(f"{name}={value!r} is a kind of noise: give it as noise=.")
    array = as_real_array(value, name)
    if array.dtype.kind == "b":
        if array.ndim > 1:
            also = "; a mask goes to mask= of denoise" if name == "sigma" else ""
            raise TypeError(f"{name} is an array of booleans: give numbers{also}.")
        raise TypeError(f"{name}={value!r} is a boolean: give a number, or one for each channel.")
    return array


def per_channel(numbers: list[float]) -> float | Array:
    """A number for each channel, of one channel the number itself."""
    return numbers[0] if len(numbers) == 1 else np.array(numbers)


def _check_numbers(
    name: str, value: Any, least: float = -math.inf, above: float = -math.inf
) -> None:
    array = as_numbers(name, value)
    valid = np.isfinite(array) & (array >= least) & (array > above)
    if array.ndim > 1 or not array.size or not valid.all():
        rule = f" >= {least:g}" if least > -math.inf else f" > {above:g}" if above == 0 else ""
        raise ValueError(f"{name}={value!r}: give a finite number{rule}, or one for each channel.")


def _times(value: Any, factor: float) -> Any:
    return np.multiply(value, factor) if np.ndim(value) else float(value) * factor


def check_magnitude(name: str, largest: float) -> None:
    """Reject covariances whose sums may overflow."""
    if largest > _LARGEST_COVARIANCE:
        raise ValueError(
            f"{name} has entries of {largest:.3g}: at most {_LARGEST_COVARIANCE:g}; divide the "
            "image by a number, and the covariance by its square."
        )


def check_covariance(name: str, matrix: Array) -> None:
    """Reject what cannot be a covariance."""
    square = matrix.ndim in (2, 3, 4) and matrix.shape[-1] == matrix.shape[-2]
    square = square and (matrix.ndim == 3 or matrix.shape[0] == matrix.shape[1])
    if not square or not matrix.size:
        raise ValueError(f"{name} has shape {matrix.shape}: give a square matrix, (n, n).")
    whole = matrix
    if matrix.ndim == 4:
        whole = matrix.transpose(0, 2, 1, 3).reshape((matrix.shape[0] * matrix.shape[2],) * 2)
    if not np.isfinite(whole).all():
        raise ValueError(f"{name} contains NaN or inf.")
    largest = float(np.abs(whole).max())
    check_magnitude(name, largest)
    if np.abs(whole - whole.swapaxes(-1, -2)).max() > ROUNDING * largest:
        raise ValueError(f"{name} is not symmetric: entry (i, j) must be entry (j, i).")
    least = np.linalg.eigvalsh(whole).min()
    if largest == 0 or least < -ROUNDING * whole.shape[-1] * largest:
        raise ValueError(
            f"{name} is not positive: its least eigenvalue is {least:.3g}, so that some sum of "
            "pixels would have a negative variance."
        )


def shot_in_words(gain: Any, read_noise: Any, offset: Any) -> str:
    words = f"shot, gain {in_words(gain)}, read noise {in_words(read_noise)}"
    return words + (f", offset {in_words(offset)}" if np.any(offset) else "")


def in_words(value: Any) -> str:
    """Numbers in a line, or the only one; the range of those that do not fit."""
    numbers = np.atleast_1d(value)
    if numbers.size > _MOST_IN_WORDS:
        return f"{numbers.min():.4g} to {numbers.max():.4g}"
    texts = [f"{number:.4g}" for number in numbers]
    return ", ".join(texts if len(set(texts)) > 1 else texts[:1])


def within_a_fifth(error: float) -> float:
    """Probability that a normal estimate with this relative standard error is off by < 20 %."""
    return math.erf(0.2 / (math.sqrt(2) * max(error, 1e-9)))
