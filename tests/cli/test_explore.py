"""`kappaform explore`: what it writes and says, and what it rejects."""

import base64
import io
import json
import os
import re

import numpy as np
import pytest
from cli.command import ended, put, rejected
from PIL import Image
from skimage.data import astronaut, camera

import kappaform as kf
from kappaform.cli import explore as command

PICTURE = camera()[100:148, 200:248]


@pytest.fixture
def picture(folder):
    return put(folder / "photo.png", PICTURE)


def explore(capsys, *arguments, patch_size=4):
    """What the command says; patches are small, because learning them is most of the work."""
    options = ["--bounds", 1, 2, "--patch-size", patch_size]
    code, out, err = ended(capsys, "explore", *arguments, *options)
    assert code == 0, err
    return out, err


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_page_is_written_and_reported(capsys, folder, picture):
    out, err = explore(capsys, picture, "-o", "page.html", "--sigma", 10, patch_size=8)
    assert err == ""
    assert re.search(r"noise +white, sigma 10\n", out)
    assert re.search(r"bounds +1, 2\n", out)
    assert [view["bound"] for view in data_of(folder / "page.html")["views"]] == [1, 2]


def test_facts_as_json(capsys, picture):
    out, _ = explore(capsys, picture, "-o", "page.html", "--json")
    facts = json.loads(out)
    assert (facts["width"], facts["height"]) == (48, 48)
    assert facts["noise"].endswith("(estimated)")
    assert facts["best_bound"] in (1, 2)


def test_the_same_command_writes_the_same_page(capsys, folder, picture):
    for name in ("one.html", "two.html"):
        explore(capsys, picture, "-o", name)
    assert (folder / "one.html").read_bytes() == (folder / "two.html").read_bytes()


def test_of_a_huge_image_the_middle_is_taken_and_reported(capsys, folder, monkeypatch):
    monkeypatch.setattr(command, "MOST_PIXELS", 40)
    put(folder / "large.png", camera()[:100, :60])
    out, _ = explore(capsys, "large.png", "-o", "page.html")
    assert "the centre of large.png (60 × 100 pixels)" in out
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "the centre of large.png (60 × 100 pixels) · 40 × 40 pixels" in page
    encoded = re.search(r'id="before".*?base64,([^"]+)"', page, re.DOTALL)[1]
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))).convert("L"), float)
    assert np.abs(shown - camera()[30:70, 10:50]).mean() < 3  # WebP loses a bit


def test_psnr_against_a_reference(capsys, folder, picture):
    noisy = np.clip(kf.add_noise(PICTURE, 10, rng=0), 0, 255).astype(np.uint8)
    put(folder / "noisy.png", noisy)
    explore(capsys, "noisy.png", "-o", "page.html", "--compare", picture)
    assert "PSNR, denoised" in data_of(folder / "page.html")["views"][0]["numbers"]


def test_gain_and_kind_of_noise(capsys, picture):
    out, _ = explore(capsys, picture, "-o", "a.html", "--gain", 2, "--read-noise", 3)
    assert "shot, gain 2, read noise 3\n" in out
    out, _ = explore(capsys, picture, "-o", "b.html", "--noise", "white")
    assert re.search(r"white, sigma .* \(estimated\)", out)


def test_colour_with_alpha_and_16_bit(capsys, folder):
    colours = astronaut()[:40, :40]
    opaque = np.dstack([colours, np.full(colours.shape[:2], 255, np.uint8)])
    put(folder / "colour.png", opaque, has_channels=True, has_alpha=True)
    explore(capsys, "colour.png", "-o", "colour.html")
    put(folder / "deep.png", PICTURE.astype(np.uint16) * 200)
    explore(capsys, "deep.png", "-o", "deep.html")
    assert "(white) are shown" in (folder / "deep.html").read_text(encoding="utf-8")


@pytest.mark.skipif(os.name == "nt", reason="such names are not allowed there")
@pytest.mark.parametrize("name", ["<script>alert(1)<.png", "a\"b'c&d.png", b"caf\xe9.png"])
def test_strange_names_are_escaped(capsys, folder, name):
    path = folder / os.fsdecode(name)
    put(folder / "plain.png", PICTURE).rename(path)
    explore(capsys, path, "-o", "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert page.count("<script") == 2


# --- What is rejected, before anything is learned


@pytest.mark.parametrize(
    ("values", "name", "text"),
    [
        (np.zeros((48, 48), np.uint8), "x.png", "x.png: the image is constant"),
        (PICTURE[:8, :8], "x.png", "x.png: the image has 8 × 8 pixels, too few patches"),
        (np.zeros((5, 48, 48)), "x.npy", "x.npy has pages, shape (5, 48, 48): save one"),
        (np.zeros((2, 5, 48, 48)), "x.npy", "x.npy has pages, shape (2, 5, 48, 48): save one"),
        (np.zeros(48), "x.npy", "x.npy has shape (48,): an image has rows and columns"),
        (np.full((48, 48), np.nan), "x.npy", "x.npy: the image contains NaN or inf"),
    ],
    ids=["constant", "tiny", "volume", "stack", "row", "nan"],
)
def test_images_that_cannot_be_explored(capsys, folder, files, values, name, text):
    if name.endswith("npy"):
        np.save(folder / name, values)
    else:
        put(folder / name, values)
    before = files()
    assert text in rejected(capsys, "explore", name, "-o", "page.html")
    assert files() == before


def test_an_output_that_is_there_is_kept(capsys, folder, picture, files):
    (folder / "page.html").write_text("mine")
    before = files()
    text = rejected(capsys, "explore", picture, "-o", "page.html")
    assert "page.html exists already: give another name, or --overwrite" in text
    assert files() == before
    explore(capsys, picture, "-o", "page.html", "--overwrite")
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("nowhere/page.html", "the folder nowhere does not exist"),
        ("photo.png/page.html", "photo.png"),
        ("photo.png", "give a name that ends with .html or .htm"),
        ("page.png", "give a name that ends with .html or .htm"),
        (".", "give a name that ends with .html"),
    ],
)
def test_places_that_cannot_be_written(capsys, picture, output, text):
    assert text in rejected(capsys, "explore", picture, "-o", output)


@pytest.mark.skipif(
    os.name == "nt" or (hasattr(os, "geteuid") and os.geteuid() == 0), reason="root may write"
)
def test_a_folder_that_is_read_only(capsys, folder, picture):
    place = folder / "locked"
    place.mkdir(mode=0o500)
    assert "is read-only" in rejected(capsys, "explore", picture, "-o", place / "page.html")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--bounds", 2], "--bounds: the slider has 2 to 25 different positions, 1 given"),
        (["--bounds", *range(1, 31)], "25 different positions, 30 given"),
        (["--n-nonzero", 65], "--n-nonzero 65 exceeds"),
        (["--patch-size", 100], "--patch-size 100: patches of 10000 pixels"),
        (["--patch-size", 16], "or a smaller --patch-size"),
        (["--sigma", 5, "--gain", 2], "has no effect with"),
        (["--compare", "nothing.png"], "nothing.png: No such file"),
    ],
)
def test_settings_that_make_no_page(capsys, picture, options, text):
    assert text in rejected(capsys, "explore", picture, "-o", "page.html", *options)


def test_a_reference_of_another_size_is_rejected(capsys, folder, picture):
    put(folder / "small.png", PICTURE[:40])
    text = rejected(capsys, "explore", picture, "-o", "page.html", "--compare", "small.png")
    assert "small.png has shape (40, 48), " in text
    assert "(48, 48): a reference has the same size" in text
