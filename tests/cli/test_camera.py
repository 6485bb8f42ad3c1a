"""`kappaform noise`, and `kappaform denoise --noise FILE`."""

import json

import numpy as np
import pytest
from cli.command import ended, noisy, put, rejected
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

import kappaform as kf
from kappaform.image_files import as_stored, read_image

QUICK = ("--patch-size", 5, "--quality", "fast")
SCENE = np.kron(np.tri(8) * 90 + 50, np.ones((12, 12)))


def taken(name, seed=0, model="D800", iso=3200):
    """A JPEG of a camera."""
    image = Image.fromarray(as_stored(kf.add_noise(SCENE, 9, rng=seed), np.uint8))
    exif = Image.Exif()
    exif[0x0110] = model
    exif.get_ifd(0x8769)[0x8827] = iso
    image.save(name, quality=100, exif=exif.tobytes())
    return name


@pytest.fixture
def camera(folder, capsys):
    """A file of noise, measured in a burst."""
    folder.joinpath("burst").mkdir()
    for seed in range(3):
        taken(f"burst/{seed}.jpg", seed)
    assert ended(capsys, "noise", "burst/", "-o", "camera.json")[0] == 0
    return "camera.json"


def test_the_noise_of_a_burst_is_measured_and_used(folder, capsys, camera):
    noise = kf.load_noise(camera)
    assert_allclose(noise.level(np.array([90.0])), 9, rtol=0.05)
    taken("a.jpg", 7)
    code, out, err = ended(capsys, "denoise", "a.jpg", "--noise", camera, *QUICK, "-o", "b.png")
    assert (code, err) == (0, "")
    assert ", noise 9" in out
    assert " (camera.json), " in out
    values = np.float32(read_image(folder / "a.jpg").pixels)
    options = {"patch_size": 5, "quality": "fast", "value_range": (0, 255)}
    expected = as_stored(kf.denoise(values, noise=noise, **options), np.uint8)
    assert_array_equal(read_image(folder / "b.png").pixels, expected)
    words = ("denoise", "a.jpg", "--noise", camera, *QUICK, "--json")
    (record,) = json.loads(ended(capsys, *words)[1])["files"]
    assert (record["noise_file"], record["noise_estimated"]) == ("camera.json", False)


def test_what_was_measured_is_reported(capsys, camera):
    words = ("noise", "burst/", "-o", camera, "--overwrite")
    code, out, err = ended(capsys, *words)
    assert (code, err) == (0, "")
    lines = dict(line.split("  ", 1) for line in out.splitlines())
    assert lines["camera"].strip() == "D800"
    assert lines["iso"].strip() == "3200"
    assert lines["noise"].strip().startswith("white, sigma 9")
    assert lines["evidence"].strip().startswith("measured in 3 frames of 1 still scene")
    facts = json.loads(ended(capsys, *words, "--json")[1])
    assert facts["noise"]["kind"] == "white"
    assert (facts["iso"], facts["dtype"], facts["images"]) == (3200, "uint8", 3)


def test_another_iso_camera_or_type_is_warned_about(capsys, camera):
    taken("a.jpg", iso=100)
    taken("b.jpg", model="X100")
    put("c.tif", noisy(dtype=np.uint16))
    put("d.png", noisy())  # says nothing of its camera
    words = ("a.jpg", "b.jpg", "c.tif", "d.png", "--noise", camera, *QUICK)
    code, _, err = ended(capsys, "denoise", *words)
    assert code == 0
    first, second, third = err.splitlines()
    assert "a.jpg: its ISO is 100, and the noise in camera.json was measured for 3200:" in first
    assert "b.jpg: its camera is X100, and the noise in camera.json was measured for D800" in second
    assert "c.tif: its type of values is uint16, and the noise in camera.json" in third


