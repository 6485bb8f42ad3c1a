"""Each update against what it claims to minimise."""

from functools import partial

import naive
import numpy as np
import pytest

from kappaform.engines import engine_for
from kappaform.learning import Conditioned, LogDet, Orthonormal
from kappaform.learning.updates import (
    Constraints,
    Factors,
    decompose,
    fit_spectrum,
    least_squares,
    turn_right,
)
from kappaform.linalg import project_spectrum, random_basis

N, SPARSITY = 9, 3


def problem(rng, signals):
    """A random feasible transform, its statistics and its codes."""
    n = signals.shape[1]
    spectrum = rng.uniform(1, 3, n)
    factors = Factors(random_basis(n, rng), spectrum, random_basis(n, rng)).scaled_to(np.sqrt(n))
    codes = naive.hard_threshold(signals @ factors.matrix.T, SPARSITY)
    return factors, engine_for(signals).run_pass(factors.matrix, SPARSITY), codes


def squared_error(codes, signals, transform):
    return float(np.sum((codes - signals @ transform.T) ** 2))


def constraints_of(statistics, kappa, norm=None):
    values = np.linalg.eigvalsh(statistics.gram)
    return Constraints(kappa, norm, max(values[0], 0.0), 1e-14 * values[-1])


def test_no_orthonormal_transform_fits_the_codes_better(rng):
    signals = rng.standard_normal((200, N))
    factors, statistics, codes = problem(rng, signals)
    best = Orthonormal().updater(statistics.gram)(statistics, factors.matrix, "exact")
    np.testing.assert_allclose(best @ best.T, np.eye(N), atol=1e-13)
    for scale in (1e-3, 0.1, 10):
        other, _ = np.linalg.qr(best + scale * rng.standard_normal((N, N)))
        other *= np.sign(np.sum(other * best, axis=0))
        assert squared_error(codes, signals, best) <= squared_error(codes, signals, other)


@pytest.mark.parametrize("weights", [(0.1, None), (0.01, 0.5), (2.0, 1e-3)])
def test_log_det_update_is_a_stationary_point_of_the_penalised_error(rng, weights):
    signals = rng.standard_normal((200, N))
    factors, statistics, _ = problem(rng, signals)
    method = LogDet(*weights)
    transform = method.updater(statistics.gram)(statistics, factors.matrix, "exact")
    energy = np.sum(signals**2)
    mu, rho = energy * weights[0], energy * (weights[1] or weights[0])
    gradient = 2 * (transform @ statistics.gram - statistics.cross + rho * transform)
    gradient -= mu * np.linalg.inv(transform).T
    assert np.linalg.norm(gradient) <= 1e-10 * np.linalg.norm(statistics.gram)


def test_log_det_update_of_rank_deficient_data_does_not_depend_on_rounding(rng):
    signals = rng.standard_normal((200, N))
    signals -= signals.mean(axis=1, keepdims=True)
    factors, statistics, _ = problem(rng, signals)
    update = LogDet(0.1).updater(statistics.gram)
    transform = update(statistics, factors.matrix, "exact")
    noise = 1 + 1e-15 * rng.standard_normal((N, N))
    noisy = update(
        type(statistics)(statistics.gram, statistics.cross * noise, 1.0, 1.0, 200),
        factors.matrix,
        "exact",
    )
    assert np.abs(noisy - transform).max() < 1e-4


def test_no_spectrum_within_the_bound_fits_the_codes_better(rng):
    signals = rng.standard_normal((200, N)) * np.logspace(0, -3, N)
    factors, statistics, codes = problem(rng, signals)
    for kappa, norm in ((1.5, None), (3.0, None), (1.5, 3.0), (10.0, 3.0)):
        constraints = constraints_of(statistics, kappa, norm)
        project = partial(project_spectrum, norm=norm)
        best = fit_spectrum(
            factors.left, factors, statistics.gram, statistics.cross, constraints, project
        )
        error = squared_error(codes, signals, best.matrix)
        assert best.spectrum.max() <= kappa * best.spectrum.min() * (1 + 1e-12)
        for _ in range(200):
            other = best.spectrum * np.exp(0.1 * rng.standard_normal(N))
            floor = max(other.min(), other.max() / kappa)
            other = np.clip(other, floor, kappa * floor)
            if norm is not None:
                other *= norm / np.linalg.norm(other)
            tried = squared_error(codes, signals, (best.left * other) @ best.right.T)
            assert error <= tried * (1 + 1e-12)


