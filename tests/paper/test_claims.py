"""What docs/paper.md says of the paper: a printed claim fails on a small case, the corrected holds.

In the notation of the paper: one signal per column, r the norms, d the products, l the floor.
"""

import csv
import itertools
import math

import numpy as np
import pytest
from helpers import orthogonal
from scipy.optimize import approx_fprime, minimize_scalar

import kappaform as kf
from kappaform.engines import Statistics
from kappaform.learning.updates import update_log_det

CASES = range(20)
QUARTER_TURN = np.array([[0.0, -1.0], [1.0, 0.0]])


def _polar(matrix):
    left, _, right = np.linalg.svd(matrix)
    return left @ right


def _all_orthogonal_2x2():
    """Rotations and reflections, a tenth of a degree apart."""
    for angle in np.arange(0, 2 * math.pi, math.pi / 1800):
        c, s = math.cos(angle), math.sin(angle)
        yield np.array([[c, -s], [s, c]])
        yield np.array([[c, s], [s, -c]])


def _spectrum_case(seed, n=6):
    """Products, norms and a bound that the ratios d / r, from 0.1 to 1, do not keep."""
    rng = np.random.default_rng(seed)
    ratios = rng.permutation([0.1, 1.0, *rng.uniform(0.1, 1, n - 2)])
    r = rng.uniform(0.2, 3, n)
    return rng, ratios * r, r, rng.uniform(1.1, 6)


def _cost(floor, d, r, kappa):
    """g of the theorem, without its sets: the least error within the bounds of the floor."""
    return float(np.sum((np.clip(d, floor * r, kappa * floor * r) - d) ** 2))


def _best_floor(d, r, kappa):
    found = minimize_scalar(
        _cost, bounds=(0, np.max(d / r)), args=(d, r, kappa), options={"xatol": 1e-12}
    )
    return float(found.x)


def _right_sides(floor, d, r, kappa, squares):
    """Right sides of the equations for l* and g(l*) at a floor, with these in the denominators."""
    at_floor, at_ceiling = d <= floor * r, d >= kappa * floor * r
    pull = r[at_floor] @ d[at_floor] + kappa * (r[at_ceiling] @ d[at_ceiling])
    curvature = squares[at_floor].sum() + kappa**2 * squares[at_ceiling].sum()
    energy = np.sum(d[at_floor] ** 2) + np.sum(d[at_ceiling] ** 2)
    return pull / curvature, energy - pull**2 / curvature


# --- The theorem: its floor -----------------------------------------------------------------------


def test_the_printed_floor_is_not_the_minimiser():
    d, r, kappa = np.array([1.0, 10.0]), np.array([1.0, 2.0]), 2.0
    floor = _best_floor(d, r, kappa)
    assert floor == pytest.approx(41 / 17, rel=1e-6)
    assert _right_sides(floor, d, r, kappa, r**2) == pytest.approx((41 / 17, 36 / 17))
    printed, printed_cost = _right_sides(floor, d, r, kappa, d**2)
    assert printed == pytest.approx(41 / 401)
    assert _cost(printed, d, r, kappa) > 40 * _cost(floor, d, r, kappa)
    assert printed_cost > 40 * _cost(floor, d, r, kappa)


@pytest.mark.parametrize("seed", CASES)
def test_the_floor_has_the_squared_norms_in_its_denominators(seed):
    _, d, r, kappa = _spectrum_case(seed)
    floor = _best_floor(d, r, kappa)
    expected = pytest.approx((floor, _cost(floor, d, r, kappa)), rel=1e-5)
    assert _right_sides(floor, d, r, kappa, r**2) == expected
    assert _right_sides(floor, d, r, kappa, d**2) != expected


