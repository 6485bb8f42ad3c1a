"""Learning goes on from a file as if it had never stopped."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from crafted_files import assert_same_state
from sklearn.exceptions import ConvergenceWarning

import kappaform as kf

N_FEATURES = 16


@pytest.mark.parametrize(
    "method",
    [kf.Orthonormal(), kf.LogDet(), kf.Conditioned(), kf.Conditioned(variant="reference")],
    ids=str,
)
def test_learning_resumes_from_a_file_as_from_memory(method, signals, tmp_path):
    options = {"n_nonzero_coefs": 3, "tol": 0}
    result = kf.learn(signals, method, init="dct", max_iter=5, **options)
    kf.save(tmp_path / "half", result)
    loaded = kf.load(tmp_path / "half").result_
    from_file = kf.learn(signals, method, init=loaded, max_iter=5, **options)
    from_memory = kf.learn(signals, method, init=result, max_iter=5, **options)
    np.testing.assert_array_equal(from_file.transform, from_memory.transform)
    np.testing.assert_array_equal(from_file.errors, from_memory.errors)
    assert from_file.n_iter == from_memory.n_iter == 10
    assert from_file.n_passes == from_memory.n_passes


def test_learning_resumes_from_a_file_after_exploration(signals, tmp_path):
    result = kf.learn(signals, n_nonzero_coefs=3, tol=1e-3)
    kf.save(tmp_path / "half", result)
    more = {"n_nonzero_coefs": 3, "tol": 0, "max_iter": 5}
    from_file = kf.learn(signals, init=kf.load(tmp_path / "half").result_, **more)
    from_memory = kf.learn(signals, init=result, **more)
    np.testing.assert_array_equal(from_file.transform, from_memory.transform)


def test_a_callback_can_save_what_is_learned_so_far(signals, tmp_path):
    path = tmp_path / "so far"
    result = kf.learn(
        signals, n_nonzero_coefs=3, max_iter=3, callback=lambda state: kf.save(path, state)
    )
    np.testing.assert_array_equal(kf.load(path).components_, result.transform)


def assert_same(one, other):
    np.testing.assert_array_equal(one.transform, other.transform)
    np.testing.assert_array_equal(one.records, other.records)
    assert one.n_iter == other.n_iter


BEYOND = 5 * np.eye(N_FEATURES) + np.arange(N_FEATURES**2.0).reshape(N_FEATURES, -1) / 100
RACES = {
    "absolute": (kf.Conditioned(3.0), "auto"),
    "relative": (kf.Conditioned(3.0, objective="relative"), "auto"),
    "free norm": (kf.Conditioned(3.0, objective="relative", norm=None), "auto"),
    "orthonormal": (kf.Orthonormal(), ("dct", "identity")),
    "log-det": (kf.LogDet(), ("identity", "dct")),
    "paper": (kf.Conditioned(3.0, variant="paper"), ("identity", BEYOND, "dct")),
    "reference": (kf.Conditioned(3.0, variant="reference"), (BEYOND, "dct", "identity")),
    "public": (kf.Conditioned(3.0, variant="public"), ("dct", "identity", BEYOND)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("race", RACES)
def test_a_race_resumes_from_a_file_of_any_iteration(race, dtype, signals, tmp_path):
    (method, init), signals = RACES[race], signals.astype(dtype)
    options = {"n_nonzero_coefs": 3, "tol": 0}
    states = []
    whole = kf.learn(signals, method, init=init, max_iter=80, callback=states.append, **options)
    stops = [*range(1, min(whole.n_iter, 80), 15), whole.n_iter - 1, whole.n_iter]
    for stop in stops:
        kf.save(tmp_path / str(stop), states[stop - 1])
    n_racing = []
    for stop, later in pairwise(stops):  # at the next stop nothing differs that a file keeps
        loaded = kf.load(tmp_path / str(stop)).result_
        n_racing.append(len(loaded.state.candidates))
        gone_on = kf.learn(signals, method, init=loaded, max_iter=later - stop, **options)
        kf.save(tmp_path / "gone on", gone_on)
        assert_same_state(tmp_path / "gone on", tmp_path / str(later))
    assert max(n_racing) > 1
    assert_same(gone_on, whole)


def test_a_fit_that_ends_within_a_race_resumes_from_its_file(signals, tmp_path):
    whole = kf.ConditionedTransform(3, max_condition=3.0).fit(signals)
    with pytest.warns(ConvergenceWarning):
        part = kf.ConditionedTransform(3, max_condition=3.0, max_iter=30).fit(signals)
    assert part.result_.state.races
    kf.save(tmp_path / "part", part)
    resumed = kf.load(tmp_path / "part")
    resumed.set_params(init=resumed.result_, max_iter=500).fit(signals)
    assert_same(resumed.result_, whole.result_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", [kf.Conditioned(3.0), kf.Conditioned(3.0, objective="relative")])
def test_a_race_over_batches_resumes_from_a_file(method, dtype, signals, tmp_path):
    batches = np.split(1e30 * signals.astype(dtype), 5)
    whole = kf.learn_stream(batches, method, n_nonzero_coefs=3)
    assert whole.state.races
    part = kf.learn_stream(batches[:2], method, n_nonzero_coefs=3)
    kf.save(tmp_path / "part", part)
    loaded = kf.load(tmp_path / "part")
    resumed = kf.learn_stream(batches[2:], method, n_nonzero_coefs=3, init=loaded.result_)
    assert_same(resumed, whole)
    for batch in batches[2:]:
        loaded.partial_fit(batch)
    assert_same(loaded.result_, whole)


def test_a_file_grows_with_the_candidates_that_race_and_shrinks_with_them(signals, tmp_path):
    square = 8 * N_FEATURES**2
    for max_iter in (1, 40, 500):
        result = kf.learn(signals, n_nonzero_coefs=3, max_iter=max_iter)
        kf.save(tmp_path / "t", result)
        n_racing = len(result.state.candidates)
        assert n_racing == (1 if max_iter == 500 else 4)
        # Each has two factors and those of its last update; beside them are header and records.
        assert (tmp_path / "t").stat().st_size <= (1 + 4 * n_racing) * square + 20_000


class Shrinking(kf.Method):
    """A custom method, of which a file has the name only."""

    def update(self, statistics, transform):  # noqa: ARG002
        return 0.9 * transform


def test_of_a_custom_method_that_raced_the_best_candidate_is_kept(signals, tmp_path):
    options = {"n_nonzero_coefs": 3, "init": ("dct", "identity")}
    batched = kf.learn_stream(np.split(signals, 4), Shrinking(), **options)
    at_once = kf.learn(signals, Shrinking(), max_iter=5, **options)
    for result in (batched, at_once):
        assert result.state.races
        kf.save(tmp_path / "t", result)
        loaded = kf.load(tmp_path / "t").result_
        np.testing.assert_array_equal(loaded.transform, result.transform)
        np.testing.assert_array_equal(loaded.records, result.records)


def test_an_unfinished_estimator_can_be_saved(signals, tmp_path):
    with pytest.warns(ConvergenceWarning):
        estimator = kf.ConditionedTransform(3, max_iter=1).fit(signals)
    kf.save(tmp_path / "t", estimator)
    np.testing.assert_array_equal(kf.load(tmp_path / "t").components_, estimator.components_)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        *(("0_1", name) for name in ("fitted", "batches", "published")),
        *(("0_2", name) for name in ("fitted", "batches", "raced")),
    ],
)
def test_files_of_older_versions_are_loaded_and_resumed(version, name, tmp_path):
    path = Path(__file__).parent / f"files_of_{version}" / f"{name}.npz"
    signals = np.random.default_rng(0).standard_normal((60, 4)).cumsum(axis=1)
    loaded = kf.load(path)
    with np.load(path) as archive:
        header = json.loads(str(archive["header"]))
        np.testing.assert_array_equal(loaded.components_, archive["transform"])
        np.testing.assert_array_equal(loaded.result_.records, archive["records"])
    assert header["kappaform_version"] == f"{version.replace('_', '.')}.0"
    assert header["condition_number"] == pytest.approx(loaded.condition_number_, rel=1e-12)
    assert loaded.n_iter_ == header["n_iter"]
    assert loaded.patch_shape_ == ((2, 2) if name == "fitted" else None)
    kf.save(tmp_path / "again", loaded)
    again = kf.load(tmp_path / "again").partial_fit(signals)
    np.testing.assert_array_equal(again.components_, loaded.partial_fit(signals).components_)
    assert again.n_iter_ == header["n_iter"] + 1


def test_a_stream_of_version_0_1_is_the_same_today():
    signals = np.random.default_rng(0).standard_normal((60, 4)).cumsum(axis=1)
    today = kf.LogDetTransform(2)
    for batch in np.split(signals, 6):
        today.partial_fit(batch)
    loaded = kf.load(Path(__file__).parent / "files_of_0_1" / "batches.npz")
    for each in (loaded, today):
        each.partial_fit(signals)
    np.testing.assert_allclose(loaded.components_, today.components_, rtol=1e-9)
    np.testing.assert_allclose(loaded.loss_curve_, today.loss_curve_, rtol=1e-9)


@pytest.mark.parametrize("variant", ["paper", "reference", "public"])
def test_batches_resume_with_the_method_of_the_file(variant, signals, tmp_path):
    method, batches = kf.Conditioned(1.5, variant=variant), np.split(signals, 4)
    options = {"n_nonzero_coefs": 3, "init": "dct"}
    kf.save(tmp_path / "half", kf.learn_stream(batches[:2], method, **options))
    loaded = kf.load(tmp_path / "half")
    for batch in batches[2:]:
        loaded.partial_fit(batch)
    assert loaded.result_.method == method
    whole = kf.learn_stream(batches, method, **options)
    np.testing.assert_array_equal(loaded.result_.transform, whole.transform)
    kf.save(tmp_path / "whole", loaded)
    assert kf.load(tmp_path / "whole").result_.method == method
    loaded.set_params(max_condition=1.25).partial_fit(batches[0])
    assert loaded.result_.method == kf.Conditioned(1.25, variant=variant)
    assert loaded.set_params(tol=1e-2).fit(signals).result_.method == loaded.result_.method


@pytest.mark.parametrize("variant", ["paper", "reference", "public"])
def test_a_published_variant_resumes_before_its_first_update(
    variant, signals, tmp_path, monkeypatch, rng
):
    method = kf.Conditioned(1.5, variant=variant)
    start = rng.standard_normal((N_FEATURES, N_FEATURES))  # beyond the bound

    def press_ctrl_c(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["kappaform.learning.learn"], "step", press_ctrl_c)
        with pytest.raises(kf.LearningInterrupted) as caught:
            kf.learn(signals, method, n_nonzero_coefs=3, init=start)
    result = caught.value.result
    kf.save(tmp_path / "start", result)
    loaded = kf.load(tmp_path / "start").result_
    assert loaded.condition_number <= 1.5 * (1 + 1e-9)
    np.testing.assert_array_equal(loaded.transform, result.transform)
    options = {"n_nonzero_coefs": 3, "max_iter": 3}
    from_file = kf.learn(signals, method, init=loaded, **options)
    from_memory = kf.learn(signals, method, init=result, **options)
    np.testing.assert_array_equal(from_file.transform, from_memory.transform)
    np.testing.assert_array_equal(from_file.errors, from_memory.errors)
