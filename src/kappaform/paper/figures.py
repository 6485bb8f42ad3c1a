"""The figures of the paper, and one more."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kappaform
from kappaform.paper.curves import Curve, learn_curves
from kappaform.paper.dataset import check_data, signals_of
from kappaform.paper.parts import Finished, Part, Watch, open_parts, run_parts
from kappaform.paper.printed import FIGURE_IMAGES, SPARSITIES, WEIGHTS
from kappaform.paper.tradeoff import BOUNDS, MAX_ITER, PATHS, learn_path
from kappaform.threads import n_threads

N_ITER, QUICK_N_ITER = 300, 60
_QUICK_STRIDE = 8  # every eighth signal
_QUICK_BOUNDS = (1.0, 2.0, 10.0, 100.0)


@dataclass(frozen=True, eq=False)
class Figures:
    """What the figures show.

    Attributes
    ----------
    curves : list of dicts
        Errors over the iterations, one for each setting and method.
    paths : list of dicts
        Errors over the bound, one for each variant and objective.
    seconds : dict from part to seconds
    settings : dict
    """

    curves: list[Curve]
    paths: list[dict[str, Any]]
    seconds: dict[str, float]
    settings: dict[str, Any]


def reproduce_figures(
    data: Path,
    out: Path,
    *,
    images: Sequence[str] | None = None,
    n_iter: int | None = None,
    seed: int = 0,
    n_workers: int | None = None,
    quick: bool = False,
    watch: Watch | None = None,
) -> Figures:
    """Learn what the figures show; what `out` holds already is kept.

    The seed says which half of the signals validates the third figure; the others use all of them.
    """
    names = [name.lower() for name in images or FIGURE_IMAGES]
    n_iter = n_iter or (QUICK_N_ITER if quick else N_ITER)
    check_data(data)
    stride = _QUICK_STRIDE if quick else 1
    signals = signals_of(data, names)[::stride]
    settings = {
        "images": names,
        "n_iter": n_iter,
        "seed": seed,
        "quick": quick,
        "kappaform": kappaform.__version__,
    }
    folder = open_parts(out, "figures", settings)
    source = hashlib.sha256(signals.tobytes()).hexdigest()[:16]
    common = {"data": data, "images": names, "stride": stride}
    parts = _parts(common, source, n_iter, seed, quick)
    finished = run_parts(compute, parts, folder, n_workers or n_threads(), watch)
    facts = {"n_signals": len(signals), "path_max_iter": min(n_iter, MAX_ITER)}
    return _figures(finished, settings | facts)


def compute(kind: str, **arguments: Any) -> Any:
    """One part of the figures."""
    return learn_path(**arguments) if kind == "path" else learn_curves(**arguments)


def _parts(common: dict[str, Any], source: str, n_iter: int, seed: int, quick: bool) -> list[Part]:
    parts = []
    for n_nonzero in SPARSITIES[:1] if quick else SPARSITIES:
        for weight in (None, *(WEIGHTS[::2] if quick else WEIGHTS)):
            setting = {"n_nonzero": n_nonzero, "weight": weight, "n_iter": n_iter}
            name = f"curves-{n_nonzero}-{weight or 'orthonormal'}"
            cost = n_iter * (1.0 if weight is None else 9.0)
            parts.append(Part(name, {"kind": "curves", **setting, **common}, source, cost))
    bounds = _QUICK_BOUNDS if quick else BOUNDS
    max_iter = min(n_iter, MAX_ITER)
    for variant, objective in PATHS:
        setting = {"variant": variant, "objective": objective, "seed": seed}
        limits = {"bounds": bounds, "max_iter": max_iter}
        cost = 2.0 * len(bounds) * max_iter
        arguments = {"kind": "path", **setting, **limits, **common}
        parts.append(Part(f"path-{variant}-{objective}", arguments, source, cost))
    return parts


def _figures(finished: Finished, settings: dict[str, Any]) -> Figures:
    for name, reason in finished.failures.items():
        raise ValueError(f"{name}: {reason}")
    results = finished.results
    curves = [curve for name, part in results.items() if name[:4] == "curv" for curve in part]
    paths = [part for name, part in results.items() if name[:4] == "path"]
    return Figures(curves, paths, finished.seconds, settings)
