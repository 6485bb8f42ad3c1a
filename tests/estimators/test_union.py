"""The estimator of a union keeps scikit-learn's contract and the promises of `learn_union`."""

import pickle
from copy import deepcopy

import naive
import numpy as np
import pandas as pd
import pytest
from helpers import Store, as_dask, as_tensor, memory_mapped
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import kappaform as kf

N_FEATURES, K = 8, 3
FAST = {"n_transforms": K, "n_starts": 1, "tol": 0.05}


def three_kinds(rng):
    """Signals of three kinds: smooth, with few peaks, alternating."""
    smooth = rng.standard_normal((100, N_FEATURES)).cumsum(axis=1)
    peaks = 3 * rng.standard_normal((100, N_FEATURES)) * (rng.random((100, N_FEATURES)) < 0.2)
    signals = np.concatenate([smooth, peaks, smooth[::-1] * (-1) ** np.arange(N_FEATURES)])
    return signals[rng.permutation(len(signals))]


@pytest.fixture
def signals(rng):
    return three_kinds(rng)


@pytest.fixture(scope="module")
def learned():
    return kf.UnionTransform(2, **FAST).fit(three_kinds(np.random.default_rng(0)))


@pytest.fixture
def fitted(learned):
    """The estimator fitted to `signals`; tests may change it."""
    return deepcopy(learned)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:signals has shape:UserWarning")
@parametrize_with_checks([kf.UnionTransform(n_transforms=2, max_iter=3)])
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)


def test_the_estimator_is_the_functional_core_with_its_result(signals):
    options = {"n_transforms": K, "n_starts": 2, "tol": 1e-2}
    estimator = kf.UnionTransform(2, max_condition=3.0, random_state=5, **options).fit(signals)
    method = kf.Conditioned(3.0)
    result = kf.learn_union(signals, method, n_nonzero_coefs=2, rng=5, **options)
    np.testing.assert_array_equal(estimator.components_, result.transforms)
    np.testing.assert_array_equal(estimator.singular_values_, result.spectrum)
    np.testing.assert_array_equal(estimator.condition_numbers_, result.condition_numbers)
    np.testing.assert_array_equal(estimator.loss_curve_, result.loss)
    assert estimator.condition_number_ == max(estimator.condition_numbers_) <= 3 * (1 + 1e-9)
    assert estimator.n_iter_ == result.n_iter
    assert estimator.result_.method.method == method


def test_a_random_state_is_drawn_from_as_by_other_estimators(signals):
    options = {"n_transforms": K, "n_starts": 3, "max_iter": 10, "tol": 0.0}
    state = np.random.RandomState(4)
    drawn = np.random.RandomState(4).randint(2**31, size=3)
    estimator = kf.UnionTransform(2, random_state=state, **options)
    seeds = set()
    for seed in drawn[:2].tolist():  # every fit draws a seed of its own
        with pytest.warns(ConvergenceWarning):
            estimator.fit(signals)
        with pytest.warns(ConvergenceWarning):
            same = kf.UnionTransform(2, random_state=seed, **options).fit(signals)
        assert estimator.result_.method.seed == same.result_.method.seed
        seeds.add(same.result_.method.seed)
        np.testing.assert_array_equal(estimator.components_, same.components_)
    assert len(seeds) == 2
    assert estimator.get_params()["random_state"] is state
    estimator.partial_fit(signals[:50])  # resumes: nothing is drawn
    assert state.randint(2**31) == drawn[2]


def test_saving_leaves_a_random_state_alone(signals, tmp_path):
    state = np.random.RandomState(4)
    estimator = kf.UnionTransform(2, random_state=state, **FAST).fit(signals)
    before = state.get_state()[2]
    kf.save(tmp_path / "union.kf", estimator)
    assert state.get_state()[2] == before
    loaded = kf.load(tmp_path / "union.kf")
    assert loaded.random_state is None
    np.testing.assert_array_equal(loaded.transform(signals), estimator.transform(signals))
    clone(estimator).fit(signals)  # a clone has a copy of the state
    assert state.get_state()[2] == before


