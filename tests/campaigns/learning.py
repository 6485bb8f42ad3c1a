"""Campaigns about learning: the bound, descent, resuming, stores and interrupts."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import naive
import numpy as np
from campaigns.common import Facts, check_result, draw_problem, draw_union, same
from helpers import Store, blas_threads, check_descent
from linalg import test_spectrum
from threadpoolctl import threadpool_limits

import kappaform as kf
from kappaform.threads import at_most_threads


def bound_and_descent(rng: np.random.Generator, facts: Facts) -> None:
    """Bound and norm hold at every iteration, and monotone methods never raise their loss."""
    signals, method, options = draw_problem(rng, facts)
    facts["dtype"] = dtype = str(rng.choice(["float32", "float64"]))
    signals = signals.astype(dtype)
    result = kf.learn(signals, method, callback=check_result, **options)
    check_result(result)
    if result.method.monotone:
        check_descent(result, signals, 1e-12 if signals.dtype == np.float64 else 1e-7)


def unions(rng: np.random.Generator, facts: Facts) -> None:
    """Bound and norm of every transform hold at every iteration, and the loss never rises.

    Resuming, from memory or from a file, gives the same bits, so do threads, and one transform
    gives those of `learn`. Signals on disk are learned from as those in memory, and those on Dask
    have the same errors.
    """
    signals, method, options = draw_union(rng, facts)
    facts["dtype"] = dtype = str(rng.choice(["float32", "float64"]))
    signals = signals.astype(dtype)
    whole = kf.learn_union(signals, method, callback=check_result, **options)
    check_result(whole)
    check_descent(whole, signals, 1e-12 if signals.dtype == np.float64 else 1e-7)
    facts["stop"] = stop = int(rng.integers(1, options["max_iter"] + 1))
    with at_most_threads(2):
        part = kf.learn_union(Store(signals), method, **options | {"max_iter": stop})
    if whole.n_iter <= part.n_iter:
        same(whole, part)
    else:
        for resumed in (pickle.loads(pickle.dumps(part)), _from_file(part)):
            more = {"max_iter": options["max_iter"] - stop, "init": resumed}
            same(whole, kf.learn_union(signals, method, **options | more))
    _check_on_dask(signals, method, options | {"max_iter": 3}, whole, rng, facts)
    if options["n_transforms"] == 1:
        alike = {name: options[name] for name in ("n_nonzero_coefs", "max_iter", "tol")}
        one = kf.learn(signals, method, **alike)
        np.testing.assert_array_equal(whole.transforms[0], one.transform)
        np.testing.assert_array_equal(whole.loss, one.loss)


def spectra(rng: np.random.Generator, facts: Facts) -> None:
    """A hundred projected spectra, each against the oracle, with a norm and without."""
    for facts["problem"] in range(100):
        problem = test_spectrum.problem(rng)
        test_spectrum.check_closest(*problem[:3])
        test_spectrum.check_closest_of_the_norm(*problem)


def naive_sums(rng: np.random.Generator, facts: Facts) -> None:
    """Reported errors are those of sums written out."""
    signals, method, options = draw_problem(rng, facts)
    signals = signals[:40]
    facts["shape"] = signals.shape
    n_nonzero = options["n_nonzero_coefs"]
    result = kf.learn(signals, method, **options)
    _, _, kept, discarded = naive.pass_statistics(signals, result.transform, n_nonzero)
    scale = (kept + discarded) ** 0.5
    assert abs(result.errors.absolute[-1] - discarded**0.5) <= 1e-7 * scale
    assert abs(result.errors.relative[-1] * scale - discarded**0.5) <= 1e-7 * scale
    found = kf.evaluate(signals, result, n_nonzero)
    assert abs(found.absolute - discarded**0.5) <= 1e-7 * scale
    codes = naive.hard_threshold(signals @ result.transform.T, n_nonzero)
    lost = np.linalg.norm(signals - np.linalg.solve(result.transform, codes.T).T)
    precision = 1e-7 + 1e-14 * result.condition_number
    assert abs(found.reconstruction * np.linalg.norm(signals) - lost) <= precision * np.linalg.norm(
        signals
    )


def resume(rng: np.random.Generator, facts: Facts) -> None:
    """Learning that stops and goes on gives the bits of learning that never stopped."""
    signals, method, options = draw_problem(rng, facts)
    signals = signals.astype(rng.choice(["f4", "f8"]))
    options["max_iter"] += int(rng.choice([0, 100]))  # races may take that many
    facts.update(dtype=str(signals.dtype), max_iter=options["max_iter"])
    whole = kf.learn(signals, method, **options)
    facts["stop"] = stop = int(rng.integers(1, options["max_iter"] + 1))
    part = kf.learn(signals, method, **options | {"max_iter": stop})
    if whole.n_iter <= part.n_iter:
        return same(whole, part)
    more = {"max_iter": options["max_iter"] - stop}
    for copied in (pickle.loads(pickle.dumps(part)), _from_file(part)):
        same(whole, kf.learn(signals, method, **options | more | {"init": copied}))
    return None


def _from_file(result: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        kf.save(Path(folder) / "result", result)
        return kf.load(Path(folder) / "result").result_


def streams(rng: np.random.Generator, facts: Facts) -> None:
    """A stream keeps the bound after every batch, and goes on bitwise where it stopped."""
    signals, method, options = draw_problem(rng, facts)
    cuts = np.unique(rng.integers(1, len(signals), rng.integers(1, 8)))
    batches = np.split(signals, cuts)
    options = {
        "n_nonzero_coefs": options["n_nonzero_coefs"],
        "init": options["init"],
        "forgetting": rng.choice([None, 0.5, 1.0]) or "auto",
        "n_updates": int(rng.integers(1, 6)),
    }
    facts.update(options, cuts=cuts.tolist())
    whole = kf.learn_stream(batches, method, callback=check_result, **options)
    facts["stop"] = stop = int(rng.integers(1, len(batches)))
    part = kf.learn_stream(batches[:stop], method, **options)
    for copied in (pickle.loads(pickle.dumps(part)), _from_file(part)):
        same(whole, kf.learn_stream(batches[stop:], method, **options | {"init": copied}))


def stores(rng: np.random.Generator, facts: Facts) -> None:
    """Wherever signals lie, and however many threads there are, the same is learned from them."""
    signals, method, options = draw_problem(rng, facts)
    facts["dtype"] = dtype = str(rng.choice(["float32", "float64"]))
    signals = signals.astype(dtype)
    options["max_iter"] = min(options["max_iter"], 10)
    whole = kf.learn(signals, method, **options)
    with _threads(int(rng.integers(1, 5))):
        same(whole, kf.learn(Store(signals), method, **options))
        same(whole, kf.learn(np.asfortranarray(signals), method, **options))
    _check_on_dask(signals, method, options, whole, rng, facts)


def _check_on_dask(
    signals: np.ndarray,
    method: Any,
    options: dict[str, Any],
    result: Any,
    rng: np.random.Generator,
    facts: Facts,
) -> None:
    """Signals on Dask have the errors of those in memory, and are learned from."""
    import dask.array as da

    facts["rows"] = rows = int(rng.integers(1, len(signals) + 1))
    blocks = da.from_array(signals, chunks=(rows, signals.shape[1]))
    found, expected = (
        np.array(kf.evaluate(each, result, options["n_nonzero_coefs"]))
        for each in (blocks, signals)
    )
    coefs = signals.astype(np.float64) @ np.swapaxes(result.transform, -1, -2)
    coef_norm = np.linalg.norm(coefs, axis=(-2, -1)).max() or 1.0
    units = np.array([coef_norm, 1, 1])  # of the absolute error, which may be rounding alone
    np.testing.assert_allclose(found / units, expected / units, rtol=1e-5, atol=1e-6)
    learn = kf.learn if result.transform.ndim == 2 else kf.learn_union
    check_result(learn(blocks, method, **options))


@contextlib.contextmanager
def _threads(number: int) -> Any:
    name = "KAPPAFORM_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = str(number)
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def interrupts(rng: np.random.Generator, facts: Facts) -> None:
    """Ctrl-C at any moment: results are valid, estimators usable, BLAS as it was."""
    signals = rng.standard_normal((int(rng.integers(200, 2000)), 16)).cumsum(axis=1)
    fitted = kf.ConditionedTransform(2, init="dct", max_iter=5).fit(signals[:, :9])
    fitted.partial_fit(signals[:50, :9])
    method, options = kf.Conditioned(3.0), {"n_nonzero_coefs": 3}
    calls: dict[str, Callable[[Any], Any]] = {
        "learn": lambda _: kf.learn(signals, method, max_iter=20, tol=0, **options),
        "learn_stream": lambda _: kf.learn_stream(np.array_split(signals, 9), method, **options),
        "condition_path": lambda _: kf.condition_path(signals, [2.0, 3.0], max_iter=5, **options),
        "fit": lambda estimator: estimator.fit(signals),
        "partial_fit": lambda estimator: [estimator.partial_fit(signals[:200, :9]) for _ in "123"],
    }
    facts["what"] = what = str(rng.choice(sorted(calls)))
    started = time.perf_counter()
    calls[what](copy.deepcopy(fitted))
    elapsed = time.perf_counter() - started
    with threadpool_limits(2, user_api="blas"):  # so that a limit of 1 that stays is seen
        _interrupt_often(lambda each: calls[what](each), fitted, signals, elapsed, rng, facts)


def _interrupt_often(
    call: Callable[[Any], Any],
    fitted: Any,
    signals: np.ndarray,
    elapsed: float,
    rng: np.random.Generator,
    facts: Facts,
) -> None:
    threads = blas_threads()
    for _ in range(10):
        estimator = copy.deepcopy(fitted)
        facts["delay"] = delay = rng.uniform(1e-4, 1.05 * elapsed + 1e-4)
        error = _interrupted(lambda each=estimator: call(each), delay)
        facts["error"] = repr(error)
        if isinstance(error, kf.LearningInterrupted):
            for result in (error.result, *error.finished):
                check_result(result)
        del error  # its frames may hold a block that was left by the interrupt itself
        assert blas_threads() == threads, f"BLAS threads {blas_threads()}, before {threads}"
        _check_usable(estimator, fitted, signals)


def _check_usable(estimator: Any, before: Any, signals: np.ndarray) -> None:
    """An interrupted estimator is the one before or one that has learned, never half of each."""
    n_features = estimator.n_features_in_
    assert estimator.components_.shape == (n_features, n_features)
    assert estimator.result_.transform.shape == (n_features, n_features)
    check_result(estimator.result_)
    signals = signals[:, :n_features]
    codes = estimator.transform(signals)
    if n_features == before.n_features_in_ and estimator.n_iter_ == before.n_iter_:
        np.testing.assert_array_equal(codes, before.transform(signals))
    estimator.partial_fit(signals[:50])


def _interrupted(call: Callable[[], Any], delay: float) -> BaseException | None:
    """What Ctrl-C after so many seconds makes of a call; None if it was done before."""
    armed = True

    def ring(*_: Any) -> None:
        if armed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        call()
        armed = False
    except KeyboardInterrupt as error:
        return error
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None
