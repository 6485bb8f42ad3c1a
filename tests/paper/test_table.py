"""Table 1 of the paper, as the command computes it."""

import csv
import json
from pathlib import Path

import naive
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat
from skimage import data

from kappaform.cli import main
from kappaform.paper import table
from kappaform.paper.data import IMAGES, METHODS, SIGMAS, printed_table, read_pair
from kappaform.paper.denoiser import published_denoise
from kappaform.paper.report import draw_table
from kappaform.paper.table import downsampled_ssim

FAST = ("--sigmas", 100, "--patch-size", 8)  # few rounds, small transforms


def rows(out="out"):
    with Path(out, "table1.csv").open() as file:
        return list(csv.DictReader(file))


def content(out="out"):
    return Path(out, "table1.csv").read_bytes()


# --- What the paper prints


def test_the_printed_table_has_every_cell():
    cells = {(image, sigma, method) for image in IMAGES for sigma in SIGMAS for method in METHODS}
    assert printed_table().keys() == cells


@pytest.mark.paper
def test_the_printed_table_is_the_papers(paper_facts):
    with (paper_facts / "table1.csv").open() as file:
        for row in csv.DictReader(file):
            method = row["method"].replace("logdet", "log-det")
            printed = printed_table()[row["image"], int(row["sigma"]), method]
            assert printed == {"psnr": float(row["psnr_db"]), "ssim": float(row["ssim"])}


# --- What is computed


@pytest.fixture(scope="module")
def computed(dataset, tmp_path_factory):
    """Folder with the cells of two images, computed in one process."""
    out = tmp_path_factory.mktemp("table") / "out"
    words = ["--images", "barbara", "Man", *FAST, "--data", dataset, "-o", out, "--workers", 1]
    assert main(["reproduce", "table1", *map(str, words)]) == 0
    return out


@pytest.mark.usefixtures("fast")
def test_the_command_of_the_readme_runs_with_a_copy_of_the_repository(images):
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    line = "kappaform reproduce table1 --data DIR -o results\n"
    assert line in readme
    images.rename("DIR")
    words = ["--workers", "1", "--images", "Barbara", "--sigmas", "20"]
    assert main([*line.split()[1:], *words]) == 0
    assert [row["image"] for row in rows("results")] == ["Barbara"] * 3