def test_one_transform_is_that_of_the_single_estimator(signals):
    union = kf.UnionTransform(2, n_transforms=1).fit(signals)
    single = kf.ConditionedTransform(2).fit(signals)
    np.testing.assert_array_equal(union.components_[0], single.components_)
    np.testing.assert_array_equal(union.transform(signals), single.transform(signals))
    assert not union.labels_.any()


def naive_labels(signals, transforms, n_nonzero):
    lost = []
    for transform in transforms:
        coefs = signals @ transform.T
        lost.append(((coefs - naive.hard_threshold(coefs, n_nonzero)) ** 2).sum(axis=1))
    return np.argmin(lost, axis=0)


def test_each_signal_belongs_to_the_transform_that_discards_least(fitted, signals):
    expected = naive_labels(signals, fitted.result_.transforms, 2)
    np.testing.assert_array_equal(fitted.labels_, expected)
    np.testing.assert_array_equal(fitted.predict(signals), expected)
    np.testing.assert_array_equal(clone(fitted).fit_predict(signals), expected)
    assert set(expected) == set(range(K))


@pytest.mark.parametrize("coding", ["refit", "largest"])
@pytest.mark.parametrize("n_nonzero", [1, 2, N_FEATURES])
def test_codes_are_those_of_the_own_transform_in_its_columns(coding, n_nonzero, signals):
    estimator = kf.UnionTransform(n_nonzero, coding=coding, **FAST).fit(signals)
    codes = estimator.transform(signals)
    assert codes.shape == (len(signals), K * N_FEATURES)
    make = naive.rebuilding_codes if coding == "refit" else largest_codes
    blocks = codes.reshape(len(signals), K, N_FEATURES)
    for number, transform in enumerate(estimator.result_.transforms):
        mine = estimator.labels_ == number
        assert not blocks[~mine, number].any()
        expected = make(signals[mine], transform, n_nonzero)
        np.testing.assert_allclose(blocks[mine, number], expected, atol=1e-9)
    assert np.count_nonzero(codes, axis=1).max() <= n_nonzero


def largest_codes(signals, transform, n_nonzero):
    return naive.hard_threshold(signals @ transform.T, n_nonzero)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_score_is_the_error_of_what_the_codes_give_back(dtype, signals):
    signals = signals.astype(dtype)
    estimator = kf.UnionTransform(2, **FAST).fit(signals)
    codes = estimator.transform(signals)
    rebuilt = estimator.inverse_transform(codes)
    assert codes.dtype == rebuilt.dtype == estimator.components_.dtype == dtype
    error = np.linalg.norm(signals - rebuilt) / np.linalg.norm(signals)
    assert estimator.score(signals) == pytest.approx(-error, rel=1e-9 if dtype == "f8" else 1e-4)
    everything = kf.UnionTransform(N_FEATURES, **FAST).fit(signals)
    rounding = 1e-12 if dtype == np.float64 else 1e-5
    whole = everything.inverse_transform(everything.transform(signals))
    np.testing.assert_allclose(whole, signals, atol=rounding * np.abs(signals).max())


def test_more_transforms_reconstruct_better(signals):
    scores = [
        kf.UnionTransform(2, n_transforms=number, n_starts=1).fit(signals).score(signals)
        for number in (1, 2, 3)
    ]
    assert scores == sorted(scores)
    assert scores[-1] > 0.8 * scores[0]


@pytest.mark.parametrize("coding", ["refit", "largest"])
def test_evaluate_measures_a_union_as_the_estimator_does(coding, fitted, signals):
    fitted.coding = coding
    errors = kf.evaluate(signals, fitted, 2, coding=coding)
    assert errors == kf.evaluate(signals, fitted.result_, 2, coding=coding)
    assert errors.reconstruction == -fitted.score(signals)
    assert errors.absolute == pytest.approx(fitted.loss_curve_[-1], rel=1e-9)
    assert errors.relative == pytest.approx(fitted.result_.errors.relative[-1], rel=1e-9)
    with pytest.raises(ValueError, match="a union of transforms of 8 features: signals have 7"):
        kf.evaluate(signals[:, 1:], fitted)


