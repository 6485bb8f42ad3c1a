"""The scikit-learn estimators keep scikit-learn's contract and the promises of `learn`."""

import pickle
import re
import subprocess
import sys
import warnings
from functools import cache

import naive
import numpy as np
import pandas as pd
import pytest
from estimators.kinds import ESTIMATORS, each_estimator
from helpers import peak_bytes
from scipy import sparse
from skimage.data import astronaut, camera, coins
from sklearn import datasets
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_extraction.image import extract_patches_2d
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import kappaform as kf
from kappaform.engines import NumpyEngine
from kappaform.engines.blocks import block_rows
from kappaform.learning import StopReason

N_FEATURES = 16
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.fixture
def signals(rng):
    return rng.standard_normal((300, N_FEATURES)).cumsum(axis=1)


# Their data may take more iterations than these, and the warning is right.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:signals has shape:UserWarning")
@parametrize_with_checks([estimator(max_iter=3) for estimator in ESTIMATORS])
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)


@each_estimator
def test_the_estimator_is_the_functional_core_with_its_result(estimator_class, signals):
    estimator = estimator_class(3, tol=1e-2).fit(signals)
    method = {
        kf.ConditionedTransform: kf.Conditioned(),
        kf.OrthonormalTransform: kf.Orthonormal(),
        kf.LogDetTransform: kf.LogDet(),
    }[estimator_class]
    result = kf.learn(signals, method, n_nonzero_coefs=3, tol=1e-2)
    np.testing.assert_array_equal(estimator.components_, result.transform)
    np.testing.assert_array_equal(estimator.loss_curve_, result.loss)
    np.testing.assert_array_equal(estimator.singular_values_, result.spectrum)
    assert estimator.condition_number_ == result.condition_number
    assert estimator.n_iter_ == result.n_iter
    assert estimator.result_.method == method
    assert estimator.n_features_in_ == N_FEATURES


def test_parameters_reach_the_method(signals):
    conditioned = kf.ConditionedTransform(
        3, max_condition=3.0, norm=2.0, objective="relative", tol=1e-2
    ).fit(signals)
    assert conditioned.result_.method == kf.Conditioned(3.0, 2.0, "relative")
    assert np.linalg.norm(conditioned.components_) == pytest.approx(2.0, rel=1e-12)
    log_det = kf.LogDetTransform(3, weight=0.1, frobenius_weight=0.2, tol=1e-2).fit(signals)
    assert log_det.result_.method == kf.LogDet(0.1, 0.2)


@each_estimator
@pytest.mark.parametrize(("n_features", "expected"), [(1, 1), (4, 1), (16, 2), (36, 4)])
def test_by_default_a_tenth_of_the_coefficients_is_kept(estimator_class, n_features, expected, rng):
    estimator = estimator_class(tol=0.1).fit(rng.standard_normal((50, n_features)))
    assert estimator.n_nonzero_coefs_ == expected
    assert estimator.n_nonzero_coefs is None


@pytest.mark.filterwarnings("ignore:n_nonzero_coefs=0:UserWarning")
@each_estimator
@each_dtype
@pytest.mark.parametrize("n_nonzero", [0, 1, 3, N_FEATURES])
def test_codes_are_the_largest_coefficients(estimator_class, dtype, n_nonzero, signals):
    signals = signals.astype(dtype)
    estimator = estimator_class(n_nonzero, tol=1e-2).fit(signals)
    estimator.coding = "largest"
    codes = estimator.transform(signals)
    assert np.count_nonzero(codes, axis=1).max() <= n_nonzero
    expected = naive.hard_threshold(
        signals.astype(float) @ estimator.result_.transform.T, n_nonzero
    )
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(codes, expected, atol=tolerance)


