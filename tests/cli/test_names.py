"""`kappaform denoise`: names of files, whatever they are, and folders that are made for results."""

from pathlib import Path

import numpy as np
import pytest
import tifffile
from cli.command import PICTURE, ended, noisy, put, rejected
from numpy.testing import assert_array_equal
from PIL import Image

import kappaform as kf
from kappaform.cli.messages import failure
from kappaform.image_files import read_image

# --- What exists


def test_a_file_that_the_user_names_is_not_taken_for_a_result(files, capsys):
    put("a.png", noisy())
    put("unrelated.png", noisy(1))
    before = files()
    words = ["denoise", "a.png", "--sigma", 0, "-o", "unrelated.png"]
    line = rejected(capsys, *words)
    assert "unrelated.png exists already: give another name, or --overwrite." in line
    assert files() == before
    assert ended(capsys, *words, "--overwrite")[0] == 0
    assert_array_equal(read_image(Path("unrelated.png")).pixels, noisy())


def test_results_in_a_folder_are_kept_though_the_user_names_the_folder(files, capsys):
    put("a.png", noisy())
    words = ["denoise", "a.png", "--sigma", 0, "-o", "out/"]
    assert ended(capsys, *words)[0] == 0
    before = files()
    code, out, err = ended(capsys, *words)
    assert (code, err) == (0, "")
    assert "out/a.png: skipped" in out
    assert files() == before


# --- New folders


@pytest.mark.parametrize(
    "words",
    [
        ["missing.png", "-o", "out/"],
        ["text.png", "-o", "out/", "--report", "r/"],
        ["nan.npy", "-o", "out/", "--report", "r/"],
        ["a.png", "-o", "out/", "--compare", "missing.png"],
        ["a.png", "-o", "out/", "--model", "missing.kf"],
        ["a.png", "-o", "out/", "--device", "foo"],
        ["a.png", "-o", "out/", "--report", "a.png"],
        ["a.png", "in/a.png", "-o", "out"],
        ["in", "--recursive", "-o", "out", "--report", "r.txt/", "--patch-size", 90],
        ["a.png", "-o", "none/out/"],
        ["a.png", "-o", "text.png/"],
    ],
)
def test_what_is_rejected_leaves_no_folder(folder, capsys, words):
    (folder / "in" / "x").mkdir(parents=True)
    put("a.png", noisy())
    put("in/a.png", noisy())
    put("in/x/b.png", noisy())
    (folder / "text.png").write_text("no image")
    np.save("nan.npy", np.full((36, 36), np.nan))
    before = sorted(folder.rglob("*"))
    assert ended(capsys, "denoise", *words)[0] == 2
    assert sorted(folder.rglob("*")) == before


def test_an_interruption_leaves_no_empty_folder(folder, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    put("a.png", noisy())
    monkeypatch.setattr(kf, "denoise_with_details", interrupted)
    assert ended(capsys, "denoise", "a.png", "-o", "out/", "--sigma", 5)[0] == 130
    assert [file.name for file in folder.iterdir()] == ["a.png"]


def test_a_failure_leaves_the_folders_of_other_images(folder, capsys):
    put("a.png", noisy())
    (folder / "b.png").write_text("no image")
    assert ended(capsys, "denoise", "a.png", "b.png", "-o", "out", "--sigma", 0)[0] == 2
    assert [file.name for file in (folder / "out").iterdir()] == ["a.png"]


def test_a_folder_that_another_command_makes_meanwhile_is_used(folder, capsys, monkeypatch):
    def made_twice(path, *arguments, **options):
        mkdir(path, *arguments, **options)
        mkdir(path, *arguments, **options)

    put("a.png", noisy())
    mkdir = Path.mkdir
    monkeypatch.setattr(Path, "mkdir", made_twice)
    assert ended(capsys, "denoise", "a.png", "-o", "out/", "--sigma", 0)[0] == 0
    assert [file.name for file in (folder / "out").iterdir()] == ["a.png"]


# --- Names that look like something else


@pytest.mark.parametrize("name", ["sigma=20.png", "max_condition 2.png", "patch_size=8 noise=3"])
def test_a_name_that_looks_like_a_parameter_stays_as_it_is(folder, capsys, name):
    assert f"error: {name}: No such file" in rejected(capsys, "denoise", name)
    name = f"{name.removesuffix('.png')}.png"
    (folder / name).write_text("no image")
    assert f"error: {name} is not a valid PNG file" in rejected(capsys, "denoise", name)
    put(name, noisy()[:9, :9])
    line = rejected(capsys, "denoise", name, "--patch-size", 12)
    assert f"error: {name}: --patch-size 12 " in line  # and parameters are options
    assert name in ended(capsys, "denoise", name, "--sigma", 900, "--patch-size", 4)[2]
    assert f"{name} is an input" in rejected(capsys, "denoise", name, "-o", name)


def test_only_a_whole_name_counts_as_the_name_of_the_file():
    for text in ("image contains NaN", "an-in.png: no", "in/a.png: no", "within"):
        assert failure(ValueError(text), source="in") == (2, f"in: {text}")
    for text in ("in: no such file", "b.png is larger than in.", "in has pages"):
        assert failure(ValueError(text), source="in") == (2, text)


@pytest.mark.parametrize("suffix", [".ome.tif", ".ome.tiff", ".OME.TIF"])
def test_the_suffix_of_ome_files_is_a_whole(files, capsys, suffix):
    tifffile.imwrite(f"a{suffix}", noisy())
    assert ended(capsys, "denoise", ".", "--sigma", 0)[0] == 0
    assert files().keys() == {f"a{suffix}", f"a_denoised{suffix}"}
    assert ended(capsys, "denoise", ".", "--sigma", 0)[0] == 0  # results are kept
    assert files().keys() == {f"a{suffix}", f"a_denoised{suffix}"}


# --- What pixels mean


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.bmp"])
def test_noise_of_black_and_white_is_not_estimated(folder, files, capsys, name):
    Image.fromarray(noisy()).convert("1").save(name)
    before = files()
    line = rejected(capsys, "denoise", name)
    assert f"{name} has one bit per pixel: the noise of black and white cannot be" in line
    assert files() == before
    assert ended(capsys, "denoise", name, "--sigma", 30, "--patch-size", 4)[0] == 0
    assert read_image(folder / f"a_denoised{name[1:]}").pixels.dtype == np.uint8


def test_a_reference_may_be_black_and_white(capsys):
    put("a.png", noisy())
    Image.fromarray(PICTURE).convert("1").save("clean.png")
    assert ended(capsys, "denoise", "a.png", "--compare", "clean.png", "--patch-size", 4)[0] == 0


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        ("f4", "-9999", -9999.0),
        ("f4", "-3.4028234663852886e+38", -3.4028234663852886e38),
        ("u1", "0 ", 0),
        ("i2", "-32768", -32768),
    ],
)
def test_values_that_mean_no_data_are_left_alone_and_reported(capsys, dtype, text, value):
    values = noisy().clip(1).astype(dtype)
    values[:20, :30] = value
    tags = [(42113, "s", 0, text, True)]
    tifffile.imwrite("a.tif", values, metadata=None, extratags=tags)
    code, _, err = ended(capsys, "denoise", "a.tif", "--sigma", 10, "--quality", "fast")
    assert code == 0
    assert f"a.tif: 600 values without data ({value:g}) are left as they are" in err
    denoised = tifffile.imread("a_denoised.tif")
    np.testing.assert_array_equal(denoised[:20, :30], values[:20, :30])
    others = np.ones(values.shape, bool)
    others[:20, :30] = False
    # They do not affect their neighbours.
    assert np.abs(denoised[others] - values[others].astype(float)).max() < 80