def test_sparse_codes_are_the_dense_ones(fitted, signals):
    dense = fitted.transform(signals)
    codes = fitted.set_params(sparse_output=True).transform(signals)
    assert sparse.issparse(codes)
    assert codes.format == "csr"
    np.testing.assert_array_equal(codes.toarray(), dense)
    np.testing.assert_allclose(
        fitted.inverse_transform(codes), fitted.inverse_transform(dense), atol=1e-12
    )
    with pytest.raises(ValueError, match="X has 8 features: the codes of this transform have 24"):
        fitted.inverse_transform(dense[:, :N_FEATURES])


def test_codes_have_names_for_every_transform(fitted, signals):
    names = fitted.get_feature_names_out()
    assert len(names) == K * N_FEATURES
    table = fitted.set_output(transform="pandas").transform(signals)
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == list(names)


def test_a_method_may_be_given(signals):
    orthonormal = kf.UnionTransform(2, method=kf.Orthonormal(), **FAST).fit(signals)
    np.testing.assert_allclose(orthonormal.condition_numbers_, 1.0)
    given = kf.UnionTransform(2, method=kf.Conditioned(3.0), **FAST).fit(signals)
    same = kf.UnionTransform(2, max_condition=3.0, **FAST).fit(signals)
    np.testing.assert_array_equal(given.components_, same.components_)


def test_the_seed_decides_the_random_starts(signals):
    def learned(seed):
        found = []
        estimator = kf.UnionTransform(
            2, n_transforms=K, n_starts=2, max_iter=2, tol=0, random_state=seed
        )
        estimator.callback = lambda result: found.append(result.state.candidates[-1].transform)
        with pytest.warns(ConvergenceWarning):
            estimator.fit(signals)
        return found[0].matrix

    np.testing.assert_array_equal(learned(None), learned(0))
    assert not np.array_equal(learned(0), learned(1))


def test_a_fitted_estimator_survives_pickling(fitted, signals):
    codes = fitted.transform(signals)
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.transform(signals), codes)
    fitted.partial_fit(signals)
    np.testing.assert_array_equal(copied.partial_fit(signals).components_, fitted.components_)


def test_learning_resumes_from_a_result(signals):
    options = {"n_transforms": K, "n_starts": 1, "tol": 1e-3}
    whole = kf.UnionTransform(2, **options).fit(signals)
    with pytest.warns(ConvergenceWarning):
        part = kf.UnionTransform(2, max_iter=5, **options).fit(signals)
    resumed = part.set_params(init=part.result_, max_iter=500).fit(signals)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    assert resumed.n_iter_ == whole.n_iter_


# --- other kinds of arrays -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_files_and_stores_give_the_bits_of_an_array(dtype, signals, tmp_path):
    signals = (10 * signals).astype(dtype)
    expected = kf.UnionTransform(2, **FAST).fit(signals)
    for elsewhere in (Store(signals), memory_mapped(signals, tmp_path)):
        estimator = kf.UnionTransform(2, **FAST).fit(elsewhere)
        np.testing.assert_array_equal(estimator.components_, expected.components_)
        np.testing.assert_array_equal(estimator.labels_, expected.labels_)
        np.testing.assert_array_equal(estimator.predict(elsewhere), expected.labels_)
        np.testing.assert_array_equal(estimator.transform(elsewhere), expected.transform(signals))
        assert estimator.score(elsewhere) == expected.score(signals)


@pytest.mark.parametrize("library", ["dask", "torch"])
def test_signals_of_another_library_learn_and_code_alike(library, signals, rng):
    elsewhere = as_dask(signals, 70) if library == "dask" else as_tensor(signals.copy())
    init = np.stack([np.linalg.qr(rng.standard_normal((N_FEATURES,) * 2))[0] for _ in range(K)])
    estimator = kf.UnionTransform(2, n_transforms=K, init=init, max_iter=5, tol=0.1)
    expected = clone(estimator).fit(signals)
    estimator.fit(elsewhere)
    np.testing.assert_allclose(estimator.components_, expected.components_, atol=1e-9)
    assert type(estimator.components_) is type(estimator.labels_) is np.ndarray
    np.testing.assert_array_equal(estimator.labels_, expected.labels_)
    estimator = expected  # of one transform, codes agree to rounding
    for call in (estimator.transform, estimator.predict):
        found = call(elsewhere)
        assert type(found).__module__.partition(".")[0] == library
        np.testing.assert_allclose(np.asarray(found), call(signals), atol=1e-10)
    codes = estimator.transform(elsewhere)
    rebuilt = estimator.inverse_transform(codes)
    assert tuple(rebuilt.shape) == signals.shape
    assert estimator.score(elsewhere) == pytest.approx(estimator.score(signals), rel=1e-9)
    with pytest.raises(ValueError, match=f"sparse_output=True: codes of {library} signals"):
        estimator.set_params(sparse_output=True).transform(elsewhere)


