"""`kappaform denoise`: which noise is assumed, and how that is said."""

import json
import re

import numpy as np
import pytest
from cli.command import ended, noisy, put, rejected
from numpy.testing import assert_allclose, assert_array_equal
from scipy.ndimage import gaussian_filter
from skimage import data
from skimage.data import camera

import kappaform as kf
from kappaform.cli.words import line_of as line_of_record
from kappaform.image_files import as_stored, read_image

CLEAN = camera()[:256, 100:356].astype(float)
QUICK = ("--patch-size", 5, "--quality", "fast")  # the noise is the same at every quality


def photons(seed=0, gain=20.0):
    """An image of 16 bit with shot noise."""
    counts = np.random.default_rng(seed).poisson(CLEAN / 4)
    return as_stored(gain * counts, np.uint16)


def record_of(capsys, *words):
    code, out, err = ended(capsys, "denoise", *words, *QUICK, "--json")
    assert (code, err) == (0, "")
    (record,) = json.loads(out)["files"]
    return record


def line_of(capsys, *words):
    code, out, err = ended(capsys, "denoise", *words, *QUICK)
    assert (code, err) == (0, "")
    return out


def quickly_denoised(values, **options):
    """What the library makes of an image of 16 bit that the command denoises quickly."""
    image = np.float32(values)
    return kf.denoise(image, patch_size=5, quality="fast", value_range=(0, 65535), **options)


# --- What is assumed is used


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {}),
        ("--noise auto", {}),
        ("--noise white", {"noise": "white"}),
        ("--noise white --sigma 90", {"sigma": 90}),
        ("--noise shot", {"noise": "shot"}),
        ("--noise correlated", {"noise": "correlated"}),
        ("--gain 19", {"noise": kf.Shot(19)}),
        ("--noise shot --gain 19", {"noise": kf.Shot(19)}),
        ("--gain 19 --read-noise 3 --offset -5", {"noise": kf.Shot(19, 3, -5)}),
    ],
)
def test_the_noise_of_the_options_is_the_noise_of_the_library(folder, capsys, words, options):
    values = photons()[:128, :128]
    put("a.tif", values)
    line_of(capsys, "a.tif", *words.split())
    expected = quickly_denoised(values, **options)
    stored = read_image(folder / "a_denoised.tif").pixels
    assert_array_equal(stored, as_stored(expected, np.uint16))


# --- The line


def test_shot_noise_is_found_and_reported(capsys):
    put("a.tif", photons())
    line = line_of(capsys, "a.tif")
    found = re.search(
        r", shot noise, gain ([\d.]+), read noise [\d.]+(, .*)? \(estimated\), ", line
    )
    assert 17 < float(found[1]) < 23


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--gain 2.554", "shot noise, gain 2.55, read noise 0"),
        ("--gain 2.55 --read-noise 3", "shot noise, gain 2.55, read noise 3"),
        ("--gain 20 --offset 512.4", "shot noise, gain 20, read noise 0, offset 512"),
        ("--sigma 15", "noise 15"),
    ],
)
def test_noise_that_is_given_is_reported_as_it_is(capsys, words, told):
    put("a.tif", photons()[:64, :64])
    assert f"64 × 64, {told}, " in line_of(capsys, "a.tif", *words.split())


def test_correlated_noise_is_reported_by_its_size(capsys):
    noise = gaussian_filter(np.random.default_rng(0).standard_normal(CLEAN.shape), 1)
    np.save("a.npy", CLEAN + 20 * noise / noise.std())
    line = line_of(capsys, "a.npy", "--noise", "correlated")
    size = re.search(r", correlated noise ([\d.]+) \(estimated\), ", line)[1]
    assert 10 < float(size) < 30


