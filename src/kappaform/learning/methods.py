"""The three methods of this package, and every option of learning, checked."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_transform
from kappaform.engines import Statistics
from kappaform.learning.method import Method, Updater
from kappaform.learning.published import update_published
from kappaform.learning.starts import Source, Start, feasible, portfolio
from kappaform.learning.updates import (
    Factors,
    Steps,
    Transform,
    as_matrix,
    constraints_of,
    kappa_of,
    norm_of,
    update_conditioned,
    update_log_det,
    within,
)
from kappaform.linalg import polar
from kappaform.threads import single_threaded_blas

# The log-det penalty needs a regular transform: what a start is lifted to where it is singular.
_REGULAR = 1e12
# Beyond what rounding explains: of an orthonormal transform, of a norm that was given as float32.
_ROUNDING, _ROUNDING_OF_SINGLE = 1e-9, 1e-6

Objective = Literal["absolute", "relative"]
Variant = Literal["monotone", "paper", "reference", "public"]
Coding = Literal["largest", "refit"]


class _Ours(Method):
    """What the methods of this package share: a loss that is an error, or a sum with its square."""

    @property
    def monotone(self) -> bool:
        return True

    def update(self, statistics: Statistics, transform: NDArray) -> NDArray:
        """The transform after one update, for the statistics of `transform` and its codes.

        For the published variants `transform` is a start, and this their first iteration.
        """
        start = feasible(as_transform(transform, len(statistics.gram)), self)
        with single_threaded_blas():
            return self.shown(self.updater(statistics.gram)(statistics, start, self.steps))

    def admissible(self, transform: NDArray) -> NDArray:
        """The transform that learning makes of a given matrix; of zeros, of the identity."""
        matrix = as_transform(transform, len(np.atleast_1d(transform)))
        with single_threaded_blas():
            return self.shown(feasible(matrix, self))

    def shown(self, transform: Transform) -> NDArray:
        return as_matrix(transform)

    def rises(self, old: float, new: float, coef_norm: float, rounding: float) -> bool:
        # Rounding is a fraction of all the energy, not of the error, which may be much smaller.
        old, new = old / (coef_norm or 1.0), new / (coef_norm or 1.0)
        return new * new - old * old > rounding


@dataclass(frozen=True)
class Orthonormal(_Ours):
    """Transform with orthonormal rows: condition number 1.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> result = kf.learn(signals, kf.Orthonormal(), n_nonzero_coefs=4)
    >>> np.allclose(result.transform @ result.transform.T, np.eye(16))
    True
    """

    def updater(self, gram: NDArray) -> Updater:  # noqa: ARG002
        return lambda statistics, transform, _: polar(statistics.cross, near=as_matrix(transform))

    def start_from(self, transform: Transform) -> NDArray:
        return polar(as_matrix(transform))

    def broken_promise(self, spectrum: NDArray) -> str | None:
        is_orthonormal = abs(spectrum - 1).max() <= _ROUNDING
        return None if is_orthonormal else "the transform is not orthonormal."


@dataclass(frozen=True)
class LogDet(_Ours):
    r"""Transform kept regular by a penalty.

    .. math:: \min_W \|X - Y W^T\|^2 + \rho \|W\|_F^2 - \mu \log |\det W|

    where mu is `weight` and rho is `frobenius_weight`, each times :math:`\|Y\|_F^2`. No bound on
    the condition number is promised.

    Parameters
    ----------
    weight : float > 0
        The larger, the lower the condition number.
    frobenius_weight : float > 0 or None
        None: the same as `weight`.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> loose = kf.learn(signals, kf.LogDet(weight=1e-4), n_nonzero_coefs=4)
    >>> tight = kf.learn(signals, kf.LogDet(weight=1e-2), n_nonzero_coefs=4)
    >>> tight.condition_number < loose.condition_number
    True
    """

    weight: float = 0.0031
    frobenius_weight: float | None = None

    def __post_init__(self) -> None:
        for name in ("weight", "frobenius_weight"):
            value = getattr(self, name)
            if name == "frobenius_weight" and value is None:
                continue
            if not _is_number(value) or not 0 < value < math.inf:
                raise ValueError(
                    f"{name}={value!r}: the weight of a penalty must be positive and finite, "
                    "otherwise the transform may become singular or unbounded."
                )

    @property
    def _weights(self) -> tuple[float, float]:
        """Of the log-determinant and of the Frobenius norm, per energy of the signals."""
        return self.weight, self.weight if self.frobenius_weight is None else self.frobenius_weight

    def updater(self, gram: NDArray) -> Updater:
        energy = float(np.trace(gram)) or 1.0
        log_det, frobenius = (energy * weight for weight in self._weights)
        values, vectors = np.linalg.eigh(gram)
        root = np.sqrt(np.maximum(values, 0) + frobenius)
        roots = (vectors * root) @ vectors.T, (vectors / root) @ vectors.T
        return lambda statistics, transform, _: update_log_det(
            statistics, as_matrix(transform), *roots, log_det
        )

    def loss(self, statistics: Statistics, transform: Transform) -> float:
        """The penalised squared error over the squared norm of the signals."""
        matrix, (log_det, frobenius) = as_matrix(transform), self._weights
        penalty = float(frobenius * np.vdot(matrix, matrix))
        penalty -= float(log_det * np.linalg.slogdet(matrix)[1])
        return statistics.discarded_energy / (float(np.trace(statistics.gram)) or 1.0) + penalty

    def start_from(self, transform: Transform) -> NDArray:
        return within(transform, _REGULAR).matrix

    def rises(self, old: float, new: float, coef_norm: float, rounding: float) -> bool:  # noqa: ARG002
        return new - old > rounding * max(1.0, abs(old))


@dataclass(frozen=True)
class Conditioned(_Ours):
    r"""Transform whose condition number is at most `max_condition`, at every iteration.

    .. math:: \min_W \|X - Y W^T\| \quad \text{s.t.} \quad \kappa(W) \le \kappa, \; \|W\|_F = \tau

    Parameters
    ----------
    max_condition : float >= 1
        Bound on the condition number.
    norm : "auto", float from 1e-6 to 1e6, or None
        Frobenius norm of the transform. "auto" is sqrt(n), that of an orthonormal one. None leaves
        it free: the absolute error then shrinks with the transform, down to the norm 1e-6.
    objective : {"absolute", "relative"}
        The error to minimise: absolute, or divided by the norm of the coefficients. They favour
        different transforms: compare both, and the reconstruction error (`kappaform.evaluate`).
    variant : {"monotone", "paper", "reference", "public"}
        "monotone": exact updates, with momentum; the loss never rises. In the others it may.
        "paper": the published algorithm as printed. "reference": order, steps and start of its
        authors' code; both with an exact spectrum step. "public": that code with its own spectrum
        step, which often misses the minimum, to reproduce its results.
    n_rounds : int >= 1
        Rounds of the monotone updates per pass over the data; they see n x n matrices only.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> method = kf.Conditioned(max_condition=3.0, objective="relative")
    >>> result = kf.learn(signals, method, n_nonzero_coefs=4)
    >>> result.condition_number <= 3.0
    True
    """

    max_condition: float = 2.0
    norm: float | Literal["auto"] | None = "auto"
    objective: Objective = "absolute"
    variant: Variant = "monotone"
    n_rounds: int = 5

    def __post_init__(self) -> None:
        kappa = self.max_condition
        if not _is_number(kappa) or not 1 <= kappa < math.inf:
            raise ValueError(
                f"max_condition={kappa!r}: the bound must be a finite number >= 1 (1 gives a "
                "multiple of an orthonormal transform)."
            )
        if not _is_norm(self.norm):
            raise ValueError(
                f"norm={self.norm!r}: give a positive finite number (1e-6 to 1e6), 'auto' for "
                "that of an orthonormal transform, or None to leave it free."
            )
        for name, choices in (("objective", get_args(Objective)), ("variant", get_args(Variant))):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is unknown: choose one of {choices}."
                )
        if self.objective == "relative" and self.variant != "monotone":
            raise ValueError(
                f"objective='relative' with variant={self.variant!r}: the published algorithms "
                "minimise the absolute error only; use variant='monotone'."
            )
        _check_count("n_rounds", self.n_rounds, "rounds", most=1000)  # 5 gain nearly all there is

    in_factors = True

    @property
    def monotone(self) -> bool:
        return self.variant == "monotone"

    @property
    def steps(self) -> Steps:
        """Those that serve the objective."""
        return "relative" if self.objective == "relative" else "exact"

    def updater(self, gram: NDArray) -> Updater:
        constraints = constraints_of(self.max_condition, self.norm, gram)
        if self.variant != "monotone":
            return partial(update_published, variant=self.variant, constraints=constraints)
        return partial(update_conditioned, constraints=constraints, n_rounds=self.n_rounds)

    def loss(self, statistics: Statistics, transform: Transform) -> float:
        """The error of the objective."""
        if self.objective == "absolute":
            return super().loss(statistics, transform)
        energy = statistics.discarded_energy + statistics.code_energy
        return math.sqrt(statistics.discarded_energy) / (math.sqrt(energy) or 1.0)

    def start_from(self, transform: Transform) -> Transform:
        """The published variants take from it the first codes only, and so take it in its own norm.

        The public code takes it as it is.
        """
        if self.variant == "public":
            return as_matrix(transform)
        n_features = len(as_matrix(transform))
        factors = within(transform, kappa_of(self.max_condition, n_features))
        if self.variant == "monotone":
            return factors.scaled_to(norm_of(self.norm, n_features))
        return factors.matrix

    @property
    def momentum(self) -> bool:
        """Neither published methods (a bound of 1 is one) have it, nor a norm that could vanish."""
        return self.monotone and self.max_condition > 1 and self.norm is not None

    def beyond(self, last: Factors, reached: Factors, factor: float) -> Transform:
        return self.start_from(reached.beyond(last, factor))

    def starts(self, source: Source) -> list[Start] | None:
        """Several, where they are worth their passes.

        With a bound of 1 all lead to the same problem; with a free norm the absolute error has no
        scale at which starts could be compared.
        """
        comparable = self.norm is not None or self.objective == "relative"
        if self.variant != "monotone" or self.max_condition <= 1 or not comparable:
            return None
        return portfolio(self, source)

    def shown(self, transform: Transform) -> NDArray:
        """Always within bound and norm: a published variant may hold a start that is not yet."""
        if not isinstance(transform, Factors):
            n_features = len(transform)
            with single_threaded_blas():
                transform = within(transform, kappa_of(self.max_condition, n_features))
                transform = transform.scaled_to(norm_of(self.norm, n_features))
        return as_matrix(transform)

    def rises(self, old: float, new: float, coef_norm: float, rounding: float) -> bool:
        scale = 1.0 if self.objective == "relative" else coef_norm
        return super().rises(old, new, scale, rounding)

    def broken_promise(self, spectrum: NDArray) -> str | None:
        norm, wanted = float(np.linalg.norm(spectrum)), norm_of(self.norm, len(spectrum))
        broken = super().broken_promise(spectrum)
        # Version 0.1 let published variants keep the norm of a start that stayed as it was.
        if broken or self.variant != "monotone" or wanted is None:
            return broken
        fits = abs(norm - wanted) <= _ROUNDING_OF_SINGLE * wanted
        return None if fits else f"the transform has norm {norm}, not {wanted}."


@dataclass(frozen=True)
class Saved(Method):
    """A method of one's own as a file knows it: by what it was called, not by what it does."""

    description: str = "unknown"

    def update(self, statistics: Statistics, transform: NDArray) -> NDArray:  # noqa: ARG002
        raise TypeError(
            f"the file has the transform, but not the method that learned it, {self.description}: "
            "to learn on, give the method again, method=...."
        )


