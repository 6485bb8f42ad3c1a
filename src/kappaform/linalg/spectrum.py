"""The condition bound, exactly: the best spectrum whose condition number is at most kappa."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Relative error of a sum of squares that counts as rounding.
_ROUNDING = 1e-14


def project_spectrum(
    targets: ArrayLike, weights: ArrayLike, max_condition: float, norm: float | None = None
) -> NDArray:
    r"""Closest spectrum whose condition number is at most `max_condition`.

    .. math:: \min_{\ell \ge 0,\, \sigma} \sum_i w_i (\sigma_i - t_i)^2
              \quad \text{s.t.} \quad \ell \le \sigma_i \le \kappa \ell
              \quad (\text{and } \|\sigma\|_2 = \tau \text{ with a norm})

    Without a norm the solution for a given floor is clip(t, floor, kappa * floor). What remains is
    convex in the floor, with a piecewise linear derivative whose knots are t and t / kappa:
    interpolating between the two knots around its sign change gives the minimiser exactly.

    With a norm the problem is convex in the squares of the spectrum, and its Lagrangian is the
    problem without a norm for the weights w + lambda. The norm of that solution never rises with
    lambda: a bracketed Newton search finds the multiplier.

    Parameters
    ----------
    targets : array of shape (n,), non-negative
        What each singular value would be if there were no bound.
    weights : array of shape (n,), non-negative
        What a deviation costs. Entries of weight zero do not decide the floor; without a norm they
        are their target clipped to the bounds, with one they absorb what the norm leaves.
    max_condition : float in [1, inf]
    norm : float > 0 or None
        Euclidean norm of the spectrum; None leaves it free.

    Returns
    -------
    array of shape (n,), in the order of `targets`
    """
    targets, weights = _checked(targets, weights, max_condition, norm)
    if norm is not None and max_condition == 1:
        return np.full(targets.size, norm / math.sqrt(targets.size))
    # Powers of two: squares can neither overflow nor underflow, and nothing is rounded.
    unit = _power_of_two(targets.max() if norm is None else max(targets.max(), norm))
    targets = targets / unit
    weights = weights / _power_of_two(weights.max())
    if norm is None:
        return unit * _project_free(targets, weights, max_condition)
    return unit * np.sqrt(_project_on_sphere(targets, weights, max_condition, norm / unit))


def _project_free(targets: NDArray, weights: NDArray, kappa: float) -> NDArray:
    if kappa == math.inf:
        return targets.copy()
    counted = weights > 0
    if not counted.any():
        counted, weights = ~counted, np.ones_like(weights)
    floor, _ = _best_floor(weights[counted], (weights * targets)[counted], kappa)
    return np.clip(targets, floor, kappa * floor)


def _best_floor(quadratic: NDArray, linear: NDArray, kappa: float) -> tuple[float, float]:
    r"""Best floor of :math:`\min \sum_i q_i \sigma_i^2 - 2 b_i \sigma_i` on the condition cone.

    Also its derivative with respect to a shift of all q_i. Entries with q_i <= 0 (b_i >= 0) are at
    the ceiling for every floor; where they outweigh the rest, the floor is infinite.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        target = np.where(quadratic > 0, linear / quadratic, math.inf)
    order = np.argsort(target, kind="stable")
    target, quadratic, linear = target[order], quadratic[order], linear[order]
    lowered = target / kappa

    # Sums over the entries at the floor (a prefix) and at the ceiling (a suffix): never differences.
    prefix_q, prefix_b = _prefix_sums(quadratic), _prefix_sums(linear)
    suffix_q, suffix_b = _prefix_sums(quadratic[::-1])[::-1], _prefix_sums(linear[::-1])[::-1]

    knots = np.concatenate((lowered, target))
    knots = np.sort(knots[np.isfinite(knots)])
    at_floor = np.searchsorted(target, knots, side="right")
    at_ceiling = np.searchsorted(lowered, knots, side="left")
    curvature = prefix_q[at_floor] + kappa**2 * suffix_q[at_ceiling]
    slope = knots * curvature - (prefix_b[at_floor] + kappa * suffix_b[at_ceiling])
    rising = np.flatnonzero(slope >= 0)

    # Between two knots the sets do not change: those below are the prefix at the lower one, those
    # above the suffix at the upper one.
    k = rising[0] if rising.size else knots.size
    lower, upper = (knots[k - 1] if k else 0.0), (knots[k] if k < knots.size else math.inf)
    i = np.searchsorted(target, lower, side="right") if k else 0
    j = np.searchsorted(lowered, upper, side="left")
    count = i + kappa**2 * (target.size - j)
    if count == 0:
        return float(upper), 0.0
    curvature = prefix_q[i] + kappa**2 * suffix_q[j]
    if curvature <= 0:
        return float(upper), 0.0
    floor = (prefix_b[i] + kappa * suffix_b[j]) / curvature
    if not lower <= floor <= upper:
        return float(min(max(floor, lower), upper)), 0.0
    return float(floor), float(-floor * count / curvature)


def _prefix_sums(values: NDArray) -> NDArray:
    return np.concatenate(([0.0], np.cumsum(values)))


