import math

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from kappaform import project_spectrum


def problem(rng):
    """Targets, weights, bound and norm of every kind that data produce, and of worse kinds."""
    n = round(10 ** rng.uniform(0, math.log10(300)))
    weights = 10 ** rng.uniform(-rng.choice([0, 2, 6, 12]), 0, n)
    targets = rng.exponential(size=n) * 10 ** rng.uniform(-rng.choice([0, 1, 4]), 0, n)
    kind = rng.integers(10)
    if kind == 0:
        targets = np.round(3 * targets) / 3  # ties, and zeros
    elif kind == 1:
        weights = np.ceil(3 * weights) / 3
    elif kind == 2:
        targets[rng.random(n) < rng.random()] = 0
    elif kind == 3:
        weights[rng.random(n) < rng.random()] = 0
    elif kind == 4:
        targets[rng.random(n) < rng.random()] = 0
        weights[rng.random(n) < rng.random()] = 0
        targets[weights == 0] = 0
    elif kind == 5:
        weights[rng.integers(n)] = 0  # as of patches without their mean
        targets[weights == 0] = 0
    elif kind == 6 and rng.random() < 0.3:
        weights[:] = 0
    elif kind == 7 and rng.random() < 0.3:
        targets[:] = 0
    elif kind == 8:
        nearly = 1 + 2.0**-52 * rng.integers(4, size=n)
        targets = rng.choice([1, 1e-4, 1e-9], n) * nearly  # ties up to rounding
    bounds = [1, 1 + 1e-9, 2, 10 ** rng.uniform(0, 1), 10 ** rng.uniform(0, 8), 1e8, math.inf]
    length = np.linalg.norm(targets) or 1.0
    norms = [math.sqrt(n), length, length * (1 + 1e-9), length * 10 ** rng.uniform(-1, 1)]
    norms += [length * 10 ** rng.uniform(-6, 6)] * 2
    return targets, weights, float(rng.choice(bounds)), float(rng.choice(norms))


def cost(spectrum, targets, weights):
    return np.sum(weights * (spectrum - targets) ** 2)


def tolerance(targets, weights, least):
    """1e-9 of the energy of the targets.

    Where the norm forces a cost so far above that energy that 1e-9 of it nears the rounding of the
    cost itself, 1e-12 of the cost.
    """
    energy = np.sum(weights * targets**2)
    return 1e-9 * energy if least <= 1e4 * energy else 1e-12 * least


def assert_bounded(spectrum, max_condition):
    assert np.all(np.isfinite(spectrum))
    assert spectrum.min() >= 0
    if max_condition < math.inf:
        assert spectrum.max() <= max_condition * spectrum.min() * (1 + 1e-12)


# --- against the oracle, on three hundred problems each -------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_no_other_bounded_spectrum_is_closer(seed):
    rng = np.random.default_rng(seed)
    for _ in range(300):
        check_closest(*problem(rng)[:3])


def check_closest(targets, weights, max_condition):
    spectrum = project_spectrum(targets, weights, max_condition)
    assert_bounded(spectrum, max_condition)
    assert_stationary(spectrum, targets, weights, max_condition)
    least = cost(naive.closest_spectrum(targets, weights, max_condition), targets, weights)
    excess = cost(spectrum, targets, weights) - least
    assert excess <= 1e-9 * np.sum(weights * targets**2)


@pytest.mark.parametrize("seed", range(4))
def test_no_other_bounded_spectrum_of_the_norm_is_closer(seed):
    rng = np.random.default_rng(seed)
    for _ in range(300):
        check_closest_of_the_norm(*problem(rng))


def check_closest_of_the_norm(targets, weights, max_condition, norm):
    reached, allowed = check_cost_of_the_norm(targets, weights, max_condition, norm)
    # The certificate: by weak duality no spectrum costs less than this. At the optimum the
    # squares x satisfy sum (w + multiplier - t w / sqrt(x)) x = 0, which gives the multiplier.
    spectrum = project_spectrum(targets, weights, max_condition, norm)
    multiplier = np.sum(weights * (targets - spectrum) * spectrum) / norm**2
    bound = naive.least_cost(targets, weights, max_condition, norm, multiplier)
    assert reached <= bound + allowed


