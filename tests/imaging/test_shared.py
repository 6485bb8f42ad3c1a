"""One transform for several images."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from skimage.data import camera

import kappaform as kf
from kappaform.imaging import shared
from kappaform.imaging.metrics import psnr
from kappaform.imaging.training import Amount

CLEAN = camera()[100:228, 150:278].astype(float)


def noisy(seed=0, shape=(60, 60)):
    return kf.add_noise(CLEAN[: shape[0], : shape[1]], 15, rng=seed)


def counts_of(monkeypatch, images, **options):
    """How many patches of each image were learned from."""
    seen = []

    def watched(rounds, *_):
        seen.extend([len(drawn.patches) for drawn in parts] for parts in rounds)
        raise InterruptedError

    with monkeypatch.context() as patched:
        patched.setattr(shared, "learned_in_rounds", watched)
        with pytest.raises(InterruptedError):
            kf.learn_from_images(images, 15, **options)
    assert all(counts == seen[0] for counts in seen)  # of all rounds
    return seen[0]


@pytest.mark.parametrize("options", [{"sigma": 15}, {"noise": kf.Shot(1.5)}, {"noise": "white"}])
def test_a_stack_that_shares_is_denoised_by_what_is_learned_from_its_images(options):
    stack = np.stack([noisy(seed) for seed in range(3)])
    learned = kf.learn_from_images(iter(stack), patch_size=5, **options)
    options = {"patch_size": 5, "stack_axis": 0, "quality": "fast", **options}
    expected = kf.denoise(stack, transform=learned, **options)
    together = kf.denoise(stack, share=True, **options)
    assert_array_equal(together, expected)


def test_images_may_have_any_size_and_are_looked_at_once():
    sizes = [(60, 60), (40, 90), (90, 33)]
    given = []

    def images():
        for seed, size in enumerate(sizes):
            given.append(size)
            yield noisy(seed, size)

    learned = kf.learn_from_images(images(), 15, patch_size=5, max_condition=1.5)
    assert given == sizes
    assert learned.transform.shape == (25, 25)
    assert learned.condition_number <= 1.5 * (1 + 1e-9)


def test_every_image_gives_equally_many_patches(monkeypatch):
    monkeypatch.setattr(shared, "FOR_PATCHES", Amount(2, 700))
    images = [noisy(seed) for seed in range(7)]
    assert counts_of(monkeypatch, images, patch_size=5) == [100] * 7
    assert counts_of(monkeypatch, images[:1], patch_size=5) == [700]
    colours = [np.stack(images[:3], axis=-1), np.stack(images[3:6], axis=-1)]
    counts = counts_of(monkeypatch, colours, patch_size=5, channel_axis=-1)
    assert counts == [117] * 6  # a third of 350, rounded up


def test_small_images_give_what_they_have(monkeypatch):
    monkeypatch.setattr(shared, "FOR_PATCHES", Amount(2, 700))
    assert counts_of(monkeypatch, [noisy(0, (12, 12)), noisy(1)], patch_size=5) == [64, 350]


def test_the_transform_of_others_denoises_as_well_as_the_own_one():
    learned = kf.learn_from_images((noisy(seed, (100, 100)) for seed in (1, 2)), 15, patch_size=8)
    image = noisy(3, (100, 100))
    own, other = (kf.denoise(image, 15, patch_size=8, transform=each) for each in (None, learned))
    clean = CLEAN[:100, :100]
    assert psnr(clean, other) > psnr(clean, own) - 0.1
    assert psnr(clean, other) > psnr(clean, image) + 4


def test_noise_is_estimated_in_each_image():
    images = [noisy(), kf.add_noise(CLEAN, 2.0, rng=1)]
    sigmas = [kf.estimate_sigma(image) for image in images]
    assert sigmas[0] > 4 * sigmas[1]
    constant = np.full((50, 50), 7.0)
    learned = kf.learn_from_images([*images, constant], noise="white", patch_size=5)
    # In units of their noise, which is what patches are learned from, noise is the same in all.
    units = [image / sigma for image, sigma in zip(images, sigmas, strict=True)]
    expected = kf.learn_from_images([*units, constant], 1.0, patch_size=5)
    np.testing.assert_allclose(learned.transform, expected.transform, atol=1e-4)
    other = kf.learn_from_images([*images, constant], sigmas[0], patch_size=5)
    assert np.abs(learned.transform - other.transform).max() > 0.01


def test_dask_images_are_learned_from_as_arrays_are():
    da = pytest.importorskip("dask.array")
    images = [noisy(seed) for seed in range(2)]
    expected = kf.learn_from_images(images, 15, patch_size=5)
    chunked = (da.from_array(image, chunks=25) for image in images)
    assert_array_equal(
        kf.learn_from_images(chunked, 15, patch_size=5).transform, expected.transform
    )


@pytest.mark.parametrize("number", [0, 1])
def test_colours_of_dask_are_rejected_as_denoise_rejects_them(number):
    da = pytest.importorskip("dask.array")
    images = [np.stack([noisy(seed) for seed in range(3)], axis=-1)] * 2
    images[number] = da.from_array(images[number])
    for function, given in ((kf.learn_from_images, images), (kf.denoise, images[number])):
        with pytest.raises(ValueError, match=r"channel_axis=-1 with a Dask image: .*compute\(\)"):
            function(given, 15, channel_axis=-1)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        ([], {}, "images is empty: give at least one image"),
        ([np.zeros((20, 20))], {}, "images have no noise, so there is nothing to learn from"),
        ([noisy(), noisy()[:8]], {}, "patch_size=(10, 10) is larger than the image: give at most"),
        ([noisy(), np.zeros((20, 20, 20))], {}, "image has 3 dimensions of space, the first one 2"),
        ([noisy(), noisy() * np.nan], {}, "image contains NaN or inf"),
        ([noisy()], {"noise": kf.White(1)}, "give one of them"),
    ],
)
def test_what_cannot_be_learned_from_is_rejected(images, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kf.learn_from_images(images, 15, **options)


def test_sharing_learns_and_takes_no_transform():
    with pytest.raises(ValueError, match="share=True learns a transform: leave out transform"):
        kf.denoise(noisy()[np.newaxis], 15, stack_axis=0, share=True, transform=np.eye(100))


# --- Missing pixels


def test_patches_with_missing_pixels_are_not_learned_from():
    noisy = kf.add_noise(camera()[:72, :72].astype(float), 20)
    mask = np.zeros(noisy.shape, bool)
    mask[:30, 20:45] = True
    found = []
    for value in (0.0, 1e4):
        images = [np.where(mask, value, noisy), noisy.T]
        found.append(kf.learn_from_images(images, 20, mask=[mask, None]).transform)
    holes = [np.where(mask, np.nan, noisy), noisy.T]
    found.append(kf.learn_from_images(iter(holes), 20, mask="nan").transform)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    # Noise is estimated where nothing is missing.
    result = kf.learn_from_images(holes, mask="nan", noise="white")
    assert np.isfinite(result.transform).all()


def test_masks_of_several_images_are_checked():
    noisy = kf.add_noise(camera()[:40, :40].astype(float), 20)
    mask = np.zeros(noisy.shape, bool)
    with pytest.raises(ValueError, match="mask has 1 entries, fewer than images"):
        kf.learn_from_images([noisy, noisy], 20, mask=[mask])
    with pytest.raises(ValueError, match="mask has more entries than images"):
        kf.learn_from_images([noisy], 20, mask=[mask, mask])
    with pytest.raises(ValueError, match="'all' is unknown"):
        kf.learn_from_images([noisy], 20, mask="all")
    mask[::5, ::5] = True
    with pytest.raises(ValueError, match="no patches without missing pixels"):
        kf.learn_from_images([noisy], 20, mask=[mask])
    with pytest.raises(ValueError, match="NaN or inf"):
        kf.learn_from_images([np.where(mask, np.nan, noisy)], 20)