# --- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["absolute", "relative"])
def test_batches_learn_a_union_within_its_bound(objective, signals, rng):
    estimator = kf.UnionTransform(2, n_transforms=K, objective=objective)
    for epoch in range(4):
        for number, batch in enumerate(np.split(signals[rng.permutation(len(signals))], 5), 1):
            estimator.partial_fit(batch)
            assert estimator.n_iter_ == 5 * epoch + number
            assert max(estimator.condition_numbers_) <= 2 * (1 + 1e-9)
            np.testing.assert_array_equal(estimator.labels_, estimator.predict(batch))
    single = kf.ConditionedTransform(2, objective=objective).fit(signals)
    assert estimator.score(signals) > 0.9 * single.score(signals)


def test_batches_resume_a_fit_and_a_batch_that_is_rejected_changes_nothing(signals):
    estimator = kf.UnionTransform(2, **FAST).fit(signals)
    score = estimator.score(signals)
    for batch in np.split(signals, 5):
        estimator.partial_fit(batch)
    assert estimator.score(signals) > 1.1 * score
    before = dict(vars(estimator))
    spoiled = signals.copy()
    spoiled[7, 4] = np.nan
    for batch, told in ((spoiled, "first in row 7"), (signals[:, 1:], "7 features")):
        with pytest.raises(ValueError, match=told):
            estimator.partial_fit(batch)
        assert all(vars(estimator)[name] is value for name, value in before.items())


def test_batches_refine_a_union_that_was_fitted_to_a_sample(rng):
    bases = [np.linalg.qr(rng.standard_normal((N_FEATURES,) * 2))[0] for _ in range(2)]
    kinds = rng.integers(2, size=4000)
    codes = rng.standard_normal((4000, N_FEATURES))
    codes *= np.argsort(rng.random(codes.shape), axis=1) < 2
    signals = np.where(kinds[:, np.newaxis] == 0, codes @ bases[0], codes @ bases[1])
    signals += 0.1 * rng.standard_normal(signals.shape)
    estimator = kf.UnionTransform(2, n_transforms=2, max_condition=1.5).fit(signals[:1000])
    sample = estimator.score(signals[3000:])
    for batch in np.split(signals[:3000], 10):
        estimator.partial_fit(batch)
    assert estimator.score(signals[3000:]) > sample
    right = np.mean(estimator.predict(signals) == kinds)
    assert max(right, 1 - right) > 0.9


def test_signals_weigh_in_a_stream_as_they_are_forgotten(signals):
    estimator = kf.UnionTransform(2, forgetting=0.5, **FAST).fit(signals)
    estimator.partial_fit(signals[:50])
    assert estimator._stream.best.statistics.n_signals == pytest.approx(0.5 * 300 + 50)
    assert len(estimator.labels_) == 50
    energy = np.trace(estimator._stream.best.statistics.gram, axis1=1, axis2=2).sum()
    expected = 0.5 * (signals**2).sum() + (signals[:50] ** 2).sum()
    assert energy == pytest.approx(expected, rel=1e-12)


