"""A custom method is learned wherever ours are, and its mistakes are named."""

import pickle
from dataclasses import dataclass, field

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import kappaform as kf
from kappaform.engines import engine_for
from kappaform.learning.race import Momentum
from kappaform.linalg import dct_basis, polar

N_FEATURES = 12


@dataclass(frozen=True)
class Procrustes(kf.Method):
    """The orthonormal method, as a user would write it."""

    monotone = True

    def update(self, statistics, transform):
        return polar(statistics.cross, near=transform)

    def admissible(self, transform):
        return polar(transform)


@dataclass(frozen=True)
class Stretched(kf.Method):
    """An orthonormal transform with one row that is longer, by a bound."""

    max_condition: float = 2.0

    def update(self, statistics, transform):
        rows = polar(statistics.cross, near=transform / np.linalg.norm(transform, axis=1)[:, None])
        return rows * np.append(self.max_condition, np.ones(len(rows) - 1))[:, None]


@dataclass(frozen=True)
class Failing(kf.Method):
    """Good for some updates, and then not."""

    fail: object = field(compare=False)
    n_good: int = 3
    max_condition: float = 1e6
    n_done: list = field(default_factory=list, compare=False)

    def update(self, statistics, transform):
        self.n_done.append(1)
        if len(self.n_done) > self.n_good:
            return self.fail(transform)
        return polar(statistics.cross, near=transform)


def raising(_):
    raise ZeroDivisionError("by hand")


def modifying(transform):
    transform[0] = 0


FAILURES = {
    "shape": (lambda w: w[:-1], r"Failing.update gave shape \(11, 12\): a transform here has"),
    "vector": (lambda w: w[0], r"gave shape \(12,\)"),
    "nothing": (lambda _: None, "gave NoneType: give an array of real numbers"),
    "words": (lambda _: "transform", "gave str: give an array of real numbers"),
    "complex": (lambda w: 1j * w, "gave complex128: give an array of real numbers"),
    "nan": (lambda w: np.where(np.eye(len(w)), np.nan, w), "gave NaN or inf"),
    "inf": (lambda w: w * np.inf, "gave NaN or inf"),
    "singular": (lambda w: np.vstack([w[1:], w[-1:]]), "gave a singular transform"),
    "zero": (lambda w: 0 * w, "gave a singular transform"),
    "tiny": (lambda w: 1e-200 * w, "singular values up to 1e-200: scale it, so that the largest"),
    "huge": (lambda w: 1e200 * w, "singular values up to 1e.200: scale it, so that the largest"),
    "condition": (
        lambda w: w * np.geomspace(1, 1e7, len(w))[:, None],
        "broke its bound: the transform has condition number .*beyond max_condition=",
    ),
    "raises": (raising, "Failing.update raised ZeroDivisionError: by hand"),
    "modifies": (modifying, "Failing.update raised ValueError: .*read-only"),
}
each_failure = pytest.mark.parametrize(("fail", "message"), FAILURES.values(), ids=FAILURES)


@pytest.fixture
def signals(rng):
    return rng.standard_normal((300, N_FEATURES)).cumsum(axis=1)


def test_the_orthonormal_method_is_the_same_as_a_custom_one(signals):
    own = kf.learn(signals, Procrustes(), n_nonzero_coefs=3)
    ours = kf.learn(signals, kf.Orthonormal(), n_nonzero_coefs=3)
    np.testing.assert_allclose(own.transform, ours.transform, atol=1e-9)
    np.testing.assert_allclose(own.loss, ours.loss, rtol=1e-9)
    assert own.converged
    batches = np.array_split(signals, 6)
    streams = [
        kf.learn_stream(batches, each, n_nonzero_coefs=3) for each in (Procrustes(), own.method)
    ]
    expected = kf.learn_stream(batches, kf.Orthonormal(), n_nonzero_coefs=3)
    for stream in streams:
        np.testing.assert_allclose(stream.transform, expected.transform, atol=1e-9)


def test_momentum_of_a_custom_method_saves_passes(signals):
    @dataclass(frozen=True)
    class Faster(Procrustes):
        momentum = True

    plain, faster = (
        kf.learn(signals, method, n_nonzero_coefs=6, tol=1e-6)
        for method in (Procrustes(), Faster())
    )
    assert faster.n_iter < 0.7 * plain.n_iter  # measured: 48 and 115
    assert faster.loss[-1] <= plain.loss[-1]
    assert all(np.diff(faster.loss) <= 1e-9 * faster.loss[0])
    np.testing.assert_allclose(faster.transform @ faster.transform.T, np.eye(N_FEATURES), atol=1e-9)