def test_images_of_different_settings_are_not_mixed(capsys):
    taken("a.jpg")
    taken("b.jpg", iso=100)
    err = rejected(capsys, "noise", "a.jpg", "b.jpg", "-o", "c.json")
    assert "ISO differ, 3200 in a.jpg and 100 in b.jpg: measure the noise of each" in err


def test_the_iso_of_a_tiff_is_read(folder):
    image = Image.fromarray(noisy())
    exif = Image.Exif()
    exif[0x0110] = "D800"
    exif.get_ifd(0x8769)[0x8827] = 800
    image.save("a.tif", exif=exif.tobytes())
    from kappaform.cli.noise import camera_that_took

    assert camera_that_took(read_image(folder / "a.tif")) == ("D800", 800, "uint8")


def test_pages_are_images_and_dark_frames_give_the_offset(capsys):
    rng = np.random.default_rng(0)
    light = np.stack([np.full((64, 64), level) for level in (50, 50, 400, 400)])
    put("flats.tif", as_stored(2 * rng.poisson(light) + 100 + rng.normal(0, 3, light.shape), "u2"))
    put("dark.tif", as_stored(100 + rng.normal(0, 3, (64, 64)), "u2"))
    words = ("noise", "flats.tif", "--dark", "dark.tif", "-o", "camera.json", "--json")
    facts = json.loads(ended(capsys, *words)[1])
    assert facts["images"] == 5
    assert facts["noise"]["kind"] == "shot"
    assert_allclose(facts["noise"]["gain"], 2, rtol=0.1)
    assert_allclose(facts["noise"]["offset"], 100, rtol=0.01)


def test_correlated_noise_of_an_image_is_that_of_every_slice_of_a_volume(capsys):
    lags = np.exp(-np.add.outer(np.arange(-2, 3) ** 2, np.arange(-2, 3) ** 2) / 2)
    kf.save_noise("camera.json", kf.Correlated(autocovariance=64 * lags))
    np.save("a.npy", kf.add_noise(np.stack([SCENE[:24, :24]] * 4), 8))
    words = ("a.npy", "--volume", "--noise", "camera.json", "--patch-size", 4)
    code, out, err = ended(capsys, "denoise", *words, "--quality", "fast", "-o", "b.npy")
    assert (code, err) == (0, "")
    assert "correlated noise 8 (camera.json), " in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("noise", "-o", "a.json"), "no image is given"),
        (("noise", "a.png", "-o", "a.txt"), "give a name that ends with .json"),
        (("noise", "a.png", "-o", "old.json"), "old.json exists already"),
        (("noise", "a.png", "c.png", "-o", "a.json"), "some images are grey"),
        (("noise", "a.png", "--frames", "burst", "-o", "a.json"), "--frames burst: an image has"),
        (("denoise", "a.png", "--noise", "no.json"), "no.json: No such file"),
        (("denoise", "a.png", "--noise", "old.json"), "old.json is not a noise that kappaform"),
        (("denoise", "a.png", "--noise", "salt"), "salt: give one of auto, white, shot"),
        (
            ("denoise", "a.png", "--noise", "old.json", "--sigma", 3),
            "--sigma has no effect with --noise old.json: the file contains its strength",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(folder, capsys, words, message):
    put("a.png", noisy())
    put("c.png", np.stack([noisy()] * 3, axis=-1), has_channels=True)
    folder.joinpath("old.json").write_text("{}")
    assert message in rejected(capsys, *words)


def test_messages_speak_of_options_and_count_images_from_one(capsys):
    put("a.png", noisy())
    put("b.png", noisy(1))
    line = rejected(capsys, "noise", "a.png", "--dark", "b.png", "-o", "n.json")
    assert "so by --frames burst or flat, or leave out --dark." in line
    np.save("dark.npy", np.full((20, 20), np.nan))
    assert "[" not in rejected(capsys, "noise", "a.png", "--dark", "dark.npy", "-o", "n.json")
    err = ended(capsys, "noise", "a.png", "a.png", "-o", "n.json")[2]
    assert "image 2 is a copy of another image" in err
