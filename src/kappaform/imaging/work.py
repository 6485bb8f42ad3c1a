"""Progress: the fraction of the work that is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

Progress = Callable[[float], object]  #: is told the share of the work that is done


def checked_progress(progress: Any) -> Progress | None:
    if progress is not None and not callable(progress):
        raise TypeError(f"progress={progress!r}: give a function of a share, 0 to 1, or None.")
    return progress


def section(progress: Progress | None, start: float, stop: float) -> Progress | None:
    """Progress of the work between two shares of the whole work.

    Told 1, it tells exactly `stop`, and it never falls: both survive rounding.
    """
    if progress is None:
        return None
    return lambda share: progress(max(start, stop - (stop - start) * (1 - share)))


def sections(progress: Progress | None, weights: Sequence[float]) -> list[Progress | None]:
    """Progress of parts of the work, one after the other, each as long as its weight says."""
    ends = [0.0, *accumulate(weights)]
    return [section(progress, a / ends[-1], b / ends[-1]) for a, b in pairwise(ends)]