@dataclass(frozen=True)
class Bounded(kf.Method):
    """The conditioned method without an `admissible` that keeps the bound."""

    max_condition: float = 1.5
    momentum: bool = False
    monotone = True

    def update(self, statistics, transform):
        return kf.Conditioned(self.max_condition).update(statistics, transform)


def test_momentum_that_would_break_the_bound_is_not_used(signals):
    result = kf.learn(signals, Bounded(momentum=True), n_nonzero_coefs=6)
    assert result.converged
    assert result.condition_number <= 1.5 * (1 + 1e-9)
    assert (np.diff(result.loss) <= 1e-9 * result.loss[0]).all()


def test_momentum_never_used_changes_nothing_but_the_factor(signals):
    class Still(Bounded):
        def admissible(self, transform):
            return 0 * transform if len(self.seen) else self.seen.append(1) or transform

    still = Still(momentum=True)
    object.__setattr__(still, "seen", [])
    plain = kf.learn(signals, Bounded(), n_nonzero_coefs=3, max_iter=8, tol=0)
    found = kf.learn(signals, still, n_nonzero_coefs=3, max_iter=8, tol=0)
    np.testing.assert_array_equal(found.transform, plain.transform)
    assert found.state.candidate.momentum.factor < 0.5 * Momentum().factor


OURS = {
    "orthonormal": kf.Orthonormal(),
    "log-det": kf.LogDet(0.01),
    "monotone": kf.Conditioned(3.0),
    "relative": kf.Conditioned(3.0, objective="relative", norm=2.0),
    "paper": kf.Conditioned(3.0, variant="paper"),
    "public": kf.Conditioned(3.0, variant="public"),
}


@pytest.mark.parametrize("method", OURS.values(), ids=OURS)
def test_the_hooks_of_our_methods_do_what_learning_does(method, signals):
    basis = kf.dct_basis(N_FEATURES)
    start = method.admissible(np.diag(np.geomspace(1, 1e3, N_FEATURES)))
    np.testing.assert_allclose(method.admissible(start), start, atol=1e-12)
    if isinstance(method, kf.Conditioned):
        assert np.linalg.cond(start) == pytest.approx(3.0, rel=1e-9)
        assert np.linalg.norm(start) == pytest.approx(2.0 if method.norm == 2 else 12**0.5)
    before = kf.learn(signals, method, n_nonzero_coefs=3, init=basis, max_iter=1)
    statistics = engine_for(signals).run_pass(method.admissible(basis), 3)
    found = method.update(statistics, basis)
    np.testing.assert_allclose(found, before.transform, atol=1e-9)
    with pytest.raises(ValueError, match=r"transform has shape \(2, 2\)"):
        method.update(statistics, np.eye(2))


def test_starts_race_with_a_custom_method(signals, rng):
    starts = ("dct", "identity", rng.standard_normal((N_FEATURES, N_FEATURES)))
    raced = kf.learn(signals, Procrustes(), n_nonzero_coefs=3, init=starts)
    alone = [
        kf.learn(signals, Procrustes(), n_nonzero_coefs=3, init=start).loss[-1] for start in starts
    ]
    assert raced.loss[-1] <= max(alone)
    assert (np.diff(raced.loss) <= 1e-9).all()


def test_resuming_is_bitwise_the_same(signals):
    half = kf.learn(signals, Procrustes(), n_nonzero_coefs=3, max_iter=3, tol=0)
    resumed = kf.learn(signals, Procrustes(), n_nonzero_coefs=3, max_iter=3, tol=0, init=half)
    whole = kf.learn(signals, Procrustes(), n_nonzero_coefs=3, max_iter=6, tol=0)
    np.testing.assert_array_equal(resumed.transform, whole.transform)


@dataclass(frozen=True)
class Weighted(Procrustes):
    weights: np.ndarray = field(default_factory=lambda: np.arange(3.0))


def test_methods_with_equal_arrays_resume_from_each_other(signals):
    options = {"n_nonzero_coefs": 3, "tol": 0}
    half = kf.learn(signals, Weighted(), max_iter=3, **options)
    resumed = kf.learn(signals, Weighted(), max_iter=3, init=half, **options)
    whole = kf.learn(signals, Weighted(), max_iter=6, **options)
    np.testing.assert_array_equal(resumed.transform, whole.transform)
    assert resumed.n_iter == 6
    for other in (np.arange(3.0) + 1, np.arange(4.0), None):
        assert kf.learn(signals, Weighted(other), max_iter=3, init=half, **options).n_iter == 3


def test_methods_that_cannot_be_compared_count_as_different(signals):
    options = {"n_nonzero_coefs": 3, "tol": 0, "max_iter": 3}
    one, other = (Weighted({"q": np.arange(3.0)}) for _ in range(2))
    half = kf.learn(signals, one, **options)
    assert kf.learn(signals, one, init=half, **options).n_iter == 6
    assert kf.learn(signals, other, init=half, **options).n_iter == 3