@pytest.mark.parametrize("seed", CASES)
def test_the_printed_floor_is_that_of_the_restated_problem_where_d_and_r_are_exchanged(seed):
    _, r, d, kappa = _spectrum_case(seed)
    targets = r / d

    def cost(floor):
        return np.sum((d * (np.clip(targets, floor, kappa * floor) - targets)) ** 2)

    floor = minimize_scalar(cost, bounds=(0, targets.max()), options={"xatol": 1e-12}).x
    at_floor, at_ceiling = targets <= floor, targets >= kappa * floor
    pull = r[at_floor] @ d[at_floor] + kappa * (r[at_ceiling] @ d[at_ceiling])
    printed = pull / (np.sum(d[at_floor] ** 2) + kappa**2 * np.sum(d[at_ceiling] ** 2))
    assert printed == pytest.approx(floor, rel=1e-5)


# --- Section 4: what the bound compares ----------------------------------------------------------


def _spread(values):
    return values.max() / values.min()


def test_with_the_printed_hypothesis_the_minimum_need_not_be_unique():
    d = r = np.array([1.0, 2.0])
    assert _spread(d * r) > 2 > 1
    assert [_cost(floor, d, r, 2.0) for floor in (0.5, 0.75, 1.0)] == [0, 0, 0]


def test_a_bound_on_the_printed_products_does_not_make_d_the_solution():
    d, r = np.array([1.0, 4.0]), np.array([4.0, 1.0])
    assert _spread(d * r) == 1
    assert _cost(_best_floor(d, r, 2.0), d, r, 2.0) > 5


@pytest.mark.parametrize("seed", CASES)
def test_d_is_the_solution_exactly_if_its_ratios_to_r_keep_the_bound(seed):
    _, d, r, kappa = _spectrum_case(seed)
    assert _cost(_best_floor(d, r, kappa), d, r, kappa) > 1e-6
    assert _cost(np.min(d / r), d, r, _spread(d / r) * (1 + 1e-12)) < 1e-20


@pytest.mark.parametrize("seed", CASES)
def test_with_a_bound_of_one_the_solution_is_a_multiple_of_r_not_of_ones(seed):
    _, d, r, _ = _spectrum_case(seed)
    floor = _best_floor(d, r, 1.0)
    assert floor == pytest.approx((r @ d) / (r @ r), rel=1e-6)
    assert _spread(floor * r) > 1


# --- The theorem: growth --------------------------------------------------------------------------


def _growth(d, r, kappa, floor):
    """The factor in the quadratic growth, the minimum of part (iii) without its half."""
    at_floor, at_ceiling = d <= floor * r, d >= kappa * floor * r
    least = r.min() ** 2
    squares = np.sum(r[at_floor] ** 2), np.sum(r[at_ceiling] ** 2)
    return min(squares[0] + kappa**2 * least, least + kappa**2 * squares[1])


def test_the_growth_fails_beyond_the_largest_ratio_over_kappa():
    d, r, kappa = np.array([1.0, 10.0]), np.ones(2), 5.0
    best = 51 / 26
    gain = _cost(20.0, d, r, kappa) - _cost(best, d, r, kappa)
    assert gain < 0.11 * (0.5 * _growth(d, r, kappa, best) * (20 - best) ** 2)


def test_the_growth_without_its_half_fails_below_the_smallest_ratio():
    d, r, kappa = np.array([1.0, 10.0]), np.ones(2), 5.0
    best = 51 / 26
    gain = _cost(0.5, d, r, kappa) - _cost(best, d, r, kappa)
    growth = _growth(d, r, kappa, best) * (0.5 - best) ** 2
    assert 0.5 * growth < gain < 0.999 * growth


@pytest.mark.parametrize("seed", CASES)
def test_the_growth_holds_up_to_the_largest_ratio_over_kappa(seed):
    rng, d, r, kappa = _spectrum_case(seed)
    best = _best_floor(d, r, kappa)
    least, largest = np.min(d / r), np.max(d / r) / kappa
    assert least < best < largest
    factor, low = _growth(d, r, kappa, best), _cost(best, d, r, kappa)
    for floor in rng.uniform(least, largest, 50):
        assert _cost(floor, d, r, kappa) - low >= factor * (floor - best) ** 2 - 1e-9
    for floor in rng.uniform(0, least, 50):
        assert _cost(floor, d, r, kappa) - low >= 0.5 * factor * (floor - best) ** 2 - 1e-9