def check_cost_of_the_norm(targets, weights, max_condition, norm):
    """Bound and norm hold, and the oracle finds nothing closer; the cost, and its tolerance."""
    spectrum = project_spectrum(targets, weights, max_condition, norm)
    assert_bounded(spectrum, max_condition)
    assert np.linalg.norm(spectrum) == pytest.approx(norm, rel=1e-12, abs=0)
    oracle = naive.closest_spectrum(targets, weights, max_condition, norm)
    reached, least = cost(spectrum, targets, weights), cost(oracle, targets, weights)
    allowed = tolerance(targets, weights, least)
    assert reached <= least + allowed
    return reached, allowed


@pytest.mark.parametrize("seed", range(4))
def test_norms_far_beyond_the_targets_cost_no_more_than_they_must_at_any_bound(seed):
    """Where the multiplier of the norm cancels the smallest weight up to rounding."""
    rng = np.random.default_rng(seed)
    for _ in range(250):
        targets, weights, _, _ = problem(rng)
        kind = rng.integers(4)
        if kind == 0:
            targets[:] = 0
        elif kind == 1:
            targets[weights == weights.min()] = 0
        elif kind == 2:
            weights = np.where(rng.random(weights.size) < 0.5, weights.min(), weights)
        max_condition = 10 ** rng.uniform(5, 12)
        norm = (np.linalg.norm(targets) or 1.0) * 10 ** rng.uniform(0, 20)
        check_cost_of_the_norm(targets, weights, max_condition, norm)


def assert_stationary(spectrum, targets, weights, max_condition):
    """Targets clipped to two bounds of ratio max_condition, between which the pulls balance."""
    if max_condition == math.inf or targets.max() <= max_condition * targets.min():
        assert_array_equal(spectrum, targets)
        return
    floor, ceiling = spectrum.min(), spectrum.max()
    assert_array_equal(spectrum, np.clip(targets, floor, ceiling))
    if ceiling < max_condition * floor * (1 - 1e-12):  # only entries without weight are clipped
        assert_allclose(spectrum[weights > 0], targets[weights > 0], rtol=1e-15)
    pulls = weights * (spectrum - targets) * spectrum
    assert abs(np.sum(pulls)) <= 1e-12 * np.sum(weights * targets**2)


# --- laws ----------------------------------------------------------------------------------------


def magnitudes(smallest):
    return st.one_of(st.just(0.0), st.sampled_from([1.0, 2.0]), st.floats(smallest, 1 / smallest))


def problems(smallest_target=1e-3, smallest_weight=1e-6):
    entries = st.tuples(magnitudes(smallest_target), magnitudes(smallest_weight))
    arrays = st.lists(entries, min_size=1, max_size=12).map(lambda pairs: np.array(pairs).T)
    return arrays.map(lambda rows: (rows[0].copy(), rows[1].copy()))


BOUNDS = st.one_of(st.sampled_from([1.0, 2.0, 1e8, math.inf]), st.floats(1, 1e4))
NORMS = st.one_of(st.none(), st.floats(1e-4, 1e4))


@given(problems(), BOUNDS, NORMS, st.sampled_from([-996, -498, -1, 1, 3, 498, 996]))
def test_scaling_targets_and_norm_scales_the_spectrum(problem, max_condition, norm, exponent):
    targets, weights = problem
    factor = 2.0**exponent  # up to 1e300: no square may overflow
    scaled_norm = None if norm is None else factor * norm
    scaled = project_spectrum(factor * targets, weights, max_condition, scaled_norm)
    assert_array_equal(scaled, factor * project_spectrum(targets, weights, max_condition, norm))


@given(problems(), BOUNDS, NORMS, st.sampled_from([-996, -498, -1, 1, 3, 498, 996]))
def test_the_unit_of_the_weights_does_not_matter(problem, max_condition, norm, exponent):
    targets, weights = problem
    scaled = project_spectrum(targets, 2.0**exponent * weights, max_condition, norm)
    assert_array_equal(scaled, project_spectrum(targets, weights, max_condition, norm))


@given(problems(), BOUNDS, NORMS, st.floats(1e-3, 1e3))
def test_weights_in_another_unit_give_a_spectrum_as_close(problem, max_condition, norm, factor):
    targets, weights = problem
    here = project_spectrum(targets, weights, max_condition, norm)
    there = project_spectrum(targets, factor * weights, max_condition, norm)
    least = cost(here, targets, weights)
    assert cost(there, targets, weights) == pytest.approx(
        least, rel=0, abs=tolerance(targets, weights, least)
    )


