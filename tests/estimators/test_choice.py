"""The bound is chosen by signals that were not learned from."""

import re
import signal
import threading
from copy import copy
from functools import partial

import numpy as np
import pytest
from helpers import as_dask, as_tensor
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, PredefinedSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

import kappaform as kf
from kappaform.engines import engine_for
from kappaform.engines.rows import take_rows
from kappaform.estimators import choice
from kappaform.learning import StopReason

BOUNDS = (1.0, 3.0)
ERRORS = ("reconstruction", "relative", "sparsification")


def chooser(n_nonzero=3, **parameters):
    options = {"max_conditions": BOUNDS, "cv": 2, "tol": 1e-2, **parameters}
    return kf.ConditionedTransformCV(n_nonzero, **options)


@pytest.fixture(scope="module")
def signals():
    return np.random.default_rng(0).standard_normal((120, 9)).cumsum(axis=1)


@pytest.fixture(scope="module")
def chosen(signals):
    """A fitted chooser; tests that change it change a copy."""
    return chooser().fit(signals)


@pytest.fixture(scope="module")
def paths(signals):
    """The path of each fold, learned from the others."""
    options = {"n_nonzero_coefs": 3, "tol": 1e-2}
    folds = KFold(2).split(signals)
    return [kf.condition_path(signals[train], BOUNDS, **options) for train, _ in folds]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:signals has shape:UserWarning")
@parametrize_with_checks([chooser(1, max_conditions=(1.0, 2.0), cv=2, max_iter=3)])
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)


# The coding changes the reconstruction only.
@pytest.mark.parametrize(
    ("choose_by", "coding"), [*((error, "refit") for error in ERRORS), (ERRORS[0], "largest")]
)
def test_the_bound_has_the_least_mean_error_on_signals_that_were_left_out(
    choose_by, coding, signals, paths
):
    found = chooser(choose_by=choose_by, coding=coding).fit(signals)
    errors = []
    for path, (_, test) in zip(paths, KFold(2).split(signals), strict=True):
        found_there = [kf.evaluate(signals[test], one, 3, coding=coding) for one in path.results]
        norm = np.linalg.norm(signals[test])
        errors.append(
            [
                one.absolute / norm if choose_by == "sparsification" else getattr(one, choose_by)
                for one in found_there
            ]
        )
    expected = np.mean(errors, axis=0)
    np.testing.assert_allclose(
        found.condition_path_[f"validation_{choose_by}"], expected, rtol=1e-12
    )
    assert found.max_condition_ == found.condition_path_.chosen == BOUNDS[np.argmin(expected)]
    assert [len(path.results) for path in found.fold_paths_] == [len(BOUNDS)] * 2
    assert found.condition_number_ <= found.max_condition_ * (1 + 1e-9)
    assert found.result_.method.max_condition == found.max_condition_


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_former_name_of_an_error_warns_and_chooses_the_same(n_jobs, signals):
    expected = chooser(choose_by="sparsification").fit(signals)
    found = chooser(choose_by="absolute", n_jobs=n_jobs)
    with pytest.warns(DeprecationWarning, match="is now called 'sparsification'") as caught:
        found.fit(signals)
    assert [each.filename for each in caught] == [__file__]
    assert found.choose_by == "absolute"  # a parameter stays as it was given
    assert found.condition_path_.choose_by == "sparsification"
    assert found.max_condition_ == expected.max_condition_


def test_the_transform_is_learned_again_from_all_signals(signals, chosen):
    found = chosen
    bound = BOUNDS.index(found.max_condition_)
    alone = kf.learn(signals, kf.Conditioned(found.max_condition_), n_nonzero_coefs=3, tol=1e-2)
    of_folds = [path.results[bound].transform for path in found.fold_paths_]
    errors = [kf.evaluate(signals, transform, 3).absolute for transform in of_folds]
    reached = kf.evaluate(signals, found, 3).absolute
    assert reached <= 1.01 * min(alone.errors.absolute[-1], *errors)
    assert not any(np.array_equal(found.components_, transform) for transform in of_folds)


def test_signals_for_validation_choose_without_folds(signals):
    train, validation = signals[::2], signals[1::2]
    found = chooser(cv=None).fit(train, validation=validation)
    path = kf.condition_path(train, BOUNDS, n_nonzero_coefs=3, tol=1e-2, validation=validation)
    assert found.max_condition_ == path.chosen
    errors = path["validation_reconstruction"]
    assert found.score(validation) == pytest.approx(-errors.min(), rel=1e-12)
    np.testing.assert_array_equal(found.components_, path.best.transform)
    np.testing.assert_array_equal(found.condition_path_["absolute"], path["absolute"])
    assert found.fold_paths_ == (found.condition_path_,)


