"""Images without noise come back as they were, whatever they show, and the estimate says why."""

import io
from functools import cache

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy.ndimage import gaussian_filter
from skimage import data
from skimage.transform import resize

from kappaform import Correlated, White, add_noise, denoise, denoise_with_details, estimate_noise

FAST = {"quality": "fast", "patch_size": 5}
COLOUR = np.s_[:128, 200:328]


def as_bytes(image):
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def compressed(image, quality):
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(file, "JPEG", quality=quality)
    return np.array(Image.open(file))


@cache
def screenshot():
    image = Image.new("RGB", (320, 240), (240, 240, 240))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 320, 24), fill=(40, 60, 120))
    draw.rectangle((10, 40, 200, 230), fill="white", outline=(120, 120, 120))
    for line in range(14):
        draw.text((16, 46 + 13 * line), f"def f(x): return x + 1  # line {line}", fill=(20, 20, 20))
    for top in range(50, 210, 32):
        draw.rounded_rectangle((215, top, 310, top + 24), 4, fill=(70, 130, 180))
        draw.text((225, top + 6), "Button", fill="white")
    return np.array(image)


def drawing():
    image = Image.new("RGB", (160, 160), "white")
    draw = ImageDraw.Draw(image)
    for n in range(8):
        draw.ellipse((10 + 8 * n, 20 + 6 * n, 80 + 9 * n, 90 + 7 * n), outline=(20 * n, 100, 90))
    draw.polygon([(20, 120), (70, 90), (130, 150)], fill=(220, 160, 60))
    return np.array(image)


def framed(image, width):
    return np.pad(image, ((width, width), (width, width), (0, 0)))


def vignette(image):
    distance = np.hypot(*(np.indices(image.shape[:2]) - len(image) / 2)) / len(image)
    return as_bytes(image * (1 - distance**2)[..., np.newaxis])


def bands():
    rows, columns = np.indices((128, 128))
    waves = [
        np.sin((rows + 2 * columns) / (14 + c)) * np.cos(columns / (20 + c)) for c in range(31)
    ]
    return 100 + 60 * np.stack(waves, axis=-1)


def without_noise(image):
    noisy = add_noise(image.astype(float), 20, rng=0)
    return as_bytes(denoise(noisy, 20, channel_axis=-1, **FAST))


IMAGES = {
    "screenshot": screenshot,
    "screenshot as JPEG": lambda: compressed(screenshot(), 90),
    "drawing": drawing,
    "text": lambda: data.text()[..., np.newaxis],
    "one bit": lambda: 255 * (data.page() > 120).astype(np.uint8)[..., np.newaxis],
    "denoised": lambda: without_noise(data.astronaut()[COLOUR]),
    "magnified": lambda: as_bytes(255 * resize(data.coffee()[:90, :90] / 255, (180, 180), order=3)),
    "blocks of JPEG": lambda: compressed(data.coffee()[COLOUR], 10),
    "vignette": lambda: vignette(data.coffee()[COLOUR]),
    "black frame": lambda: framed(data.coffee()[COLOUR], 20),
    "one colour": lambda: np.full((80, 80, 3), (200, 30, 90), np.uint8),
    "31 channels": bands,
}


@pytest.mark.parametrize("name", IMAGES)
def test_nothing_is_destroyed_where_there_is_no_noise(name):
    image = IMAGES[name]()
    found = denoise_with_details(image, channel_axis=-1, **FAST)
    error = np.sqrt(np.mean((found.image - image) ** 2))
    assert error <= 255 * 10 ** (-45 / 20)  # a PSNR of 45 dB
    assert found.noise.evidence
    assert 0 <= found.noise.confidence <= 1


def test_texture_everywhere_is_said_to_be_in_doubt():
    with pytest.warns(UserWarning, match="could not be told from texture"):
        found = estimate_noise(data.grass()[:256, :256])
    assert found.confidence <= 0.5
    assert "texture" in found.evidence


@pytest.mark.parametrize("quality", [None, 90])
@pytest.mark.parametrize("name", ["grass", "gravel"])
@pytest.mark.filterwarnings("ignore:the noise could not be told from texture")
def test_texture_everywhere_is_not_removed(name, quality):
    image = getattr(data, name)()[:256, :256]
    image = image if quality is None else compressed(image, quality)
    error = np.sqrt(np.mean((denoise(image, **FAST) - image) ** 2))
    assert error <= 255 * 10 ** (-45 / 20)


@pytest.mark.parametrize("sigma", [5, 10])
@pytest.mark.filterwarnings("ignore:the noise could not be told from texture")
def test_white_noise_is_found_where_texture_is_everywhere(sigma):
    found = estimate_noise(add_noise(data.gravel()[:256, :256].astype(float), sigma, rng=0))
    assert isinstance(found, White)
    assert found.sigma == pytest.approx(sigma, rel=0.25)


def test_noise_that_differs_from_place_to_place_is_no_texture(rng):
    sigmas = np.repeat([5.0, 10.0], 128)[:, np.newaxis]
    found = estimate_noise(100 + sigmas * rng.standard_normal((256, 256)), kind="white")
    assert 4.5 < found.sigma < 10


def test_what_a_demosaicing_has_blurred_is_not_removed():
    fine = data.immunohistochemistry()[:192, :192].astype(float)
    blurred = as_bytes(gaussian_filter(fine, (0.7, 0.7, 0)))
    error = np.sqrt(np.mean((denoise(blurred, channel_axis=-1, **FAST) - blurred) ** 2))
    assert error <= 255 * 10 ** (-45 / 20)


def test_channels_that_share_their_structure_have_no_correlated_noise():
    assert isinstance(estimate_noise(bands(), channel_axis=-1), White)


def test_independent_noise_of_many_channels_is_still_found(rng):
    noise = rng.standard_normal((100, 100, 6))
    noise = sum(np.roll(noise, shift, axis) for shift in (0, 1) for axis in (0, 1))
    assert isinstance(estimate_noise(100 + 5 * noise, channel_axis=-1), Correlated)


def test_a_colour_in_doubt_has_no_more_noise_than_the_others():
    found = estimate_noise(compressed(screenshot(), 90), channel_axis=-1)
    assert isinstance(found, White)
    assert np.max(found.sigma) < 2
