"""Where learning begins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_transform
from kappaform.engines import Statistics
from kappaform.learning.method import Method, bound_of
from kappaform.learning.result import LearnResult, learned
from kappaform.learning.updates import (
    Factors,
    Steps,
    Transform,
    as_matrix,
    kappa_of,
    least_squares,
)
from kappaform.linalg import dct_basis, polar

Init = Literal["auto", "dct", "identity", "least-squares", "procrustes"]


class Start(NamedTuple):
    """A transform to start from, and the steps to begin with."""

    transform: Transform
    explore: Steps | None = None  #: None: those of the method from the first one on


class Source(NamedTuple):
    """What starts are made of."""

    gram: NDArray
    n_nonzero: int | NDArray
    codes_of: Callable[[Transform], Statistics]  #: a pass over the signals
    warm: bool = False  #: whether they race with a warm start

    @property
    def n_features(self) -> int:
        return len(self.gram)


class WarmStart(NamedTuple):
    """As `init`: a result of another bound, or of a part of the signals, and fresh starts."""

    found: LearnResult


def starts_for(init: Any, method: Method, source: Source) -> list[Start]:
    """Starts to try, in order."""
    if isinstance(init, WarmStart):
        init, source = (init.found, "auto"), source._replace(warm=True)
    if isinstance(init, tuple):
        if not init:
            raise ValueError("init=(): give at least one start, or 'auto'.")
        return [start for one in init for start in starts_for(one, method, source)]
    n_features = source.n_features
    if not isinstance(init, str):
        given = learned(init, "init")
        if isinstance(given, LearnResult):
            as_transform(given.transform, n_features, "init")
            return [Start(feasible(given.state.best.transform, method))]
        return [Start(feasible(_as_matrix(given, n_features), method))]
    if init not in get_args(Init):
        raise ValueError(f"init={init!r} is unknown: {_accepted(n_features)}")
    basis = default_basis(n_features)
    several = method.starts(source) if init == "auto" else None
    if several is not None:
        return list(several)
    matrix = {
        "auto": lambda: basis,
        "dct": lambda: basis,
        "identity": lambda: np.eye(n_features),
        "least-squares": lambda: least_squares(source.codes_of(basis)),
        "procrustes": lambda: polar(source.codes_of(basis).cross, near=basis),
    }[init]()
    return [Start(feasible(matrix, method))]


def portfolio(method: Method, source: Source) -> list[Start]:
    """The starts of a method with a bound, for either objective. None of them needs a pass.

    Next to a warm start passes choose: for the absolute objective, only the strong start that
    begins lowest races, and only if it begins below the weak one (docs/mathematics.md, section 9).
    """
    gram, kept = source.gram, max(1, round(float(np.mean(source.n_nonzero))))
    numbers = list(dict.fromkeys([(kept + 1) // 2, max(1, kept - 1), kept, 1]))  # each once
    strong = [Start(strong_start(method, gram, number)) for number in numbers]
    cosine = feasible(default_basis(len(gram)), method)
    if method.steps == "relative":
        return [*strong, Start(cosine)][:4]
    weak, strong = Start(weak_start(method, gram)), strong[:2]
    if source.warm:
        lowest = min(
            (weak, *strong), key=lambda start: source.codes_of(start.transform).discarded_energy
        )
        strong = [start for start in strong if start is lowest]
    return [weak, *strong, Start(cosine, "rescale")]


def strong_start(method: Method, gram: NDArray, n_large: int) -> Transform:
    """The large singular value where the signals have most energy.

    As many rows as there are such directions lie in their span, the others in its complement, all
    as near as they can be to the cosine basis. If codes have room for these few coefficients, the
    largest, then only small ones are discarded.
    """
    n_features, basis = len(gram), default_basis(len(gram))
    directions = np.linalg.eigh(gram)[1][:, n_features - n_large :]  # of ascending energy
    inside = basis @ directions @ directions.T
    nearest = np.argsort(-np.linalg.norm(inside, axis=1), kind="stable")[:n_large]
    rows = basis - inside
    rows[nearest] = inside[nearest]
    spectrum = np.ones(n_features)
    spectrum[nearest] = kappa_of(bound_of(method), n_features)
    return feasible(Factors(np.eye(n_features), spectrum, polar(rows, near=basis).T), method)


def weak_start(method: Method, gram: NDArray) -> Transform:
    """The large singular value where the signals have least energy: all coefficients are small.

    It is given to as many directions as make the energy of all coefficients least.
    """
    n_features, bound = len(gram), kappa_of(bound_of(method), len(gram))
    energies, directions = np.linalg.eigh(gram)
    n_large, weak = np.arange(n_features), np.append(0.0, np.cumsum(energies)[:-1])
    energy = (energies.sum() + (bound**2 - 1) * weak) / (n_features + (bound**2 - 1) * n_large)
    spectrum = np.where(n_large < np.argmin(energy), bound, 1.0)
    return feasible(Factors(default_basis(n_features) @ directions, spectrum, directions), method)


def default_basis(n_features: int) -> NDArray:
    """The cosine basis: two-dimensional where the signals can be square patches."""
    side = math.isqrt(n_features)
    return dct_basis((side, side) if side * side == n_features else (n_features,))


def feasible(transform: Transform, method: Method) -> Transform:
    """The given transform, moved to where the method keeps it; for zero, the identity."""
    matrix = as_matrix(transform)
    return method.start_from(transform if matrix.any() else np.eye(len(matrix)))


def _as_matrix(init: Any, n_features: int) -> NDArray:
    try:
        matrix = as_transform(init, n_features, "init").copy()  # theirs may change
    except TypeError as error:
        raise TypeError(f"{error} As a start, {_accepted(n_features)}") from error
    largest = float(np.abs(matrix).max())
    if largest == 0:
        raise ValueError("init is zero: give a matrix that is not, or 'identity'.")
    if not 1e-6 <= largest <= 1e6:
        raise ValueError(
            f"init has entries up to {largest:g}: scale it, so that the largest is between 1e-6 "
            "and 1e6."
        )
    return matrix


def _accepted(n_features: int) -> str:
    return (
        f"choose one of {get_args(Init)}, an array of shape ({n_features}, {n_features}), a "
        "LearnResult or a fitted estimator, or a tuple of these."
    )
