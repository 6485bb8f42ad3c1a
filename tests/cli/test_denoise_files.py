"""`kappaform denoise`: which files are read and written, and which are not."""

import json
import os
import re
import resource
import signal
import stat
from pathlib import Path

import numpy as np
import pytest
from cli.command import PICTURE, command, ended, noisy, put, rejected
from numpy.testing import assert_array_equal
from PIL import Image

import kappaform as kf
from kappaform.image_files import read_image
from kappaform.imaging.metrics import psnr

# --- Many images


def test_a_batch_goes_on_after_a_failure_and_counts_it(folder, files):
    pictures = folder / "in"
    pictures.mkdir()
    put(pictures / "a.png", noisy())
    put(pictures / "c.tif", noisy(1))
    (pictures / "b.png").write_text("no image")
    (pictures / "notes.txt").write_text("skipped")
    before = files()
    done = command("denoise", "in", "missing.png", "-o", "out", "--sigma", 0, cwd=folder)
    assert done.returncode == 2
    errors = done.stderr.splitlines()
    assert len(errors) == 2
    assert re.match(r"kappaform: error: in/b\.png is not a valid PNG file", errors[0])
    assert errors[1] == "kappaform: error: missing.png: No such file or directory"
    assert done.stdout.splitlines()[-1] == "2 denoised, 2 failed, 1 other file ignored"
    assert files().keys() - before.keys() == {"out/a.png", "out/c.tif"}
    assert before.items() <= files().items()


def test_results_in_a_folder_are_not_denoised_again(capsys):
    put("a.png", noisy())
    assert ended(capsys, "denoise", ".", "--sigma", 0, "--json")[0] == 0
    code, out, _ = ended(capsys, "denoise", ".", "--sigma", 0, "--json")
    assert code == 0
    document = json.loads(out)
    assert [record["input"] for record in document["files"]] == ["a.png"]
    assert document["skipped"] == 1


def test_references_in_a_folder_are_found_by_name(folder, capsys):
    (folder / "clean").mkdir()
    for name in ("a.png", "b.png"):
        put(name, noisy())
        put(folder / "clean" / name, PICTURE)
    words = ["denoise", "a.png", "b.png", "--compare", "clean", "--report", "reports", "--json"]
    words += ["--patch-size", 6]
    code, out, _ = ended(capsys, *words)
    assert code == 0
    assert all(record["psnr_after"] > 24 for record in json.loads(out)["files"])
    reports = sorted(file.name for file in (folder / "reports").iterdir())
    assert reports == ["a.png_report.png", "b.png_report.png"]


def test_an_empty_folder_costs_only_itself(folder, capsys):
    (folder / "empty").mkdir()
    put("a.png", noisy())
    code, out, err = ended(capsys, "denoise", "empty", "a.png", "-o", "out", "--sigma", 0)
    assert code == 2
    assert err.startswith("kappaform: error: empty contains no image")
    assert out.splitlines()[-1] == "1 denoised, 1 failed"
    assert (folder / "out" / "a.png").exists()


def test_images_that_differ_in_their_suffix_have_reports_of_their_own(folder, capsys):
    put("a.png", noisy())
    put("a.tif", noisy())
    assert ended(capsys, "denoise", "a.png", "a.tif", "--report", "r", "--sigma", 0)[0] == 0
    assert {file.name for file in (folder / "r").iterdir()} == {
        "a.png_report.png",
        "a.tif_report.png",
    }


def test_a_name_that_ends_with_a_slash_is_a_folder(folder, capsys):
    put("a.png", noisy())
    words = ["denoise", "a.png", "--sigma", 0, "-o", "new/", "--report", "reports/"]
    assert ended(capsys, *words)[0] == 0
    assert (folder / "new" / "a.png").is_file()
    assert (folder / "reports" / "a.png_report.png").is_file()


def test_image_and_report_are_both_written_or_neither(files, capsys, monkeypatch):
    def fails(*_, **__):
        raise OSError("disk full")

    put("a.png", noisy())
    before = files()
    for name in ("matplotlib.figure.Figure.savefig", "PIL.Image.Image.save"):
        with monkeypatch.context() as patched:
            patched.setattr(name, fails)
            words = ["denoise", "a.png", "--sigma", 0, "--report", "r.pdf"]
            assert "disk full" in rejected(capsys, *words)
        assert files() == before


