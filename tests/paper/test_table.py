"""Table 1 of the paper, as the command computes it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.io import savemat

from kappaform.imaging.published import published_denoise
from kappaform.paper import table
from kappaform.paper.dataset import read_pair
from kappaform.paper.pictures import draw_table
from kappaform.paper.printed import IMAGES, METHODS, NOISY_PSNR, SIGMAS, printed_table

FAST = ("--sigmas", 100, "--patch-size", 8)  # few rounds, small transforms


def rows(out="out"):
    with Path(out, "table1.csv").open() as file:
        return list(csv.DictReader(file))


def content(out="out"):
    return Path(out, "table1.csv").read_bytes()


def no_work(*_, **__):
    raise AssertionError("there was work")


@pytest.fixture
def one_method(monkeypatch):
    """One method in place of three, where one of them tells."""
    monkeypatch.setattr(table, "METHODS", ("orthonormal",))


# --- What the paper prints


def test_the_printed_table_has_every_cell():
    cells = {(image, sigma, method) for image in IMAGES for sigma in SIGMAS for method in METHODS}
    assert printed_table().keys() == cells
    assert NOISY_PSNR.keys() == set(SIGMAS)


@pytest.mark.paper
def test_the_printed_table_is_the_papers(paper_facts):
    with (paper_facts / "table1.csv").open() as file:
        for row in csv.DictReader(file):
            method = row["method"].replace("logdet", "log-det")
            printed = printed_table()[row["image"], int(row["sigma"]), method]
            assert printed == (float(row["psnr_db"]), float(row["ssim"]))


# --- What is computed


def test_the_table_holds_ours_the_papers_and_the_difference(reproduce):
    code, out, err = reproduce("table1", "--images", "barbara", "Man", *FAST)
    assert (code, err) == (0, "")
    assert "mean |difference| from the paper" in out
    assert [(row["image"], row["method"]) for row in rows()] == [
        (image, method) for image in ("Barbara", "Man") for method in METHODS
    ]
    for row in rows():
        printed = printed_table()[row["image"], 100, row["method"]]
        assert (float(row["paper_psnr"]), float(row["paper_ssim"])) == printed
        for name in ("psnr", "ssim"):
            expected = float(row[name]) - float(row[f"paper_{name}"])
            assert float(row[f"{name}_difference"]) == pytest.approx(expected, abs=1e-9)
        assert float(row["psnr"]) > float(row["noisy_psnr"]) + 3
        assert row["run"] == "full"
    assert {row["noise"] for row in rows()[:3]} == {"public"}
    assert {row["noise"] for row in rows()[3:]} == {"made"}
    timings = Path("out", "timings.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in timings[:2]] == ["part", "Barbara-sigma100-conditioned"]
    assert len(timings) == 1 + 6


@pytest.mark.usefixtures("one_method")
def test_what_is_made_here_is_marked_wherever_it_shows(reproduce, images):
    reproduce("table1", "--images", "Barbara", "Man", *FAST)
    text = Path("out", "table1.md").read_text(encoding="utf-8")
    assert "| Man\\* |" in text
    assert "| Barbara |" in text
    assert "made here with a fixed seed" in text
    assert "11 × 11 pixels only" in text  # these are patches of 8
    assert Path("out", "table1.png").read_bytes()[:4] == b"\x89PNG"
    found = table.reproduce_table(
        images, Path("out"), images=["Barbara", "Man"], sigmas=[100], patch_size=8
    )
    figure = draw_table(found)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["Barbara", "Man*"]
    assert "* noise made here" in figure.get_suptitle()


def test_a_quick_run_is_a_marked_part_of_the_table(reproduce):
    code, out, err = reproduce("table1", "--quick", "--patch-size", 8, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    cells = {(cell["image"], cell["sigma"]) for cell in document["cells"]}
    assert cells == {("Cameraman", 20), ("Cameraman", 100)}
    assert {cell["run"] for cell in document["cells"]} == {"quick"}
    assert document["settings"]["quick"] is True
    assert document["left_out"] == {}
    assert "(quick run, 6 of 105 cells)" in Path("out", "table1.md").read_text(encoding="utf-8")
    gain = document["summary"]["gain_over_log_det"]
    named = {(cell["sigma"], cell["method"]): cell["psnr"] for cell in document["cells"]}
    gains = [named[sigma, "conditioned"] - named[sigma, "log-det"] for sigma in (20, 100)]
    assert gain == pytest.approx(np.mean(gains), abs=1e-5)


def test_the_methods_learn_from_the_same_patches(reproduce, monkeypatch):
    drawn = {}

    def watched(image, sigma, method, patch_shape, training, **options):
        positions = [next(training) for _ in range(6)]
        drawn[method] = np.array(positions)
        return published_denoise(image, sigma, method, patch_shape, iter(positions), **options)

    monkeypatch.setattr(table, "published_denoise", watched)
    reproduce("table1", "--images", "Barbara", *FAST)
    assert drawn.keys() == set(METHODS)
    assert_array_equal(drawn["log-det"], drawn["conditioned"])
    assert_array_equal(drawn["log-det"], drawn["orthonormal"])
    first = drawn["log-det"]
    reproduce("table1", "--images", "Barbara", *FAST, "--seed", 1, out="other")
    assert not np.array_equal(first, drawn["log-det"])


@pytest.mark.usefixtures("one_method")
def test_a_cell_does_not_depend_on_the_others_nor_on_the_order(reproduce):
    reproduce("table1", "--images", "Barbara", "Man", *FAST)
    reproduce("table1", "--images", "Man", *FAST, out="other")
    assert rows("other") == rows()[1:]
    reproduce("table1", "--images", "Man", "Barbara", *FAST, out="other")
    assert content("other") == content()


def test_two_processes_give_the_same_bits_as_one(reproduce):
    words = ("table1", "--images", "Barbara", *FAST)
    assert reproduce(*words)[0] == 0
    code, _, err = reproduce(*words, out="other", workers=2)
    assert (code, err) == (0, "")
    assert content("other") == content()


@pytest.mark.usefixtures("one_method")
def test_a_run_that_is_repeated_computes_what_is_missing_only(reproduce, monkeypatch):
    words = ("table1", "--images", "Barbara", *FAST)
    reproduce(*words)
    before = content()
    cell = Path("out", "table1.parts", "Barbara-sigma100-orthonormal.json")
    kept = cell.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(table, "published_denoise", no_work)
        assert reproduce(*words)[0] == 0
        assert content() == before
        cell.unlink()
        assert "there was work" in reproduce(*words)[2]
    cell.write_bytes(kept[:40])  # cut off: computed again
    assert reproduce(*words)[0] == 0
    assert content() == before
    assert json.loads(cell.read_bytes())["result"] == json.loads(kept)["result"]


def test_an_interruption_keeps_what_is_finished_and_says_how_to_go_on(reproduce, monkeypatch):
    finished = []

    def interrupted(*arguments, **options):
        if len(finished) == 2:
            raise KeyboardInterrupt
        finished.append(arguments)
        return published_denoise(*arguments, **options)

    words = ("table1", "--images", "Barbara", *FAST)
    with monkeypatch.context() as patched:
        patched.setattr(table, "published_denoise", interrupted)
        code, out, err = reproduce(*words)
    assert (code, out) == (130, "")
    assert "2 parts are finished and kept in out; the same command goes on" in err
    assert not Path("out", "table1.csv").exists()
    assert reproduce(*words)[0] == 0
    reproduce(*words, out="other")
    assert content() == content("other")


@pytest.mark.usefixtures("one_method")
def test_a_terminal_shows_how_much_is_done_and_how_long_it_may_take(reproduce, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    _, _, err = reproduce("table1", "--images", "Barbara", *FAST)
    assert "table 1: 1 of 1 parts, 100 % of the work" in err
    assert "remaining" in err


# --- Bad input


def damage(images, kind):
    level = images / "img" / "Barbara" / "sigma100"
    if kind == "missing":
        (level / "I1.mat").unlink()
    elif kind == "damaged":
        (level / "I1.mat").write_bytes((level / "I1.mat").read_bytes()[:1000])
    elif kind == "no MAT file":
        (level / "I7.mat").write_bytes(b"nonsense" * 100)
    elif kind == "of another size":
        savemat(level / "I1.mat", {"I1": np.zeros((40, 41), np.float32)})
    elif kind == "not finite":
        savemat(level / "I1.mat", {"I1": np.full((40, 40), np.nan)})
    elif kind == "not 2-D":
        savemat(level / "I1.mat", {"I1": np.zeros((40, 40, 3))})
    elif kind == "two variables":
        savemat(level / "I1.mat", {"I1": np.zeros((40, 40)), "I2": np.zeros((40, 40))})
    elif kind == "clean is not":
        savemat(level / "I7.mat", {"I7": np.full((40, 40), 0.5)})
    else:
        assert kind == "small"
        for file in ("I1", "I7"):
            savemat(level / f"{file}.mat", {file: np.zeros((10, 40))})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "I1.mat: no such file"),
        ("damaged", "I1.mat is damaged or no MAT file"),
        ("no MAT file", "I7.mat is damaged or no MAT file"),
        ("of another size", "has shape (40, 41)"),
        ("not finite", "I1.mat contains NaN or inf"),
        ("not 2-D", "of shape (40, 40, 3): a picture is a 2-D array"),
        ("two variables", "holds 2 variables"),
        ("clean is not", "the whole numbers from 0 to 255"),
        ("small", "Barbara has shape (10, 40): patches and SSIM need 11 pixels"),
    ],
)
@pytest.mark.usefixtures("one_method")
def test_a_bad_image_costs_its_own_cells_only(reproduce, images, kind, message):
    damage(images, kind)
    code, out, err = reproduce("table1", "--images", "Barbara", "Man", *FAST)
    assert code == 1
    assert err.count("\n") == 1
    assert err.startswith("kappaform: error: Barbara-sigma100 is left out: ")
    assert message in err
    assert [row["image"] for row in rows()] == ["Man"]
    text = Path("out", "table1.md").read_text(encoding="utf-8")
    assert "## Left out\n\n- Barbara-sigma100: " in text
    assert "no cell with a public noisy image was computed" in out


@pytest.mark.usefixtures("one_method")
def test_a_missing_image_costs_its_own_cells_only(reproduce):
    code, _, err = reproduce("table1", "--images", "Lena", "Barbara", *FAST, "--json")
    assert code == 1
    assert "Lena-sigma100 is left out: " in err
    assert [row["image"] for row in rows()] == ["Barbara"]


def test_a_table_without_any_cell_is_still_reported(reproduce):
    code, _, err = reproduce("table1", "--images", "Lena", *FAST)
    assert code == 1
    assert content() == b""
    assert not Path("out", "table1.png").exists()
    assert "Lena-sigma100 is left out: " in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--images", "Baboon"], "image 'Baboon' is not in the table: available are Barbara, Cam"),
        (["--sigmas", 7], "sigma 7 is not in the table: available are 5, 10, 15, 20, 100"),
        (["--patch-size", 9], "--patch-size: invalid choice: 9"),
        (["--workers", 0], "0: give an integer >= 1"),
        (["--seed", -1], "-1: give an integer >= 0"),
    ],
)
def test_unknown_settings_are_refused(refused, words, message):
    assert message in refused("table1", *words)
    assert not Path("out").exists()


def test_data_that_are_not_there_or_laid_out_otherwise_are_refused(refused, tmp_path):
    line = refused("table1", data=tmp_path / "nowhere")
    assert "nowhere: no such folder. It should hold img/NAME/sigmaLEVEL/I7.mat" in line
    line = refused("table1", data=tmp_path / "data" / "img")
    assert "holds no folder img: expected img/NAME/sigmaLEVEL/I7.mat" in line


@pytest.mark.usefixtures("one_method")
def test_results_with_other_settings_are_refused_by_name(reproduce, refused):
    words = ("table1", "--images", "Barbara", *FAST)
    reproduce(*words)
    before = content()
    line = refused(*words, "--seed", 3)
    assert "holds results with seed=0, not 3: give another folder with -o, or remove out" in line
    line = refused("table1", "--images", "Barbara", "--sigmas", 100)
    assert "holds results with patch_size=8, not 11" in line
    assert content() == before


@pytest.mark.usefixtures("one_method")
def test_results_of_other_images_are_refused(reproduce, refused, images):
    words = ("table1", "--images", "Barbara", *FAST)
    reproduce(*words)
    _, noisy, _ = read_pair(images, "Barbara", 100)
    savemat(images / "img" / "Barbara" / "sigma100" / "I1.mat", {"I1": noisy + 1})
    assert "holds results of other images (Barbara-sigma100-orthonormal differs)" in refused(*words)


def test_places_that_cannot_be_written_are_refused_before_any_work(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "published_denoise", no_work)
    (tmp_path / "file").write_text("")
    assert "file is a file: give a folder" in refused("table1", out="file")
    (tmp_path / "locked").mkdir()
    # Replaced, because root, who may run this, may write everywhere.
    monkeypatch.setattr("os.access", lambda path, _: Path(path).name != "locked")
    assert "the folder locked is read-only" in refused("table1", out="locked")


# --- The paper's images


@pytest.mark.paper
def test_quick_run_on_the_papers_images_is_near_its_table(reproduce, paper_data):
    code, out, err = reproduce("table1", "--quick", "--sigmas", 20, "--json", data=paper_data)
    assert (code, err) == (0, "")
    for cell in json.loads(out)["cells"]:
        assert cell["noise"] == "public"
        assert abs(cell["psnr_difference"]) < 0.35
        assert abs(cell["ssim_difference"]) < 0.01
        assert cell["noisy_psnr"] == pytest.approx(22.0980, abs=1e-4)