@given(problems(), BOUNDS, NORMS, st.randoms())
def test_permuting_the_entries_permutes_the_spectrum(problem, max_condition, norm, random):
    targets, weights = problem
    order = random.sample(range(targets.size), targets.size)
    spectrum = project_spectrum(targets, weights, max_condition, norm)
    permuted = project_spectrum(targets[order], weights[order], max_condition, norm)
    assert_allclose(permuted, spectrum[order], rtol=0, atol=1e-9 * spectrum.max())


@given(problems(), BOUNDS)
def test_a_bounded_spectrum_is_its_own_projection(problem, max_condition):
    targets, weights = problem
    floor = targets.max() / max_condition
    bounded = np.clip(targets, floor, max_condition * floor) if floor > 0 else targets
    assert_array_equal(project_spectrum(bounded, weights, max_condition), bounded)


@given(problems(), BOUNDS)
def test_a_bounded_spectrum_of_the_norm_is_its_own_projection(problem, max_condition):
    targets, weights = problem
    targets, weights = targets + 0.01, weights + 1e-6
    bounded = np.maximum(targets, targets.max() / max_condition)
    again = project_spectrum(bounded, weights, max_condition, np.linalg.norm(bounded))
    assert_allclose(again, bounded, rtol=1e-12)


@given(problems(), NORMS)
def test_bound_one_gives_equal_values(problem, norm):
    targets, weights = problem
    spectrum = project_spectrum(targets, weights, 1, norm)
    if norm is not None:
        expected = norm / math.sqrt(targets.size)
    elif weights.any():
        expected = np.average(targets, weights=weights)
    else:
        expected = targets.mean()
    assert_allclose(spectrum, expected, rtol=1e-14)


@given(problems())
def test_without_a_bound_the_targets_stay(problem):
    targets, weights = problem
    assert_array_equal(project_spectrum(targets, weights, math.inf), targets)


@given(problems(), st.floats(1, 1e4))
def test_entries_without_weight_do_not_move_the_others(problem, max_condition):
    targets, weights = problem
    counted = weights > 0
    if not counted.any():
        return
    spectrum = project_spectrum(targets, weights, max_condition)
    alone = project_spectrum(targets[counted], weights[counted], max_condition)
    assert_allclose(spectrum[counted], alone, rtol=1e-14)


@given(problems(), BOUNDS, BOUNDS, NORMS)
def test_a_larger_bound_never_costs_more(problem, bound, other_bound, norm):
    targets, weights = problem
    tight, loose = (
        cost(project_spectrum(targets, weights, kappa, norm), targets, weights)
        for kappa in sorted((bound, other_bound))
    )
    assert loose <= tight + tolerance(targets, weights, tight)


@given(problems(), BOUNDS, st.floats(1e-4, 1e4))
def test_projecting_and_rescaling_is_never_closer(problem, max_condition, norm):
    targets, weights = problem
    spectrum = project_spectrum(targets, weights, max_condition)
    if not spectrum.any():
        return
    rescaled = cost(spectrum * (norm / np.linalg.norm(spectrum)), targets, weights)
    exact = cost(project_spectrum(targets, weights, max_condition, norm), targets, weights)
    assert exact <= rescaled + tolerance(targets, weights, rescaled)


# --- examples ------------------------------------------------------------------------------------


def test_the_bound_is_shared_between_large_and_small_targets():
    assert_allclose(
        project_spectrum([10, 9, 1], [1, 1, 1], 2), [26 / 3, 26 / 3, 13 / 3], rtol=1e-15
    )


def test_entries_without_weight_are_clipped_targets():
    assert_array_equal(project_spectrum([1, 2, 9, 0.1], [1, 1, 0, 0], 2), [1, 2, 2, 1])


def test_entries_without_weight_absorb_the_norm():
    spectrum = project_spectrum([1, 2, 9, 0.1], [1, 1, 0, 0], math.inf, 3.0)
    assert_allclose(spectrum, [1, 2, math.sqrt(2), math.sqrt(2)], rtol=1e-12)


def test_without_any_weight_all_entries_count_alike():
    assert_allclose(project_spectrum([10, 9, 1], [0, 0, 0], 2), [26 / 3, 26 / 3, 13 / 3])
    assert_allclose(project_spectrum([10, 9, 1], [0, 0, 0], 2, 3.0), math.sqrt(3))


