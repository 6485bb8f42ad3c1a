"""The loop: what it promises at every iteration, and how it stops and goes on."""

import copy
import itertools
import pickle
from dataclasses import replace

import naive
import numpy as np
import pytest
from helpers import check_descent

import kappaform as kf
from kappaform.engines import engine_for
from kappaform.engines.blocks import parts
from kappaform.learning import StopReason
from kappaform.learning.race import Problem
from kappaform.learning.result import Record

METHODS = {
    "orthonormal": kf.Orthonormal(),
    "log-det": kf.LogDet(0.01),
    "absolute": kf.Conditioned(2.0),
    "absolute, loose": kf.Conditioned(50.0, norm=2.0),
    "relative": kf.Conditioned(3.0, objective="relative"),
    "free norm": kf.Conditioned(2.0, norm=None),
    "tight": kf.Conditioned(1.0),
}
PUBLISHED = {
    "paper": kf.Conditioned(5.0, variant="paper"),
    "reference": kf.Conditioned(5.0, variant="reference"),
    "reference, tight": kf.Conditioned(1.5, variant="reference"),
    "public": kf.Conditioned(5.0, variant="public"),
    "public, tight": kf.Conditioned(1.5, variant="public"),
}


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def method(request):
    return request.param


@pytest.fixture(params=(METHODS | PUBLISHED).values(), ids=(METHODS | PUBLISHED).keys())
def any_method(request):
    return request.param


def states_of(signals, method, **options):
    """The result and every state that the callback saw, one for each iteration."""
    states = []
    result = kf.learn(signals, method, callback=states.append, **options)
    assert len(states) == result.n_iter
    assert states or result.stop_reason is StopReason.EXACT  # there was nothing to learn
    return result, states


# Some of the signals below are fewer than their features, which `learn` warns of.
pytestmark = pytest.mark.filterwarnings("ignore:signals has shape:UserWarning")


# Single precision: measured 2e-8 at most, six times less than its unit of rounding.
@pytest.mark.parametrize(("dtype", "rounding"), [("float64", 1e-12), ("float32", 1e-7)])
def test_objective_never_increases(signals, method, dtype, rounding):
    signals = signals.astype(dtype)
    result = kf.learn(signals, method, n_nonzero_coefs=3, max_iter=40, tol=0)
    check_descent(result, signals, rounding)


@pytest.mark.parametrize("objective", ["absolute", "relative"])
@pytest.mark.parametrize("kappa", [1.5, 10.0, 1000.0])
def test_objective_never_increases_on_real_patches(photo_patches, objective, kappa):
    method = kf.Conditioned(kappa, objective=objective)
    result = kf.learn(photo_patches[::8], method, n_nonzero_coefs=6, max_iter=50, tol=0)
    check_descent(result, photo_patches[::8])


