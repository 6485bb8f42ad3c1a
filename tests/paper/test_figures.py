"""The figures of the paper, and the one over the bound, as the command computes them."""

import csv
import json
import shutil
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import kappaform as kf
from kappaform.cli import main
from kappaform.paper import figures
from kappaform.paper.data import clean_pictures, signals_of
from kappaform.paper.figures import COLUMNS, learn_curves, learn_path, rises

# The images of these tests have few patches, which `learn` warns of.
pytestmark = pytest.mark.filterwarnings("ignore:signals has shape:UserWarning")

FAST = ("--images", "Barbara", "man", "Cameraman", "--quick", "--n-iter", "2")
N_ITER = 30
SETTING = ("n_nonzero", "weight", "method", "variant", "objective")


def read(file):
    with file.open() as opened:
        return list(csv.DictReader(opened))


def contents(out):
    """Bytes of the tables that are the same in every run."""
    names = ("figures.csv", "figures_summary.csv", "path.csv")
    return {name: (Path(out) / name).read_bytes() for name in names}


def no_work(*_, **__):
    raise AssertionError("there was work")


@pytest.fixture(scope="module")
def signals(dataset):
    pictures = clean_pictures(dataset)
    return signals_of([pictures["barbara"], pictures["man"]])


@pytest.fixture(scope="module")
def curves(signals):
    """Curves of one setting, by variant and objective."""
    found = learn_curves(signals, n_nonzero=6, weight=1e-3, n_iter=N_ITER)
    return {(curve["variant"], curve["objective"]): curve for curve in found}


@pytest.fixture(scope="module")
def quick(dataset, tmp_path_factory):
    """Folder with the results of a quick run in one process."""
    out = tmp_path_factory.mktemp("quick") / "out"
    words = ["figures", *FAST, "--data", str(dataset), "-o", str(out), "--workers", "1"]
    assert main(["reproduce", *words]) == 0
    return out


# --- Curves


def test_conditioned_curves_have_bound_and_norm_of_the_final_log_det_transform(signals, curves):
    beside = kf.learn(signals, kf.LogDet(1e-3), n_nonzero_coefs=6, max_iter=N_ITER, tol=0)
    assert len(curves) == 6
    for (variant, _), curve in curves.items():
        if variant is not None:
            assert curve["max_condition"] == beside.condition_number
            assert curve["condition_number"] <= beside.condition_number * (1 + 1e-9)
        assert curve["norm"] == pytest.approx(np.linalg.norm(beside.transform))


def test_errors_are_those_of_learning(signals, curves):
    curve, beside = curves["reference", "absolute"], curves[None, None]
    method = kf.Conditioned(curve["max_condition"], norm=beside["norm"], variant="reference")
    errors = kf.learn(signals, method, n_nonzero_coefs=6, max_iter=N_ITER, tol=0).errors
    for name in errors._fields:
        assert_array_equal(curve[name], getattr(errors, name)[1:])
    assert_allclose(curve["per_norm"], errors.absolute[1:] / beside["norm"])
    assert_allclose(curve["per_norm_before"], errors.absolute_before[1:] / beside["norm"])


@pytest.mark.parametrize("objective", ["absolute", "relative"])
def test_monotone_curves_count_all_updates_and_never_rise(curves, objective):
    curve = curves["monotone", objective]
    assert len(curve[objective]) == curve["n_iter"] >= curve["n_iter_of_kept_start"]
    assert rises(curve[objective])[0] == 0


def test_rises_are_counted_beyond_rounding():
    assert rises([4.0, 2.0, 3.0, 3.0 + 1e-12, 1.0, 1.1]) == (2, 0.5)
    assert rises([3.0, 2.0]) == (0, 0.0)
    assert rises([3.0]) == (0, 0.0)
    assert rises([3.0, 4.5, np.nan, 2.0]) == (1, 0.5)  # the start of another descent


# --- The command


def test_a_quick_run_writes_every_file_and_marks_them(quick):
    names = {file.name for file in quick.iterdir()}
    pictures = {"figure1.png", "figure3.png"}
    tables = {"figures.csv", "figures_summary.csv", "figures_timings.csv", "path.csv"}
    assert names == {*pictures, *tables, "figures.md", "figures.parts"}
    assert all((quick / name).read_bytes()[:4] == b"\x89PNG" for name in pictures)
    text = (quick / "figures.md").read_text(encoding="utf-8")
    assert "- quick: True\n" in text
    assert "- images: barbara, man, cameraman\n- images missing: none\n" in text