def test_folds_are_those_that_are_asked_for(signals):
    splits = [(np.arange(0, 100), np.arange(100, 120))]
    by_hand = chooser(cv=splits).fit(signals)
    labels = np.repeat([-1, 0], [100, 20])
    split = chooser(cv=PredefinedSplit(labels)).fit(signals)
    alone = chooser().fit(signals[:100], validation=signals[100:])
    for one in (split, alone):
        np.testing.assert_array_equal(
            by_hand.condition_path_["validation_reconstruction"],
            one.condition_path_["validation_reconstruction"],
        )
    shuffled = chooser(cv=KFold(3, shuffle=True, random_state=0), tol=0.1).fit(signals)
    assert len(shuffled.fold_paths_) == 3


class CountingStore:
    """Rows that can be sliced, and how many were."""

    def __init__(self, values):
        self.values, self.n_rows = values, 0
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, rows):
        self.n_rows += len(self.values[rows])
        return self.values[rows]


def test_stores_are_read_once_for_every_pass_and_give_what_arrays_give(signals, chosen):
    store = CountingStore(signals)
    found = chooser().fit(store)
    np.testing.assert_array_equal(found.components_, chosen.components_)
    m = len(signals)
    rows = found.result_.n_passes * m + m  # a survey, and the passes
    for path in found.fold_paths_:
        rows += sum(result.n_passes for result in path.results) * m // 2
        rows += m // 2 + len(BOUNDS) * m // 2  # a survey, and the errors on those left out
    assert store.n_rows <= rows


@pytest.mark.parametrize("convert", [partial(as_dask, n_rows=50), as_tensor])
def test_other_arrays_are_split_where_they_are(convert, signals, chosen):
    found = chooser().fit(convert(signals))
    assert found.max_condition_ == chosen.max_condition_
    np.testing.assert_allclose(found.components_, chosen.components_, atol=1e-8)


@pytest.mark.parametrize("rows", [[0, 1, 2], [0, 1, 5, 6, 7, 11], [3], [0, 2, 4]])
def test_rows_of_a_store_are_those_of_the_array(rows, signals):
    expected = signals[rows]
    for each in (signals, CountingStore(signals)):
        engine = engine_for(take_rows(each, np.array(rows)))
        assert engine.n_signals == len(rows)
        np.testing.assert_array_equal(engine.encode(np.eye(9), 9), expected)


@pytest.mark.parametrize("rows", [[0, 2, 4], [3, 3, 4, 11, 29], [12, 14, 27, 28], range(30)])
def test_rows_of_a_dask_array_stay_in_their_chunks(rows, signals):
    da = pytest.importorskip("dask.array")
    rows, sizes = np.array(rows), (10, 5, 15)
    lazy = da.from_array(signals[:30], chunks=(sizes, -1))
    taken = take_rows(lazy, rows)
    chunk_of = np.repeat(range(3), sizes)[rows]
    assert taken.chunks[0] == tuple(np.unique(chunk_of, return_counts=True)[1].tolist())
    np.testing.assert_array_equal(taken.compute(), signals[rows])


def test_scattered_rows_of_a_store_are_rejected():
    store = CountingStore(np.zeros((5000, 2)))
    with pytest.raises(ValueError, match=r"2500 separate places of signals on disk.*folds"):
        take_rows(store, np.arange(0, 5000, 2))


def test_the_choice_is_kept_by_clones_pickles_and_files(signals, tmp_path):
    found = chooser(sparse_output=True).fit(signals)
    assert not hasattr(clone(found), "max_condition_")
    assert not hasattr(found, "partial_fit")
    kf.save(tmp_path / "t.npz", found, patch_shape=(3, 3))
    loaded = kf.load(tmp_path / "t.npz")
    assert type(loaded) is kf.ConditionedTransform
    assert loaded.max_condition == found.max_condition_
    assert loaded.patch_shape_ == (3, 3)
    np.testing.assert_array_equal(
        loaded.transform(signals).toarray(), found.transform(signals).toarray()
    )


# Means over six folds of 2.3, and of 1.1, are other numbers.
@pytest.mark.parametrize("bound", [2.3, 1.1])
def test_the_bound_is_one_of_those_given_and_a_file_keeps_its_statistics(bound, signals, tmp_path):
    found = chooser(max_conditions=(bound,), cv=6, tol=1.0).fit(signals)
    assert found.max_condition_ == found.condition_path_.chosen == bound
    assert found.condition_path_["max_condition"].tolist() == [bound]
    kf.save(tmp_path / "t.npz", found)
    loaded = kf.load(tmp_path / "t.npz").partial_fit(signals[:10])
    assert loaded.result_.state.n_signals == len(signals) + 10