def test_read_only_folders_are_rejected_before_any_work(folder, capsys, monkeypatch):
    def worked(*_, **__):
        raise AssertionError("there was work")

    put("a.png", noisy())
    (folder / "locked").mkdir()
    # Replaced, because root, who may run this, may write everywhere.
    monkeypatch.setattr("os.access", lambda path, _: Path(path).name != "locked")
    monkeypatch.setattr(kf, "denoise_with_details", worked)
    for words in (["-o", "locked/b.png"], ["--report", "locked/r.png"]):
        assert "the folder locked is read-only" in rejected(capsys, "denoise", "a.png", *words)


def tree(*names):
    """Pictures in folders below `in`, and other files."""
    for name in names:
        path = Path("in", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".txt":
            path.write_text("no image")
        else:
            put(path, noisy())


def test_results_of_a_tree_lie_as_their_inputs_do(files, capsys):
    tree("a.png", "x/a.png", "x/y/b.tif", "x/notes.txt", ".hidden/c.png", "z/notes.txt")
    tree("x/a_denoised.png")  # a result of an earlier run
    before = files()
    words = ["denoise", "in", "--recursive", "-o", "out", "--sigma", 0]
    code, out, err = ended(capsys, *words)
    assert (code, err) == (0, "")
    assert files().keys() - before.keys() == {"out/a.png", "out/x/a.png", "out/x/y/b.tif"}
    assert out.splitlines()[-1] == "3 denoised, 0 failed, 3 other files ignored"


def test_without_an_output_the_results_of_a_tree_lie_next_to_their_inputs(files, capsys):
    tree("a.png", "x/a.png")
    before = files()
    assert ended(capsys, "denoise", "in", "--recursive", "--sigma", 0)[0] == 0
    assert files().keys() - before.keys() == {"in/a_denoised.png", "in/x/a_denoised.png"}


def test_without_recursive_folders_in_folders_are_left_alone(files, capsys):
    tree("a.png", "x/a.png", ".hidden/a.png", "out/a.png")
    before = files()
    code, out, _ = ended(capsys, "denoise", "in", "--sigma", 0, "--report", "in/out")
    assert code == 0
    assert files().keys() - before.keys() == {"in/a_denoised.png", "in/out/a.png_report.png"}
    told = "; 1 subfolder was not entered (--recursive enters them)"
    assert out.splitlines()[-1] == f"1 denoised, 0 failed{told}"
    tree("y/a.png")
    assert "; 3 subfolders were not entered" in ended(capsys, "denoise", "in", "--sigma", 0)[1]
    Path("in/a.png").unlink()
    assert f".npy){told}.\n" in rejected(capsys, "denoise", "in/..", "--sigma", 0)
    assert "entered" not in ended(capsys, "denoise", "in", "--recursive", "--sigma", 0)[1]


def test_results_inside_the_tree_are_not_denoised_again(files, capsys):
    tree("a.png", "x/b.png")
    words = ["denoise", "in", "--recursive", "-o", "in/clean", "--report", "in/reports"]
    words += ["--sigma", 0, "--json"]
    assert json.loads(ended(capsys, *words)[1])["denoised"] == 2
    before = files()
    document = json.loads(ended(capsys, *words)[1])
    assert (document["denoised"], document["kept"]) == (0, 2)
    assert files() == before


def test_references_and_reports_of_a_tree_lie_as_their_inputs_do(folder, capsys):
    tree("a.png", "x/a.png")
    (folder / "clean" / "x").mkdir(parents=True)
    put("clean/a.png", PICTURE)
    put("clean/x/a.png", noisy())
    words = ["denoise", "in", "--recursive", "--compare", "clean", "--report", "r", "--sigma", 0]
    code, out, _ = ended(capsys, *words, "--json")
    assert code == 0
    first, second = (record["psnr_before"] for record in json.loads(out)["files"])
    assert first == psnr(PICTURE, noisy())
    assert second is None  # infinite: compared with itself
    assert (folder / "r" / "a.png_report.png").is_file()
    assert (folder / "r" / "x" / "a.png_report.png").is_file()


def test_links_to_folders_are_not_followed(folder, capsys):
    tree("a.png", "x/a.png")
    (folder / "in" / "x" / "loop").symlink_to(folder / "in")
    code, out, _ = ended(capsys, "denoise", "in", "--recursive", "--sigma", 0, "--json")
    assert code == 0
    assert json.loads(out)["denoised"] == 2


def test_a_folder_that_cannot_be_read_costs_only_itself(capsys, monkeypatch):
    tree("a.png", "locked/b.png")
    scandir = os.scandir

    def refusing(path):  # root, who may run this, may read everywhere
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refusing)
    code, out, err = ended(capsys, "denoise", "in", "--recursive", "--sigma", 0)
    assert code == 2
    assert err == "kappaform: error: in/locked: Permission denied\n"
    assert out.splitlines()[-1] == "1 denoised, 1 failed"


