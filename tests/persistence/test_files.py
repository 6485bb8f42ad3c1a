"""What is saved comes back, and a file is written whole or not at all."""

import json
import stat
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from estimators.kinds import each_estimator
from sklearn.exceptions import NotFittedError

import kappaform as kf
from kappaform.files import replaced_when_complete

N_FEATURES = 16


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


def test_facts_about_the_signals_come_back(fitted, tmp_path):
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
def test_a_patch_shape_that_does_not_fit_is_rejected(shape, fitted, tmp_path):
    with pytest.raises(ValueError, match=r"patch_shape=.* product is the number of features, 16"):
        kf.save(tmp_path / "t", fitted, patch_shape=shape)
    assert not list(tmp_path.iterdir())


def test_an_unknown_word_for_the_mean_is_rejected(fitted, tmp_path):
    with pytest.raises(ValueError, match="patch_mean='gone' is unknown: choose one of"):
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
        ValueError,
        match=r"for each of 200 signals: give the one for new signals, save\(..., n_nonzero_",
    ):
        kf.save(tmp_path / "t", result)
    assert not list(tmp_path.iterdir())
    kf.save(tmp_path / "t", result, n_nonzero_coefs=2)
    loaded = kf.load(tmp_path / "t")
    assert loaded.n_nonzero_coefs == loaded.n_nonzero_coefs_ == 2
    again = kf.learn(signals, kf.Orthonormal(), n_nonzero_coefs=each, init=loaded.result_)
    assert again.loss[0] == pytest.approx(result.loss[-1], rel=1e-12)


def test_an_impossible_sparsity_is_rejected(fitted, tmp_path):
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


def test_saving_through_a_link_replaces_what_it_leads_to(saved, signals, tmp_path):
    (tmp_path / "folder").mkdir()
    target = saved.rename(tmp_path / "folder" / "target")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    kf.save(link, kf.OrthonormalTransform(3, tol=1e-2).fit(signals))
    assert link.is_symlink()
    assert not target.is_symlink()
    assert isinstance(kf.load(target), kf.OrthonormalTransform)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(tmp_path.rglob("*")) == sorted([target.parent, target, link])


def test_swapped_arguments_are_reported(fitted, tmp_path):
    for model in (fitted, fitted.result_):
        with pytest.raises(TypeError, match=r"path is a .*model a str: .*save\(path, model\)"):
            kf.save(model, str(tmp_path / "t"))


@pytest.mark.parametrize("changed", [{"max_condition": 3.0}, {"n_rounds": 4}])
def test_parameters_that_have_not_learned_the_transform_are_not_saved(changed, fitted, tmp_path):
    (name,) = changed
    with pytest.raises(ValueError, match=rf"{name}=.*: .*learned with {name}=.*; set it back"):
        kf.save(tmp_path / "t", fitted.set_params(**changed))
    assert not list(tmp_path.iterdir())


def test_a_method_that_has_not_learned_the_transform_is_not_saved(signals, tmp_path):
    estimator = kf.LearnedTransform(3, method=kf.LogDet(), tol=1e-2).fit(signals)
    with pytest.raises(ValueError, match=r"method=Orthonormal\(\): .*learned by LogDet\("):
        kf.save(tmp_path / "t", estimator.set_params(method=kf.Orthonormal()))
    assert not list(tmp_path.iterdir())


@dataclass(frozen=True)
class Still(kf.Method):
    """A custom method, of which a file has the name only."""

    parameter: float = 3.0

    def update(self, statistics, transform):  # noqa: ARG002
        return transform


class Other(Still):
    pass


def test_another_custom_method_than_that_which_learned_is_not_saved(signals, tmp_path):
    estimator = kf.LearnedTransform(3, method=Still(3.0), tol=1e-2).fit(signals)
    message = r"method=Still\(parameter=9.0\): .*learned by Still\(parameter=3.0\); set it back"
    with pytest.raises(ValueError, match=message):
        kf.save(tmp_path / "t", estimator.set_params(method=Still(9.0)))
    assert not list(tmp_path.iterdir())
    kf.save(tmp_path / "t", estimator.set_params(method=Still(3.0)))


def test_a_loaded_estimator_can_be_saved_with_its_custom_method_given_again(signals, tmp_path):
    fitted = kf.LearnedTransform(3, method=Still(), tol=1e-2).fit(signals)
    kf.save(tmp_path / "t", fitted)
    loaded = kf.load(tmp_path / "t")
    kf.save(tmp_path / "same", loaded)
    for other in (Other(), kf.Orthonormal()):
        with pytest.raises(ValueError, match=r"the transform was learned by UnknownMethod\("):
            kf.save(tmp_path / "again", loaded.set_params(method=other))
    kf.save(tmp_path / "again", loaded.set_params(method=Still()))
    again = kf.load(tmp_path / "again")
    np.testing.assert_array_equal(again.components_, fitted.components_)
    again.set_params(method=Still()).partial_fit(signals)


def test_a_noise_file_is_recognised_however_its_json_is_written(tmp_path):
    path = tmp_path / "camera.json"
    kf.save_noise(path, kf.Shot(2.0, 3.0))
    document = json.loads(path.read_text())
    for text in (path.read_text(), json.dumps(document, separators=(",", ":")), f"\n{document}"):
        path.write_text(text.replace("'", '"').replace("None", "null"))
        with pytest.raises(ValueError, match=r"camera\.json is a noise file: use load_noise\."):
            kf.load(path)


@pytest.mark.parametrize(
    "text", ['{"format": "kappaform noise"', '{"format": "geojson"}', '{"a":' * 100_000, "{}", "{"]
)
def test_other_json_is_no_transform(text, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a\.json is not a transform that kappaform saved"):
        kf.load(path)


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


def test_a_completed_file_takes_its_name_only_at_the_end(tmp_path):
    path = tmp_path / "file"
    with replaced_when_complete(path) as file:
        file.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"


def test_what_could_not_be_loaded_is_not_saved(fitted, tmp_path):
    with pytest.raises(ValueError, match="max_iter=0: give a whole number"):
        kf.save(tmp_path / "t", fitted.set_params(max_iter=0))
    assert not list(tmp_path.iterdir())


def test_a_name_with_a_slash_at_its_end_is_that_of_no_file(fitted, tmp_path):
    for save, model in ((kf.save, fitted), (kf.save_noise, kf.White(2.0))):
        with pytest.raises(ValueError, match="new/ ends with a slash, which names a folder: give"):
            save(f"{tmp_path}/new/", model)
    assert not list(tmp_path.iterdir())