def test_batches_of_any_scale_are_merged(signals):
    ordinary, huge = (kf.UnionTransform(2, **FAST) for _ in range(2))
    for batch in np.split(signals, 5):
        ordinary.partial_fit(batch)
        huge.partial_fit(2.0**600 * batch)
    np.testing.assert_array_equal(huge.components_, ordinary.components_)
    mixed = kf.UnionTransform(2, **FAST).partial_fit(signals).partial_fit(2.0**600 * signals)
    assert np.isfinite(mixed.components_).all()
    assert mixed.condition_number_ <= 2 * (1 + 1e-9)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"n_transforms": 0}, "n_transforms=0: give a whole number of transforms >= 1"),
        ({"n_transforms": 1.5}, "n_transforms=1.5: give a whole number of transforms"),
        ({"n_transforms": True}, "n_transforms=True"),
        ({"n_transforms": 301}, r"n_transforms=301 exceeds the 300 signals .* fewer transforms"),
        ({"n_starts": 0}, "n_starts=0: give a whole number of starts"),
        ({"random_state": -1}, "random_state=-1: give a seed"),
        ({"random_state": np.random.default_rng(0)}, "random_state=Generator.*a .*RandomState"),
        ({"max_condition": 0.5}, "max_condition=0.5: the bound must be"),
        ({"norm": None}, "need a common norm"),
        ({"method": kf.LogDet()}, "no common norm"),
        ({"method": "Conditioned"}, "method='Conditioned': give Conditioned"),
        ({"init": "dct"}, r"init='dct' is unknown: choose 'auto', an array of shape \(3, 8, 8\)"),
        ({"init": ("auto", "dct")}, "init='dct' is unknown: choose 'auto'"),
        ({"init": np.eye(N_FEATURES)}, r"init has shape \(8, 8\): .* must be \(3, 8, 8\)"),
        ({"init": np.zeros((K, N_FEATURES, N_FEATURES))}, "init is zero"),
        ({"n_nonzero_coefs": 9}, "n_nonzero_coefs=9 exceeds n_features=8"),
        ({"n_nonzero_coefs": [1, 2]}, "an estimator needs one integer"),
        ({"coding": "best"}, "coding='best' is unknown"),
        ({"max_iter": 0}, "max_iter=0"),
    ],
)
def test_parameters_that_cannot_be_are_rejected_and_nothing_changes(changes, told, fitted, signals):
    before = {name: value for name, value in vars(fitted).items() if name.endswith("_")}
    fitted.set_params(**changes)
    with pytest.raises((TypeError, ValueError), match=told):
        fitted.fit(signals)
    assert all(vars(fitted)[name] is value for name, value in before.items())


def test_a_start_must_be_a_union_of_as_many_transforms(fitted, signals):
    with pytest.raises(ValueError, match=r"init has shape \(3, 8, 8\): .* must be \(2, 8, 8\)"):
        kf.UnionTransform(2, n_transforms=2, init=fitted.result_).fit(signals)
    single = kf.OrthonormalTransform(2, tol=0.1).fit(signals)
    with pytest.raises(ValueError, match=r"init has shape \(8, 8\): .* must be \(3, 8, 8\)"):
        kf.UnionTransform(2, n_transforms=K, init=single).fit(signals)
    with pytest.raises(ValueError, match=r"init has shape \(3, 8, 8\): .* must be \(8, 8\)"):
        kf.OrthonormalTransform(2, init=fitted).fit(signals)


def test_the_first_batch_must_have_a_signal_for_each_transform(signals):
    estimator = kf.UnionTransform(2, **FAST)
    with pytest.raises(ValueError, match="n_transforms=3 exceeds the 2 signals"):
        estimator.partial_fit(signals[:2])
    estimator.partial_fit(signals).partial_fit(signals[:1])
    assert estimator.labels_.shape == (1,)


def test_before_a_fit_there_is_nothing_to_predict(signals):
    for name in ("predict", "transform", "score", "inverse_transform"):
        with pytest.raises(NotFittedError):
            getattr(kf.UnionTransform(), name)(signals)


def strange_signals(name, rng):
    random = rng.standard_normal((30, 6))
    return {
        "zeros": np.zeros((20, 6)),
        "ones": np.ones((20, 6)),
        "equal": np.tile(random[0], (20, 1)),
        "few": random[:5],  # fewer than features
        "least": random[:K],  # one for each transform
        "some": random[:9],
        "one": random[:, :1],  # feature
        "identity": np.eye(6),
        "lonely": np.r_[np.zeros((19, 6)), random[:1]],
        "huge": 2.0**500 * random,
        "tiny": random.astype(np.float32) * np.float32(1e-30),
    }[name]