def test_zero_targets_give_the_zero_spectrum_unless_a_norm_is_asked_for():
    assert_array_equal(project_spectrum([0, 0], [1, 3], 2), [0, 0])
    assert_allclose(project_spectrum([0, 0], [1, 3], 2, 5.0), [math.sqrt(20), math.sqrt(5)])


@pytest.mark.parametrize("norm", [1e-200, 1e-20, 1.0, 1e20, 1e200])
@pytest.mark.parametrize("max_condition", [1.5, 1e8, 1e60, 1e300])
@pytest.mark.parametrize("exponent", [-150, 0, 150])
def test_bound_and_norm_hold_at_every_scale(norm, max_condition, exponent):
    targets = np.array([0.0, 1e-20, 0.5, 0.5, 3.0]) * 10.0**exponent
    for weights in ([1, 1, 1, 1, 1], [0, 1e-12, 1, 0, 1e12], [1e-300, 1, 1, 1e300, 0]):
        spectrum = project_spectrum(targets, weights, max_condition, norm)
        assert np.linalg.norm(spectrum / norm) == pytest.approx(1, rel=1e-12, abs=0)
        # A quotient below the smallest normal number is no longer exact.
        assert spectrum.max() / max_condition <= spectrum.min() * (1 + 1e-12) + 1e-300


def test_the_largest_numbers_are_no_exception():
    largest = np.finfo(np.float64).max
    assert_allclose(project_spectrum([largest, 1], [largest, 0], 2), [largest, largest / 2])
    assert_allclose(
        project_spectrum([largest, 1], [0, largest], 2, 5.0), [math.sqrt(20), math.sqrt(5)]
    )


def test_arguments_are_left_alone_and_the_result_is_new():
    targets, weights = np.array([1.0, 5.0]), np.array([1e-60, 1.0])
    for max_condition in (2, 5, math.inf):
        for norm in (None, 1.0):
            spectrum = project_spectrum(targets, weights, max_condition, norm)
            assert not np.shares_memory(spectrum, targets)
    assert_array_equal(targets, [1.0, 5.0])
    assert_array_equal(weights, [1e-60, 1.0])


def test_lists_of_integers_are_taken():
    spectrum = project_spectrum([1, 2, 3], [1, 1, 1], 2)
    assert spectrum.dtype == np.float64


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], 2), r"targets has shape \(0,\): give one value per direction, \(n,\)\."),
        ((3.0, 1.0, 2), r"targets has shape \(\): give one value per direction"),
        (([[1, 2]], [[1, 2]], 2), r"targets has shape \(1, 2\): give one value per direction"),
        (([1, 2], [1], 2), r"weights has shape \(1,\) and targets \(2,\): give one weight"),
        (([1, -2], [1, 1], 2), r"targets\[1\]=-2\.0: .*finite and non-negative \(flip the sign"),
        (([1, math.nan], [1, 1], 2), r"targets\[1\]=nan: targets must be finite"),
        (([math.inf, 1], [1, 1], 2), r"targets\[0\]=inf: targets must be finite"),
        (([1, 2], [-1, 1], 2), r"weights\[0\]=-1\.0: weights must be finite and non-negative\."),
        (([1, 2], [1, math.nan], 2), r"weights\[1\]=nan: weights must be finite"),
        (([1, 2], [1, math.inf], 2), r"weights\[1\]=inf: weights must be finite"),
        (
            ([1, 2], [1, 1], 0.99),
            r"max_condition=0\.99: .*no matrix has a condition number below 1",
        ),
        (([1, 2], [1, 1], math.nan), r"max_condition=nan: "),
        (([1, 2], [1, 1], "2"), r"max_condition='2': give a number >= 1"),
        (([1, 2], [1, 1], None), r"max_condition=None: give a number >= 1"),
        (([1, 2], [1, 1], 2, "auto"), r"norm='auto': the norm must be positive"),
        (([1, 2], [1, 1], 2, 0), r"norm=0: the norm must be positive and finite, or None"),
        (([1, 2], [1, 1], 2, -1.0), r"norm=-1\.0: the norm must be positive"),
        (([1, 2], [1, 1], 2, math.inf), r"norm=inf: the norm must be positive"),
        (([1, 2], [1, 1], 2, math.nan), r"norm=nan: the norm must be positive"),
    ],
)
def test_bad_arguments_are_named_with_the_rule(arguments, message):
    with pytest.raises(ValueError, match=message):
        project_spectrum(*arguments)
