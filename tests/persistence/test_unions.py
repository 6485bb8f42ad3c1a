"""Files of unions: they resume bitwise, and are checked as strictly as those of one transform."""

import json
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from crafted_files import (
    assert_same_state,
    changed,
    check_junk_in_arrays,
    check_junk_in_headers,
    entries_of,
    peak_of_refused_load,
    rewrite,
    write,
)

import kappaform as kf
from kappaform.learning.members import Members

N_FEATURES, K = 6, 3
OPTIONS = {"n_nonzero_coefs": 2, "n_transforms": K}


def three_kinds(rng):
    smooth = rng.standard_normal((60, N_FEATURES)).cumsum(axis=1)
    peaks = 3 * rng.standard_normal((60, N_FEATURES)) * (rng.random((60, N_FEATURES)) < 0.3)
    signals = np.concatenate([smooth, peaks, smooth[::-1] * (-1) ** np.arange(N_FEATURES)])
    return signals[rng.permutation(len(signals))]


@pytest.fixture
def signals(rng):
    return three_kinds(rng)


@pytest.fixture(scope="module")
def learned():
    estimator = kf.UnionTransform(2, n_transforms=K, n_starts=1, tol=1e-2)
    return estimator.fit(three_kinds(np.random.default_rng(0)))


@pytest.fixture
def fitted(learned):
    """The estimator fitted to `signals`; tests may change it."""
    return deepcopy(learned)


@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "transform.npz"
    kf.save(path, fitted)
    return path


def assert_same(one, other):
    np.testing.assert_array_equal(one.transform, other.transform)
    np.testing.assert_array_equal(one.records, other.records)
    assert one.n_iter == other.n_iter


