"""Whatever stops an estimator, it is as it was before, or it has all that was learned."""

import pickle
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from estimators.kinds import ESTIMATORS, each_estimator
from helpers import blas_threads
from threadpoolctl import threadpool_limits

import kappaform as kf
from kappaform import threads
from kappaform.estimators import base

PACKAGE = str(Path(kf.__file__).parent)
N_FEATURES = 16


@pytest.fixture
def signals(rng):
    return rng.standard_normal((300, N_FEATURES)).cumsum(axis=1)


def spoiled(signals, row=7):
    broken = signals.copy()
    broken[row, 4] = np.nan
    return broken


def parts_of(estimator):
    """Its attributes, but for its parameters, as the very objects that they are."""
    parameters = estimator.get_params(deep=False)
    return {name: value for name, value in vars(estimator).items() if name not in parameters}


def assert_same_parts(estimator, before):
    after = parts_of(estimator)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


def assert_whole(estimator, n_features):
    """Everything that a fit gives, and all of one transform."""
    result = estimator.result_
    np.testing.assert_array_equal(estimator.components_, result.transform)
    np.testing.assert_array_equal(estimator.singular_values_, result.spectrum)
    np.testing.assert_array_equal(estimator.loss_curve_, result.loss)
    assert estimator.components_.shape[-2:] == (n_features, n_features)
    assert estimator.n_features_in_ == estimator._stream.n_features == n_features
    assert estimator.n_iter_ == result.n_iter == estimator._stream.n_iter
    width = estimator.components_.size // n_features  # of a union, that of all transforms
    assert estimator.transform(np.ones((2, n_features))).shape == (2, width)
    pickle.loads(pickle.dumps(estimator)).partial_fit(np.eye(n_features))


# --- rejected -------------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize(
    ("changes", "prepare", "told"),
    [
        ({}, spoiled, "first in row 7"),
        ({}, lambda signals: spoiled(signals)[:, :8], "first in row 7"),
        ({}, lambda signals: np.ma.masked_less(signals, 0), "masked"),
        ({}, lambda signals: signals[0], "2D array"),
        ({}, lambda signals: signals[:, :8].astype(str), "strings"),
        ({"init": np.ones((3, 3))}, lambda signals: signals, "init has shape"),
        ({"init": "magic"}, lambda signals: signals[:, :8], "init='magic' is unknown"),
        ({"n_nonzero_coefs": 9}, lambda signals: signals[:, :8], "exceeds n_features=8"),
        ({"max_iter": 0}, lambda signals: signals[:, :8], "max_iter=0"),
        ({"callback": "print"}, lambda signals: signals[:, :8], "callback='print'"),
    ],
)
def test_a_fit_that_is_rejected_changes_nothing(estimator_class, changes, prepare, told, signals):
    table = pd.DataFrame(signals, columns=[f"x{i}" for i in range(N_FEATURES)])
    estimator = estimator_class(3, init="dct", tol=1e-2).fit(table)
    before, codes = parts_of(estimator), estimator.transform(table)
    with pytest.raises((TypeError, ValueError), match=told):
        estimator.set_params(**changes).fit(prepare(signals))
    assert_same_parts(estimator, before)
    np.testing.assert_array_equal(estimator.transform(table), codes)


@each_estimator
def test_a_first_fit_that_is_rejected_leaves_nothing(estimator_class, signals):
    estimator = estimator_class(3)
    with pytest.raises(ValueError, match="first in row 7"):
        estimator.fit(spoiled(signals))
    assert not parts_of(estimator)


def test_after_a_rejected_batch_of_named_columns_the_names_stay(signals):
    names = [f"x{i}" for i in range(N_FEATURES)]
    estimator = kf.OrthonormalTransform(3).partial_fit(pd.DataFrame(signals, columns=names))
    before = parts_of(estimator)
    with pytest.raises(ValueError, match="first in row 7"):
        estimator.partial_fit(pd.DataFrame(spoiled(signals), columns=names))
    assert_same_parts(estimator, before)


# --- interrupted ---------------------------------------------------------------------------------

KINDS = {each.__name__: partial(each, init="dct") for each in ESTIMATORS}
KINDS["UnionTransform"] = partial(kf.UnionTransform, n_transforms=2, n_starts=1)
each_kind = pytest.mark.parametrize("kind", KINDS)


class CtrlC:
    """Calls something, with Ctrl-C when so many lines of the package have been executed.

    Not in `threads`, which has lines between which Python sees no interrupt.
    """

    def __init__(self, after=-1):
        self.after, self.n_lines = after, 0

    def _trace(self, frame, event, _):
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE) or name.endswith("threads.py"):
            return None
        self.n_lines += event == "line"
        if self.n_lines == self.after:
            sys.settrace(None)
            raise KeyboardInterrupt
        return self._trace

    def __call__(self, function, *args):
        outside = sys.gettrace()
        sys.settrace(self._trace)
        try:
            function(*args)
        except KeyboardInterrupt as interrupt:
            return interrupt
        finally:
            sys.settrace(outside)
        return None