BOUNDED = {k: m for k, m in (METHODS | PUBLISHED).items() if isinstance(m, kf.Conditioned)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", BOUNDED.values(), ids=BOUNDED.keys())
def test_condition_number_never_exceeds_the_bound(signals, method, dtype):
    bound = method.max_condition
    result, states = states_of(signals.astype(dtype), method, n_nonzero_coefs=3, max_iter=30)
    for state in (*states, result):
        singular = np.linalg.svd(state.transform, compute_uv=False)
        assert state.transform.dtype == np.float64
        assert singular[0] <= bound * singular[-1] * (1 + 1e-9)


@pytest.mark.parametrize("kappa", [1e3, 1e6, 1e8, 1e10])
def test_large_bounds_hold_as_well(photo_patches, kappa):
    result, states = states_of(photo_patches[::4], kf.Conditioned(kappa), max_iter=15)
    assert len(states) == 15
    for state in (*states, result):
        singular = np.linalg.svd(state.transform, compute_uv=False)
        assert singular[0] <= kappa * singular[-1] * (1 + 1e-9)


def test_norm_of_the_transform_is_the_one_asked_for(signals):
    # "auto" explores for 20 iterations and more, by steps of its own; "dct" does not.
    for norm, objective, init in itertools.product(
        ("auto", 0.01, 1e4), ("absolute", "relative"), ("auto", "dct")
    ):
        method = kf.Conditioned(4.0, norm=norm, objective=objective)
        result = kf.learn(signals, method, n_nonzero_coefs=2, max_iter=20, init=init)
        expected = 3.0 if norm == "auto" else norm
        assert np.linalg.norm(result.transform) == pytest.approx(expected, rel=1e-12)


def test_reported_errors_are_those_of_the_definition(signals, any_method):
    result, states = states_of(signals, any_method, n_nonzero_coefs=3, max_iter=6, init="dct")
    codes = None
    for state in (*states, result):
        coefs = signals @ state.transform.T
        before, codes = codes, naive.hard_threshold(coefs, 3)
        energy = np.sum(coefs**2)
        absolute, relative, absolute_before, _ = (each[-1] ** 2 for each in state.errors)
        rounding = 1e-12 * energy
        assert absolute == pytest.approx(np.sum((codes - coefs) ** 2), abs=rounding)
        assert relative * energy == pytest.approx(absolute, abs=rounding)
        if state is not result and before is not None and len(state.loss) == state.n_iter + 1:
            expected = np.sum((before - coefs) ** 2)
            assert absolute_before == pytest.approx(expected, abs=rounding)


def test_errors_start_with_the_start(photo_patches):
    result = kf.learn(photo_patches, kf.Orthonormal(), n_nonzero_coefs=6, init="dct", max_iter=3)
    coefs = photo_patches @ kf.dct_basis((8, 8)).T
    start = np.linalg.norm(coefs - naive.hard_threshold(coefs, 6))
    assert result.errors.absolute[0] == pytest.approx(start, rel=1e-12)
    assert np.isnan(result.errors.absolute_before[0])
    assert all(len(each) == result.n_iter + 1 for each in result.errors)


def test_a_bound_of_one_is_the_orthonormal_method(photo_patches):
    tight = kf.learn(photo_patches, kf.Conditioned(1.0), n_nonzero_coefs=6, max_iter=40, tol=0)
    orthonormal = kf.learn(photo_patches, kf.Orthonormal(), n_nonzero_coefs=6, max_iter=40, tol=0)
    assert tight.errors.absolute[-1] == pytest.approx(orthonormal.errors.absolute[-1], rel=1e-3)
    np.testing.assert_allclose(tight.transform @ tight.transform.T, np.eye(64), atol=1e-12)


def test_a_looser_bound_sparsifies_better(few_patches):
    errors = [
        kf.learn(few_patches, kf.Conditioned(kappa), n_nonzero_coefs=3).errors.absolute[-1]
        for kappa in (1.0, 2.0, 5.0, 20.0)
    ]
    assert all(np.diff(errors) < 0)


def test_the_automatic_start_is_never_worse_than_its_parts_would_suggest(small_patches):
    method = kf.Conditioned(2.0)
    auto = kf.learn(small_patches, method, n_nonzero_coefs=3, max_iter=100)
    dct = kf.learn(small_patches, method, n_nonzero_coefs=3, max_iter=100, init="dct")
    assert auto.errors.absolute[-1] < dct.errors.absolute[-1]


def test_any_number_of_threads_gives_the_same_bits(photo_patches, monkeypatch):
    signals = np.concatenate([photo_patches * factor for factor in np.linspace(1, 2, 9)])
    assert len(parts(*signals.shape)) > 2  # sums of two are the same in any order
    results = []
    for threads in ("1", "2", "3", "7"):
        monkeypatch.setenv("KAPPAFORM_NUM_THREADS", threads)
        results.append(kf.learn(signals, n_nonzero_coefs=6, max_iter=8))
    for many in results[1:]:
        assert np.array_equal(results[0].transform, many.transform)
        assert np.array_equal(results[0].loss, many.loss)


def test_one_sparsity_for_all_equals_the_same_for_each(photo_patches):
    each = np.full(len(photo_patches), 5)
    one = kf.learn(photo_patches, n_nonzero_coefs=5, max_iter=8)
    many = kf.learn(photo_patches, n_nonzero_coefs=each, max_iter=8)
    assert np.array_equal(one.transform, many.transform)


def test_signals_without_codes_do_not_count_as_fitted(photo_patches):
    sparsity = np.where(np.arange(len(photo_patches)) % 2, 6, 0)
    result = kf.learn(photo_patches, kf.Orthonormal(), n_nonzero_coefs=sparsity, max_iter=20, tol=0)
    half = kf.learn(photo_patches[1::2], kf.Orthonormal(), n_nonzero_coefs=6, max_iter=20, tol=0)
    np.testing.assert_allclose(result.transform, half.transform, atol=1e-6)


def test_resuming_continues_as_if_never_stopped(few_patches, any_method):
    signals = few_patches
    options = {"n_nonzero_coefs": 3, "tol": 0}
    whole = kf.learn(signals, any_method, max_iter=32, **options)
    for stop in (1, 11, 25):
        part = kf.learn(signals, any_method, max_iter=stop, **options)
        part = pickle.loads(pickle.dumps(part))
        rest = kf.learn(signals, any_method, max_iter=32 - stop, init=part, **options)
        assert np.array_equal(whole.transform, rest.transform)
        assert np.array_equal(whole.loss, rest.loss)
        assert whole.n_iter == rest.n_iter


def test_a_resumed_run_counts_the_passes_before_it_and_one_to_begin(few_patches):
    options = {"n_nonzero_coefs": 3, "tol": 0, "init": "dct"}
    whole = kf.learn(few_patches, kf.LogDet(), max_iter=9, **options)
    part = kf.learn(few_patches, kf.LogDet(), max_iter=4, **options)
    rest = kf.learn(few_patches, kf.LogDet(), max_iter=5, **(options | {"init": part}))
    assert rest.n_passes == whole.n_passes + 1 == 11


def test_resuming_several_starts_continues_as_if_never_stopped(few_patches):
    signals, starts = few_patches, ("dct", "identity", kf.random_basis(16, 0))
    options = {"n_nonzero_coefs": 3, "tol": 0}
    whole = kf.learn(signals, init=starts, max_iter=60, **options)
    for stop in (1, 9, 27, 40):
        part = kf.learn(signals, init=starts, max_iter=stop, **options)
        rest = kf.learn(signals, init=part, max_iter=60 - stop, **options)
        assert np.array_equal(whole.transform, rest.transform)
        assert np.array_equal(whole.loss, rest.loss)
        assert whole.n_iter == rest.n_iter


def test_interruption_loses_nothing(photo_patches):
    def interrupt(state):
        if state.n_iter == 7:
            raise KeyboardInterrupt

    with pytest.raises(kf.LearningInterrupted) as caught:
        kf.learn(photo_patches, n_nonzero_coefs=6, callback=interrupt)
    assert isinstance(caught.value, KeyboardInterrupt)
    result = caught.value.result
    assert result.n_iter == 7
    assert result.stop_reason == StopReason.INTERRUPTED
    assert caught.value.finished == ()
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert np.array_equal(again.result.transform, result.transform)
    rest = kf.learn(photo_patches, n_nonzero_coefs=6, init=result, max_iter=13)
    whole = kf.learn(photo_patches, n_nonzero_coefs=6, max_iter=20)
    assert np.array_equal(whole.transform, rest.transform)


def test_resuming_on_other_signals_starts_a_new_history(photo_patches):
    first = kf.learn(photo_patches[::2], kf.LogDet(), n_nonzero_coefs=6, max_iter=5)
    second = kf.learn(photo_patches[1::2], kf.LogDet(), n_nonzero_coefs=6, max_iter=5, init=first)
    assert len(second.loss) == 6


@pytest.mark.parametrize("init", ["auto", ("identity", "dct", "procrustes")])
@pytest.mark.parametrize("n_iter", [3, 27, 80, 150])  # before, while and after starts take turns
def test_resuming_on_other_signals_reports_errors_on_those(few_patches, init, n_iter):
    signals = few_patches
    options = {"n_nonzero_coefs": 3, "tol": 0}
    first = kf.learn(1e-3 * signals, init=init, max_iter=n_iter, **options)
    for more in (1, 30):
        second = kf.learn(signals, init=first, max_iter=more, **options)
        measured = kf.evaluate(signals, second, 3)
        assert second.errors.absolute[-1] == pytest.approx(measured.absolute, rel=1e-9)
        begun = kf.evaluate(signals, first, 3).absolute
        assert second.errors.absolute[-1] <= begun * (1 + 1e-9)


def test_a_rise_is_reported_however_large_the_coefficients_become(rng):
    problem = Problem(engine_for(rng.standard_normal((20, 4))), kf.Orthonormal(), 2, 0.0)
    before = Record(1.0, 1.0, 0.1, 1.0, 0.1, coef_norm=10.0)
    assert problem.rises(before, before._replace(loss=1.1, coef_norm=1e8))
    assert not problem.rises(before, before._replace(loss=1.0 + 1e-12, coef_norm=10.0))


@pytest.mark.parametrize("method", [kf.Orthonormal(), kf.Conditioned(2.0)])
def test_a_rise_of_a_tenth_is_reported_though_errors_are_small_and_signals_float32(method, rng):
    problem = Problem(engine_for(rng.standard_normal((20, 4)).astype(np.float32)), method, 2)
    before = Record(1e-2, 1e-2, 1e-3, 1e-2, 1e-3, coef_norm=10.0)
    assert problem.rises(before, before._replace(loss=1.1e-2))
    assert not problem.rises(before, before._replace(loss=1.001e-2))  # rounding may do this


@pytest.mark.parametrize("kind", ["photograph", "gaussian"])
def test_rounding_of_float32_signals_raises_no_objective(kind, method, photo_patches, rng):
    signals = photo_patches[::8] if kind == "photograph" else rng.standard_normal((400, 16))
    result = kf.learn(
        signals.astype(np.float32), method, n_nonzero_coefs=3, max_iter=60, tol=0, init="dct"
    )
    assert result.stop_reason != StopReason.ROSE  # no update had to be dropped
    scale = 1.0 if isinstance(method, kf.LogDet) else result.loss[0] / result.errors.relative[0]
    squares = (result.loss / scale) ** (1 if isinstance(method, kf.LogDet) else 2)
    assert np.all(np.diff(squares) <= 1e-7 * max(1.0, np.abs(squares).max()))


def test_a_fitted_estimator_serves_as_its_result(photo_patches):
    signals = photo_patches[::8]
    estimator = kf.OrthonormalTransform(6, callback=lambda state: state.n_iter == 3).fit(signals)
    method, result = kf.Orthonormal(), estimator.result_
    assert kf.evaluate(signals, estimator, 6) == kf.evaluate(signals, result, 6)
    for of_estimator, of_result in ((estimator, result), ((estimator, "dct"), (result, "dct"))):
        one, other = (
            kf.learn(signals, method, n_nonzero_coefs=6, init=init, max_iter=5)
            for init in (of_estimator, of_result)
        )
        assert np.array_equal(one.transform, other.transform)
        assert np.array_equal(one.loss, other.loss)


def test_a_result_of_another_method_gives_its_transform(photo_patches):
    tight = kf.learn(photo_patches, kf.Conditioned(2.0), n_nonzero_coefs=6, max_iter=40)
    loose = kf.learn(photo_patches, kf.Conditioned(4.0), n_nonzero_coefs=6, max_iter=5, init=tight)
    assert loose.errors.absolute[0] == pytest.approx(tight.errors.absolute[-1], rel=1e-9)
    assert loose.errors.absolute[-1] < tight.errors.absolute[-1]


def test_of_several_starts_one_wins_and_goes_on_as_it_would_alone(few_patches):
    signals, starts = few_patches, ("identity", "dct", "procrustes")
    options = {"n_nonzero_coefs": 3, "tol": 0}
    together, states = states_of(signals, kf.Conditioned(3.0), init=starts, max_iter=300, **options)
    assert [state.state.races for state in states] == sorted(
        (state.state.races for state in states), reverse=True
    )
    assert len(states[0].state.candidates) == 3
    assert not together.state.races
    alone = [
        kf.learn(signals, kf.Conditioned(3.0), init=start, max_iter=300, **options).loss
        for start in starts
    ]
    n_records = len(together.loss)
    assert n_records > 50
    assert sum(np.array_equal(loss[:n_records], together.loss) for loss in alone) == 1


def test_a_race_shows_the_best_of_its_candidates_at_any_time(few_patches):
    options = {"n_nonzero_coefs": 3, "tol": 0, "max_iter": 60}
    states = states_of(few_patches, kf.Conditioned(3.0), **options)[1]
    assert states[20].state.races
    for state in states:
        assert state.loss[-1] == min(candidate.loss for candidate in state.state.candidates)
        measured = kf.evaluate(few_patches, state, 3).absolute
        assert state.loss[-1] == pytest.approx(measured, rel=1e-9)


@pytest.mark.parametrize("init", ["auto", "dct", "identity", "least-squares", "procrustes"])
def test_every_start_lowers_the_error_it_starts_with(few_patches, method, init):
    result = kf.learn(few_patches, method, n_nonzero_coefs=3, init=init, max_iter=15)
    assert result.loss[-1] < result.loss[0]


def test_callback_can_stop_and_sees_every_iteration(photo_patches):
    seen = []

    def stop_at_five(state):
        seen.append(state.n_iter)
        assert state.stop_reason == StopReason.RUNNING
        return state.n_iter == 5

    result = kf.learn(photo_patches, n_nonzero_coefs=6, callback=stop_at_five)
    assert seen == [1, 2, 3, 4, 5]
    assert result.stop_reason == StopReason.CALLBACK
    assert not result.converged


def test_stop_reason_distinguishes_tolerance_from_exhaustion(photo_patches):
    signals = photo_patches[::8]
    settled = kf.learn(signals, kf.Orthonormal(), n_nonzero_coefs=6, max_iter=500, tol=1e-4)
    assert settled.stop_reason == StopReason.TOLERANCE
    assert settled.converged
    last, before = settled.loss[-1], settled.loss[-2]
    assert abs(before - last) <= 1e-4 * before
    short = kf.learn(signals, kf.Orthonormal(), n_nonzero_coefs=6, max_iter=2)
    assert short.stop_reason == StopReason.MAX_ITER
    assert not short.converged
    assert "max_iter" in str(short.stop_reason)


def test_codes_that_are_exact_end_learning(rng):
    result = kf.learn(rng.standard_normal((20, 4)), n_nonzero_coefs=4)
    assert result.stop_reason == StopReason.EXACT
    assert result.errors.absolute[-1] == 0


def test_a_free_norm_shrinks_towards_zero(few_patches):
    result = kf.learn(few_patches, kf.Conditioned(2.0, norm=None), n_nonzero_coefs=3, tol=0)
    assert np.linalg.norm(result.transform) < 0.9 * 4
    assert result.condition_number <= 2 * (1 + 1e-9)


def test_spectrum_and_condition_number_are_computed_from_the_transform(photo_patches):
    result = kf.learn(photo_patches, kf.Conditioned(3.0), n_nonzero_coefs=6, max_iter=10)
    singular = np.linalg.svd(result.transform, compute_uv=False)
    np.testing.assert_array_equal(result.spectrum, singular)
    assert result.condition_number == singular[0] / singular[-1]


def test_the_transform_of_a_result_cannot_be_overwritten(photo_patches):
    result = kf.learn(photo_patches[::8], n_nonzero_coefs=6, max_iter=2)
    for same in (result, pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        for array in (same.transform, same.spectrum, same.loss, *same.errors):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1.0


def test_a_result_shows_no_matrix_and_keeps_no_statistics(photo_patches):
    result, states = states_of(photo_patches[::8], kf.Conditioned(3.0), max_iter=3)
    assert repr(result).startswith(f"LearnResult({kf.Conditioned(3.0)!r}, n_iter=3, condition_num")
    assert repr(result).endswith("stop_reason=MAX_ITER)")
    assert "array" not in repr(result)
    for each in (result, *states):
        assert all(candidate.statistics is None for candidate in each.state.candidates)
        # The transform, and for each candidate two vectors and two matrices, twice, and a product.
        n_matrices = 1 + 5.5 * len(each.state.candidates)
        assert len(pickle.dumps(each)) < n_matrices * 8 * 64 * 64


@pytest.mark.parametrize("objective", ["absolute", "relative"])
@pytest.mark.parametrize("norm", [1e-6, 1e6])
@pytest.mark.parametrize(
    ("dtype", "exponents"),
    [("float32", (-120, -30, 30, 110)), ("float64", (-1000, -200, 200, 1000))],
)
def test_extreme_norms_and_extreme_signals_work_together(
    photo_patches, dtype, exponents, norm, objective
):
    signals = photo_patches[::16] / np.abs(photo_patches).max()
    method = kf.Conditioned(3.0, norm, objective)
    # From the cosine basis: with strong starts, single rounding decides codes after five steps.
    options = {"n_nonzero_coefs": 6, "max_iter": 5, "init": "dct"}
    expected = kf.learn(signals, replace(method, norm="auto"), **options)
    rounding = 1e-9 if dtype == "float64" else 1e-5
    for exponent in exponents:
        scaled = np.ldexp(signals.astype(dtype), exponent)
        result = kf.learn(scaled, method, **options)
        measured = kf.evaluate(scaled, result, 6)
        np.testing.assert_allclose(result.errors.relative, expected.errors.relative, rtol=rounding)
        assert measured.relative == pytest.approx(expected.errors.relative[-1], rel=rounding)
        assert measured.reconstruction == pytest.approx(
            kf.evaluate(signals, expected, 6).reconstruction, rel=rounding
        )
        assert np.linalg.norm(result.transform) == pytest.approx(norm, rel=1e-12)
        assert result.condition_number <= 3 * (1 + 1e-9)


def test_float32_signals_learn_nearly_the_same_error(photo_patches):
    double = kf.learn(photo_patches, kf.Orthonormal(), n_nonzero_coefs=6, max_iter=30)
    single = kf.learn(
        photo_patches.astype(np.float32), kf.Orthonormal(), n_nonzero_coefs=6, max_iter=30
    )
    assert single.errors.absolute[-1] == pytest.approx(double.errors.absolute[-1], rel=5e-3)


@pytest.mark.parametrize("method", [METHODS["relative"], METHODS["log-det"]])
def test_signals_in_another_unit_are_other_signals(few_patches, method):
    """Also where the loss is the same in every unit."""
    options = {"n_nonzero_coefs": 3, "max_iter": 3, "init": "dct"}
    begun = kf.learn(few_patches, method, **options)
    louder = kf.learn(1000 * few_patches, method, **options | {"init": begun})
    assert len(louder.loss) == 4  # none of the old ones
    assert louder.errors.absolute[0] == pytest.approx(1000 * begun.errors.absolute[-1])


def test_no_loss_of_other_signals_decides_a_race(rng):
    signals = rng.standard_normal((300, 16)).cumsum(axis=1)
    method = kf.Conditioned(50.0)
    begun = kf.learn(signals, method, n_nonzero_coefs=3, max_iter=18, tol=0)
    assert begun.state.races
    assert sum(len(candidate.records) > 2 for candidate in begun.state.candidates) == 2
    others = 100 * rng.standard_normal((300, 16))
    resumed = kf.learn(others, method, n_nonzero_coefs=3, init=begun, max_iter=1)
    for candidate in resumed.state.candidates:
        assert len(candidate.records) <= 2