# --- Section 3: the steps ------------------------------------------------------------------------


def _factored_case(seed, n=4, m=9):
    rng = np.random.default_rng(seed)
    Y, X = rng.standard_normal((2, n, m))
    return Y, X, orthogonal(rng, n), orthogonal(rng, n), rng.uniform(0.5, 2, n)


@pytest.mark.parametrize("seed", CASES)
def test_the_completed_square_holds_the_scaled_value_not_its_square(seed):
    Y, X, U, V, spectrum = _factored_case(seed)
    r = np.linalg.norm(Y.T @ V, axis=0)
    d = np.einsum("ji,ji->i", Y.T @ V, X.T @ U) / r
    scaled, rest = spectrum * r, np.sum(X**2) - np.sum(d**2)
    error = np.sum((U.T @ X - spectrum[:, None] * (V.T @ Y)) ** 2)
    assert np.sum((scaled - d) ** 2) + rest == pytest.approx(error, rel=1e-10)
    assert np.sum((scaled**2 - d) ** 2) + rest != pytest.approx(error, rel=0.01)


@pytest.mark.parametrize("seed", CASES)
def test_the_spectrum_without_a_bound_is_d_over_r_not_r_over_d(seed):
    Y, X, U, V, _ = _factored_case(seed)
    r = np.linalg.norm(Y.T @ V, axis=0)
    d = np.einsum("ji,ji->i", Y.T @ V, X.T @ U) / r
    pairs = zip(V.T @ Y, U.T @ X, strict=True)
    best = [np.linalg.lstsq(row[:, None], target)[0][0] for row, target in pairs]
    np.testing.assert_allclose(d / r, best, rtol=1e-10)
    assert not np.allclose(r / d, best, rtol=0.1)


def test_the_printed_product_of_the_left_step_has_no_meaning():
    Y, X, U, V, spectrum = _factored_case(0)
    with pytest.raises(ValueError, match="matmul"):
        np.diag(spectrum) @ V.T @ Y @ X
    assert (U.T @ U).shape == (4, 4) != (9, 9)  # and so "= I_m" must read "= I_n"


def test_the_polar_factor_of_the_left_step_must_be_transposed():
    A = np.diag([2.0, 1.0]) @ np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    X = QUARTER_TURN @ A
    factor = _polar(A @ X.T)
    np.testing.assert_allclose(factor.T @ A, X, atol=1e-12)
    assert np.linalg.norm(factor @ A - X) == pytest.approx(2 * np.linalg.norm(A))


@pytest.mark.parametrize("seed", CASES)
def test_no_orthogonal_matrix_beats_the_transposed_polar_factor(seed):
    A, X = np.random.default_rng(seed).standard_normal((2, 2, 5))
    least = min(np.linalg.norm(Q @ A - X) for Q in _all_orthogonal_2x2())
    found = np.linalg.norm(_polar(A @ X.T).T @ A - X)
    assert least * (1 - 1e-3) <= found <= least


def test_the_printed_orthonormal_update_turns_the_wrong_way():
    Y = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    X = QUARTER_TURN @ Y
    left, _, right = np.linalg.svd(Y @ X.T)
    assert np.linalg.norm(X - left @ right @ Y) == pytest.approx(2 * np.linalg.norm(Y))
    np.testing.assert_allclose(right.T @ left.T @ Y, X, atol=1e-12)


def test_projecting_and_rescaling_can_raise_the_error_of_a_feasible_spectrum():
    weights, targets, kappa = np.array([4.0, 1.0]), np.array([1.0, 2.0]), 2.0
    feasible = np.array([0.8, 1.0])
    assert _spread(feasible) <= kappa
    projected = kf.project_spectrum(targets, weights, kappa)
    rescaled = projected * np.linalg.norm(feasible) / np.linalg.norm(projected)
    costs = [weights @ (spectrum - targets) ** 2 for spectrum in (feasible, rescaled)]
    assert costs == pytest.approx([1.16, 1.4606], abs=1e-4)