@pytest.mark.filterwarnings("ignore:n_nonzero_coefs=0:UserWarning")
@pytest.mark.parametrize("estimator_class", [kf.ConditionedTransform, kf.LogDetTransform])
@pytest.mark.parametrize("n_nonzero", [0, 1, 3, N_FEATURES])
def test_by_default_codes_are_those_that_reconstruct_best(estimator_class, n_nonzero, signals):
    estimator = estimator_class(n_nonzero, tol=1e-2).fit(signals)
    codes = estimator.transform(signals)
    expected = naive.rebuilding_codes(signals, estimator.result_.transform, n_nonzero)
    np.testing.assert_allclose(codes, expected, atol=1e-9 * np.abs(signals).max())
    rebuilt = estimator.inverse_transform(codes)
    lost = np.linalg.norm(signals - rebuilt) / np.linalg.norm(signals)
    assert estimator.score(signals) == pytest.approx(-lost, rel=1e-9, abs=1e-12)
    if n_nonzero not in (0, N_FEATURES):
        assert estimator.score(signals) > estimator.set_params(coding="largest").score(signals)


def test_how_codes_are_made_can_be_changed_after_learning_but_not_to_anything(signals):
    estimator = kf.ConditionedTransform(3, tol=1e-2, coding="largest").fit(signals)
    refitted = estimator.set_params(coding="refit").transform(signals)
    fresh = kf.ConditionedTransform(3, tol=1e-2).fit(signals)
    np.testing.assert_array_equal(refitted, fresh.transform(signals))
    estimator.coding = "best"
    for call in (estimator.transform, estimator.score, estimator.fit, estimator.partial_fit):
        with pytest.raises(ValueError, match="coding='best' is unknown: give 'largest' for"):
            call(signals)


@pytest.mark.filterwarnings("ignore:max_condition=1e:UserWarning")
def test_codes_that_reconstruct_need_a_regular_transform(signals):
    estimator = kf.ConditionedTransform(3, max_condition=1e300, tol=1e-2).fit(signals)
    spectrum = np.append(np.ones(N_FEATURES - 1), 1e-30)
    object.__setattr__(estimator.result_, "transform", np.diag(spectrum))
    with pytest.raises(ValueError, match=r"coding='refit': .*singular.*Or set coding='largest'"):
        estimator.transform(signals)
    assert estimator.set_params(coding="largest").transform(signals).any()


@cache
def real_signals(kind):
    """Signals as users have them, without their means: to learn from, and others of their kind."""
    if kind == "patches":
        size = {"patch_size": (8, 8), "max_patches": 1000, "random_state": 0}
        photos = camera(), astronaut().mean(axis=2), coins()
        found = np.concatenate([extract_patches_2d(photo, **size) for photo in photos])
        found = found.reshape(len(found), -1) / 255.0
        found -= found.mean(axis=1, keepdims=True)
    else:
        found = getattr(datasets, f"load_{kind}")().data
        found = found - found.mean(axis=0)
    return (found[::2], found[1::2]) if kind in ("patches", "digits") else (found, found)


@cache
def learned_by_default(estimator_class, kind):
    return estimator_class().fit(real_signals(kind)[0])  # a warning would be an error


@pytest.mark.parametrize("kind", ["patches", "digits"])
def test_the_default_reconstructs_better_than_a_cosine_or_a_learned_orthonormal_basis(kind):
    others = real_signals(kind)[1]
    score = learned_by_default(kf.ConditionedTransform, kind).score(others)
    cosine = -kf.evaluate(others, kf.dct_basis((8, 8))).reconstruction
    assert score > cosine
    assert score > learned_by_default(kf.OrthonormalTransform, kind).score(others)


@each_estimator
@each_dtype
def test_the_dtype_of_the_signals_is_kept(estimator_class, dtype, signals):
    signals = signals.astype(dtype)
    estimator = estimator_class(3, tol=1e-2).fit(signals)
    codes = estimator.transform(signals)
    assert estimator.components_.dtype == dtype
    assert codes.dtype == dtype
    assert estimator.inverse_transform(codes).dtype == dtype
    assert estimator.inverse_transform(sparse.csr_array(codes)).dtype == dtype
    assert estimator.singular_values_.dtype == np.float64
    np.testing.assert_array_equal(estimator.components_, estimator.result_.transform.astype(dtype))


