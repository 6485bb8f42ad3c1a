"""The condition path and the errors that it tabulates."""

from importlib import import_module
from itertools import pairwise

import naive
import numpy as np
import pytest
from sklearn.decomposition import PCA

import kappaform as kf
from kappaform.learning.path import ConditionPath, checked_error, mean_path

BOUNDS = (1.0, 2.0, 5.0, 20.0)


@pytest.fixture(scope="module")
def path(photo_patches):
    train, validation = photo_patches[::2], photo_patches[1::2]
    return kf.condition_path(train, BOUNDS, n_nonzero_coefs=6, validation=validation, max_iter=40)


def test_error_never_rises_along_the_path(path):
    assert np.all(np.diff(path["absolute"]) <= 0)


def walks(rng):
    """Signals of which a few directions have nearly all energy: strong starts win."""
    return rng.standard_normal((300, 16)).cumsum(axis=1)


def combinations(rng):
    """Signals of which all directions have energy: strong starts lose."""
    codes = rng.standard_normal((400, 25)) * (rng.random((400, 25)) < 0.1)
    return codes @ rng.standard_normal((25, 25))


@pytest.mark.parametrize(("make", "n_nonzero"), [(walks, 5), (combinations, 2)])
def test_a_path_leaves_out_no_start_that_would_win(make, n_nonzero, rng):
    signals, options = make(rng), {"n_nonzero_coefs": n_nonzero, "tol": 1e-2}
    path = kf.condition_path(signals, (1.0, 4.0, 8.0), **options)
    for before, found in pairwise(path.results):
        every = kf.learn(signals, found.method, init=(before, "auto"), **options)
        assert found.loss[-1] <= 1.02 * every.loss[-1]
        assert found.n_iter < every.n_iter


def test_path_keeps_each_bound(path):
    assert tuple(path["max_condition"]) == BOUNDS
    assert np.all(path["condition_number"] <= np.array(BOUNDS) * (1 + 1e-9))


CODES = {
    "refit": naive.rebuilding_codes,
    "largest": lambda signals, transform, s: naive.hard_threshold(signals @ transform.T, s),
}


@pytest.mark.parametrize("given", [{}, {"coding": "refit"}, {"coding": "largest"}], ids=str)
def test_table_holds_the_errors_of_the_definition(given, photo_patches):
    train, validation = photo_patches[:600:4], photo_patches[1:400:4]
    options = {"n_nonzero_coefs": 6, "max_iter": 5} | given
    path = kf.condition_path(train, [1.0, 3.0], validation=validation, **options)
    for prefix, signals in (("", train), ("validation_", validation)):
        for i, result in enumerate(path.results):
            coefs = signals @ result.transform.T
            codes = naive.hard_threshold(coefs, 6)
            rebuilding = CODES[given.get("coding", "refit")](signals, result.transform, 6)
            restored = rebuilding @ np.linalg.inv(result.transform).T
            absolute = np.linalg.norm(codes - coefs)
            assert path[prefix + "absolute"][i] == pytest.approx(absolute, rel=1e-9)
            of_signals = absolute / np.linalg.norm(signals)
            assert path[prefix + "sparsification"][i] == pytest.approx(of_signals, rel=1e-9)
            relative = absolute / np.linalg.norm(coefs)
            assert path[prefix + "relative"][i] == pytest.approx(relative, rel=1e-9)
            lost = np.linalg.norm(signals - restored) / np.linalg.norm(signals)
            assert path[prefix + "reconstruction"][i] == pytest.approx(lost, rel=1e-9)


def test_path_and_estimators_agree_which_bound_reconstructs_best(photo_patches, tmp_path):
    train, validation = photo_patches[::8], photo_patches[1::8]
    bounds, options = [1.0, 1.5, 4.0], {"n_nonzero_coefs": 6, "tol": 1e-2}
    path = kf.condition_path(train, bounds, validation=validation, **options)
    scores = []
    for result in path.results:
        kf.save(tmp_path / "t.npz", result)
        scores.append(kf.load(tmp_path / "t.npz").score(validation))
    np.testing.assert_allclose(path["validation_reconstruction"], np.negative(scores), rtol=1e-12)
    assert path.chosen == bounds[np.argmax(scores)]


def test_the_mean_over_folds_chooses_by_the_column_that_it_shows():
    # The mean of absolute errors is that of the fold with the largest signals.
    norms, errors = np.array([1.0, 100.0]), np.array([[0.5, 0.1], [0.2, 0.3]])
    paths = []
    for norm, of_fold in zip(norms, errors, strict=True):
        table = {"max_condition": np.array([1.0, 2.0]), "validation_sparsification": of_fold}
        table["validation_absolute"] = norm * of_fold
        paths.append(ConditionPath(table, (), checked_error("sparsification")))
    mean = mean_path(paths)
    assert np.argmin(mean["validation_absolute"]) == 0
    assert np.argmin(mean["validation_sparsification"]) == 1
    assert mean.chosen == 2.0


