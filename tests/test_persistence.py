"""A saved transform comes back whole, or not at all."""

import json
import stat
import sys
import tracemalloc
import zipfile
from copy import deepcopy
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import kappaform as kf
from kappaform.files import replaced_when_complete

N_FEATURES = 16
ESTIMATORS = [kf.ConditionedTransform, kf.OrthonormalTransform, kf.LogDetTransform]
each_estimator = pytest.mark.parametrize("estimator_class", ESTIMATORS)


@pytest.fixture
def signals(rng):
    return rng.standard_normal((200, N_FEATURES)).cumsum(axis=1)


@pytest.fixture
def fitted(signals):
    return kf.ConditionedTransform(3, max_condition=2.0, init="dct", tol=1e-2).fit(signals)


@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "transform.npz"
    kf.save(path, fitted)
    return path


def rewrite(path, arrays=None, **header_changes):
    """Change a saved file: None removes an array, ... an entry of the header."""
    with np.load(path) as archive:
        entries = dict(archive)
    header = json.loads(str(entries["header"])) | header_changes
    header = {name: value for name, value in header.items() if value is not ...}
    entries = entries | {"header": np.array(json.dumps(header))} | (arrays or {})
    with path.open("wb") as file:
        np.savez(file, **{name: value for name, value in entries.items() if value is not None})


@each_estimator
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_estimator_gives_the_same_bits(estimator_class, dtype, signals, tmp_path):
    signals = signals.astype(dtype)
    estimator = estimator_class(3, init="dct", tol=1e-2).fit(signals)
    kf.save(tmp_path / "transform", estimator)
    loaded = kf.load(tmp_path / "transform")
    assert type(loaded) is estimator_class
    assert loaded.get_params() == estimator.get_params()
    codes = estimator.transform(signals)
    np.testing.assert_array_equal(loaded.transform(signals), codes)
    np.testing.assert_array_equal(
        loaded.inverse_transform(codes), estimator.inverse_transform(codes)
    )
    assert loaded.components_.dtype == dtype
    for name in vars(estimator):
        if name.endswith("_") and name != "result_":
            np.testing.assert_array_equal(getattr(loaded, name), getattr(estimator, name))
    for name in ("method", "n_nonzero_coefs", "n_iter", "n_passes", "stop_reason"):
        assert getattr(loaded.result_, name) == getattr(estimator.result_, name)
    np.testing.assert_array_equal(loaded.result_.errors, estimator.result_.errors)


@pytest.mark.parametrize(
    ("method", "estimator_class"),
    [
        (kf.Orthonormal(), kf.OrthonormalTransform),
        (kf.LogDet(0.01, 0.02), kf.LogDetTransform),
        (kf.Conditioned(3.0, norm=2.5, objective="relative"), kf.ConditionedTransform),
        (kf.Conditioned(3.0, variant="paper"), kf.ConditionedTransform),
        (kf.Conditioned(1.5, variant="reference", norm=None), kf.ConditionedTransform),
    ],
)
def test_a_saved_result_is_loaded_as_the_estimator_of_its_method(
    method, estimator_class, signals, tmp_path
):
    result = kf.learn(signals, method, n_nonzero_coefs=3, init="dct", max_iter=10)
    kf.save(tmp_path / "result.npz", result)
    loaded = kf.load(tmp_path / "result.npz")
    assert type(loaded) is estimator_class
    assert loaded.result_.method == method
    assert loaded.n_nonzero_coefs == loaded.n_nonzero_coefs_ == 3
    np.testing.assert_array_equal(loaded.components_, result.transform)
    for name, value in vars(method).items():
        if name in loaded.get_params():
            assert getattr(loaded, name) == value


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


def test_a_result_that_still_explores_is_resumed_from_its_best_start(signals, tmp_path):
    result = kf.learn(signals, n_nonzero_coefs=3, max_iter=2)
    kf.save(tmp_path / "early", result)
    loaded = kf.load(tmp_path / "early").result_
    assert kf.learn(signals, n_nonzero_coefs=3, init=loaded, max_iter=5).loss[-1] < result.loss[-1]


