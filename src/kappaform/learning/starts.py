"""Where learning begins."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import as_transform
from kappaform.engines import Statistics
from kappaform.learning.methods import Conditioned, LogDet, Method, Orthonormal
from kappaform.learning.result import LearnResult, learned
from kappaform.learning.updates import (
    Factors,
    Steps,
    Transform,
    as_matrix,
    decompose,
    kappa_of,
    least_squares,
    norm_of,
    own_steps,
    turned_start,
)
from kappaform.linalg import dct_basis, polar, project_spectrum
from kappaform.threads import single_threaded_blas

Init = Literal["auto", "dct", "identity", "least-squares", "procrustes"]

# The log-det penalty needs a regular transform: what a start is lifted to where it is singular.
_REGULAR = 1e12


# Above it, blind right steps reach a lower error than relative ones: seen on patches of Barbara,
# Lena, Hill and Peppers (docs/mathematics.md, section 9).
_LARGE_BOUND = 16.0


class Start(NamedTuple):
    """A transform to start from, and the steps to explore with before those of the method."""

    transform: Transform
    explore: Steps | None = None  #: None: nothing to explore


def starts_for(
    init: Any, method: Method, n_features: int, codes_of: Callable[[Transform], Statistics]
) -> list[Start]:
    """Starts to try, in order; `codes_of` passes over the data with a given transform."""
    if isinstance(init, tuple):
        if not init:
            raise ValueError("init=(): give at least one start, or 'auto'.")
        starts = [s for one in init for s in starts_for(one, method, n_features, codes_of)]
        steps: Steps = "turn" if explores_blindly(method) else own_steps(method)
        return [start._replace(explore=start.explore or steps) for start in starts]
    if not isinstance(init, str):
        given = learned(init, "init")
        if isinstance(given, LearnResult):
            as_transform(given.transform, n_features, "init")
            return [Start(feasible(given.state.best.transform, method))]
        return [Start(feasible(_as_matrix(given, n_features), method))]
    if init not in get_args(Init):
        raise ValueError(f"init={init!r} is unknown: {_accepted(n_features)}")
    basis = default_basis(n_features)
    if init == "auto" and isinstance(method, Conditioned) and _explores(method):
        return _explored_starts(method, basis, codes_of)
    matrix = {
        "auto": lambda: basis,
        "dct": lambda: basis,
        "identity": lambda: np.eye(n_features),
        "least-squares": lambda: least_squares(codes_of(basis)),
        "procrustes": lambda: polar(codes_of(basis).cross, near=basis),
    }[init]()
    return [Start(feasible(matrix, method))]


def _explored_starts(
    method: Conditioned, basis: NDArray, codes_of: Callable[[Transform], Statistics]
) -> list[Start]:
    """No single start wins: the cosine basis is best for small bounds, least squares for large."""
    relative = method.objective == "relative"
    cosine = Start(feasible(basis, method), "relative" if relative else "rescale")
    if not explores_blindly(method):
        fitted = feasible(least_squares(codes_of(cosine.transform)), method)
        return [cosine, Start(fitted, "relative")]
    codes = codes_of(basis)
    if not codes.cross.any():
        return [cosine]
    blind: tuple[Steps, ...] = ("turn",) if relative else ("turn", "turn-exact")
    first, *others = (Start(turned_start(codes, method, steps), steps) for steps in blind)
    return [first, cosine, *others]


def default_basis(n_features: int) -> NDArray:
    """The cosine basis: two-dimensional where the signals can be square patches."""
    side = math.isqrt(n_features)
    return dct_basis((side, side) if side * side == n_features else (n_features,))


def feasible(transform: Transform, method: Method) -> Transform:
    """The given transform, moved to where the method keeps it.

    The published variants take from it the first codes only, and so take it in its own norm; the
    public code takes it as it is.
    """
    matrix = as_matrix(transform)
    if not matrix.any():
        transform = matrix = np.eye(len(matrix))
    if isinstance(method, Orthonormal):
        return polar(matrix)
    if isinstance(method, LogDet):
        return _within(transform, _REGULAR).matrix
    if method.variant == "public":
        return matrix
    factors = _within(transform, kappa_of(method, len(matrix)))
    if method.variant == "monotone":
        return factors.scaled_to(norm_of(method, len(matrix)))
    return factors.matrix


def shown(transform: Transform, method: Method) -> NDArray:
    """The transform as learning returns it: always within bound and norm.

    A published variant that has done no update yet holds a start that need not be.
    """
    if isinstance(method, Conditioned) and not isinstance(transform, Factors):
        n_features = len(transform)
        with single_threaded_blas():
            transform = _within(transform, kappa_of(method, n_features))
            transform = transform.scaled_to(norm_of(method, n_features))
    return as_matrix(transform)


def _within(transform: Transform, kappa: float) -> Factors:
    """Factors of the nearest transform with the same singular vectors and this bound."""
    factors = transform if isinstance(transform, Factors) else decompose(transform)
    spectrum = project_spectrum(factors.spectrum, np.ones(len(factors.spectrum)), kappa)
    return Factors(factors.left, spectrum, factors.right)


def _explores(method: Conditioned) -> bool:
    """Whether several starts are worth their passes.

    With a bound of 1 all lead to the same problem; with a free norm the absolute error has no scale
    at which trials could be compared.
    """
    comparable = method.norm is not None or method.objective == "relative"
    return method.variant == "monotone" and method.max_condition > 1 and comparable


def explores_blindly(method: Method) -> bool:
    """Whether to explore with right steps that are blind to the spectrum: for large bounds."""
    if not isinstance(method, Conditioned):
        return False
    return method.max_condition > _LARGE_BOUND and _explores(method)


def _as_matrix(init: Any, n_features: int) -> NDArray:
    try:
        matrix = as_transform(init, n_features, "init")
    except TypeError as error:
        raise TypeError(f"{error} As a start, {_accepted(n_features)}") from error
    largest = float(np.abs(matrix).max())
    if not (largest == 0 or 1e-6 <= largest <= 1e6):
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
