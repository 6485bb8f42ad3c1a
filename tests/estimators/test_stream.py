"""Estimators learn batch by batch, and a batch that fails changes nothing."""

import json
import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest
from estimators.kinds import ESTIMATORS, each_estimator
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import kappaform as kf

N_FEATURES = 16
METHODS = dict(zip(ESTIMATORS, (kf.Conditioned(), kf.Orthonormal(), kf.LogDet()), strict=True))


@pytest.fixture
def signals(rng):
    return rng.standard_normal((300, N_FEATURES)).cumsum(axis=1)


@pytest.fixture
def batches(signals):
    return np.split(signals, 6)


def learned_from(estimator, batches):
    for batch in batches:
        estimator.partial_fit(batch)
    return estimator


@cache
def learned_from_all(estimator_class):
    """What the batches of the fixture lead to if nothing goes wrong; not to be changed."""
    signals = np.random.default_rng(0).standard_normal((300, N_FEATURES)).cumsum(axis=1)
    return learned_from(estimator_class(3), np.split(signals, 6))


def assert_same(one, other):
    """The same transform, and the same way on."""
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.result_.transform, other.result_.transform)
    np.testing.assert_array_equal(one.loss_curve_, other.loss_curve_)
    assert one.n_iter_ == other.n_iter_
    for mine, its in zip(one._stream.candidates, other._stream.candidates, strict=True):
        for name, value in vars(mine.statistics).items():
            np.testing.assert_array_equal(getattr(its.statistics, name), value)


@each_estimator
@pytest.mark.parametrize("forgetting", ["auto", 1.0, 0.5])
def test_partial_fit_is_the_stream_of_the_functional_core(estimator_class, forgetting, batches):
    estimator = learned_from(estimator_class(3, forgetting=forgetting), batches)
    result = kf.learn_stream(
        batches, METHODS[estimator_class], n_nonzero_coefs=3, forgetting=forgetting
    )
    np.testing.assert_array_equal(estimator.components_, result.transform)
    np.testing.assert_array_equal(estimator.loss_curve_, result.loss)
    assert estimator.condition_number_ == result.condition_number
    assert estimator.n_iter_ == result.n_iter == 6


@each_estimator
def test_after_every_batch_the_estimator_is_ready_for_use(estimator_class, batches):
    estimator = estimator_class(3)
    for n_calls, batch in enumerate(batches, 1):
        assert estimator.partial_fit(batch) is estimator
        assert estimator.n_iter_ == len(estimator.loss_curve_) == n_calls
        assert estimator.n_features_in_ == N_FEATURES
        codes = estimator.transform(batch)
        assert np.count_nonzero(codes, axis=1).max() <= 3
        rebuilt = estimator.inverse_transform(codes)
        error = np.linalg.norm(batch - rebuilt) / np.linalg.norm(batch)
        assert estimator.score(batch) == pytest.approx(-error, rel=1e-9)
        if estimator_class is kf.ConditionedTransform:
            assert estimator.condition_number_ <= 2 * (1 + 1e-9)


@each_estimator
def test_signals_of_another_length_are_rejected_and_change_nothing(estimator_class, batches):
    estimator = learned_from(estimator_class(3), batches[:2])
    before = pickle.loads(pickle.dumps(estimator))
    message = f"X has 15 features, but {estimator_class.__name__} is expecting 16 features as input"
    for call in (estimator.partial_fit, estimator.transform, estimator.score):
        with pytest.raises(ValueError, match=message):
            call(batches[2][:, 1:])
    assert_same(estimator, before)


@each_estimator
def test_a_batch_that_is_not_finite_changes_nothing(estimator_class, batches):
    estimator = learned_from(estimator_class(3), batches[:2])
    before = pickle.loads(pickle.dumps(estimator))
    spoiled = batches[2].copy()
    spoiled[7, 4] = np.nan
    with pytest.raises(ValueError, match="contains NaN or inf, first in row 7"):
        estimator.partial_fit(spoiled)
    assert_same(estimator, before)
    assert_same(learned_from(estimator, batches[2:]), learned_from_all(estimator_class))


