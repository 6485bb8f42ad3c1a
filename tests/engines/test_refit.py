"""Codes that rebuild best: the values of least squares, on every engine, at every scale."""

import naive
import numpy as np
import pytest
from helpers import as_dask, as_tensor, orthogonal

from kappaform.engines import engine_for
from kappaform.engines.codes import refit_of
from kappaform.linalg import scaled_inverse

DTYPES = ("float32", "float64")


def transform_of(rng, n, condition=3.0):
    """A transform of a given condition number whose rows and atoms differ in norm."""
    left, _, right = np.linalg.svd(rng.standard_normal((n, n)))
    return (left * np.geomspace(1, condition, n)) @ right


def lost(signals, codes, transform):
    """What is left of each signal."""
    return np.linalg.norm(signals - codes @ np.linalg.inv(transform).T, axis=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 16, 63, 64, 65, 130])
def test_codes_reconstruct_as_their_definition_does(n, dtype, rng):
    signals = rng.standard_normal((60, n)).astype(dtype)
    transform = transform_of(rng, n)
    for n_nonzero in (0, 1, n // 2, n, rng.integers(0, n + 1, 60)):
        codes = engine_for(signals).encode(transform, n_nonzero, refit_of(transform))
        expected = naive.rebuilding_codes(signals, transform, n_nonzero)
        assert codes.dtype == dtype
        tolerance = 1e-9 if dtype == "float64" else 1e-3
        # Where two choices are as good as each other but for rounding, either may be taken.
        same = ((codes != 0) == (expected != 0)).all(axis=1)
        assert same.mean() > 0.97
        np.testing.assert_allclose(codes[same], expected[same], atol=tolerance)
        np.testing.assert_allclose(
            lost(signals, codes, transform), lost(signals, expected, transform), atol=tolerance
        )


@pytest.mark.parametrize("condition", [1.5, 10.0, 1e4])
def test_no_other_values_of_the_same_entries_reconstruct_better(condition, rng):
    signals, transform = rng.standard_normal((300, 24)), transform_of(rng, 24, condition)
    codes = engine_for(signals).encode(transform, 7, refit_of(transform))
    atoms = np.linalg.inv(transform)
    atoms /= np.linalg.norm(atoms, axis=0)
    left = signals - codes @ np.linalg.inv(transform).T
    assert (np.count_nonzero(codes, axis=1) == 7).all()
    np.testing.assert_allclose((left @ atoms)[codes != 0], 0, atol=1e-9)


@pytest.mark.parametrize("condition", [1.5, 10.0, 1e4])
def test_the_second_choice_is_taken_only_where_it_is_better(condition, rng):
    signals, transform = rng.standard_normal((500, 24)), transform_of(rng, 24, condition)
    codes = engine_for(signals).encode(transform, 7, refit_of(transform))
    atoms = np.linalg.inv(transform)
    norms = np.linalg.norm(atoms, axis=0)
    kept = naive.hard_threshold(signals @ transform.T * norms, 7) != 0
    first = np.array([naive._fitted(y, atoms, row) for y, row in zip(signals, kept, strict=True)])
    before, after = lost(signals, first, transform), lost(signals, codes, transform)
    assert (after <= before * (1 + 1e-9)).all()
    assert (after < before * (1 - 1e-6)).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_of_an_orthonormal_transform_are_its_largest_coefficients(dtype, rng):
    signals = rng.standard_normal((400, 20)).astype(dtype)
    transform = orthogonal(rng, 20)
    engine = engine_for(signals)
    np.testing.assert_allclose(
        engine.encode(transform, 5, refit_of(transform)),
        engine.encode(transform, 5),
        atol=100 * np.finfo(dtype).eps,
    )


@pytest.mark.parametrize("exponent", [-500, -40, 40, 500])
def test_scales_of_signals_and_transform_lose_no_digit(exponent, rng):
    signals, transform = rng.standard_normal((200, 12)), transform_of(rng, 12)
    plain = engine_for(signals).encode(transform, 4, refit_of(transform))
    louder = engine_for(np.ldexp(signals, exponent)).encode(transform, 4, refit_of(transform))
    np.testing.assert_array_equal(louder, np.ldexp(plain, exponent))
    scaled = np.ldexp(transform, exponent)
    larger = engine_for(signals).encode(scaled, 4, refit_of(scaled))
    np.testing.assert_array_equal(larger, np.ldexp(plain, exponent))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [0, 60])
