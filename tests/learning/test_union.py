"""A union of transforms: bound, descent, starts, and what may be asked of it."""

import itertools
import pickle

import numpy as np
import pytest
from helpers import Store, as_dask, as_tensor, check_descent, orthogonal
from sklearn.metrics import confusion_matrix

import kappaform as kf
from kappaform.engines import engine_for
from kappaform.learning import StopReason
from kappaform.threads import at_most_threads

METHODS = [
    kf.Conditioned(2.0),
    kf.Conditioned(1.0),
    kf.Conditioned(2.0, norm=5.0, objective="relative"),
    kf.Orthonormal(),
]
each_method = pytest.mark.parametrize("method", METHODS, ids=repr)


def planted(rng, n_transforms=3, n=16, s=2, kappa=3.0, m=6000, decibels=20):
    """Signals that are sparse under one of several transforms, with noise; and of which one."""
    numbers, signals = rng.integers(n_transforms, size=m), np.empty((m, n))
    for k in range(n_transforms):
        spectrum = np.linspace(1, kappa, n)
        inverse = (orthogonal(rng, n) / spectrum) @ orthogonal(rng, n)
        codes = np.zeros(((numbers == k).sum(), n))
        kept = rng.permuted(np.tile(np.arange(n), (len(codes), 1)), axis=1)[:, :s]
        np.put_along_axis(codes, kept, rng.standard_normal(kept.shape), axis=1)
        signals[numbers == k] = codes @ inverse.T
    noise = rng.standard_normal(signals.shape)
    scale = np.linalg.norm(signals) / np.linalg.norm(noise) * 10 ** (-decibels / 20)
    return signals + scale * noise, numbers


def fraction_right(found, true):
    """Fraction of signals in the right class, for the best permutation of the classes."""
    table = confusion_matrix(true, found)
    orders = itertools.permutations(range(len(table)))
    return max(table[list(order), range(len(table))].sum() for order in orders) / len(true)


@pytest.fixture(scope="module")
def two_kinds():
    rng = np.random.default_rng(3)
    smooth = rng.standard_normal((400, 9)).cumsum(axis=1)
    return np.concatenate([smooth, rng.standard_normal((400, 9)) @ orthogonal(rng, 9)])


@each_method
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_transform_gives_the_bits_of_learn(method, dtype, few_patches):
    signals = few_patches.astype(dtype)
    one = kf.learn(signals, method, n_nonzero_coefs=3, max_iter=60)
    union = kf.learn_union(signals, method, n_transforms=1, n_nonzero_coefs=3, max_iter=60)
    np.testing.assert_array_equal(union.transforms[0], one.transform)
    np.testing.assert_array_equal(union.loss, one.loss)
    assert union.n_iter == one.n_iter


@each_method
def test_no_iteration_raises_the_loss_and_every_transform_obeys_the_bound(method, two_kinds):
    seen = []

    def check(result):
        seen.append(result)
        bound, norm = getattr(method, "max_condition", 1.0), getattr(method, "norm", "auto")
        assert (result.condition_numbers <= bound * (1 + 1e-9)).all()
        norms = np.linalg.norm(result.transforms, axis=(1, 2))
        np.testing.assert_allclose(norms, 3.0 if norm == "auto" else norm, rtol=1e-9)

    result = kf.learn_union(
        two_kinds, method, n_transforms=3, n_nonzero_coefs=2, tol=1e-5, callback=check
    )
    check_descent(result, two_kinds)
    assert len(seen) == result.n_iter > 5
    assert len(result.transforms) == 3


@each_method
def test_more_transforms_fit_better(method, two_kinds):
    losses = [
        kf.learn_union(two_kinds, method, n_transforms=k, n_nonzero_coefs=2, tol=1e-2).loss[-1]
        for k in (1, 2, 4)
    ]
    assert losses[1] < 0.97 * losses[0]
    assert losses[2] < 0.97 * losses[1]


@pytest.mark.parametrize("seed", range(2))
def test_a_planted_union_is_found(seed):
    signals, true = planted(np.random.default_rng(seed))
    union = kf.learn_union(signals, kf.Conditioned(3.0), n_transforms=3, n_nonzero_coefs=2)
    found = engine_for(signals).assign(union.union, 2)
    assert fraction_right(found, true) >= 0.95