def test_noise_of_channels_is_a_range(capsys):
    counts = np.random.default_rng(0).poisson(CLEAN[..., np.newaxis], (*CLEAN.shape, 3))
    put("a.tif", as_stored(counts * (10, 20, 30), np.uint16), has_channels=True)
    line = line_of(capsys, "a.tif", "--noise", "shot")
    least, largest = re.search(
        r", shot noise, gain ([\d.]+) to ([\d.]+), read noise ", line
    ).groups()
    assert 8 < float(least) < 12
    assert 25 < float(largest) < 35


def test_pages_with_different_noise_are_several_kinds(folder, capsys):
    white = as_stored(kf.add_noise(CLEAN * 10, 60, rng=0), np.uint16)
    pages = np.stack([photons(), white])
    put("a.tif", pages)
    assert re.search(
        r", several kinds of noise, [\d.]+ to [\d.]+ at mean brightness \(estimated\), ",
        line_of(capsys, "a.tif"),
    )
    stored = read_image(folder / "a_denoised.tif").pixels
    for page, cleaned in zip(pages, stored, strict=True):
        assert_array_equal(cleaned, as_stored(quickly_denoised(page), np.uint16))


# --- JSON


def test_json_has_every_parameter_of_shot_noise(capsys):
    put("a.tif", photons())
    record = record_of(capsys, "a.tif", "--gain", 20, "--read-noise", 3, "--offset", 7)
    expected = {"kind": "shot", "gain": 20.0, "read_noise": 3.0, "offset": 7.0}
    assert record["noise"] == [expected]
    assert not record["noise_estimated"]
    brightness = photons().mean()
    assert_allclose(record["sigma"], np.sqrt(20 * (brightness - 7) + 9), rtol=1e-6)


def test_json_has_the_size_of_a_covariance_and_not_its_numbers(capsys):
    put("a.tif", photons())
    record = record_of(capsys, "a.tif", "--noise", "correlated")
    (noise,) = record["noise"]
    assert noise["kind"] == "correlated"
    assert noise["covariance_shape"] == [1, 1, 25, 25]
    assert noise["stabiliser"]["kind"] == "shot"
    assert 0.5 < noise["deviation"] < 2  # of stabilised values
    assert record["noise_estimated"]


def test_json_has_the_noise_of_every_page_and_channel(capsys):
    pages = np.stack([[noisy(10 * page + c) for c in range(3)] for page in range(2)])
    put("a.tif", pages.transpose(0, 2, 3, 1), has_channels=True)
    record = record_of(capsys, "a.tif", "--noise", "white")
    assert [each["kind"] for each in record["noise"]] == ["white", "white"]
    assert_allclose([each["sigma"] for each in record["noise"]], record["sigma"])
    assert np.shape(record["sigma"]) == (2, 3)


# --- Contradictions


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--sigma 3 --noise shot", "--sigma has no effect with --noise shot"),
        ("--sigma 3 --noise correlated", "--sigma has no effect with --noise correlated"),
        ("--sigma 3 --noise auto", "--sigma has no effect with --noise auto"),
        ("--sigma 3 --gain 2", "--sigma has no effect with --gain"),
        ("--gain 2 --noise white", "--gain has no effect with --noise white"),
        ("--gain 2 --noise correlated", "--gain has no effect with --noise correlated"),
        ("--gain 2 --noise auto", "--gain has no effect with --noise auto"),
        ("--read-noise 3", "--read-noise has no effect without --gain"),
        ("--offset 0", "--offset has no effect without --gain"),
        ("--gain 2 --preset paper", "--gain has no effect with --preset paper"),
        ("--noise shot --preset paper", "--noise shot has no effect with --preset paper"),
    ],
)
def test_noise_that_contradicts_itself_is_rejected(files, capsys, words, message):
    put("a.png", noisy())
    before = files()
    assert message in rejected(capsys, "denoise", "a.png", *words.split())
    assert files() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--gain 0", "--gain 0"),
        ("--gain nan", "--gain nan"),
        ("--gain 2 --read-noise -1", "--read-noise -1"),
        ("--gain 2 --offset inf", "--offset inf"),
        ("--gain 2 --offset nan", "--offset nan"),
        ("--sigma -1", "--sigma -1"),
        ("--sigma nan", "--sigma nan"),
        ("--sigma inf", "--sigma inf"),
        ("--noise loud", "--noise: loud: give one of auto, white, shot"),
    ],
)
def test_numbers_that_no_noise_has_are_rejected(capsys, words, message):
    assert message in rejected(capsys, "denoise", "a.png", *words.split())


