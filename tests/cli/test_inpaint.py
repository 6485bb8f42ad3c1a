"""`kappaform inpaint`, and masks and values without data of `kappaform denoise`."""

import json

import numpy as np
import pytest
import tifffile
from cli.command import PICTURE, ended, noisy, put, rejected

import kappaform as kf
from kappaform.image_files import read_image
from kappaform.imaging.dead_pixels import dead_pixels

MASK = np.zeros(PICTURE.shape, np.uint8)
MASK[10:13, 4:30] = 255


def pixels(name):
    return read_image(name).pixels


def test_only_pixels_of_the_mask_change(folder, capsys):
    put("a.png", PICTURE)
    put("mask.png", MASK)
    code, out, err = ended(capsys, "inpaint", "a.png", "--mask", "mask.png", "-o", "b.png")
    assert (code, err) == (0, "")
    assert out.startswith(f"a.png -> b.png: {np.count_nonzero(MASK)} values filled")
    found = pixels(folder / "b.png")
    np.testing.assert_array_equal(found[MASK == 0], PICTURE[MASK == 0])
    assert found.dtype == np.uint8


def test_colours_and_alpha_are_kept_and_a_mask_may_have_colours(folder, capsys):
    colours = np.stack([PICTURE, PICTURE.T, PICTURE[::-1], np.full_like(PICTURE, 200)], axis=-1)
    put("a.png", colours, has_channels=True, has_alpha=True)
    put("mask.png", np.stack([MASK, 0 * MASK, 0 * MASK], axis=-1), has_channels=True)
    arguments = ("inpaint", "a.png", "--mask", "mask.png", "-o", "b.png", "--json")
    code, out, _ = ended(capsys, *arguments, "--quality", "fast")
    assert code == 0
    assert json.loads(out)["filled"] == 3 * np.count_nonzero(MASK)
    found = pixels(folder / "b.png")
    np.testing.assert_array_equal(found[MASK == 0], colours[MASK == 0])
    assert (found[..., 3] == 200).all()


@pytest.mark.parametrize("option", [(), ("--nodata", "-9999")])
def test_values_without_data_are_filled(capsys, option):
    values = PICTURE.astype(np.float32)
    values[5:8, 5:8] = -9999
    tags = [] if option else [(42113, "s", 0, "-9999", True)]
    tifffile.imwrite("a.tif", values, metadata=None, extratags=tags)
    assert ended(capsys, "inpaint", "a.tif", *option, "-o", "b.tif")[0] == 0
    found = tifffile.imread("b.tif")
    assert found[5:8, 5:8].min() > 0
    np.testing.assert_array_equal(found[values > 0], values[values > 0])


def test_nan_are_filled(folder, capsys):
    values = PICTURE.astype(np.float64)
    values[3, 4:9] = np.nan
    np.save("a.npy", values)
    assert ended(capsys, "inpaint", "a.npy", "-o", "b.npy")[0] == 0
    assert np.isfinite(np.load(folder / "b.npy")).all()


def test_dead_pixels_are_found_and_filled(folder, capsys):
    values = noisy().astype(np.float64)
    clean = values.copy()
    values[5, 7], values[20, 21], values[0, 35] = 900, -700, 1000
    np.save("a.npy", values)
    arguments = ("inpaint", "a.npy", "--dead-pixels", "-o", "b.npy", "--json")
    code, out, _ = ended(capsys, *arguments)
    assert code == 0
    assert json.loads(out)["filled"] == 3
    found = np.load(folder / "b.npy")
    assert np.abs(found - clean).max() < 120
    assert not dead_pixels(clean).any()


def test_nothing_missing_is_reported(folder, capsys):
    put("a.png", PICTURE)
    code, _, err = ended(capsys, "inpaint", "a.png", "-o", "b.png")
    assert code == 0
    assert "nothing is missing" in err
    np.testing.assert_array_equal(pixels(folder / "b.png"), PICTURE)


def test_bad_masks_are_rejected_and_nothing_is_written(folder, capsys):
    put("a.png", PICTURE)
    put("small.png", MASK[:-1])
    put("all.png", np.full_like(MASK, 255))
    of_all = "at least one must be known. What is black in a mask is known; invert it if it marks"
    for mask, text in (("small.png", "a mask has the same size"), ("all.png", of_all)):
        line = rejected(capsys, "inpaint", "a.png", "--mask", mask, "-o", "b.png")
        assert text in line
    assert (
        "no such" in rejected(capsys, "inpaint", "a.png", "--mask", "c.png", "-o", "b.png").lower()
    )
    assert not (folder / "b.png").exists()