def test_a_resumed_union_has_the_bits_of_one_that_never_stopped(two_kinds):
    for method in METHODS:
        options = {"n_transforms": 3, "n_nonzero_coefs": 2, "tol": 0.0}
        whole = kf.learn_union(two_kinds, method, max_iter=30, **options)
        part = kf.learn_union(two_kinds, method, max_iter=17, **options)
        part = pickle.loads(pickle.dumps(part))
        rest = kf.learn_union(two_kinds, method, max_iter=13, init=part, **options)
        np.testing.assert_array_equal(whole.transforms, rest.transforms)
        np.testing.assert_array_equal(whole.loss, rest.loss)


def test_a_union_of_other_transforms_is_a_start(two_kinds):
    options = {"n_transforms": 2, "n_nonzero_coefs": 2}
    first = kf.learn_union(two_kinds, kf.Conditioned(2.0), tol=1e-2, **options)
    tighter = kf.learn_union(two_kinds, kf.Conditioned(1.5), init=first, max_iter=1, **options)
    assert tighter.condition_number <= 1.5 * (1 + 1e-9)


def test_a_relative_union_starts_where_another_one_ended(two_kinds):
    first = kf.learn_union(two_kinds, METHODS[2], n_transforms=3, n_nonzero_coefs=2, max_iter=30)
    again = kf.learn_union(
        two_kinds, kf.Conditioned(2.0, norm=5.0, objective="relative", n_rounds=4),
        n_transforms=3, n_nonzero_coefs=2, init=first, max_iter=1,
    )  # fmt: skip
    assert again.loss[0] == pytest.approx(first.loss[-1], rel=1e-9)


@each_method
def test_the_order_of_the_transforms_does_not_matter(method, two_kinds, rng):
    init = rng.standard_normal((3, 9, 9))
    options = {"n_transforms": 3, "n_nonzero_coefs": 2, "max_iter": 15, "tol": 0.0}
    one = kf.learn_union(two_kinds, method, init=init, **options)
    other = kf.learn_union(two_kinds, method, init=init[[2, 0, 1]], **options)
    np.testing.assert_allclose(other.loss[:8], one.loss[:8], rtol=1e-9)


@each_method
def test_transforms_without_signals_are_moved_where_signals_fit_worst(method, two_kinds):
    """All begin alike, so that the first has all signals; in the end each has some."""
    init = np.stack([kf.dct_basis(9)] * 3)
    union = kf.learn_union(two_kinds, method, n_transforms=3, n_nonzero_coefs=2, init=init)
    numbers = engine_for(two_kinds).assign(union.union, 2)
    assert np.bincount(numbers, minlength=3).min() > 20
    check_descent(union, two_kinds)
    assert union.loss[-1] < 0.97 * kf.learn(two_kinds, method, n_nonzero_coefs=2).loss[-1]


def test_a_transform_without_signals_moves_at_once(two_kinds):
    init = np.stack([kf.dct_basis(9)] * 3)
    union = kf.learn_union(two_kinds, n_transforms=3, n_nonzero_coefs=2, init=init, max_iter=1)
    numbers = engine_for(two_kinds).assign(union.union, 2)
    assert np.bincount(numbers, minlength=3).min() > 0


def test_the_relative_objective_lowers_the_relative_error(two_kinds):
    relative = [
        kf.learn_union(
            two_kinds,
            kf.Conditioned(2.0, objective=objective),
            n_transforms=3,
            n_nonzero_coefs=2,
            tol=1e-3,
        ).errors.relative[-1]
        for objective in ("absolute", "relative")
    ]
    assert relative[1] < 0.8 * relative[0]


def test_results_depend_neither_on_threads_nor_on_where_signals_are(two_kinds, monkeypatch):
    monkeypatch.setattr("kappaform.engines.blocks._PART_ENTRIES", 2**10)
    monkeypatch.setattr("kappaform.engines.blocks.block_rows", lambda *_: 128)
    options = {"n_transforms": 3, "n_nonzero_coefs": 2, "max_iter": 20}
    with at_most_threads(1):
        expected = kf.learn_union(two_kinds, **options)
    for kind in (two_kinds, Store(two_kinds)):
        with at_most_threads(3):
            found = kf.learn_union(kind, **options)
        np.testing.assert_array_equal(found.transforms, expected.transforms)