# --- Section 4: the search -----------------------------------------------------------------------


def _cost_of_changing(changed, targets, kappa):
    """Least cost when only the entries `changed` may move; infinite if that cannot be enough."""
    kept = np.delete(targets, changed)
    if _spread(kept) > kappa:
        return math.inf
    moved = np.clip(targets[changed], kept.max() / kappa, kappa * kept.min())
    return float(np.sum((moved - targets[changed]) ** 2))


def _first_accepted(targets, weights, kappa):
    """First pair of sets, by size, whose free entries are within the bounds (targets descending).

    Whether the others belong at their bounds is not asked.
    """
    n = targets.size
    for ceiling, floor in itertools.product(range(1, n), range(1, n)):
        if ceiling + floor > n:
            continue
        low, high = slice(n - floor, n), slice(0, ceiling)
        pull = weights[low] @ targets[low] + kappa * (weights[high] @ targets[high])
        least = pull / (weights[low].sum() + kappa**2 * weights[high].sum())
        if targets[n - floor - 1] >= least and targets[ceiling] <= kappa * least:
            found = targets.copy()
            found[high], found[low] = kappa * least, least
            return found
    return np.full(n, weights @ targets / weights.sum())


def test_the_closest_spectrum_is_not_the_one_that_changes_the_fewest_entries():
    targets, weights = np.array([10.0, 9.0, 1.0]), np.ones(3)
    best = kf.project_spectrum(targets, weights, 2.0)
    np.testing.assert_allclose(best, np.array([26, 26, 13]) / 3, rtol=1e-12)
    assert np.sum((best - targets) ** 2) == pytest.approx(13)
    assert [_cost_of_changing([i], targets, 2.0) for i in range(3)] == [math.inf, math.inf, 16]


def test_sets_accepted_for_their_free_entries_alone_may_be_wrong():
    found = _first_accepted(np.array([10.0, 9.0, 1.0]), np.ones(3), 2.0)
    np.testing.assert_allclose(found, [10, 5, 5], rtol=1e-12)


def test_the_exact_projection_is_never_worse_than_the_first_accepted_sets_and_often_better():
    rng = np.random.default_rng(0)
    better = 0
    for _ in range(1000):
        targets, weights = np.sort(rng.uniform(0, 1, 8))[::-1], rng.uniform(0.1, 1, 8)
        kappa = rng.uniform(1, targets[0] / targets[-1])
        costs = [
            weights @ (spectrum - targets) ** 2
            for spectrum in (
                kf.project_spectrum(targets, weights, kappa),
                _first_accepted(targets, weights, kappa),
            )
        ]
        assert costs[0] <= costs[1] * (1 + 1e-9) + 1e-15
        better += costs[0] < 0.999 * costs[1]
    assert better > 100


def test_descending_numerators_do_not_make_descending_ratios():
    numerators, denominators = np.array([3.0, 2.0]), np.array([3.0, 1.0])
    assert np.all(np.diff(numerators) < 0)
    assert np.all(np.diff(numerators / denominators) > 0)


# --- Section 2: the models -----------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-2, 1e-4])
def test_a_bound_of_one_without_a_norm_allows_any_error_above_zero(scale):
    rng = np.random.default_rng(0)
    W, Y = scale * orthogonal(rng, 4), rng.standard_normal((4, 30))
    codes = kf.hard_threshold((W @ Y).T, 1).T
    assert np.linalg.cond(W) == pytest.approx(1)
    assert 0 < np.linalg.norm(codes - W @ Y) < scale * np.linalg.norm(Y)
    assert np.linalg.norm(W.T @ W - np.eye(4)) > 1


