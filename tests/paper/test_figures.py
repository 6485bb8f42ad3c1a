"""The figures of the paper, and the one over the bound, as the command computes them."""

import csv
import json
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import kappaform as kf
from kappaform.cli import main
from kappaform.paper import figures
from kappaform.paper.curves import COLUMNS, learn_curves, rises
from kappaform.paper.dataset import signals_of
from kappaform.paper.tradeoff import learn_path

FAST = ("--images", "Barbara", "man", "Cameraman", "--quick", "--n-iter", "3")
N_ITER = 30
SETTING = ("n_nonzero", "weight", "method", "variant", "objective")


def read(file):
    with file.open() as opened:
        return list(csv.DictReader(opened))


def contents(out):
    """Bytes of the tables that are the same in every run."""
    names = ("figures.csv", "figures_summary.csv", "path.csv")
    return {name: (Path(out) / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def curves(dataset):
    """Curves of one setting, by variant and objective."""
    found = learn_curves(dataset, ["barbara", "man"], 6, 1e-3, n_iter=N_ITER, stride=1)
    return {(curve["variant"], curve["objective"]): curve for curve in found}


@pytest.fixture(scope="module")
def quick(dataset, tmp_path_factory):
    """Folder with the results of a quick run in one process."""
    out = tmp_path_factory.mktemp("quick") / "out"
    words = ["figures", *FAST, "--data", str(dataset), "-o", str(out), "--workers", "1"]
    assert main(["reproduce", *words]) == 0
    return out


# --- Curves


def test_conditioned_curves_have_bound_and_norm_of_the_final_log_det_transform(dataset, curves):
    signals = signals_of(dataset, ["barbara", "man"])
    beside = kf.learn(signals, kf.LogDet(1e-3), n_nonzero_coefs=6, max_iter=N_ITER, tol=0)
    assert len(curves) == 6
    for (variant, _), curve in curves.items():
        if variant is not None:
            assert curve["max_condition"] == beside.condition_number
            assert curve["condition_number"] <= beside.condition_number * (1 + 1e-9)
        assert curve["norm"] == pytest.approx(np.linalg.norm(beside.transform))


def test_errors_are_those_of_learning(dataset, curves):
    signals = signals_of(dataset, ["barbara", "man"])
    curve, beside = curves["reference", "absolute"], curves[None, None]
    method = kf.Conditioned(curve["max_condition"], norm=beside["norm"], variant="reference")
    errors = kf.learn(signals, method, n_nonzero_coefs=6, max_iter=N_ITER, tol=0).errors
    for name in errors._fields:
        assert_array_equal(curve[name], getattr(errors, name)[1:])
    assert_allclose(curve["per_norm"], errors.absolute[1:] / beside["norm"])


@pytest.mark.parametrize("objective", ["absolute", "relative"])
def test_monotone_curves_count_all_updates_and_never_rise(curves, objective):
    curve = curves["monotone", objective]
    assert len(curve[objective]) == curve["n_iter"] >= curve["n_iter_of_kept_start"]
    assert rises(curve[objective])[0] == 0


def test_rises_are_counted_beyond_rounding():
    assert rises([4.0, 2.0, 3.0, 3.0 + 1e-12, 1.0, 1.1]) == (2, pytest.approx(0.5))
    assert rises([3.0, 2.0]) == (0, 0.0)
    assert rises([3.0]) == (0, 0.0)


# --- The command


def test_a_quick_run_writes_every_file_and_marks_them(quick):
    names = {file.name for file in quick.iterdir()}
    pictures = {"figure1.png", "figure3.png"}
    tables = {"figures.csv", "figures_summary.csv", "figures_timings.csv", "path.csv"}
    assert names == {*pictures, *tables, "figures.md", "figures.parts"}
    text = (quick / "figures.md").read_text(encoding="utf-8")
    assert "# Figures 1 and 2: errors over the iterations, quick run" in text
    assert "own codes" in text
    assert json.loads((quick / "figures.parts" / "settings.json").read_text())["quick"] is True


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


def test_two_processes_and_a_repeated_run_give_the_same_bits(quick, reproduce, monkeypatch):
    code, out, err = reproduce("figures", *FAST, workers=2)
    assert (code, err) == (0, "")
    assert "too short to compare" in out
    assert contents("out") == contents(quick)
    monkeypatch.setattr(figures, "compute", None)  # nothing is left to compute
    code, out, _ = reproduce("figures", *FAST, "--json")
    assert code == 0
    assert contents("out") == contents(quick)
    assert len(json.loads(out)["curves"]) == 1 + 2 * 6


def test_the_seed_chooses_the_validating_half(dataset):
    setting = (dataset, ["barbara", "man"], "monotone", "absolute", [2.0], 2)
    tables = [learn_path(*setting, seed=seed, stride=1)["table"] for seed in (0, 0, 1)]
    assert tables[0] == tables[1]
    assert tables[0]["validation_absolute"] != tables[2]["validation_absolute"]


def test_an_interruption_says_how_to_go_on(reproduce, monkeypatch):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(figures, "compute", interrupted)
    code, out, err = reproduce("figures", *FAST)
    assert (code, out) == (130, "")
    assert "0 parts are finished and kept in out; the same command goes on" in err


def test_bad_input_is_refused_in_one_line(refused, tmp_path, images):
    line = refused("figures")  # there is no peppers
    assert "image 'peppers' is neither a folder in" in line
    assert "available are barbara, cameraman, man; choose among them with --images" in line
    assert "no such folder" in refused("figures", data=tmp_path / "nowhere")
    assert "0: give an integer >= 1" in refused("figures", "--n-iter", 0)
    (images / "peppers.png").write_bytes(b"nonsense")
    assert "peppers.png is damaged" in refused("figures", "--images", "peppers")
    assert not Path("out").exists()


def test_results_with_other_settings_are_refused_by_name(refused):
    settings = {"images": ["man"], "n_iter": 4, "seed": 0, "quick": True}
    figures.open_parts(Path("out"), "figures", {**settings, "kappaform": kf.__version__})
    words = ("figures", "--quick", "--images", "Man")
    assert "with n_iter=4, not 60" in refused(*words)
    assert "with images=man, not man,barbara" in refused(*words, "Barbara", "--n-iter", 4)


# --- Help


@pytest.mark.parametrize("words", [[], ["table1"], ["figures"]])
def test_help_has_an_example_and_the_exit_codes(words, capsys):
    assert main(["reproduce", *words, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "example:\n  kappaform reproduce " in out
    if words:
        assert "--json" in out
        assert "Ends with" in out