@pytest.mark.parametrize("make", [as_dask, as_tensor])
def test_dask_arrays_and_tensors_are_learned_from_as_arrays(make, two_kinds):
    options = {"n_transforms": 2, "n_nonzero_coefs": 2, "max_iter": 5, "n_starts": 1}
    found, expected = (kf.learn_union(each, **options) for each in (make(two_kinds), two_kinds))
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-6)


def test_the_seed_decides_the_random_starts(two_kinds):
    options = {"n_transforms": 3, "n_nonzero_coefs": 2, "n_starts": 2, "max_iter": 14}
    starts = [kf.learn_union(two_kinds, rng=seed, **options) for seed in (0, 0, 1)]
    one, same, other = (result.state.candidates[1].records[0].loss for result in starts)
    assert one == same != other
    np.testing.assert_array_equal(starts[0].transforms, starts[1].transforms)


class Halfway(kf.Method):
    """Halfway to the orthonormal transform of lowest error: not monotone."""

    def update(self, statistics, transform):
        left, _, right = np.linalg.svd(statistics.cross + 0.5 * transform)
        return left @ right


def test_custom_methods_learn_unions(two_kinds):
    method = Halfway()
    union = kf.learn_union(two_kinds, method, n_transforms=2, n_nonzero_coefs=2, max_iter=40)
    assert union.loss[-1] < kf.learn(two_kinds, method, n_nonzero_coefs=2, max_iter=40).loss[-1]
    expected = np.sqrt(
        sum(part.discarded_energy for part in engine_for(two_kinds).run_union_pass(union.union, 2))
    )
    assert union.loss[-1] == pytest.approx(expected, rel=1e-12)


class Scored(Halfway):
    def loss(self, statistics, transform):  # noqa: ARG002
        return statistics.discarded_energy / np.trace(statistics.gram)


def test_a_custom_loss_is_averaged_by_energy(two_kinds):
    union = kf.learn_union(two_kinds, Scored(), n_transforms=2, n_nonzero_coefs=2, max_iter=5)
    parts = engine_for(two_kinds).run_union_pass(union.union, 2)
    lost = sum(part.discarded_energy for part in parts)
    assert union.loss[-1] == pytest.approx(lost / (two_kinds**2).sum(), rel=1e-9)


def test_a_failing_custom_method_keeps_what_was_learned(two_kinds):
    class Breaks(Halfway):
        def update(self, statistics, transform):
            if statistics.n_signals != len(two_kinds):
                self.calls = getattr(self, "calls", 0) + 1
                if self.calls > 30:
                    raise RuntimeError("no more")
            return super().update(statistics, transform)

    with pytest.raises(kf.MethodFailed, match="no more") as caught:
        kf.learn_union(two_kinds, Breaks(), n_transforms=2, n_nonzero_coefs=2, n_starts=1)
    assert caught.value.result.transforms.shape == (2, 9, 9)


def test_ctrl_c_loses_nothing(two_kinds):
    def interrupt(result):
        if result.n_iter == 6:
            raise KeyboardInterrupt

    options = {"n_transforms": 3, "n_nonzero_coefs": 2, "tol": 0.0}
    with pytest.raises(kf.LearningInterrupted) as caught:
        kf.learn_union(two_kinds, callback=interrupt, **options)
    kept = caught.value.result
    assert isinstance(kept, kf.UnionResult)
    assert kept.n_iter == 6
    rest = kf.learn_union(two_kinds, init=kept, max_iter=9, **options)
    whole = kf.learn_union(two_kinds, max_iter=15, **options)
    np.testing.assert_array_equal(rest.transforms, whole.transforms)