def test_a_callback_can_save_what_is_learned_so_far(signals, tmp_path):
    path = tmp_path / "so far"
    result = kf.learn(
        signals, n_nonzero_coefs=3, max_iter=3, callback=lambda state: kf.save(path, state)
    )
    np.testing.assert_array_equal(kf.load(path).components_, result.transform)


def test_what_is_said_about_the_signals_comes_back(fitted, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    kf.save(first, fitted, patch_shape=(2, 8), patch_mean="removed")
    loaded = kf.load(first)
    assert loaded.patch_shape_ == (2, 8)
    assert loaded.patch_mean_ == "removed"
    kf.save(second, loaded)  # said once is enough
    assert kf.load(second).patch_shape_ == (2, 8)
    assert kf.load(second).patch_mean_ == "removed"
    kf.save(second, loaded, patch_shape=[4, 4], patch_mean="kept")
    assert kf.load(second).patch_shape_ == (4, 4)
    assert kf.load(second).patch_mean_ == "kept"


def test_without_a_word_about_the_signals_they_are_not_patches(saved, signals):
    loaded = kf.load(saved)
    assert loaded.patch_shape_ is None
    assert loaded.patch_mean_ == "kept"
    loaded.patch_shape_, loaded.patch_mean_ = (4, 4), "removed"
    loaded.fit(signals)  # other signals: what was said no longer holds
    assert loaded.patch_shape_ is None
    assert loaded.patch_mean_ == "kept"


@pytest.mark.parametrize("shape", [(4, 5), (-4, -4), (4.0, 4.0), (), 15, "44"])
def test_a_patch_shape_that_does_not_fit_is_refused(shape, fitted, tmp_path):
    with pytest.raises(ValueError, match=r"patch_shape=.* product is the number of features, 16"):
        kf.save(tmp_path / "t", fitted, patch_shape=shape)
    assert not list(tmp_path.iterdir())


def test_an_unknown_word_for_the_mean_is_refused(fitted, tmp_path):
    with pytest.raises(ValueError, match="patch_mean='gone': choose 'kept' or 'removed'"):
        kf.save(tmp_path / "t", fitted, patch_mean="gone")


def test_names_of_features_come_back(signals, tmp_path):
    table = pd.DataFrame(signals, columns=[f"χ{i}" for i in range(N_FEATURES)])
    kf.save(tmp_path / "t", kf.OrthonormalTransform(3, tol=1e-2).fit(table))
    loaded = kf.load(tmp_path / "t")
    loaded.transform(table)  # would warn, that is, fail here, without names
    assert list(loaded.feature_names_in_) == list(table.columns)


def test_parameters_of_any_number_type_are_stored(signals, tmp_path):
    estimator = kf.ConditionedTransform(
        np.int32(3),
        max_condition=Fraction(3, 2),
        norm=np.float32(2),
        tol=np.float64(0.01),
        sparse_output=np.True_,
        init=np.eye(N_FEATURES),
        callback=lambda state: state.n_iter == 5,
    ).fit(signals)
    kf.save(tmp_path / "t", estimator)
    loaded = kf.load(tmp_path / "t")
    assert (loaded.n_nonzero_coefs, loaded.max_condition, loaded.norm) == (3, 1.5, 2.0)
    assert (loaded.init, loaded.callback) == ("auto", None)
    np.testing.assert_array_equal(
        loaded.transform(signals).toarray(), estimator.transform(signals).toarray()
    )


def test_a_default_sparsity_stays_a_default(signals, tmp_path):
    kf.save(tmp_path / "t", kf.OrthonormalTransform(tol=1e-2).fit(signals))
    loaded = kf.load(tmp_path / "t")
    assert loaded.n_nonzero_coefs is None
    assert loaded.n_nonzero_coefs_ == 2


def test_sparsities_of_single_signals_are_not_stored_but_replaced(signals, tmp_path):
    each = np.arange(len(signals)) % 5
    result = kf.learn(signals, kf.Orthonormal(), n_nonzero_coefs=each, max_iter=3)
    with pytest.raises(
        ValueError, match=r"for each of 200 signals: say with save\(..., n_nonzero_"
    ):
        kf.save(tmp_path / "t", result)
    assert not list(tmp_path.iterdir())
    kf.save(tmp_path / "t", result, n_nonzero_coefs=2)
    loaded = kf.load(tmp_path / "t")
    assert loaded.n_nonzero_coefs == loaded.n_nonzero_coefs_ == 2
    again = kf.learn(signals, kf.Orthonormal(), n_nonzero_coefs=each, init=loaded.result_)
    assert again.loss[0] == pytest.approx(result.loss[-1], rel=1e-12)


def test_an_impossible_sparsity_is_refused(fitted, tmp_path):
    with pytest.raises(ValueError, match="n_nonzero_coefs=17 exceeds n_features=16"):
        kf.save(tmp_path / "t", fitted, n_nonzero_coefs=17)


def test_the_name_of_the_file_is_taken_as_it_is(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "with.dots.kf", "transform.npz"):
        kf.save(name, fitted)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "plain",
        "transform.npz",
        "with.dots.kf",
    ]
    assert kf.load("plain").n_nonzero_coefs_ == 3


