"""The statements of docs/mathematics.md, each checked on random cases."""

import itertools
import math

import numpy as np
import pytest
from helpers import orthogonal

import kappaform as kf
from kappaform.engines import Statistics
from kappaform.learning.updates import Constraints, Factors, update_conditioned, update_log_det
from kappaform.linalg import polar

CASES = range(20)


def _codes(coefs, s):
    """The s largest magnitudes of each row; random coefficients have no ties."""
    least = np.sort(np.abs(coefs), axis=1)[:, [-s]]
    return np.where(np.abs(coefs) >= least, coefs, 0.0)


def _problem(seed, n=5, s=2):
    """Random signals, factors within the bound 2, coefficients and codes."""
    rng = np.random.default_rng(seed)
    signals = rng.standard_normal((40, n)) @ rng.standard_normal((n, n))
    factors = Factors(orthogonal(rng, n), rng.uniform(1, 2, n), orthogonal(rng, n))
    coefs = signals @ factors.matrix.T
    return rng, signals, factors, coefs, _codes(coefs, s)


def _statistics(signals, coefs, codes):
    gram, cross = signals.T @ signals, codes.T @ signals
    kept, discarded = np.sum(codes**2), np.sum((coefs - codes) ** 2)
    return Statistics(gram, cross, kept, discarded, len(signals))


@pytest.mark.parametrize("seed", CASES)
def test_reconstruction_error_is_at_most_the_condition_number_times_the_relative_error(seed):
    _, signals, factors, coefs, codes = _problem(seed)
    rebuilt = codes @ np.linalg.inv(factors.matrix).T
    reconstruction = np.linalg.norm(signals - rebuilt) / np.linalg.norm(signals)
    relative = np.linalg.norm(coefs - codes) / np.linalg.norm(coefs)
    assert reconstruction <= np.linalg.cond(factors.matrix) * relative


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("seed", CASES)
def test_no_scales_of_orthogonal_rows_are_better_than_two_values(seed, relative):
    n, s, kappa = 4, 1, 3.0
    rng = np.random.default_rng(seed)
    coefs = rng.standard_normal((30, n)) @ np.diag(rng.uniform(0.2, 2, n)) @ orthogonal(rng, n)

    def error(scales):
        scaled = coefs * scales / np.linalg.norm(scales)
        lost = np.linalg.norm(scaled - _codes(scaled, s))
        return lost / np.linalg.norm(scaled) if relative else lost

    best = min(error(np.array(scales)) for scales in itertools.product([1.0, kappa], repeat=n))
    others = rng.uniform(1.0, kappa, (500, n))
    assert best <= min(error(scales) for scales in others) * (1 + 1e-12)
    assert error(np.ones(n)) > best


@pytest.mark.parametrize("seed", CASES)
def test_the_log_det_update_satisfies_the_gradient_condition(seed):
    rng, signals, factors, coefs, codes = _problem(seed)
    mu, rho = rng.uniform(0.1, 10, 2)
    gram, cross = signals.T @ signals, codes.T @ signals
    values, vectors = np.linalg.eigh(gram + rho * np.eye(5))
    root = (vectors * np.sqrt(values)) @ vectors.T
    statistics = _statistics(signals, coefs, codes)
    W = update_log_det(statistics, factors.matrix, root, np.linalg.inv(root), mu)
    gradient = W @ (gram + rho * np.eye(5)) - cross - mu / 2 * np.linalg.inv(W).T
    # The small alignment with the current transform moves the minimiser by about 1e-10.
    assert np.linalg.norm(gradient) <= 1e-8 * np.linalg.norm(cross)


@pytest.mark.parametrize("seed", CASES)
def test_products_are_non_negative_after_the_left_step(seed):
    _, signals, factors, _, codes = _problem(seed)
    target = codes.T @ signals @ factors.right * factors.spectrum
    products = np.einsum("ij,ij->j", polar(target), target)
    assert products.min() >= -1e-12 * np.linalg.norm(target)


