"""Noise that is measured in bursts, flat frames and dark frames."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.ndimage import convolve, gaussian_filter

import kappaform as kf

ROWS, COLUMNS = np.indices((160, 192))
SCENE = 40 + 30 * np.sin(ROWS / 5) + COLUMNS / 2 + 60 * ((ROWS // 20 + COLUMNS // 24) % 2)
MIX = np.array([[1, 0.6, 0.1], [0, 1, 0.5], [0, 0, 1]])  # noise that channels share
BLUR = np.array([[0.0, 0.0, 0.0], [0.0, 0.8, 0.6], [0.0, 0.0, 0.0]])  # of a pixel and its neighbour


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def burst(rng, n_frames=4, scene=SCENE, sigma=7.0):
    return [scene + sigma * rng.standard_normal(scene.shape) for _ in range(n_frames)]


def coloured(rng):
    """Unit noise of three channels, shared by neighbours in a row and by channels."""
    normal = rng.standard_normal((*SCENE.shape, 3)) @ MIX
    return np.stack([convolve(normal[..., c], BLUR, mode="wrap") for c in range(3)], axis=-1)


@pytest.mark.parametrize("n_frames", [2, 3, 8])
def test_white_noise_of_a_burst(rng, n_frames):
    noise = kf.measure_noise(burst(rng, n_frames))
    assert isinstance(noise, kf.White)
    assert_allclose(noise.sigma, 7, rtol=0.02)
    assert noise.evidence.startswith(f"measured in {n_frames} frames of 1 still scene")


def test_copies_of_a_frame_are_said(rng):
    frame, other = burst(rng, 2)
    with pytest.warns(UserWarning, match=r"images\[2\] \(counted from 0\) is a copy of another"):
        kf.measure_noise([frame, other, frame.copy()])
    with pytest.warns(UserWarning, match="of another image, and so are 2 more: copies") as caught:
        kf.measure_noise([frame, other, frame, other, other])
    assert len(caught) == 1
    black = np.zeros((64, 64))  # dark frames without an offset are equal
    assert kf.measure_noise([black, black], frames="burst").level(np.zeros(1)) == 0


def test_shot_noise_of_a_burst(rng):
    frames = [3 * rng.poisson(SCENE / 3) + 5 * rng.standard_normal(SCENE.shape) for _ in range(6)]
    noise = kf.measure_noise(frames)
    assert isinstance(noise, kf.Shot)
    assert_allclose([noise.gain, noise.read_noise], [3, 5], rtol=0.1)


def test_noise_of_any_dependence_on_brightness(rng):
    size = 3 + 8 * np.exp(-((SCENE - 90) ** 2) / 1000)
    noise = kf.measure_noise(burst(rng, 6, sigma=size))
    assert isinstance(noise, kf.Varying)
    at = np.array([50.0, 90.0, 150.0])
    assert_allclose(
        [noise.level(np.array([x]))[0] for x in at],
        3 + 8 * np.exp(-((at - 90) ** 2) / 1000),
        rtol=0.1,
    )


def test_covariance_of_pixels_and_channels(rng):
    scene = np.stack([SCENE, SCENE / 2, 200 - SCENE], axis=-1)
    noise = kf.measure_noise([scene + 4 * coloured(rng) for _ in range(4)], channel_axis=-1)
    assert isinstance(noise, kf.Correlated)
    assert noise.stabiliser is None
    found = np.asarray(noise.autocovariance)
    between = 16 * MIX.T @ MIX
    assert_allclose(found[:, :, 15, 15], between, atol=0.6)
    for columns in (14, 16):
        assert_allclose(found[:, :, 15, columns], 0.48 * between, atol=0.6)
    assert np.abs(found[:, :, 12]).max() < 0.6
    assert_allclose(noise.level(np.zeros(3)), np.sqrt(np.diag(between)), rtol=0.03)


def test_a_delay_between_channels_has_its_direction(rng):
    first = rng.standard_normal((2, *SCENE.shape))
    frames = [np.stack([SCENE + each, SCENE + np.roll(each, 2, 0)], -1) for each in first]
    noise = kf.measure_noise(frames, channel_axis=-1)
    found = np.asarray(noise.autocovariance)
    assert found[0, 1, 17, 15] > 0.8  # channel 1 repeats channel 0 two rows below
    assert abs(found[0, 1, 13, 15]) < 0.1
    covariance = noise._of_patch((3, 1))
    assert_allclose(covariance[0, 1, 0, 2], found[0, 1, 17, 15])  # from row 0 to row 2
    assert_allclose(covariance[1, 0, 2, 0], found[0, 1, 17, 15])


def test_half_precision_is_measured_as_double(rng):
    frames = [each.astype(np.float16) for each in burst(rng)]
    as_double = kf.measure_noise([each.astype(np.float64) for each in frames])
    noise = kf.measure_noise(frames)
    assert noise.evidence == as_double.evidence
    assert_allclose(noise.sigma, as_double.sigma, rtol=1e-6)


def test_the_offset_of_large_colour_frames_is_summed_in_double_precision(rng):
    dark = np.full((1000, 1000, 3), 100.3, np.float32)
    dark[::2] += 1  # in single precision, their mean is 101.6
    frames = [flat(rng, light)[..., np.newaxis] * [1, 1, 1] for light in (50, 500)]
    noise = kf.measure_noise(frames, dark=[dark], frames="flat", channel_axis=-1)
    assert_allclose(noise.stabiliser.offset, 100.8, rtol=1e-6)


def test_a_tile_without_light_and_noise_is_no_division_by_zero(rng):
    """In 8 bits, a camera may store black as 0, below the light that the noise ends at."""
    photons = [rng.poisson(SCENE / 4) for _ in range(4)]
    frames = [(10 + 2 * each).clip(0, 255).astype(np.uint8) for each in photons]
    noise = kf.measure_noise(frames, dark=[np.zeros((64, 64), np.uint8)] * 2)
    assert_allclose((noise.gain, noise.read_noise), (2, 0), atol=0.1)


@pytest.mark.parametrize("exponent", [-1050, -700, 700, 1010])
def test_noise_of_scaled_images_is_scaled(rng, exponent):
    frames = [2.5 * rng.poisson(SCENE / 2.5) for _ in range(3)]
    noise, far = kf.measure_noise(frames), kf.measure_noise(np.ldexp(frames, exponent))
    assert_allclose(np.ldexp(far.gain, -exponent), noise.gain, rtol=1e-4)


def test_correlated_noise_of_any_scale_is_measured(rng):
    frames = [SCENE + 9 * gaussian_filter(rng.standard_normal(SCENE.shape), 1) for _ in range(3)]
    noise, far = kf.measure_noise(frames), kf.measure_noise(np.multiply(frames, 1e200))
    middle = np.array([100.0])
    assert_allclose(far.level(1e200 * middle) / 1e200, noise.level(middle))


def test_measured_noise_is_a_covariance_for_every_usual_patch(rng):
    frames = [SCENE + 4 * gaussian_filter(rng.standard_normal(SCENE.shape), 1.5) for _ in range(2)]
    noise = kf.measure_noise(frames)
    for side in (4, 11, 16):
        assert noise.mixed(np.ones(1), (side, side))[0] > 0  # rejects what is not positive
    with pytest.raises(ValueError, match=r"distance of 15, .*: a patch_size of at most 16"):
        noise.mixed(np.ones(1), (32, 32))


def flat(rng, light):
    """2.5 values for a photon, vignetting, offset 100 and read noise 3."""
    shading = 1 - 0.3 * ((ROWS / 160 - 0.5) ** 2 + (COLUMNS / 192 - 0.4) ** 2)
    photons = rng.poisson(light * shading)
    return 2.5 * photons + 100 + 3 * rng.standard_normal(SCENE.shape)


def test_flat_frames_and_dark_frames(rng):
    flats = [flat(rng, light) for light in (30, 100, 300, 1000)]
    dark = [flat(rng, 0) for _ in range(2)]
    noise = kf.measure_noise(flats, dark=dark)
    assert isinstance(noise, kf.Shot)
    assert_allclose([noise.gain, noise.read_noise, noise.offset], [2.5, 3, 100], rtol=0.05)
    assert noise.evidence.startswith("measured in 4 flat frames and 2 dark frames")
    alone = kf.measure_noise([], dark=dark)
    assert isinstance(alone, kf.White)
    assert_allclose(alone.sigma, 3, rtol=0.03)
    without = kf.measure_noise(flats, frames="flat")  # only the line of variances is known
    at = np.array([500.0])
    assert_allclose(without.level(at), noise.level(at), rtol=0.03)


def test_flat_frames_of_the_same_exposure_are_a_burst(rng):
    noise = kf.measure_noise([flat(rng, light) for light in (50, 50, 500, 500)])
    assert noise.evidence.startswith("measured in 4 frames of 2 still scenes")
    assert_allclose(noise.gain, 2.5, rtol=0.05)


def test_what_is_neither_is_estimated_from_all_images():
    images = [kf.add_noise(image, 12, rng=n) for n, image in enumerate((SCENE, SCENE[::-1, :150]))]
    noise = kf.measure_noise(images)
    assert_allclose(noise.sigma, 12, rtol=0.1)
    assert noise.evidence.startswith("estimated from 2 images; ")


def test_other_images_do_not_count_next_to_a_burst(rng):
    noise = kf.measure_noise([*burst(rng, 2), kf.add_noise(SCENE[::-1], 30)])
    assert_allclose(noise.sigma, 7, rtol=0.02)
    assert "; 1 other images not used" in noise.evidence


def test_a_lamp_that_flickers_is_no_noise(rng):
    frames = [frame + step for frame, step in zip(burst(rng), (0, 2, -1, 3), strict=True)]
    assert_allclose(kf.measure_noise(frames).sigma, 7, rtol=0.02)


def test_clipped_values_do_not_lower_the_noise(rng):
    scene = np.clip(1.5 * SCENE - 60, 0, 200)
    frames = [np.clip(np.rint(each), 0, 180).astype(np.uint8) for each in burst(rng, 4, scene)]
    noise = kf.measure_noise(frames)
    assert_allclose(noise.level(np.array([100.0])), 7, rtol=0.05)
    assert isinstance(noise, kf.White)


def test_a_camera_that_moves_is_noticed(rng):
    frames = [np.roll(each, n, axis=1) for n, each in enumerate(burst(rng, 3))]
    with pytest.warns(UserWarning, match="images are displaced against each other"):
        kf.measure_noise(frames, frames="burst")


def test_identical_images_have_no_noise():
    with pytest.warns(UserWarning, match="is a copy of another"):
        noise = kf.measure_noise([SCENE, SCENE])
    assert isinstance(noise, kf.White)
    assert noise.sigma == 0


def test_many_channels_are_independent(rng):
    images = [np.stack([SCENE] * 6, -1) + 3 * np.repeat(coloured(rng), 2, -1) for _ in range(2)]
    noise = kf.measure_noise(images, channel_axis=-1)
    assert np.ndim(noise.autocovariance) == 2
    assert noise.level(np.zeros(6)).shape == (6,)


def test_frames_of_a_movie_have_the_noise_of_an_image(rng):
    scene = np.stack([SCENE, SCENE / 2, 200 - SCENE], axis=-1)[:24, :24]
    noise = kf.measure_noise(
        [scene + 4 * coloured(rng)[:24, :24] for _ in range(4)], channel_axis=-1
    )
    frames = np.stack([scene, scene]) + 4
    options = {"noise": noise, "quality": "fast", "patch_size": 4, "channel_axis": -1}
    assert kf.denoise(frames, stack_axis=0, movie=True, **options).shape == frames.shape


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([], {}, "images is empty"),
        ([SCENE], {"frames": "burst"}, "frames='burst': an image has no other one"),
        ([SCENE], {"frames": "darks"}, "frames='darks' is unknown"),
        ([SCENE, SCENE[::-1]], {"dark": [SCENE]}, "dark frames are used with a burst or flat"),
        ([SCENE, np.stack([SCENE] * 3, -1)[..., :2]], {}, "different numbers of channels|shape"),
        ([SCENE, np.full((4, 4), np.nan)], {}, r"images\[1\] contains NaN or inf: leave it out"),
        (SCENE, {}, r"images has shape \(160, 192\), that of a single image: .*, \[images\]"),
        ([SCENE], {"dark": SCENE}, r"dark has shape \(160, 192\), that of a single image"),
        (
            np.zeros((9, 9, 3)),
            {"channel_axis": -1},
            r"images has shape \(9, 9, 3\), that of a single",
        ),
        ([np.zeros((9, 9, 9))], {}, "give planes"),
    ],
)
def test_what_cannot_be_measured_is_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        kf.measure_noise(arguments, **options)


@pytest.mark.parametrize("images", [None, 3, "burst/"])
def test_what_is_no_sequence_of_images_is_named(images):
    with pytest.raises(TypeError, match=f"images={images!r}: give a sequence of images"):
        kf.measure_noise(images)
