"""The three methods of this package."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_transform, check_choice, check_count, is_number
from kappaform.engines import Statistics
from kappaform.learning.method import BOUND_SLACK, Method, Updater
from kappaform.learning.published import update_published
from kappaform.learning.starts import Start, StartContext, portfolio
from kappaform.learning.updates import (
    Factors,
    Steps,
    Transform,
    as_matrix,
    bounded,
    constraints_of,
    norm_of,
    project_condition,
    update_conditioned,
    update_log_det,
)
from kappaform.linalg import polar
from kappaform.threads import single_threaded_blas

if TYPE_CHECKING:
    from kappaform.learning.result import Record

# Bound of the condition number of a start of `LogDet`, whose penalty needs a regular transform.
_REGULAR = 1e12
SINGLE_SLACK = 1e-6  #: relative rounding of what was float32: a norm, sums over signals

Objective = Literal["absolute", "relative"]
Variant = Literal["monotone", "paper", "reference", "public"]


class _BuiltIn(Method):
    """A method whose loss, unless it overrides that, is the absolute error."""

    monotone: Any = True
    loss_power: ClassVar[int] = 2  # rounding is a fraction of all the energy, not of the error

    def update(self, statistics: Statistics, transform: NDArray) -> NDArray:
        """The transform after one update, for the statistics of `transform` and its codes.

        For the published variants `transform` is a start, and this their first iteration.
        """
        with single_threaded_blas():
            start = self._start(transform, len(statistics.gram))
            return self.as_array(self.updater(statistics.gram)(statistics, start, self.steps))

    def admissible(self, transform: NDArray) -> NDArray:
        """The feasible transform that learning makes of a matrix; zero becomes the identity."""
        with single_threaded_blas():
            return self.as_array(self._start(transform, len(np.atleast_1d(transform))))

    def _start(self, transform: NDArray, n_features: int) -> Transform:
        matrix = as_transform(transform, n_features)
        return self.to_feasible(matrix if matrix.any() else np.eye(n_features))

    def loss(self, statistics: Statistics, transform: Transform) -> float:  # noqa: ARG002
        """The absolute error."""
        return math.sqrt(statistics.discarded_energy) / statistics.scale

    def checked_loss(self, statistics: Statistics, transform: Transform) -> float:
        return self.loss(statistics, transform)

    def loss_scale(self, record: Record) -> float:
        return record.coef_norm

    def as_array(self, transform: Transform) -> NDArray:
        return as_matrix(transform)


@dataclass(frozen=True)
class Orthonormal(_BuiltIn):
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

    def to_feasible(self, transform: Transform) -> NDArray:
        return polar(as_matrix(transform))

    def violation(self, spectrum: NDArray) -> str | None:
        is_orthonormal = abs(spectrum - 1).max() <= BOUND_SLACK
        return None if is_orthonormal else "the transform is not orthonormal."


@dataclass(frozen=True)
class LogDet(_BuiltIn):
    r"""Transform kept regular by a penalty.

    .. math:: \min_W \|X - Y W^T\|^2 + \rho \|W\|_F^2 - \mu \log |\det W|

    where mu is `weight` and rho is `frobenius_weight`, each times :math:`\|Y\|_F^2`. The condition
    number has no guaranteed bound.

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

    loss_power = 1  # the loss is a squared error

    def __post_init__(self) -> None:
        for name, value in zip(("weight", "frobenius_weight"), self._weights, strict=True):
            if not is_number(value) or not 0 < value < math.inf:
                raise ValueError(
                    f"{name}={value!r}: the weight of a penalty must be positive and finite, "
                    "otherwise the transform may become singular or unbounded."
                )

    @property
    def _weights(self) -> tuple[float, float]:
        """Weights of log-determinant and Frobenius norm, over the energy of the signals."""
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

    def loss_scale(self, record: Record) -> float:
        return max(1.0, abs(record.loss))

    def to_feasible(self, transform: Transform) -> NDArray:
        return project_condition(transform, _REGULAR).matrix


@dataclass(frozen=True)
class Conditioned(_BuiltIn):
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
        if not is_number(kappa) or not 1 <= kappa < math.inf:
            raise ValueError(
                f"max_condition={kappa!r}: the bound must be a finite number >= 1 (1 gives a "
                "multiple of an orthonormal transform)."
            )
        norm: Any = self.norm
        if not (1e-6 <= norm <= 1e6 if is_number(norm) else norm is None or str(norm) == "auto"):
            raise ValueError(
                f"norm={self.norm!r}: give a positive finite number (1e-6 to 1e6), 'auto' for "
                "that of an orthonormal transform, or None to leave it free."
            )
        for name, choices in (("objective", get_args(Objective)), ("variant", get_args(Variant))):
            check_choice(name, getattr(self, name), choices)
        if self.objective == "relative" and self.variant != "monotone":
            raise ValueError(
                f"objective='relative' with variant={self.variant!r}: the published algorithms "
                "minimise the absolute error only; use variant='monotone'."
            )
        check_count("n_rounds", self.n_rounds, "rounds", most=1000)  # 5 gain nearly all there is

    in_factors = True

    @property
    def monotone(self) -> bool:
        return self.variant == "monotone"

    @property
    def momentum(self) -> bool:
        """Not for published methods (a bound of 1 is one), nor for a norm that could vanish."""
        return self.monotone and self.max_condition > 1 and self.norm is not None

    @property
    def steps(self) -> Steps:
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

    def loss_scale(self, record: Record) -> float:
        return 1.0 if self.objective == "relative" else record.coef_norm

    def to_feasible(self, transform: Transform) -> Transform:
        """Project a start to the bound and, for the monotone variant, scale it to the norm.

        The published variants use a start for the first codes only, whatever its norm. The public
        code uses it unchanged.
        """
        if self.variant == "public":
            return as_matrix(transform)
        factors = bounded(transform, self.max_condition)
        return factors.scaled_to(self.norm) if self.variant == "monotone" else factors.matrix

    def extrapolate(self, last: Factors, updated: Factors, factor: float) -> Transform:
        return self.to_feasible(updated.extrapolated(last, factor))

    def starts(self, context: StartContext) -> list[Start] | None:
        """Several, where they are worth their passes.

        With a bound of 1 all lead to the same problem; with a free norm the absolute error has no
        scale at which starts could be compared.
        """
        comparable = self.norm is not None or self.objective == "relative"
        if self.variant != "monotone" or self.max_condition <= 1 or not comparable:
            return None
        return portfolio(self, context)

    def as_array(self, transform: Transform) -> NDArray:
        """Always within bound and norm: a published variant may hold a start that is not yet."""
        if not isinstance(transform, Factors):
            with single_threaded_blas():
                transform = bounded(transform, self.max_condition).scaled_to(self.norm)
        return transform.matrix

    def violation(self, spectrum: NDArray) -> str | None:
        norm, wanted = float(np.linalg.norm(spectrum)), norm_of(self.norm, len(spectrum))
        found = super().violation(spectrum)
        # Version 0.1 let published variants keep the norm of a start that stayed as it was.
        if found or self.variant != "monotone" or wanted is None:
            return found
        fits = abs(norm - wanted) <= SINGLE_SLACK * wanted
        return None if fits else f"the transform has norm {norm}, not {wanted}."


@dataclass(frozen=True)
class UnknownMethod(Method):
    """A custom method that was saved: a file has its description only."""

    description: str = "unknown"

    def update(self, statistics: Statistics, transform: NDArray) -> NDArray:  # noqa: ARG002
        raise TypeError(
            f"the file has the transform, but not the method that learned it, {self.description}: "
            "to resume, give the method again, method=...."
        )