def test_the_file_is_an_npz_without_pickle_and_with_a_readable_header(saved):
    with np.load(saved, allow_pickle=False) as archive:
        header = json.loads(str(archive["header"]))
        assert archive["transform"].dtype == np.float64
    assert header["format"] == "kappaform transform"
    assert header["kappaform_version"] == kf.__version__
    assert header["method"] == {
        "name": "Conditioned",
        "max_condition": 2.0,
        "norm": "auto",
        "objective": "absolute",
        "variant": "monotone",
        "n_rounds": 5,
    }
    assert header["condition_number"] <= 2.0


def test_the_permissions_are_those_of_any_new_file(saved, tmp_path):
    (tmp_path / "other").touch()
    assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_an_interrupted_save_leaves_the_old_file_and_nothing_else(
    saved, fitted, tmp_path, monkeypatch
):
    before = saved.read_bytes()

    def fail_halfway(file, **arrays):  # noqa: ARG001
        file.write(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", fail_halfway)
    with pytest.raises(KeyboardInterrupt):
        kf.save(saved, fitted)
    assert list(tmp_path.iterdir()) == [saved]
    assert saved.read_bytes() == before


def test_a_failed_rename_leaves_nothing_behind(fitted, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        kf.save(tmp_path / "folder", fitted)
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_saving_replaces_the_old_file(saved, signals):
    kf.save(saved, kf.OrthonormalTransform(3, tol=1e-2).fit(signals))
    assert isinstance(kf.load(saved), kf.OrthonormalTransform)


def test_a_missing_folder_is_named(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        kf.save(tmp_path / "nowhere" / "t", fitted)


def test_an_estimator_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="ConditionedTransform"):
        kf.save(tmp_path / "t", kf.ConditionedTransform())


@pytest.mark.parametrize("model", [np.eye(3), "model", None, kf.Conditioned()])
def test_only_transforms_are_saved(model, tmp_path):
    with pytest.raises(TypeError, match=r"model is of type .*: give a fitted estimator"):
        kf.save(tmp_path / "t", model)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.npz"):
        kf.load(tmp_path / "missing.npz")


@pytest.mark.parametrize("content", [b"", b"text", b"\x80\x04N.", b"PK\x03\x04", b"\x93NUMPY"])
def test_files_of_another_kind_are_refused(content, tmp_path):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"other is not a transform that kappaform saved.*not an npz"
    ):
        kf.load(tmp_path / "other")


def test_other_archives_are_refused(tmp_path):
    message = "is not a transform that kappaform saved"
    np.save(tmp_path / "array.npy", np.eye(3))
    np.savez(tmp_path / "foreign.npz", transform=np.eye(3))
    np.savez(tmp_path / "header.npz", header=np.array("[]"), transform=np.eye(3))
    np.savez(tmp_path / "json.npz", header=np.array("{"), transform=np.eye(3))
    np.savez(tmp_path / "format.npz", header=np.array('{"format": "picture"}'))
    np.savez(tmp_path / "pickle.npz", header=np.array([{}], dtype=object))
    with zipfile.ZipFile(tmp_path / "text.zip", "w") as archive:
        archive.writestr("header", "text")
    for path in tmp_path.iterdir():
        with pytest.raises(ValueError, match=message):
            kf.load(path)
    with pytest.raises(ValueError, match="it is an npz archive of other arrays, without a header"):
        kf.load(tmp_path / "foreign.npz")


def test_strange_archives_are_refused(saved):
    content = saved.read_bytes()
    name = content.index(b"header.npy")  # 30 bytes after the start of its local entry
    for position, value in {6: 0x21, 8: 0x55}.items():  # encrypted or patched, compressed somehow
        damaged = bytearray(content)
        for entry in (name - 30 + position, content.rindex(b"header.npy") - 46 + position + 2):
            damaged[entry] = value
        saved.write_bytes(damaged)
        with pytest.raises(ValueError, match="or it is damaged: "):
            kf.load(saved)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_refused(fraction, saved):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(ValueError, match=r"transform\.npz is not a transform .* end is missing"):
        kf.load(saved)


def test_flipped_bits_are_noticed(saved):
    content = saved.read_bytes()
    intact, reasons = kf.load(saved), []
    for position in range(0, len(content), 41):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        saved.write_bytes(damaged)
        try:
            loaded = kf.load(saved)
        except ValueError as error:
            reasons.append(str(error))
        else:  # a byte that nobody reads, such as a date
            np.testing.assert_array_equal(loaded.components_, intact.components_)
    assert len(reasons) > len(content) / 41 / 2
    assert all("damaged" in reason for reason in reasons)


def test_files_of_a_newer_format_ask_for_an_upgrade(saved):
    rewrite(saved, format_version=3, kappaform_version="9.1", novelty=[1, 2])
    with pytest.raises(ValueError, match=r"written by kappaform 9\.1, in format 3.*upgrade"):
        kf.load(saved)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_features": 9}, r"transform is float64 of shape \(16, 16\), not float64 of .*\(9, 9\)"),
        ({"n_features": True}, "n_features is True, not a number of features"),
        ({"n_nonzero_coefs": 17}, "n_nonzero_coefs=17 exceeds n_features=16"),
        ({"n_nonzero_coefs": 1.5}, "n_nonzero_coefs"),
        ({"condition_number": 1.5}, "has condition number .*, the header says 1.5"),
        ({"condition_number": 1e14}, "has condition number .*, the header says 1000"),
        ({"condition_number": float("nan")}, "condition_number is nan"),
        ({"patch_shape": [3, 3]}, r"patch_shape=\[3, 3\]"),
        ({"patch_mean": 1}, "patch_mean=1"),
        ({"stop_reason": "TIRED"}, "TIRED"),
        ({"dtype": "object"}, "object"),
        ({"method": {"name": "Magic"}}, "Magic"),
        ({"method": {"name": "Conditioned", "max_condition": 0.5}}, "max_condition=0.5"),
        ({"method": {"name": "Conditioned", "max_condition": 1.25}}, "beyond max_condition=1.25"),
        ({"method": {"name": "Conditioned", "colour": "red"}}, "colour"),
        ({"method": ...}, "it has no 'method'"),
        ({"n_iter": ...}, "it has no 'n_iter'"),
        ({"momentum_factor": -1.0}, "its momentum_factor is -1.0, not a number from 0 to 30"),
        ({"parameters": {"colour": "red"}}, "colour"),
    ],
)
def test_headers_that_contradict_the_transform_are_refused(changes, reason, saved):
    rewrite(saved, **changes)
    with pytest.raises(ValueError, match=rf"transform\.npz is .*damaged: .*{reason}"):
        kf.load(saved)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"transform": None}, "it has no 'transform'"),
        (
            {"transform": np.full((16, 16), np.nan)},
            "transform contains NaN or values beyond 1e\\+150",
        ),
        ({"transform": np.eye(16, dtype=np.float32)}, "transform is float32"),
        ({"transform": np.ones((16, 15))}, r"transform is float64 of shape \(16, 15\)"),
        ({"transform": np.eye(16)}, "not the product of left, spectrum and right"),
        ({"left": None}, "it has no 'left'"),
        ({"spectrum": np.ones(15)}, r"spectrum is float64 of shape \(15,\)"),
        ({"last_left": np.ones((16, 16))}, "the columns of last_left are not orthonormal"),
        ({"last_right": None}, "it has no 'last_right'"),
        ({"last_spectrum": np.zeros(16)}, "its last_spectrum has values that are not positive"),
        ({"last_spectrum": np.arange(1.0, 17)}, "of its last update, .*beyond max_condition=2"),
        ({"last_spectrum": np.full(16, 1e140)}, "of its last update, the transform has norm 4e"),
        ({"records": np.ones((3, 2))}, r"records is float64 of shape \(3, 2\)"),
        ({"records": np.ones((0, 6))}, "it has 0 records of 9 iterations"),
        ({"records": np.full((2, 6), "a")}, "records is <U1"),
    ],
)
def test_arrays_that_contradict_the_header_are_refused(arrays, reason, saved):
    rewrite(saved, arrays)
    with pytest.raises(ValueError, match=f"damaged: .*{reason}"):
        kf.load(saved)


