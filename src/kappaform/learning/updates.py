r"""Transform updates: statistics in, transform out.

With the codes fixed, :math:`f(W) = \mathrm{tr}(W G W^T) - 2 \langle W, C \rangle + \|X\|^2`: an
update sees the gram matrix G and the cross matrix C only, never the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Statistics
from kappaform.linalg import closest_spectrum, polar, svd
from kappaform.linalg.orthogonal import PROXIMITY

_EPS = float(np.finfo(np.float64).eps)
# Relative spread of a spectrum that counts as one value. Orthonormal bases have 2e-15 in float64
# (DCT and random ones, n up to 1024), and 7e-8 rounded to float32: these are not changed.
_SPREAD_OF_ROUNDING = 1e-8
# Sums of float32 signals contain rounding where the signals have no energy: with the usual proximal
# term, 1e-10, it decided the result (docs/mathematics.md, section 8).
_LARGEST_PROXIMITY = 1e-8
_LEAST_NORM = 1e-6  # of a transform whose norm is free: the least that can be asked for


@dataclass(frozen=True, eq=False)
class Factors:
    """Singular value decomposition W = left @ diag(spectrum) @ right.T, as the updates move it."""

    left: NDArray
    spectrum: NDArray
    right: NDArray

    @cached_property
    def matrix(self) -> NDArray:
        return (self.left * self.spectrum) @ self.right.T

    def scaled_to(self, norm: float | str | None) -> Factors:
        """The same scaled to a norm; None leaves it, unless it is all but zero."""
        found, norm = float(np.linalg.norm(self.spectrum)), norm_of(norm, len(self.spectrum))
        if norm is None and found >= _LEAST_NORM:
            return self
        scale = (norm or _LEAST_NORM) / found
        return Factors(self.left, self.spectrum * scale, self.right)

    def extrapolated(self, last: Factors, factor: float) -> Factors:
        """Each of the three moved on from `last` to here, and `factor` times as far again.

        Extrapolating their product would leave its factors open where singular values are equal.
        """
        left = polar(self.left + factor * (self.left - last.left), near=self.left)
        # The sign of a right vector may have changed (`fit_spectrum`): that is no direction.
        last_right = last.right * np.sign(np.einsum("ij,ij->j", self.right, last.right))
        right = polar(self.right + factor * (self.right - last_right), near=self.right)
        spectrum = self.spectrum + factor * (self.spectrum - last.spectrum)
        return Factors(left, np.maximum(spectrum, 0.0), right)


Transform = NDArray | Factors

# "exact" steps keep the norm and never increase the absolute error; "relative" ones never increase
# the relative error. "rescale" steps project without the norm and then rescale: they guarantee
# nothing, and often lead further than exact ones.
Steps = Literal["exact", "rescale", "relative"]


def as_matrix(transform: Any) -> NDArray:
    """The matrix of a transform, or those of the transforms of a union."""
    return transform if isinstance(transform, np.ndarray) else transform.matrix


def norm_of(norm: float | str | None, n_features: int) -> float | None:
    """The requested norm as a number; None leaves it free."""
    if norm is None:
        return None
    return math.sqrt(n_features) if norm == "auto" else float(norm)


def kappa_of(max_condition: float, n_features: int) -> float:
    """Bound for the spectrum that still holds after the product of the factors is rounded.

    Rounding moves every singular value by up to about n * eps times the largest one.
    """
    return max(1.0, max_condition / (1 + n_features * _EPS * max_condition))


@dataclass(frozen=True)
class Constraints:
    """Constraints on the factors, and the scale of the gram matrix."""

    kappa: float
    norm: float | None
    least: float  #: smallest eigenvalue of the gram matrix
    negligible: float  #: energy of a direction that is rounding only
    proximity: float = PROXIMITY  #: below the weight of directions of the smallest singular value


def constraints_of(max_condition: float, norm: float | str | None, gram: NDArray) -> Constraints:
    """Constraints on the transform of signals with this gram matrix."""
    n_features, values = len(gram), np.linalg.eigvalsh(gram)
    kappa = kappa_of(max_condition, n_features)
    return Constraints(
        kappa=kappa,
        norm=norm_of(norm, n_features),
        least=max(float(values[0]), 0.0),
        negligible=n_features * _EPS * float(values[-1]),
        proximity=min(max(0.01 / kappa**2, PROXIMITY), _LARGEST_PROXIMITY),
    )


def update_log_det(
    statistics: Statistics, transform: NDArray, root: NDArray, inverse_root: NDArray, weight: float
) -> NDArray:
    r"""Minimiser of the penalised error, in closed form.

    With :math:`L = (G + \rho I)^{1/2}` and :math:`C L^{-1} = R \, \mathrm{diag}(s) \, Q^T` it is
    :math:`W = R \, \mathrm{diag}\big(\tfrac12 (s + \sqrt{s^2 + 2 \mu})\big) Q^T L^{-1}`.
    """
    target = statistics.cross @ inverse_root
    # Where the data say nothing (s = 0) the current transform decides, not rounding.
    current = transform @ root
    nudge = PROXIMITY * (np.linalg.norm(target) or 1.0) / np.linalg.norm(current)
    left, _, right = svd(target + nudge * current)
    singular = np.einsum("ji,ji->i", left, target @ right.T)
    singular = 0.5 * (singular + np.sqrt(singular**2 + 2 * weight))
    return (left * singular) @ right @ inverse_root


def update_conditioned(
    statistics: Statistics, factors: Factors, steps: Steps, constraints: Constraints, n_rounds: int
) -> Factors:
    r"""Rounds of left, spectrum and right steps, none of which increases the error of `steps`.

    For the relative objective, :math:`\|X\|^2 / \|Z\|^2 = \theta` never decreases when the same
    steps are done, without a norm, for the cross matrix divided by theta.
    """
    cross = statistics.cross
    if not cross.any():
        return factors
    if steps == "relative":
        kept, discarded = statistics.code_energy, statistics.discarded_energy
        cross = cross * ((kept + discarded) / kept)
    project: Callable[..., NDArray] = closest_spectrum
    if constraints.norm is None:
        project = _project_free
    elif steps == "exact":
        project = partial(closest_spectrum, norm=constraints.norm)
    for _ in range(n_rounds):
        left = polar(cross @ factors.right * factors.spectrum, factors.left, constraints.proximity)
        factors = fit_spectrum(left, factors, statistics.gram, cross, constraints, project)
        if steps == "rescale":
            factors = factors.scaled_to(constraints.norm)
        if constraints.kappa <= 1:
            break  # a multiple of the polar factor of the cross matrix: no further step changes it
        factors = turn_right(
            factors, statistics.gram, cross, constraints.least, constraints.proximity
        )
    return factors.scaled_to(constraints.norm) if steps == "relative" else factors


def _project_free(targets: NDArray, weights: NDArray, max_condition: float) -> NDArray:
    """The closest spectrum of a norm of at least 1e-6.

    The absolute error shrinks with the transform: without a limit both would vanish in rounding.
    """
    spectrum = closest_spectrum(targets, weights, max_condition)
    if np.linalg.norm(spectrum) < _LEAST_NORM:
        return closest_spectrum(targets, weights, max_condition, _LEAST_NORM)
    return spectrum


def fit_spectrum(
    left: NDArray,
    factors: Factors,
    gram: NDArray,
    cross: NDArray,
    constraints: Constraints,
    project: Callable[..., NDArray] = closest_spectrum,
) -> Factors:
    """Spectrum for fixed singular vectors, within the bound: by default the best one."""
    right = factors.right
    weights = np.einsum("ij,ij->j", right, gram @ right)
    products = np.einsum("ij,ij->j", left, cross @ right)
    right = np.where(products < 0, -right, right)
    seen = weights > constraints.negligible
    # Where the signals have no energy every value fits: the current one stays, within the bound.
    targets = np.where(seen, np.abs(products) / np.where(seen, weights, 1.0), factors.spectrum)
    spectrum = project(targets, np.where(seen, weights, 0.0), constraints.kappa)
    return Factors(left, spectrum, right)


def turn_right(
    factors: Factors, gram: NDArray, cross: NDArray, least: float, proximity: float = PROXIMITY
) -> Factors:
    r"""Right singular vectors that do not increase the error, for fixed left ones and spectrum.

    On the orthogonal group :math:`\mathrm{tr}(V^T G V \Sigma^2)` is, up to a constant, the concave
    :math:`-\mathrm{tr}(V^T (G - g_{\min} I) V (\sigma_{\max}^2 I - \Sigma^2))`. Its linearisation
    at the current V majorises it, and what remains is a Procrustes problem.
    """
    left, spectrum, right = factors.left, factors.spectrum, factors.right
    slack = spectrum.max() ** 2 - spectrum**2
    target = (cross.T @ left) * spectrum + (gram @ right - least * right) * slack
    return Factors(left, spectrum, polar(target, right, proximity))


def least_squares(statistics: Statistics) -> NDArray:
    """Transform of least error for the codes, without any constraint."""
    inverse = np.linalg.pinv(statistics.gram, rcond=len(statistics.gram) * _EPS, hermitian=True)
    return statistics.cross @ inverse


def as_factors(transform: Transform) -> Factors:
    return transform if isinstance(transform, Factors) else decompose(transform)


def decompose(matrix: NDArray) -> Factors:
    """Factors of a matrix; those of a multiple of an orthonormal one are (itself, scale, identity).

    All decompositions of such a matrix are valid, and this one was the best start.
    """
    left, spectrum, right = svd(matrix)
    if spectrum[0] <= spectrum[-1] * (1 + _SPREAD_OF_ROUNDING):
        scale = float(np.mean(spectrum))
        return Factors(left @ right, np.full(len(matrix), scale), np.eye(len(matrix)))
    return Factors(left, spectrum, right.T)


def bounded(transform: Transform, max_condition: float) -> Factors:
    """Factors of the nearest transform with the same singular vectors whose product is bounded."""
    factors = as_factors(transform)
    return project_condition(factors, kappa_of(max_condition, len(factors.spectrum)))


def project_condition(transform: Transform, kappa: float) -> Factors:
    """Factors of the nearest transform with the same singular vectors and this bound."""
    factors = as_factors(transform)
    spectrum = closest_spectrum(factors.spectrum, np.ones(len(factors.spectrum)), kappa)
    return Factors(factors.left, spectrum, factors.right)