@each_estimator
def test_double_precision_signals_are_coded_in_double_precision_whatever_was_fitted(
    estimator_class, signals
):
    estimator = estimator_class(N_FEATURES).fit(signals.astype(np.float32))
    codes = estimator.transform(signals)
    assert codes.dtype == np.float64
    np.testing.assert_allclose(codes, signals @ estimator.result_.transform.T, atol=1e-12)


@each_estimator
@each_dtype
def test_all_coefficients_reconstruct_the_signals(estimator_class, dtype, signals):
    signals = signals.astype(dtype)
    estimator = estimator_class(N_FEATURES).fit(signals)
    rebuilt = estimator.inverse_transform(estimator.transform(signals))
    rounding = 100 * np.finfo(dtype).eps * np.abs(signals).max()
    np.testing.assert_allclose(rebuilt, signals, atol=rounding)
    assert -100 * np.finfo(dtype).eps < estimator.score(signals) <= 0


# The bound holds wherever learning stops.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_dtype
@pytest.mark.parametrize("objective", ["absolute", "relative"])
@pytest.mark.parametrize("max_condition", [1.0, 1.5, 10.0, 1e4])
def test_condition_number_never_exceeds_the_bound(max_condition, objective, dtype, signals):
    estimator = kf.ConditionedTransform(
        3, max_condition=max_condition, objective=objective, max_iter=20
    ).fit(signals.astype(dtype))
    assert estimator.condition_number_ <= max_condition * (1 + 1e-9)
    spectrum = np.linalg.svd(estimator.result_.transform, compute_uv=False)
    assert spectrum[0] <= max_condition * (1 + 1e-9) * spectrum[-1]
    assert (np.diff(estimator.singular_values_) <= 0).all()


@each_estimator
@each_dtype
def test_sparse_codes_equal_dense_codes(estimator_class, dtype, signals):
    signals = np.tile(signals, (8, 1)).astype(dtype)  # several blocks
    estimator = estimator_class(3, tol=1e-2).fit(signals)
    dense = estimator.transform(signals)
    estimator.sparse_output = True
    codes = estimator.transform(signals)
    assert isinstance(codes, sparse.csr_array)
    assert codes.dtype == dtype
    assert codes.nnz <= 3 * len(signals)
    np.testing.assert_array_equal(codes.toarray(), dense)
    np.testing.assert_allclose(
        estimator.inverse_transform(codes),
        estimator.inverse_transform(dense),
        atol=100 * np.finfo(dtype).eps * np.abs(signals).max(),
    )


def test_the_row_that_is_not_finite_is_named_whatever_block_it_is_in(signals):
    signals = np.tile(signals, (30, 1))
    estimator = kf.OrthonormalTransform(3, tol=1e-2, sparse_output=True).fit(signals)
    codes = estimator.transform(signals)
    assert block_rows(N_FEATURES, signals.dtype) < 8000
    signals[8000, 3] = np.nan
    with pytest.raises(ValueError, match="first in row 8000"):
        estimator.transform(signals)
    codes.data[codes.indptr[8000]] = np.nan
    with pytest.raises(ValueError, match="X contains NaN or inf, first in row 8000"):
        estimator.inverse_transform(codes)


@pytest.mark.parametrize("seed", range(6))
def test_what_keeps_all_coefficients_is_reconstructed_however_ill_conditioned(seed):
    rng, condition = np.random.default_rng(seed), 1e7
    left, right = kf.random_basis(64, rng), kf.random_basis(64, rng)
    start = (left * np.repeat([1, 1 / condition], 32)) @ right
    signals = rng.standard_normal((300, 16)) @ right[:16]  # of rank 16
    estimator = kf.ConditionedTransform(64, max_condition=2 * condition, norm=None, init=start)
    estimator.fit(signals)
    assert estimator.condition_number_ == pytest.approx(condition, rel=1e-6)
    codes = estimator.transform(signals)
    for each in (codes, sparse.csr_array(codes)):
        lost = np.linalg.norm(signals - estimator.inverse_transform(each))
        assert lost < 1e-15 * condition * np.linalg.norm(signals)
    assert -1e-15 * condition < estimator.score(signals) <= 0


