"""The condition path and the errors that it tabulates."""

import naive
import numpy as np
import pandas as pd
import pytest

import kappaform as kf

BOUNDS = (1.0, 2.0, 5.0, 20.0)


@pytest.fixture(scope="module")
def path(photo_patches):
    train, validation = photo_patches[::2], photo_patches[1::2]
    return kf.condition_path(train, BOUNDS, n_nonzero_coefs=6, validation=validation, max_iter=40)


def test_error_never_rises_along_the_path(path):
    assert np.all(np.diff(path["absolute"]) <= 0)


def test_path_keeps_each_bound(path):
    assert tuple(path["max_condition"]) == BOUNDS
    assert np.all(path["condition_number"] <= np.array(BOUNDS) * (1 + 1e-9))


def test_table_holds_the_errors_of_the_definition(path, photo_patches):
    for prefix, signals in (("", photo_patches[::2]), ("validation_", photo_patches[1::2])):
        for i, result in enumerate(path.results):
            coefs = signals @ result.transform.T
            codes = naive.hard_threshold(coefs, 6)
            restored = codes @ np.linalg.inv(result.transform).T
            absolute = np.linalg.norm(codes - coefs)
            assert path[prefix + "absolute"][i] == pytest.approx(absolute, rel=1e-9)
            relative = absolute / np.linalg.norm(coefs)
            assert path[prefix + "relative"][i] == pytest.approx(relative, rel=1e-9)
            lost = np.linalg.norm(signals - restored) / np.linalg.norm(signals)
            assert path[prefix + "reconstruction"][i] == pytest.approx(lost, rel=1e-9)


def test_bounds_are_sorted_and_validation_is_optional(photo_patches):
    path = kf.condition_path(photo_patches[::8], [3.0, 1.0, 3.0], max_iter=5)
    assert path["max_condition"].tolist() == [1.0, 3.0]
    assert "validation_absolute" not in path.table
    frame = pd.DataFrame(path.table)
    assert list(frame["n_iter"]) == [result.n_iter for result in path.results]
    assert str(path).splitlines()[0].split() == list(path.table)


def test_callback_ends_the_path_with_the_bound_it_is_at(photo_patches):
    path = kf.condition_path(
        photo_patches[::8],
        BOUNDS,
        max_iter=5,
        callback=lambda state: state.method.max_condition > 1,
    )
    assert path["max_condition"].tolist() == [1.0, 2.0]


def test_bad_arguments_are_named(photo_patches):
    with pytest.raises(ValueError, match="max_conditions is empty"):
        kf.condition_path(photo_patches, [])
    with pytest.raises(ValueError, match=r"max_condition=0\.5"):
        kf.condition_path(photo_patches, [0.5, 2.0])
    with pytest.raises(ValueError, match=r"validation has shape \(3, 5\)"):
        kf.condition_path(photo_patches, [2.0], validation=np.ones((3, 5)))
    with pytest.raises(ValueError, match="n_nonzero_coefs is an array"):
        kf.condition_path(photo_patches, [2.0], n_nonzero_coefs=np.full(len(photo_patches), 3))


@pytest.mark.parametrize("unit", [1.0, 2.0**500, 2.0**-500])
def test_evaluate_is_exact_at_any_scale(photo_patches, unit):
    signals, transform = photo_patches[::8], kf.dct_basis((8, 8))
    plain, scaled = (kf.evaluate(s, transform, 6) for s in (signals, signals * unit))
    assert scaled == (plain.absolute * unit, plain.relative, plain.reconstruction)
    # An orthonormal transform loses in the signals what it loses in the coefficients.
    assert plain.reconstruction == pytest.approx(plain.relative, rel=1e-12)