def test_noise_that_is_not_there_is_rejected_in_words_of_the_command(capsys):
    np.save("a.npy", kf.add_noise(np.add.outer(np.arange(90.0), np.arange(90.0)), 9, rng=0))
    line = rejected(capsys, "denoise", "a.npy", "--noise", "shot")
    assert "a.npy: --noise shot: the noise of this image does not grow with its brightness" in line
    assert line.endswith("give gain and read noise, --gain and --read-noise.\n")


# --- Warnings


def salted(seed):
    rng = np.random.default_rng(seed)
    values = CLEAN + rng.normal(0, 5, CLEAN.shape)
    values[rng.random(CLEAN.shape) < 0.02] = 255
    return as_stored(values, np.uint8)


IMPULSES = r"kappaform: warning: {}: [\d.]+ % of the pixels are impulses \(salt and pepper\): .*"


def test_a_warning_is_one_line_that_names_its_file(capsys):
    for name in ("a.png", "b.png"):
        put(name, salted(0))  # the same warning for both
    code, _, err = ended(capsys, "denoise", "a.png", "b.png", *QUICK)
    assert code == 0
    lines = err.splitlines()
    assert len(lines) == 2
    for name, line in zip(("a.png", "b.png"), lines, strict=True):
        assert re.fullmatch(IMPULSES.format(name), line)


def test_warnings_of_many_pages_are_one_line(capsys):
    put("a.tif", np.stack([salted(seed) for seed in range(3)]))
    code, _, err = ended(capsys, "denoise", "a.tif", *QUICK)
    assert code == 0
    (line,) = err.splitlines()
    assert re.fullmatch(IMPULSES.format("a.tif") + r" \(and 2 more like this\)", line)


def test_texture_everywhere_is_warned_about_with_the_options_to_give(capsys):
    put("a.png", data.gravel()[:300, :300])
    code, _, err = ended(capsys, "denoise", "a.png", "--quality", "fast")
    assert code == 0
    line, unchanged = err.splitlines()
    assert line.startswith("kappaform: warning: a.png: the noise could not be told from texture")
    assert line.endswith("if that is wrong, try --noise correlated, or give --sigma.")
    assert "next to no noise was found (white, sigma 0)" in unchanged


@pytest.mark.parametrize("n_pages", [1, 3])
def test_a_doubtful_estimate_is_one_line_with_the_option_to_give(capsys, n_pages):
    clipped = np.clip(kf.add_noise(np.zeros((40, 40)), 20), 0, 255).astype(np.uint8)
    put("a.tif", clipped if n_pages == 1 else np.stack([clipped] * n_pages))
    code, _, err = ended(capsys, "denoise", "a.tif", *QUICK)
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith("kappaform: warning: a.tif: the estimated noise is doubtful")
    more = f" (and {n_pages - 1} more like this)" * (n_pages > 1)
    assert line.endswith(f"if the result is wrong, give --sigma.{more}")


def test_a_warning_that_names_the_result_is_not_named_twice(capsys, monkeypatch):
    import warnings

    import kappaform.cli.denoise as module

    write = module.write_image

    def doubting(path, *arguments):
        write(path, *arguments)
        warnings.warn(f"{path} is written without the resolution.", UserWarning, stacklevel=2)

    monkeypatch.setattr(module, "write_image", doubting)
    put("a.png", noisy())
    err = ended(capsys, "denoise", "a.png", "--sigma", 0)[2]
    assert err == "kappaform: warning: a_denoised.png is written without the resolution.\n"


