"""Denoising around missing pixels: filled first, then denoised and estimated again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

from kappaform.checks import float_dtype
from kappaform.imaging.axes import ANY_VALUE, check_scale, extremes_of, within
from kappaform.imaging.cleaning.first_guess import first_guess
from kappaform.imaging.cleaning.holes import Filling, filled, reestimated
from kappaform.imaging.components import Component
from kappaform.imaging.masks import check_some_known, is_nan, pixels_and_missing
from kappaform.imaging.noise.estimate import check_kind, log_estimate, noise_of
from kappaform.imaging.noise.kinds import Evidence, Noise, White, per_channel
from kappaform.imaging.options import Options
from kappaform.imaging.progress import Progress
from kappaform.threads import single_threaded_blas

# Noise is estimated in blocks without holes, as large as there are enough of.
_BLOCK_SIDES = {2: (32, 16), 3: (16, 8)}
_LEAST_PIXELS = 4096  # in all blocks
_LEAST_TRIPLES = 100
# Why an estimate from neighbouring pixels is in doubt. On eleven crops of 128 x 128 pixels, 30 %
# missing at random, it was right within a fifth for 5 of them with sigma 5, for 9 with sigma 20.
_AROUND_HOLES = Evidence(
    0.5, "measured between neighbouring pixels, where texture counts as noise", alternative="sigma"
)
# How much less the variance of the noise is, per fraction of missing pixels near known ones: where
# these are filled, and where they have been denoised. Then the fraction from which on the estimate
# from groups and denoising twice count fully. The first and the last were chosen on parts of
# Barbara, Lena and Hill, the other on parts of twelve photographs and of Barbara and Lena; sigma 8
# to 40, 2 to 80 % missing.
_NOISE_LOST, _NOISE_LOST_AGAIN = 0.65, 0.9
_MANY_NEARBY = 0.1
_NEARBY = 11  # side of the surroundings of a pixel
# Relative costs of filling and of denoising twice; for progress only.
_WORK = 2.0, 1.0, 1.0


def whole_image(
    image: Any, mask: Any, sigma: Any, noise: Any, channel_axis: int | None, options: Options
) -> dict[str, Any]:
    """What to denoise instead of an image with missing pixels, as arguments: a guess fills these.

    Its noise is estimated unless it is given. If nothing is missing, it is the image itself.
    """
    nan, axes = is_nan(mask), options.axes
    pixels, missing = pixels_and_missing(
        image, None if nan else mask, (channel_axis, axes.named_stack), nan
    )
    check_some_known(missing, axes)
    whole = {"pixels": pixels, "sigma": sigma, "noise": noise, "options": options}
    if not missing.any():
        return whole
    known = axes.to_stack(~missing)
    stack = axes.to_stack(pixels.astype(float_dtype(pixels.dtype)))
    lowest, highest = extremes_of(stack[0] if axes.movie else stack)  # rejects inf and other NaN
    check_scale(lowest, highest, np.zeros_like(lowest))
    if sigma is None and (noise is None or isinstance(noise, str)):
        with single_threaded_blas():
            whole["noise"] = noises_around(stack, known, noise, options.patch_shape, axes.movie)
    if not (known == known[..., :1]).all():
        whole["options"] = replace(options, decorrelate=False)
    return whole | {"pixels": axes.from_stack(with_guesses(stack, known)), "known": known}


def masks_of(parts: Sequence[Component], known: NDArray) -> list[NDArray]:
    """The known pixels of each component. Only masks of channels that are components differ."""
    return [known[..., min(c, known.shape[-1] - 1)] for c in range(len(parts))]


def with_guesses(stack: NDArray, known: NDArray) -> NDArray:
    """A stack whose missing pixels are local averages, so that all of it is finite."""
    result = stack.copy()
    for image, is_known in zip(result, known, strict=True):
        for c in range(image.shape[-1]):
            if not is_known[..., c].all():
                # Sums of half-precision numbers would overflow.
                guess, _ = first_guess(image[..., c].astype(np.float64), is_known[..., c])
                image[..., c] = np.where(is_known[..., c], image[..., c], guess)
    return result


def noises_around(
    stack: NDArray, known: NDArray, kind: Any, patch_shape: tuple[int, ...], movie: bool
) -> list[Noise]:
    """The noise of each image of a stack, or of a movie, estimated where nothing is missing."""
    check_kind(kind, "noise")
    patch_shape = patch_shape[1:] if movie else patch_shape
    noises: list[Noise] = []
    for image, is_known in zip(stack, np.asarray(known.all(axis=-1)), strict=True):
        if is_known.all() and not movie:
            noises.append(noise_of(image, kind, patch_shape))
            continue
        mosaic = _without_holes(image, is_known, movie)
        if mosaic is not None:
            noises.append(noise_of(mosaic, kind, patch_shape))
        elif kind in (None, "white"):
            noises.append(_from_triples(image, is_known))
        else:
            raise ValueError(
                f"noise={kind!r}: there are too few areas without missing pixels to estimate it; "
                "give sigma, or the noise itself."
            )
    return noises


def _without_holes(image: NDArray, known: NDArray, movie: bool) -> NDArray | None:
    """Blocks in which nothing is missing, next to each other; None if there are too few."""
    n_axes = known.ndim - movie
    for side in _BLOCK_SIDES[n_axes]:
        sides = [1] * movie + [side] * n_axes
        counts = [size // along for size, along in zip(known.shape, sides, strict=True)]
        blocks, complete = (_blocks(each, counts, sides) for each in (image, known))
        blocks = blocks[complete.all(axis=tuple(range(1, complete.ndim)))]
        if len(blocks) * side**n_axes >= _LEAST_PIXELS:
            if movie:
                blocks = blocks[:, 0]
            n_rows = math.isqrt(len(blocks))
            rows = blocks[: n_rows * (len(blocks) // n_rows)].reshape(n_rows, -1, *blocks.shape[1:])
            return np.concatenate([np.concatenate(list(row), axis=1) for row in rows], axis=0)
    return None


def _blocks(image: NDArray, counts: Sequence[int], sides: Sequence[int]) -> NDArray:
    """The blocks of an image, one after the other; axes after those of the blocks are kept."""
    n_axes = len(counts)
    image = image[tuple(slice(n * side) for n, side in zip(counts, sides, strict=True))]
    shape = [n for pair in zip(counts, sides, strict=True) for n in pair]
    image = image.reshape(*shape, *image.shape[n_axes:])
    order = [*range(0, 2 * n_axes, 2), *range(1, 2 * n_axes, 2), *range(2 * n_axes, image.ndim)]
    image = image.transpose(order)
    return image.reshape(-1, *image.shape[n_axes:])


def _from_triples(image: NDArray, known: NDArray) -> White:
    """White noise of each channel, from second differences.

    Texture counts as noise here, so that the estimate is rough.
    """
    differences = []
    for axis in range(known.ndim):
        first, middle, last = (
            (slice(None),) * axis + (slice(i, known.shape[axis] - 2 + i),) for i in range(3)
        )
        complete = known[first] & known[middle] & known[last]
        values = image.astype(np.float64)
        second = values[first] - 2 * values[middle] + values[last]
        differences.append(second[complete] / math.sqrt(6))
    every = np.concatenate(differences)
    if len(every) < _LEAST_TRIPLES:
        raise ValueError("there are too few known neighbours to estimate the noise: give sigma.")
    sigmas = (np.median(np.abs(every), axis=0) / 0.6745).tolist()
    found = White(per_channel(sigmas), **_AROUND_HOLES._asdict())
    log_estimate(found)
    return found


def denoised_around_holes(
    parts: list[Component], known: list[Any], options: Options, by: Any, progress: Progress
) -> Any:
    """Components with holes denoised by the given function: missing pixels are filled before.

    Filled pixels have less noise than known ones, so that a smaller standard deviation is assumed.
    Their denoised values have hardly any: with these in their place, all is denoised once more.
    """
    of_filling, of_first, of_second = progress.sections(_WORK)
    how = filling_of(options)._replace(noisy=True)
    sources = [part.image.astype(np.float64) for part in parts]
    images = filled(sources, known, how, of_filling)
    if any(part.covariance is not None for part in parts):
        return by(list(map(_with_image, parts, images, known)), options, of_first)
    near = [_missing_nearby(is_known) for is_known in known]
    weights = [(its / _MANY_NEARBY).clip(max=1.0) for its in near]
    sigmas = [part.sigma for part in parts]

    def denoised(images: list[NDArray], factors: list[float], progress: Progress) -> Any:
        """The components with these values of missing pixels, whose noise is less by a factor.

        Near holes, the denoised image is moved towards an estimate from the known pixels of groups.
        """
        of_denoising, of_groups = progress.sections([2, 1])
        each = zip(parts, images, known, sigmas, factors, strict=True)
        whole = [_with_image(*its)._replace(sigma=sigma * f) for *its, sigma, f in each]
        found = by(whole, options, of_denoising)
        guides = [np.asarray(image, np.float64) for image in found.images]
        again = reestimated(sources, known, guides, sigmas, how, of_groups)
        return found._replace(images=_mixed(guides, again, weights))

    fractions = [float(its[k].mean()) for its, k in zip(near, known, strict=True)]
    found = denoised(images, _less(fractions, _NOISE_LOST), of_first)
    fractions = [_mean(its[k], w[k]) for its, w, k in zip(near, weights, known, strict=True)]
    if max(fractions) > _MANY_NEARBY:  # with fewer, twice is no better than once
        images = [np.where(k, *pair) for k, *pair in zip(known, sources, found.images, strict=True)]
        second = denoised(images, _less(fractions, _NOISE_LOST_AGAIN), of_second)
        found = second._replace(images=_mixed(found.images, second.images, weights))
    results = [_within(*each) for each in zip(found.images, parts, strict=True)]
    return found._replace(images=results)


def _less(fractions: list[float], lost: float) -> list[float]:
    """Factors of the standard deviation, if this part of the variance is lost at missing pixels."""
    return [math.sqrt(1 - lost * fraction) for fraction in fractions]


def _mixed(ones: list[NDArray], others: list[NDArray], weights: list[NDArray]) -> list[NDArray]:
    """Images moved towards others by these weights."""
    each = zip(ones, others, weights, strict=True)
    return [one + weight * (other - one) for one, other, weight in each]


def _mean(values: NDArray, weights: NDArray) -> float:
    """A weighted mean; 0 without any weight."""
    total = float(weights.sum())
    return float((weights * values).sum()) / total if total else 0.0


def _missing_nearby(known: NDArray) -> NDArray:
    """Fraction of missing pixels around each pixel."""
    return np.asarray(uniform_filter((~known).astype(np.float64), _NEARBY, mode="nearest"))


def filling_of(options: Options) -> Filling:
    """How holes are filled."""
    return Filling(options.quality, options.seed, options.axes.movie, device=options.device)


def unchanged(part: Component, known: NDArray | None, options: Options) -> Any:
    """A component without noise, its holes filled."""
    values = part.image
    if known is not None:
        (values,) = filled([values.astype(np.float64)], [known], filling_of(options))
    return _within(values, part)


def _within(values: NDArray, part: Component) -> NDArray:
    """Values in the dtype and the range of a component."""
    dtype = float_dtype(part.image.dtype)
    return within(values.astype(dtype), part.value_range, dtype)


def _with_image(part: Component, image: NDArray, known: NDArray) -> Component:
    """A component whose missing pixels are filled; patches with them are not learned from."""
    values = image if part.value_range == ANY_VALUE else image.clip(*part.value_range)
    dtype = part.image.dtype if part.image.dtype.kind == "f" else np.dtype(np.float64)
    return part._replace(
        image=values.astype(dtype),
        lowest=min(part.lowest, float(values.min())),
        highest=max(part.highest, float(values.max())),
        known=known,
    )