def test_signals_are_reconstructed_with_the_same_bits_whatever_blas_does(rng):
    signals = rng.standard_normal((600, 256))
    start = rng.standard_normal((256, 256))
    estimator = kf.OrthonormalTransform(20, tol=1.0, init=start).fit(signals)
    codes = sparse.csr_array(estimator.transform(signals))
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            for each in (codes, codes.toarray()):
                found.append((estimator.inverse_transform(each), estimator.score(signals)))
    for rebuilt, score in found[1:]:
        np.testing.assert_array_equal(rebuilt, found[0][0])
        assert score == found[0][1]


@each_estimator
@pytest.mark.parametrize("sparse_output", [False, True])
def test_fit_transform_is_fit_then_transform(estimator_class, sparse_output, signals):
    estimator = estimator_class(3, tol=1e-2, sparse_output=sparse_output)
    at_once = estimator.fit_transform(signals)
    in_turn = clone(estimator).fit(signals).transform(signals)
    if sparse_output:
        at_once, in_turn = at_once.toarray(), in_turn.toarray()
    np.testing.assert_array_equal(at_once, in_turn)


@each_estimator
@each_dtype
def test_score_is_minus_the_relative_reconstruction_error(estimator_class, dtype, signals):
    signals = np.vstack([signals, 10 * signals, signals, signals, signals]).astype(dtype)
    estimator = estimator_class(3, tol=1e-2).fit(signals)
    codes = estimator.transform(signals).astype(float)
    rebuilt = np.linalg.solve(estimator.result_.transform, codes.T).T
    error = np.linalg.norm(signals - rebuilt) / np.linalg.norm(signals.astype(float))
    assert estimator.score(signals) == pytest.approx(-error, rel=1e-9)


def test_more_coefficients_score_better(signals):
    scores = [kf.OrthonormalTransform(s, tol=1e-3).fit(signals).score(signals) for s in (1, 3, 8)]
    assert scores == sorted(scores)
    assert scores[0] < scores[-1]


def test_zero_signals_are_reconstructed_perfectly(signals):
    estimator = kf.ConditionedTransform(3, tol=1e-2).fit(signals)
    assert estimator.score(np.zeros((5, N_FEATURES))) == 0


@each_estimator
@pytest.mark.parametrize("exponent", [-900, -60, 60, 900])
def test_scaled_signals_have_scaled_codes_and_the_same_score(estimator_class, exponent, signals):
    scaled = np.ldexp(signals, exponent)
    ordinary = estimator_class(3, tol=1e-2).fit(signals)
    estimator = estimator_class(3, tol=1e-2).fit(scaled)
    expected = np.ldexp(ordinary.transform(signals), exponent)
    np.testing.assert_array_equal(ordinary.transform(scaled), expected)
    np.testing.assert_array_equal(estimator.components_, ordinary.components_)
    assert estimator.score(scaled) == ordinary.score(signals)


def test_in_a_pipeline_with_a_regression(signals):
    target = signals[:, 3] - 2 * signals[:, 7]
    pipeline = make_pipeline(
        StandardScaler(), kf.ConditionedTransform(N_FEATURES, sparse_output=True), Ridge(1e-6)
    ).fit(signals, target)
    assert pipeline.score(signals, target) > 0.999