@pytest.mark.parametrize("seed", CASES)
def test_the_linearisation_majorises_the_error_of_the_right_factor(seed):
    rng, signals, factors, _, codes = _problem(seed)
    G, V0, spectrum = signals.T @ signals, factors.right, factors.spectrum
    K = signals.T @ codes @ factors.left * spectrum
    A = G - np.linalg.eigvalsh(G)[0] * np.eye(5)
    D = np.diag(spectrum.max() ** 2 - spectrum**2)

    def error(V):
        return np.trace(V.T @ G @ V * spectrum**2) - 2 * np.vdot(V, K)

    V = orthogonal(rng, 5)
    majoriser = error(V0) - 2 * np.vdot(V - V0, K + A @ V0 @ D)
    gap = np.trace((V - V0).T @ A @ (V - V0) @ D)
    assert gap >= 0
    assert error(V) == pytest.approx(majoriser - gap, rel=1e-10)
    assert error(polar(K + A @ V0 @ D)) <= error(V0)


@pytest.mark.parametrize("seed", CASES)
def test_the_fraction_of_energy_in_the_codes_never_falls(seed):
    _, signals, factors, coefs, codes = _problem(seed)
    G, C = signals.T @ signals, codes.T @ signals
    share = np.sum(codes**2) / np.sum(coefs**2)

    def surrogate(W):
        return np.trace(W @ G @ W.T) - 2 * np.vdot(W, C) / share

    assert surrogate(factors.matrix) == pytest.approx(-np.sum(coefs**2), rel=1e-10)
    constraints = Constraints(kappa=2.0, norm=None, least=np.linalg.eigvalsh(G)[0], negligible=0.0)
    statistics = _statistics(signals, coefs, codes)
    W = update_conditioned(statistics, factors, "relative", constraints, n_rounds=3).matrix
    assert surrogate(W) <= surrogate(factors.matrix)
    moved = signals @ W.T
    assert np.sum(_codes(moved, 2) ** 2) / np.sum(moved**2) >= share


def test_projecting_and_then_rescaling_is_not_the_minimiser():
    weights, targets, norm = np.array([4.0, 1.0]), np.array([1.0, 2.0]), math.sqrt(1.64)

    def cost(spectrum):
        return float(weights @ (spectrum - targets) ** 2)

    free = kf.project_spectrum(targets, weights, 2.0)
    best = kf.project_spectrum(targets, weights, 2.0, norm)
    np.testing.assert_allclose(best, [0.8, 1.0], rtol=1e-12)
    assert cost(best) == pytest.approx(1.16)
    assert cost(free * norm / np.linalg.norm(free)) == pytest.approx(1.4606, abs=1e-4)


def test_a_norm_inside_a_jump_is_reached_between_two_minimisers():
    spectrum = kf.project_spectrum([0.0, 1.0], [1.0, 3.0], 2.0, norm=2.5)
    np.testing.assert_allclose(spectrum, [2.0, 1.5], rtol=1e-12)


def test_without_targets_the_cheapest_direction_takes_the_norm():
    spectrum = kf.project_spectrum([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], 2.0, norm=3.0)
    np.testing.assert_allclose(spectrum, np.sqrt([6.0, 1.5, 1.5]), rtol=1e-12)


@pytest.mark.parametrize("seed", CASES)
def test_a_proximal_polar_factor_is_no_worse_than_the_current_one_and_unmoved_by_rounding(seed):
    rng = np.random.default_rng(seed)
    near = orthogonal(rng, 6)
    matrix = rng.standard_normal((6, 4)) @ rng.standard_normal((4, 6))
    factor = polar(matrix, near=near)
    assert np.vdot(factor, matrix) >= np.vdot(near, matrix)
    rounded = matrix * (1 + 1e-16 * rng.standard_normal((6, 6)))
    np.testing.assert_allclose(polar(rounded, near=near), factor, atol=1e-4)


