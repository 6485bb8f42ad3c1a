"""How long a folder will take: said before, and corrected while it is denoised."""

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from cli.command import ended, noisy, put

from kappaform.cli import durations, words
from kappaform.cli.durations import Durations
from kappaform.cli.words import seconds_of
from kappaform.image_files import planes_in


@pytest.fixture
def pictures(folder):
    """Pictures of several sizes; the time of one is a constant plus its pixels."""
    sides = (450, 900, 500, 600, 450, 700)
    paths = [folder / f"{number}.npy" for number in range(len(sides))]
    for path, side in zip(paths, sides, strict=True):
        np.save(path, np.zeros((side, side), np.uint8))
    return dict(zip(paths, sides, strict=True))


@pytest.mark.parametrize("machine", [0.2, 1.0, 7.0])
def test_the_forecast_is_right_within_30_percent_on_every_machine(pictures, machine):
    """Machines differ by a factor, and somewhat in what learning takes."""
    for learning in (0.5, 0.75):
        rate = words.SECONDS["balanced"]
        seconds = {
            path: machine * (learning + rate * side**2 / 1e6) for path, side in pictures.items()
        }
        forecast = Durations(list(pictures), "balanced")
        left = sum(seconds.values())
        for path, spent in list(seconds.items())[:-1]:
            forecast.done(path, spent)
            left -= spent
            assert abs(forecast.seconds_left - left) < 0.3 * left


def test_forecasts_are_those_of_the_stored_benchmark(monkeypatch):
    """Within a factor of 1.5: no forecast can be better, as the speed of machines varies."""
    monkeypatch.setattr(words, "n_threads", lambda: 2)
    rows = json.loads((Path(__file__).parents[2] / "benchmarks/results/amd-epyc.json").read_text())
    stored = {row["name"]: row["value"] for row in rows if row["benchmark"] == "bench_speed"}
    ratios = {}
    for quality, side in product(words.SECONDS, (256, 512, 2048)):
        name, megapixels = f"{side} x {side}, two threads, {quality}", side**2 / 1e6
        ratios[name] = seconds_of(1, side**2, quality) / (stored[name] * megapixels)
    for quality in ("fast", "balanced"):
        name = f"12 megapixels in colour, noise estimated, {quality}, two threads"
        ratios[name] = seconds_of(3, 12_000_000, quality) / stored[name]
    assert {name: ratio for name, ratio in ratios.items() if not 1 / 1.5 < ratio < 1.5} == {}


def test_twice_the_pixels_take_twice_as_long_but_for_learning(folder):
    times = []
    for name, shape in {"a": (500, 400), "b": (1000, 400), "c": (2, 500, 400)}.items():
        np.save(f"{name}.npy", np.zeros(shape, np.uint8))
        times.append(Durations([folder / f"{name}.npy"], "fast").seconds_left)
    assert times[0] < times[1] < times[2] == 2 * times[0]


def test_a_file_that_cannot_be_read_counts_like_the_others(folder):
    np.save("a.npy", np.zeros((100, 100)))
    folder.joinpath("b.npy").write_text("damaged")
    both, one = (
        Durations([folder / name for name in names], "fast").seconds_left
        for names in (("a.npy", "b.npy"), ("a.npy",))
    )
    assert both == 2 * one


def test_a_long_folder_is_announced_and_corrected(pictures, capsys, monkeypatch):
    forecast = Durations(list(pictures), "balanced")
    with monkeypatch.context() as patch:
        patch.setattr(durations, "LONG", 1e9)
        forecast.tell_all("balanced")
    assert capsys.readouterr().err == ""  # it is short
    first, second, *_ = pictures
    forecast.done(first, 600)
    assert re.search(
        r"5 images left: about .* at the speed of those that are done\n", capsys.readouterr().err
    )
    small, large = (seconds_of(1, side**2, "balanced") for side in (450, 900))
    forecast.done(second, 600 * large / small)
    assert capsys.readouterr().err == ""  # as was said
    assert forecast.title("file 3").startswith("file 3 (all: ")


def test_the_command_says_how_long_a_folder_takes(folder, capsys, monkeypatch):
    monkeypatch.setattr(durations, "LONG", 0)
    folder.joinpath("photos").mkdir()
    for number in range(3):
        put(f"photos/{number}.png", noisy(number))
    command = ("denoise", "photos", "-o", "out/", "--sigma", 15, "--patch-size", 4)
    err = ended(capsys, *command)[2]
    assert err.startswith("kappaform: 3 images: about ")
    assert "--quality fast takes less" in err.splitlines()[0]
    folder.joinpath("out/1.png").unlink()
    assert ended(capsys, *command)[2] == ""  # one image is left


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("a.png", (30, 40), (1, 1200)),
        ("a.png", (30, 40, 3), (3, 1200)),
        ("a.png", (30, 40, 4), (3, 1200)),
        ("a.tif", (30, 40, 3), (3, 1200)),
        ("a.tif", (5, 30, 40), (5, 1200)),
        ("a.npy", (5, 30, 40), (5, 1200)),
    ],
)
def test_sizes_are_read_from_headers(folder, name, shape, expected):
    has_channels = shape[-1] in (3, 4)
    put(name, np.zeros(shape, np.uint8), has_channels, has_channels and shape[-1] == 4)
    assert planes_in(folder / name) == expected


def test_what_is_no_image_has_no_size(folder):
    folder.joinpath("a.png").write_text("text")
    assert planes_in(folder / "a.png") is None
    assert planes_in(folder / "missing.tif") is None
    assert planes_in(folder / "a.txt") is None