def test_csv_files_agree_with_each_other(quick):
    rows = read(quick / "figures_summary.csv")
    summary = {tuple(row[name] for name in SETTING): row for row in rows}
    curves = groupby(read(quick / "figures.csv"), lambda row: tuple(row[name] for name in SETTING))
    for setting, points in curves:
        *_, last = points
        row = summary.pop(setting)
        assert [last[name] for name in COLUMNS] == [row[name] for name in COLUMNS]
        assert last["iteration"] == row["n_iter"]
        expected = {"reference": ["True"], "": [""]}.get(row["variant"], ["True", "False"])
        assert row["absolute_at_most_reference"] in expected
    assert not summary
    path = read(quick / "path.csv")
    assert len(path) == 4 * 4
    for row in path:
        assert float(row["condition_number"]) <= float(row["max_condition"]) * (1 + 1e-9)


@pytest.mark.usefixtures("no_pictures")
def test_two_processes_and_a_repeated_run_give_the_same_bits(quick, reproduce, monkeypatch):
    code, out, err = reproduce("figures", *FAST, workers=2)
    assert (code, err) == (0, "")
    assert "images: barbara, man, cameraman\n" in out
    assert contents("out") == contents(quick)
    for work in ("learn_curves", "learn_path"):
        monkeypatch.setattr(figures, work, no_work)
    code, out, _ = reproduce("figures", *FAST, "--json")
    assert code == 0
    assert contents("out") == contents(quick)
    assert len(json.loads(out)["curves"]) == 1 + 2 * 6


def test_the_seed_chooses_the_validating_half(signals):
    setting = {"variant": "monotone", "objective": "absolute", "bounds": [2.0], "n_iter": 2}
    tables = [learn_path(signals, **setting, seed=seed)["table"] for seed in (0, 0, 1)]
    assert tables[0] == tables[1]
    assert tables[0]["validation_absolute"] != tables[2]["validation_absolute"]


def test_an_interruption_says_how_to_resume(reproduce, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(figures, "learn_curves", interrupted)
    monkeypatch.setattr(figures, "learn_path", interrupted)
    code, out, err = reproduce("figures", *FAST)
    assert (code, out) == (130, "")
    assert "finished parts are in out; the same command resumes" in err


# --- Images


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.filterwarnings("always::UserWarning")
def test_without_a_choice_the_figures_are_of_those_images_of_the_paper_that_are_there(
    images, reproduce, monkeypatch
):
    monkeypatch.setattr(figures.paper, "WEIGHTS", (1e-3,))
    shutil.copytree(images / "img" / "Man", images / "img" / "Lena")
    code, out, err = reproduce("figures", "--quick", "--n-iter", 1)  # there is no peppers
    assert code == 0
    assert err == (f"kappaform: warning: {images} lacks peppers: the figures show barbara, lena.\n")
    assert "images: barbara, lena\nimages missing: peppers\n" in out
    text = Path("out", "figures.md").read_text(encoding="utf-8")
    assert "- images: barbara, lena\n- images missing: peppers\n" in text


def test_images_that_are_asked_for_must_be_there(rejected, images):
    line = rejected("figures", "--images", "barbara", "peppers")
    assert "has neither img/NAME nor NAME.png for peppers: available are barbara, cam" in line
    assert "choose among them with --images" in line
    shutil.rmtree(images / "img" / "Barbara")
    line = rejected("figures")  # none of the three
    assert "for barbara, peppers, lena: available are cameraman, man; choose" in line
    assert not Path("out").exists()


def test_bad_input_is_rejected_in_one_line(rejected, tmp_path, images):
    line = rejected("figures", data=tmp_path / "nowhere")
    assert "no such folder" in line
    assert line.endswith("--data DIR.\n")
    assert "0: give an integer >= 1" in rejected("figures", "--n-iter", 0)
    (images / "peppers.png").write_bytes(b"nonsense")
    assert "peppers.png is not a valid PNG file" in rejected("figures", "--images", "peppers")
    assert not Path("out").exists()


def test_results_with_other_settings_are_rejected_by_name(quick, rejected):
    shutil.copytree(quick, "out")
    assert "n_iter = 2, not 3: give another folder" in rejected("figures", *FAST, "--n-iter", 3)
    assert "digest of the images = " in rejected("figures", *FAST, "--images", "Barbara")


# --- Help


@pytest.mark.parametrize("words", [[], ["table1"], ["figures"]])
def test_help_has_an_example_and_the_exit_codes(words, capsys):
    assert main(["reproduce", *words, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "example:\n  kappaform reproduce " in out
    if words:
        assert "--json" in out
        assert "exit status" in out
