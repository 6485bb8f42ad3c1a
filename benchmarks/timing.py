"""How calls are timed: in turns, because the speed of a machine varies, and the least counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kappaform.threads import at_most_threads

Calls = Mapping[str, Callable[[], object]]


def least_seconds(
    calls: Calls, threads: int, repeats: int = 3, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The least time of each call with so many threads, one call after another in turn."""
    least = dict.fromkeys(calls, float("inf"))
    with at_most_threads(threads):
        for _ in range(repeats):
            for name, call in calls.items():
                start = clock()
                call()
                least[name] = min(least[name], clock() - start)
    return least