def test_only_the_last_learning_warns(signals):
    with pytest.warns(ConvergenceWarning, match="ConditionedTransformCV stopped after") as caught:
        chooser(max_iter=2, tol=0).fit(signals)
    assert len(caught) == 1


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_any_number_of_jobs_gives_the_same_bits(n_jobs, signals, chosen):
    found = chooser(n_jobs=n_jobs).fit(signals)
    np.testing.assert_array_equal(found.components_, chosen.components_)
    assert found.max_condition_ == chosen.max_condition_
    for one, other in zip(found.fold_paths_, chosen.fold_paths_, strict=True):
        for name, column in one.table.items():
            np.testing.assert_array_equal(column, other[name])
        for result, same in zip(one.results, other.results, strict=True):
            np.testing.assert_array_equal(result.transform, same.transform)


def test_jobs_learn_at_the_same_time(signals):
    both, met = threading.Barrier(2, timeout=40), set()

    def meet(_):
        thread = threading.current_thread()
        if thread is not threading.main_thread():  # which learns from all signals in the end
            both.wait()
            met.add(thread.name)
        return True

    chooser(n_jobs=2, max_conditions=BOUNDS[:1], callback=meet).fit(signals)
    assert len(met) == 2


def test_verbose_reports_every_fold_and_bound_with_its_error(signals, chosen, capsys):
    chooser().fit(signals)
    assert capsys.readouterr() == ("", "")
    chooser(verbose=1, choose_by="relative").fit(signals)
    lines, who = capsys.readouterr().out.splitlines(), "[ConditionedTransformCV]"
    expected = [
        f"{who} fold {fold} of 2, max_condition={bound:g}: relative error {error:.6g}"
        for fold, path in enumerate(chosen.fold_paths_, 1)
        for bound, error in zip(BOUNDS, path["validation_relative"], strict=True)
    ]
    assert lines[: len(expected)] == expected
    choice, end = lines[len(expected) :]
    assert re.fullmatch(rf"{re.escape(who)} max_condition=\d has the least relative error", choice)
    assert re.fullmatch(rf"{re.escape(who)} stopped after \d+ iterations: .*", end)


def test_more_verbose_reports_every_iteration_too(signals, capsys):
    chooser(verbose=2, tol=0.1).fit(signals)
    lines = capsys.readouterr().out.splitlines()
    assert sum("] iteration " in line for line in lines) > sum("] fold " in line for line in lines)


def test_an_error_in_one_fold_ends_those_that_would_follow(signals):
    iterations = []

    def fail(result):
        iterations.append(result.n_iter)
        if len(iterations) == 3:
            raise KeyboardInterrupt

    with pytest.raises(kf.LearningInterrupted) as caught:
        chooser(tol=0, callback=fail).fit(signals)
    assert caught.value.result.n_iter in iterations
    assert len(iterations) == 3


