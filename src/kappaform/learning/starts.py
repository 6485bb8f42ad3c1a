"""Starts: where learning begins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_real_array, as_transform
from kappaform.engines import Statistics
from kappaform.learning.result import LearnResult, learned
from kappaform.learning.updates import Factors, Steps, Transform, kappa_of, least_squares
from kappaform.linalg import dct_basis, polar

if TYPE_CHECKING:
    from kappaform.learning.method import Method
    from kappaform.learning.methods import Conditioned
    from kappaform.learning.race import Problem

Init = Literal["auto", "dct", "identity", "least-squares", "procrustes"]


class Start(NamedTuple):
    """A transform to start from, and the kind of the first steps."""

    transform: Any
    explore: Steps | None = None  #: None: that of the method


class WarmStart(NamedTuple):
    """As `init`: a result of another bound, of fewer transforms or signals, and fresh starts."""

    found: LearnResult


@dataclass(frozen=True, eq=False)
class StartContext:
    """What starts are computed from."""

    gram: NDArray
    n_nonzero: int | NDArray
    codes_of: Callable[[Transform], Statistics]  #: a pass over the signals
    warm: LearnResult | None = None  #: the warm start that the starts race with
    problem: Problem | None = None  #: that they belong to, for passes of other kinds

    @property
    def n_features(self) -> int:
        return len(self.gram)

    @cached_property
    def basis(self) -> NDArray:
        """The DCT basis: two-dimensional where the signals can be square patches."""
        side = math.isqrt(self.n_features)
        is_square = side * side == self.n_features
        return dct_basis((side, side) if is_square else self.n_features)

    @cached_property
    def directions(self) -> tuple[NDArray, NDArray]:
        """Energies of the principal directions of the signals, ascending, and these as columns."""
        energies, directions = np.linalg.eigh(self.gram)
        return energies, directions


def starts_for(init: Any, method: Method, context: StartContext) -> list[Start]:
    """Starts to try, in order."""
    if isinstance(init, WarmStart):
        found, context = init.found, replace(context, warm=init.found)
        is_whole = found.transform.shape == _shape(method, context.n_features)
        init = (found, "auto") if is_whole else "auto"  # a smaller union is for its starts to grow
    if isinstance(init, tuple):
        if not init:
            raise ValueError("init=(): give at least one start, or 'auto'.")
        return [start for one in init for start in starts_for(one, method, context)]
    n_features = context.n_features
    if not isinstance(init, str):
        found = learned(init, "init")
        if not isinstance(found, LearnResult):
            return [Start(method.to_feasible(_as_matrices(found, method, n_features)))]
        if _is_smaller_union(found.transform.shape, _shape(method, n_features)):
            return starts_for(WarmStart(found), method, context)
        _check_shape(found.transform, method, n_features)
        return [Start(method.to_feasible(found.state.best.transform))]
    if init != "auto":
        shape = _shape(method, n_features)
        if init not in get_args(Init) or len(shape) > 2:
            raise ValueError(f"init={init!r} is unknown: {_accepted(shape)}")
    several = method.starts(context) if init == "auto" else None
    return list(several or [Start(method.to_feasible(_named(init, context)))])


def _named(init: str, context: StartContext) -> NDArray:
    """The start that a word stands for; "auto" is the DCT basis."""
    basis, identity = context.basis, np.eye(context.n_features)
    if init == "procrustes":
        return polar(context.codes_of(basis).cross, near=basis)
    if init == "least-squares":
        fitted = least_squares(context.codes_of(basis))
        return fitted if fitted.any() else identity  # as of signals that are all zero
    return identity if init == "identity" else basis


def portfolio(method: Conditioned, context: StartContext) -> list[Start]:
    """Starts of a method with a bound, for either objective. None of them needs a pass.

    Next to a warm start passes choose: for the absolute objective, only the strong start that
    begins lowest races, and only if it begins below the weak one (docs/mathematics.md, section 9).
    """
    kept = max(1, round(float(np.mean(context.n_nonzero))))
    numbers = list(dict.fromkeys([(kept + 1) // 2, max(1, kept - 1), kept, 1]))  # each once
    strong = [Start(strong_start(method, context, number)) for number in numbers]
    dct = method.to_feasible(context.basis)
    if method.steps == "relative":
        return [*strong, Start(dct)][:4]
    weak, strong = Start(weak_start(method, context)), strong[:2]
    if context.warm is not None:
        lowest = min(
            (weak, *strong), key=lambda start: context.codes_of(start.transform).discarded_energy
        )
        strong = [start for start in strong if start is lowest]
    return [weak, *strong, Start(dct, "rescale")]


def strong_start(method: Conditioned, context: StartContext, n_large: int) -> Transform:
    """Start with the largest singular value in the `n_large` directions of most energy.

    As many rows lie in the span of these directions, the others in its complement, all as close as
    possible to the DCT basis. If codes have room for these coefficients, which are the largest,
    only small ones are discarded.
    """
    n_features, basis = context.n_features, context.basis
    directions = context.directions[1][:, n_features - n_large :]
    inside = basis @ directions @ directions.T
    nearest = np.argsort(-np.linalg.norm(inside, axis=1), kind="stable")[:n_large]
    rows = basis - inside
    rows[nearest] = inside[nearest]
    spectrum = np.ones(n_features)
    spectrum[nearest] = kappa_of(method.max_condition, n_features)
    return method.to_feasible(Factors(np.eye(n_features), spectrum, polar(rows, near=basis).T))


def weak_start(method: Conditioned, context: StartContext) -> Transform:
    """Start with the largest singular value in the directions of least energy.

    All coefficients are then small: the number of these directions minimises their energy.
    """
    n_features, bound = context.n_features, kappa_of(method.max_condition, context.n_features)
    energies, directions = context.directions
    n_large, weak = np.arange(n_features), np.append(0.0, np.cumsum(energies)[:-1])
    energy = (energies.sum() + (bound**2 - 1) * weak) / (n_features + (bound**2 - 1) * n_large)
    spectrum = np.where(n_large < np.argmin(energy), bound, 1.0)
    return method.to_feasible(Factors(context.basis @ directions, spectrum, directions))


def _as_matrices(init: Any, method: Method, n_features: int) -> NDArray:
    """A matrix to start from, or for a union all of its matrices."""
    if len(_shape(method, n_features)) == 2:
        return _as_matrix(init, n_features)
    matrices = as_real_array(init, "init")
    _check_shape(matrices, method, n_features)
    return np.stack([_as_matrix(matrix, n_features) for matrix in matrices])


def _is_smaller_union(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return len(shape) == len(whole) == 3 and shape[1:] == whole[1:] and shape[0] < whole[0]


def _shape(method: Method, n_features: int) -> tuple[int, ...]:
    """Shape of the transform as an array, or of those of a union."""
    return (*method.union_shape, n_features, n_features)


def _check_shape(transform: NDArray, method: Method, n_features: int) -> None:
    if transform.shape != _shape(method, n_features):
        raise ValueError(
            f"init has shape {transform.shape}: for {n_features} features it must be "
            f"{_shape(method, n_features)} here."
        )


def _as_matrix(init: Any, n_features: int) -> NDArray:
    try:
        matrix = as_transform(init, n_features, "init").copy()  # theirs may change
    except TypeError as error:
        raise TypeError(f"{error} As a start, {_accepted((n_features,) * 2)}") from error
    largest = float(np.abs(matrix).max())
    if largest == 0:
        raise ValueError("init is zero everywhere: give a regular matrix, or 'auto'.")
    if not 1e-6 <= largest <= 1e6:
        raise ValueError(
            f"init has entries up to {largest:g}: scale it, so that the largest is between 1e-6 "
            "and 1e6."
        )
    return matrix


def _accepted(shape: tuple[int, ...]) -> str:
    words = f"one of {get_args(Init)}" if len(shape) == 2 else "'auto'"
    return (
        f"choose {words}, an array of shape {shape}, a LearnResult or a fitted estimator, or a "
        "tuple of these."
    )
