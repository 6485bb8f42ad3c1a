"""A pass over 2 million signals on a cluster of two worker processes, against one of one worker.

The signals are those of `bench_pass`, made and kept on the workers, each of which has one thread
and as many blocks as the other; n = 64, s = 6. The passes of both clusters, and of the engine for
arrays in memory on one thread, take turns. A pass is warm: it sees a transform a little different
from the previous one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
from bench_pass import nearby_transforms, patches

from kappaform.engines import engine_for
from kappaform.threads import at_most_threads

SIDE = 8
N_SIGNALS = 2_000_000
N_NONZERO = 6
BLOCK_ROWS = 100_000  # 51 MB of float64
REPEATS = 8


def rows() -> Iterator[dict]:
    """Two workers against one, and one against an array in memory."""
    if not find_spec("distributed"):
        yield {"skipped": "all: Dask is not here (pip install '.[dask]')"}
        return
    for dtype in ("float64", "float32"):
        yield from _rows_of(dtype)


def _rows_of(dtype: str) -> list[dict]:
    times = _times(dtype)
    what = f"pass, {N_SIGNALS} x {SIDE**2} {dtype} in {N_SIGNALS // BLOCK_ROWS} blocks"
    return [
        {
            "name": f"{what}, one worker / two",
            "value": times["one worker"] / times["two workers"],
            "unit": "times faster",
            "target": 1.6,
            "better": "higher",
            "seconds": times,
        },
        {
            "name": f"{what}, one worker / one thread in memory",
            "value": times["one worker"] / times["memory"],
            "unit": "times the time",
            "target": 1.6,
        },
        {
            "name": f"{what}, signals per second of one worker",
            "value": N_SIGNALS / times["one worker"] / 1e6,
            "unit": "million",
            "target": None,
            "better": "higher",
        },
    ]


def _times(dtype: str) -> dict[str, float]:
    """Best time of each kind of pass, taken in turns."""
    best: dict[str, float] = {}
    with ExitStack() as stack:
        engines: dict[str, Any] = {
            "one worker": stack.enter_context(_engine_on_cluster(1, dtype)),
            "two workers": stack.enter_context(_engine_on_cluster(2, dtype)),
            "memory": (engine_for(_block((0, 0), dtype, N_SIGNALS)), None),
        }
        for transform in nearby_transforms(SIDE, REPEATS + 1):
            for kind, (engine, client) in engines.items():
                with ExitStack() as active, at_most_threads(1):
                    if client is not None:
                        active.enter_context(client.as_current())
                    _ = engine.gram  # computed once, not a part of the pass
                    start = time.perf_counter()
                    engine.run_pass(transform, N_NONZERO)
                    best[kind] = min(best.get(kind, np.inf), time.perf_counter() - start)
    return best


@contextmanager
def _engine_on_cluster(n_workers: int, dtype: str) -> Iterator[tuple[Any, Any]]:
    import dask.array as da
    from dask.base import annotate
    from distributed import Client, LocalCluster, wait

    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit=0,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        blocks = ((BLOCK_ROWS,) * (N_SIGNALS // BLOCK_ROWS), (SIDE**2,))
        addresses = list(client.scheduler_info()["workers"])
        # As many blocks for each worker: a pass works where the data are.
        with client.as_current(), annotate(workers=lambda key: addresses[key[1] % n_workers]):
            lazy = da.map_blocks(_block, kind=dtype, chunks=blocks, meta=np.empty((0, 0), dtype))
            signals = client.persist(lazy, optimize_graph=False)
            wait(signals)
        yield engine_for(signals), client


def _block(block_id: tuple[int, int], kind: str, n_rows: int = BLOCK_ROWS) -> np.ndarray:
    some = patches(SIDE, BLOCK_ROWS) * (1 + block_id[0] / 100)
    return np.resize(some, (n_rows, SIDE**2)).astype(kind)
