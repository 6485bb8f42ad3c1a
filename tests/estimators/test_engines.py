"""Estimators take all that an engine takes, and leave it where it is."""

import numpy as np
import pandas as pd
import pytest
from estimators.kinds import each_estimator
from helpers import Store, as_dask, as_tensor
from sklearn.base import clone

import kappaform as kf

N_FEATURES = 16
each_library = pytest.mark.parametrize("library", ["dask", "torch"])


@pytest.fixture
def signals(rng):
    return rng.standard_normal((300, N_FEATURES)).cumsum(axis=1)


def moved(array, library):
    """The rows of an array in the hands of another library."""
    if library == "dask":
        return as_dask(array, 70)
    if library == "store":
        return Store(array)
    return as_tensor(array.copy())


def brought_back(values, library):
    """As an array of NumPy, which they must not be yet."""
    assert type(values).__module__.partition(".")[0] == library
    return np.asarray(values.compute() if library == "dask" else values)


@each_estimator
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_a_store_is_read_in_slices_and_gives_the_bits_of_an_array(estimator_class, dtype, signals):
    signals = (10 * signals).astype(dtype)
    store = Store(signals)
    expected = estimator_class(3, tol=1e-2).fit(signals)
    estimator = estimator_class(3, tol=1e-2).fit(store)
    np.testing.assert_array_equal(estimator.components_, expected.components_)
    codes = expected.transform(signals)
    for found in (estimator.transform(store), clone(estimator).fit_transform(store)):
        np.testing.assert_array_equal(found, codes)
        assert found.dtype == codes.dtype == estimator.components_.dtype
    rebuilt = expected.inverse_transform(codes)
    np.testing.assert_array_equal(estimator.inverse_transform(Store(codes)), rebuilt)
    assert estimator.score(store) == expected.score(signals)
    batches = estimator_class(3), estimator_class(3)
    for rows in (slice(0, 100), slice(100, 300)):
        batches[0].partial_fit(signals[rows])
        batches[1].partial_fit(Store(signals[rows]))
    np.testing.assert_array_equal(batches[0].components_, batches[1].components_)


def test_sparse_codes_of_a_store_are_those_in_memory(signals):
    signals = np.tile(signals, (20, 1))
    estimator = kf.OrthonormalTransform(3, tol=1e-2, sparse_output=True).fit(Store(signals))
    codes = estimator.transform(Store(signals))
    np.testing.assert_array_equal(codes.toarray(), estimator.transform(signals).toarray())


@each_estimator
@each_library
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_signals_of_another_library_learn_and_code_alike(estimator_class, library, dtype, signals):
    signals = signals.astype(dtype)
    elsewhere = moved(signals, library)
    estimator = estimator_class(3, init="dct", max_iter=5, tol=1e-1)
    expected = clone(estimator).fit(signals)
    codes = brought_back(estimator.fit_transform(elsewhere), library)
    rounding = 1e-9 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(estimator.components_, expected.components_, atol=rounding)
    assert type(estimator.components_) is np.ndarray
    assert estimator.components_.dtype == codes.dtype == dtype
    assert np.count_nonzero(codes, axis=1).max() <= 3
    assert estimator.n_features_in_ == N_FEATURES
    assert estimator.score(elsewhere) == pytest.approx(estimator.score(signals), rel=rounding)

    # With one transform codes agree to rounding; where magnitudes tie, it decides.
    own = estimator.transform(signals)
    same = np.isclose(codes, own, atol=1e3 * np.finfo(dtype).eps).all(axis=1)
    assert same.mean() > 0.99
    rebuilt = brought_back(estimator.inverse_transform(moved(own, library)), library)
    assert rebuilt.dtype == dtype
    np.testing.assert_allclose(
        rebuilt, estimator.inverse_transform(own), atol=1e3 * np.finfo(dtype).eps
    )