def test_what_is_lost_is_that_of_the_codes(dtype, exponent, rng):
    signals = rng.standard_normal((3000, 12)).astype(dtype)
    transform = np.ldexp(transform_of(rng, 12), exponent)
    engine, refit = engine_for(signals), refit_of(transform)
    inverse = scaled_inverse(transform)
    found = engine.energies(transform, inverse, 4, refit)
    plain = engine.energies(transform, inverse, 4)
    rebuilt = engine_for(engine.encode(transform, 4, refit)).decode(inverse)
    expected = np.linalg.norm(signals - rebuilt) / np.linalg.norm(signals)
    assert found.reconstruction == pytest.approx(expected, rel=1e-5)
    assert found.reconstruction < plain.reconstruction
    assert (found.absolute, found.relative) == (plain.absolute, plain.relative)


def test_atoms_that_rounding_cannot_tell_apart_do_no_harm(rng):
    signals, transform = rng.standard_normal((200, 10)), transform_of(rng, 10, 1e13)
    codes = engine_for(signals).encode(transform, 9, refit_of(transform))
    assert np.isfinite(codes).all()
    assert (lost(signals, codes, transform) <= np.linalg.norm(signals, axis=1) * 1.01).all()


@pytest.mark.parametrize("convert", [np.asarray, as_dask, as_tensor])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("entry", [600.0, 1e4])
def test_signals_that_keep_every_entry_are_reconstructed_exactly(entry, dtype, convert, rng):
    """Also next to signals that do not, and with rows so large that they are scaled."""
    signals = rng.standard_normal((700, 4)).astype(dtype)
    signals[1:, 1] *= 1 / entry  # so that rounding does not decide
    transform = np.eye(4)
    transform[0, 1] = entry
    wanted = np.append(1, np.full(699, 4))
    engine, refit = engine_for(convert(signals)), refit_of(transform)
    codes = np.asarray(engine.encode(transform, wanted, refit), np.float64)
    coefs = signals[1:].astype(np.float64) @ transform.T
    np.testing.assert_allclose(codes[1:], coefs, rtol=0, atol=20 * np.finfo(dtype).eps)
    found = engine.energies(transform, scaled_inverse(transform), wanted, refit)
    alone = lost(signals[:1], codes[:1], transform)[0] / np.linalg.norm(signals)
    assert found.reconstruction == pytest.approx(alone, rel=1e-3)


@pytest.mark.parametrize("convert", [as_dask, as_tensor])
@pytest.mark.parametrize("n_nonzero", [3, "each"])
def test_other_engines_give_the_same_codes(n_nonzero, convert, rng):
    signals, transform = rng.standard_normal((700, 20)), transform_of(rng, 20)
    signals[::9] = 0
    signals[1::9, 2:] = 0
    wanted = rng.integers(0, 21, 700) if n_nonzero == "each" else n_nonzero
    refit, inverse = refit_of(transform), scaled_inverse(transform)
    engine = engine_for(signals)
    expected = engine.encode(transform, wanted, refit)
    energies = engine.energies(transform, inverse, wanted, refit)
    found = engine_for(convert(signals))
    codes = np.asarray(found.encode(transform, wanted, refit))
    np.testing.assert_allclose(codes, expected, atol=1e-10)
    same = found.energies(transform, inverse, wanted, refit)
    assert same.reconstruction == pytest.approx(energies.reconstruction, rel=1e-9)
