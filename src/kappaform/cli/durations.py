"""Forecast of the time that all images of a command take, corrected by those that are done.

The time of an image is that of learning, about the same for each channel of every page, plus a
time for each pixel. Both were measured on one machine; the first images show how fast this one is.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kappaform.cli import messages
from kappaform.cli.files import Batch, Job, has_result
from kappaform.cli.words import LONG, in_minutes, seconds_of
from kappaform.image_files import planes_in

_CORRECTION = 1.25  # a forecast that is wrong by this factor is corrected


def watched(batch: Batch, arguments: Namespace, records: list[dict[str, Any]]) -> Iterator[Job]:
    """The images of a command, with titles that show the time left for all.

    The record of an image is the last one when the next is asked for.
    """
    overwrite = arguments.overwrite
    jobs = [job for job in batch.jobs if not has_result(job, batch.inputs, overwrite)]
    if len(jobs) < 2 or arguments.preset or arguments.device:
        yield from batch.jobs
        return
    durations = Durations([job.source for job in jobs], arguments.quality)
    durations.tell_all(arguments.quality)
    for job in batch.jobs:
        started = time.perf_counter()
        yield job._replace(title=durations.title(job.title))
        is_new = "seconds" in records[-1]
        durations.done(job.source, time.perf_counter() - started if is_new else None)


class Durations:
    """Forecast of the time for images that are denoised one after the other."""

    def __init__(self, sources: Sequence[Path], quality: str) -> None:
        sizes = {source: planes_in(source) for source in sources}
        known = [size for size in sizes.values() if size is not None]
        # A file whose size is not known is like the others, and reported when it is its turn.
        usual = sorted(known)[len(known) // 2] if known else (1, 1_000_000)
        self._left = {
            source: seconds_of(*(size or usual), quality) for source, size in sizes.items()
        }
        self._spent = self._expected = 0.0
        self._told = math.inf

    @property
    def seconds_left(self) -> float:
        """Forecast for the images that are not done yet."""
        correction = self._spent / self._expected if self._expected else 1.0
        return correction * sum(self._left.values())

    def tell_all(self, quality: str) -> None:
        """Announce how long all images will take, if that is long."""
        if self.seconds_left >= LONG:
            self._told = self.seconds_left
            faster = "" if quality == "fast" else "; --quality fast takes less"
            number = len(self._left)
            messages.note(f"{number} images: about {in_minutes(self._told)} in all{faster}")

    def done(self, source: Path, seconds: float | None) -> None:
        """Correct the forecast by an image that is done, and announce it if it has changed.

        `seconds` is None for an image that failed.
        """
        expected = self._left.pop(source, 0.0)
        if seconds is None or not expected:
            return
        before = self._told - seconds
        self._expected += expected
        self._spent += seconds
        self._told, left = before, self.seconds_left
        if left >= LONG and not left / _CORRECTION < before < left * _CORRECTION:
            self._told = left
            number = len(self._left)
            messages.note(
                f"{number} image{'s' * (number > 1)} left: about {in_minutes(left)} at the speed "
                "of those that are done"
            )

    def title(self, title: str) -> str:
        """The title of an image in progress, with the time left for all."""
        if not self._expected or len(self._left) < 2:
            return title
        return f"{title} (all: {in_minutes(self.seconds_left)} left)"
