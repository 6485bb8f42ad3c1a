"""Noise is made the same at every brightness, and the way back has no bias."""

from dataclasses import fields

import naive
import numpy as np
import pytest

from kappaform import Correlated, Shot, Varying, add_noise

MEANS = [0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 100.0, 199.0, 201.0, 400.0, 1000.0]
READ_NOISES = [0.0, 0.5, 2.0, 10.0]


def rising(brightness):
    """Deviations that grow with brightness, and stay where nothing is known of it."""
    return 2 + 0.05 * np.clip(brightness, 0, 255)


def falling(brightness):
    """Deviations as after a gamma curve."""
    return 12 / (1 + np.clip(brightness, 0, 255) / 80)


def varying(level):
    brightness = np.linspace(0, 255, 60)
    return Varying(brightness, level(brightness))


def one(value):
    """An image of one pixel and one channel."""
    return np.full((1, 1, 1), float(value))


@pytest.mark.parametrize("read_noise", READ_NOISES)
@pytest.mark.parametrize("mean", [4, 10, 50, 1000])
def test_stabilised_shot_noise_has_standard_deviation_one(mean, read_noise, rng):
    noise = Shot(2.5, 2.5 * read_noise, offset=-30.0)
    noisy = add_noise(np.full((300, 300, 1), 2.5 * mean - 30), noise=noise, rng=rng)
    assert noise.stabilised(noisy).std() == pytest.approx(1, abs=0.04)


@pytest.mark.parametrize("level", [rising, falling])
@pytest.mark.parametrize("mean", [40, 120, 220])
def test_stabilised_varying_noise_has_standard_deviation_one(mean, level, rng):
    noise = varying(level)
    noisy = mean + level(mean) * rng.standard_normal((300, 300, 1))
    assert noise.stabilised(noisy).std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("read_noise", READ_NOISES)
@pytest.mark.parametrize("mean", MEANS)
def test_the_way_back_from_the_mean_of_stabilised_photons_is_their_mean(mean, read_noise):
    stabilised = naive.mean_of_stabilised_photons(mean, read_noise)
    restored = Shot(1.0, read_noise).restored(one(stabilised)).item()
    assert restored == pytest.approx(mean, abs=1e-3)
    gain, offset = 0.25, 7.0
    restored = Shot(gain, gain * read_noise, offset).restored(one(stabilised)).item()
    assert restored == pytest.approx(offset + gain * mean, abs=1e-3)


@pytest.mark.parametrize("read_noise", [0.0, 1.5])
@pytest.mark.parametrize("mean", [0.1, 2.0, 500.0])
def test_the_mean_of_stabilised_samples_comes_back_as_their_mean(mean, read_noise, rng):
    noise = Shot(3.0, 3 * read_noise, offset=5.0)
    noisy = add_noise(np.full((400, 400, 1), 5 + 3 * mean), noise=noise, rng=rng)
    restored = noise.restored(one(noise.stabilised(noisy).mean(dtype=np.float64))).item()
    error = 3 * np.sqrt(mean + read_noise**2) / 400  # of the mean of so many
    assert restored == pytest.approx(5 + 3 * mean, abs=4 * error)


@pytest.mark.parametrize("level", [rising, falling])
@pytest.mark.parametrize("mean", [30, 60, 128, 200])
def test_the_way_back_from_the_mean_of_stabilised_levels_is_their_mean(mean, level):
    noise = varying(level)
    start = noise.stabilised(one(128)).item()
    stabilised = start + naive.mean_of_stabilised_levels(mean, level, 128.0)
    # In parts of the noise; without the term of the slope it would be ten times as much.
    assert noise.restored(one(stabilised)).item() == pytest.approx(mean, abs=0.004 * level(mean))