@dataclass(frozen=True)
class Derived(Stretched):
    """A field that follows from another, and perhaps no bound."""

    twice: float = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "twice", 2 * (self.max_condition or 1))

    def update(self, statistics, transform):
        return polar(statistics.cross, near=transform)


def test_a_path_leaves_fields_that_follow_from_others_to_the_method(signals):
    path = kf.condition_path(signals, [1.0, 2.0], method=Derived(), max_iter=2)
    assert [result.method.twice for result in path.results] == [2.0, 4.0]


def test_no_bound_is_none(signals):
    free, bounded = (
        kf.learn(signals, Derived(bound), n_nonzero_coefs=3, max_iter=3) for bound in (None, 2.0)
    )
    np.testing.assert_array_equal(free.transform, bounded.transform)


@pytest.mark.parametrize("bound", ["2", 0.5, np.nan, True])
def test_what_is_no_bound_is_rejected_at_the_door(bound, signals):
    with pytest.raises(ValueError, match=r"its max_condition=.* must be a number >= 1, or None"):
        kf.learn(signals, Stretched(bound))


def test_other_engines_serve_it(signals):
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(signals, chunks=(100, -1))
    found = kf.learn(lazy, Procrustes(), n_nonzero_coefs=3)
    expected = kf.learn(signals, Procrustes(), n_nonzero_coefs=3)
    np.testing.assert_allclose(found.transform, expected.transform, atol=1e-9)


@dataclass(frozen=True)
class Counting(Procrustes):
    """With a parameter that a union has, too."""

    n_transforms: int = 3


def test_parameters_of_a_custom_method_have_any_name(signals):
    for init in (np.eye(N_FEATURES), "identity"):
        found = kf.learn(signals, Counting(), init=init, max_iter=3)
        expected = kf.learn(signals, Procrustes(), init=init, max_iter=3)
        np.testing.assert_array_equal(found.transform, expected.transform)


def test_a_path_varies_the_bound_of_a_custom_method(signals):
    path = kf.condition_path(signals, [1.0, 2.0, 4.0], method=Stretched(), max_iter=10)
    np.testing.assert_allclose(path["condition_number"], [1, 2, 4])
    assert [type(result.method) for result in path.results] == [Stretched] * 3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([kf.LearnedTransform(1, method=Procrustes(), max_iter=3)])
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)


def test_the_estimator_of_any_method_is_that_of_its_method(signals):
    own = kf.LearnedTransform(3, method=kf.Conditioned(3.0), tol=1e-2).fit(signals)
    ours = kf.ConditionedTransform(3, max_condition=3.0, tol=1e-2).fit(signals)
    np.testing.assert_array_equal(own.transform(signals), ours.transform(signals))
    np.testing.assert_array_equal(
        own.partial_fit(signals).components_, ours.partial_fit(signals).components_
    )
    assert clone(own).method == kf.Conditioned(3.0)
    with pytest.raises(TypeError, match=r"method='dct': give Conditioned.*derived from"):
        kf.LearnedTransform(method="dct").fit(signals)


def test_files_keep_the_matrix_and_the_name_of_the_method(signals, tmp_path):
    path = tmp_path / "own.npz"
    estimator = kf.LearnedTransform(3, method=Stretched(3.0), tol=1e-2).fit(signals)
    for model in (estimator, estimator.result_):
        kf.save(path, model)
        loaded = kf.load(path)
        np.testing.assert_array_equal(loaded.transform(signals), estimator.transform(signals))
        assert "Stretched(max_condition=3.0)" in str(loaded.result_.method)
        codes = loaded.transform(signals)
        for learning in (loaded.fit, loaded.partial_fit):
            with pytest.raises(kf.MethodFailed, match=r"not the method that learned it, Stretched"):
                learning(signals)
        np.testing.assert_array_equal(loaded.transform(signals), codes)
        again = loaded.set_params(method=Stretched(3.0)).partial_fit(signals)
        assert again.condition_number_ == pytest.approx(3.0)
    kf.save(path, kf.LearnedTransform(3, method=kf.LogDet(0.1), tol=1e-2).fit(signals))
    assert type(kf.load(path)) is kf.LogDetTransform
    assert kf.load(path).weight == 0.1


@each_failure
def test_a_failing_method_is_named_and_what_was_learned_is_kept(fail, message, signals):
    with pytest.raises(kf.MethodFailed, match=message) as caught:
        kf.learn(signals, Failing(fail), n_nonzero_coefs=3, tol=0)
    result = caught.value.result
    assert result.n_iter == 3
    expected = kf.learn(signals, Procrustes(), n_nonzero_coefs=3, tol=0, max_iter=3)
    np.testing.assert_allclose(result.transform, expected.transform, atol=1e-9)
    copied = pickle.loads(pickle.dumps(caught.value.with_traceback(None).args))
    assert copied == caught.value.args