@pytest.mark.filterwarnings("ignore:signals has shape:UserWarning")
@pytest.mark.parametrize("objective", ["absolute", "relative"])
@pytest.mark.parametrize(
    "name",
    ["zeros", "ones", "equal", "few", "least", "some", "one", "identity", "lonely", "huge", "tiny"],
)
def test_strange_signals_give_transforms_within_the_bound(name, objective, rng):
    strange = strange_signals(name, rng)
    estimator = kf.UnionTransform(1, n_transforms=K, objective=objective, tol=1e-2).fit(strange)
    records = estimator.result_.records
    scale = records[0].coef_norm or 1.0 if objective == "absolute" else 1.0
    rounding = 1e-12 if strange.dtype == np.float64 else 1e-7
    assert (np.diff((estimator.loss_curve_ / scale) ** 2) <= rounding).all()
    untouched = clone(estimator)
    for learn in (lambda _: estimator, estimator.partial_fit, untouched.partial_fit):
        found = learn(strange)
        assert np.isfinite(found.components_).all()
        assert max(found.condition_numbers_) <= 2 * (1 + 1e-9)
        norms = np.linalg.norm(found.result_.transforms, axis=(1, 2))
        np.testing.assert_allclose(norms, np.sqrt(strange.shape[1]))
        assert set(found.labels_) <= set(range(K))
        codes = found.transform(strange)
        assert np.isfinite(codes).all()
        assert np.isfinite(found.inverse_transform(codes)).all()
        assert -1 <= found.score(strange) <= 0


@pytest.mark.filterwarnings("ignore:n_nonzero_coefs=0:UserWarning")
@pytest.mark.parametrize("objective", ["absolute", "relative"])
def test_empty_codes_teach_nothing(objective, signals):
    estimator = kf.UnionTransform(0, objective=objective, **FAST).fit(signals)
    assert estimator.score(signals) == -1
    assert np.isfinite(estimator.partial_fit(signals).components_).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_signals_that_are_not_finite_are_named(value, fitted, signals):
    spoiled = signals.copy()
    spoiled[7, 4] = value
    for call in (kf.UnionTransform(2).fit, fitted.transform, fitted.predict, fitted.score):
        with pytest.raises(ValueError, match="contains NaN or inf, first in row 7"):
            call(spoiled)
    with pytest.raises(ValueError, match="first in row 7"):
        np.asarray(fitted.predict(Store(spoiled)))


# --- Ctrl-C --------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_was_learned(signals):
    def press(result):
        if result.n_iter == 4:
            raise KeyboardInterrupt

    options = {"n_transforms": K, "n_starts": 2, "tol": 1e-3}
    whole = kf.UnionTransform(2, **options).fit(signals)
    estimator = kf.UnionTransform(2, **FAST).fit(signals).set_params(callback=press, **options)
    with pytest.raises(kf.LearningInterrupted) as caught:
        estimator.fit(signals)
    assert estimator.result_ is caught.value.result
    assert estimator.n_iter_ == 4
    assert not hasattr(estimator, "labels_")
    assert estimator.predict(signals).shape == (len(signals),)
    estimator.set_params(init=estimator.result_, callback=None).fit(signals)
    np.testing.assert_array_equal(estimator.components_, whole.components_)
    np.testing.assert_array_equal(estimator.labels_, whole.labels_)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_stops_the_labels_loses_no_transform(error, fitted, signals):
    class Failing(Store):
        fails = False

        def __getitem__(self, rows):
            if self.fails:
                raise error("stop")
            return super().__getitem__(rows)

    store = Failing(signals)

    def fail_from_now_on(result):
        store.fails = result.n_iter == fitted.n_iter_

    estimator = kf.UnionTransform(2, callback=fail_from_now_on, **FAST)
    expected = kf.LearningInterrupted if error is KeyboardInterrupt else kf.SignalsUnreadable
    with pytest.raises(expected) as caught:
        estimator.fit(store)
    np.testing.assert_array_equal(estimator.components_, fitted.components_)
    np.testing.assert_array_equal(caught.value.result.transform, fitted.result_.transform)
    store.fails = False
    np.testing.assert_array_equal(estimator.predict(store), fitted.labels_)


def test_denoising_needs_one_transform_and_says_so(fitted):
    image = np.random.default_rng(0).standard_normal((32, 32))
    with pytest.raises(ValueError, match="transform is a union of 3 transforms: give one of them"):
        kf.denoise(image, 1.0, transform=fitted)