@each_estimator
@each_library
def test_batches_of_another_library_are_learned_alike(estimator_class, library, signals):
    ours, theirs = (estimator_class(3, init="dct") for _ in range(2))
    for batch in np.split(signals, 3):
        ours.partial_fit(batch)
        theirs.partial_fit(moved(batch, library))
    np.testing.assert_allclose(theirs.components_, ours.components_, atol=1e-7)
    assert type(theirs.components_) is np.ndarray
    with pytest.raises(ValueError, match=r"X has 15 features, but .* is expecting 16 features"):
        theirs.partial_fit(moved(signals[:, 1:], library))
    spoiled = signals.copy()
    spoiled[7, 4] = np.nan
    with pytest.raises(ValueError, match="contains NaN or inf, first in row 7"):
        theirs.partial_fit(moved(spoiled, library))
    assert theirs.n_iter_ == 3


@pytest.mark.parametrize("library", ["store", "dask", "torch"])
def test_streams_take_batches_of_any_library(library, signals):
    batches = np.split(signals, 3)
    ours = kf.learn_stream(batches, kf.Orthonormal(), n_nonzero_coefs=3)
    theirs = kf.learn_stream(
        (moved(batch, library) for batch in batches), kf.Orthonormal(), n_nonzero_coefs=3
    )
    np.testing.assert_allclose(theirs.transform, ours.transform, atol=1e-7)
    with pytest.raises(TypeError, match=r"batches is one array of shape \(300, 16\)"):
        kf.learn_stream(moved(signals, library))


@pytest.mark.parametrize("library", ["store", "dask", "torch"])
def test_rows_of_another_length_are_rejected_with_both_lengths(library, signals):
    estimator = kf.OrthonormalTransform(3, tol=1e-2).fit(signals)
    narrow = moved(signals[:, 1:], library)
    for call in (estimator.transform, estimator.score):
        with pytest.raises(ValueError, match=r"X has 15 features, but .* is expecting 16 features"):
            call(narrow)
    with pytest.raises(ValueError, match="X has 15 features: the codes of this transform have 16"):
        estimator.inverse_transform(narrow)


@pytest.mark.parametrize("library", ["store", "dask", "torch"])
def test_what_is_no_table_of_rows_is_rejected_by_the_engine(library, signals):
    estimator = kf.OrthonormalTransform(3, tol=1e-2).fit(signals)
    for call in (estimator.fit, estimator.partial_fit, estimator.transform):
        with pytest.raises(ValueError, match=r"has shape \(16,\): it must be 2-D"):
            call(moved(signals[0], library))


@each_library
def test_sparse_codes_are_for_arrays_in_memory(library, signals):
    estimator = kf.OrthonormalTransform(3, tol=1e-2, sparse_output=True).fit(signals)
    with pytest.raises(ValueError, match=f"sparse_output=True: codes of {library} signals are"):
        estimator.transform(moved(signals, library))


def test_codes_of_a_dask_array_are_computed_when_they_are_needed(signals):
    import dask.array

    computed = []

    def note(block):
        computed.append(len(block))
        return block

    estimator = kf.OrthonormalTransform(3, tol=1e-2).fit(signals)
    lazy = dask.array.from_array(signals, chunks=(100, -1)).map_blocks(note, meta=signals[:0])
    codes = estimator.transform(lazy)
    rebuilt = estimator.inverse_transform(codes)
    assert not computed
    rebuilt.compute(scheduler="synchronous")
    assert sum(computed) >= len(signals)


def test_names_of_columns_are_dropped_when_rows_without_any_are_fitted(signals):
    table = pd.DataFrame(signals, columns=[f"x{i}" for i in range(N_FEATURES)])
    estimator = kf.OrthonormalTransform(3, tol=1e-2).fit(table)
    assert hasattr(estimator, "feature_names_in_")
    estimator.fit(Store(signals))
    assert not hasattr(estimator, "feature_names_in_")
    assert len(estimator.get_feature_names_out()) == N_FEATURES


def test_a_table_is_no_store_whatever_its_columns_are_called(signals):
    names = ["shape", "dtype", *(f"x{i}" for i in range(N_FEATURES - 2))]
    table = pd.DataFrame(signals, columns=names).astype({"dtype": np.float32})
    estimator = kf.OrthonormalTransform(3, tol=1e-2).fit(table)
    assert list(estimator.feature_names_in_) == names
    codes = estimator.transform(table)
    assert codes.dtype == estimator.components_.dtype == np.float64
    np.testing.assert_array_equal(codes, clone(estimator).fit_transform(table))