def test_counts_of_a_few_photons_in_whole_numbers_are_warned_of(tmp_path, capsys):
    counts = np.random.default_rng(0).poisson(CLEAN / 255 * 5).astype(np.uint8)
    code, _, err = ended(capsys, "denoise", put(tmp_path / "counts.png", counts), *QUICK)
    assert code == 0
    assert "its values are integers, to which the result is rounded" in err


# --- Nothing to remove


def test_an_image_that_stays_as_it_is_is_reported(capsys):
    put("a.png", np.uint8(np.indices((40, 40)).sum(axis=0)))  # smooth: no noise is found
    code, line, err = ended(capsys, "denoise", "a.png", *QUICK)
    assert code == 0
    assert "noise 0 (estimated), left unchanged, " in line
    assert err.startswith("kappaform: warning: a.png: next to no noise was found")
    assert err.endswith("if the image is noisy, give --sigma.\n")
    assert record_of(capsys, "a.png", "--sigma", 0, "--overwrite")["unchanged"]
    assert "noise 0, left unchanged, " in line_of(capsys, "a.png", "--sigma", 0, "--overwrite")
    put("b.png", noisy())
    assert "unchanged" not in line_of(capsys, "b.png", "--sigma", 15)
    assert not record_of(capsys, "b.png", "--sigma", 15, "--overwrite")["unchanged"]


@pytest.mark.parametrize("words", [("--sigma", 0), ("--sigma", 50, "--strength", 0), ()])
def test_integers_beyond_the_digits_of_floats_stay_as_they_are(folder, capsys, words):
    values = 2**60 + np.random.default_rng(0).integers(0, 1000, (40, 40))
    np.save("a.npy", values)
    assert ended(capsys, "denoise", "a.npy", *words, "-o", "b.npy", *QUICK)[0] == 0
    assert_array_equal(np.load(folder / "b.npy"), values)


# --- How sure an estimate is


def test_an_estimate_that_is_uncertain_says_why_and_what_to_try(capsys):
    np.save("a.npy", np.random.default_rng(0).standard_normal((30, 30)))
    assert re.search(
        r"\(estimated; unsure: measured in \d+ details with little texture; "
        r"try --sigma or --noise correlated\), ",
        line_of(capsys, "a.npy"),
    )
    assert "unsure" not in line_of(capsys, "a.npy", "--sigma", 1, "--overwrite")


def test_json_says_how_certain_the_noise_is(capsys):
    put("a.tif", photons())
    record = record_of(capsys, "a.tif")
    (confidence,), (evidence,) = record["noise_confidence"], record["noise_evidence"]
    assert 0.9 < confidence <= 1
    assert evidence == "values are as far apart as the photons that explain their noise"
    record = record_of(capsys, "a.tif", "--sigma", 20, "--overwrite")
    assert (record["noise_confidence"], record["noise_evidence"]) == ([1.0], [""])


def test_of_a_variance_that_grows_with_brightness_shot_noise_is_to_try():
    def doubt(alternative):
        noises = {"noise": [{"kind": "white"}], "sigma": 1.0, "noise_estimated": True}
        sizes = {"width": 9, "height": 9, "n_pages": 1, "unchanged": False, "seconds": 1.0}
        other = {"input": "a", "output": "b", "strength": 1, "colour_strength": 1}
        about = {"noise_confidence": [0.5], "noise_evidence": ["why"]}
        about["noise_alternative"] = [alternative]
        return line_of_record(noises | sizes | other | about, verbose=False)

    assert "unsure: why; try --noise shot)" in doubt("shot")
    assert "unsure: why; try --sigma)" in doubt("sigma")
    assert "unsure: why; try --sigma or --noise correlated)" in doubt("")


def test_other_names_of_a_kind_are_known(capsys):
    put("a.png", noisy())
    for name in ("poisson", "gaussian"):
        line = rejected(capsys, "denoise", "a.png", "--noise", name)
        assert "(.json). Poisson noise is 'shot', Gaussian noise is 'white'; see" in line
