"""How the holes of an image are filled: patches, groups, and how the assumed error decreases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

from kappaform.imaging.cleaning.groups import Search, three_axes
from kappaform.imaging.options import Quality


class Effort(NamedTuple):
    """How carefully holes are filled."""

    fall: float  #: added to the factor by which the assumed error decreases in a round
    overlap: int  #: by how many pixels neighbouring reference patches overlap, at least


# Chosen on Barbara, Lena and Hill, of which 2, 50 and 80 % were missing (docs/inpainting.md).
_EFFORTS: dict[Quality, Effort] = {
    "fast": Effort(fall=0.35, overlap=1),
    "balanced": Effort(fall=0.5, overlap=2),
    "best": Effort(fall=0.6, overlap=3),
}
_FALL_BY_DENSITY = 0.35  # the more is missing around a hole, the slower the error may decrease
# Assumed in the first round, over the measured error of the first guess. Where holes are single
# pixels (less than this is missing around them), most of a patch is known, and half of it gained
# 0.017 dB inside the holes of 14 images (2 % missing, -0.006 to 0.11 dB) in a round less; a quarter
# of it lost up to 0.05 dB, half of it around text (0.3) 0.01 dB.
_FIRST_ERROR, _FIRST_OF_SINGLE, _SINGLE = 1.2, 0.6, 0.15
_LEAST_ERROR = 1 / 40  # over the same: the last round at the latest
LAST_ERROR = 2.0  # assumed in the last rounds, over that of the best round
LEAST_GAIN = 2e-3  # by which a round reduces the squared error of held-out pixels: 0.01 dB
# The last rounds are repeated, unless they increase that error by more than this factor: on
# irregular texture they may (1.008), where repeating lost 0.1 dB; up to 1.0024 it gained.
MOST_LOSS = 1.005
# Fraction of the known pixels around holes, and the larger one with which small images have that
# many; chosen on parts of eight photographs, with 80 % missing: +0.17 dB (docs/inpainting.md).
HELD_OUT, MOST_HELD_OUT, ENOUGH_HELD_OUT = 0.015, 0.06, 800
# Held-out pixels are holes as well: more than enough are at most this fraction of the missing ones.
HELD_OUT_OF_MISSING = 0.25
LEAST_HELD_OUT, MANY_HELD_OUT = 50, 500  # with fewer, one round without a gain may be chance
# The first rounds may lose what later ones gain: none ends before so many, and before the assumed
# error is this fraction of the first (seen on irregular texture with 80 % missing).
_LEAST_ROUNDS, _LEAST_FALL = 4, 0.25
ROUNDS_WITHOUT = 5  # where too little is known to hold anything out
MEMBERS, LEAST_MEMBERS, FEWER = 100, 50, 0.95  # of a group: at first, at least, and the factor
_DENSE = 0.65  # missing around a hole: from here on patches are larger, and so is what is compared
_SPARSE = 0.3  # below, smaller patches are as good and faster
_PLANE_SIDES, _PLANE_RADIUS = (6, 7, 8), 20
# Patches of the last two rounds: their sides differ by these from those in the others. Unless few
# pixels are missing or the image is large, groups are larger and denser then; not if known pixels
# have noise, as the denoised image lost 0.04 dB (half missing, parts of six of these pictures).
# Chosen on parts of twelve photographs, of which 2, 50 and 80 % were missing.
_LAST_SIDES, _LAST_MEMBERS = (-1, 1), 70
_MOST_REPEATED = 2**21  # pixels: more would wait for up to twice as long, and gain less
_VOLUME_SIDES, _VOLUME_RADIUS = (3, 3, 4), 5
_MOVIE_RADIUS, _FRAMES = 14, 2


class Plan(NamedTuple):
    """How the holes of an image are filled."""

    search: Search
    first: float  #: assumed error in the first round
    least: float  #: the same in the last round, at the latest
    factor: float  #: by which it decreases
    least_rounds: int
    n_rounds: int  #: at most
    last: tuple[Search, ...]  #: groups of the last rounds, whose results are averaged
    tried: bool  #: whether the last rounds are tried before, and repeated if they do no harm
    joint: bool

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        known: Sequence[NDArray],
        error: float,
        quality: Quality,
        frames: bool,
        joint: bool,
        noisy: bool = False,
    ) -> Plan:
        density = max(density_around(is_known) for is_known in known)
        level = int(density > _SPARSE) + int(density > _DENSE)
        effort = _EFFORTS[quality]
        context = 2 if density > _DENSE else 0

        def search(more: int = 0, denser: int = 0) -> Search:
            sides = _PLANE_SIDES[level] + more, _VOLUME_SIDES[level]
            return search_of(shape, sides, effort.overlap + denser, context, frames, joint)

        flat = len(shape) == 2 or frames or joint
        careful = level > 0 and not noisy and math.prod(shape) <= _MOST_REPEATED
        last: tuple[Search, ...] = ()
        if flat and quality != "fast":
            members = _LAST_MEMBERS if careful else LEAST_MEMBERS
            two = (search(more, denser=int(careful)) for more in _LAST_SIDES)
            last = tuple(each._replace(n_members=members) for each in two)
        first = _FIRST_ERROR if density > _SINGLE else _FIRST_OF_SINGLE
        factor = min(effort.fall + _FALL_BY_DENSITY * density, 0.9)
        least, most = (
            1 + math.ceil(math.log(end) / math.log(factor))
            for end in (_LEAST_FALL, _LEAST_ERROR / first)
        )
        least = max(least, _LEAST_ROUNDS)
        tried = careful and bool(last)
        errors = first * error, _LEAST_ERROR * error
        return cls(search(), *errors, factor, least, most, last, tried, joint)

    def members_in(self, number: int) -> int:
        """Of a group in a round, from 0 on: ever fewer."""
        return max(LEAST_MEMBERS, round(self.search.n_members * FEWER**number))


def search_of(
    shape: tuple[int, ...],
    sides: tuple[int, int],
    overlap: int,
    context: int,
    frames: bool,
    joint: bool,
) -> Search:
    """How groups are made; all axes are three."""
    flat = len(shape) == 2 or frames or joint
    side = sides[0] if flat else sides[1]
    depth = shape[0] if joint else 1 if flat else side
    step = max(1, side - overlap)
    radius = (_MOVIE_RADIUS if frames else _PLANE_RADIUS) if flat else _VOLUME_RADIUS
    ahead = (_FRAMES if frames else 0) if flat else radius
    return Search(
        patch_shape=tuple(map(min, (depth, side, side), three_axes(shape))),
        stride=(1 if flat else step, step, step),
        radius=(ahead, radius, radius),
        context=context,
        n_members=MEMBERS,
    )


def density_around(known: NDArray) -> float:
    """Fraction of missing pixels around a missing pixel, in the mean."""
    missing = ~known
    if not missing.any():
        return 0.0
    around = uniform_filter(missing.astype(np.float32), 7, mode="nearest")
    return float(around[missing].mean(dtype=np.float64))