@pytest.mark.parametrize("seed", CASES)
def test_the_log_det_update_minimises_with_rho_not_with_half_of_it(seed):
    rng = np.random.default_rng(seed)
    signals, codes = rng.standard_normal((2, 12, 3))
    mu, rho = rng.uniform(1, 10, 2)
    gram = signals.T @ signals
    values, vectors = np.linalg.eigh(gram + rho * np.eye(3))
    root = (vectors * np.sqrt(values)) @ vectors.T
    statistics = Statistics(gram, codes.T @ signals, np.sum(codes**2), 0.0, len(signals))
    W = update_log_det(statistics, np.eye(3), root, np.linalg.inv(root), mu)

    def objective(flat, weight):
        matrix = flat.reshape(3, 3)
        penalty = weight * np.sum(matrix**2) - mu * np.linalg.slogdet(matrix)[1]
        return np.sum((codes - signals @ matrix.T) ** 2) + penalty

    slopes = [approx_fprime(W.ravel(), objective, 1e-7, weight) for weight in (rho, rho / 2)]
    assert np.linalg.norm(slopes[0]) < 1e-4 < np.linalg.norm(slopes[1])
    np.testing.assert_allclose(slopes[1], -rho * W.ravel(), atol=1e-4)


def _excess(W, c):
    """r of the bound on the condition number: the penalty above its least value."""
    n = len(W)
    penalty = c * np.sum(W**2) - np.linalg.slogdet(W)[1]
    return penalty - n / 2 - n / 2 * math.log(2 * c)


def _extremal(kappa, c):
    """Singular values of least penalty whose largest is kappa times the smallest."""
    mean = 2 / (kappa + 1 / kappa)
    return np.sqrt(np.array([mean * kappa, 1, mean / kappa]) / (2 * c))


@pytest.mark.parametrize("kappa", [1.5, 3.0, 20.0])
@pytest.mark.parametrize("c", [0.1, 0.5, 4.0])
def test_the_printed_bound_on_the_condition_number_is_violated_and_the_corrected_attained(kappa, c):
    rng = np.random.default_rng(0)
    W = orthogonal(rng, 3) * _extremal(kappa, c) @ orthogonal(rng, 3)
    e = math.exp(_excess(W, c))
    assert np.linalg.cond(W) == pytest.approx(kappa)
    assert e + math.sqrt(e - 1) < 0.95 * kappa
    assert e + math.sqrt(e**2 - 1) == pytest.approx(kappa, rel=1e-9)


@pytest.mark.parametrize("seed", CASES)
def test_the_corrected_bound_on_the_condition_number_holds(seed):
    rng = np.random.default_rng(seed)
    n, c = int(rng.integers(2, 6)), rng.uniform(0.1, 5)
    W = (np.eye(n) + rng.uniform(0, 1) * rng.standard_normal((n, n))) / math.sqrt(2 * c)
    excess = _excess(W, c)
    assert excess >= 0
    assert np.linalg.cond(W) <= math.exp(excess) + math.sqrt(math.exp(2 * excess) - 1)


# --- Section 5: the table ------------------------------------------------------------------------


@pytest.mark.paper
def test_the_table_has_four_cells_where_log_det_beats_the_proposed_method(paper_facts):
    with (paper_facts / "table1.csv").open() as file:
        rows = list(csv.DictReader(file))
    scores = {
        measure: {(r["method"], r["image"], int(r["sigma"])): float(r[measure]) for r in rows}
        for measure in ("psnr_db", "ssim")
    }
    cells = {(r["image"], int(r["sigma"])) for r in rows}

    def beaten(measure, by):
        score = scores[measure]
        return {cell for cell in cells if score["conditioned", *cell] < score[by, *cell]}

    assert beaten("psnr_db", "logdet") == {
        ("Barbara", 5),
        ("Cameraman", 5),
        ("Barbara", 10),
        ("Hill", 100),
    }
    assert beaten("ssim", "logdet") == {("Barbara", 10)}
    assert len(beaten("psnr_db", "orthonormal")) == 12
