"""Unusual input gives the right result, bad input an error that says what to do."""

import re

import numpy as np
import pytest
from estimators.kinds import ESTIMATORS, each_estimator
from sklearn.exceptions import ConvergenceWarning

import kappaform as kf

N_SIGNALS, N_FEATURES = 60, 9
MONOTONE = [
    kf.Conditioned(),
    kf.Conditioned(max_condition=1.0),
    kf.Conditioned(max_condition=1e6),
    kf.Conditioned(objective="relative"),
    kf.Conditioned(norm=None),
    kf.Orthonormal(),
    kf.LogDet(),
]
METHODS = [*MONOTONE, *(kf.Conditioned(variant=v) for v in ("paper", "reference", "public"))]
each_method = pytest.mark.parametrize("method", METHODS, ids=str)
each_monotone_method = pytest.mark.parametrize("method", MONOTONE, ids=str)


@pytest.fixture
def signals(rng):
    return rng.standard_normal((N_SIGNALS, N_FEATURES)).cumsum(axis=1)


def assert_sound(result):
    """Everything finite, and the bound kept."""
    assert np.isfinite(result.transform).all()
    assert np.isfinite(result.loss).all()
    assert np.isfinite(result.errors.absolute).all()
    assert np.isfinite(result.errors.relative).all()
    assert np.isfinite(result.errors.absolute_before[1:]).all()
    if isinstance(result.method, kf.Conditioned):
        assert result.condition_number <= result.method.max_condition * (1 + 1e-9)
    if isinstance(result.method, kf.Orthonormal):
        product = result.transform @ result.transform.T
        np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-13)


