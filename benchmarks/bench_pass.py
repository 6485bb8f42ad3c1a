"""One pass over 200 000 signals, in units of the matrix product that it cannot avoid.

The unit is `np.matmul(signals, transform.T, out=...)` of the same dtype on one BLAS thread, timed
in turns with the pass. The signals are patches of photographs, their means removed. A warm pass
sees a transform a little different from the previous one, as it does while one is learned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
from scipy.fft import dct
from scipy.linalg import expm
from skimage import data
from timing import Calls, least_seconds

from kappaform.engines import engine_for, refit_of
from kappaform.engines.union import Union
from kappaform.threads import at_most_threads, single_threaded_blas

N_SIGNALS = 200_000
REPEATS = 9
TARGETS = {
    ("float64", 1, "warm"): 1.4,
    ("float32", 1, "warm"): 2.0,
    ("float64", 1, "first"): 1.9,
    ("float32", 1, "first"): 3.3,
}
CODES = 3.0  # first passes, at most
UNION = {"float64": 1.3, "float32": 1.7}  # times the products with all transforms


def rows() -> Iterator[dict]:
    """First and warm passes on one and two threads, and codes that reconstruct best."""
    for dtype in ("float64", "float32"):
        for side, n_nonzero in ((8, 6), (11, 12)):
            yield from _pass_rows(side, n_nonzero, dtype)
        for side, n_nonzero in ((8, 6), (11, 12), (16, 26)):
            yield from _code_rows(side, n_nonzero, dtype)
        yield from _union_rows(dtype)


def _pass_rows(side: int, n_nonzero: int, dtype: str) -> list[dict]:
    signals = patches(side, N_SIGNALS).astype(dtype)
    times = _times(signals, side, n_nonzero)
    unit = times.pop(("product", 1))
    gain = {
        "name": f"warm pass, n={side**2}, s={n_nonzero}, {dtype}, one thread / two",
        "value": times["warm", 1] / times["warm", 2],
        "unit": "times faster",
        "target": 1.7 if side == 8 else None,
        "better": "higher",
    }
    rate = {
        "name": f"signals per second, warm pass, n={side**2}, s={n_nonzero}, {dtype}, 1 thread",
        "value": len(signals) / times["warm", 1] / 1e6,
        "unit": "million",
        "target": None,
        "better": "higher",
    }
    return [gain, rate] + [
        {
            "name": f"{stage} pass, n={side**2}, s={n_nonzero}, {dtype}, {threads} thread(s)",
            "value": seconds / unit,
            "unit": "products",
            "target": TARGETS.get((dtype, threads, stage)) if side == 8 else None,
            "seconds": seconds,
        }
        for (stage, threads), seconds in times.items()
    ]


def _code_rows(side: int, n_nonzero: int, dtype: str) -> Iterator[dict]:
    """`encode` of half as many signals, in units of a first pass over them and of a warm one."""
    signals = patches(side, N_SIGNALS // 2).astype(dtype)
    transform, other = nearby_transforms(side, 2)
    transform = transform * np.linspace(1, 2, side**2)[:, np.newaxis]
    refit, warm = refit_of(transform), engine_for(signals)
    warm.run_pass(other, n_nonzero)
    calls: Calls = {
        "first": lambda: engine_for(signals).run_pass(transform, n_nonzero),
        "warm": lambda: warm.run_pass(transform, n_nonzero),
        "codes": lambda: warm.encode(transform, n_nonzero, refit),
    }
    with single_threaded_blas():
        seconds = least_seconds(calls, threads=2, repeats=5)
    for stage, target in (("first", CODES), ("warm", None)):
        yield {
            "name": f"codes that rebuild best / {stage} pass, n={side**2}, s={n_nonzero}, {dtype}",
            "value": seconds["codes"] / seconds[stage],
            "unit": f"{stage} passes",
            "target": target,
            "seconds": seconds["codes"],
        }


def _union_rows(dtype: str, side: int = 8, n_nonzero: int = 6) -> Iterator[dict]:
    """A warm pass with four transforms, in units of their products and of single passes."""
    signals = patches(side, N_SIGNALS).astype(dtype)
    unions, turns = two_unions(side), nearby_transforms(side, 2)
    out, weights = np.empty_like(signals), [each.astype(dtype).T for each in unions[0].transforms]
    engine, single = engine_for(signals), engine_for(signals)
    number = count()
    calls: Calls = {
        "products": lambda: [np.matmul(signals, each, out=out) for each in weights],
        "pass": lambda: engine.run_union_pass(unions[next(number) % 2], n_nonzero),
        "single": lambda: single.run_pass(turns[next(number) % 2], n_nonzero),
    }
    with single_threaded_blas():
        seconds = least_seconds(calls, threads=1, repeats=REPEATS, clock=time.process_time)
    name = f"pass with 4 transforms, n={side**2}, s={n_nonzero}, {dtype}, 1 thread(s)"
    yield {
        "name": name,
        "value": seconds["pass"] / seconds["products"],
        "unit": "times their four products",
        "target": UNION[dtype],
        "seconds": seconds["pass"],
    }
    yield {
        "name": f"{name}, in single passes",
        "value": seconds["pass"] / seconds["single"],
        "unit": "warm passes",
        "target": None,
    }


def two_unions(side: int) -> list[Union]:
    """Four transforms, and the same rotated a little."""
    bases, turns = np.stack(nearby_transforms(side, 5, 0.3)[1:]), nearby_transforms(side, 2)
    rotated = bases @ (turns[0].T @ turns[1])
    return [Union(each, np.tile([1.0, 0.0, 0.0], (4, 1))) for each in (bases, rotated)]


def _times(signals: np.ndarray, side: int, n_nonzero: int) -> dict[tuple[str, int], float]:
    """Best time of the product and of each kind of pass, taken in turns."""
    transforms = nearby_transforms(side, REPEATS + 1)
    out = np.empty_like(signals)
    best: dict[tuple[str, int], float] = {}
    warm = {threads: engine_for(signals) for threads in (1, 2)}
    for engine in warm.values():
        engine.run_pass(transforms[0], n_nonzero)

    def record(key: tuple[str, int], call: Callable, *arguments: object, **options: object) -> None:
        start = time.perf_counter()
        call(*arguments, **options)
        best[key] = min(best.get(key, np.inf), time.perf_counter() - start)

    for transform in transforms[1:]:
        weights = transform.astype(signals.dtype).T
        with single_threaded_blas():
            record(("product", 1), np.matmul, signals, weights, out=out)
        for threads, engine in warm.items():
            fresh = engine_for(signals)
            _ = fresh.gram  # computed once, not a part of the pass
            with at_most_threads(threads):
                record(("warm", threads), engine.run_pass, transform, n_nonzero)
                record(("first", threads), fresh.run_pass, transform, n_nonzero)
    return best


def patches(side: int, number: int) -> np.ndarray:
    """Random patches of photographs, one per row, means removed."""
    rng = np.random.default_rng(0)
    images = [data.camera(), data.moon(), data.coins(), data.brick(), data.grass()]
    found = []
    for image in images:
        windows = np.lib.stride_tricks.sliding_window_view(image, (side, side))
        top, left = (rng.integers(0, size, -(-number // len(images))) for size in windows.shape[:2])
        found.append(windows[top, left].reshape(-1, side * side).astype(np.float64))
    signals = rng.permutation(np.concatenate(found))[:number]
    return signals - signals.mean(axis=1, keepdims=True)


def nearby_transforms(side: int, number: int, angle: float = 0.005) -> list[np.ndarray]:
    """The 2-D DCT and, from each to the next, a rotation by about `angle` in every direction."""
    basis = dct(np.eye(side), axis=0, norm="ortho")
    random = np.random.default_rng(1).standard_normal((side**2, side**2)) / side
    return [expm(angle * i * (random - random.T)) @ np.kron(basis, basis) for i in range(number)]