def test_what_belongs_to_a_kept_result_is_checked(folder, capsys):
    put("a.png", noisy())
    put("b.png", PICTURE)
    words = ["denoise", "a.png", "--sigma", 15, "--patch-size", 4]
    reported = [*words, "--report", "r.png", "--compare", "b.png"]
    assert ended(capsys, *reported)[0] == 0
    assert "skipped, the output exists" in ended(capsys, *reported)[1]  # and so is its report
    text = rejected(capsys, *words, "--report", "r.txt")
    assert "r.txt: give a name that ends with .png or .pdf or .svg" in text
    assert "none.png: No such file" in rejected(capsys, *words, "--compare", "none.png")
    assert not (folder / "r.txt").exists()


def test_a_result_that_is_there_is_kept_and_that_is_no_error(files, capsys):
    put("a.png", noisy())
    put("b.png", noisy(1))
    put("b_denoised.png", noisy(2))
    before = files()
    code, out, err = ended(capsys, "denoise", "a.png", "b.png", "--sigma", 0)
    assert (code, err) == (0, "")
    *_, kept, summary = out.splitlines()
    text = "b.png -> b_denoised.png: skipped, the output exists (--overwrite replaces it)"
    assert kept == text
    assert summary == "1 denoised, 1 skipped (output exists), 0 failed"
    assert before.items() <= files().items()
    document = json.loads(ended(capsys, "denoise", "a.png", "b.png", "--json")[1])
    assert (document["denoised"], document["kept"]) == (0, 2)
    assert all(record["kept"] for record in document["files"])


def test_a_result_is_replaced_when_asked_for(folder, capsys):
    put("a.png", noisy())
    put("b.png", noisy(1))
    assert ended(capsys, "denoise", "a.png", "-o", "b.png", "--sigma", 0, "--overwrite")[0] == 0
    assert_array_equal(read_image(folder / "b.png").pixels, noisy())


def test_a_report_that_is_there_is_rejected_unless_asked_for(folder, files, capsys):
    put("a.png", noisy())
    (folder / "r.png").write_text("mine")
    before = files()
    words = ["denoise", "a.png", "--sigma", 0, "--report", "r.png"]
    assert "r.png exists already: give another name, or --overwrite." in rejected(capsys, *words)
    assert files() == before
    assert ended(capsys, *words, "--overwrite")[0] == 0
    assert (folder / "r.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "words",
    [["a.png", "b.png", "-o", "x.png"], ["in", "-o", "x.TIF"], ["in", "--report", "x.pdf"]],
)
def test_the_name_of_one_file_for_several_images_is_rejected(folder, files, capsys, words):
    tree("a.png")
    put("a.png", noisy())
    put("b.png", noisy())
    before = files()
    line = rejected(capsys, "denoise", *words)
    assert f"{' '.join(words[-2:])} is the name of one file, and there may be several" in line
    assert "give a folder (x/)" in line
    assert files() == before
    assert not (folder / words[-1]).exists()


def test_a_folder_may_be_named_like_an_image(folder, capsys):
    put("a.png", noisy())
    put("b.png", noisy())
    assert ended(capsys, "denoise", "a.png", "b.png", "-o", "x.png/", "--sigma", 0)[0] == 0
    assert (folder / "x.png" / "b.png").is_file()


def test_an_interrupted_batch_says_what_is_done_and_goes_on_later(folder, capsys, monkeypatch):
    names = ["a.png", "b.png", "c.png"]
    for name in names:
        put(name, noisy())
    denoise, calls = kf.denoise_with_details, []

    def interrupted(*arguments, **options):
        calls.append(options)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return denoise(*arguments, **options)

    monkeypatch.setattr(kf, "denoise_with_details", interrupted)
    words = ["denoise", *names, "--sigma", 0, "-o", "out"]
    code, _, err = ended(capsys, *words)
    assert code == 130
    text = "1 of 3 images are done; run the same command without --overwrite for the others"
    assert err == f"kappaform: error: interrupted: {text}\n"
    code, out, _ = ended(capsys, *words)
    assert code == 0
    assert out.splitlines()[-1] == "2 denoised, 1 skipped (output exists), 0 failed"
    assert len(list((folder / "out").iterdir())) == 3