def test_grid_search_over_the_bound_prefers_what_reconstructs_best(signals):
    bounds = [1.0, 2.0, 4.0]
    estimator = kf.ConditionedTransform(3, init="dct", tol=1e-2)
    search = GridSearchCV(estimator, {"max_condition": bounds}, cv=3, error_score="raise")
    search.fit(signals)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(set(scores)) == 3
    assert search.best_params_["max_condition"] == bounds[int(np.argmax(scores))]
    bound = search.best_params_["max_condition"]
    assert search.best_estimator_.condition_number_ <= bound * (1 + 1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_grid_search_in_several_processes_gives_the_same_scores(signals):
    estimator, bounds = (
        kf.ConditionedTransform(3, init="dct", max_iter=3),
        {"max_condition": [1, 2]},
    )
    one, two = (
        GridSearchCV(estimator, bounds, cv=2, n_jobs=n_jobs, error_score="raise").fit(signals)
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(
        one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"]
    )


@each_estimator
def test_clones_share_parameters_and_nothing_learned(estimator_class, signals):
    estimator = estimator_class(3, tol=1e-2, init=np.eye(N_FEATURES)).fit(signals)
    copy = clone(estimator)
    assert not hasattr(copy, "components_")
    np.testing.assert_array_equal(copy.fit(signals).components_, estimator.components_)


@each_estimator
def test_fitting_changes_no_parameter(estimator_class, signals):
    parameters = {"n_nonzero_coefs": np.int64(3), "init": np.eye(N_FEATURES), "tol": 1e-2}
    estimator = estimator_class(**parameters).fit(signals)
    for name, value in parameters.items():
        assert getattr(estimator, name) is value


@each_estimator
@each_dtype
def test_pickled_estimators_give_the_same_codes(estimator_class, dtype, signals):
    signals = signals.astype(dtype)
    estimator = estimator_class(3, tol=1e-2).fit(signals)
    restored = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(restored.transform(signals), estimator.transform(signals))
    np.testing.assert_array_equal(restored.loss_curve_, estimator.loss_curve_)


@each_estimator
def test_pandas_in_and_out(estimator_class, signals):
    table = pd.DataFrame(signals, columns=[f"x{i}" for i in range(N_FEATURES)])
    estimator = estimator_class(3, tol=1e-2).fit(table)
    codes = estimator.transform(table)
    named = clone(estimator).set_output(transform="pandas").fit(table).transform(table)
    prefix = estimator_class.__name__.lower()
    assert list(named.columns) == [f"{prefix}{i}" for i in range(N_FEATURES)]
    assert list(estimator.get_feature_names_out()) == list(named.columns)
    assert list(estimator.feature_names_in_) == list(table.columns)
    np.testing.assert_array_equal(named.to_numpy(), codes)


def test_stopping_at_max_iter_warns_with_the_numbers_and_the_remedy(signals):
    with pytest.warns(ConvergenceWarning) as caught:
        estimator = kf.OrthonormalTransform(3, max_iter=4, tol=1e-9).fit(signals)
    before, last = estimator.loss_curve_[-2:]
    message = str(caught[0].message)
    assert "OrthonormalTransform stopped after 4 iterations, with max_iter=4." in message
    assert f"relative change of the loss is {(before - last) / before:.1e}, tol=1e-09" in message
    assert message.endswith("increase max_iter or tol.")
    assert caught[0].filename == __file__
    assert estimator.n_iter_ == 4


@pytest.mark.parametrize("objective", ["absolute", "relative"])
def test_a_warning_never_contradicts_the_race_of_starts(objective, signals):
    tol, seen = 1e-2, set()
    for max_iter in range(1, 60, 6):
        estimator = kf.ConditionedTransform(3, objective=objective, max_iter=max_iter, tol=tol)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = estimator.fit(signals).result_
        if result.converged:  # the leader has converged, whether or not others might overtake it
            assert not caught
            old, new = result.loss[-2:]
            assert old - new <= tol * old
            seen.add("converged in a race" if result.state.races else "converged")
            continue
        message = str(caught[0].message)
        found = re.search(r"relative change of the loss is (\S+), tol=0.01: increase", message)
        assert (
            (float(found[1]) >= tol) if found else "when the best start had only begun" in message
        )
        seen.add("changes" if found else "begins")
    assert seen >= {"changes", "converged in a race", "converged"}


@pytest.mark.parametrize("kind", ["digits", "patches", "breast_cancer", "wine", "iris"])
def test_the_defaults_converge(kind):
    assert learned_by_default(kf.ConditionedTransform, kind).result_.converged


@pytest.mark.parametrize("kind", ["digits", "patches", "breast_cancer", "wine", "iris"])
def test_the_defaults_converge_at_a_larger_bound(kind):
    estimator = kf.ConditionedTransform(max_condition=20.0).fit(real_signals(kind)[0])
    assert estimator.result_.converged


def test_a_callback_can_stop_without_a_warning(signals):
    states = []

    def stop_after_three(state):
        states.append(state)
        return state.n_iter == 3

    estimator = kf.OrthonormalTransform(3, tol=0, callback=stop_after_three).fit(signals)
    assert [state.n_iter for state in states] == [1, 2, 3]
    assert estimator.n_iter_ == 3


@each_estimator
def test_an_interrupted_fit_keeps_what_was_learned(estimator_class, signals):
    def interrupt(state):
        if state.n_iter == 3:
            raise KeyboardInterrupt

    estimator = estimator_class(3, tol=0, callback=interrupt)
    with pytest.raises(kf.LearningInterrupted) as caught:
        estimator.fit(signals)
    assert estimator.result_ is caught.value.result
    assert estimator.n_iter_ == 3
    assert estimator.transform(signals).shape == signals.shape


def test_fitting_can_go_on_from_a_result(signals):
    with pytest.warns(ConvergenceWarning):
        first = kf.OrthonormalTransform(3, max_iter=4, tol=1e-4).fit(signals)
    resumed = kf.OrthonormalTransform(3, tol=1e-4, init=first.result_).fit(signals)
    whole = kf.OrthonormalTransform(3, tol=1e-4).fit(signals)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.loss_curve_, whole.loss_curve_)


@pytest.mark.parametrize("callback", [None, lambda state: state.n_iter == 2])
def test_verbose_prints_every_iteration_and_why_it_stopped(callback, signals, capsys):
    kf.OrthonormalTransform(3, tol=1e-2, callback=callback).fit(signals)
    assert capsys.readouterr() == ("", "")
    estimator = kf.OrthonormalTransform(3, tol=1e-2, callback=callback, verbose=1).fit(signals)
    lines, who = capsys.readouterr().out.splitlines(), "[OrthonormalTransform]"
    losses = enumerate(estimator.loss_curve_[1:], start=1)
    *iterations, last = lines
    assert iterations == [f"{who} iteration {i}, loss {loss:.6g}" for i, loss in losses]
    reason = estimator.result_.stop_reason
    assert last == f"{who} stopped after {estimator.n_iter_} iterations: {reason}"


@pytest.mark.parametrize(
    "parameters",
    [
        {"variant": "paper"},
        {"variant": "reference", "norm": 2.0},
        {"n_rounds": 1, "objective": "relative"},
        {"norm": None, "objective": "relative"},
    ],
)
def test_every_option_of_the_method_is_a_parameter(parameters, signals):
    estimator = kf.ConditionedTransform(3, max_condition=3.0, tol=1e-2, **parameters).fit(signals)
    method = kf.Conditioned(3.0, **parameters)
    expected = kf.learn(signals, method, n_nonzero_coefs=3, tol=1e-2)
    assert estimator.result_.method == method
    np.testing.assert_array_equal(estimator.result_.transform, expected.transform)
    assert estimator.partial_fit(signals).result_.method == method


@each_estimator
@pytest.mark.parametrize("method", ["transform", "inverse_transform", "score"])
def test_what_needs_a_fit_says_so(estimator_class, method, signals):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(estimator_class(), method)(signals)


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        (
            lambda signals: np.ma.masked_less(signals, -3.0),
            "is a masked array with masked entries: fill or drop",
        ),
        (lambda signals: signals.astype("datetime64[s]"), "it must hold real numbers"),
        (lambda signals: signals.astype("timedelta64[s]"), "it must hold real numbers"),
        (lambda signals: pd.DataFrame(signals.astype("datetime64[s]")), "must hold real numbers"),
        (lambda signals: signals.astype(str), "numeric values|must hold real numbers"),
    ],
    ids=["masked", "dates", "durations", "table", "strings"],
)
def test_what_learn_rejects_estimators_reject(prepare, told, signals):
    estimator = kf.OrthonormalTransform(3, tol=1e-2).fit(signals)
    bad = prepare(signals)
    with pytest.raises((TypeError, ValueError), match=told):
        kf.learn(bad)
    for call in ("fit", "partial_fit", "transform", "score", "inverse_transform"):
        with pytest.raises((TypeError, ValueError), match=told):
            getattr(estimator, call)(bad)


