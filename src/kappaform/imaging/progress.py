"""Progress: the fraction of the work that is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

Listener = Callable[[float], object]  #: is called with the completed fraction


class Progress:
    """Progress of some work, or of a section of it: call it with the completed fraction.

    Without a listener nothing is reported. Called with 1, a section reports exactly its end, and
    what it reports never decreases: both survive rounding.
    """

    def __init__(self, listener: Listener | None = None) -> None:
        self.listener = listener

    @classmethod
    def checked(cls, progress: Any) -> Progress:
        """Progress that an argument of the user listens to."""
        if isinstance(progress, Progress):
            return progress
        if progress is not None and not callable(progress):
            raise TypeError(
                f"progress={progress!r}: give a function of a fraction, 0 to 1, or None."
            )
        return cls(progress)

    def __call__(self, fraction: float) -> None:
        if self.listener is not None:
            self.listener(fraction)

    def section(self, start: float, stop: float) -> Progress:
        """Progress of the work between two fractions of this one."""
        listener = self.listener
        if listener is None:
            return self
        return Progress(lambda part: listener(max(start, stop - (stop - start) * (1 - part))))

    def sections(self, weights: Sequence[float]) -> list[Progress]:
        """Progress of consecutive sections, with lengths in proportion to the weights."""
        ends = [0.0, *accumulate(weights)]
        return [self.section(a / ends[-1], b / ends[-1]) for a, b in pairwise(ends)]

    def over(self, n_items: int) -> Callable[[int], object] | None:
        """Function of the number of items that are done; None if nobody listens."""
        return None if self.listener is None else lambda n_done: self(n_done / n_items)


SILENT = Progress()