# --- what is loaded ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"max_condition": 3.0, "norm": 2.0, "n_rounds": 2},
        {"objective": "relative"},
        {"method": kf.Orthonormal()},
        {"method": kf.Conditioned(4.0)},
        {"coding": "largest", "sparse_output": False, "random_state": 7, "forgetting": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_union_is_the_saved_one(parameters, dtype, signals, tmp_path):
    signals = signals.astype(dtype)
    saved = kf.UnionTransform(2, n_transforms=K, n_starts=2, tol=0.1, **parameters).fit(signals)
    kf.save(tmp_path / "u", saved, patch_shape=(2, 3), patch_mean="removed")
    loaded = kf.load(tmp_path / "u")
    assert isinstance(loaded, kf.UnionTransform)
    assert isinstance(loaded.result_, kf.UnionResult)
    assert loaded.patch_shape_ == (2, 3)
    assert loaded.patch_mean_ == "removed"
    assert loaded.result_.method == saved.result_.method
    for name in ("components_", "condition_numbers_", "singular_values_", "loss_curve_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(saved, name))
        assert getattr(loaded, name).dtype == getattr(saved, name).dtype
    assert_same(loaded.result_, saved.result_)
    np.testing.assert_array_equal(loaded.predict(signals), saved.labels_)
    np.testing.assert_array_equal(loaded.transform(signals), saved.transform(signals))
    assert loaded.score(signals) == saved.score(signals)
    known = loaded.get_params()
    for name in ("n_nonzero_coefs", "n_transforms", "n_starts", "tol", "random_state", "coding"):
        assert known[name] == saved.get_params()[name]
    both = saved.partial_fit(signals[:20]), loaded.partial_fit(signals[:20])
    np.testing.assert_array_equal(*(each.components_ for each in both))


def test_a_result_is_loaded_as_an_estimator(signals, tmp_path):
    result = kf.learn_union(signals, kf.Orthonormal(), tol=1e-2, **OPTIONS)
    kf.save(tmp_path / "u", result)
    loaded = kf.load(tmp_path / "u")
    assert_same(loaded.result_, result)
    assert loaded.method == kf.Orthonormal()
    assert loaded.n_transforms == K
    assert loaded.fit(signals).condition_number_ == pytest.approx(1.0)


def test_parameters_that_changed_since_are_not_saved(fitted, tmp_path):
    for name, value in (("n_transforms", 2), ("max_condition", 3.0), ("method", kf.Orthonormal())):
        changed = deepcopy(fitted).set_params(**{name: value})
        with pytest.raises(ValueError, match=r"the transform was learned .*; set it back, or fit"):
            kf.save(tmp_path / "u", changed)
    assert not list(tmp_path.iterdir())


# --- resuming ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "method",
    [
        kf.Conditioned(3.0),
        kf.Conditioned(3.0, objective="relative"),
        kf.Conditioned(1.0),
        kf.Orthonormal(),
    ],
    ids=str,
)
def test_a_union_resumes_from_a_file_of_any_iteration(method, dtype, signals, tmp_path):
    signals, options = signals.astype(dtype), {**OPTIONS, "tol": 0}
    states = []
    whole = kf.learn_union(signals, method, max_iter=60, callback=states.append, **options)
    n_racing = []
    stops = [*range(1, whole.n_iter, 11), whole.n_iter - 1, whole.n_iter]
    for stop in stops:
        kf.save(tmp_path / str(stop), states[stop - 1])
    for stop, later in pairwise(stops):  # at the next stop nothing differs that a file keeps
        loaded = kf.load(tmp_path / str(stop)).result_
        n_racing.append(len(loaded.state.candidates))
        gone_on = kf.learn_union(signals, method, init=loaded, max_iter=later - stop, **options)
        kf.save(tmp_path / "gone on", gone_on)
        assert_same_state(tmp_path / "gone on", tmp_path / str(later))
    assert max(n_racing) > 1
    assert_same(gone_on, whole)


def test_how_often_a_transform_was_tried_elsewhere_and_the_ratio_are_kept(signals, tmp_path):
    method, few = kf.Conditioned(3.0, objective="relative"), signals[:12]
    found = kf.learn_union(few, method, n_nonzero_coefs=1, n_transforms=K, max_iter=20)
    members = found.state.best.transform
    assert members.trials > 0
    assert members.ratio > 0
    kf.save(tmp_path / "u", found)
    loaded = kf.load(tmp_path / "u").result_.state.best.transform
    assert (loaded.trials, loaded.ratio) == (members.trials, members.ratio)
    np.testing.assert_array_equal(loaded.union.weights, members.union.weights)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("objective", ["absolute", "relative"])
def test_batches_of_a_union_resume_from_a_file(objective, dtype, signals, tmp_path):
    batches = np.split(1e30 * signals.astype(dtype), 5)
    options = {"n_transforms": K, "n_starts": 2, "objective": objective}
    whole, part = (kf.UnionTransform(2, **options) for _ in range(2))
    for number, batch in enumerate(batches):
        whole.partial_fit(batch)
        if number < 2:
            part.partial_fit(batch)
    assert whole.result_.state.races
    kf.save(tmp_path / "part", part)
    loaded = kf.load(tmp_path / "part")
    for before, after in zip(part._stream.candidates, loaded._stream.candidates, strict=True):
        np.testing.assert_array_equal(before.statistics.gram, after.statistics.gram)
        np.testing.assert_array_equal(before.statistics.counts, after.statistics.counts)
    for batch in batches[2:]:
        loaded.partial_fit(batch)
    assert_same(loaded.result_, whole.result_)


@dataclass(frozen=True)
class Turning(kf.Method):
    """A custom method, of which a file has the name only."""

    def update(self, statistics, transform):  # noqa: ARG002
        left, _, right = np.linalg.svd(statistics.cross)
        return left @ right


def test_of_a_custom_method_a_file_has_the_transforms_and_the_name(signals, tmp_path):
    estimator = kf.UnionTransform(2, n_transforms=K, method=Turning(), tol=1e-2).fit(signals)
    kf.save(tmp_path / "u", estimator)
    loaded = kf.load(tmp_path / "u")
    np.testing.assert_array_equal(loaded.transform(signals), estimator.transform(signals))
    with pytest.raises(kf.MethodFailed, match=r"not the method that learned it, Turning\(\)"):
        loaded.partial_fit(signals)
    loaded.set_params(method=Turning()).partial_fit(signals)
    assert loaded.result_.method.method == Turning()
    kf.save(tmp_path / "again", loaded)


# --- files that are damaged, or made to harm -----------------------------------------------------


@pytest.mark.parametrize(
    ("where", "value", "reason"),
    [
        (("method", "n_transforms"), 2, "transform is float64 of shape"),
        (("method", "n_transforms"), 0, "n_transforms is 0"),
        (("method", "n_transforms"), 10**15, "n_transforms is 1000000000000000"),
        (("method", "n_transforms"), 3.0, "n_transforms is 3.0"),
        (("method", "name"), "Conditioned", "n_transforms"),
        (("method", "method"), {"name": "LogDet"}, "no common norm"),
        (("method", "method"), {"name": "Conditioned", "norm": None}, "common norm"),
        (("method", "method"), {"name": "Conditioned", "max_condition": 1.1}, "beyond max_condi"),
        (("method", "colour"), "red", r"Union has no parameters \['colour'\]"),
        (("method", "method"), "Conditioned", "its method is 'Conditioned'"),
        (("candidates", 0, "ratio"), 1.5, "ratio is 1.5, not a number from 0 to 1"),
        (("candidates", 0, "ratio"), None, "ratio is None"),
        (("candidates", 0, "trials"), -1, "trials is -1"),
        (("candidates", 0, "trials"), 0.5, "trials is 0.5"),
        (("condition_number",), 1.5, "has condition number .*, the header says 1.5"),
        (("parameters", "n_transforms"), 2, "n_transforms=2: .* with n_transforms=3"),
        (("parameters", "max_condition"), 9.0, "max_condition=9.0: .* max_condition=2.0"),
        (("parameters", "init"), "dct", "init='dct' is unknown"),
        (("parameters", "method"), "x", "method='x'"),
        (("parameters", "random_state"), -1, "random_state=-1"),
        (("stream", "energies"), [], "lacks the energies"),
        (("stream", "energies", 1, "n_signals"), -1, "n_signals is -1"),
    ],
)
def test_headers_that_contradict_the_union_are_rejected(where, value, reason, saved):
    header, arrays = entries_of(saved)
    write(saved, changed(header, *where, value=value), arrays)
    with pytest.raises(ValueError, match=rf"transform\.npz is .*damaged: .*{reason}"):
        kf.load(saved)


def test_a_union_of_unions_is_rejected(saved):
    header, arrays = entries_of(saved)
    inner = header["method"]
    write(saved, changed(header, "method", "method", value=inner), arrays)
    with pytest.raises(ValueError, match=r"damaged: .*a union already"):
        kf.load(saved)


SQUARE = np.ones((N_FEATURES, N_FEATURES))


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"transform": None}, "it has no 'transform'"),
        ({"transform": SQUARE}, r"transform is float64 of shape \(6, 6\)"),
        ({"transform": np.tile(np.eye(6), (3, 1, 1))}, "not that of its best candidate"),
        ({"left_2": None}, "it has no 'left_2'"),
        ({"left_1": SQUARE}, "the columns of left_1 are not orthonormal"),
        ({"last_right_2": SQUARE}, "the columns of last_right_2 are not orthonormal"),
        ({"last_left_2": None}, "it has no 'last_left_2'"),
        ({"spectrum_1": np.r_[9.0, np.ones(5)]}, "spectrum_1 is not feasible: .*beyond max_cond"),
        ({"spectrum_2": np.full(6, 2.0)}, "its spectrum_2 is not feasible: .* has norm"),
        ({"spectrum_2": np.ones(5)}, r"spectrum_2 is float64 of shape \(5,\)"),
        ({"gram_1": None}, "it has no 'gram_1'"),
        ({"gram_2": -np.eye(6)}, "gram_2 has negative eigenvalues"),
        ({"gram_2": np.triu(SQUARE)}, "gram_2 is not symmetric"),
        ({"cross_1": np.full((6, 6), np.nan)}, "cross_1 contains NaN"),
        ({"records": np.ones((0, 6))}, "it has 0 records of"),
    ],
)
def test_arrays_that_contradict_the_header_are_rejected(arrays, reason, saved):
    rewrite(saved, arrays)
    with pytest.raises(ValueError, match=f"damaged: .*{reason}"):
        kf.load(saved)


