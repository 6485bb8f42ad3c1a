"""Where learning could leave the bound, the norm or the truth: at the edges of what is asked."""

import math
import warnings
from dataclasses import replace
from importlib import import_module

import naive
import numpy as np
import pytest
from helpers import blas_threads
from threadpoolctl import threadpool_limits

import kappaform as kf
from kappaform.learning import StopReason

loops = import_module("kappaform.learning.learn")


@pytest.fixture
def small(rng):
    return rng.standard_normal((60, 9)).cumsum(axis=1)


def ill_conditioned(rng, n, condition):
    left, right = kf.random_basis(n, rng), kf.random_basis(n, rng)
    return (left * np.logspace(0, -math.log10(condition), n)) @ right


def assert_feasible(transform, method):
    singular = np.linalg.svd(transform, compute_uv=False)
    assert singular[0] <= method.max_condition * singular[-1] * (1 + 1e-9)
    norm = math.sqrt(len(singular)) if method.norm == "auto" else method.norm
    assert np.linalg.norm(singular) == pytest.approx(norm, rel=1e-12)


PUBLISHED = [kf.Conditioned(2.0, variant=name) for name in ("paper", "reference", "public")]
each_published = pytest.mark.parametrize("method", PUBLISHED, ids=lambda method: method.variant)


@each_published
@pytest.mark.parametrize("max_iter", [1, 2, 5])
def test_a_start_beyond_the_bound_is_never_returned_nor_shown(method, max_iter, small, rng):
    init = ("dct", ill_conditioned(rng, 9, 1e7), ill_conditioned(rng, 9, 1e5))
    seen = []
    options = {"n_nonzero_coefs": 2, "init": init, "max_iter": max_iter}
    result = kf.learn(small, method, callback=lambda state: seen.append(state.transform), **options)
    for transform in (*seen, result.transform):
        assert_feasible(transform, method)


@pytest.mark.filterwarnings("ignore:n_nonzero_coefs=0:UserWarning")
@each_published
def test_where_there_is_nothing_to_learn_bound_and_norm_hold(method, rng):
    start = 1e-3 * ill_conditioned(rng, 9, 1e7)
    for signals, n_nonzero in ((np.zeros((20, 9)), 2), (rng.standard_normal((20, 9)), 0)):
        result = kf.learn(signals, method, n_nonzero_coefs=n_nonzero, init=start, max_iter=3)
        assert_feasible(result.transform, method)
        coefs = signals @ result.transform.T
        assert result.errors.absolute[-1] == pytest.approx(np.linalg.norm(coefs), rel=1e-12)


def test_a_start_that_changes_after_learning_changes_no_result(small, rng):
    given = ill_conditioned(rng, 9, 1e3)
    options = {"n_nonzero_coefs": 2, "init": ("dct", given), "max_iter": 1}
    begun = kf.learn(small, kf.Conditioned(2.0, variant="public"), **options)
    assert not any(np.shares_memory(each.transform, given) for each in begun.state.candidates)


@each_published
def test_a_run_that_is_interrupted_at_once_is_within_the_bound(method, small, rng, monkeypatch):
    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loops, "step", press)
    start = ill_conditioned(rng, 9, 1e7)
    with pytest.raises(kf.LearningInterrupted) as caught:
        kf.learn(small, method, n_nonzero_coefs=2, init=start)
    assert_feasible(caught.value.result.transform, method)
    monkeypatch.undo()
    resumed = kf.learn(small, method, n_nonzero_coefs=2, init=caught.value.result, max_iter=5)
    whole = kf.learn(small, method, n_nonzero_coefs=2, init=start, max_iter=5)
    np.testing.assert_array_equal(resumed.transform, whole.transform)


