"""`kappaform denoise`: planes and volumes of a file, one transform for all, quality of results."""

import json
import re

import numpy as np
import pytest
import tifffile
from cli.command import PICTURE, ended, noisy, put, rejected
from numpy.testing import assert_array_equal

import kappaform as kf
from kappaform.image_files import as_stored, read_image

GREY_LEVELS = (0, 255)
OPTIONS = {"patch_size": 3, "quality": "fast", "value_range": GREY_LEVELS, "rng": 0}
WORDS = ("--sigma", 15, "--patch-size", 3, "--quality", "fast")
SMALL = (20, 24)


def hyperstack(*lengths):
    """Noisy planes of different brightness, of 8 bit."""
    planes = [noisy(seed)[:20, :24] // 2 + 4 * seed for seed in range(np.prod(lengths))]
    return np.stack(planes).astype(np.uint8).reshape(*lengths, *SMALL)


def cleaned(images, **options):
    return as_stored(kf.denoise(np.float32(images), 15, **OPTIONS, **options), np.uint8)


def done(capsys, *words):
    code, out, err = ended(capsys, "denoise", *words)
    assert (code, err) == (0, "")
    return out


# --- Planes and volumes


@pytest.mark.parametrize("option", [[], ["--stack"]])
@pytest.mark.parametrize("kind", ["imagej", "ome", "pages"])
def test_every_plane_of_a_tiff_is_an_image_of_its_own(folder, capsys, option, kind):
    values = hyperstack(2, 2, 2)
    told = {"imagej": {"imagej": True}, "ome": {"ome": True}, "pages": {}}[kind]
    metadata = {"axes": "TZCYX"} if told else None
    options = {"photometric": "minisblack", "metadata": metadata}
    tifffile.imwrite("a.tif", values if told else values.reshape(-1, *SMALL), **told, **options)
    out = done(capsys, "a.tif", *WORDS, *option)
    assert ": 8 pages of 24 × 20, noise 15, " in out
    stored = read_image(folder / "a_denoised.tif")
    expected = [cleaned(plane) for plane in values.reshape(-1, *SMALL)]
    assert_array_equal(stored.pixels.reshape(-1, *SMALL), expected)
    assert stored.axes == read_image(folder / "a.tif").axes


def test_a_volume_is_along_z_and_never_over_channels_or_times(folder, capsys):
    values = hyperstack(2, 5, 3)
    tifffile.imwrite("a.tif", values, imagej=True, metadata={"axes": "TZCYX"})
    assert ": 30 pages of 24 × 20 as 6 volumes, " in done(capsys, "a.tif", "--volume", *WORDS)
    stored = read_image(folder / "a_denoised.tif").pixels
    assert stored.shape == values.shape
    for t in range(2):
        for c in range(3):
            assert_array_equal(stored[t, :, c], cleaned(values[t, :, c]))


def movie_of(*lengths):
    """Frames of one image with noise of their own; the noise of the second channel is larger."""
    frames = np.stack([noisy(seed)[:20, :24] // 2 for seed in range(np.prod(lengths))])
    frames = frames.reshape(*lengths, *SMALL)
    frames[:, :, 1] = 255 - frames[:, :, 1]
    return frames.astype(np.uint8)


def test_frames_of_a_movie_are_along_time_and_never_mix_channels_or_depths(folder, capsys):
    values = movie_of(3, 2, 2)
    tifffile.imwrite("a.tif", values, imagej=True, metadata={"axes": "TZCYX"})
    words = ["--movie", "--sigma", 15, "--patch-size", 3]
    assert ": 12 pages of 24 × 20 as 4 movies, " in done(capsys, "a.tif", *words)
    stored = read_image(folder / "a_denoised.tif").pixels
    assert stored.shape == values.shape
    options = OPTIONS | {"quality": "balanced", "stack_axis": 0, "movie": True}
    for z in range(2):
        for c in range(2):
            expected = kf.denoise(np.float32(values[:, z, c]), 15, **options)
            assert_array_equal(stored[:, z, c], as_stored(expected, np.uint8))


def test_the_noise_of_every_channel_of_a_movie_is_its_own(folder, capsys, rng):
    clean = np.stack([np.kron(PICTURE, np.ones((2, 2))), 255 - np.kron(PICTURE, np.ones((2, 2)))])
    values = clean + rng.standard_normal((4, *clean.shape)) * np.array([5, 40])[:, None, None]
    tifffile.imwrite("a.tif", np.float32(values), imagej=True, metadata={"axes": "TCYX"})
    tifffile.imwrite("b.tif", np.float32([clean] * 4), imagej=True, metadata={"axes": "TCYX"})
    words = ["a.tif", "--movie", "--noise", "white", "--compare", "b.tif", "--report", "r.png"]
    code, out, _ = ended(capsys, "denoise", *words, "--patch-size", 6, "--json")
    assert code == 0
    (record,) = json.loads(out)["files"]
    assert (record["n_pages"], record["n_movies"], len(record["noise"])) == (8, 2, 2)
    first, second = record["sigma"]
    assert 3 < first < 8 < 30 < second < 50
    assert record["psnr_after"] > record["psnr_before"] + 6
    cleaned = read_image(folder / "a_denoised.tif").pixels
    assert np.sqrt(np.mean((cleaned[:, 1] - clean[1]) ** 2)) < 20  # of 40


def test_channels_alone_are_no_movie(files, capsys):
    tifffile.imwrite("a.tif", hyperstack(3), imagej=True, metadata={"axes": "CYX"})
    before = files()
    line = rejected(capsys, "denoise", "a.tif", "--movie")
    text = "a.tif: the axes of the image are CYX, none of which is the time of a movie: "
    assert f"{text}leave out --movie." in line
    assert files() == before


def test_channels_alone_are_no_volume(files, capsys):
    tifffile.imwrite("a.tif", hyperstack(3), imagej=True, metadata={"axes": "CYX"})
    before = files()
    line = rejected(capsys, "denoise", "a.tif", "--volume")
    text = "a.tif: the axes of the image are CYX, none of which is the depth of a volume: "
    assert f"{text}leave out --volume." in line
    assert files() == before


def test_pages_in_colour_are_denoised_each_with_its_colours(folder, capsys):
    values = np.stack([hyperstack(3), hyperstack(3)[::-1]]).transpose(0, 2, 3, 1)
    put("a.tif", values, has_channels=True)
    done(capsys, "a.tif", *WORDS)
    expected = [cleaned(page, channel_axis=-1) for page in values]
    assert_array_equal(read_image(folder / "a_denoised.tif").pixels, expected)


def test_arrays_of_many_axes_are_planes_or_volumes_as_declared(folder, capsys):
    values = hyperstack(2, 5)
    np.save("a.npy", values)
    assert "a.npy has pages, shape (2, 5, 20, 24): add" in rejected(capsys, "denoise", "a.npy")
    done(capsys, "a.npy", "--stack", *WORDS)
    planes = [cleaned(plane) for plane in values.reshape(-1, *SMALL)]
    assert_array_equal(np.load(folder / "a_denoised.npy").reshape(-1, *SMALL), planes)
    done(capsys, "a.npy", "--volume", "--overwrite", *WORDS)
    assert_array_equal(np.load(folder / "a_denoised.npy"), [cleaned(each) for each in values])


def test_planes_are_compared_with_those_of_the_reference(capsys):
    values = hyperstack(2, 3)
    for name in ("a.tif", "clean.tif"):
        tifffile.imwrite(name, values, imagej=True, metadata={"axes": "TZYX"})
    out = done(capsys, "a.tif", "--compare", "clean.tif", "--sigma", 0, "--report", "r.png")
    assert "PSNR inf -> inf dB, SSIM 1.0000 -> 1.0000" in out


# --- One transform for all


def test_one_transform_is_learned_from_all_pages(folder, capsys):
    values = hyperstack(4)
    put("a.tif", values)
    done(capsys, "a.tif", "--share", *WORDS)
    expected = cleaned(values, stack_axis=0, share=True)
    assert_array_equal(read_image(folder / "a_denoised.tif").pixels, expected)
    assert not np.array_equal(expected, cleaned(values, stack_axis=0))


def test_one_transform_is_learned_from_all_files_whatever_their_size_and_colours(folder, capsys):
    grey, pages = noisy(), hyperstack(2)
    colours = np.stack([noisy(seed)[:30] for seed in (5, 6, 7)], axis=-1)
    put("a.png", grey)
    put("b.tif", pages)
    put("c.png", colours, has_channels=True)
    done(capsys, "a.png", "b.tif", "c.png", "--share", *WORDS)
    images = [grey[..., np.newaxis], *pages[..., np.newaxis], colours]
    shared = kf.learn_from_images(
        [np.float32(each) for each in images], 15, patch_size=3, channel_axis=-1, rng=0
    )
    stored = [
        read_image(folder / f"{name}_denoised{suffix}").pixels
        for name, suffix in (("a", ".png"), ("b", ".tif"), ("c", ".png"))
    ]
    assert_array_equal(stored[0], cleaned(grey, transform=shared))
    assert_array_equal(stored[1], cleaned(pages, transform=shared, stack_axis=0))
    assert_array_equal(stored[2], cleaned(colours, transform=shared, channel_axis=-1))


def test_sharing_estimates_the_noise_of_every_image(capsys):
    put("a.png", noisy())
    put("b.png", as_stored(kf.add_noise(PICTURE, 5, rng=0), np.uint8))
    words = ["denoise", "a.png", "b.png", "--share", "--noise", "white", "--json"]
    code, out, err = ended(capsys, *words, "--patch-size", 3)
    assert (code, err) == (0, "")
    first, second = json.loads(out)["files"]
    assert first["sigma"] > 2 * second["sigma"]
    assert first["condition_number"] == second["condition_number"]


def test_a_batch_that_goes_on_shares_the_same_transform(folder, capsys):
    for seed, name in enumerate(("a.png", "b.png")):
        put(name, noisy(seed))
    words = ["a.png", "b.png", "--share", *WORDS]
    done(capsys, *words)
    before = (folder / "b_denoised.png").read_bytes()
    (folder / "b_denoised.png").unlink()
    assert "skipped" in done(capsys, *words)
    assert (folder / "b_denoised.png").read_bytes() == before


def test_nothing_is_learned_if_all_results_are_there(capsys, monkeypatch):
    for name in ("a.png", "b.png"):
        put(name, noisy())
    words = ["a.png", "b.png", "--share", *WORDS]
    done(capsys, *words)
    monkeypatch.setattr(kf, "learn_from_images", lambda *_, **__: 1 / 0)
    assert done(capsys, *words).endswith("0 denoised, 2 skipped (output exists), 0 failed\n")


def test_a_shared_transform_of_shallow_volumes_fits_them(folder, capsys):
    for name in ("a.tif", "b.tif"):
        tifffile.imwrite(name, hyperstack(3), imagej=True, metadata={"axes": "ZYX"})
    done(capsys, "a.tif", "b.tif", "--volume", "--share", "--sigma", 15)
    assert (folder / "b_denoised.tif").is_file()


def test_a_file_that_cannot_be_read_costs_only_itself(folder, capsys):
    put("a.png", noisy())
    put("b.png", noisy(1))
    (folder / "bad.png").write_text("no image")
    code, out, err = ended(capsys, "denoise", "bad.png", "a.png", "b.png", "--share", *WORDS)
    assert code == 2
    assert re.fullmatch(r"kappaform: error: bad\.png is not a valid PNG file: .*\n", err)
    assert out.splitlines()[-1] == "2 denoised, 1 failed"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.png", "--share", "--preset", "paper"], "--share has no effect with --preset paper"),
        (["a.png", "--share", "--model", "m.kf"], "--share has no effect with --model"),
        (["a.png", "tiny.png", "--share"], "--share: tiny.png: --patch-size (10, 10) is larger"),
        (["a.png", "nan.npy", "--share"], "--share: nan.npy: image contains NaN or inf"),
        (["z.tif", "a.png", "--share", "--volume"], "--share: a.png: image has 2 dimensions of"),
        (["a.png", "a.tif", "--share", "--sigma", "0"], "--share: images have no noise, so there"),
    ],
)
def test_what_cannot_be_shared_is_rejected(files, capsys, words, message):
    put("a.png", noisy())
    put("a.tif", noisy())
    put("z.tif", hyperstack(4))
    put("tiny.png", noisy()[:8, :8])
    np.save("nan.npy", np.full((36, 36), np.nan))
    before = files()
    assert message in rejected(capsys, "denoise", *words)
    assert files() == before


# --- Quality


def test_quality_is_that_of_the_lossy_results_only(folder, capsys):
    colours = np.stack([noisy(seed) for seed in range(3)], axis=-1)
    for name in ("a.jpg", "b.webp", "c.png"):
        put(name, colours, has_channels=True)
    sizes = {}
    for quality in (20, 90):
        done(
            capsys,
            "a.jpg",
            "b.webp",
            "c.png",
            "--jpeg-quality",
            quality,
            "--sigma",
            0,
            "-o",
            "o",
            "--overwrite",
        )
        sizes[quality] = [(folder / "o" / name).stat().st_size for name in ("a.jpg", "b.webp")]
        assert_array_equal(read_image(folder / "o" / "c.png").pixels, colours)
    assert all(low < 0.7 * high for low, high in zip(sizes[20], sizes[90], strict=True))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["a.png", "--jpeg-quality", "50"],
            "--jpeg-quality has no effect: no result is JPEG or WebP",
        ),
        (
            ["a.jpg", "-o", "b.png", "--jpeg-quality", "50"],
            "--jpeg-quality has no effect: no result is",
        ),
        (["a.jpg", "--jpeg-quality", "0"], "--jpeg-quality: 0: give an integer from 1 to 100"),
        (["a.jpg", "--jpeg-quality", "101"], "--jpeg-quality: 101: give an integer from 1 to 100"),
    ],
)
def test_quality_without_effect_is_rejected_before_any_work(files, capsys, words, message):
    put("a.png", noisy())
    put("a.jpg", noisy())
    before = files()
    assert message in rejected(capsys, "denoise", *words)
    assert files() == before