def test_a_file_of_one_transform_cannot_pretend_to_be_a_union(signals, tmp_path):
    path = tmp_path / "transform.npz"
    kf.save(path, kf.ConditionedTransform(2, init="dct", tol=1e-2).fit(signals))
    method = json.loads(str(np.load(path)["header"]))["method"]
    rewrite(path, method={"name": "Union", "n_transforms": 1, "method": method})
    with pytest.raises(ValueError, match=r"damaged: .*of shape \(6, 6\), not .*\(1, 6, 6\)"):
        kf.load(path)


SMALL = np.random.default_rng(0).standard_normal((40, 4)).cumsum(axis=1)
SMALL[::2] *= (-1) ** np.arange(4)
MODELS = {
    "fit": lambda: kf.UnionTransform(2, n_transforms=2, n_starts=1, tol=1e-2).fit(SMALL),
    "race": lambda: kf.learn_union(SMALL, n_nonzero_coefs=2, n_transforms=2, max_iter=15),
    "batches": lambda: kf.UnionTransform(2, n_transforms=2, n_starts=2).partial_fit(SMALL),
}
each_model = pytest.mark.parametrize("model", MODELS)


def assert_usable(loaded):
    loaded.coding = "largest"
    assert loaded.transform(SMALL).shape == (40, 8)
    result, bound = loaded.result_, loaded.result_.method.max_condition * (1 + 1e-9)
    assert np.isfinite(loaded.partial_fit(SMALL).components_).all()
    assert loaded.condition_number_ <= bound
    more = kf.learn_union(
        SMALL,
        result.method.method,
        n_nonzero_coefs=result.n_nonzero_coefs,
        n_transforms=2,
        init=result,
        max_iter=2,
    )
    assert more.condition_number <= bound