def rejected(error, *texts):
    """Expect an error whose message has all of `texts`, in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, texts)))


# --- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signals_that_are_not_finite_are_rejected_and_their_row_named(bad, dtype, signals):
    broken = signals.astype(dtype)
    broken[[7, 30], 2] = bad
    told = ("signals contains NaN or inf", "first in row 7", "drop such rows or fill them")
    with rejected(ValueError, *told):
        kf.learn(broken)
    for estimator_class in ESTIMATORS:
        with rejected(ValueError, *told):
            estimator_class().fit(broken)
        fitted = estimator_class(tol=0.1).fit(signals)
        for method in (fitted.transform, fitted.score):
            with rejected(ValueError, *told):
                method(broken)


@pytest.mark.parametrize(
    ("bad", "error", "told", "told_by_estimators"),
    [
        (np.zeros((0, 9)), ValueError, ("(0, 9)", "at least one signal"), "0 sample(s)"),
        (np.zeros((9, 0)), ValueError, ("(9, 0)", "one feature"), "0 feature(s)"),
        (np.zeros(9), ValueError, ("(9,)", "2-D, one signal per row", "reshape"), "Expected 2D"),
        (np.zeros((2, 3, 4)), ValueError, ("(2, 3, 4)", "signals.reshape(len(sig"), "dim 3"),
        (np.zeros((9, 9), complex), TypeError, ("complex128", "must hold real"), "Complex data"),
        (
            np.array([["a", "b"]]),
            TypeError,
            ("<U1", "must hold real numbers"),
            "arrays of bytes/strings",
        ),
        (np.array([[{}, 1.0]]), TypeError, ("dtype object", "must hold real numbers"), "float()"),
        ([[1.0, 2.0], [3.0]], ValueError, ("not an array", "one length"), "inhomogeneous"),
    ],
    ids=["empty", "no features", "1-D", "3-D", "complex", "strings", "objects", "ragged"],
)
def test_what_is_no_array_of_signals_is_rejected(bad, error, told, told_by_estimators):
    with rejected(error, "signals", *told):
        kf.learn(bad)
    for estimator_class in ESTIMATORS:
        with pytest.raises((ValueError, TypeError), match=re.escape(told_by_estimators)):
            estimator_class().fit(bad)


@pytest.mark.filterwarnings("ignore:signals has shape:UserWarning")
@each_method
@pytest.mark.parametrize("n_signals", [1, 4])
def test_fewer_signals_than_features_are_learned(method, n_signals, signals):
    result = kf.learn(signals[:n_signals], method, max_iter=10)
    assert_sound(result)
    rounding = 1e-14 * np.linalg.norm(signals[:n_signals])  # one signal leaves no error but this
    assert result.loss[-1] <= result.loss[0] + rounding or method not in MONOTONE


@pytest.mark.filterwarnings("ignore:signals has shape:UserWarning")
@each_monotone_method
@pytest.mark.parametrize("n_signals", [1, 20])
def test_a_single_signal_gets_an_exact_code_of_one_coefficient(method, n_signals, signals):
    same = np.repeat(signals[:1], n_signals, axis=0)
    result = kf.learn(same, method, n_nonzero_coefs=1, max_iter=20)
    assert_sound(result)
    assert result.errors.relative[-1] < 1e-12


@each_method
def test_all_zero_signals_have_zero_error_at_once(method):
    result = kf.learn(np.zeros((20, N_FEATURES)), method)
    assert_sound(result)
    assert result.converged
    assert result.n_iter == 1
    assert result.errors.absolute[-1] == result.errors.relative[-1] == 0


@each_method
@pytest.mark.parametrize("value", [3.0, -1e-8])
def test_constant_signals_are_learned(method, value):
    result = kf.learn(np.full((20, N_FEATURES), value), method, max_iter=20)
    assert_sound(result)
    assert result.errors.relative[-1] < 1e-12


# What is left of the error is rounding, whose changes are no sign of anything.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_estimator
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_signals_are_coded_and_reconstructed(estimator_class, value):
    constant = np.full((20, N_FEATURES), value)
    estimator = estimator_class().fit(constant)
    codes = estimator.transform(constant)
    assert np.count_nonzero(codes, axis=1).max() <= 1
    np.testing.assert_allclose(estimator.inverse_transform(codes), constant, atol=1e-12)
    assert estimator.score(constant) == pytest.approx(0, abs=1e-12)


@each_method
def test_features_without_energy_are_learned(method, signals):
    signals[:, :3] = 0
    assert_sound(kf.learn(signals, method, max_iter=10))


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float16, np.longdouble])
@each_method
def test_real_numbers_of_any_type_are_learned(method, dtype, signals):
    assert_sound(kf.learn((10 * signals).clip(0, 200).astype(dtype), method, max_iter=5))


@each_method
@pytest.mark.parametrize("exponent", [-1000, -500, -40, 500, 1000])  # 2**500 is about 1e150
def test_a_power_of_two_changes_errors_by_itself_and_nothing_else(method, exponent, signals):
    ordinary = kf.learn(signals, method, max_iter=10)
    result = kf.learn(np.ldexp(signals, exponent), method, max_iter=10)
    assert_sound(result)
    np.testing.assert_array_equal(result.transform, ordinary.transform)
    np.testing.assert_array_equal(result.errors.relative, ordinary.errors.relative)
    np.testing.assert_array_equal(
        result.errors.absolute, np.ldexp(ordinary.errors.absolute, exponent)
    )


@each_method
@pytest.mark.parametrize("exponent", [-90, 90])
def test_powers_of_two_are_exact_in_single_precision_too(method, exponent, signals):
    signals = signals.astype(np.float32)
    ordinary = kf.learn(signals, method, max_iter=10)
    result = kf.learn(np.ldexp(signals, exponent), method, max_iter=10)
    assert_sound(result)
    np.testing.assert_array_equal(result.transform, ordinary.transform)


@each_method
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
def test_huge_and_tiny_signals_are_learned_like_others(method, scale, signals):
    # With every atom in use: rounding decides where the published variants move those that are not.
    options = {"n_nonzero_coefs": 3, "init": "dct", "max_iter": 3}
    ordinary = kf.learn(signals, method, **options)
    result = kf.learn(signals * scale, method, **options)
    assert_sound(result)
    np.testing.assert_allclose(result.errors.relative, ordinary.errors.relative, rtol=1e-9)
    np.testing.assert_allclose(result.errors.absolute / scale, ordinary.errors.absolute, rtol=1e-9)


@each_method
def test_signals_of_very_different_size_are_learned(method, signals):
    sizes = np.logspace(-300, 300, N_SIGNALS)[:, np.newaxis]
    assert_sound(kf.learn(signals * sizes, method, max_iter=5))
    assert_sound(kf.learn(signals * np.logspace(-150, 150, N_FEATURES), method, max_iter=5))


# --- sparsity ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sparsity", "error", "told"),
    [
        (-1, ValueError, ("n_nonzero_coefs=-1 is negative", "0 entries or more")),
        (10, ValueError, ("n_nonzero_coefs=10 exceeds n_features=9", "only 9 entries")),
        (2.5, TypeError, ("n_nonzero_coefs=2.5", "integer, or None")),
        (2.0, TypeError, ("n_nonzero_coefs=2.0", "integer, or None")),
        (True, TypeError, ("n_nonzero_coefs=True", "integer, or None")),
        ("6", TypeError, ("n_nonzero_coefs='6'", "integer, or None")),
        (np.nan, TypeError, ("n_nonzero_coefs=nan", "integer, or None")),
    ],
)
def test_impossible_sparsities_are_rejected(sparsity, error, told, signals):
    with rejected(error, *told):
        kf.learn(signals, n_nonzero_coefs=sparsity)
    for estimator_class in ESTIMATORS:
        with rejected(error, *told):
            estimator_class(sparsity).fit(signals)


@pytest.mark.parametrize(
    ("sparsities", "error", "told"),
    [
        (np.ones(59, int), ValueError, ("n_nonzero_coefs has shape (59,)", "each of the 60")),
        (np.ones((60, 1), int), ValueError, ("n_nonzero_coefs has shape (60, 1)", "one for each")),
        ([], TypeError, ("n_nonzero_coefs has dtype float64", "integers")),
        (np.ones(60), TypeError, ("n_nonzero_coefs has dtype float64", "integers")),
        (np.arange(60) - 1, ValueError, ("n_nonzero_coefs=-1 is negative", "0 entries or more")),
        (np.arange(60), ValueError, ("n_nonzero_coefs=59 exceeds n_features=9", "only 9")),
    ],
    ids=["short", "2-D", "empty", "float", "negative", "too many"],
)
def test_impossible_sparsities_of_single_signals_are_rejected(sparsities, error, told, signals):
    with rejected(error, *told):
        kf.learn(signals, n_nonzero_coefs=sparsities)


@each_estimator
def test_estimators_reject_sparsities_of_single_signals(estimator_class, signals):
    for each in (np.full(N_SIGNALS, 2), [2] * N_SIGNALS):
        told = ("n_nonzero_coefs has 60 entries:", "one integer, or None", "for `learn`")
        with rejected(TypeError, *told):
            estimator_class(each).fit(signals)


@each_method
def test_codes_may_be_empty_or_full(method, signals):
    with pytest.warns(UserWarning, match="n_nonzero_coefs=0: .* nothing is learned; give at least"):
        empty = kf.learn(signals, method, n_nonzero_coefs=0, max_iter=10)
    assert_sound(empty)
    assert empty.errors.relative[-1] == 1
    full = kf.learn(signals, method, n_nonzero_coefs=N_FEATURES)
    assert_sound(full)
    assert full.converged
    assert full.errors.absolute[-1] == 0


@each_method
def test_single_signals_may_have_no_code(method, signals):
    assert_sound(kf.learn(signals, method, n_nonzero_coefs=np.arange(60) % 3, max_iter=5))


# --- methods -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.999, 0, -2.0, np.nan, np.inf, "2", None, True])
def test_bounds_that_no_transform_can_keep_are_rejected(bound, signals):
    told = (f"max_condition={bound!r}", "finite number >= 1", "orthonormal")
    with rejected(ValueError, *told):
        kf.Conditioned(max_condition=bound)
    with rejected(ValueError, *told):
        kf.ConditionedTransform(max_condition=bound).fit(signals)


@pytest.mark.parametrize("norm", [0, 0.0, -1.0, np.nan, np.inf, "big", False, 0.9e-6, 1.1e6])
def test_norms_that_are_none_are_rejected(norm, signals):
    told = (
        f"norm={norm!r}",
        "positive finite number (1e-6 to 1e6)",
        "'auto'",
        "None to leave it free",
    )
    with rejected(ValueError, *told):
        kf.Conditioned(norm=norm)
    with rejected(ValueError, *told):
        kf.ConditionedTransform(norm=norm).fit(signals)


@pytest.mark.parametrize("name", ["weight", "frobenius_weight"])
@pytest.mark.parametrize("weight", [0, -1e-3, np.nan, np.inf, "1", True])
def test_weights_that_do_not_penalise_are_rejected(name, weight, signals):
    told = (f"{name}={weight!r}", "must be positive and finite", "singular or unbounded")
    with rejected(ValueError, *told):
        kf.LogDet(**{name: weight})
    with rejected(ValueError, *told):
        kf.LogDetTransform(**{name: weight}).fit(signals)


def test_unknown_words_are_rejected_with_the_known_ones(signals):
    with rejected(ValueError, "objective='squared' is unknown", "'absolute', 'relative'"):
        kf.Conditioned(objective="squared")
    with rejected(ValueError, "objective='squared' is unknown", "'absolute', 'relative'"):
        kf.ConditionedTransform(objective="squared").fit(signals)
    with rejected(ValueError, "variant='best' is unknown", "'monotone', 'paper', 'reference'"):
        kf.Conditioned(variant="best")
    with rejected(
        ValueError, "objective='relative' with variant='paper'", "use variant='monotone'"
    ):
        kf.Conditioned(objective="relative", variant="paper")


@pytest.mark.parametrize("learn", [kf.learn, kf.learn_union])
def test_a_bound_in_place_of_a_method_is_rejected_with_the_method_for_it(learn, signals):
    with rejected(TypeError, "method=2.0 is a number", "the bound as Conditioned(2.0)"):
        learn(signals, 2.0)


def test_a_number_in_place_of_the_method_of_a_union_may_be_that_of_transforms(signals):
    with rejected(TypeError, "method=2 is a number", "n_transforms=", "bound as Conditioned(2)"):
        kf.learn_union(signals, 2)


def test_the_class_of_a_method_is_rejected(signals):
    with rejected(TypeError, "method=", "is a class: give an object of it, Conditioned()"):
        kf.learn(signals, kf.Conditioned)


@pytest.mark.parametrize("method", ["conditioned", True])
def test_what_is_no_method_is_rejected(method, signals):
    with rejected(TypeError, "method=", "give Conditioned(...), LogDet(...) or Orthonormal()"):
        kf.learn(signals, method)


# --- where to start and when to stop -------------------------------------------------------------


@pytest.mark.parametrize(
    ("init", "error", "told"),
    [
        (np.eye(8), ValueError, ("init has shape (8, 8)", "9 features", "(9, 9)")),
        (np.ones((9, 8)), ValueError, ("init has shape (9, 8)", "(9, 9)")),
        (np.ones(9), ValueError, ("init has shape (9,)", "(9, 9)")),
        (np.full((9, 9), np.nan), ValueError, ("init contains NaN or inf", "must be finite")),
        (np.full((9, 9), np.inf), ValueError, ("init contains NaN or inf", "must be finite")),
        (np.eye(9, dtype=complex), TypeError, ("init", "complex128", "real")),
        (
            None,
            TypeError,
            ("init has dtype object", "'dct'", "(9, 9)", "LearnResult", "tuple of these"),
        ),
        (["dct", "auto"], TypeError, ("init has dtype <U4", "'dct'", "(9, 9)", "tuple of these")),
        ([np.eye(9), "dct"], ValueError, ("init is not an array", "one length")),
        (np.zeros((9, 9)), ValueError, ("init is zero everywhere", "regular matrix, or 'auto'")),
        (1e7 * np.eye(9), ValueError, ("init has entries up to 1e+07", "between 1e-6 and 1e6")),
        (1e-7 * np.eye(9), ValueError, ("init has entries up to 1e-07", "between 1e-6 and 1e6")),
        ("DCT", ValueError, ("init='DCT' is unknown", "'dct'", "(9, 9)", "LearnResult")),
        ((), ValueError, ("init=()", "at least one start, or 'auto'")),
        (("dct", "none"), ValueError, ("init='none' is unknown", "'dct'")),
    ],
)
def test_starts_that_are_no_transform_are_rejected(init, error, told, signals):
    with rejected(error, *told):
        kf.learn(signals, init=init)
    for estimator_class in ESTIMATORS:
        with rejected(error, *told):
            estimator_class(init=init).fit(signals)


def test_a_result_for_other_signals_is_no_start(signals):
    other = kf.learn(signals[:, :4], max_iter=1)
    with rejected(ValueError, "init has shape (4, 4)", "9 features", "(9, 9)"):
        kf.learn(signals, init=other)


@each_method
@pytest.mark.parametrize(
    "init",
    [
        np.ones((9, 9)),
        np.diag([1.0, *[0.0] * 8]),
        np.diag(10.0 ** np.arange(-2, 7)),
        1e-6 * np.diag(10.0 ** -np.arange(9)),
        np.eye(9, dtype=int),
        -np.eye(9, dtype=np.float32)[::-1],
    ],
    ids=["constant", "rank 1", "beyond the bound", "tiny", "integers", "float32"],
)
def test_any_other_matrix_is_projected_to_a_feasible_start(method, init, signals):
    given = init.copy()
    result = kf.learn(signals, method, init=init, max_iter=5)
    assert_sound(result)
    assert result.loss[-1] <= result.loss[0] or method not in MONOTONE
    np.testing.assert_array_equal(init, given)


@pytest.mark.parametrize("max_iter", [0, -3, 2.5, np.nan, "5", None])
def test_no_iterations_are_no_learning(max_iter, signals):
    with rejected(ValueError, f"max_iter={max_iter!r}", "whole number of iterations >= 1"):
        kf.learn(signals, max_iter=max_iter)
    for estimator_class in ESTIMATORS:
        with rejected(ValueError, f"max_iter={max_iter!r}", "whole number of iterations >= 1"):
            estimator_class(max_iter=max_iter).fit(signals)


@pytest.mark.parametrize("rng", ["a", 1.5, 0.0, -1, [1, 2], True])
def test_only_seeds_and_generators_are_random(rng):
    image = np.random.default_rng(0).normal(size=(16, 16))
    calls = [
        lambda: kf.random_basis(4, rng),
        lambda: kf.denoise(image, 1.0, rng=rng),
    ]
    for call in calls:
        with rejected(ValueError, f"rng={rng!r}", "a seed, an integer >= 0", "Generator", "None"):
            call()


@pytest.mark.parametrize("tol", [-1e-9, np.nan, np.inf, "small", None])
def test_impossible_tolerances_are_rejected(tol, signals):
    with rejected(ValueError, f"tol={tol!r}", "finite number >= 0", "0 runs until nothing changes"):
        kf.learn(signals, tol=tol)
    for estimator_class in ESTIMATORS:
        with rejected(ValueError, f"tol={tol!r}", "finite number >= 0"):
            estimator_class(tol=tol).fit(signals)


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_callback_must_be_callable(verbose, signals):
    with rejected(TypeError, "callback=5", "function of a LearnResult, or None"):
        kf.learn(signals, callback=5)
    for estimator_class in ESTIMATORS:
        with rejected(TypeError, "callback=5", "function of a LearnResult, or None"):
            estimator_class(callback=5, verbose=verbose).fit(signals)


@each_estimator
def test_bad_parameters_are_found_by_fit_and_not_before(estimator_class, signals):
    estimator = estimator_class(-1, max_iter=0, tol=-1, init="nowhere", callback=5)
    with pytest.raises(ValueError, match=r"=-1|=0"):
        estimator.fit(signals)
    assert not hasattr(estimator, "components_")


@each_estimator
def test_signals_of_another_length_are_rejected(estimator_class, signals):
    estimator = estimator_class(tol=0.1).fit(signals)
    told = ("X has 8 features", estimator_class.__name__, "expecting 9 features")
    for method in (estimator.transform, estimator.score):
        with rejected(ValueError, *told):
            method(signals[:, :8])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@each_estimator
def test_one_iteration_is_enough_for_a_usable_estimator(estimator_class, signals):
    estimator = estimator_class(max_iter=1).fit(signals)
    assert estimator.n_iter_ == 1
    assert -1 < estimator.score(signals) < 0


@each_estimator
def test_stopping_too_early_is_reported_once(estimator_class, signals):
    with pytest.warns(ConvergenceWarning) as warnings:
        estimator_class(max_iter=2, tol=0).fit(signals)
    assert len(warnings) == 1