@pytest.mark.parametrize(
    "noise", [Shot(1.0), Shot(0.1, 3.0, 20.0), varying(rising), varying(falling)], ids=str
)
def test_brighter_stays_brighter_there_and_back(noise):
    brightness = np.linspace(-50, 600, 20_001).reshape(-1, 1, 1)
    stabilised = noise.stabilised(brightness)
    assert (np.diff(stabilised, axis=0) >= 0).all()
    there = np.linspace(stabilised.min(), stabilised.max(), 20_001).reshape(-1, 1, 1)
    assert (np.diff(noise.restored(there), axis=0) >= 0).all()


def test_far_brighter_than_the_table_the_way_back_does_not_end():
    noise = Shot(1.0, 1.0)
    bright = np.geomspace(300, 1e12, 50).reshape(-1, 1, 1)
    np.testing.assert_allclose(noise.restored(noise.stabilised(bright)), bright, rtol=2e-3)


@pytest.mark.parametrize("level", [rising, falling])
def test_far_beyond_its_curve_varying_noise_is_that_of_the_nearest_end(level):
    noise = varying(level)
    for far, end in ((np.array([3e8, 3e8 + 50, 7e11]), 255), (-np.array([7e11, 3e8, 2e8]), 0)):
        values = far.reshape(-1, 1, 1)
        stabilised = noise.stabilised(values)
        expected = np.diff(far) / level(end)
        np.testing.assert_allclose(np.diff(stabilised.ravel()), expected, rtol=1e-3)
        np.testing.assert_allclose(noise.restored(stabilised), values, rtol=1e-8)


@pytest.mark.parametrize("noise", [Shot(1.0), Varying([0, 2e14], [1e7, 1e7])], ids=str)
def test_noise_that_single_precision_cannot_show_is_not_rounded_away(noise):
    pair = np.array([1e14, 1e14 + 1e7]).reshape(2, 1, 1)  # the noise there is 1e7
    image = np.concatenate([pair, np.zeros((1, 1, 1))])
    stabilised = noise.stabilised(image).ravel()
    assert stabilised[1] - stabilised[0] == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    "noise",
    [
        Shot([1.0, 2.0, 5.0], [0.0, 1.0, 3.0], [0.0, 10.0, -5.0]),
        Varying([[0, 100], [0, 200], [50, 60]], [[1, 2], [3, 1], [2, 2]]),
    ],
    ids=str,
)
def test_channels_have_their_own_parameters(noise, rng):
    image = rng.uniform(20, 200, size=(30, 20, 3))
    for way in ("stabilised", "restored"):
        together = getattr(noise, way)(image)
        for c in range(3):
            parameters = [field.name for field in fields(noise) if not field.kw_only]
            alone = type(noise)(*(np.asarray(getattr(noise, name))[c] for name in parameters))
            found = getattr(alone, way)(image[..., c : c + 1])
            np.testing.assert_allclose(together[..., c : c + 1], found, rtol=1e-6)


@pytest.mark.parametrize("noise", [Shot(2.0, 3.0, 5.0), varying(rising)], ids=str)
def test_dask_arrays_are_stabilised_as_arrays_are(noise, rng):
    da = pytest.importorskip("dask.array")
    image = rng.uniform(10, 250, size=(40, 30, 1))
    for way in ("stabilised", "restored"):
        lazy = getattr(noise, way)(da.from_array(image, chunks=(15, 20, 1)))
        assert isinstance(lazy, da.Array)
        expected = getattr(noise, way)(image)
        found = lazy.compute()
        assert lazy.dtype == found.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("noise", [Shot(2.0, 3.0, 5.0), varying(rising)], ids=str)
def test_correlated_noise_is_stabilised_by_its_stabiliser(noise, rng):
    image = rng.uniform(10, 250, size=(20, 10, 1))
    correlated = Correlated(autocovariance=[[1.0]], stabiliser=noise)
    np.testing.assert_array_equal(correlated.stabilised(image), noise.stabilised(image))
    np.testing.assert_array_equal(correlated.restored(image), noise.restored(image))
    plain = Correlated(autocovariance=[[1.0]])
    assert plain.stabilised(image) is plain.restored(image) is image
