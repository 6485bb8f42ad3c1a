"""The path over the number of transforms."""

from dataclasses import dataclass

import naive
import numpy as np
import pytest

import kappaform as kf
from kappaform.engines import engine_for
from kappaform.learning.race import Problem
from kappaform.learning.starts import StartContext, WarmStart, starts_for
from kappaform.learning.union import UnionOf
from kappaform.learning.union_path import UnionPath

NUMBERS = (1, 2, 3)
ROUNDING = 1 + 1e-12  # a sum over transforms has another order for each number of them


def planted(rng, n_kinds=2, n=9, s=2, number=400):
    """Signals that are sparse in one of several random bases, a little noisy."""
    bases = [kf.random_basis(n, rng) for _ in range(n_kinds)]
    codes = rng.standard_normal((number, n)) * (rng.random((number, n)).argsort(axis=1) < s)
    kinds = rng.integers(n_kinds, size=number)
    signals = np.einsum("ij,ijk->ik", codes, np.array(bases)[kinds])
    return signals + 0.02 * rng.standard_normal(signals.shape)


@dataclass(frozen=True)
class Own(kf.Method):
    """A custom method: an orthonormal basis by Procrustes."""

    def update(self, statistics, transform):  # noqa: ARG002
        left, _, right = np.linalg.svd(statistics.cross)
        return left @ right


@pytest.mark.parametrize(
    "method",
    [
        kf.Conditioned(1.0),
        kf.Conditioned(3.0),
        kf.Conditioned(3.0, objective="relative"),
        kf.Orthonormal(),
        Own(),
    ],
    ids=str,
)
@pytest.mark.parametrize("max_iter", [1, 25])
def test_loss_never_rises_along_the_path(method, max_iter, rng):
    path = kf.union_path(
        planted(rng, 3), NUMBERS, n_nonzero_coefs=2, method=method, max_iter=max_iter, n_starts=2
    )
    loss = np.array([result.loss[-1] for result in path.results])
    assert (loss[1:] <= loss[:-1] * ROUNDING).all()
    assert loss[-1] < 0.9 * loss[0]


@pytest.mark.parametrize("objective", ["absolute", "relative"])
@pytest.mark.parametrize("seed", range(5))
def test_a_union_that_grows_begins_no_higher_and_assigns_as_before(objective, seed):
    signals = np.random.default_rng(seed).standard_normal((200, 9)).cumsum(axis=1)
    method = kf.Conditioned(4.0, objective=objective)
    options = {"n_nonzero_coefs": 3, "n_starts": 1, "max_iter": 20}
    found = kf.learn_union(signals, method, n_transforms=2, **options)
    more, engine = UnionOf(method, 3), engine_for(signals)
    problem = Problem(engine, more, 3)
    context = StartContext(engine.gram, 3, problem.run_pass, problem=problem)
    members = starts_for(WarmStart(found), more, context)[0].transform
    assert len(members.each) == 3
    np.testing.assert_allclose(members.matrix[:2], found.transforms, atol=1e-9)
    assert members.ratio == found.state.best.transform.ratio
    loss = more.checked_loss(problem.run_pass(members), members)
    assert loss <= found.loss[-1] * ROUNDING


@pytest.mark.parametrize("given", [{}, {"coding": "largest"}], ids=str)
def test_table_holds_the_errors_of_the_definition(given, rng):
    signals, validation = np.split(planted(rng), 2)
    path = kf.union_path(
        signals,
        NUMBERS,
        n_nonzero_coefs=2,
        validation=validation,
        method=kf.Conditioned(2.0),
        max_iter=4,
        **given,
    )
    for prefix, data in (("", signals), ("validation_", validation)):
        for i, result in enumerate(path.results):
            errors = errors_of(data, result.transforms, 2, given.get("coding", "refit"))
            for name, value in errors.items():
                assert path[prefix + name][i] == pytest.approx(value, rel=1e-9), name


def errors_of(signals, transforms, s, coding):
    """Errors of signals that are each in the transform that loses least of its coefficients."""
    discarded, energy, lost = [], [], []
    for transform in transforms:
        coefs = signals @ transform.T
        codes = naive.hard_threshold(coefs, s)
        best = naive.rebuilding_codes(signals, transform, s) if coding == "refit" else codes
        discarded.append(((coefs - codes) ** 2).sum(axis=1))
        energy.append((coefs**2).sum(axis=1))
        lost.append(((signals - best @ np.linalg.inv(transform).T) ** 2).sum(axis=1))
    kind = np.argmin(discarded, axis=0)
    error, energies, losses = (
        np.sqrt(np.take_along_axis(np.array(each), kind[np.newaxis], axis=0).sum())
        for each in (discarded, energy, lost)
    )
    return {
        "absolute": error,
        "sparsification": error / np.linalg.norm(signals),
        "relative": error / energies,
        "reconstruction": losses / np.linalg.norm(signals),
    }