def test_transparent_pixels_of_a_mask_are_not_marked(capsys):
    put("a.png", PICTURE)
    put("mask.png", np.stack([np.full_like(MASK, 255), MASK], axis=-1), True, has_alpha=True)
    arguments = ("inpaint", "a.png", "--mask", "mask.png", "-o", "b.png", "--json")
    code, out, _ = ended(capsys, *arguments, "--quality", "fast")
    assert code == 0
    assert json.loads(out)["filled"] == np.count_nonzero(MASK)


def test_a_mask_may_be_a_boolean_array(capsys):
    put("a.png", PICTURE)
    np.save("mask.npy", MASK > 0)
    for command in ("inpaint", "denoise"):
        noise = ("--sigma", 15) if command == "denoise" else ()
        words = ("a.png", "--mask", "mask.npy", "-o", f"{command}.png", "--quality", "fast", *noise)
        assert ended(capsys, command, *words)[0] == 0
    np.save("b.npy", MASK > 0)
    assert "integers or floats" in rejected(capsys, "inpaint", "b.npy", "-o", "c.npy")


def test_a_mask_is_not_overwritten_and_one_that_marks_nothing_is_reported(folder, capsys):
    put("a.png", PICTURE)
    put("mask.png", 0 * MASK)
    arguments = ("denoise", "a.png", "--mask", "mask.png", "--sigma", 15, "--quality", "fast")
    line = rejected(capsys, *arguments, "-o", "mask.png", "--overwrite")
    assert "mask.png is an input" in line
    assert not pixels(folder / "mask.png").any()
    code, _, err = ended(capsys, *arguments)
    assert code == 0
    assert "mask.png: no pixel is marked" in err


def test_denoising_fills_the_pixels_of_a_mask(folder, capsys):
    values = noisy()
    values[MASK > 0] = 255
    put("a.png", values)
    put("mask.png", MASK)
    arguments = ("denoise", "a.png", "--mask", "mask.png", "--sigma", 15, "--quality", "fast")
    assert ended(capsys, *arguments)[0] == 0
    found = pixels(folder / "a_denoised.png").astype(float)
    assert np.abs(found - PICTURE)[MASK > 0].mean() < 25


def test_a_movie_is_filled_frame_by_frame_or_together(folder, capsys):
    movie = np.stack([PICTURE] * 4)
    movie[1, 8:14, 8:14] = 0
    marked = np.zeros_like(movie)
    marked[1, 8:14, 8:14] = 1
    np.save("a.npy", movie)
    np.save("mask.npy", marked)
    arguments = ("inpaint", "a.npy", "--mask", "mask.npy", "--movie", "-o", "b.npy")
    assert ended(capsys, *arguments)[0] == 0
    found = np.load(folder / "b.npy")
    np.testing.assert_array_equal(found[marked == 0], movie[marked == 0])
    assert np.abs(found[1].astype(float) - PICTURE).max() < 60


@pytest.mark.parametrize("option", ["--movie", "--stack", "--volume"])
def test_an_option_for_pages_is_reported_where_there_are_none(capsys, option):
    put("a.png", PICTURE)
    put("mask.png", MASK)
    words = ("inpaint", "a.png", "--mask", "mask.png", "-o", "b.png", "--quality", "fast", option)
    code, _, err = ended(capsys, *words)
    assert (code, err) == (0, f"kappaform: warning: {option} had no effect: no file has pages.\n")


def test_pixels_that_are_not_finite_are_rejected_in_terms_of_the_command(capsys):
    np.save("a.npy", np.where(MASK, np.nan, PICTURE))
    line = rejected(capsys, "denoise", "a.npy", "-o", "b.npy", "--sigma", 10)
    assert line.endswith(
        "fill or replace such pixels. kappaform inpaint fills NaN, and inf with --nodata inf; "
        "kappaform denoise leaves them as they are with --nodata nan, or --nodata inf.\n"
    )
    # What it names works.
    assert (
        ended(capsys, "denoise", "a.npy", "-o", "b.npy", "--sigma", 10, "--nodata", "nan")[0] == 0
    )
    np.testing.assert_array_equal(np.isnan(np.load("b.npy")), MASK > 0)
    np.save("c.npy", np.where(MASK, np.inf, PICTURE))
    assert "--nodata inf" in rejected(capsys, "inpaint", "c.npy", "-o", "d.npy")
    assert ended(capsys, "inpaint", "c.npy", "-o", "d.npy", "--nodata", "inf")[0] == 0
    assert np.isfinite(np.load("d.npy")).all()
    for command in ("learn", "path"):
        line = rejected(
            capsys, command, put("e.tif", np.load("a.npy")), *["-o", "e.kf"] * (command == "learn")
        )
        assert "e.tif contains NaN or inf: fill such pixels first, by kappaform inpaint" in line


