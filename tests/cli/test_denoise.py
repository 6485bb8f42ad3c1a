"""`kappaform denoise`: what it computes, prints and rejects."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from cli.command import PICTURE, ended, noisy, put, rejected
from numpy.testing import assert_allclose, assert_array_equal

import kappaform as kf
from kappaform.cli import main
from kappaform.image_files import as_stored, read_image
from kappaform.imaging import options as library_options
from kappaform.imaging.metrics import psnr, ssim


def test_an_image_gets_cleaner_and_keeps_its_type(folder, capsys):
    put("a.png", noisy())
    put("clean.png", PICTURE)
    words = ["--sigma", 15, "--patch-size", 6, "--compare", "clean.png"]
    code, out, err = ended(capsys, "denoise", "a.png", *words)
    assert (code, err) == (0, "")
    cleaned = read_image(folder / "a_denoised.png").pixels
    assert cleaned.dtype == np.uint8
    before, after = psnr(PICTURE, noisy()), psnr(PICTURE, cleaned)
    assert after > before + 3
    assert f"PSNR {before:.2f} -> {after:.2f} dB" in out
    assert f"SSIM {ssim(PICTURE, noisy()):.4f} -> {ssim(PICTURE, cleaned):.4f}" in out


def test_the_file_holds_what_the_library_returns(folder, capsys):
    put("a.npy", noisy().astype(np.float32))
    words = ["-o", "b.npy", "--max-condition", 3, "--seed", 7, "--patch-size", 4]
    assert ended(capsys, "denoise", "a.npy", *words)[0] == 0
    expected = kf.denoise(noisy().astype(np.float32), max_condition=3.0, rng=7, patch_size=4)
    assert_array_equal(np.load(folder / "b.npy"), expected)


def test_files_of_8_and_16_bit_have_a_value_range(folder, capsys):
    for name, dtype in (("a.png", np.uint8), ("a.tif", np.uint16)):
        values = noisy(dtype=dtype)
        put(name, values)
        assert ended(capsys, "denoise", name, "--sigma", 15, "--patch-size", 4)[0] == 0
        options = {"patch_size": 4, "value_range": (0, np.iinfo(dtype).max), "rng": 0}
        expected = kf.denoise(np.float32(values), 15, **options)
        stored = read_image(folder / name.replace("a.", "a_denoised.")).pixels
        assert_array_equal(stored, as_stored(expected, dtype))


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_colours_are_denoised_together_and_alpha_is_left_alone(folder, capsys, name):
    colours = np.stack([noisy(seed) for seed in range(3)], axis=-1)
    alpha = np.arange(PICTURE.size, dtype=np.uint8).reshape(*PICTURE.shape, 1)
    values = np.concatenate([colours, alpha], axis=-1)
    put(name, values, has_channels=True, has_alpha=True)
    words = ["denoise", name, "--sigma", 15, "--patch-size", 4, "-o", f"b{Path(name).suffix}"]
    assert ended(capsys, *words)[0] == 0
    stored = read_image(folder / f"b{Path(name).suffix}").pixels
    assert_array_equal(stored[..., 3:], alpha)
    expected = kf.denoise(
        np.float32(colours), 15, patch_size=4, channel_axis=-1, value_range=(0, 255), rng=0
    )
    assert_array_equal(stored[..., :3], as_stored(expected, np.uint8))


def test_four_channels_of_an_array_are_all_denoised(folder, capsys):
    values = np.stack([noisy(seed) for seed in range(4)], axis=-1)
    np.save("a.npy", values)
    assert ended(capsys, "denoise", "a.npy", "--sigma", 15, "--patch-size", 4)[0] == 0
    expected = kf.denoise(
        np.float32(values), 15, patch_size=4, channel_axis=-1, value_range=(0, 255), rng=0
    )
    assert_array_equal(np.load(folder / "a_denoised.npy"), as_stored(expected, np.uint8))


def test_the_preset_has_its_own_value_range(monkeypatch):
    given = {}

    def watched(*_, **options):
        given.update(options)
        raise ValueError("seen")

    monkeypatch.setattr(kf, "denoise_with_details", watched)
    put("a.tif", noisy(dtype=np.uint16))
    main(["denoise", "a.tif", "--preset", "paper"])
    assert given["value_range"] is None
    main(["denoise", "a.tif"])
    assert given["value_range"] == (0, 65535)


def test_help_says_units_choices_and_defaults(capsys):
    text = " ".join(ended(capsys, "denoise", "--help")[1].split())
    assert "in values of the file" in text
    assert "--method {conditioned,log-det,orthonormal}" in text
    assert "kind of transform to learn (default: conditioned)" in text
    assert "default: 10, in volumes 4" in text
    assert "--noise NOISE auto, white, shot or correlated" in text
    assert "bound on the condition number of the conditioned method (default: 1.1)" in text


def test_grey_with_alpha_is_denoised_as_grey(folder, capsys):
    put("a.png", np.stack([noisy(), noisy(1)], axis=-1), has_channels=True, has_alpha=True)
    assert ended(capsys, "denoise", "a.png", "--sigma", 15, "--patch-size", 4)[0] == 0
    stored = read_image(folder / "a_denoised.png").pixels
    assert_array_equal(stored[..., 1], noisy(1))
    expected = kf.denoise(np.float32(noisy()), 15, patch_size=4, value_range=(0, 255), rng=0)
    assert_array_equal(stored[..., 0], as_stored(expected, np.uint8))


@pytest.mark.parametrize("suffix", [".tif", ".npy"])
def test_pages_are_a_stack_a_volume_or_a_movie_as_declared(folder, capsys, suffix):
    pages = np.stack([noisy(seed)[:20, :16] for seed in range(5)])
    put(f"a{suffix}", pages)
    if suffix == ".npy":  # nothing says what its axes are
        assert "add --stack if each is an image of its own" in rejected(capsys, "denoise", "a.npy")
    frames = {"stack_axis": 0, "movie": True}
    for option, axes in (("--stack", {"stack_axis": 0}), ("--volume", {}), ("--movie", frames)):
        words = ["denoise", f"a{suffix}", option, "--sigma", 15, "--patch-size", 3]
        words += ["-o", f"b{suffix}", "--overwrite"]
        assert ended(capsys, *words)[0] == 0
        expected = kf.denoise(
            np.float32(pages), 15, patch_size=3, value_range=(0, 255), rng=0, **axes
        )
        stored = read_image(folder / f"b{suffix}").pixels
        assert_array_equal(stored, as_stored(expected, np.uint8))


def test_a_declared_volume_of_four_slices_is_not_warned_about(capsys):
    put("a.tif", np.stack([noisy(seed) for seed in range(4)]))
    code, _, err = ended(capsys, "denoise", "a.tif", "--volume", "--sigma", 15, "--patch-size", 3)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(("option", "axes"), [("--stack", {"stack_axis": 0}), ("--volume", {})])
def test_images_and_files_with_pages_are_done_in_one_run(folder, capsys, option, axes):
    pages = np.stack([noisy(seed)[:20, :16] for seed in range(5)])
    colours = np.stack([noisy(seed) for seed in range(3)], axis=-1)
    put("pages.tif", pages)
    put("grey.png", noisy())
    np.save("colours.npy", colours)
    words = ["denoise", ".", option, "--sigma", 15, "--patch-size", 3, "--json"]
    code, out, err = ended(capsys, *words)
    assert (code, err) == (0, "")
    numbers = {record["input"]: record["n_pages"] for record in json.loads(out)["files"]}
    assert numbers == {"colours.npy": 1, "grey.png": 1, "pages.tif": 5}
    given = {"pages.tif": (pages, axes), "grey.png": (noisy(), {})}
    given["colours.npy"] = (colours, {"channel_axis": -1})
    for name, (values, more) in given.items():
        options = {"patch_size": 3, "value_range": (0, 255), "rng": 0} | more
        expected = as_stored(kf.denoise(np.float32(values), 15, **options), np.uint8)
        target = folder / name.replace(".", "_denoised.")
        assert_array_equal(read_image(target).pixels, expected)


def test_pages_that_no_file_has_are_warned_about(capsys):
    put("a.png", noisy())
    code, out, err = ended(capsys, "denoise", "a.png", "--stack", "--sigma", 0)
    assert code == 0
    assert "a_denoised.png" in out
    assert err == "kappaform: warning: --stack had no effect: no file has pages.\n"


def test_a_saved_transform_can_be_used_instead_of_learning(capsys):
    put("a.png", noisy())
    result = kf.learn(np.random.default_rng(0).standard_normal((99, 16)), max_iter=2)
    kf.save("m.kf", result, patch_shape=(4, 4), patch_mean="removed")
    code, out, _ = ended(capsys, "denoise", "a.png", "--model", "m.kf", "--json")
    assert code == 0
    (record,) = json.loads(out)["files"]
    assert record["patch_shape"] == [4, 4]
    assert_allclose(record["condition_number"], result.condition_number, rtol=1e-12)


def test_the_report_is_an_image(folder, capsys):
    put("a.png", noisy())
    for name, start in (("r.png", b"\x89PNG"), ("r.pdf", b"%PDF")):
        words = ["denoise", "a.png", "--compare", "a.png", "--report", name, "--patch-size", 4]
        words.append("--overwrite")
        assert ended(capsys, *words)[0] == 0
        assert (folder / name).read_bytes().startswith(start)
    (folder / "a_denoised.png").unlink()
    assert "give a name that ends with .png or .pdf or .svg" in rejected(
        capsys, "denoise", "a.png", "--report", "r.txt"
    )
    assert not (folder / "a_denoised.png").exists()


def test_without_a_report_nothing_of_plots_is_imported(capsys, monkeypatch):
    """Importing matplotlib takes as long as everything else that starts the command."""
    monkeypatch.delattr(kf, "plots", raising=False)
    monkeypatch.setitem(sys.modules, "kappaform.plots", None)  # importing it fails
    put("a.png", noisy())
    words = ["denoise", "a.png", "--sigma", 15, "--patch-size", 4, "--overwrite"]
    assert ended(capsys, *words)[0] == 0
    assert ended(capsys, *words, "--report", "r.png")[0] != 0


def test_json_is_one_document_with_every_number(capsys):
    put("a.png", noisy())
    code, out, err = ended(
        capsys, "denoise", "a.png", "--json", "--compare", "a.png", "--patch-size", 4
    )
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["failed"], document["skipped"]) == (0, 0)
    (record,) = document["files"]
    assert record["output"] == "a_denoised.png"
    assert record["noise_estimated"]
    assert record["psnr_before"] is None  # infinite: compared with itself
    assert record["condition_number"] <= 1.1 * (1 + 1e-9)


# --- The line of an image


def test_the_line_says_size_noise_and_time(capsys):
    put("a.png", noisy()[:30])
    code, out, err = ended(capsys, "denoise", "a.png", "--sigma", 15, "--patch-size", 4)
    assert (code, err) == (0, "")
    assert re.fullmatch(r"a\.png -> a_denoised\.png: 36 × 30, noise 15, \d+\.\d s\n", out)


def test_the_line_says_what_was_estimated_and_how_many_pages_there_are(capsys):
    put("a.tif", np.stack([noisy(seed) for seed in range(5)]))
    out = ended(capsys, "denoise", "a.tif", "--stack", "--patch-size", 4)[1]
    noise = r"noise [\d.]+ to [\d.]+ \(estimated; unsure: .*\)"
    assert re.match(rf"a\.tif -> a_denoised\.tif: 5 pages of 36 × 36, {noise}, ", out)


def test_the_condition_number_is_for_those_who_ask(capsys):
    put("a.png", noisy())
    words = ["denoise", "a.png", "--sigma", 15, "--patch-size", 4, "--overwrite"]
    assert "condition" not in ended(capsys, *words)[1]
    out = ended(capsys, *words, "--verbose")[1]
    assert re.search(r", patches 4 × 4, condition number [12]\.\d{4}, ", out)


def test_large_noise_is_reported_in_full_digits(capsys):
    put("a.tif", noisy(dtype=np.uint16))
    out = ended(capsys, "denoise", "a.tif", "--sigma", 3855, "--patch-size", 4)[1]
    assert "noise 3855," in out


# --- Strength


def test_strength_is_the_fraction_of_the_way_to_the_denoised_image(folder, capsys):
    values = noisy().astype(np.float64)
    np.save("a.npy", values)
    words = ["denoise", "a.npy", "--sigma", 15, "--patch-size", 4]
    stored = {}
    for strength in (0, 0.25, 1):
        name = f"{strength}.npy"
        assert ended(capsys, *words, "--strength", strength, "-o", name)[0] == 0
        stored[strength] = np.load(folder / name)
    assert_array_equal(stored[0], values)
    assert_allclose(stored[0.25], 0.75 * values + 0.25 * stored[1], rtol=1e-12)
    assert_array_equal(stored[1], kf.denoise(values, 15, patch_size=4, rng=0))


def test_strength_is_rounded_like_every_result_and_is_reported(folder, capsys):
    put("a.png", noisy())
    words = ["denoise", "a.png", "--sigma", 15, "--patch-size", 4, "--strength", 0.5]
    assert ", strength 0.5, " in ended(capsys, *words)[1]
    expected = kf.denoise(np.float32(noisy()), 15, patch_size=4, value_range=(0, 255), rng=0)
    stored = read_image(folder / "a_denoised.png").pixels
    assert_array_equal(stored, as_stored((noisy() + expected.astype(np.float64)) / 2, np.uint8))
    record = json.loads(ended(capsys, *words, "--overwrite", "--json")[1])["files"][0]
    assert (record["strength"], record["colour_strength"]) == (0.5, 0.5)


def test_colours_have_a_strength_of_their_own(folder, capsys):
    values = np.stack([noisy(seed) for seed in range(3)], axis=-1)
    put("a.png", values, has_channels=True)
    put("b.png", noisy())
    strengths = ["--strength", 0.5, "--colour-strength", 1]
    words = ["denoise", "a.png", "b.png", "--sigma", 15, "--patch-size", 4, *strengths]
    code, out, err = ended(capsys, *words)
    assert (code, err) == (0, "")
    assert ", strength 0.5, of colours 1, " in out.splitlines()[0]
    assert ", strength 0.5, " in out.splitlines()[1]
    options = {"patch_size": 4, "value_range": (0, 255), "channel_axis": -1}
    expected = kf.denoise(np.float32(values), 15, strength=0.5, colour_strength=1, **options)
    stored = read_image(folder / "a_denoised.png").pixels
    assert_array_equal(stored, as_stored(expected, np.uint8))
    records = json.loads(ended(capsys, *words, "--overwrite", "--json")[1])["files"]
    assert [each["colour_strength"] for each in records] == [1, 0.5]
    words = ["denoise", "b.png", *words[3:], "--overwrite"]
    code, _, err = ended(capsys, *words)
    assert code == 0
    assert err == ("kappaform: warning: --colour-strength had no effect: no image has colours.\n")


# --- Comparison


def test_psnr_of_12_bit_in_a_file_of_16_is_relative_to_12(capsys):
    clean = PICTURE.astype(np.uint16) * 16
    noise = as_stored(kf.add_noise(clean, 100, rng=0), np.uint16)
    put("clean.tif", clean)
    put("a.tif", noise)
    words = ["denoise", "a.tif", "--compare", "clean.tif", "--sigma", 0, "--json"]
    (record,) = json.loads(ended(capsys, *words)[1])["files"]
    assert record["data_range"] == 4095
    error = np.mean((clean.astype(float) - noise) ** 2)
    assert_allclose(record["psnr_before"], 10 * np.log10(4095**2 / error), rtol=1e-12)


def test_a_reference_of_another_type_is_rejected(files, capsys):
    put("a.png", noisy())
    put("clean.tif", PICTURE.astype(np.uint16))
    before = files()
    line = rejected(capsys, "denoise", "a.png", "--compare", "clean.tif")
    assert "clean.tif has type uint16, a.png uint8: a reference has the same type" in line
    assert files() == before


# --- Settings that cannot be meant


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "--method orthonormal --max-condition 3",
            "--max-condition has no effect with --method or",
        ),
        ("--method log-det --max-condition 2", "only the conditioned method has it"),
        ("--preset paper --max-condition 3", "--max-condition has no effect with --preset paper"),
        ("--preset paper --value-range 0 255", "--value-range has no effect with --preset paper: "),
        ("--preset paper --device cpu", "--device has no effect with --preset paper: it is comp"),
        ("--model m.kf --preset paper", "--preset paper has no effect with --model: a preset"),
        ("--model m.kf --method conditioned", "--method conditioned has no effect with --model"),
        ("--model m.kf --max-condition 2", "--max-condition has no effect with --model"),
        ("--model m.kf --seed 0", "--seed has no effect with --model"),
        (
            "--model m.kf --patch-size 4",
            "--patch-size has no effect with --model: m.kf has patches",
        ),
        ("--verbose --json", "--verbose has no effect with --json"),
        ("--recursive", "--recursive has no effect: no input is a folder; leave it out"),
        ("-o b.png --suffix _x", "--suffix has no effect with -o b.png, a file: leave one of them"),
        (
            "--patch-size 65",
            "--patch-size 65: patches of 4225 pixels would take hours or days: give",
        ),
        ("--volume --patch-size 17", "give at most 16; 4 to 6 are usual in volumes"),
    ],
)
def test_what_has_no_effect_or_no_end_is_rejected(files, capsys, arguments, message):
    put("a.png", noisy())
    result = kf.learn(np.random.default_rng(0).standard_normal((99, 16)), max_iter=1)
    kf.save("m.kf", result, patch_shape=(4, 4), patch_mean="removed")
    before = files()
    assert message in rejected(capsys, "denoise", "a.png", *arguments.split())
    assert files() == before


def test_the_method_of_the_preset_is_an_option_with_effect(capsys):
    put("a.png", noisy()[:12, :12])
    options = ["--preset", "paper", "--method", "orthonormal", "--sigma", 120, "--patch-size", 3]
    code, out, err = ended(capsys, "denoise", "a.png", *options, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["files"][0]["condition_number"] == pytest.approx(1)


@pytest.mark.parametrize("share", [[], ["--share"]], ids=str)
def test_settings_of_learning_are_warned_about_once_and_only_if_learning(
    share, capsys, monkeypatch
):
    monkeypatch.setattr(library_options, "SLOW_PATCH", 8)
    for name in ("a.png", "b.png"):
        put(name, noisy()[:20, :20])
    words = ["denoise", "a.png", "b.png", "--quality", "fast", "--patch-size", 3, "--overwrite"]
    words += ["--max-condition", 50]
    code, _, err = ended(capsys, *words, *share, "--sigma", 15)
    assert code == 0
    assert err.count("\n") == 2
    assert "kappaform: warning: --max-condition 50 lets the inverse" in err
    assert "kappaform: warning: --patch-size 3: patches of 9 pixels take minutes or hours: " in err
    if not share:  # which needs noise
        assert ended(capsys, *words, "--sigma", 0)[::2] == (0, "")


@pytest.mark.parametrize("words", ["learn a.png -o b.kf", "path a.png", "explore a.png -o b.html"])
def test_other_commands_warn_about_large_patches_too(words, capsys, monkeypatch):
    monkeypatch.setattr(library_options, "SLOW_PATCH", 8)
    put("a.png", noisy()[:20, :20])
    bounds = [] if words.startswith("learn") else ["--bounds", 1, 2]
    code, _, err = ended(capsys, *words.split(), "--patch-size", 3, *bounds)
    assert code == 0
    assert err.count("--patch-size 3: patches of 9 pixels take minutes or hours: ") == 1


@pytest.mark.parametrize(
    ("dtype", "words", "warned"),
    [
        (np.uint8, "--sigma 0.06", "--sigma 0.06 is below the rounding error of integers"),
        (np.uint8, "--sigma 1", ""),
        (np.uint8, "--sigma 0", ""),
        (np.float32, "--sigma 0.06", ""),
        (np.uint8, "--sigma 15 --value-range 0 1", "a.tif: --value-range 0 1 excludes most"),
        (np.uint8, "--sigma 15 --value-range 0 200", ""),
        (np.float32, "--sigma 15 --value-range 0 255", ""),
    ],
)
def test_numbers_of_another_scale_are_warned_about(capsys, dtype, words, warned):
    put("a.tif", noisy().astype(dtype))
    code, _, err = ended(capsys, "denoise", "a.tif", *words.split(), "--patch-size", 4)
    assert code == 0
    assert warned in err
    assert bool(warned) == bool(err)


def test_noise_around_one_end_of_the_range_is_not_warned_about(capsys):
    np.save("dark.npy", np.random.default_rng(0).normal(0, 5, (40, 40)))
    words = ["--sigma", 5, "--value-range", 0, 255, "--patch-size", 4]
    assert ended(capsys, "denoise", "dark.npy", *words)[::2] == (0, "")


def test_what_fast_movies_do_not_do_is_reported(capsys):
    put("a.tif", np.stack([noisy(seed) for seed in range(5)]))
    words = ["denoise", "a.tif", "--movie", "--sigma", 15, "--patch-size", 3, "--overwrite"]
    told = "--movie with --quality fast: frames are denoised one by one, with the same transform"
    assert told in ended(capsys, *words, "--quality", "fast")[2]
    assert told not in ended(capsys, *words)[2]
    assert "with --quality fast frames share a" in " ".join(
        ended(capsys, "denoise", "--help")[1].split()
    )


def test_a_movie_of_planes_of_colour_is_that_of_pixels_of_colour(folder, capsys):
    movie = np.stack([np.stack([noisy(9 * t + c) for c in range(3)], -1) for t in range(5)])
    colours = {"photometric": "rgb"}
    tifffile.imwrite("pixels.tif", movie, **colours)
    tifffile.imwrite("planes.tif", np.moveaxis(movie, -1, 1), planarconfig="separate", **colours)
    words = ["--movie", "--sigma", 15, "--patch-size", 3]
    assert ended(capsys, "denoise", "pixels.tif", "planes.tif", *words)[::2] == (0, "")
    pixels = read_image(folder / "pixels_denoised.tif").pixels
    assert_array_equal(read_image(folder / "planes_denoised.tif").pixels, pixels)
    assert tifffile.imread("planes_denoised.tif").shape == (5, 3, *PICTURE.shape)


def test_planes_of_one_page_are_no_frames_and_that_is_reported(capsys):
    planes = np.stack([noisy(seed) for seed in range(5)])
    tifffile.imwrite("a.tif", planes, photometric="minisblack", planarconfig="separate")
    words = ["denoise", "a.tif", "--movie", "--sigma", 15, "--patch-size", 3]
    code, _, err = ended(capsys, *words)
    assert code == 0
    assert "--movie had no effect: no file has pages" in err


@pytest.mark.parametrize(("sigma", "warned"), [(2, True), (0.5, False)])
def test_a_sigma_beyond_the_values_is_warned_about(capsys, sigma, warned):
    np.save("a.npy", noisy() / 255)
    code, _, err = ended(capsys, "denoise", "a.npy", "--sigma", sigma, "--patch-size", 4)
    assert code == 0
    assert ("a.npy: --sigma 2 exceeds the range of the image, 0" in err) == warned
    assert bool(err) == warned