@each_published
def test_a_free_norm_of_published_steps_does_not_vanish_either(method, rng):
    signals, start = rng.standard_normal((300, 9)), 1e-5 * kf.dct_basis((3, 3))
    options = {"n_nonzero_coefs": 1, "max_iter": 300, "tol": 0, "init": start}
    result = kf.learn(signals, replace(method, norm=None), **options)
    assert result.stop_reason is not StopReason.EXACT
    assert np.linalg.norm(result.transform) >= 1e-6 * (1 - 1e-9)
    assert result.condition_number <= 2 * (1 + 1e-9)
    assert result.errors.relative[-1] > 0.1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_free_norm_stops_shrinking_before_it_vanishes(dtype, rng):
    signals = rng.standard_normal((300, 9)).astype(dtype)
    method = kf.Conditioned(2.0, norm=None)
    start = 1e-5 * kf.dct_basis((3, 3))
    states = []
    options = {"n_nonzero_coefs": 1, "max_iter": 400, "tol": 0, "init": start}
    result = kf.learn(signals, method, callback=states.append, **options)
    assert np.linalg.norm(result.transform) == pytest.approx(1e-6, rel=1e-9)  # it got there
    assert result.stop_reason is not StopReason.EXACT
    for state in states:
        assert state.condition_number <= 2 * (1 + 1e-9)
    coefs = signals.astype(float) @ result.transform.T
    error = np.linalg.norm(coefs - naive.hard_threshold(coefs, 1)) / np.linalg.norm(coefs)
    assert result.errors.relative[-1] == pytest.approx(error, rel=1e-5)
    assert np.all(np.diff(result.loss) <= 1e-6 * result.loss[0])


@pytest.mark.parametrize("condition", [1e3, 1e7, 1e9])
def test_what_keeps_all_coefficients_loses_nothing_however_ill_conditioned(condition, rng):
    signals = rng.standard_normal((200, 16))
    signals -= signals.mean(axis=1, keepdims=True)  # rank 15
    transform = ill_conditioned(rng, 16, condition)
    assert kf.evaluate(signals, transform, 16).reconstruction < 1e-15 * condition


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("exponent", [-1000, -300, -100, 100, 300, 1000])
def test_evaluate_does_not_care_for_the_unit_of_the_transform(exponent, dtype, small):
    signals, transform = small.astype(dtype), kf.random_basis(9, 0) * np.arange(1, 10)
    plain = kf.evaluate(signals, transform, 2)
    scaled = kf.evaluate(signals, np.ldexp(transform, exponent), 2)
    expected = (math.ldexp(plain.absolute, exponent), plain.relative, plain.reconstruction)
    assert scaled == pytest.approx(expected, rel=1e-6 if dtype == np.float32 else 1e-12)


WAYS_TO_LEARN = {
    "learn": lambda signals, n: kf.learn(signals, n_nonzero_coefs=n, max_iter=1),
    "path": lambda signals, n: kf.condition_path(signals, [2], n_nonzero_coefs=n, max_iter=1),
    "fit": lambda signals, n: kf.OrthonormalTransform(n, tol=1).fit(signals),
    "choice": lambda signals, n: kf.ConditionedTransformCV(n, max_conditions=[1], cv=2, tol=1).fit(
        signals
    ),
}
each_way_to_learn = pytest.mark.parametrize("way", WAYS_TO_LEARN)