def test_an_unknown_device_is_rejected_before_anything_is_written(folder, capsys):
    put("a.png", PICTURE)
    put("mask.png", MASK)
    arguments = ("inpaint", "a.png", "--mask", "mask.png", "-o", "b.png", "--device", "foo")
    assert "--device foo is unknown" in rejected(capsys, *arguments)
    assert not (folder / "b.png").exists()


def test_the_report_shows_the_pixels_that_are_missing(capsys, monkeypatch):
    drawn, plot = [], kf.plots.plot_denoising

    def watched(*arguments, mask, **options):
        drawn.append(mask)
        return plot(*arguments, mask=mask, **options)

    monkeypatch.setattr(kf.plots, "plot_denoising", watched)
    put("a.png", noisy())
    put("mask.png", MASK)
    words = ("denoise", "a.png", "--sigma", 15, "--quality", "fast", "--report", "r.png")
    assert ended(capsys, *words, "-o", "b.png")[0] == 0
    assert ended(capsys, *words, "-o", "c.png", "--mask", "mask.png", "--overwrite")[0] == 0
    without, given = drawn
    assert without is None
    np.testing.assert_array_equal(np.squeeze(given), MASK > 0)


def test_a_range_in_other_units_is_reported(folder, capsys):
    put("a.png", PICTURE)
    put("mask.png", MASK)
    words = ("inpaint", "a.png", "--mask", "mask.png", "-o", "b.png", "--overwrite")
    code, _, err = ended(capsys, *words, "--value-range", 0, 1)
    assert code == 0
    assert "a.png: --value-range 0 1 excludes most values of the image, 60 to 180: filled" in err
    assert err.count("\n") == 1
    assert set(np.unique(pixels(folder / "b.png")[MASK > 0])) <= {0, 1}
    assert ended(capsys, *words, "--value-range", 0, 255)[2] == ""


@pytest.mark.parametrize(("fraction", "told"), [(0.96, "96 %"), (0.85, "")])
def test_a_mask_of_nearly_all_pixels_is_reported(capsys, rng, fraction, told):
    put("a.png", PICTURE)
    mask = np.arange(PICTURE.size) < fraction * PICTURE.size
    put("mask.png", 255 * rng.permutation(mask).reshape(PICTURE.shape).astype(np.uint8))
    code, _, err = ended(capsys, "inpaint", "a.png", "--mask", "mask.png", "-o", "b.png")
    assert code == 0
    text = f"mask.png: {told} of the pixels are missing: is the mask inverted?"
    assert (text in err) if told else err == ""


@pytest.mark.parametrize("invert", [True, False])
def test_an_inverted_mask_of_scratches_is_reported(capsys, invert):
    put("a.png", np.tile(PICTURE, (4, 4)))
    rows, columns = np.indices((4 * PICTURE.shape[0], 4 * PICTURE.shape[1]))
    scratches = (rows - columns) % 40 < 6  # 15 % of the pixels
    put("mask.png", 255 * (scratches ^ invert).astype(np.uint8))
    code, _, err = ended(capsys, "inpaint", "a.png", "--mask", "mask.png", "-o", "b.png")
    assert code == 0
    assert ("is the mask inverted?" in err) == invert


def test_rare_photons_are_no_dead_pixels(rng):
    for rate in (0.01, 0.1, 0.3):
        assert not dead_pixels(3.0 * rng.poisson(rate, (128, 128))).any()
    flat = np.zeros((128, 128))
    flat[[3, 50], [4, 60]] = 100
    np.testing.assert_array_equal(dead_pixels(flat), flat > 0)


def test_one_value_is_singular(capsys):
    put("a.png", PICTURE)
    mask = np.zeros_like(PICTURE)
    mask[9, 9] = 1
    put("mask.png", mask)
    out = ended(capsys, "inpaint", "a.png", "--mask", "mask.png", "-o", "b.png")[1]
    assert "a.png -> b.png: 1 value filled (" in out