Callback = Callable[[Any], bool | None]  #: sees a LearnResult; returning True stops
Forgetting = float | Literal["auto"]
# Enough for a change of 1e-4: digits, patches and tables took 3 to 442 iterations at bounds from 2
# to 100 (docs/mathematics.md, section 9).
MAX_ITER = 500
N_UPDATES = 5  #: of the transform for each batch of a stream, at most (docs/scale.md)


class Options(NamedTuple):
    """What `learn` or `learn_stream` is asked for, checked but for what depends on the signals."""

    method: Method
    n_nonzero: Any
    init: Any
    callback: Callback | None
    max_iter: int = MAX_ITER  #: of `learn`
    tol: float = 1e-4  #: of `learn`
    forgetting: Forgetting = "auto"  #: of `learn_stream`
    n_updates: int = N_UPDATES  #: of `learn_stream`


def checked_options(
    method: Any, n_nonzero: Any, init: Any, callback: Any, **others: Any
) -> Options:
    """Check the options of `learn`, with its max_iter and tol, or those of `learn_stream`."""
    options = Options(checked_method(method), n_nonzero, init, callback, **others)
    max_iter, tol, forgetting, n_updates = options[4:]
    _check_count("max_iter", max_iter, "iterations")
    _check_count("n_updates", n_updates, "updates")
    if not _is_number(tol) or not 0 <= tol < math.inf:
        raise ValueError(f"tol={tol!r}: give a finite number >= 0 (0 runs until nothing changes).")
    if forgetting != "auto" and not (_is_number(forgetting) and 0 <= forgetting <= 1):
        raise ValueError(
            f"forgetting={forgetting!r}: give 'auto', or what a batch leaves of the weight of the "
            "earlier ones, from 0 (nothing) to 1 (all)."
        )
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r}: give a function of a LearnResult, or None.")
    return options._replace(max_iter=int(max_iter), tol=float(tol), n_updates=int(n_updates))