def test_an_error_in_one_fold_ends_the_others(signals, monkeypatch):
    both, ending, iterations = threading.Barrier(2, timeout=60), threading.Event(), []

    class Pool(choice.ThreadPoolExecutor):
        def shutdown(self, *arguments, **options):
            ending.set()
            super().shutdown(*arguments, **options)

    def fail(_):
        if not ending.is_set() and both.wait() == 0:
            raise KeyboardInterrupt
        assert ending.wait(60)  # the other fold is in an iteration when the error is seen
        iterations.append(1)

    monkeypatch.setattr(choice, "ThreadPoolExecutor", Pool)
    with pytest.raises(kf.LearningInterrupted):
        chooser(tol=0, n_jobs=2, callback=fail).fit(signals)
    assert len(iterations) == 1
    assert not any(each.name.startswith("kappaform") for each in threading.enumerate())


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="there are no signals to threads")
@pytest.mark.parametrize("n_iter", [1, 4])
def test_ctrl_c_while_jobs_learn_carries_what_a_fold_has_learned(n_iter, signals):
    both, sent = threading.Barrier(2, timeout=60), threading.Event()

    def interrupt(result):  # the main thread, which waits for the folds
        if result.n_iter == n_iter and not sent.is_set() and both.wait() == 0:
            sent.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return result.n_iter == n_iter and not sent.wait(60)

    estimator = chooser(tol=0, n_jobs=2, callback=interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        estimator.fit(signals)
    assert caught.type is kf.LearningInterrupted
    assert caught.value.result.stop_reason is StopReason.INTERRUPTED
    assert caught.value.result.n_iter >= n_iter
    assert not hasattr(estimator, "result_")
    assert not any(each.name.startswith("kappaform") for each in threading.enumerate())


def test_ctrl_c_between_the_folds_carries_the_one_that_is_done(signals, monkeypatch):
    path_on, ended = choice.path_on, []

    def only_once(*arguments, **others):
        if ended:
            raise KeyboardInterrupt
        ended.append(path_on(*arguments, **others))
        return ended[0]

    monkeypatch.setattr(choice, "path_on", only_once)
    with pytest.raises(KeyboardInterrupt) as caught:
        chooser().fit(signals)
    assert caught.type is kf.LearningInterrupted
    assert caught.value.finished == ended[0].results


def test_folds_stop_at_a_coarser_tolerance_than_the_transform(monkeypatch, signals):
    seen, path_on = [], choice.path_on

    def watched(engines, methods, options, *rest, **others):
        seen.append(options.tol)
        return path_on(engines, methods, options, *rest, **others)

    monkeypatch.setattr(choice, "path_on", watched)
    given = (0.0, 1e-5, 1e-4, 2e-4, 1e-2)
    for tol in given:
        chooser(tol=tol, callback=lambda _: True).fit(signals)  # one iteration each
    assert seen[::2] == seen[1::2] == pytest.approx([0.0, 5e-5, 5e-4, 5e-4, 1e-2])
    seen.clear()
    chooser(tol=1e-4, callback=lambda _: True).fit(signals, validation=signals)
    assert seen == [1e-4]  # what is learned here is the result


def test_a_choice_that_was_interrupted_changes_nothing(signals, chosen):
    found = copy(chosen)
    before = dict(vars(found))

    def interrupt(_):
        raise KeyboardInterrupt

    found.callback = interrupt
    with pytest.raises(KeyboardInterrupt):
        found.fit(signals)
    assert {**vars(found), "callback": None} == before


@pytest.mark.filterwarnings("ignore:signals has shape:UserWarning")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cv": 5}, r"cv=5 with 4 sample\(s\): give at least 2 folds"),
        ({"cv": None}, r"cv=None, 5 folds, with 4 sample\(s\)"),
        ({"cv": 1}, r"cv=1 with .*: give at least 2 folds"),
        ({"cv": []}, r"cv=\[\] leaves a fold without signals"),
        ({"cv": [(np.arange(4), [])]}, "leaves a fold without signals"),
        ({"max_conditions": (2.0, 1.0)}, r"has 1 after 2, which it is not above: .*\[1.0, 2.0\]"),
        ({"max_conditions": (1.0, 2.0, 2.0)}, "has 2 after 2, which it repeats: give each bound"),
        ({"max_conditions": (0.5, 2.0)}, r"^max_conditions has 0\.5: .*the bound must be"),
        ({"max_conditions": (1.0, np.nan)}, "^max_conditions has nan: .*the bound must be"),
        ({"max_conditions": ()}, "max_conditions is empty: give"),
        ({"max_conditions": [[1.0, 2.0]]}, r"max_conditions is of shape \(1, 2\): give"),
        ({"choose_by": "size"}, "choose_by='size' is unknown: choose one of"),
        ({"coding": "size"}, "coding='size' is unknown"),
        ({"n_jobs": 0}, "n_jobs=0: give a number of jobs >= 1, -1 for"),
        ({"n_jobs": "all"}, "n_jobs='all': give a number of jobs >= 1, -1 for"),
        ({"tol": -1}, "tol=-1"),
    ],
)
def test_bad_parameters_are_named_and_nothing_is_lost(parameters, message, signals, chosen):
    found = copy(chosen)
    before = found.components_
    with pytest.raises(ValueError, match=message):
        found.set_params(**parameters).fit(signals[:4])
    assert found.components_ is before


def test_bounds_of_a_path_have_the_same_rules(signals):
    with pytest.raises(ValueError, match="max_conditions has 1 after 3, which it is not above"):
        kf.condition_path(signals, [3.0, 1.0])
    with pytest.raises(ValueError, match="choose_by='size' is unknown"):
        kf.condition_path(signals, [1.0, 3.0], choose_by="size")
    with pytest.raises(ValueError, match="validation has 5 features"):
        chooser().fit(signals, validation=np.ones((3, 5)))
    path = kf.condition_path(signals, [1.0, 3.0], tol=1e-2)
    assert path.chosen is None
    assert path.best is None
