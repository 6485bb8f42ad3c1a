"""Many channels: time and memory grow in proportion to their number, and noise is still found."""

import numpy as np
import pytest
from helpers import peak_bytes
from scipy.ndimage import gaussian_filter

import kappaform as kf
from kappaform import Correlated, Shot, White

FAST = {"quality": "fast", "patch_size": 5, "channel_axis": -1}


@pytest.fixture(scope="module")
def clean():
    """Mixtures of two patterns in 12 channels."""
    rows, columns = np.indices((64, 64))
    patterns = np.stack([np.sin(rows / 9), np.cos(columns / 7)], axis=-1)
    return 100 + 40 * patterns @ np.random.default_rng(3).uniform(0.3, 1, (2, 12))


def test_white_noise_of_every_channel_is_found(clean, rng):
    sigmas = np.linspace(5, 16, 12)
    found = kf.estimate_noise(clean + sigmas * rng.standard_normal(clean.shape), channel_axis=-1)
    assert isinstance(found, White)
    np.testing.assert_allclose(found.sigma, sigmas, rtol=0.25)


def test_photons_of_many_channels_are_found(rng):
    ramp = np.linspace(0.02, 1, 160)[:, np.newaxis, np.newaxis] * np.ones((160, 6))
    found = kf.estimate_noise(3 * rng.poisson(40 * ramp), channel_axis=-1)
    assert isinstance(found, Shot)
    np.testing.assert_allclose(found.gain, 3, rtol=0.1)


def test_correlated_noise_of_every_channel_is_found_and_removed(rng):
    sigmas = np.linspace(4, 15, 6)
    noise = gaussian_filter(rng.standard_normal((128, 128, 6)), (1, 1, 0))
    noise *= sigmas / noise.std(axis=(0, 1))
    clean = 100 + 50 * np.sin(np.arange(128) / 20)[:, np.newaxis, np.newaxis] * np.ones((128, 6))
    found = kf.denoise_with_details(clean + noise, **{**FAST, "patch_size": 8})
    assert isinstance(found.noise, Correlated)
    assert found.noise.covariance.shape == (6, 64, 64)
    np.testing.assert_allclose(found.sigma, sigmas, rtol=0.25)
    assert (np.std(found.image - clean, axis=(0, 1)) < 0.6 * sigmas).all()


def test_one_covariance_for_each_channel_is_that_of_independent_channels(clean, rng):
    noisy = clean[..., :3] + 8 * rng.standard_normal((64, 64, 3))
    each = np.stack([(10 + c) * np.eye(25) for c in range(3)])
    pairs = np.zeros((3, 3, 25, 25))
    pairs[range(3), range(3)] = each
    found, expected = (
        kf.denoise_with_details(noisy, noise=Correlated(m), **FAST) for m in (each, pairs)
    )
    np.testing.assert_allclose(found.image, expected.image, atol=1e-6)
    np.testing.assert_allclose(found.sigma, expected.sigma)
    assert str(found.noise) == str(expected.noise)


def test_a_channel_without_noise_is_left_alone_among_many(rng):
    noise = gaussian_filter(rng.standard_normal((128, 128, 6)), (1, 1, 0))
    image = 100 + 10 * noise / noise.std()
    image[..., 2] = 7
    found = kf.denoise_with_details(image, noise="correlated", **FAST)
    assert found.noise.covariance.shape == (6, 25, 25)
    np.testing.assert_array_equal(found.image[..., 2], 7)
    assert found.sigma[2] == 0
    few = image[..., :3]
    assert (
        kf.estimate_noise(few, kind="correlated", channel_axis=-1, patch_size=5).covariance.ndim
        == 4
    )


@pytest.mark.parametrize("kind", [None, "correlated"])
def test_memory_of_an_estimate_grows_in_proportion_to_the_channels(kind, rng):
    image = rng.standard_normal((40, 40, 15))

    def peak(n):
        some = image[..., :n]
        return peak_bytes(lambda: kf.estimate_noise(some, kind=kind, channel_axis=-1, patch_size=7))

    peak(5)  # what is imported on first use
    few, many = peak(5), peak(15)
    assert many < 3.5 * few


def test_no_matrix_of_all_channels_is_decomposed_to_estimate_noise(rng, monkeypatch):
    sides, eigh = [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda a: (sides.append(a.shape[-1]), eigh(a))[1])
    image = rng.standard_normal((48, 48, 30))
    kf.estimate_noise(image, kind="correlated", channel_axis=-1, patch_size=6)
    assert max(sides) == 36
    assert len(sides) == 30


def test_components_beyond_the_strongest_share_a_transform(clean, rng):
    noisy = clean + 10 * rng.standard_normal(clean.shape)
    found = kf.denoise_with_details(noisy, 10.0, **FAST)
    assert len(found.transforms) == 12
    assert len({each.tobytes() for each in found.transforms}) == 5
    few = kf.denoise_with_details(noisy[..., :4], 10.0, **FAST)
    assert len({each.tobytes() for each in few.transforms}) == 4
    assert len(found.history) == 5 / 4 * len(few.history)  # as much learning as of five channels
    apart = kf.denoise(noisy, 10.0, stack_axis=-1, quality="fast", patch_size=5)
    assert np.std(found.image - clean) < 0.8 * np.std(apart - clean)


@pytest.mark.parametrize("n_channels", [4, 5])
def test_the_limit_between_few_and_many_channels_is_that_of_colours(n_channels, rng):
    noise = gaussian_filter(rng.standard_normal((100, 100, n_channels)), (1, 1, 0))
    found = kf.estimate_noise(noise, kind="correlated", channel_axis=-1, patch_size=8)
    assert found.covariance.ndim == (4 if n_channels == 4 else 3)
    np.testing.assert_allclose(found.level(np.zeros(n_channels)), noise.std(axis=(0, 1)), rtol=0.25)