@each_failure
def test_a_failing_method_leaves_streams_paths_and_estimators_with_what_they_had(
    fail, message, signals
):
    with pytest.raises(kf.MethodFailed, match=message) as caught:
        kf.learn_stream(np.array_split(signals, 5), Failing(fail, 7), n_nonzero_coefs=3)
    assert caught.value.result.n_iter >= 1
    method = Failing(fail, 2)
    with pytest.raises(kf.MethodFailed, match=message) as caught:
        kf.condition_path(signals, [1e6, 2e6], method=method, max_iter=2, n_nonzero_coefs=3)
    assert len(caught.value.finished) == 1
    estimator = kf.LearnedTransform(3, method=Failing(fail), tol=0)
    with pytest.raises(kf.MethodFailed, match=message):
        estimator.fit(signals)
    assert estimator.n_iter_ == 3
    before = estimator.components_
    with pytest.raises(kf.MethodFailed, match=message):
        estimator.partial_fit(signals)
    assert estimator.components_ is before


@dataclass(frozen=True)
class Measured(Procrustes):
    value: object = None

    def loss(self, statistics, transform):
        return self.value if statistics.n_signals else super().loss(statistics, transform)


@pytest.mark.parametrize("value", [np.nan, "small", None, 1j])
def test_a_loss_must_be_a_number(value, signals):
    with pytest.raises(kf.MethodFailed, match=r"Measured.loss gave .*: give a number"):
        kf.learn(signals, Measured(value))


@pytest.mark.parametrize("which", ["gram", "cross", "transform"])
def test_a_loss_cannot_change_what_it_is_given(which, signals):
    class Overwriting(Procrustes):
        def loss(self, statistics, transform):
            (transform if which == "transform" else getattr(statistics, which))[0] = 0
            return 1.0

    with pytest.raises(kf.MethodFailed, match=r"Overwriting.loss raised ValueError: .*read-only"):
        kf.learn(signals, Overwriting(), n_nonzero_coefs=3)


class Falling(Procrustes):
    """Its loss rises from the third update on."""

    def __init__(self):
        object.__setattr__(self, "losses", iter([5.0, 4.0, 3.0, 3.5, 9.0]))

    def loss(self, _statistics, _transform):
        return next(self.losses)


def test_a_monotone_method_stops_where_its_loss_rises(signals):
    result = kf.learn(signals, Falling(), n_nonzero_coefs=3, tol=0)
    assert result.loss.tolist() == [5.0, 4.0, 3.0]
    assert result.stop_reason.name == "ROSE"
    assert not result.converged


@pytest.mark.parametrize(("largest", "reason"), [(1.0, "ROSE"), (1e4, "ROUNDING")])
def test_rounding_explains_a_rise_where_coefficients_cancel(largest, reason, signals):
    class Rising(kf.Method):
        monotone = True

        def update(self, _statistics, transform):
            return transform

        def loss(self, _statistics, _transform):
            return next(losses)

    losses = iter([5e6, 4e6, 4e6 * (1 + 1e-4)])  # larger than the coefficients: their scale
    centred = (signals - signals.mean(axis=1, keepdims=True)).astype(np.float32)
    stretched = np.diag([largest, *np.ones(N_FEATURES - 1)]) @ dct_basis(N_FEATURES)
    result = kf.learn(centred, Rising(), n_nonzero_coefs=3, tol=0, init=stretched)
    assert len(result.loss) == 2  # the step was dropped
    assert result.stop_reason.name == reason


def test_a_rise_within_the_tolerance_is_no_reason_to_doubt(signals):
    result = kf.learn(signals, Falling(), n_nonzero_coefs=3, tol=0.19)
    assert result.loss.tolist() == [5.0, 4.0, 3.0]  # the step was dropped
    assert result.stop_reason.name == "TOLERANCE"
    assert result.converged


def test_a_method_without_an_update_is_reported(signals):
    with pytest.raises(kf.MethodFailed, match=r"NotImplementedError: write it: update"):
        kf.learn(signals, kf.Method())
    with pytest.raises(
        TypeError,
        match=r"is a class: give an object of it, Procrustes\(\)",
    ):
        kf.learn(signals, Procrustes)
    with pytest.raises(kf.MethodFailed, match=r"Method.update"):
        kf.LearnedTransform(method=kf.Method()).fit(signals)


def test_a_start_that_the_method_spoils_is_rejected(signals):
    class Spoiling(Procrustes):
        def admissible(self, transform):
            return 0 * transform

    with pytest.raises(kf.MethodFailed, match=r"Spoiling.admissible gave a singular transform"):
        kf.learn(signals, Spoiling())