def test_an_unfinished_estimator_can_be_saved(signals, tmp_path):
    with pytest.warns(ConvergenceWarning):
        estimator = kf.ConditionedTransform(3, max_iter=1).fit(signals)
    kf.save(tmp_path / "t", estimator)
    np.testing.assert_array_equal(kf.load(tmp_path / "t").components_, estimator.components_)


def test_a_completed_file_takes_its_name_only_at_the_end(tmp_path):
    path = tmp_path / "file"
    with replaced_when_complete(path) as file:
        file.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"


# --- what a file keeps of the way on -------------------------------------------------------------


@pytest.mark.parametrize("name", ["fitted", "batches", "published"])
def test_files_of_version_0_1_are_loaded_and_go_on(name, tmp_path):
    path = Path(__file__).parent / "files_of_0_1" / f"{name}.npz"
    signals = np.random.default_rng(0).standard_normal((60, 4)).cumsum(axis=1)
    loaded = kf.load(path)
    with np.load(path) as archive:
        header = json.loads(str(archive["header"]))
        np.testing.assert_array_equal(loaded.components_, archive["transform"])
        np.testing.assert_array_equal(loaded.result_.records, archive["records"])
    assert header["kappaform_version"] == "0.1.0"
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
def test_batches_go_on_with_the_method_of_the_file(variant, signals, tmp_path):
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
def test_a_published_variant_goes_on_from_before_its_first_update(
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


def test_what_could_not_be_loaded_is_not_saved(fitted, tmp_path):
    with pytest.raises(ValueError, match="max_iter=0: give a whole number"):
        kf.save(tmp_path / "t", fitted.set_params(max_iter=0))
    assert not list(tmp_path.iterdir())


# --- files that were made to harm ----------------------------------------------------------------

JUNK = [None, True, -1, 10**30, 1e60, float("nan"), float("inf"), "x", [], {"name": 1}]
SMALL = np.random.default_rng(0).standard_normal((40, 4)).cumsum(axis=1)
each_kind = pytest.mark.parametrize("kind", [kf.ConditionedTransform, kf.LogDetTransform])


def entries_of(path):
    with np.load(path) as archive:
        entries = dict(archive)
    return json.loads(str(entries.pop("header"))), entries


def write(path, header, arrays):
    with path.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


def is_refused(path):
    """Whether a file is refused at once, with its name; if not, what it gives can be used."""
    try:
        loaded = kf.load(path)
    except ValueError as error:
        told = str(error)
    else:
        loaded.coding = "largest"  # the other kind needs an inverse, which some have not
        assert loaded.transform(SMALL).shape == SMALL.shape
        assert np.isfinite(loaded.partial_fit(SMALL).components_).all()
        bound = getattr(loaded.result_.method, "max_condition", np.inf)
        assert loaded.condition_number_ <= bound * (1 + 1e-9)
        return False
    assert str(path) in told
    assert "damaged" in told or "upgrade" in told
    return True


def places_in(header, where=()):
    for name, value in header.items():
        yield where, name
        if isinstance(value, dict):
            yield from places_in(value, (*where, name))


@each_kind
@pytest.mark.filterwarnings("ignore:max_condition=1e:UserWarning")
def test_no_header_leads_to_another_error_than_that_the_file_is_damaged(kind, tmp_path):
    path = tmp_path / "transform.npz"
    kf.save(path, kind(2, init="dct").partial_fit(SMALL), patch_shape=(2, 2))
    header, arrays = entries_of(path)
    refused = []
    for where, name in places_in(header):
        for junk in JUNK:
            changed = deepcopy(header)
            inner = changed
            for each in where:
                inner = inner[each]
            inner[name] = junk
            write(path, changed, arrays)
            refused.append(is_refused(path))
    assert np.mean(refused) > 0.5


@each_kind
def test_no_array_leads_to_another_error_than_that_the_file_is_damaged(kind, tmp_path, rng):
    path = tmp_path / "transform.npz"
    kf.save(path, kind(2, init="dct").partial_fit(SMALL))
    header, arrays = entries_of(path)
    refused = []
    for name, array in arrays.items():
        others = [-array, 1e300 * array, 1e-300 * array, 2 * array, array.T, array[:1], array[0]]
        others += [np.full_like(array, value) for value in (0, 1, -1, np.nan, np.inf, 1e308)]
        others += [rng.standard_normal(array.shape), array.astype(">f8"), array.astype(complex)]
        for other in others:
            write(path, header, arrays | {name: other})
            refused.append(is_refused(path))
    assert np.mean(refused) > 0.5


def test_factors_that_are_no_decomposition_are_refused(signals, tmp_path, rng):
    result = kf.learn(signals, kf.Conditioned(2.0), n_nonzero_coefs=3, init="dct", max_iter=3)
    kf.save(tmp_path / "t.npz", result)
    mixing = rng.standard_normal((N_FEATURES, N_FEATURES))
    for arrays, reason in (
        ({"left": result.transform, "right": np.eye(16), "spectrum": np.ones(16)}, "left are not"),
        ({"right": result.transform.T, "left": np.eye(16), "spectrum": np.ones(16)}, "right are"),
        ({"left": mixing, "right": np.linalg.solve(mixing, result.transform).T}, "left are not"),
    ):
        rewrite(tmp_path / "t.npz", {"spectrum": np.ones(16)} | arrays)
        with pytest.raises(ValueError, match=f"the columns of {reason}"):
            kf.load(tmp_path / "t.npz")


@pytest.mark.parametrize("scale", [0.5, 2.0, 1e100])
def test_transforms_of_another_norm_than_the_method_keeps_are_refused(scale, signals, tmp_path):
    for method, told in ((kf.Conditioned(), "norm"), (kf.Orthonormal(), "not orthonormal")):
        result = kf.learn(signals, method, n_nonzero_coefs=3, init="dct", max_iter=3)
        kf.save(tmp_path / "t.npz", result)
        scaled = {"transform": scale * result.transform}
        if isinstance(method, kf.Conditioned):
            scaled["spectrum"] = scale * result.state.best.transform.spectrum
        rewrite(tmp_path / "t.npz", scaled)
        with pytest.raises(ValueError, match=told):
            kf.load(tmp_path / "t.npz")


def peak_of_refused_load(path):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"large\.npz is not a transform .*damaged"):
            kf.load(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_compressed_arrays_are_refused_before_they_are_unpacked(saved, tmp_path):
    header, arrays = entries_of(saved)
    path = tmp_path / "large.npz"
    arrays |= {"records": np.zeros((10**6, 6))}
    np.savez_compressed(path, header=np.array(json.dumps(header)), **arrays)
    assert path.stat().st_size < 10**5
    assert peak_of_refused_load(path) < 10**6


@pytest.mark.parametrize("n_features", [10**9, 2**62, 5000])
def test_sizes_that_a_file_only_claims_are_refused_before_memory_is_taken(
    n_features, saved, tmp_path
):
    header, _ = entries_of(saved)
    path = tmp_path / "large.npz"
    header["n_features"] = n_features
    square = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({n_features}, {n_features})}}"
    with zipfile.ZipFile(path, "w") as archive, archive.open("header.npy", "w") as file:
        np.save(file, np.array(json.dumps(header)))
    with zipfile.ZipFile(path, "a") as archive:
        text = square.encode().ljust(117) + b"\n"
        archive.writestr("transform.npy", b"\x93NUMPY\x01\x00\x76\x00" + text + bytes(100))
    assert peak_of_refused_load(path) < 10**6


def test_a_patch_of_very_many_sides_is_refused(saved):
    rewrite(saved, patch_shape=[2**40] * 10**5)
    with pytest.raises(ValueError, match="give the sides of a patch"):
        kf.load(saved)