def test_the_number_with_the_least_validation_error_is_chosen(rng):
    signals, validation = np.split(planted(rng, 2, number=1200), 2)
    path = kf.union_path(signals, [1, 2, 4], n_nonzero_coefs=2, validation=validation)
    assert path["n_transforms"].tolist() == [1, 2, 4]
    one, two, four = path["validation_reconstruction"]
    assert two < 0.2 * one  # there are two kinds of signals, and noise
    assert abs(four / two - 1) < 0.1
    least = int(np.argmin(path["validation_reconstruction"]))
    assert path.chosen == (1, 2, 4)[least]
    assert isinstance(path.chosen, int)
    assert path.best is path.results[least]
    assert path.best.transforms.shape == (path.chosen, 9, 9)
    shown = [name for name in path.table if not name.endswith("absolute")]
    assert str(path).splitlines()[0].split() == shown
    assert (path["condition_number"] <= 2 * (1 + 1e-9)).all()


def test_one_transform_on_the_path_is_that_of_learn(rng):
    signals = planted(rng)
    path = kf.union_path(signals, [1, 2], n_nonzero_coefs=2, max_iter=30)
    alone = kf.learn(signals, n_nonzero_coefs=2, max_iter=30)
    np.testing.assert_array_equal(path.results[0].transform[0], alone.transform)


def test_callback_ends_the_path_with_the_number_it_is_at(rng):
    def stop(result):
        return result.method.n_transforms == 2

    path = kf.union_path(planted(rng), [1, 2, 4], max_iter=5, callback=stop)
    assert path["n_transforms"].tolist() == [1, 2]
    assert path.chosen is None
    assert path.best is None


def test_an_interrupted_path_carries_the_numbers_that_are_done(rng):
    def interrupt(result):
        if result.method.n_transforms == 2 and result.n_iter == 2:
            raise KeyboardInterrupt

    with pytest.raises(kf.LearningInterrupted) as caught:
        kf.union_path(planted(rng), NUMBERS, n_nonzero_coefs=2, max_iter=5, callback=interrupt)
    assert [result.method.n_transforms for result in caught.value.finished] == [1]
    assert len(caught.value.result.transforms) == 2


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([], "n_transforms is empty: give a sequence of at least one number >= 1"),
        ([[1, 2]], r"n_transforms is of shape \(1, 2\)"),
        ([0, 1], "n_transforms=0: give a whole number of transforms >= 1"),
        ([1.5], "n_transforms=1.5: give a whole number"),
        ([2, 1], r"n_transforms has 1 after 2, which it is not above: .* \[1, 2\]"),
        ([1, 2, 2], "n_transforms has 2 after 2, which it repeats"),
        ([1, 500], "n_transforms has 500, but there are 400 signals"),
    ],
)
def test_bad_numbers_are_named(numbers, message, rng):
    with pytest.raises(ValueError, match=message):
        kf.union_path(planted(rng), numbers)


def test_bad_arguments_are_named(rng):
    signals = planted(rng)
    with pytest.raises(TypeError, match="n_nonzero_coefs has 400 entries: a path needs one"):
        kf.union_path(signals, [1], n_nonzero_coefs=np.full(400, 2))
    with pytest.raises(ValueError, match="choose_by='loss' is unknown"):
        kf.union_path(signals, [1], choose_by="loss")
    with pytest.raises(ValueError, match="validation has 5 features"):
        kf.union_path(signals, [1], validation=np.ones((3, 5)))
    with pytest.raises(ValueError, match="LogDet"):
        kf.union_path(signals, [1], method=kf.LogDet())


def test_of_numbers_that_differ_by_rounding_the_smallest_is_chosen():
    errors = 0.5 * (1 + 1e-9 * np.array([9.0, 1.0, 0.0]))
    table = {"n_transforms": np.array([1, 2, 4]), "validation_reconstruction": errors}
    assert UnionPath(table, ()).chosen == 1