@each_estimator
def test_an_interrupted_batch_changes_nothing(estimator_class, batches, monkeypatch):
    estimator = learned_from(estimator_class(3), batches[:2])
    before = pickle.loads(pickle.dumps(estimator))

    def press_ctrl_c(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kappaform.learning.stream.errors_of", press_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            estimator.partial_fit(batches[2])
    assert_same(estimator, before)
    assert_same(learned_from(estimator, batches[2:]), learned_from_all(estimator_class))


@each_estimator
def test_a_first_batch_that_is_rejected_fixes_nothing(estimator_class, batches):
    estimator = estimator_class(3)
    with pytest.raises(ValueError, match="NaN"):
        estimator.partial_fit(np.full((4, 9), np.nan))
    with pytest.raises(NotFittedError, match="not fitted yet"):
        estimator.transform(batches[0])
    assert_same(learned_from(estimator, batches), learned_from_all(estimator_class))


@each_estimator
def test_fit_starts_anew(estimator_class, signals, batches):
    estimator = learned_from(estimator_class(3, tol=1e-3), batches).fit(signals)
    assert_same(estimator, estimator_class(3, tol=1e-3).fit(signals))
    assert estimator.fit(np.ones((20, 5))).n_features_in_ == 5


@each_estimator
def test_after_a_fit_its_signals_count_as_one_batch(estimator_class, signals):
    estimator = estimator_class(3, tol=1e-3, forgetting=1.0).fit(signals)
    n_iter, score = estimator.n_iter_, estimator.score(signals)
    stranger = np.diff(signals, axis=1, append=0)[:10]
    estimator.partial_fit(stranger)
    assert estimator.n_iter_ == n_iter + 1
    assert len(estimator.loss_curve_) == 1  # errors of other signals do not compare
    kept = estimator._stream.best.statistics
    assert kept.n_signals == len(signals) + 10
    np.testing.assert_allclose(
        kept.gram, signals.T @ signals + stranger.T @ stranger, rtol=1e-9, atol=1e-9
    )
    alone = estimator_class(3, forgetting=1.0, init=estimator_class(3, tol=1e-3).fit(signals))
    assert alone.partial_fit(stranger).score(signals) < estimator.score(signals)
    assert estimator.score(signals) == pytest.approx(score, rel=0.05)


def test_after_a_fit_of_signals_of_another_scale_their_true_size_counts(signals):
    estimators = [
        kf.OrthonormalTransform(3, tol=1e-3).fit(np.ldexp(signals, exponent))
        for exponent in (0, 600)
    ]
    for estimator, exponent in zip(estimators, (0, 600), strict=True):
        estimator.partial_fit(np.ldexp(signals[:50], exponent))
    np.testing.assert_array_equal(estimators[0].components_, estimators[1].components_)


@each_estimator
def test_an_interrupted_fit_can_be_followed_by_batches(estimator_class, signals):
    def press_ctrl_c(state):
        if state.n_iter == 2:
            raise KeyboardInterrupt

    estimator = estimator_class(3, callback=press_ctrl_c)
    with pytest.raises(kf.LearningInterrupted):
        estimator.fit(signals)
    assert estimator.set_params(callback=None).partial_fit(signals).n_iter_ == 3


def test_with_another_bound_only_the_transform_goes_on(signals, batches):
    estimator = learned_from(kf.ConditionedTransform(3, max_condition=4.0), batches)
    transform = estimator.result_.transform
    estimator.set_params(max_condition=1.5).partial_fit(signals)
    assert estimator.condition_number_ <= 1.5 * (1 + 1e-9)
    assert estimator._stream.n_signals == len(signals)
    expected = kf.learn_stream(
        [signals], kf.Conditioned(1.5), n_nonzero_coefs=3, init=transform.copy()
    )
    assert estimator.loss_curve_[0] == pytest.approx(expected.loss[0], rel=1e-9)


@each_estimator
def test_batches_in_another_order_end_at_nearly_the_same_score(estimator_class, signals):
    scores = []
    for seed in range(2):
        rows = np.random.default_rng(seed).permutation(len(signals))
        batches = [signals[part] for _ in range(3) for part in np.split(rows, 6)]
        scores.append(learned_from(estimator_class(3), batches).score(signals))
    assert min(scores) == pytest.approx(max(scores), rel=0.05)


@each_estimator
def test_pickles_and_files_go_on_bitwise(estimator_class, batches, tmp_path):
    whole = learned_from(estimator_class(3, init="dct"), batches)
    half = learned_from(estimator_class(3, init="dct"), batches[:3])
    kf.save(tmp_path / "half", half)
    for restored in (pickle.loads(pickle.dumps(half)), kf.load(tmp_path / "half")):
        assert_same(learned_from(restored, batches[3:]), whole)


@pytest.mark.parametrize("exponent", [-900, 900])
def test_files_of_very_small_and_large_signals_go_on_bitwise(exponent, batches, tmp_path):
    scaled = [np.ldexp(batch, exponent) for batch in batches]
    half = learned_from(kf.LogDetTransform(3), scaled[:3])
    kf.save(tmp_path / "half", half)
    assert_same(
        learned_from(kf.load(tmp_path / "half"), scaled[3:]), learned_from(half, scaled[3:])
    )


@each_estimator
def test_a_fit_from_a_file_is_followed_by_batches_as_from_memory(
    estimator_class, signals, batches, tmp_path
):
    fitted = estimator_class(3, tol=1e-2).fit(signals)
    kf.save(tmp_path / "fitted", fitted)
    loaded = kf.load(tmp_path / "fitted")
    assert_same(loaded.partial_fit(batches[0]), fitted.partial_fit(batches[0]))


def test_a_pickle_does_not_grow_with_the_number_of_batches(rng, monkeypatch):
    most = 50
    monkeypatch.setattr("kappaform.learning.stream._MOST_RECORDS", most)
    estimator, sizes = kf.ConditionedTransform(1), []
    for _ in range(2):
        for _ in range(most + 10):
            estimator.partial_fit(rng.standard_normal((4, 4)))
        sizes.append(len(pickle.dumps(estimator)))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.01)
    assert estimator.n_iter_ == 2 * (most + 10)
    assert len(estimator.loss_curve_) == most