def test_codes_of_another_length_are_rejected(signals):
    estimator = kf.OrthonormalTransform(3, tol=1e-2).fit(signals)
    with pytest.raises(ValueError, match="X has 5 features: the codes of this transform have 16"):
        estimator.inverse_transform(np.ones((2, 5)))


@each_estimator
def test_signals_in_any_layout_have_the_same_codes(estimator_class, signals):
    estimator = estimator_class(3, tol=1e-2).fit(signals)
    expected = estimator.transform(signals)
    for same in (np.asfortranarray(signals), np.repeat(signals, 2, axis=0)[::2], signals.tolist()):
        np.testing.assert_array_equal(estimator.transform(same), expected)
        other = clone(estimator).fit(same)
        np.testing.assert_array_equal(other.components_, estimator.components_)


@each_estimator
def test_half_precision_counts_as_single(estimator_class, signals):
    half = signals.astype(np.float16)
    estimator = estimator_class(3, tol=1e-2).fit(half)
    assert estimator.components_.dtype == np.float32
    single = half.astype(np.float32)
    codes = estimator.transform(half)
    assert codes.dtype == np.float32
    np.testing.assert_array_equal(codes, estimator.transform(single))
    other = estimator_class(3, tol=1e-2).fit(single)
    np.testing.assert_array_equal(estimator.components_, other.components_)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i8", "f2", "f4", ">f4", ">f8", ">i4"])