@each_model
@pytest.mark.filterwarnings("ignore:max_condition=1e:UserWarning")
def test_no_header_leads_to_another_error_than_that_the_file_is_damaged(model, tmp_path):
    path = tmp_path / "transform.npz"
    kf.save(path, MODELS[model](), patch_shape=(2, 2))
    check_junk_in_headers(path, assert_usable)


@each_model
def test_no_array_leads_to_another_error_than_that_the_file_is_damaged(model, tmp_path, rng):
    path = tmp_path / "transform.npz"
    kf.save(path, MODELS[model]())
    check_junk_in_arrays(path, assert_usable, rng, but=("_3", "_4", "_5"))


def test_a_header_cannot_claim_more_transforms_than_the_file_has(saved, tmp_path):
    header, arrays = entries_of(saved)
    path = tmp_path / "large.npz"
    for claimed in (10**5, 10**9, 2**62):
        write(path, changed(header, "method", "n_transforms", value=claimed), arrays)
        assert peak_of_refused_load(path) < 10**6


def test_members_are_kept_with_the_layout_of_their_matrices(fitted, saved):
    kept, loaded = fitted.result_.state.best, kf.load(saved).result_.state.best
    assert isinstance(loaded.transform, Members)
    for one, other in zip(kept.transform.each, loaded.transform.each, strict=True):
        for name in ("left", "right"):
            flags = [getattr(each, name).flags.f_contiguous for each in (one, other)]
            assert flags[0] == flags[1]
