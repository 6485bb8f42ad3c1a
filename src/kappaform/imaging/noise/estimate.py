"""Which noise an image has, and how strong it is."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kappaform.checks import Array, as_real_array, check_axis, library_of
from kappaform.errors import warn
from kappaform.imaging.axes import check_not_colour, checked_axes
from kappaform.imaging.noise.correlated import MOST_TOGETHER, Correlated
from kappaform.imaging.noise.kinds import (
    NO_EVIDENCE,
    Evidence,
    Noise,
    Shot,
    White,
    other_name_of_kind,
    per_channel,
    within_a_fifth,
)
from kappaform.imaging.noise.photographs import mixture_noise
from kappaform.imaging.noise.quiet_patches import look_at
from kappaform.imaging.noise.shot import shot_of
from kappaform.imaging.noise.wavelets import (
    WAVELET_LENGTH,
    Details,
    Sample,
    channel_correlation,
    details_of,
    deviation,
    noise_in_texture,
    quietest_fifth,
    sample_of,
)
from kappaform.imaging.options import default_patch_shape, examined_shape
from kappaform.imaging.patches import Size, checked_patch_shape, places_within
from kappaform.threads import single_threaded_blas

_logger = logging.getLogger("kappaform")
_logger.addHandler(logging.NullHandler())  # the library prints nothing of its own accord

Kind = Literal["white", "shot", "correlated"]
KINDS: tuple[Kind, ...] = ("white", "shot", "correlated")

_NEXT_TO_NONE = 1e-3  # noise over the range of values: of 8 bit, less than rounding does
_MAD_ERROR = 1.17  # standard error of the median of n magnitudes, relatively, times root n
UNSURE = 0.8  #: confidence below which a noise is reported as uncertain
_N_COLOURS = 3  # red, green and blue, of photographs


def estimate_sigma(image: npt.ArrayLike, channel_axis: int | None = None) -> float | Array:
    r"""Standard deviation of white Gaussian noise in an image, in the image's own units.

    .. math:: \hat\sigma = \mathrm{median}\{|d_k| : k \in Q\} \,/\, 0.6745

    where d are the finest diagonal coefficients of an orthonormal wavelet transform (db2) and Q
    those with the least texture around them: the quietest fifth by the magnitude of the other
    detail coefficients. White noise is independent in the two, so the choice alone does not bias
    the estimate, while the median over all of d (Donoho and Johnstone) takes texture for noise.
    Texture in the quietest fifth itself is subtracted: its variance falls with that of the others.
    Surroundings that hold the smallest or the largest value of the image do not count, because
    noise may be clipped there, nor do flat ones: a background set to a constant has no noise. Where
    next to nothing is left, clipped surroundings count as well; in a drawing, where most of the
    details that are not zero are next to flat areas, all of d is used.

    Parameters
    ----------
    image : array of any number of dimensions
        Integers are taken as they are. In very large images, evenly spaced parts are examined; only
        these parts of a Dask array are computed.
    channel_axis : int, optional
        The axis of the channels, each of which is estimated on its own.

    Returns
    -------
    float, or float64 array with one entry for each channel
        0.0 for a constant image; the standard deviation of one without an axis of 4 pixels.

    See Also
    --------
    estimate_noise : noise of other kinds, too.

    Examples
    --------
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> noisy = kf.add_noise(camera()[100:164, 200:264], sigma=20)
    >>> 17 < kf.estimate_sigma(noisy) < 23
    True
    """
    array: Any = image if library_of(image) == "dask" else as_real_array(image, "image")
    if channel_axis is None:
        check_not_colour(array.shape, range(array.ndim))
        return _sigma_of(array)
    check_axis(channel_axis, array.shape, "channel_axis")
    return np.array([_sigma_of(channel) for channel in np.moveaxis(array, channel_axis, 0)])


def estimate_noise(
    image: npt.ArrayLike,
    *,
    kind: Kind | None = None,
    channel_axis: int | None = None,
    patch_size: Size | None = None,
) -> Noise:
    """The kind of noise in an image, and its size.

    Noise is white, unless there is no doubt that it grows with brightness as that of photons does
    (`Shot`), or that neighbouring pixels share it (`Correlated`), or both. Correlated noise may
    depend on brightness in any way (`Varying`), as that of processed photographs does. A warning
    says if an image has impulses (salt and pepper), or no place without texture.

    Parameters
    ----------
    image : array
        2-D or 3-D, not counting the axis of channels. Only parts of a Dask array are examined.
    kind : {"white", "shot", "correlated"}, optional
        Measure noise of this kind; None: of the kind that fits.
    channel_axis : int, optional
        The axis of the channels.
    patch_size : int or tuple, optional
        Size of the patches whose covariance `Correlated` gives: by default that of `denoise`.

    Returns
    -------
    White, Shot or Correlated
        Its `confidence` (0 to 1) and `evidence` (a sentence) say how sure the estimate is.

    Examples
    --------
    >>> import numpy as np
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> photons = np.random.default_rng(0).poisson(camera() / 10)
    >>> print(kf.estimate_noise(photons))
    shot, gain 1, read noise 0
    """
    pixels: Any = image if library_of(image) == "dask" else as_real_array(image, "image")
    check_kind(kind, "kind")
    stack = checked_axes(pixels.shape, channel_axis).to_stack(pixels)
    space = stack.shape[1:-1]
    if patch_size is None:
        patch_size = default_patch_shape(space)
    with single_threaded_blas():
        return noise_of(stack[0], kind, checked_patch_shape(patch_size, space))


def check_kind(kind: str | None, name: str) -> None:
    if kind is not None and kind not in KINDS:
        text = f"{name}={kind!r} is no kind of noise: choose one of {KINDS}, or None."
        raise ValueError(f"{text} {other_name_of_kind(kind)}".rstrip())


def noise_of(image: Any, kind: str | None, patch_shape: tuple[int, ...]) -> Noise:
    """The noise of an image of any library, its channels last; what was found is logged."""
    samples = [sample_of(image[..., c]) for c in range(image.shape[-1])]
    found: Noise
    if max(image.shape[:-1]) < WAVELET_LENGTH:
        details = []
        found = White(
            per_channel([_small_sigma(sample) for sample in samples]),
            confidence=0.0,
            evidence="the image is too small to tell noise from anything else",
        )
    else:
        details = [details_of(sample) for sample in samples]
        found = _noise_of(samples, details, kind, patch_shape)
    log_estimate(found)
    # In units of the samples: those of the image may have no room for a range.
    exponents = np.array([each.exponent for each in samples])
    ends = np.array([(each.lowest, each.highest) for each in samples])
    levels = np.ldexp(found.level(np.ldexp(ends.mean(axis=1), exponents)), -exponents)
    ranges = np.ptp(ends, axis=1)
    if any(each.are_doubtful and level > 0 for each, level in zip(details, levels, strict=False)):
        _logger.warning(
            "the estimated noise is doubtful: next to no part of the image is neither clipped nor "
            "flat; if the result is wrong, give sigma."
        )
    if np.all(levels <= _NEXT_TO_NONE * ranges) and np.any(ranges > 0):
        _logger.warning(
            "next to no noise was found (%s): little or nothing will be removed; "
            "if the image is noisy, give sigma or noise.",
            found,
        )
    return found


def log_estimate(found: Noise) -> None:
    told = (found, found.confidence, found.evidence)
    _logger.info("estimated noise: %s (confidence %.2f: %s)", *told)


def _noise_of(
    samples: list[Sample], details: list[Details], kind: str | None, patch_shape: tuple[int, ...]
) -> Noise:
    sigmas = _with_certain([_sigma(*each) for each in zip(samples, details, strict=True)], details)
    units = [math.ldexp(s, each.exponent) for s, each in zip(sigmas, samples, strict=True)]
    measured = _measured(details, max(sigmas))
    pairs = zip(sigmas, details, strict=True)
    whites = [noise_in_texture(*pair) for pair in pairs]
    in_units = [math.ldexp(s, each.exponent) for s, each in zip(whites, samples, strict=True)]
    white = White(per_channel(in_units), channel_correlation(details, sigmas), **measured)
    _warn_of_impulses(samples)
    if kind == "white" or max(sigmas) == 0:
        return white
    if min(sigmas) == 0:
        return _without_empty(samples, details, sigmas, kind, patch_shape) or white
    shots, judged = _shots(samples, details, kind)
    found = white if shots is None else replace(Shot.of_channels(shots), **measured)
    if kind != "shot":
        found = _correlated(found, samples, units, shots, kind, patch_shape)
    if isinstance(found, Correlated) or not judged.evidence:
        return found
    if isinstance(found, White) and judged.confidence > found.confidence:
        return found
    judged = judged._replace(confidence=min(judged.confidence, found.confidence))
    return replace(found, **judged._asdict())


def _with_certain(sigmas: list[float], details: list[Details]) -> list[float]:
    """Deviations of colours; where one is in doubt, at most that of the colours which are not."""
    certain = [s for s, each in zip(sigmas, details, strict=True) if not each.are_doubtful]
    if not certain or len(sigmas) > MOST_TOGETHER:
        return sigmas
    limits = (max(certain) if each.are_doubtful else math.inf for each in details)
    return [min(pair) for pair in zip(sigmas, limits, strict=True)]


def _measured(details: list[Details], sigma: float) -> dict[str, Any]:
    """How sure the standard deviation of the finest details is."""
    if sigma == 0:
        return {"confidence": 1.0, "evidence": "most of the image has no details at all"}
    n = min(int(np.count_nonzero(each.usable)) for each in details) // 5  # the quietest fifth
    words = f"measured in {n} details with little texture"
    return {"confidence": within_a_fifth(_MAD_ERROR / math.sqrt(max(n, 1))), "evidence": words}


def _without_empty(
    samples: list[Sample],
    details: list[Details],
    sigmas: list[float],
    kind: str | None,
    patch_shape: tuple[int, ...],
) -> Noise | None:
    """The noise of channels that have some, if the others are constant; these are left alone."""
    noisy = [c for c, sigma in enumerate(sigmas) if sigma > 0]
    empty = [c for c, sigma in enumerate(sigmas) if sigma == 0]
    if any(samples[c].lowest < samples[c].highest for c in empty):
        return None
    parts = [samples[c] for c in noisy], [details[c] for c in noisy]
    return _noise_of(*parts, kind, patch_shape).among(noisy, len(samples))


# --- White


def _sigma_of(image: Any) -> float:
    sample = sample_of(image)
    if max(image.shape) < WAVELET_LENGTH:
        return _small_sigma(sample)
    details = details_of(sample)
    return math.ldexp(noise_in_texture(_sigma(sample, details), details), sample.exponent)


def _small_sigma(sample: Sample) -> float:
    return math.ldexp(float(np.std(sample.slabs[0])), sample.exponent)


def _sigma(sample: Sample, details: Details) -> float:
    if sample.lowest == sample.highest:
        return 0.0
    coefs, usable, clear = details.coefs, details.usable, details.clear
    if not details.are_doubtful:
        return deviation(coefs[usable][quietest_fifth(details.texture[usable])])
    # Noise leaves no detail zero, but at the border of a flat area; lines of a drawing do.
    is_noisy = clear.any() and 2 * np.count_nonzero(clear) >= np.count_nonzero(coefs)
    return deviation(coefs[clear] if is_noisy else coefs)


# --- Shot


def _shots(
    samples: list[Sample], details: list[Details], kind: str | None
) -> tuple[list[Shot] | None, Evidence]:
    """Shot noise of each channel, if most of them have it, in units of the image; the evidence."""
    doubted = kind != "shot"
    pairs = zip(samples, details, strict=True)
    found = [_shot_in_units(*pair, doubted) for pair in pairs]
    known = [shot for shot, _ in found if shot is not None]
    if not known and not doubted:
        raise ValueError(
            "noise='shot': the noise of this image does not grow with its brightness, or the image "
            "is too small to see it; give gain and read noise, noise=Shot(gain, read_noise)."
        )
    have_it = 2 * len(known) > len(found)
    judged = min(
        (each for shot, each in found if (shot is not None) == have_it),
        key=lambda each: each.confidence,
    )
    if not have_it:
        return None, judged
    # A channel in doubt has what the others have: it is of the same sensor.
    names = ("gain", "read_noise", "offset")
    usual = Shot(*(float(np.median([getattr(shot, name) for shot in known])) for name in names))
    return [shot or usual for shot, _ in found], judged


def _shot_in_units(sample: Sample, details: Details, doubted: bool) -> tuple[Shot | None, Evidence]:
    shot, evidence = shot_of(sample, details, doubted=doubted)
    # In two steps: 2**exponent may be just beyond the largest number.
    return shot and shot.scaled(math.ldexp(0.5, sample.exponent)).scaled(2.0), evidence


# --- Correlated


def _correlated(
    found: Noise,
    samples: list[Sample],
    units: list[float],
    shots: list[Shot] | None,
    kind: str | None,
    patch_shape: tuple[int, ...],
) -> Noise:
    """Correlated noise, if there is no doubt or it is asked for; else the noise `found` so far.

    Quiet patches, where there are any, measure it without a model. Where they are in doubt, or show
    a single level, the patches of a photograph decide all together, by their likelihood.
    """
    asked = kind == "correlated"
    space = tuple(np.max([slab.shape for slab in samples[0].slabs], axis=0).tolist())
    sides = examined_shape(patch_shape, space)
    look = look_at(samples, units, shots, sides)
    is_certain = look is not None and look.is_large and look.quiet.is_correlated_noise
    varies = shots is not None or (look is not None and look.stabiliser is not None)
    if not (is_certain and varies):
        may_be_photograph = len(samples) == _N_COLOURS
        mixture, judged = mixture_noise(samples) if may_be_photograph else (None, NO_EVIDENCE)
        if mixture is not None:
            return mixture.correlated(patch_shape, judged)
        # Else it is texture, or magnified; the channels of an image share their structure.
        is_certain &= judged.confidence > 0.5 or (look is not None and look.quiet.has_own_colours)
        if judged.confidence < found.confidence and not asked and not is_certain:
            found = replace(found, **judged._asdict())
    if look is None:
        if asked:
            raise ValueError(
                "noise='correlated': too little of this image is neither clipped nor constant; "
                "give noise=Correlated(autocovariance=...)."
            )
        return found
    if not (asked or is_certain):
        if look.quiet.is_structure:
            words = "the noise could not be told from texture, which is everywhere in this image"
            texture = Evidence(min(found.confidence, 0.5), words)
            found = replace(found, **texture._asdict())
            warn(
                f"{words}: {found} is assumed; if that is wrong, try noise='correlated', or give "
                "sigma."
            )
        return found
    stabiliser = found if isinstance(found, Shot) else look.stabiliser
    within = places_within(sides, patch_shape)
    covariance = look.quiet.covariance[..., within[:, np.newaxis], within]
    sure: dict[str, Any] = {"confidence": found.confidence}
    sure["evidence"] = "measured in the quietest patches"
    if stabiliser is not None:
        return Correlated(covariance, stabiliser=stabiliser, **sure)
    between = np.multiply.outer(units, units)
    scales = between if covariance.ndim == 4 else np.diag(between)
    return Correlated(covariance * scales[..., None, None], **sure)


# --- Salt and pepper: pixels far from all their neighbours, which the denoiser keeps

_IMPULSE = 6.0  # standard deviations from all neighbours: normal noise is next to never so far
_LEAST_IMPULSES = 1e-3  # fraction of the pixels
_DARK = 0.1  # fraction of pixels with the lowest value, where there are few photons
# From pixel to pixel, over the range of values: less is no noise to compare with.
_LEAST_STEP = 0.01


def _warn_of_impulses(samples: list[Sample]) -> None:
    """Say that an image has salt and pepper: no kind of noise that is known here."""
    from scipy.ndimage import maximum_filter, minimum_filter

    n_salt = n_pepper = n_lowest = n_pixels = 0
    for sample in samples:
        for slab in sample.slabs:
            ring = np.ones((3,) * slab.ndim, bool)
            ring[(1,) * slab.ndim] = False
            above = slab - maximum_filter(slab, footprint=ring)
            below = minimum_filter(slab, footprint=ring) - slab
            steps = np.abs(np.diff(slab, axis=-1))
            usual = 1.4826 / math.sqrt(2) * float(np.median(steps)) if steps.size else math.inf
            usual = max(usual, _LEAST_STEP * (sample.highest - sample.lowest))
            far = _IMPULSE * usual
            n_salt += int(np.count_nonzero((slab == sample.highest) & (above > far)))
            n_pepper += int(np.count_nonzero((slab == sample.lowest) & (below > far)))
            n_lowest += int(np.count_nonzero(slab == sample.lowest))
            n_pixels += slab.size
    if not n_pepper and n_lowest > _DARK * n_pixels:  # single photons, or stars
        return
    if n_salt + n_pepper > _LEAST_IMPULSES * n_pixels:
        percent = 100 * (n_salt + n_pepper) / n_pixels
        warn(
            f"{percent:.2g} % of the pixels are impulses (salt and pepper): this "
            "denoiser keeps them; use a median filter first."
        )