@pytest.mark.parametrize(("after", "n_learned"), [(5, 1), (-1, 3)])
def test_ctrl_c_while_a_union_grows_loses_nothing(after, n_learned, two_kinds, monkeypatch):
    """Before a second transform joins, and in the last pass before the first iteration."""
    from kappaform.learning import race

    options = {"n_transforms": 4, "n_nonzero_coefs": 2, "n_starts": 2, "max_iter": 12}
    started, passes, pass_with = [], [], race.pass_with

    def counted(*arguments):
        passes.append(None)
        if len(passes) == stop:
            raise KeyboardInterrupt
        return pass_with(*arguments)

    stop = 0
    monkeypatch.setattr(race, "pass_with", counted)
    whole = kf.learn_union(
        two_kinds, callback=lambda result: started.append((len(passes), result.n_iter)), **options
    )
    before_learning = started[0][0] - 2  # the start and the first iteration have a pass each
    stop = after if after > 0 else before_learning
    passes.clear()
    with pytest.raises(KeyboardInterrupt) as caught:
        kf.learn_union(two_kinds, **options)
    assert isinstance(caught.value, kf.LearningInterrupted)
    kept = caught.value.result
    assert len(kept.transforms) == n_learned
    assert kept.n_iter > 0
    stop = 0
    rest = kf.learn_union(two_kinds, init=kept, **options)
    np.testing.assert_array_equal(rest.transforms, whole.transforms)
    np.testing.assert_array_equal(rest.loss, whole.loss)


def test_a_result_of_fewer_transforms_grows(two_kinds):
    few = kf.learn_union(two_kinds, n_transforms=2, n_nonzero_coefs=2, tol=1e-3)
    more = kf.learn_union(
        two_kinds, n_transforms=3, n_nonzero_coefs=2, n_starts=1, tol=1e-3, init=few
    )
    assert more.transforms.shape == (3, 9, 9)
    assert more.loss[0] <= few.loss[-1] * (1 + 1e-9)


@pytest.mark.parametrize("n_transforms", [1, 2, 4])
def test_signals_that_are_hardly_signals_are_learned_from(signals, n_transforms):
    if n_transforms > len(signals):
        pytest.skip("as many signals as transforms are needed")
    with np.errstate(all="raise", under="ignore"):
        union = learned_with_warning(signals, n_transforms)
    assert np.isfinite(union.transforms).all()
    assert union.condition_number <= 2 * (1 + 1e-9)
    assert union.stop_reason is not StopReason.ROSE


def learned_with_warning(signals, n_transforms):
    options = {"n_transforms": n_transforms, "n_nonzero_coefs": 2, "max_iter": 30}
    if len(signals) >= signals.shape[1]:
        return kf.learn_union(signals, **options)
    with pytest.warns(UserWarning, match="fewer signals than features"):
        return kf.learn_union(signals, **options)


def test_one_feature():
    signals = np.arange(1.0, 50.0)[:, np.newaxis]
    union = kf.learn_union(signals, n_transforms=2, n_nonzero_coefs=1)
    assert union.stop_reason is StopReason.EXACT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_transforms": 0}, "n_transforms=0"),
        ({"n_transforms": 2.5}, "n_transforms=2.5"),
        ({"n_transforms": 801}, "n_transforms=801 exceeds the 800 signals"),
        ({"n_starts": 0}, "n_starts=0"),
        ({"method": kf.LogDet()}, "no common norm"),
        ({"method": kf.Conditioned(norm=None)}, "common norm"),
        ({"method": kf.Conditioned(variant="paper")}, "monotone variant"),
        ({"init": "dct"}, "init='dct' is unknown: choose 'auto'"),
        ({"init": np.eye(9)}, r"init has shape \(9, 9\).*\(4, 9, 9\)"),
        ({"init": np.zeros((4, 9, 9))}, "init is zero"),
        ({"init": ()}, "at least one start"),
        ({"n_nonzero_coefs": 10}, "n_nonzero_coefs=10"),
        ({"rng": "a"}, "rng='a'"),
    ],
)
def test_bad_arguments_are_named(options, message, two_kinds):
    with pytest.raises((ValueError, TypeError), match=message):
        kf.learn_union(two_kinds, **options)


def test_signals_that_are_not_finite_are_rejected(two_kinds):
    signals = two_kinds.copy()
    signals[5, 3] = np.inf
    with pytest.raises(ValueError, match="row 5"):
        kf.learn_union(signals)


def test_a_union_is_no_start_of_a_single_transform(two_kinds):
    union = kf.learn_union(two_kinds, n_transforms=2, n_nonzero_coefs=2, max_iter=3)
    with pytest.raises(ValueError, match=r"init has shape \(2, 9, 9\)"):
        kf.learn(two_kinds, n_nonzero_coefs=2, init=union)
