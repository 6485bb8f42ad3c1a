"""Random campaigns, for as long as one likes.

    python tests/soak.py --minutes 5                     all campaigns, in turns
    python tests/soak.py --campaign resume --minutes 60  one of them
    python tests/soak.py --campaign resume --seed 17     a single case again, as a failure says

A case is drawn from a seed, and a failure prints it. Moments of interruption are drawn as well, but
where they fall depends on the machine. The last line says how many cases of each campaign passed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np
from campaigns import channels, files, learning, processes
from campaigns.common import Facts

CAMPAIGNS: dict[str, Callable[[np.random.Generator, Facts], None]] = {
    "bound-and-descent": learning.bound_and_descent,
    "unions": learning.unions,
    "spectra": learning.spectra,
    "naive-sums": learning.naive_sums,
    "resume": learning.resume,
    "streams": learning.streams,
    "stores": learning.stores,
    "interrupts": learning.interrupts,
    "model-files": files.model_files,
    "picture-files": files.picture_files,
    "ome-texts": files.ome_texts,
    "many-channels": channels.many_channels,
    "cold-and-warm": processes.cold_and_warm,
    "other-processors": processes.other_processors,
}


# --- running them


def failure(campaign: str, seed: int) -> str:
    """What is wrong with a case, and how to see it again; nothing if all is well."""
    facts: Facts = {}
    rng = np.random.default_rng([zlib.crc32(campaign.encode()), seed])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CAMPAIGNS[campaign](rng, facts)
    except Exception:
        told = "".join(f"\n  {name}: {value}" for name, value in facts.items())
        again = f"python tests/soak.py --campaign {campaign} --seed {seed}"
        return f"{traceback.format_exc()}\n{campaign} failed on{told}\nagain: {again}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--campaign", choices=CAMPAIGNS, action="append")
    parser.add_argument("--minutes", type=float, help="how long, by default 5")
    parser.add_argument("--seed", type=int, help="of the first case; alone, of the only one")
    parser.add_argument("--keep-going", action="store_true", help="do not end at a failure")
    chosen = parser.parse_args(arguments)
    first = int(time.time()) if chosen.seed is None else chosen.seed
    minutes = 5.0 if chosen.minutes is None else chosen.minutes
    once = chosen.seed is not None and chosen.minutes is None
    names = chosen.campaign or list(CAMPAIGNS)
    n_failed, passed = 0, dict.fromkeys(names, 0)
    for name, seed in cases(names, first, None if once else time.monotonic() + 60 * minutes):
        told = failure(name, seed)
        if not told:
            passed[name] += 1
            continue
        print(told, flush=True)
        n_failed += 1
        if not chosen.keep_going:
            break
    counts = ", ".join(f"{name} {number}" for name, number in passed.items())
    print(f"from seed {first} on: {n_failed} failed; passed: {counts}")
    return 1 if n_failed else 0


def cases(names: Sequence[str], first: int, ends: float | None) -> Iterator[tuple[str, int]]:
    """Campaigns in turns with seeds from the first on, until a time, or one case of each."""
    for seed in count(first):
        yield from ((name, seed) for name in names)
        if ends is None or time.monotonic() >= ends:
            return


if __name__ == "__main__":
    sys.exit(main())