def checked_method(method: Any) -> Method:
    method = Conditioned() if method is None else method
    if isinstance(method, type) and issubclass(method, Method):
        raise TypeError(f"method={method!r} is a class: give an object of it, {method.__name__}().")
    if not isinstance(method, Method):
        raise TypeError(
            f"method={method!r}: give Conditioned(...), LogDet(...) or Orthonormal(), or a method "
            "of your own, derived from kappaform.Method."
        )
    bound = getattr(method, "max_condition", None)
    if bound is not None and not (_is_number(bound) and bound >= 1):
        raise ValueError(
            f"method={method!r}: its max_condition={bound!r} must be a number >= 1, or None, which "
            "is no bound."
        )
    return method


def checked_coding(coding: Any) -> Coding:
    if coding not in get_args(Coding):
        raise ValueError(
            f"coding={coding!r} is unknown: give 'largest' for the largest coefficients, or "
            "'refit' for codes that rebuild signals best."
        )
    return coding


def one_sparsity(value: Any, who: str) -> int | None:
    """The sparsity of signals yet to come: they can only share one."""
    if value is None or (isinstance(value, numbers.Integral) and not isinstance(value, bool)):
        return value if value is None else int(value)
    many = hasattr(value, "__len__") and not isinstance(value, str)
    what = f" has {len(value)} entries" if many else f"={value!r}"
    raise TypeError(
        f"n_nonzero_coefs{what}: {who} needs one integer, or None for a tenth of the features; one "
        "for each signal is for `learn`."
    )


def _check_count(name: str, value: Any, what: str, most: float = math.inf) -> None:
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or not 1 <= value <= most:
        end = "" if most == math.inf else f" and <= {most}"
        raise ValueError(f"{name}={value!r}: give a whole number of {what} >= 1{end}.")


def _is_norm(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return value in (None, "auto")
    return _is_number(value) and 1e-6 <= float(value) <= 1e6


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