@each_way_to_learn
def test_signals_that_are_few_or_given_as_columns_are_pointed_out(way, small):
    told = r"shape \({}, {}\), fewer signals than features: .* rows"
    with pytest.warns(UserWarning, match=told.format(9, 60)):
        WAYS_TO_LEARN[way](small.T, 2)
    if way != "choice":  # which cannot fold one signal
        with pytest.warns(UserWarning, match=told.format(1, 9)):
            WAYS_TO_LEARN[way](small[:1], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WAYS_TO_LEARN[way](small, 2)


@each_way_to_learn
def test_codes_without_an_entry_are_pointed_out(way, small):
    with pytest.warns(UserWarning, match="n_nonzero_coefs=0: .* nothing is learned"):
        WAYS_TO_LEARN[way](small, 0)


def test_streams_of_codes_without_an_entry_are_pointed_out(small):
    for learn in (
        lambda: kf.learn_stream([small], n_nonzero_coefs=0),
        lambda: kf.OrthonormalTransform(0).partial_fit(small),
    ):
        with pytest.warns(UserWarning, match="n_nonzero_coefs=0: .* nothing is learned"):
            learn()


def test_bounds_that_float32_cannot_see_are_pointed_out(small):
    signals, method = small.astype(np.float32), kf.Conditioned(1e8)
    warning = r"max_condition=1e\+08 with float32 signals: .* float64"
    with pytest.warns(UserWarning, match=warning):
        kf.learn(signals, method, n_nonzero_coefs=2, max_iter=1)
    with pytest.warns(UserWarning, match=warning):
        kf.learn_stream([signals], method, n_nonzero_coefs=2)


def test_bounds_that_float64_cannot_see_are_pointed_out(small):
    warning = r"max_condition=1e\+13 with float64 signals: beyond 1e\+12 .* a smaller bound"
    with pytest.warns(UserWarning, match=warning):
        kf.learn(small, kf.Conditioned(1e13), n_nonzero_coefs=2, max_iter=1)
    kf.learn(small, kf.Conditioned(1e12), n_nonzero_coefs=2, max_iter=1)


def test_well_below_the_warning_errors_of_float64_signals_are_true(rng):
    """Of signals with no energy in most directions, where rounding does most harm."""
    signals = rng.standard_normal((4, 9))
    method = kf.Conditioned(1e10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer signals than features
        result = kf.learn(signals, method, n_nonzero_coefs=2, max_iter=20)
    coefs = signals.astype(np.longdouble) @ result.transform.astype(np.longdouble).T
    discarded = np.sort(np.abs(coefs), axis=1)[:, :-2]
    true = float(np.sqrt(np.sum(discarded**2)))
    assert result.errors.absolute[-1] == pytest.approx(true, rel=1e-2)


# The worst start has its largest singular value where the signals have no energy: here the error of
# float32 signals is off by 0.02 % at a bound of 1e6 (docs/mathematics.md, section 8).
@pytest.mark.filterwarnings("ignore:max_condition=1e:UserWarning")
@pytest.mark.parametrize(("bound", "is_true"), [(1e6, True), (1e8, False)])
def test_up_to_the_warning_errors_of_float32_signals_are_true(bound, is_true, photo_patches):
    signals = photo_patches[::8].astype(np.float32)
    start = kf.dct_basis((8, 8))
    start[1:] /= bound
    start = kf.random_basis(64, 0) @ start
    method = kf.Conditioned(bound, norm=None)
    result = kf.learn(signals, method, n_nonzero_coefs=6, init=start, max_iter=1)
    coefs = signals.astype(float) @ start.T
    error = np.linalg.norm(coefs - naive.hard_threshold(coefs, 6)) / np.linalg.norm(coefs)
    assert (result.errors.relative[0] == pytest.approx(error, rel=1e-2)) == is_true


@pytest.mark.parametrize("method", [kf.Orthonormal(), kf.LogDet(), kf.Conditioned(3.0)])
def test_resuming_on_another_engine_keeps_the_history(method, photo_patches):
    da = pytest.importorskip("dask.array")
    signals = photo_patches[::4]
    options = {"n_nonzero_coefs": 6, "tol": 0}
    first = kf.learn(signals, method, max_iter=7, **options)
    chunked = da.from_array(signals, chunks=(100, -1))
    on_dask = kf.learn(chunked, method, max_iter=5, init=first, **options)
    in_memory = kf.learn(signals, method, max_iter=5, init=first, **options)
    assert on_dask.n_iter == in_memory.n_iter == 12
    assert len(on_dask.loss) == len(in_memory.loss) > len(first.loss)
    np.testing.assert_allclose(on_dask.loss, in_memory.loss, rtol=1e-9)


def test_the_orthonormal_method_decomposes_no_gram_matrix(small, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("eigenvalues of the gram matrix are not needed")

    monkeypatch.setattr(np.linalg, "eigh", fail)
    monkeypatch.setattr(np.linalg, "eigvalsh", fail)
    kf.learn(small, kf.Orthonormal(), n_nonzero_coefs=2, max_iter=2)


@pytest.mark.parametrize("method", [kf.Conditioned(3.0), PUBLISHED[0]])
def test_steps_do_not_check_spectra_of_their_own_making(method, small, monkeypatch):
    def fail(*_):
        raise AssertionError("these are checked where users give them")

    monkeypatch.setattr(import_module("kappaform.linalg.spectrum"), "_checked", fail)
    kf.learn(small, method, n_nonzero_coefs=2, max_iter=2)


def test_callbacks_run_with_the_blas_threads_of_the_user(small):
    with threadpool_limits(2, user_api="blas"):
        expected, seen = blas_threads(), []
        options = {"n_nonzero_coefs": 2, "callback": lambda _: seen.append(blas_threads())}
        kf.learn(small, max_iter=3, **options)
        kf.learn_stream([small], **options)
        assert len(seen) == 4
        assert all(each == expected for each in seen)
        assert blas_threads() == expected


def test_an_interrupt_after_the_last_iteration_carries_the_result(small, monkeypatch):
    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loops, "stop_reason", press)
    with pytest.raises(kf.LearningInterrupted) as caught:
        kf.learn(small, n_nonzero_coefs=2, max_iter=1)
    assert caught.value.result.n_iter == 1


def test_rounds_without_end_are_rejected():
    with pytest.raises(ValueError, match=r"n_rounds=4611686018427387904: give .* >= 1 and <= 1000"):
        kf.Conditioned(n_rounds=2**62)