def test_the_former_name_of_an_error_warns_where_it_is_given(photo_patches):
    signals = photo_patches[::16]
    options = {"n_nonzero_coefs": 6, "max_iter": 3, "validation": signals}
    with pytest.warns(DeprecationWarning, match="choose_by='absolute' is now called") as caught:
        path = kf.condition_path(signals, [1.0, 3.0], choose_by="absolute", **options)
    assert [each.filename for each in caught] == [__file__]
    assert path.choose_by == "sparsification"


def test_validation_is_optional(photo_patches):
    path = kf.condition_path(photo_patches[::8], [1.0, 3.0], max_iter=5)
    assert path["max_condition"].tolist() == [1.0, 3.0]
    assert "validation_absolute" not in path.table
    frame = pytest.importorskip("pandas").DataFrame(path.table)
    assert list(frame["n_iter"]) == [result.n_iter for result in path.results]
    shown = [name for name in path.table if name != "absolute"]
    assert str(path).splitlines()[0].split() == shown


def test_printed_errors_do_not_depend_on_the_number_of_signals(photo_patches):
    signals = photo_patches[::8]
    twice = np.concatenate([signals, signals])
    options = {"n_nonzero_coefs": 6, "max_iter": 5}
    path = kf.condition_path(signals, [1.0, 3.0], validation=twice, **options)
    header, *rows = map(str.split, str(path).splitlines())
    names = [name for name in header if f"validation_{name}" in header]
    assert names == ["sparsification", "relative", "reconstruction"]
    for row in rows:
        for name in names:
            printed = [row[header.index(prefix + name)] for prefix in ("", "validation_")]
            assert printed[0] == printed[1], name


@pytest.mark.parametrize("factor", [0.0, 1e-200, 1e200])
def test_the_sparsification_error_does_not_depend_on_the_unit(photo_patches, factor):
    signals = photo_patches[::16]
    options = {"n_nonzero_coefs": 6, "max_iter": 3}
    expected = kf.condition_path(signals, [1.0, 3.0], **options)["sparsification"]
    found = kf.condition_path(signals * factor, [1.0, 3.0], **options)["sparsification"]
    np.testing.assert_allclose(found, expected if factor else 0, rtol=1e-6)


