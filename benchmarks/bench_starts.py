"""The race of `init="auto"` against each of its starts alone, and against the rules before it.

Twenty-four sets of signals, three sparsities, five bounds, both objectives. Each start of the race
is given the whole budget for itself; the loss of the race is divided by the lowest of theirs.
Starts and constants were chosen on one half, `CHOSEN_ON`; the other half, `OTHERS`, is the test.
The losses of the rules before (commit 34cc409: turns, patience, blind steps above a bound of 16)
are stored numbers: this file, run on that commit, wrote them.

Every third case is measured: `others` then takes about ten minutes on one core, `momentum` three.
`chosen`, which is no test, is measured only when it is named:

    python benchmarks/run.py starts                 others and momentum
    python benchmarks/run.py starts:chosen          one part: chosen, others or momentum
    python benchmarks/bench_starts.py FILE          losses of "auto" as it is, into a JSON file
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pictures import in_parallel
from skimage import data
from sklearn import datasets

import kappaform as kf
from kappaform.engines import engine_for
from kappaform.learning import StopReason
from kappaform.learning.race import Candidate, Race, result_of
from kappaform.learning.starts import StartContext, portfolio

N_SIGNALS = 1500
SHARES = (0.06, 0.12, 0.25)  # of nonzero coefficients
BOUNDS = (1.5, 4.0, 12.0, 50.0, 1000.0)
OBJECTIVES: tuple[Literal["absolute", "relative"], ...] = ("absolute", "relative")
BUDGETS = (100, 300)
EARLIER = Path(__file__).parent / "results" / "losses-34cc409.json"
ANY_MACHINE = True


def rows(*parts: str) -> Iterator[dict]:
    """Those of the race on the sets that had no part in a choice, and those of momentum."""
    for part in parts or ("others", "momentum"):
        yield from PARTS[part]()


def race_rows(part: str, sets: dict[str, Callable[[], np.ndarray]]) -> list[dict]:
    """Median and worst ratio, for each budget and each comparison."""
    earlier = json.loads(EARLIER.read_text(encoding="utf-8"))
    found = []
    cases = measured_cases(sets)
    compared = list(in_parallel(_compared, ((case,) for case in cases)))
    for i, budget in enumerate(BUDGETS):
        alone = np.array([auto[i] / best[i] for auto, best in compared])
        before = np.array(
            [
                auto[i] / earlier[case.name][i]
                for case, (auto, _) in zip(cases, compared, strict=True)
            ]
        )
        found += _rows_of(f"{part}, {budget} iterations", alone, before)
    return found


def _rows_of(name: str, alone: np.ndarray, before: np.ndarray) -> list[dict]:
    mean = math.exp(np.log(before).mean())
    values = {
        "over the best start alone, median": (np.median(alone), 1.0),
        "over the best start alone, 90 % of cases": (np.quantile(alone, 0.9), None),
        "over the best start alone, worst": (alone.max(), 1.05),
        "over the best start alone, cases above 1.05": (np.sum(alone > 1.05), None),
        "over the rules before, geometric mean": (mean, 0.98),
        "over the rules before, 99 % of cases": (np.quantile(before, 0.99), None),
        "over the rules before, worst": (before.max(), 1.03),
        "over the rules before, cases above 1.03": (np.sum(before > 1.03), None),
        "cases": (len(alone), None),
    }
    return [
        {"name": f"{name}: {what}", "value": float(value), "unit": "", "target": target}
        for what, (value, target) in values.items()
    ]


@dataclass(frozen=True)
class Plain(kf.Conditioned):
    """Updates alone."""

    momentum = False


def momentum_rows() -> list[dict]:
    """What momentum brings with the default budget and tolerance, on the sets not chosen on."""
    measured = list(in_parallel(_with_and_without, ((case,) for case in measured_cases(OTHERS))))
    ratios = np.array([ratio for ratio, *_ in measured])
    _, ours, theirs = np.mean(measured, axis=0)
    values = {
        "cases": len(ratios),
        "loss over that without, geometric mean": math.exp(np.log(ratios).mean()),
        "loss over that without, 90 % of cases": np.quantile(ratios, 0.9),
        "passes": ours,
        "passes without": theirs,
    }
    return [
        {"name": f"momentum: {what}", "value": float(value), "unit": "", "target": None}
        for what, value in values.items()
    ]


def _with_and_without(case: Case) -> tuple[float, int, int]:
    """Ratio of the losses, passes with momentum, and passes without."""
    ours, plain = (
        kf.learn(case.signals, method, n_nonzero_coefs=case.n_nonzero)
        for method in (case.method, Plain(**vars(case.method)))
    )
    return ours.loss[-1] / plain.loss[-1], ours.n_passes, plain.n_passes


class Case(NamedTuple):
    set_name: str
    signals: np.ndarray
    n_nonzero: int
    method: kf.Conditioned

    @property
    def name(self) -> str:
        bound, objective = self.method.max_condition, self.method.objective
        return f"{self.set_name}, {self.n_nonzero}, {bound:g}, {objective}"


def cases_of(sets: dict[str, Callable[[], np.ndarray]]) -> Iterator[Case]:
    for name, make in sets.items():
        signals = make()
        sparsities = sorted({max(1, round(signals.shape[1] * share)) for share in SHARES})
        for objective in OBJECTIVES:
            for n_nonzero in sparsities:
                for bound in BOUNDS:
                    method = kf.Conditioned(bound, objective=objective)
                    yield Case(name, signals, n_nonzero, method)


def measured_cases(sets: dict[str, Callable[[], np.ndarray]]) -> list[Case]:
    """Every third: of each set, all sparsities, bounds and objectives are among them."""
    return list(cases_of(sets))[::3]


def losses(case: Case, init: object = "auto") -> list[float]:
    """The loss after each of the budgets; of one that ended earlier, its last."""
    seen: list[float] = []
    kf.learn(
        case.signals,
        case.method,
        n_nonzero_coefs=case.n_nonzero,
        init=init,
        max_iter=max(BUDGETS),
        tol=0,
        callback=lambda result: seen.append(float(result.records[-1].loss)),
    )
    return [seen[min(budget, len(seen)) - 1] for budget in BUDGETS]


def _compared(case: Case) -> tuple[list[float], list[float]]:
    """Losses of the race, and the lowest of its starts alone."""
    alone = [losses(case, start) for start in starts_of(case)]
    return losses(case), [min(each) for each in zip(*alone, strict=True)]


def starts_of(case: Case) -> list[kf.LearnResult]:
    """Each start of the race, as a result that has not begun."""
    gram = engine_for(case.signals).gram
    unused: Any = None  # the starts of a portfolio take no pass
    context = StartContext(gram, case.n_nonzero, unused)
    return [
        result_of(Race(case.method, case.n_nonzero, (Candidate(*start),)), StopReason.RUNNING)
        for start in portfolio(case.method, context)
    ]


# --- signals -------------------------------------------------------------------------------------


def patches(image: np.ndarray, side: int) -> np.ndarray:
    """Some patches of a photograph, one per row, means removed."""
    grey = np.asarray(image if image.ndim == 2 else image[..., 1], dtype=np.float64)
    n_rows, n_columns = (size // side for size in grey.shape)
    blocks = grey[: n_rows * side, : n_columns * side].reshape(n_rows, side, n_columns, side)
    flat = blocks.transpose(0, 2, 1, 3).reshape(-1, side * side)
    flat = flat - flat.mean(axis=1, keepdims=True)
    return np.random.default_rng(0).permutation(flat)[:N_SIGNALS]


def standardised(table: np.ndarray) -> np.ndarray:
    return (table - table.mean(axis=0)) / table.std(axis=0)


def digits() -> np.ndarray:
    """The inner 6 by 6 pixels of handwritten digits, without their mean image."""
    inner = datasets.load_digits().images[:, 1:7, 1:7].reshape(-1, 36)[:N_SIGNALS]
    return inner - inner.mean(axis=0)


def resonances() -> np.ndarray:
    """Windows of a resonance, an autoregressive process of order two, as in speech."""
    noise = np.random.default_rng(1).standard_normal((N_SIGNALS, 74))
    signals = np.zeros_like(noise)
    for t in range(2, 74):
        signals[:, t] = 1.6 * signals[:, t - 1] - 0.8 * signals[:, t - 2] + noise[:, t]
    return signals[:, 50:]


def chirps() -> np.ndarray:
    """Two tones, one of which glides."""
    rng, t = np.random.default_rng(2), np.linspace(0, 1, 24)
    start, glide, phase, other = (
        rng.uniform(low, high, (N_SIGNALS, 1))
        for low, high in ((1, 8), (-6, 6), (0, 2 * np.pi), (1, 10))
    )
    tones = np.sin(2 * np.pi * (start * t + glide * t**2 / 2) + phase)
    tones += 0.3 * np.sin(2 * np.pi * other * t)
    return tones + 0.02 * rng.standard_normal(tones.shape)


def heartbeats() -> np.ndarray:
    """Windows of a made electrocardiogram: five waves a beat, a wandering baseline and noise."""
    rng, time = np.random.default_rng(3), np.arange(30_000) / 100
    signal = 0.1 * np.sin(2 * np.pi * 0.3 * time) + 0.02 * rng.standard_normal(time.size)
    waves = (
        (-0.18, 0.03, 0.15),
        (-0.03, 0.01, -0.1),
        (0, 0.012, 1.0),
        (0.03, 0.012, -0.25),
        (0.25, 0.06, 0.3),
    )
    for beat in np.cumsum(rng.normal(0.8, 0.08, 370)):
        for delay, width, height in waves:
            near = slice(*np.searchsorted(time, (beat + delay - 1, beat + delay + 1)))
            bump = np.exp(-0.5 * ((time[near] - beat - delay) / width) ** 2)
            signal[near] += height * rng.normal(1, 0.1) * bump
    first = rng.integers(0, time.size - 24, N_SIGNALS)
    return signal[first[:, np.newaxis] + np.arange(24)]


def steps() -> np.ndarray:
    """Piecewise constant signals."""
    rng = np.random.default_rng(0)
    jumps = rng.standard_normal((N_SIGNALS, 16)) * (rng.random((N_SIGNALS, 16)) < 0.15)
    return np.cumsum(jumps, axis=1)


def mixtures() -> np.ndarray:
    """Sparse combinations of random vectors, and noise."""
    rng = np.random.default_rng(5)
    codes = rng.standard_normal((N_SIGNALS, 20)) * (rng.random((N_SIGNALS, 20)) < 0.12)
    noise = 0.05 * rng.standard_normal((N_SIGNALS, 20))
    return codes @ rng.standard_normal((20, 20)) + noise


def faces() -> np.ndarray:
    """Windows of 5 by 5 pixels of small portraits."""
    small = data.lfw_subset()[:, :25, :25].reshape(-1, 5, 5, 5, 5).transpose(0, 1, 3, 2, 4)
    windows = small.reshape(-1, 25).astype(np.float64)
    return np.random.default_rng(0).permutation(windows - windows.mean(axis=1, keepdims=True))[
        :N_SIGNALS
    ]


def colours() -> np.ndarray:
    """Windows of 3 by 3 pixels of a colour photograph, all channels together."""
    image = data.coffee()[:399, :597].astype(np.float64)
    windows = image.reshape(133, 3, 199, 3, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 27)
    windows = np.random.default_rng(0).permutation(windows)[:N_SIGNALS]
    return windows - windows.mean(axis=0)


def vowels() -> np.ndarray:
    """Windows of pulses that excite two resonances, with a pitch that changes."""
    rng, signal = np.random.default_rng(7), np.zeros(40_000)
    signal[np.cumsum(rng.integers(40, 110, 500))] = 1.0
    for frequency, width in ((0.07, 0.98), (0.19, 0.95)):
        first, second = 2 * width * math.cos(2 * math.pi * frequency), -(width**2)
        for t in range(2, signal.size):
            signal[t] += first * signal[t - 1] + second * signal[t - 2]
    signal += 0.01 * signal.std() * rng.standard_normal(signal.size)
    return signal[rng.integers(100, 30_000, N_SIGNALS)[:, np.newaxis] + np.arange(32)]


def seasons() -> np.ndarray:
    """Four weeks of days: a weekly pattern that differs from row to row, a trend and noise."""
    rng = np.random.default_rng(8)
    weeks = np.tile(rng.gamma(1.0, 1.0, (N_SIGNALS, 7)), 4)
    trend = np.linspace(-1, 1, 28) * rng.standard_normal((N_SIGNALS, 1))
    return weeks + trend + 0.2 * rng.standard_normal((N_SIGNALS, 28))


# Starts and constants were chosen on the one half, and are reported on the other.
CHOSEN_ON: dict[str, Callable[[], np.ndarray]] = {
    "camera": lambda: patches(data.camera(), 6),
    "coins": lambda: patches(data.coins(), 6),
    "brick": lambda: patches(data.brick(), 5),
    "astronaut": lambda: patches(data.astronaut(), 5),
    "digits": digits,
    "resonances": resonances,
    "heartbeats": heartbeats,
    "breast cancer": lambda: standardised(datasets.load_breast_cancer().data),
    "steps": steps,
    "mixtures": mixtures,
}
OTHERS: dict[str, Callable[[], np.ndarray]] = {
    "grass": lambda: patches(data.grass(), 5),
    "gravel": lambda: patches(data.gravel(), 5),
    "page": lambda: patches(data.page(), 5),
    "cat": lambda: patches(data.cat(), 5),
    "faces": faces,
    "colours": colours,
    "chirps": chirps,
    "vowels": vowels,
    "seasons": seasons,
    "wine": lambda: standardised(datasets.load_wine().data),
    "diabetes": lambda: standardised(datasets.load_diabetes().data),
    "walks": lambda: np.random.default_rng(6).standard_normal((N_SIGNALS, 20)).cumsum(axis=1),
    "normal": lambda: np.random.default_rng(4).standard_normal((N_SIGNALS, 16)),
    "laplace": lambda: np.random.default_rng(9).laplace(size=(N_SIGNALS, 16)),
}
PARTS: dict[str, Callable[[], list[dict]]] = {
    "chosen": lambda: race_rows("chosen", CHOSEN_ON),
    "others": lambda: race_rows("others", OTHERS),
    "momentum": momentum_rows,
}


def store(path: str) -> None:
    """Write the losses of "auto" as it is now."""
    cases = cases_of(CHOSEN_ON | OTHERS)
    Path(path).write_text(json.dumps({case.name: losses(case) for case in cases}, indent=0) + "\n")


if __name__ == "__main__":
    store(sys.argv[1])