@pytest.mark.filterwarnings("default")
def test_values_that_mean_no_data_are_reported_where_they_count(capsys):
    values = noisy().clip(1)
    values[:20, :30] = 0
    tifffile.imwrite("a.tif", values, metadata=None, extratags=[(42113, "s", 0, "0", True)])
    code, _, err = ended(capsys, "learn", "a.tif", "-o", "a.kappaform", "--tol", 1)
    assert code == 0
    assert "a.tif: 600 values are 0, which means no data" in err


@pytest.mark.parametrize(
    ("dtype", "text"), [("u1", "-9999"), ("u1", "nan"), ("f4", "no number"), ("f4", "1e300")]
)
def test_where_all_values_are_data_nothing_is_reported(capsys, dtype, text):
    tags = [(42113, "s", 0, text, True)]
    tifffile.imwrite("a.tif", noisy().astype(dtype), metadata=None, extratags=tags)
    code, _, err = ended(capsys, "denoise", "a.tif", "--sigma", 0)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("dtype", ["<u2", ">u2", ">f4", "u1"])
@pytest.mark.parametrize("suffix", [".npy", ".tif"])
def test_the_order_of_bytes_changes_no_result(folder, capsys, monkeypatch, suffix, dtype):
    ranges = []

    def looked_at(image, **options):
        ranges.append(options["value_range"])
        return denoise(image, **options)

    denoise = kf.denoise_with_details
    monkeypatch.setattr(kf, "denoise_with_details", looked_at)
    values = PICTURE.astype(dtype)
    if suffix == ".npy":
        np.save("a.npy", values)
    else:
        tifffile.imwrite("a.tif", values, byteorder=values.dtype.byteorder.replace("|", "<"))
    assert ended(capsys, "denoise", f"a{suffix}", "--sigma", 0)[0] == 0
    assert ranges == [None if "f" in dtype else (0, np.iinfo(dtype).max)]
    pixels = read_image(folder / f"a_denoised{suffix}").pixels
    assert_array_equal(pixels, PICTURE)
    assert pixels.dtype == read_image(folder / f"a{suffix}").pixels.dtype


@pytest.mark.parametrize(
    "words",
    [
        ("learn", "signals.npy", "-o"),
        ("path", "signals.npy", "--choose", "-o"),
        ("explore", "a.png", "-o"),
        ("inpaint", "a.png", "-o"),
        ("noise", "a.png", "-o"),
    ],
)
@pytest.mark.usefixtures("signals")
def test_a_name_with_a_slash_at_its_end_is_that_of_no_file(files, capsys, words):
    put("a.png", noisy())
    before = files()
    for name in ("new/", "new.html/", "new.json/", "new.png/"):
        line = rejected(capsys, *words, name)
        assert f"{name} ends with a slash, which names a folder: give the name of a file" in line
    assert files() == before