def test_callback_ends_the_path_with_the_bound_it_is_at(photo_patches):
    path = kf.condition_path(
        photo_patches[::8],
        BOUNDS,
        max_iter=5,
        callback=lambda state: state.method.max_condition > 1,
    )
    assert path["max_condition"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("at", [(2.0, 3), (5.0, 1)])
def test_an_interrupted_path_carries_the_bounds_that_are_done(photo_patches, at):
    def interrupt(state):
        if (state.method.max_condition, state.n_iter) == at:
            raise KeyboardInterrupt

    signals = photo_patches[::8]
    options = {"n_nonzero_coefs": 6, "max_iter": 5}
    with pytest.raises(kf.LearningInterrupted) as caught:
        kf.condition_path(signals, BOUNDS, callback=interrupt, **options)
    whole = kf.condition_path(signals, BOUNDS, **options).results
    result, finished = caught.value.result, caught.value.finished
    assert (result.method.max_condition, result.n_iter) == at
    assert len(finished) == BOUNDS.index(at[0])
    for one, other in zip(finished, whole, strict=False):
        np.testing.assert_array_equal(one.transform, other.transform)
    resumed = kf.learn(
        signals, result.method, n_nonzero_coefs=6, init=result, max_iter=5 - result.n_iter
    )
    np.testing.assert_array_equal(resumed.transform, whole[len(finished)].transform)


def test_a_path_interrupted_between_two_bounds_carries_those_before(photo_patches, monkeypatch):
    def evaluate(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("kappaform.learning.path"), "energies_on", evaluate)
    with pytest.raises(kf.LearningInterrupted) as caught:
        kf.condition_path(photo_patches[::8], BOUNDS, max_iter=2)
    assert [result.method.max_condition for result in caught.value.finished] == [BOUNDS[0]]
    assert caught.value.result is caught.value.finished[-1]


def test_an_unknown_column_is_answered_with_the_known_ones(path):
    with pytest.raises(
        KeyError, match=r"'error' is not a column.*'max_condition', .*'reconstruction'"
    ):
        path["error"]


@pytest.mark.parametrize("method", [kf.LogDet(), kf.Orthonormal(), kf.Conditioned, "paper"])
def test_only_a_method_with_a_bound_has_a_path(photo_patches, method):
    with pytest.raises(TypeError, match=r"method=.*: give Conditioned\(...\)"):
        kf.condition_path(photo_patches, [2.0], method=method)


@pytest.mark.parametrize("bounds", [["a"], "2", None, [1.0, None], [2j]])
def test_bounds_that_are_no_numbers_are_rejected(photo_patches, bounds):
    with pytest.raises(
        TypeError, match=r"max_conditions(='2' is a string| has dtype .* real numbers)"
    ):
        kf.condition_path(photo_patches, bounds)


def test_nan_in_the_validation_is_found_before_anything_is_learned(photo_patches):
    validation = photo_patches[:50].copy()
    validation[7, 3] = np.inf

    def fail(result):
        raise AssertionError(f"learned {result.n_iter} iterations")

    with pytest.raises(ValueError, match="validation contains NaN or inf, first in row 7"):
        kf.condition_path(photo_patches, [2.0], validation=validation, callback=fail)
    chooser = kf.ConditionedTransformCV(max_conditions=[2.0], callback=fail)
    with pytest.raises(ValueError, match="validation contains NaN or inf, first in row 7"):
        chooser.fit(photo_patches, validation=validation)


def test_bad_arguments_are_named(photo_patches):
    with pytest.raises(TypeError, match="callback=5: give a function of a LearnResult, or None"):
        kf.condition_path(photo_patches, [2.0], callback=5)
    with pytest.raises(ValueError, match=r"validation has shape \(64,\).*validation\.reshape"):
        kf.condition_path(photo_patches, [2.0], validation=np.ones(64))
    validation = [[0.0] * 64, [np.nan] * 64]
    with pytest.raises(ValueError, match="validation contains NaN or inf, first in row 1"):
        kf.condition_path(photo_patches, [2.0], validation=validation, max_iter=2)
    with pytest.raises(ValueError, match="max_conditions is empty"):
        kf.condition_path(photo_patches, [])
    with pytest.raises(ValueError, match=r"^max_conditions has 0\.5: .*the bound must be"):
        kf.condition_path(photo_patches, [0.5, 2.0])
    with pytest.raises(ValueError, match="validation has 5 features"):
        kf.condition_path(photo_patches, [2.0], validation=np.ones((3, 5)))
    with pytest.raises(
        TypeError, match="n_nonzero_coefs has 4096 entries: a path needs one integer"
    ):
        kf.condition_path(photo_patches, [2.0], n_nonzero_coefs=np.full(len(photo_patches), 3))


@pytest.mark.parametrize(
    "transform",
    [
        np.zeros((64, 64)),
        np.ones((64, 64)),
        np.diag([*[1.0] * 63, 0.0]),
        np.diag([1e17, *[1] * 63]),
    ],
    ids=["zero", "rank 1", "rank 63", "all but singular"],
)
def test_a_singular_transform_has_no_reconstruction_error(photo_patches, transform):
    with pytest.raises(ValueError, match=r"transform is singular .* cannot be reconstructed"):
        kf.evaluate(photo_patches[::8], transform, 6)


@pytest.mark.filterwarnings("ignore:max_condition=1e:UserWarning")
def test_the_loosest_bounds_can_be_evaluated(photo_patches):
    path = kf.condition_path(photo_patches[::8], [1e12, 1e16, 1e30], max_iter=15)
    assert np.isfinite(path["reconstruction"]).all()


@pytest.mark.parametrize("transform", [kf.OrthonormalTransform(), PCA()])
def test_an_estimator_without_a_transform_is_rejected(photo_patches, transform):
    with pytest.raises(ValueError, match=r"transform is a \w+ that has learned no transform: give"):
        kf.evaluate(photo_patches, transform)
    with pytest.raises(ValueError, match=r"init is a \w+ that has learned no transform: give"):
        kf.learn(photo_patches, init=transform)


@pytest.mark.parametrize("unit", [1.0, 2.0**500, 2.0**-500])
def test_evaluate_is_exact_at_any_scale(photo_patches, unit):
    signals, transform = photo_patches[::8], kf.dct_basis((8, 8))
    plain, scaled = (kf.evaluate(s, transform, 6) for s in (signals, signals * unit))
    assert scaled == (plain.absolute * unit, plain.relative, plain.reconstruction)
    # An orthonormal transform loses in the signals what it loses in the coefficients.
    assert plain.reconstruction == pytest.approx(plain.relative, rel=1e-12)


def test_of_bounds_that_differ_by_rounding_the_tightest_is_chosen():
    errors = 0.5 * (1 + 1e-9 * np.array([9.0, 1.0, 2.0, 0.0]))
    table = {"max_condition": np.array([1.0, 2, 4, 8]), "validation_reconstruction": errors}
    assert ConditionPath(table, ()).chosen == 1
    table["validation_reconstruction"] = errors + np.array([0.1, 0.001, 0, 0])
    assert ConditionPath(table, ()).chosen == 4