def interrupted_anywhere(fitted, call, *args):
    """Copies of an estimator whose method was interrupted, with what they were and the interrupt.

    In about forty places: all over the call, and close together at its end.
    """
    threads._blas()
    with threadpool_limits(2, user_api="blas"):  # so that a limit of 1 that stays is seen
        yield from _interrupted_anywhere(fitted, call, *args)


def _interrupted_anywhere(fitted, call, *args):
    whole = CtrlC()
    whole(getattr(pickle.loads(pickle.dumps(fitted)), call), *args)
    last = whole.n_lines
    for after in {*np.linspace(1, last, 25, dtype=int).tolist(), *range(last - 45, last, 3), last}:
        estimator = pickle.loads(pickle.dumps(fitted))
        before, n_threads = parts_of(estimator), blas_threads()
        interrupt = CtrlC(after)(getattr(estimator, call), *args)
        assert isinstance(interrupt, KeyboardInterrupt)
        assert blas_threads() == n_threads
        yield after, estimator, before, interrupt


@each_kind
def test_a_fit_interrupted_anywhere_is_whole_or_changes_nothing(kind, signals):
    fitted = KINDS[kind](3, tol=1e-2).fit(signals)
    fitted.set_params(n_nonzero_coefs=1, max_iter=2, tol=0.5)
    if kind == "UnionTransform":  # which grows otherwise, before anything can be kept
        fitted.set_params(init=np.stack([np.eye(4), np.ones((4, 4)) - np.eye(4)]))
    carries = {}
    for after, estimator, before, interrupt in interrupted_anywhere(
        fitted, "fit", signals[:40, :4]
    ):
        carries[after] = isinstance(interrupt, kf.LearningInterrupted)
        if carries[after]:
            assert estimator.result_ is interrupt.result
            assert_whole(estimator, 4)
        else:
            assert_same_parts(estimator, before)
    # Once something is learned, every interrupt carries it, those after the last iteration too.
    in_order = [carries[after] for after in sorted(carries)]
    assert in_order == sorted(in_order)
    assert sum(in_order) > 20


@each_kind
def test_a_batch_interrupted_anywhere_is_learned_or_changes_nothing(kind, signals):
    first = KINDS[kind](3).partial_fit(signals[:100])
    for _, estimator, before, _ in interrupted_anywhere(first, "partial_fit", signals[100:120]):
        if estimator.n_iter_ == 1:
            assert_same_parts(estimator, before)
        else:
            assert_whole(estimator, N_FEATURES)


def pressing_ctrl_c_once(function):
    n_calls = 0

    def replacement(*args):
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1:
            raise KeyboardInterrupt
        return function(*args)

    return replacement


@pytest.mark.parametrize("place", ["result_of", "_convergence_message"])
def test_ctrl_c_after_the_last_iteration_loses_nothing(place, signals, monkeypatch):
    monkeypatch.setattr(base, place, pressing_ctrl_c_once(getattr(base, place)))
    estimator = kf.OrthonormalTransform(3, max_iter=3, tol=1e-9)
    with pytest.raises(kf.LearningInterrupted) as caught:
        estimator.fit(signals)
    assert caught.value.result.n_iter == 3
    assert estimator.result_ is caught.value.result
    assert_whole(estimator, N_FEATURES)


def test_ctrl_c_after_the_last_iteration_of_learn_carries_the_result(signals, monkeypatch):
    module = sys.modules["kappaform.learning.learn"]
    monkeypatch.setattr(module, "result_of", pressing_ctrl_c_once(module.result_of))
    with pytest.raises(kf.LearningInterrupted) as caught:
        kf.learn(signals, kf.Orthonormal(), n_nonzero_coefs=3, max_iter=3)
    assert caught.value.result.n_iter == 3


@pytest.mark.parametrize("call", ["learn", "fit"])
def test_ctrl_c_at_any_line_after_the_last_iteration_carries_the_result(call, signals):
    def learn():
        kf.learn(signals[:40], kf.Orthonormal(), n_nonzero_coefs=3, max_iter=1)

    def fit():
        kf.OrthonormalTransform(3, max_iter=1, tol=1).fit(signals[:40])

    function, whole = {"learn": learn, "fit": fit}[call], CtrlC()
    function()  # what is computed once does not count
    whole(function)
    last = whole.n_lines
    interrupts = [CtrlC(after)(function) for after in range(last - 150, last + 1)]
    carries = [isinstance(interrupt, kf.LearningInterrupted) for interrupt in interrupts]
    assert carries[-1]
    assert carries == sorted(carries)