def _union_problem(seed, n=5, s=2, n_transforms=3, kappa=2.0):
    """Random signals, and transforms within the bound and of norm √n."""
    rng = np.random.default_rng(seed)
    signals = rng.standard_normal((120, n)) @ rng.standard_normal((n, n))
    transforms = []
    for _ in range(n_transforms):
        matrix = Factors(orthogonal(rng, n), rng.uniform(1, kappa, n), orthogonal(rng, n)).matrix
        transforms.append(matrix * math.sqrt(n) / np.linalg.norm(matrix))
    coefs = np.array([signals @ transform.T for transform in transforms])
    codes = np.array([_codes(each, s) for each in coefs])
    return rng, signals, np.array(transforms), coefs, codes


@pytest.mark.parametrize("seed", CASES)
def test_with_a_common_norm_losses_are_reconstruction_errors_up_to_the_bound(seed):
    kappa = 2.0
    _, signals, transforms, coefs, codes = _union_problem(seed, kappa=kappa)
    spectra = np.linalg.svd(transforms, compute_uv=False)
    assert spectra.max() <= kappa
    assert spectra.min() >= 1 / kappa
    losses = ((coefs - codes) ** 2).sum(axis=2)
    rebuilt = codes @ np.linalg.inv(transforms).transpose(0, 2, 1)
    lost = ((signals - rebuilt) ** 2).sum(axis=2)
    assert (losses <= kappa**2 * lost * (1 + 1e-9)).all()
    assert (lost <= kappa**2 * losses * (1 + 1e-9)).all()
    chosen = np.take_along_axis(lost, losses.argmin(axis=0)[np.newaxis], axis=0)[0]
    assert (chosen <= kappa**4 * lost.min(axis=0) * (1 + 1e-9)).all()


@pytest.mark.parametrize("seed", CASES)
def test_the_ratio_of_a_union_does_not_rise_where_the_difference_does_not(seed):
    """Dinkelbach's method: any transforms with Φ <= 0 do, here random ones close by."""
    rng, signals, transforms, coefs, codes = _union_problem(seed)
    discarded = ((coefs - codes) ** 2).sum(axis=2)
    energies = (coefs**2).sum(axis=2)
    rows, number = np.arange(len(signals)), discarded.argmin(axis=0)
    ratio = discarded[number, rows].sum() / energies[number, rows].sum()
    kept = codes[number, rows]

    def difference(candidates):
        found = np.einsum("ijk,ik->ij", candidates[number], signals)
        absolute = ((kept - found) ** 2).sum() - ratio * (found**2).sum()
        scaled = ((found - kept / (1 - ratio)) ** 2).sum()
        return absolute, (1 - ratio) * scaled

    zero, least = difference(transforms)
    assert zero == pytest.approx(0, abs=1e-9 * (kept**2).sum())
    accepted = 0
    for _ in range(60):
        others = transforms + 0.02 * rng.standard_normal(transforms.shape)
        phi, scaled = difference(others)
        assert phi - zero == pytest.approx(scaled - least, abs=1e-9 * least)  # up to a constant
        if phi <= 0:
            accepted += 1
            moved = np.array([signals @ other.T for other in others])
            lost = ((moved - np.array([_codes(each, 2) for each in moved])) ** 2).sum(axis=2)
            energy = (moved**2).sum(axis=2)
            new = (lost - ratio * energy).argmin(axis=0)
            assert lost[new, rows].sum() <= ratio * energy[new, rows].sum()
    assert accepted


@pytest.mark.parametrize("objective", ["absolute", "relative"])
def test_the_order_of_the_transforms_does_not_change_the_loss_of_a_union(objective):
    _, signals, transforms, _, _ = _union_problem(0)
    method, options = kf.Conditioned(2.0, objective=objective), {"n_nonzero_coefs": 2}
    losses = [
        kf.learn_union(
            signals, method, n_transforms=3, init=transforms[list(order)], max_iter=1, **options
        ).loss
        for order in itertools.permutations(range(3))
    ]
    np.testing.assert_allclose(losses, np.broadcast_to(losses[0], np.shape(losses)), rtol=1e-12)
