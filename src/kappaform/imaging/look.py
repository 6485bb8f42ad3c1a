"""A look at patches of an image, drawn at random: what the quiet ones show of its noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kappaform.arrays import Array
from kappaform.imaging.details import Sample
from kappaform.imaging.noise import Shot, Varying
from kappaform.imaging.patches import grid_of, rows_at
from kappaform.imaging.quiet import Patches, Quiet, curve_of, quiet_of

MOST_TOGETHER = 4  # channels, those of colour, that have a covariance together
_N_PATCHES = 10_000  # that are drawn
_LEAST_PATCHES = 1000  # of which a tenth says something


class Look(NamedTuple):
    """What the quiet patches of an image show, and the stabiliser that made them alike."""

    quiet: Quiet
    stabiliser: Varying | None


def look_at(
    samples: list[Sample],
    units: list[float],
    shots: list[Shot] | None,
    patch_shape: tuple[int, ...],
) -> Look | None:
    """What the quiet patches of an image show; None if too few are neither clipped nor constant.

    The few channels of colour are taken together, with the covariance of each pair of them. More
    channels are taken one after the other and count as independent, so that time and memory grow
    in proportion to their number; which patches are quiet is still decided by all of them.
    """
    n_channels = len(samples)
    size = n_channels if n_channels <= MOST_TOGETHER else 1
    groups = [slice(c, c + size) for c in range(0, n_channels, size)]
    patches = _drawn_patches(samples, units, shots, patch_shape, groups)
    if patches is None:
        return None
    seen = quiet_of(patches, groups, patch_shape)
    if shots is None and not seen.is_white and seen.has_own_colours:
        varying = _varying(patches, units)
        if varying is not None:
            even = quiet_of(_evened(patches, varying, units), groups, patch_shape)
            if even.is_correlated_noise >= seen.is_correlated_noise:
                return Look(even, varying)
    return Look(seen, None)


def _stabilised(
    samples: list[Sample], units: list[float], shots: list[Shot] | None, number: int
) -> Array:
    """A slab (channels last) in units of its noise."""
    parts = [sample.slabs[number] for sample in samples]
    if shots is None:
        scales = [math.ldexp(u, -s.exponent) for u, s in zip(units, samples, strict=True)]
        channels = [part / scale for part, scale in zip(parts, scales, strict=True)]
    else:
        scaled = [
            h.scaled(math.ldexp(1.0, -s.exponent)) for h, s in zip(shots, samples, strict=True)
        ]
        pairs = zip(scaled, parts, strict=True)
        channels = [shot.stabilised(part[..., np.newaxis])[..., 0] for shot, part in pairs]
    return np.stack(channels, axis=-1)


def _is_clipped(samples: list[Sample], of_photons: bool, number: int) -> Array:
    """Where a quarter of the channels of a slab, any one of colours, may be clipped."""
    n_ends = np.zeros(samples[0].slabs[number].shape, int)
    for sample in samples:
        slab = sample.slabs[number]
        n_ends += slab == sample.highest
        if not of_photons:  # no photon is not a clipped value
            n_ends += (slab == sample.lowest) & (sample.lowest < sample.highest)
    return 4 * n_ends >= len(samples)


def _varying(patches: Patches, units: list[float]) -> Varying | None:
    """Noise that depends on brightness, in most channels of some patches, in units of the image."""
    levels = [curve_of(patches(slice(c, c + 1))[..., 0] * unit) for c, unit in enumerate(units)]
    known = [each for each in levels if each is not None]
    if 2 * len(known) <= len(levels):
        return None
    brightness, sigma = np.transpose([each or known[0] for each in levels], (1, 0, 2))
    return Varying(brightness, sigma)


def _evened(patches: Patches, varying: Varying, units: list[float]) -> Patches:
    """The same patches, with noise that does not depend on brightness."""

    def evened(group: slice) -> Array:
        its = Varying(varying.brightness[group], varying.sigma[group])
        return its.stabilised(patches(group) * units[group])

    return evened


def _drawn_patches(
    samples: list[Sample],
    units: list[float],
    shots: list[Shot] | None,
    patch_shape: tuple[int, ...],
    groups: list[slice],
) -> Patches | None:
    """Patches in units of their noise that are neither clipped nor constant, drawn at random.

    None if there are too few.
    """
    rng = np.random.default_rng(0)
    slabs = samples[0].slabs
    n_values = sum(slab.size for slab in slabs)
    drawn: list[tuple[int, Array]] = []  # of a slab, numbers of patches
    for number, slab in enumerate(slabs):
        if any(size < side for size, side in zip(slab.shape, patch_shape, strict=True)):
            continue
        grid = grid_of(slab.shape, patch_shape)
        wanted = min(grid.n_patches, math.ceil(_N_PATCHES * slab.size / n_values))
        numbers = rng.choice(grid.n_patches, wanted, replace=False)
        mask = _is_clipped(samples, shots is not None, number)
        drawn.append((number, numbers[~rows_at(mask, grid, numbers).any(axis=1)]))

    def patches(group: slice) -> Array:
        found = []
        for number, numbers in drawn:
            slab = _stabilised(samples[group], units[group], shots and shots[group], number)
            grid = grid_of(slab.shape[:-1], patch_shape, n_channels=slab.shape[-1])
            shape = len(numbers), math.prod(patch_shape), slab.shape[-1]
            found.append(rows_at(slab, grid, numbers).reshape(shape))
        return np.concatenate(found)

    if not drawn:
        return None
    is_varied = np.logical_or.reduce(
        [(np.ptp(patches(group), axis=1) > 0).any(axis=1) for group in groups]
    )
    counts = np.cumsum([len(numbers) for _, numbers in drawn])[:-1]
    parts = zip(drawn, np.split(is_varied, counts), strict=True)
    drawn = [(number, numbers[some]) for (number, numbers), some in parts]
    return patches if np.count_nonzero(is_varied) >= _LEAST_PATCHES else None