def test_memory_mapped_signals_are_never_copied_as_a_whole(dtype, signals, tmp_path, monkeypatch):
    np.save(tmp_path / "signals.npy", (10 * np.abs(signals)).astype(dtype))
    mapped = np.load(tmp_path / "signals.npy", mmap_mode="r")
    seen = []

    def engine(given, *rest):
        seen.append(given)
        return NumpyEngine(given, *rest)

    monkeypatch.setattr("kappaform.engines.numpy.NumpyEngine", engine)
    estimator = kf.OrthonormalTransform(3, tol=1e-2).fit(mapped)
    codes = estimator.transform(mapped)
    assert len(seen) == 2
    assert all(np.shares_memory(each, mapped) for each in seen)
    working = np.float32 if dtype in ("f2", "f4", ">f4") else np.float64
    assert codes.dtype == estimator.components_.dtype == working
    np.testing.assert_array_equal(codes, estimator.transform(np.array(mapped, working)))


def test_sparse_codes_are_never_dense_as_a_whole(rng, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "2")
    signals = rng.standard_normal((100_000, 64)).astype(np.float32)
    estimator = kf.OrthonormalTransform(3, tol=1.0, sparse_output=True).fit(signals[:1000])
    estimator.inverse_transform(estimator.transform(signals[:1000]))
    codes = estimator.transform(signals)
    assert peak_bytes(lambda: estimator.transform(signals)) < signals.nbytes / 2
    assert peak_bytes(lambda: estimator.inverse_transform(codes)) < 2 * signals.nbytes


def test_components_are_a_copy_of_ones_own(signals):
    estimator = kf.OrthonormalTransform(3, tol=1e-2).fit(signals)
    kept = estimator.result_.transform.copy()
    estimator.components_[:] = 0
    np.testing.assert_array_equal(estimator.result_.transform, kept)


@each_estimator
def test_by_default_patches_of_photographs_converge(estimator_class):
    assert learned_by_default(estimator_class, "patches").result_.converged


def test_importing_the_estimators_imports_no_plots_and_no_accelerator():
    script = "import sys, kappaform.estimators; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"matplotlib", "skimage", "torch", "dask"} & set(loaded)


@each_estimator
def test_no_update_raises_the_loss(estimator_class, signals):
    # A step that does is dropped, and so not in the curve: but it ends learning.
    estimator = estimator_class(3, init="dct", tol=1e-4).fit(signals)
    assert estimator.result_.stop_reason is StopReason.TOLERANCE
    curve = estimator.loss_curve_
    assert len(curve) > 5
    assert (np.diff(curve) <= 1e-12 * np.abs(curve[:-1])).all()