def test_a_folder_without_images_is_rejected(folder, capsys):
    (folder / "notes.txt").write_text("")
    assert "contains no image" in rejected(capsys, "denoise", ".")


# --- What is rejected, with nothing written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.png"], "missing.png: No such file"),
        (["text.png"], "text.png is not a valid PNG file"),
        (["cut.png"], "cut.png is not a valid PNG file"),
        (["a.gif"], "a.gif: No such file"),
        (["nothing-there"], "nothing-there: No such file"),
        (["cmyk.jpg"], "error: cmyk.jpg: its colours are CMYK: convert it to grey or RGB first."),
        (["fifo.png"], "fifo.png is a device, a pipe or a socket: give a plain file"),
        (["a.png", "-o", "fifo.png"], "fifo.png is a device, a pipe or a socket"),
        (["a.png", "--report", "fifo.png"], "fifo.png is a device, a pipe or a socket"),
        (["a.png", "-o", "n" * 252 + ".png"], ".png: File name too long"),
        (["a.png", "-o", "loop.png"], "loop.png: Too many levels of symbolic links"),
        (["a.png", "-o", "a.png"], "a.png is an input: give the output another name"),
        (["a.png", "-o", "./a.png"], "is an input"),
        (["a.png", "--suffix", ""], "is an input"),
        (["a.png", "--report", "a.png"], "a.png is an input"),
        (["a.png", "-o", "n.png", "--report", "./n.png"], "n.png would be written twice"),
        (["a.png", "--compare", "b.png", "-o", "b.png"], "b.png is an input"),
        (["a.png", "-o", "b.gif"], "suffix '.gif' is unknown"),
        (["a.png", "-o", "new"], "new has no suffix: write new/ for a folder, or new.png for a fi"),
        (["m.kappaform"], "m.kappaform is a transform, not an image: give it as --model m.kappaf"),
        (["a.png", "-o", "none/b.png"], "the folder none does not exist"),
        (["a.png", "-o", "locked.png", "--overwrite"], "locked.png is read-only"),
        (["f.npy", "-o", "n.png"], "PNG holds uint8 or uint16, the image is float64"),
        (["a.png", "b.png", "-o", "c.png"], "c.png is a file: give a folder"),
        (["a.png", "in/a.png", "-o", "out"], "a.png would be written twice"),
        (["a.png", "--compare", "small.png"], "small.png has shape (4, 4), a.png (36, 36)"),
        (["small.png", "--patch-size", "8"], "small.png: --patch-size 8 "),
        (["nan.npy"], "error: nan.npy: image contains NaN"),
        (["line.npy"], "error: line.npy has shape (9,): an image has rows and columns"),
        (["scalar.npy"], "error: scalar.npy has shape (): an image has rows and columns"),
        (["deep.npy"], "deep.npy has pages, shape (2, 2, 9, 9): add --stack"),
        (["a.png", "--value-range", "9", "1"], "--value-range 9 1: give the smaller value first"),
        (["a.png", "--model", "a.png"], "not a transform"),
        (["a.png", "--model", "missing.kf"], "missing.kf"),
        (["a.png", "b.png", "-o", "out", "--device", "foo"], "error: --device foo is unknown"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(folder, files, capsys, arguments, message):
    put("a.png", noisy())
    put("b.png", noisy(1))
    put("c.png", noisy(2))
    (folder / "in").mkdir()
    (folder / "out").mkdir()
    put("in/a.png", noisy(3))
    put("small.png", noisy()[:4, :4])
    (folder / "text.png").write_text("no image")
    (folder / "cut.png").write_bytes((folder / "a.png").read_bytes()[:300])
    np.save("f.npy", noisy().astype(float))
    np.save("nan.npy", np.full((36, 36), np.nan))
    np.save("line.npy", np.arange(9.0))
    np.save("scalar.npy", np.array(1.0))
    np.save("deep.npy", np.zeros((2, 2, 9, 9)))
    put("locked.png", noisy())
    (folder / "locked.png").chmod(0o444)
    Image.fromarray(noisy()).convert("CMYK").save("cmyk.jpg")
    os.mkfifo("fifo.png")
    (folder / "loop.png").symlink_to("loop.png")
    before = files()
    assert message in rejected(capsys, "denoise", *arguments)
    assert files() == before


@pytest.mark.parametrize("values", [np.zeros((16, 16)), np.full((16, 16), 7.0)])
def test_an_image_without_structure_is_returned(folder, capsys, values):
    np.save("a.npy", values)
    assert ended(capsys, "denoise", "a.npy", "--report", "r.png")[0] == 0
    assert_array_equal(np.load(folder / "a_denoised.npy"), values)


def test_without_noise_the_image_is_returned(folder, capsys):
    put("a.png", noisy())
    assert ended(capsys, "denoise", "a.png", "--sigma", 0)[0] == 0
    assert_array_equal(read_image(folder / "a_denoised.png").pixels, noisy())


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_interruption_ends_with_its_signal_and_leaves_no_file(
    files, capsys, monkeypatch, name, code
):
    def interrupted(_, file, *__, **___):
        file.write(b"half an image")
        signal.raise_signal(getattr(signal, name))

    put("a.png", noisy())
    before = files()
    monkeypatch.setattr("PIL.Image.Image.save", interrupted)
    ending = ended(capsys, "denoise", "a.png", "--sigma", 0)
    assert ending == (code, "", "kappaform: error: interrupted\n")
    assert files() == before


def test_handlers_of_signals_are_those_from_before(capsys):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    ended(capsys, "denoise", "missing.png")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


# --- What becomes of files that are there


def unchanged(capsys, *words):
    """Denoise nothing: the fastest way to write an image."""
    code, _, err = ended(capsys, "denoise", "a.png", "--sigma", 0, *words)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_one_and_what_it_leads_to_is_written(folder, capsys, exists):
    put("a.png", noisy())
    (folder / "other").mkdir()
    if exists:
        put("other/b.png", noisy(1))
    (folder / "link.png").symlink_to("other/b.png")
    unchanged(capsys, "-o", "link.png", "--overwrite")
    assert (folder / "link.png").is_symlink()
    assert_array_equal(read_image(folder / "other" / "b.png").pixels, noisy())
    assert [file.name for file in (folder / "other").iterdir()] == ["b.png"]


def test_a_link_to_the_input_is_the_input(folder, capsys):
    put("a.png", noisy())
    (folder / "link.png").symlink_to("a.png")
    assert "link.png is an input" in rejected(capsys, "denoise", "a.png", "-o", "link.png")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_that_is_replaced_keeps_its_permissions(folder, capsys, mode):
    put("a.png", noisy())
    for name in ("b.png", "r.png"):
        put(name, noisy(1))
        (folder / name).chmod(mode)
    unchanged(capsys, "-o", "b.png", "--report", "r.png", "--overwrite")
    for name in ("b.png", "r.png"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == mode


def test_new_files_have_the_permissions_that_the_user_chose(folder, capsys):
    put("a.png", noisy())
    before = os.umask(0o027)
    try:
        unchanged(capsys)
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "a_denoised.png").stat().st_mode) == 0o640