def _squares(
    shift: float, weights: NDArray, linear: NDArray, kappa: float
) -> tuple[NDArray, float]:
    """Squared spectrum that minimises the Lagrangian at `shift`, and the derivative of its sum.

    An infinite sum says that the Lagrangian has no minimum there.
    """
    quadratic = weights + shift
    with np.errstate(divide="ignore", invalid="ignore"):
        target = np.where(quadratic > 0, linear / quadratic, math.inf)
        target_slope = np.where(quadratic > 0, -target / quadratic, 0.0)
    if kappa == math.inf:
        return np.square(target), 2 * float(np.sum(target * target_slope))
    floor, floor_slope = _best_floor(quadratic, linear, kappa)
    if floor == math.inf:
        return np.full(weights.size, math.inf), 0.0
    spectrum = np.clip(target, floor, kappa * floor)
    slope = np.where(
        target <= floor,
        floor_slope,
        np.where(target >= kappa * floor, kappa * floor_slope, target_slope),
    )
    return np.square(spectrum), 2 * float(np.sum(spectrum * slope))


def _project_on_sphere(targets: NDArray, weights: NDArray, kappa: float, norm: float) -> NDArray:
    """Squared spectrum of the problem with a norm."""
    linear = weights * targets
    radius = norm**2
    # At the lower end the Lagrangian has no minimum; at the upper end the norm is too small, as it
    # is, without a call, for the zero spectrum.
    low = _unbounded_below(weights, kappa)
    high = math.sqrt(targets.size) * linear.max() / norm + max(weights.max(), 1.0) - weights.min()
    beyond, within = None, np.zeros_like(weights)
    shift, step = (0.0 if low < 0 else 0.5 * high), math.inf
    while low < shift < high:
        squares, slope = _squares(shift, weights, linear, kappa)
        total = float(np.sum(squares))
        if total >= radius:
            low, beyond = shift, (squares if total < math.inf else None)
        else:
            high, within = shift, squares
        if abs(total - radius) <= _ROUNDING * radius:
            break
        # Newton where it stays in the bracket and its steps shrink, else the middle.
        newton = _newton_step(total, slope, radius)
        if low < shift + newton < high and abs(newton) < 0.5 * step:
            shift, step = shift + newton, abs(newton)
        else:
            shift, step = 0.5 * (low + high), high - low
    return _on_sphere(within, beyond, low, weights, kappa, radius)


def _unbounded_below(weights: NDArray, kappa: float) -> float:
    r"""Largest shift at which some direction of the cone costs nothing.

    The cheapest direction of the cone has the k lightest entries at the ceiling, for some k, and
    the others at the floor: each k gives the shift at which its cost is zero.
    """
    if kappa == math.inf:
        return -float(weights.min())
    light = _prefix_sums(np.sort(weights))
    k = np.arange(weights.size + 1)
    cost = (light[-1] - light) + kappa**2 * light
    return float(np.max(-cost / (weights.size - k + kappa**2 * k)))


def _newton_step(total: float, slope: float, radius: float) -> float:
    """Step towards 1 / norm = 1 / tau, which is nearly linear in the shift."""
    if total == math.inf or slope >= 0:
        return math.nan
    return 2 * total / slope * (1 - math.sqrt(total / radius))


def _on_sphere(
    within: NDArray,
    beyond: NDArray | None,
    low: float,
    weights: NDArray,
    kappa: float,
    radius: float,
) -> NDArray:
    """Point of the sphere between two minimisers for (nearly) the same multiplier.

    The minimisers of a convex problem form a convex set: where the norm jumps, every point between
    is optimal, and beyond an unbounded end so is every step along its direction.
    """
    inside = float(np.sum(within))
    if beyond is None:
        heavy = 1.0 if kappa < math.inf else 0.0
        light = kappa**2 if kappa < math.inf else 1.0
        direction = np.where(weights + low > 0, heavy, light)
        return within + (radius - inside) / np.sum(direction) * direction
    theta = (radius - inside) / (float(np.sum(beyond)) - inside)
    return within + theta * (beyond - within)


def _power_of_two(value: float) -> float:
    return math.ldexp(1.0, math.frexp(value)[1]) if value > 0 else 1.0


def _checked(
    targets: ArrayLike, weights: ArrayLike, max_condition: float, norm: float | None
) -> tuple[NDArray, NDArray]:
    targets = np.asarray(targets, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    if targets.ndim != 1 or targets.size == 0:
        raise ValueError(f"targets has shape {targets.shape}: give one value per direction, (n,).")
    if weights.shape != targets.shape:
        raise ValueError(
            f"weights has shape {weights.shape} and targets {targets.shape}: give one weight per target."
        )
    for name, values in (("targets", targets), ("weights", weights)):
        bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if bad.size:
            raise ValueError(
                f"{name}[{bad[0]}]={values[bad[0]]}: {name} must be finite and non-negative"
                + (" (flip the sign of a singular vector instead)." if name == "targets" else ".")
            )
    if not max_condition >= 1:
        raise ValueError(
            f"max_condition={max_condition}: no matrix has a condition number below 1."
        )
    if norm is not None and not 0 < norm < math.inf:
        raise ValueError(
            f"norm={norm}: the norm must be positive and finite, or None to leave it free."
        )
    return targets, weights