def test_the_table_holds_ours_the_papers_and_the_difference(computed):
    assert [(row["image"], row["method"]) for row in rows(computed)] == [
        (image, method) for image in ("Barbara", "Man") for method in METHODS
    ]
    for row in rows(computed):
        printed = printed_table()[row["image"], 100, row["method"]]
        for name in ("psnr", "ssim"):
            assert float(row[f"paper_{name}"]) == printed[name]
            expected = float(row[name]) - float(row[f"paper_{name}"])
            assert float(row[f"{name}_difference"]) == pytest.approx(expected, abs=1e-9)
        assert float(row["psnr"]) > float(row["noisy_psnr"]) + 3
        assert row["run"] == "full"
    assert {row["noise"] for row in rows(computed)[:3]} == {"public"}
    assert {row["noise"] for row in rows(computed)[3:]} == {"made"}
    timings = (computed / "timings.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in timings[:2]] == ["part", "Barbara-sigma100-conditioned"]
    assert len(timings) == 1 + 6
    assert (computed / "table1.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.usefixtures("fast")
def test_what_is_made_here_is_marked_wherever_it_shows(reproduce, images):
    reproduce("table1", "--images", "Barbara", "Man", *FAST)
    text = Path("out", "table1.md").read_text(encoding="utf-8")
    assert "| Man | 100 | conditioned | made |" in text
    assert "| Barbara | 100 | conditioned | public |" in text
    assert "simulated with a fixed seed" in text
    assert "which are for patches of 11 × 11 pixels" in text  # these are patches of 8
    words = {"images": ["Barbara", "Man"], "sigmas": [100], "patch_size": 8, "n_workers": 1}
    figure = draw_table(table.reproduce_table(images, Path("out"), **words))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["Barbara", "Man*"]
    assert "* simulated noise" in figure.get_suptitle()


@pytest.mark.usefixtures("fast")
def test_a_quick_run_is_a_marked_part_of_the_table(reproduce):
    code, out, err = reproduce("table1", "--quick", "--patch-size", 8, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    cells = {(cell["image"], cell["sigma"]) for cell in document["cells"]}
    assert cells == {("Cameraman", 20), ("Cameraman", 100)}
    assert {cell["run"] for cell in document["cells"]} == {"quick"}
    assert document["settings"]["quick"] is True
    assert document["left_out"] == {}
    assert "- quick: True\n" in Path("out", "table1.md").read_text(encoding="utf-8")
    gain = document["summary"]["gain_over_log_det"]
    named = {(cell["sigma"], cell["method"]): cell["psnr"] for cell in document["cells"]}
    gains = [named[sigma, "conditioned"] - named[sigma, "log-det"] for sigma in (20, 100)]
    assert gain == pytest.approx(np.mean(gains), abs=1e-5)


def test_the_methods_learn_from_the_same_patches(reproduce, fast):
    reproduce("table1", "--images", "Barbara", *FAST)
    drawn = dict(fast)
    assert drawn.keys() == set(METHODS)
    assert_array_equal(drawn["log-det"], drawn["conditioned"])
    assert_array_equal(drawn["log-det"], drawn["orthonormal"])
    reproduce("table1", "--images", "Barbara", *FAST, "--seed", 1, out="other")
    assert not np.array_equal(drawn["log-det"], dict(fast)["log-det"])


@pytest.mark.usefixtures("fast")
def test_a_cell_does_not_depend_on_the_others_nor_on_the_order(reproduce):
    reproduce("table1", "--images", "Barbara", "Man", *FAST)
    reproduce("table1", "--images", "Man", *FAST, out="other")
    assert rows("other") == rows()[3:]
    reproduce("table1", "--images", "Man", "Barbara", *FAST, out="other")
    assert content("other") == content()


@pytest.mark.usefixtures("no_pictures")
def test_two_processes_give_the_same_bits_as_one(computed, reproduce):
    code, out, err = reproduce("table1", "--images", "Barbara", *FAST, workers=2)
    assert (code, err) == (0, "")
    assert "\nmean absolute psnr difference: " in out
    assert content().splitlines() == content(computed).splitlines()[:4]


def test_a_run_that_is_repeated_computes_what_is_missing_only(reproduce, fast):
    words = ("table1", "--images", "Barbara", *FAST)
    reproduce(*words)
    before = content()
    fast.clear()
    assert reproduce(*words)[0] == 0
    assert (content(), fast) == (before, [])
    cell = Path("out", "table1.parts", "Barbara-sigma100-orthonormal.json")
    cell.write_bytes(cell.read_bytes()[:40])  # cut off
    assert reproduce(*words)[0] == 0
    assert content() == before
    assert [method for method, _ in fast] == ["orthonormal"]


def test_an_interruption_keeps_what_is_finished_and_says_how_to_resume(
    reproduce, fast, monkeypatch
):
    denoise = table.published_denoise

    def interrupted(*arguments, **options):
        if len(fast) == 2:
            raise KeyboardInterrupt
        return denoise(*arguments, **options)

    words = ("table1", "--images", "Barbara", *FAST)
    with monkeypatch.context() as patched:
        patched.setattr(table, "published_denoise", interrupted)
        code, out, err = reproduce(*words)
    assert (code, out) == (130, "")
    assert "finished parts are in out; the same command resumes" in err
    assert not Path("out", "table1.csv").exists()
    assert reproduce(*words)[0] == 0
    assert len(fast) == 3
    reproduce(*words, out="other")
    assert content() == content("other")


@pytest.mark.usefixtures("fast")
def test_a_terminal_shows_how_much_is_done_and_how_long_it_may_take(reproduce, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    _, _, err = reproduce("table1", "--images", "Barbara", *FAST)
    assert "table1: 100 % of the work" in err
    assert " left" in err


# --- Its similarity


# From 384 pixels a side on means of 2 by 2 are compared, from 640 on of 3 by 3.
@pytest.mark.parametrize("shape", [(11, 11), (33, 40), (384, 390), (640, 641)])
def test_it_is_the_mean_over_all_windows_of_the_downsampled_images(shape, rng):
    clean = np.resize(data.camera(), shape)
    noisy = clean + 20 * rng.standard_normal(shape)
    assert_allclose(downsampled_ssim(clean, noisy), naive.downsampled_ssim(clean, noisy), rtol=1e-9)


def test_equal_images_have_similarity_1():
    assert downsampled_ssim(data.camera(), data.camera()) == 1


@pytest.mark.paper
@pytest.mark.parametrize("method", ["log-det", "orthonormal"])
def test_a_replayed_run_has_the_similarity_of_the_public_code(paper_data, paper_facts, method):
    replay = np.load(paper_facts / "replay_cameraman20.npz", allow_pickle=False)
    clean, noisy, _ = read_pair(paper_data, "Cameraman", 20)
    values = np.ascontiguousarray(noisy.T)  # their patches are flattened by columns
    positions = iter(replay["patch_index"].T)
    cleaned, _, _ = published_denoise(values, 20.0, method, (11, 11), positions)
    expected = float(replay[f"{method.replace('-', '')}_ssim"])
    assert downsampled_ssim(clean.T, cleaned) == pytest.approx(expected, abs=1e-5)


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
        ("missing", "No such file or directory"),
        ("damaged", "I1.mat is not a MAT file of one image"),
        ("no MAT file", "I7.mat is not a MAT file of one image"),
        ("of another size", "has shape (40, 41)"),
        ("not finite", "I1.mat contains NaN or inf"),
        ("not 2-D", "of shape (40, 40, 3): an image is expected"),
        ("two variables", "I1.mat is not a MAT file of one image"),
        ("clean is not", "integers from 0 to 255"),
        ("small", "I7.mat has shape (10, 40): at least 11 pixels"),
    ],
)
@pytest.mark.usefixtures("fast")
def test_a_bad_image_costs_its_own_cells_only(reproduce, images, kind, message):
    damage(images, kind)
    code, out, err = reproduce("table1", "--images", "Barbara", "Man", *FAST)
    assert code == 1
    assert err.count("\n") == 1
    assert err.startswith("kappaform: error: Barbara-sigma100 is left out: ")
    assert message in err
    assert [row["image"] for row in rows()] == ["Man"] * 3
    text = Path("out", "table1.md").read_text(encoding="utf-8")
    assert "- Barbara-sigma100 is left out: " in text
    assert "cells with public noise: 0\n" in out


@pytest.mark.usefixtures("fast")
def test_a_missing_image_costs_its_own_cells_only(reproduce):
    code, _, err = reproduce("table1", "--images", "Lena", "Barbara", *FAST, "--json")
    assert code == 1
    assert "Lena-sigma100 is left out: " in err
    assert [row["image"] for row in rows()] == ["Barbara"] * 3


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
def test_unknown_settings_are_rejected(rejected, words, message):
    assert message in rejected("table1", *words)
    assert not Path("out").exists()


def test_data_that_are_not_there_or_laid_out_otherwise_are_rejected(rejected, tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path / "data" / "img"):
        line = rejected("table1", data=folder)
        assert f"{folder / 'img'}: no such folder. It contains NAME/sigmaLEVEL/I7.mat" in line


@pytest.mark.usefixtures("fast")
def test_results_with_other_settings_are_rejected_by_name(reproduce, rejected):
    words = ("table1", "--images", "Barbara", *FAST)
    reproduce(*words)
    before = content()
    line = rejected(*words, "--seed", 3)
    assert "has a result for seed = 0, not 3: give another folder with -o, or remove out" in line
    line = rejected("table1", "--images", "Barbara", "--sigmas", 100)
    assert "has a result for patch_size = 8, not 11" in line
    assert content() == before


@pytest.mark.usefixtures("fast")
def test_results_of_other_images_are_rejected(reproduce, rejected, images):
    words = ("table1", "--images", "Barbara", *FAST)
    reproduce(*words)
    _, noisy, _ = read_pair(images, "Barbara", 100)
    savemat(images / "img" / "Barbara" / "sigma100" / "I1.mat", {"I1": noisy + 1})
    assert "conditioned.json has a result for digest of the images = " in rejected(*words)


def test_places_that_cannot_be_written_are_rejected_before_any_work(
    rejected, tmp_path, fast, monkeypatch
):
    (tmp_path / "file").write_text("")
    assert "file is a file: give a folder" in rejected("table1", out="file")
    (tmp_path / "locked").mkdir()
    # Replaced, because root, who may run this, may write everywhere.
    monkeypatch.setattr("os.access", lambda path, _: Path(path).name != "locked")
    assert "the folder locked is read-only" in rejected("table1", out="locked")
    assert not fast


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