def test_a_stream_goes_on_from_the_file_of_a_result(batches, tmp_path):
    options = {"n_nonzero_coefs": 3, "init": "dct"}
    kf.save(tmp_path / "half", kf.learn_stream(batches[:3], **options))
    loaded = kf.load(tmp_path / "half")
    assert loaded.result_.stop_reason is kf.learn_stream(batches[:3], **options).stop_reason
    resumed = kf.learn_stream(batches[3:], n_nonzero_coefs=3, init=loaded)
    whole = kf.learn_stream(batches, **options)
    np.testing.assert_array_equal(resumed.transform, whole.transform)
    np.testing.assert_array_equal(resumed.errors, whole.errors)


def rewrite(path, **changes):
    """Change or, with ..., remove entries of what a file says of its stream."""
    with np.load(path) as archive:
        entries = dict(archive)
    header = json.loads(str(entries["header"]))
    described = header["stream"] | changes
    header["stream"] = {name: value for name, value in described.items() if value is not ...}
    with path.open("wb") as file:
        np.savez(file, **(entries | {"header": np.array(json.dumps(header))}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scale": 0.3}, "the scale of its stream is 0.3, not a power of two"),
        ({"scale": 0.0}, "the scale of its stream is 0.0, not a power of two"),
        ({"weight": -1.0}, "its weight is -1.0, not a number from 0"),
        ({"energies": [{"code_energy": float("inf")}]}, "its code_energy is inf"),
        ({"energies": []}, "its stream lacks the energies of some candidates"),
        ({"energies": None}, "its energies are None, not a list"),
        ({"energies": [1.0]}, r"its energies contain 1\.0, which is not a JSON object"),
        ({"n_signals": "many"}, "many"),
        ({"n_signals": 1}, "its stream has 1 signals, fewer than they weigh"),
        ({"n_iter": 0}, r"its n_iter is \d+, not 0 as that of its stream"),
        ({"n_passes": 10**6}, r"its n_passes is \d+, not 1000000 as that of its stream"),
        ({"n_updates": ...}, "it has no 'n_updates'"),
    ],
)
def test_files_that_describe_no_stream_are_rejected(change, reason, batches, tmp_path):
    kf.save(tmp_path / "half", learned_from(kf.OrthonormalTransform(3), batches))
    rewrite(tmp_path / "half", **change)
    with pytest.raises(ValueError, match=f"half is damaged: .*{reason}"):
        kf.load(tmp_path / "half")