def test_turning_the_right_vectors_never_increases_the_error(rng, signals):
    factors, statistics, codes = problem(rng, signals)
    least = max(np.linalg.eigvalsh(statistics.gram)[0], 0.0)
    error = squared_error(codes, signals, factors.matrix)
    scale = np.sum((signals @ factors.matrix.T) ** 2)
    for _ in range(10):
        factors = turn_right(factors, statistics.gram, statistics.cross, least)
        new = squared_error(codes, signals, factors.matrix)
        assert new <= error + 1e-13 * scale
        error = new


def test_turning_is_a_procrustes_problem_where_the_spectrum_is_flat(rng):
    signals = rng.standard_normal((200, N))
    factors, statistics, _ = problem(rng, signals)
    flat = Factors(factors.left, np.ones(N), factors.right)
    turned = turn_right(flat, statistics.gram, statistics.cross, 0.0)
    left, _, right = np.linalg.svd(statistics.cross)
    np.testing.assert_allclose(turned.matrix, left @ right, atol=1e-8)


@pytest.mark.parametrize("steps", ["exact", "rescale", "relative"])
def test_the_first_round_is_a_procrustes_problem_where_the_bound_is_one(rng, steps):
    signals = rng.standard_normal((200, N))
    method = Conditioned(1.0)
    start = method.to_feasible(problem(rng, signals)[0])
    statistics = engine_for(signals).run_pass(start.matrix, SPARSITY)
    one, many = (
        Conditioned(1.0, n_rounds=number).updater(statistics.gram)(statistics, start, steps).matrix
        for number in (1, 5)
    )
    np.testing.assert_array_equal(one, many)
    left, _, right = np.linalg.svd(statistics.cross)
    np.testing.assert_allclose(one, left @ right, atol=1e-7)


def test_more_rounds_lower_the_error_where_the_bound_is_not_one(rng):
    signals = rng.standard_normal((200, N)).cumsum(axis=1)
    start = Conditioned(4.0).to_feasible(problem(rng, signals)[0])
    codes = naive.hard_threshold(signals @ start.matrix.T, SPARSITY)
    statistics = engine_for(signals).run_pass(start.matrix, SPARSITY)
    one, many = (
        Conditioned(4.0, n_rounds=number).updater(statistics.gram)(statistics, start, "exact")
        for number in (1, 5)
    )
    assert squared_error(codes, signals, many.matrix) < squared_error(codes, signals, one.matrix)


@pytest.mark.parametrize("kappa", [1.0, 1.2, 2.0, 100.0, 1e6])
def test_exact_update_never_increases_the_error_and_keeps_bound_and_norm(rng, signals, kappa):
    method = Conditioned(kappa)
    start = method.to_feasible(problem(rng, signals)[0])
    codes = naive.hard_threshold(signals @ start.matrix.T, SPARSITY)
    statistics = engine_for(signals).run_pass(start.matrix, SPARSITY)
    new = method.updater(statistics.gram)(statistics, start, "exact")
    scale = np.sum((signals @ start.matrix.T) ** 2)
    before, after = (squared_error(codes, signals, each.matrix) for each in (start, new))
    assert after <= before + 1e-13 * scale
    singular = np.linalg.svd(new.matrix, compute_uv=False)
    assert singular[0] <= kappa * singular[-1] * (1 + 1e-9)
    assert np.linalg.norm(new.matrix) == pytest.approx(np.sqrt(N), rel=1e-12)


def test_updates_leave_the_transform_alone_where_all_codes_are_zero(rng):
    signals = rng.standard_normal((50, N))
    factors, _, _ = problem(rng, signals)
    nothing = engine_for(signals).run_pass(factors.matrix, 0)
    for variant in ("monotone", "paper", "reference", "public"):
        update = Conditioned(2.0, variant=variant).updater(nothing.gram)
        assert update(nothing, factors, "exact") is factors
    matrix = random_basis(N, rng)
    assert Orthonormal().updater(nothing.gram)(nothing, matrix, "exact") is matrix


def test_least_squares_is_the_unconstrained_minimiser(rng):
    signals = rng.standard_normal((50, N))
    _, statistics, codes = problem(rng, signals)
    oracle = np.linalg.lstsq(signals, codes, rcond=None)[0].T
    np.testing.assert_allclose(least_squares(statistics), oracle, atol=1e-12)


def test_factors_of_a_matrix_multiply_to_it(rng):
    for matrix in (rng.standard_normal((N, N)), 3 * random_basis(N, rng), np.zeros((N, N))):
        factors = decompose(matrix)
        np.testing.assert_allclose(factors.matrix, matrix, atol=1e-14 * (1 + np.abs(matrix).max()))
        for side in (factors.left, factors.right):
            np.testing.assert_allclose(side @ side.T, np.eye(N), atol=1e-13)
