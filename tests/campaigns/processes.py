"""Campaigns about processes: with an empty cache of kernels, and as on other processors.

They run this file, which writes what the calls of a seed return, in the opposite order if asked
to, and then runs cases of other campaigns:

    python -m campaigns.processes SEED OUTPUT [--reversed] [CAMPAIGN ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from campaigns.common import Facts, draw_problem
from helpers import psnr
from llvmlite.binding import get_host_cpu_features
from skimage.data import astronaut, camera

import kappaform as kf

TESTS = Path(__file__).parents[1]
MOST_SECONDS = 600.0
# Near-ties in the search for similar patches, and sparsities at a threshold, are decided by the
# last bit: pixels may then differ by some grey levels, the quality by no more than this.
MOST_DECIBELS = 0.1

#: Older processors, by the feature that this one must have to run what is compiled for them.
BLAS = {"Prescott": "sse3", "Nehalem": "sse4.2", "Sandybridge": "avx", "Haswell": "avx2"}
NUMBA = {"nehalem": "sse4.2", "sandybridge": "avx", "haswell": "avx2"}
#: Campaigns whose verdict must be the same on every processor.
EVERYWHERE = ("bound-and-descent", "spectra", "naive-sums", "resume", "streams", "stores")


class Case:
    """Calls that are drawn from a seed: of learning, and of denoising with its clean picture."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.facts: Facts = {}
        self.calls: dict[str, Callable[[], np.ndarray]] = {}
        self.clean: dict[str, np.ndarray] = {}
        for kind in rng.choice(["signals", "picture"], int(rng.integers(1, 4))):
            name = f"{kind} {len(self.calls)}"
            self.facts[name] = facts = {}
            if kind == "signals":
                self.calls[name] = _learning(rng, facts)
            else:
                self.calls[name], self.clean[name] = _denoising(rng, facts)


def _learning(rng: np.random.Generator, facts: Facts) -> Callable[[], np.ndarray]:
    signals, method, options = draw_problem(rng, facts)
    facts["dtype"] = dtype = str(rng.choice(["float32", "float64"]))
    return lambda: kf.learn(signals.astype(dtype), method, **options).transform


def _denoising(
    rng: np.random.Generator, facts: Facts
) -> tuple[Callable[[], np.ndarray], np.ndarray]:
    facts["side"] = side = int(rng.integers(24, 49))
    top, left = rng.integers(0, 512 - side, 2)
    facts["kind"] = kind = str(
        rng.choice(["grey", "colour", "movie", "volume"], p=[0.5, 0.3, 0.1, 0.1])
    )
    picture = astronaut() if kind == "colour" else camera()
    clean = picture[top : top + side, left : left + side].astype(np.float64)
    facts["options"] = options = {
        "quality": str(rng.choice(["fast", "balanced", "best"])),
        # So little noise is removed in double precision.
        "sigma": 0.1 if rng.random() < 0.1 else float(rng.uniform(5, 40)),
    }
    if kind == "colour":
        options["channel_axis"] = -1
    if kind in ("movie", "volume"):
        clean = np.stack([np.roll(clean, shift, axis=1) for shift in range(4)])
        options |= {"stack_axis": 0, "movie": True} if kind == "movie" else {}
    else:
        options["patch_size"] = int(rng.integers(4, 8))
    noisy = kf.add_noise(clean, options["sigma"], rng=rng)
    if kind == "grey":
        noises = [None, kf.Shot(3.0, options["sigma"]), _correlated(options["sigma"])]
        noise = noises[rng.integers(3)]
        options |= {} if noise is None else {"noise": noise, "sigma": None}
    return lambda: kf.denoise(noisy, **options), clean


def _correlated(sigma: float) -> kf.Correlated:
    return kf.Correlated(autocovariance=sigma**2 * np.outer([0.25, 1, 0.25], [0.25, 1, 0.25]))


def cold_and_warm(rng: np.random.Generator, facts: Facts) -> None:
    """A process that compiles the kernels returns the bits of one that loads them.

    The second one makes the calls in the opposite order.
    """
    facts["calls"] = seed = int(rng.integers(2**31))
    facts.update(Case(seed).facts)
    with tempfile.TemporaryDirectory() as folder:
        cache = {"NUMBA_CACHE_DIR": str(Path(folder) / "cache")}
        cold = _results(seed, Path(folder) / "cold.npz", cache)
        warm = _results(seed, Path(folder) / "warm.npz", cache, "--reversed")
    for name, found in cold.items():
        np.testing.assert_array_equal(found, warm[name], strict=True, err_msg=name)


def other_processors(rng: np.random.Generator, facts: Facts) -> None:
    """With the kernels of other processors all promises hold, and pictures are as good."""
    facts["variables"] = variables = _processor(rng)
    facts["calls"] = seed = int(rng.integers(2**31))
    case = Case(seed)
    facts["campaigns"] = campaigns = rng.choice(EVERYWHERE, 2, replace=False).tolist()
    facts.update(case.facts)
    with tempfile.TemporaryDirectory() as folder:
        there = _results(seed, Path(folder) / "there.npz", variables, *campaigns)
    for name, clean in case.clean.items():
        ours, theirs = psnr(clean, case.calls[name]()), psnr(clean, there[name])
        assert abs(ours - theirs) <= MOST_DECIBELS, f"{name}: {ours:.3f} here, {theirs:.3f} there"


def _processor(rng: np.random.Generator) -> dict[str, str]:
    """Variables that make BLAS and numba use the kernels of another processor."""
    features = get_host_cpu_features()
    blas, numba = (
        [name for name, needed in table.items() if features.get(needed)] for table in (BLAS, NUMBA)
    )
    variables = {"NUMBA_CPU_NAME": str(rng.choice(["generic", *numba]))}
    return variables | ({"OPENBLAS_CORETYPE": str(rng.choice(blas))} if blas else {})


def _results(seed: int, output: Path, variables: dict[str, str], *options: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "campaigns.processes", str(seed), str(output), *options],
        cwd=TESTS,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    with np.load(output) as arrays:
        return dict(arrays)


def main(seed: str, output: str, *options: str) -> None:
    from soak import failure  # it imports this module

    calls = Case(int(seed)).calls
    names = list(reversed(calls)) if "--reversed" in options else list(calls)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(output, **{name: calls[name]() for name in names})
    failures = [failure(name, int(seed)) for name in options if not name.startswith("--")]
    sys.exit("\n".join(filter(None, failures)) or 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