def test_names_may_be_as_long_as_the_system_allows(folder, capsys):
    put("a.png", noisy())
    name = "n" * 251 + ".png"
    unchanged(capsys, "-o", name)
    assert (folder / name).is_file()


def test_a_full_disk_is_reported_with_the_name_of_the_file(files, capsys):
    # A limit on the size of files stands in for a disk that is full.
    rng = np.random.default_rng(0)
    put("a.npy", rng.standard_normal((200, 200)))
    put("a.png", rng.integers(0, 255, (200, 200), dtype=np.uint8))
    put("a.tif", rng.integers(0, 255, (200, 200), dtype=np.uint8))
    before = files()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        for suffix in ("npy", "png", "tif"):
            line = rejected(capsys, "denoise", f"a.{suffix}", "--sigma", 0)
            assert f"a_denoised.{suffix}: " in line
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files() == before


@pytest.mark.parametrize(
    ("dtype", "value"), [(np.int64, 2**63 - 1), (np.uint64, 2**64 - 1), (np.float16, 65504)]
)
def test_values_at_the_end_of_their_type_stay_there(folder, capsys, dtype, value):
    values = np.full(PICTURE.shape, value, dtype)
    values[::2, ::2] = dtype(value * 0.999)
    np.save("a.npy", values)
    assert ended(capsys, "denoise", "a.npy", "--patch-size", 3)[0] == 0
    stored = np.load(folder / "a_denoised.npy")
    assert stored.dtype == dtype
    assert stored.min() > 0.99 * value
    assert np.isfinite(stored).all()
