"""How much of the noise is removed, from luminance and from colours."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import kappaform as kf
from kappaform.imaging import training

LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
QUICK = {"quality": "fast", "patch_size": 4}


@pytest.fixture(autouse=True)
def little_learning(monkeypatch):
    for name in ("FOR_PATCHES", "FOR_GROUPS"):
        little = getattr(training, name)._replace(n_iter=1, n_coarse_iter=1)
        monkeypatch.setattr(training, name, little)


@pytest.fixture(scope="module")
def colour():
    steps = 40.0 * np.add.outer(np.arange(32) // 8, np.arange(40) // 10)
    clean = np.stack([steps, 200 - steps / 2, steps / 2 + 30], axis=-1)
    return kf.add_noise(clean, 15, rng=0)


@pytest.fixture(scope="module")
def grey(colour):
    return colour[..., 1]


def denoised(image, **options):
    return kf.denoise(image, 15, **QUICK, **options)


def of_colour(image, **options):
    return denoised(image, channel_axis=-1, **options)


@pytest.mark.parametrize("given", [{"strength": 1}, {"strength": 1.0, "colour_strength": 1}])
def test_full_strength_is_the_denoised_image_bit_by_bit(colour, given):
    assert_array_equal(of_colour(colour, **given), of_colour(colour))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_without_strength_the_image_stays_as_it_is(grey, dtype):
    image = np.clip(grey, 0, 255).astype(dtype)
    assert_array_equal(denoised(image, strength=0), image)


@pytest.mark.parametrize("n_channels", [2, 3, 4])
def test_luminance_and_colours_go_their_own_fractions_of_the_way(colour, n_channels):
    image = np.concatenate([colour, colour[..., :1] + 3], axis=-1)[..., :n_channels]
    weights = LUMINANCE if n_channels == 3 else np.full(n_channels, 1 / n_channels)
    change = of_colour(image) - image
    light = np.repeat((change @ weights)[..., np.newaxis], n_channels, axis=-1)
    found = of_colour(image, strength=0.8, colour_strength=0.3)
    assert_allclose(found, image + 0.8 * light + 0.3 * (change - light), rtol=0, atol=1e-9)


def test_without_strength_only_colours_change(colour):
    found = of_colour(colour, strength=0, colour_strength=1)
    assert_allclose((found - colour) @ LUMINANCE, 0, atol=1e-9)
    assert np.abs(found - colour).max() > 5


def test_without_colour_strength_only_luminance_changes(colour):
    change = of_colour(colour, strength=1, colour_strength=0) - colour
    assert_allclose(change - change[..., :1], 0, atol=1e-9)  # the same in every channel
    assert np.abs(change).max() > 5


@pytest.mark.parametrize("name", ["strength", "colour_strength"])
def test_more_strength_removes_more(colour, name):
    fractions = (0, 0.25, 0.6, 1)
    others = {"strength": 0.5, "colour_strength": 0.5}
    images = [of_colour(colour, **(others | {name: each})) for each in fractions]
    distances = [np.linalg.norm(image - images[0]) for image in images]
    assert_allclose(distances, np.array(fractions) * distances[-1], atol=1e-9)
    assert distances[-1] > 0


def test_one_strength_is_that_of_luminance_and_colours(colour):
    assert_array_equal(
        of_colour(colour, strength=0.6), of_colour(colour, strength=0.6, colour_strength=0.6)
    )


def test_missing_pixels_are_filled_whatever_the_strength(grey):
    mask = np.zeros(grey.shape, bool)
    mask[8:10, 8:12] = True
    whole, half = (denoised(grey, mask=mask, strength=each) for each in (1, 0.5))
    assert_array_equal(half[mask], whole[mask])
    assert_allclose(half[~mask], (grey + whole)[~mask] / 2, rtol=1e-12)


def test_a_range_of_values_holds_at_every_strength(grey):
    for strength in (0, 0.5, 1):
        found = denoised(grey, value_range=(20, 150), strength=strength)
        assert found.min() >= 20
        assert found.max() <= 150


def test_stacks_movies_volumes_and_the_preset_have_a_strength(grey):
    frames = np.stack([grey, grey[::-1]])
    for options in (
        {"stack_axis": 0},
        {"stack_axis": 0, "movie": True},
        {"patch_size": (2, 4, 4)},
        {"stack_axis": 0, "preset": "paper", "quality": None},
    ):
        options = QUICK | options
        whole, half = (kf.denoise(frames, 15, strength=each, **options) for each in (1.0, 0.5))
        assert_allclose(half, (frames + whole) / 2, rtol=1e-9)


def test_dask_images_have_a_strength(grey):
    array = pytest.importorskip("dask.array")
    image = array.from_array(grey, chunks=16)
    whole, half = (denoised(image, strength=each) for each in (1.0, 0.5))
    assert_allclose(half.compute(), (grey + whole.compute()) / 2, rtol=1e-9)


def test_tensors_have_a_strength(colour):
    torch = pytest.importorskip("torch")
    found = of_colour(torch.tensor(colour), strength=0.5, colour_strength=1)
    assert isinstance(found, torch.Tensor)
    assert_array_equal(found.numpy(), of_colour(colour, strength=0.5, colour_strength=1))


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan, True, [0.5, 1]])
@pytest.mark.parametrize("name", ["strength", "colour_strength"])
def test_a_strength_is_a_fraction(colour, name, value):
    with pytest.raises(ValueError, match=rf"^{name}=.*: give a number from 0 \(the input\) to 1"):
        of_colour(colour, **{name: value})


def test_grey_images_have_no_colour_strength(grey):
    with pytest.raises(ValueError, match=r"^colour_strength=0.5: the image has one channel and no"):
        denoised(grey, colour_strength=0.5)
