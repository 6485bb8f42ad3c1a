"""What several campaigns draw and check."""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import kappaform as kf

Facts = dict[str, Any]  #: what a failure tells of its case
MOST_SECONDS, MOST_MEGABYTES = 20.0, 400.0  # for a file of a few kilobytes


# --- what is drawn


def draw_signals(rng: np.random.Generator, most: int = 300) -> np.ndarray:
    """Signals of a random kind, number and size, some of them hardly signals at all."""
    n_features = int(rng.integers(2, 17))
    n_signals = int(rng.integers(n_features, most))
    signals = rng.standard_normal((n_signals, n_features))
    kind = rng.integers(7)
    if kind == 1:
        signals = signals.cumsum(axis=1)
    elif kind == 2:
        signals = signals @ (signals[:n_features] * np.geomspace(1, 1e-6, n_features))
    elif kind == 3:
        signals = signals[:, :1] * signals[:1]  # rank one
    elif kind == 4:
        signals = rng.integers(-1, 2, signals.shape).astype(np.float64)  # ties and zeros
    elif kind == 5:
        signals = np.where(rng.random(signals.shape) < 0.1, signals, 0.0)
    elif kind == 6:
        signals = signals - signals.mean(axis=1, keepdims=True)
    return signals * 2.0 ** rng.integers(-30, 30)


def draw_method(rng: np.random.Generator) -> Any:
    kappa = float(rng.choice([1.0, 1.0 + rng.random(), 1 + 10 ** rng.uniform(-2, 4)]))
    norm = rng.choice(["auto", "given", "free"], p=[0.6, 0.3, 0.1])
    norms = {"auto": "auto", "given": float(10 ** rng.uniform(-3, 3)), "free": None}
    n_rounds = int(rng.integers(1, 7))
    kind = rng.integers(8)
    if kind == 0:
        return kf.Orthonormal()
    if kind == 1:
        return kf.LogDet(10 ** rng.uniform(-4, 0))
    if kind in (2, 3):
        variant = str(rng.choice(["paper", "reference", "public"]))
        return kf.Conditioned(kappa, norm=norms[norm], variant=variant)
    objective = str(rng.choice(["absolute", "relative"]))
    return kf.Conditioned(kappa, norm=norms[norm], objective=objective, n_rounds=n_rounds)


def draw_union(rng: np.random.Generator, facts: Facts) -> tuple[np.ndarray, Any, dict[str, Any]]:
    """Signals, method and options of `learn_union`."""
    signals, method = draw_signals(rng), draw_method(rng)
    while isinstance(method, kf.LogDet) or (
        isinstance(method, kf.Conditioned) and (not method.monotone or method.norm is None)
    ):
        method = draw_method(rng)
    options = {
        "n_transforms": min(int(rng.integers(1, 6)), len(signals)),
        "n_nonzero_coefs": int(rng.integers(1, signals.shape[1] + 1)),
        "n_starts": int(rng.integers(1, 4)),
        "max_iter": int(rng.integers(1, 60)),
        "tol": float(rng.choice([0.0, 1e-4])),
        "rng": int(rng.integers(1000)),
    }
    facts.update(shape=signals.shape, method=method, **options)
    return signals, method, options


def draw_start(rng: np.random.Generator, n_features: int) -> Any:
    names = ("auto", "dct", "identity", "least-squares", "procrustes")
    one = [*names, rng.standard_normal((n_features, n_features))]
    if rng.random() < 0.2:
        return tuple(one[i] for i in rng.choice(len(one), 2, replace=False))
    return one[rng.integers(len(one))] if rng.random() < 0.5 else "auto"


def draw_problem(rng: np.random.Generator, facts: Facts) -> tuple[np.ndarray, Any, dict[str, Any]]:
    """Signals, method and options of `learn`."""
    signals, method = draw_signals(rng), draw_method(rng)
    n_features = signals.shape[1]
    options = {
        "n_nonzero_coefs": int(rng.integers(1, n_features + 1)),
        "init": draw_start(rng, n_features),
        "max_iter": int(rng.integers(1, 60)),
        "tol": float(rng.choice([0.0, 1e-4])),
    }
    facts.update(shape=signals.shape, dtype=str(signals.dtype), method=method, **options)
    return signals, method, options


# --- what is checked


def check_result(result: Any) -> None:
    """Bound and norm, as they hold for whatever leaves learning."""
    method = result.method
    if isinstance(result, kf.UnionResult):
        for transform in result.transforms:
            check_transform(transform, method.method)
    else:
        check_transform(result.transform, method)


def check_transform(transform: np.ndarray, method: Any) -> None:
    assert np.isfinite(transform).all(), "the transform is not finite"
    singular = np.linalg.svd(transform, compute_uv=False)
    assert singular[-1] > 0, "the transform is singular"
    condition, norm = float(singular[0] / singular[-1]), float(np.linalg.norm(singular))
    if isinstance(method, kf.Orthonormal):
        assert condition <= 1 + 1e-9, f"condition number {condition} of an orthonormal transform"
    if isinstance(method, kf.Conditioned):
        bound = method.max_condition
        assert condition <= bound * (1 + 1e-9), f"condition number {condition}, bound {bound}"
        if method.norm is not None:
            wanted = len(transform) ** 0.5 if method.norm == "auto" else method.norm
            assert abs(norm - wanted) <= 1e-9 * wanted, f"norm {norm}, asked for {wanted}"


def same(one: Any, other: Any) -> None:
    """Two results, bit by bit."""
    np.testing.assert_array_equal(one.transform, other.transform)
    np.testing.assert_array_equal(one.loss, other.loss)
    np.testing.assert_array_equal(one.errors, other.errors)
    assert one.n_iter == other.n_iter


def bounded(
    call: Callable[[], Any],
    *refusals: type[BaseException],
    seconds: float = MOST_SECONDS,
    megabytes: float = MOST_MEGABYTES,
) -> Any:
    """What the call returns, or None where it refuses; neither long nor in much memory.

    Seconds are those of the processor: others may use it as well.
    """
    started, before = time.process_time(), _peak_megabytes()
    try:
        with _stopped_after(2 * seconds), _no_more_memory_than(4 * megabytes):
            return call()
    except refusals:
        return None
    finally:
        elapsed, grown = time.process_time() - started, _peak_megabytes() - before
        assert elapsed <= seconds, f"it took {elapsed:.1f} s"
        assert grown <= megabytes, f"it took {grown:.0f} MB"


def _peak_megabytes() -> float:
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


@contextlib.contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """A call that would take for ever fails instead."""

    def stop(*_: Any) -> None:
        raise AssertionError(f"it takes more than {seconds:.0f} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def _no_more_memory_than(megabytes: float) -> Iterator[None]:
    """A call that would exhaust the machine raises MemoryError instead, where the system can."""
    table = Path("/proc/self/statm")
    if not table.exists():
        yield
        return
    used = int(table.read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + int(megabytes * 2**20), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
