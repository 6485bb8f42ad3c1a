"""What thresholding keeps of the signal and of the noise, and what follows from it."""

import numpy as np
import pytest
from skimage import data

import kappaform as kf
from kappaform.imaging.cleaning.patchwise import NOISE, THRESHOLD, Kept
from kappaform.imaging.cleaning.tiles import HostBackend
from kappaform.imaging.training import kept_of

BASIS = kf.dct_basis((8, 8))


def with_signal(size, share, rng, n_patches=20_000):
    """Mean-free patches with noise, and the signal of their coefficients."""
    signal = size * rng.laplace(size=(n_patches, 64)) * (rng.random((n_patches, 64)) < share)
    signal[:, 0] = 0
    patches = signal @ BASIS + rng.standard_normal(signal.shape)
    return (patches - patches.mean(1, keepdims=True)).astype(np.float32), signal


@pytest.mark.parametrize("scale", [1.0, 7.0])
@pytest.mark.parametrize(("size", "share"), [(2, 0.03), (2, 0.1), (4, 0.05), (10, 0.2)])
def test_what_is_kept_of_a_signal_is_known_without_the_signal(size, share, scale, rng):
    patches, signal = with_signal(size, share, rng)
    noisy = patches @ BASIS.T
    above = abs(noisy) > THRESHOLD
    factor = (signal * noisy * above).sum() / (signal**2).sum()
    kept = kept_of(patches, scale * BASIS, None)
    # A few coefficients near the threshold are signal, and half a percent of sigma may be noise.
    assert kept.signal == pytest.approx(max(factor, 0.5), abs=0.06)
    by_chance = 63 * 2 * 0.003467 * len(patches)  # the normal distribution beyond 2.7
    assert kept.noise == pytest.approx(by_chance / above.sum(), rel=0.02)


def test_noise_alone_counts_as_kept(rng):
    patches, _ = with_signal(0, 0, rng)
    signal, noise = kept_of(patches, BASIS, None)
    assert signal > 0.8
    assert noise > 0.95
    assert kept_of(np.zeros_like(patches), BASIS, None) == (1, 1)


def test_of_correlated_noise_nothing_is_said(rng):
    assert kept_of(rng.standard_normal((9, 64)), BASIS, np.eye(64)) is None


def test_what_a_tensor_keeps_is_what_the_array_keeps(rng):
    torch = pytest.importorskip("torch")
    patches, _ = with_signal(2, 0.1, rng, 5000)
    expected = kept_of(patches, BASIS, None)
    assert kept_of(torch.tensor(patches), BASIS, None) == pytest.approx(expected, rel=1e-5)


def test_the_more_of_the_signal_is_lost_the_less_noise_is_assumed():
    noises = [Kept(signal, 0.5).wiener_noise for signal in (0.5, 0.7, 0.9, 1.0)]
    assert noises == sorted(noises)
    assert noises[0] < NOISE / 2


def test_texture_that_thresholding_loses_is_kept_by_the_filter(monkeypatch):
    clean = data.grass()[:128, :128].astype(float)
    noisy = kf.add_noise(clean, 80, rng=0)
    found = np.std(kf.denoise(noisy, 80, quality="fast") - clean)
    monkeypatch.setattr(Kept, "wiener_noise", NOISE)
    without = np.std(kf.denoise(noisy, 80, quality="fast") - clean)
    assert found < 0.995 * without


@pytest.mark.parametrize(("sigma", "filtered"), [(10, False), (100, True)])
def test_groups_follow_a_filter_where_noise_is_strong(sigma, filtered, monkeypatch):
    guides, sweep = [], HostBackend.sweep

    def watched(image, patch_shape, denoise, guide, *rest):
        if image.shape == clean.shape:
            guides.append(guide)
        return sweep(image, patch_shape, denoise, guide, *rest)

    clean = data.camera()[100:196, 180:276].astype(float)
    monkeypatch.setattr(HostBackend, "sweep", staticmethod(watched))
    kf.denoise(kf.add_noise(clean, sigma, rng=0), sigma, quality="balanced")
    assert [guide is None for guide in guides] == [True, False][: 1 + filtered]