def test_what_a_file_says_about_patches_stays_true_for_more_of_them(batches, tmp_path):
    kf.save(
        tmp_path / "t",
        learned_from(kf.OrthonormalTransform(3), batches[:1]),
        patch_shape=(4, 4),
        patch_mean="removed",
    )
    loaded = learned_from(kf.load(tmp_path / "t"), batches[1:])
    assert (loaded.patch_shape_, loaded.patch_mean_) == ((4, 4), "removed")


def test_clones_forget_the_batches(batches):
    estimator = learned_from(kf.OrthonormalTransform(3, forgetting=0.5), batches)
    copy = clone(estimator)
    assert copy.forgetting == 0.5
    assert not hasattr(copy, "components_")
    assert copy.partial_fit(batches[0]).n_iter_ == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_codes_have_the_dtype_of_the_last_batch(dtype, batches):
    estimator = learned_from(kf.LogDetTransform(3), batches)
    estimator.partial_fit((10 * batches[0]).astype(dtype))
    expected = np.float32 if dtype is np.float32 else np.float64
    assert estimator.components_.dtype == estimator.transform(batches[0].astype(dtype)).dtype
    assert estimator.components_.dtype == expected
    assert estimator.result_.transform.dtype == np.float64


def test_columns_keep_their_names_from_batch_to_batch(batches):
    names = [f"x{i}" for i in range(N_FEATURES)]
    tables = [pd.DataFrame(batch, columns=names) for batch in batches]
    estimator = learned_from(kf.OrthonormalTransform(3), tables)
    assert list(estimator.feature_names_in_) == names
    assert_same(estimator, learned_from(kf.OrthonormalTransform(3), batches))
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.partial_fit(tables[0].rename(columns={"x3": "y3"}))


def test_every_batch_reaches_the_callback_and_is_printed(batches, capsys):
    states = []
    learned_from(kf.OrthonormalTransform(3, callback=states.append), batches)
    assert [state.n_iter for state in states] == [1, 2, 3, 4, 5, 6]
    estimator = learned_from(kf.OrthonormalTransform(3, verbose=1), batches)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[2] == f"[OrthonormalTransform] iteration 3, loss {estimator.loss_curve_[2]:.6g}"


@pytest.mark.parametrize(
    ("parameters", "kind", "message"),
    [
        ({"forgetting": 2}, ValueError, "forgetting=2: give 'auto'"),
        ({"n_nonzero_coefs": [1, 2]}, TypeError, "has 2 entries: an estimator needs one integer"),
        ({"n_nonzero_coefs": 17}, ValueError, "n_nonzero_coefs=17 exceeds n_features=16"),
        ({"callback": "print"}, TypeError, "callback='print': give a function"),
        ({"init": "magic"}, ValueError, "init='magic' is unknown"),
    ],
)
def test_parameters_that_make_no_sense_are_rejected(parameters, kind, message, batches):
    with pytest.raises(kind, match=message):
        kf.ConditionedTransform(**parameters).partial_fit(batches[0])
