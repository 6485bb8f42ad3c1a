"""The command, as its users meet it: what it prints, what it writes, how it ends."""

import json
import os
import re
import resource
import signal
import stat
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from scipy import sparse

import kappaform as kf
from kappaform.cli import main
from kappaform.cli.io import failure, progress
from kappaform.image_files import Picture, as_stored, check_target, read_image, write_image
from kappaform.imaging.quality import psnr, ssim

COMMANDS = ("demo", "denoise", "learn", "encode", "decode", "path", "info")
PICTURE = np.kron(np.tri(6, dtype=np.uint8) * 120 + 60, np.ones((6, 6), np.uint8))


def noisy(seed=0, dtype=np.uint8, shape=PICTURE.shape):
    picture = np.resize(PICTURE, shape) if shape != PICTURE.shape else PICTURE
    scale = 257 if dtype == np.uint16 else 1
    return as_stored(kf.add_noise(picture, 15, rng=seed) * scale, dtype)


def put(path, values, has_channels=False, has_alpha=False):
    picture = Picture(values, has_channels, has_alpha=has_alpha)
    check_target(Path(path), picture)
    write_image(Path(path), picture)
    return path


def command(*arguments, cwd=None):
    """The real command, in a process of its own."""
    words = [sys.executable, "-m", "kappaform", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, check=False)


def ended(capsys, *arguments):
    """Exit code, standard output and standard error of the command in this process."""
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def refused(capsys, *arguments):
    """The one line with which the command refuses its input."""
    code, out, err = ended(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("kappaform: error: ")
    assert err.count("\n") == 1
    return err


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(folder):
    """Bytes of all files below the current folder, to see which of them changed."""
    return lambda: {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


# --- The command as such


def test_the_declared_command_is_this_function():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["kappaform"].partition(":")
    assert getattr(import_module(module), function) is main


def test_help_names_every_command_and_imports_nothing_heavy():
    script = "import sys; from kappaform.cli import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    *text, modules = done.stdout.splitlines()
    for name in COMMANDS:
        assert re.search(rf"^    {name} ", "\n".join(text), re.MULTILINE)
    assert not {"numpy", "scipy", "numba", "matplotlib", "tqdm"} & set(modules.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name, capsys):
    code, out, err = ended(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert f"example:\n  kappaform {name}" in out
    assert "--json" in out


def test_version(capsys):
    assert ended(capsys, "--version") == (0, f"kappaform {kf.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND"),
        (["clean"], "invalid choice: 'clean'"),
        (["denoise"], "IN"),
        (["denoise", "a.png", "--sigma", "-1"], "--sigma: -1: give a finite number >= 0"),
        (["denoise", "a.png", "--sigma", "nan"], "--sigma: nan: give a finite number >= 0"),
        (["denoise", "a.png", "--sigma", "much"], "--sigma"),
        (["denoise", "a.png", "--max-condition", "0.5"], "0.5: give a finite number >= 1"),
        (["denoise", "a.png", "--patch-size", "0"], "0: give an integer >= 1"),
        (["denoise", "a.png", "--method", "best"], "invalid choice: 'best'"),
        (["denoise", "a.png", "--volume", "--stack"], "not allowed with"),
        (["denoise", "a.png", "--sig", "3"], "unrecognized arguments"),
        (["learn", "a.npy"], "-o/--output"),
    ],
)
def test_wrong_usage_is_one_line_with_the_way_to_help(arguments, message, capsys):
    line = refused(capsys, *arguments)
    assert message in line
    assert "--help" in line


# --- Denoising


def test_a_picture_gets_cleaner_and_keeps_its_type(folder, capsys):
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
def test_colours_are_denoised_together_and_opacity_is_left_alone(folder, capsys, name):
    colours = np.stack([noisy(seed) for seed in range(3)], axis=-1)
    opacity = np.arange(PICTURE.size, dtype=np.uint8).reshape(*PICTURE.shape, 1)
    values = np.concatenate([colours, opacity], axis=-1)
    put(name, values, has_channels=True, has_alpha=True)
    words = ["denoise", name, "--sigma", 15, "--patch-size", 4, "-o", f"b{Path(name).suffix}"]
    assert ended(capsys, *words)[0] == 0
    stored = read_image(folder / f"b{Path(name).suffix}").pixels
    assert_array_equal(stored[..., 3:], opacity)
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
    assert "default: 11, of volumes 4" in text


def test_grey_with_opacity_is_denoised_as_grey(folder, capsys):
    put("a.png", np.stack([noisy(), noisy(1)], axis=-1), has_channels=True, has_alpha=True)
    assert ended(capsys, "denoise", "a.png", "--sigma", 15, "--patch-size", 4)[0] == 0
    stored = read_image(folder / "a_denoised.png").pixels
    assert_array_equal(stored[..., 1], noisy(1))
    expected = kf.denoise(np.float32(noisy()), 15, patch_size=4, value_range=(0, 255), rng=0)
    assert_array_equal(stored[..., 0], as_stored(expected, np.uint8))


@pytest.mark.parametrize("suffix", [".tif", ".npy"])
def test_pages_are_a_stack_or_a_volume_as_declared(folder, capsys, suffix):
    pages = np.stack([noisy(seed) for seed in range(5)])
    put(f"a{suffix}", pages)
    assert "--stack" in refused(capsys, "denoise", f"a{suffix}")
    for option, axes in (("--stack", {"stack_axis": 0}), ("--volume", {})):
        words = [
            "denoise",
            f"a{suffix}",
            option,
            "--sigma",
            15,
            "--patch-size",
            3,
            "-o",
            f"b{suffix}",
        ]
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


def test_a_single_page_is_no_stack(capsys):
    put("a.png", noisy())
    assert "a single page" in refused(capsys, "denoise", "a.png", "--stack")


def test_a_saved_transform_can_be_used_instead_of_learning(capsys):
    put("a.png", noisy())
    result = kf.learn(np.random.default_rng(0).standard_normal((99, 16)), max_iter=2)
    kf.save("m.kf", result, patch_shape=(4, 4), patch_mean="removed")
    code, out, _ = ended(capsys, "denoise", "a.png", "--model", "m.kf", "--json")
    assert code == 0
    (record,) = json.loads(out)["files"]
    assert record["patch_shape"] == [4, 4]
    assert_allclose(record["condition_number"], result.condition_number, rtol=1e-12)


def test_the_report_is_a_picture(folder, capsys):
    put("a.png", noisy())
    for name, start in (("r.png", b"\x89PNG"), ("r.pdf", b"%PDF")):
        words = ["denoise", "a.png", "--compare", "a.png", "--report", name, "--patch-size", 4]
        assert ended(capsys, *words)[0] == 0
        assert (folder / name).read_bytes().startswith(start)
    (folder / "a_denoised.png").unlink()
    assert "give a name that ends with .png or .pdf or .svg" in refused(
        capsys, "denoise", "a.png", "--report", "r.txt"
    )
    assert not (folder / "a_denoised.png").exists()


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
    assert record["sigma_estimated"]
    assert record["psnr_before"] is None  # infinite: compared with itself
    assert record["condition_number"] <= 2 * (1 + 1e-9)


# --- Many pictures


def test_a_batch_goes_on_after_a_failure_and_counts_it(folder, files):
    pictures = folder / "in"
    pictures.mkdir()
    put(pictures / "a.png", noisy())
    put(pictures / "c.tif", noisy(1))
    (pictures / "b.png").write_text("no picture")
    (pictures / "notes.txt").write_text("skipped")
    before = files()
    done = command("denoise", "in", "missing.png", "-o", "out", "--sigma", 0, cwd=folder)
    assert done.returncode == 2
    errors = done.stderr.splitlines()
    assert len(errors) == 2
    assert re.match(r"kappaform: error: in/b\.png is not a valid PNG file", errors[0])
    assert errors[1] == "kappaform: error: missing.png: No such file or directory"
    assert done.stdout.splitlines()[-1] == "2 denoised, 2 failed, 1 skipped"
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
    assert err.startswith("kappaform: error: empty holds no picture")
    assert out.splitlines()[-1] == "1 denoised, 1 failed, 0 skipped"
    assert (folder / "out" / "a.png").exists()


def test_pictures_that_differ_in_their_suffix_have_reports_of_their_own(folder, capsys):
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


def test_picture_and_report_are_both_written_or_neither(files, capsys, monkeypatch):
    def fails(*_, **__):
        raise OSError("disk full")

    put("a.png", noisy())
    before = files()
    for name in ("matplotlib.figure.Figure.savefig", "PIL.Image.Image.save"):
        with monkeypatch.context() as patched:
            patched.setattr(name, fails)
            words = ["denoise", "a.png", "--sigma", 0, "--report", "r.pdf"]
            assert "disk full" in refused(capsys, *words)
        assert files() == before


def test_read_only_folders_are_refused_before_any_work(folder, capsys, monkeypatch):
    def worked(*_, **__):
        raise AssertionError("there was work")

    put("a.png", noisy())
    (folder / "locked").mkdir()
    # Replaced, because root, who may run this, may write everywhere.
    monkeypatch.setattr("os.access", lambda path, _: Path(path).name != "locked")
    monkeypatch.setattr(kf, "denoise_with_details", worked)
    for words in (["-o", "locked/b.png"], ["--report", "locked/r.png"]):
        assert "the folder locked is read-only" in refused(capsys, "denoise", "a.png", *words)


def test_a_folder_without_pictures_is_refused(folder, capsys):
    (folder / "notes.txt").write_text("")
    assert "holds no picture" in refused(capsys, "denoise", ".")


# --- What is refused, with nothing written


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
        (["a.png", "-o", "none/b.png"], "the folder none does not exist"),
        (["a.png", "-o", "locked.png"], "locked.png is read-only"),
        (["f.npy", "-o", "b.png"], "PNG holds uint8 or uint16, the picture is float64"),
        (["a.png", "b.png", "-o", "c.png"], "c.png is a file: give a folder"),
        (["a.png", "in/a.png", "-o", "out"], "a.png would be written twice"),
        (["a.png", "--compare", "small.png"], "small.png has shape (4, 4), a.png (36, 36)"),
        (["small.png", "--patch-size", "8"], "patch_size"),
        (["nan.npy"], "error: nan.npy: image contains NaN"),
        (["line.npy"], "error: line.npy: image has shape (9,)"),
        (["a.png", "--value-range", "9", "1"], "value_range"),
        (["a.png", "--model", "a.png"], "not a transform"),
        (["a.png", "--model", "missing.kf"], "missing.kf"),
        (["a.png", "b.png", "-o", "out", "--device", "foo"], "error: device 'foo' is unknown"),
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
    (folder / "text.png").write_text("no picture")
    (folder / "cut.png").write_bytes((folder / "a.png").read_bytes()[:300])
    np.save("f.npy", noisy().astype(float))
    np.save("nan.npy", np.full((36, 36), np.nan))
    np.save("line.npy", np.arange(9.0))
    put("locked.png", noisy())
    (folder / "locked.png").chmod(0o444)
    Image.fromarray(noisy()).convert("CMYK").save("cmyk.jpg")
    os.mkfifo("fifo.png")
    (folder / "loop.png").symlink_to("loop.png")
    before = files()
    assert message in refused(capsys, "denoise", *arguments)
    assert files() == before


@pytest.mark.parametrize("values", [np.zeros((16, 16)), np.full((16, 16), 7.0)])
def test_a_picture_without_structure_is_returned(folder, capsys, values):
    np.save("a.npy", values)
    assert ended(capsys, "denoise", "a.npy", "--report", "r.png")[0] == 0
    assert_array_equal(np.load(folder / "a_denoised.npy"), values)


def test_without_noise_the_picture_is_returned(folder, capsys):
    put("a.png", noisy())
    assert ended(capsys, "denoise", "a.png", "--sigma", 0)[0] == 0
    assert_array_equal(read_image(folder / "a_denoised.png").pixels, noisy())


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_interruption_ends_with_its_signal_and_leaves_no_file(
    files, capsys, monkeypatch, name, code
):
    def interrupted(_, file, *__, **___):
        file.write(b"half a picture")
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
    """Denoise nothing: the fastest way to write a picture."""
    code, _, err = ended(capsys, "denoise", "a.png", "--sigma", 0, *words)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_one_and_what_it_leads_to_is_written(folder, capsys, exists):
    put("a.png", noisy())
    (folder / "other").mkdir()
    if exists:
        put("other/b.png", noisy(1))
    (folder / "link.png").symlink_to("other/b.png")
    unchanged(capsys, "-o", "link.png")
    assert (folder / "link.png").is_symlink()
    assert_array_equal(read_image(folder / "other" / "b.png").pixels, noisy())
    assert [file.name for file in (folder / "other").iterdir()] == ["b.png"]


def test_a_link_to_the_input_is_the_input(folder, capsys):
    put("a.png", noisy())
    (folder / "link.png").symlink_to("a.png")
    assert "link.png is an input" in refused(capsys, "denoise", "a.png", "-o", "link.png")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_that_is_replaced_keeps_its_permissions(folder, capsys, mode):
    put("a.png", noisy())
    for name in ("b.png", "r.png"):
        put(name, noisy(1))
        (folder / name).chmod(mode)
    unchanged(capsys, "-o", "b.png", "--report", "r.png")
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
            line = refused(capsys, "denoise", f"a.{suffix}", "--sigma", 0)
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


# --- Transforms in files


@pytest.fixture
def signals(folder, rng):
    values = rng.standard_normal((200, 16)).cumsum(axis=1)
    np.save(folder / "signals.npy", values)
    return values


def test_learning_from_signals_saves_what_the_library_learns(signals, capsys):
    words = ["learn", "signals.npy", "-o", "m.kf", "--max-condition", 3, "--n-nonzero", 4]
    code, out, err = ended(capsys, *words, "--tol", 1e-3, "--json")
    assert (code, err) == (0, "")
    expected = kf.learn(signals, kf.Conditioned(3.0), n_nonzero_coefs=4, tol=1e-3)
    model = kf.load("m.kf")
    assert_array_equal(model.result_.transform, expected.transform)
    assert (model.patch_shape_, model.patch_mean_) == (None, "kept")
    document = json.loads(out)
    assert document["n_signals"] == 200
    assert_allclose(document["condition_number"], expected.condition_number)


@pytest.mark.parametrize("method", ["conditioned", "log-det", "orthonormal"])
def test_learning_from_pictures_takes_mean_free_patches(capsys, method):
    put("a.png", noisy())
    put("b.png", np.stack([noisy(seed) for seed in range(3)], axis=-1), has_channels=True)
    words = ["learn", "a.png", "b.png", "-o", "m.kf", "--patch-size", 4, "--method", method]
    assert ended(capsys, *words, "--max-iter", 3, "--n-patches", 301)[0] == 0
    model = kf.load("m.kf")
    assert (model.patch_shape_, model.patch_mean_) == ((4, 4), "removed")
    assert json.loads(_info(capsys, "m.kf"))["patch_mean"] == "removed"


def _info(capsys, name):
    code, out, err = ended(capsys, "info", name, "--json")
    assert (code, err) == (0, "")
    return out


def test_encoding_and_decoding_are_those_of_the_estimator(signals, capsys):
    result = kf.learn(signals, n_nonzero_coefs=4, max_iter=5)
    kf.save("m.kf", result)
    assert ended(capsys, "encode", "m.kf", "signals.npy", "-o", "codes.npz")[0] == 0
    codes = sparse.load_npz("codes.npz")
    model = kf.load("m.kf")
    assert_array_equal(codes.toarray(), model.transform(signals))
    assert ended(capsys, "decode", "m.kf", "codes.npz", "-o", "back.npy")[0] == 0
    assert_allclose(np.load("back.npy"), model.inverse_transform(codes), rtol=1e-12, atol=1e-12)


def test_means_that_a_model_removes_come_back_with_decoding(signals, capsys):
    shifted = signals + 1000
    np.save("signals.npy", shifted)
    centred = shifted - shifted.mean(axis=1, keepdims=True)
    kf.save("m.kf", kf.learn(centred, n_nonzero_coefs=16, max_iter=2), patch_mean="removed")
    assert ended(capsys, "encode", "m.kf", "signals.npy", "-o", "codes.npz")[0] == 0
    assert ended(capsys, "decode", "m.kf", "codes.npz", "-o", "back.npy")[0] == 0
    assert_allclose(np.load("back.npy"), shifted, rtol=1e-10)


def test_info_computes_the_condition_number(signals, capsys):
    result = kf.learn(signals, kf.Conditioned(1.7), max_iter=5)
    kf.save("m.kf", result)
    document = json.loads(_info(capsys, "m.kf"))
    assert_allclose(document["condition_number"], np.linalg.cond(result.transform), rtol=1e-12)
    assert document["max_condition"] == 1.7
    code, out, _ = ended(capsys, "info", "m.kf")
    assert code == 0
    assert re.search(r"^condition number +1\.7$", out, re.MULTILINE)


def test_info_refuses_a_file_whose_condition_number_is_not_what_it_says(signals, capsys):
    kf.save("m.kf", kf.learn(signals, kf.LogDet(), max_iter=5))
    with np.load("m.kf") as archive:
        entries = dict(archive)
    entries["transform"] = entries["transform"] * np.linspace(1, 9, 16)
    np.savez("forged.npz", **entries)
    assert "the header says" in refused(capsys, "info", "forged.npz")


def test_path_shows_every_bound_and_draws(folder, signals, capsys):
    words = ["path", "signals.npy", "--bounds", 1, 2, 4, "--max-iter", 5, "--plot", "p.png"]
    code, out, err = ended(capsys, *words)
    assert (code, err) == (0, "")
    assert re.findall(r"^ +(\d+) ", out, re.MULTILINE) == ["1", "2", "4"]
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    table = json.loads(ended(capsys, *words, "--json")[1])["table"]
    expected = kf.condition_path(
        signals[::2], [1, 2, 4], validation=signals[1::2], max_iter=5, tol=1e-3
    )
    assert_allclose(table["validation_reconstruction"], expected["validation_reconstruction"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["learn", "missing.npy", "-o", "n.kf"], "missing.npy: No such file"),
        (["learn", "signals.npy", "-o", "signals.npy"], "signals.npy is an input"),
        (["learn", "signals.npy", "a.png", "-o", "n.kf"], "mixed"),
        (["learn", "signals.npy", "wide.npy", "-o", "n.kf"], "wide.npy has signals of 17 features"),
        (
            ["learn", "cube.npy", "-o", "n.kf"],
            "cube.npy has shape (2, 2, 2) of float64: signals are 2-D",
        ),
        (["learn", "text.npy", "-o", "n.kf"], "text.npy is not a valid NPY file"),
        (["learn", "signals.npy", "-o", "n.kf", "--n-nonzero", "17"], "n_nonzero_coefs=17 exceeds"),
        (["learn", "a.png", "-o", "n.kf", "--patch-size", "50"], "patch_size=50 exceeds a.png"),
        (["path", "signals.npy", "--bounds", "0.5"], "0.5: give a finite number >= 1"),
        (["path", "one.npy"], "give at least 2"),
        (
            ["path", "signals.npy", "--plot", "p.txt"],
            "give a name that ends with .png or .pdf or .svg",
        ),
        (["encode", "m.kf", "wide.npy", "-o", "c.npz"], "wide.npy has signals of 17 features"),
        (["encode", "m.kf", "signals.npy", "-o", "c.npy"], "give a name that ends with .npz"),
        (["encode", "a.png", "signals.npy", "-o", "c.npz"], "a.png is not a transform"),
        (
            ["decode", "m.kf", "missing.npz", "-o", "c.npy"],
            "missing.npz: No such file",
        ),
        (["decode", "m.kf", "m.npz", "-o", "c.npy"], "m.npz is damaged or holds no codes"),
        (["decode", "m.kf", "text.npz", "-o", "c.npy"], "text.npz is damaged or holds no codes"),
        (["decode", "m.kf", "wide.npz", "-o", "c.npy"], "17 features"),
        (["decode", "m.kf", "signals.npy", "-o", "c.npy"], "signals.npy is damaged or holds no"),
        (["encode", "m.kf", "a.png", "-o", "c.npz"], "a.png: give signals, a .npy"),
        (["encode", "m.kf", "complex.npy", "-o", "c.npz"], "of real numbers"),
        (["learn", "header.npy", "-o", "n.kf"], "header.npy is not a valid NPY file"),
        (["encode", "m.kf", "header.npy", "-o", "c.npz"], "header.npy is not a valid NPY"),
        (["learn", "complex.npy", "-o", "n.kf"], "complex.npy has shape (3, 16) of complex128"),
        (["learn", "signals.npy", "-o", "/dev/null"], "/dev/null is a device, a pipe or a socket"),
        (["info", "missing.kf"], "missing.kf: No such file"),
        (["info", "text.npy"], "text.npy is not a transform"),
    ],
)
def test_bad_models_and_signals_are_one_line(files, signals, capsys, arguments, message):
    result = kf.learn(signals, max_iter=1)
    kf.save("m.kf", result)
    kf.save("m.npz", result)
    put("a.png", noisy())
    np.save("wide.npy", np.ones((3, 17)))
    np.save("one.npy", np.ones((1, 16)))
    np.save("complex.npy", np.ones((3, 16), complex))
    np.save("cube.npy", np.ones((2, 2, 2)))
    sparse.save_npz("wide.npz", sparse.csr_array(np.ones((3, 17))))
    for name in ("text.npy", "text.npz"):
        Path(name).write_text("no array")
    header = Path("signals.npy").read_bytes().replace(b"}", b" ", 1)
    Path("header.npy").write_bytes(header)
    before = files()
    assert message in refused(capsys, *arguments)
    assert files() == before


# --- Demonstration, progress, defects


def test_the_demonstration_improves_its_picture_and_draws(folder, capsys, monkeypatch):
    monkeypatch.setattr("skimage.data.camera", lambda: np.kron(PICTURE, np.ones((2, 2), np.uint8)))
    monkeypatch.setattr("kappaform.cli.demo._BOUNDS", (1, 2))
    code, out, err = ended(capsys, "demo", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert facts["psnr_after"] > facts["psnr_before"] + 3
    assert facts["ssim_after"] > facts["ssim_before"]
    assert facts["condition_number"] <= 2 * (1 + 1e-9)
    for name in ("report.png", "path.png"):
        assert (folder / "demo" / name).read_bytes().startswith(b"\x89PNG")


def test_progress_is_shown_on_a_terminal_only(monkeypatch, capsys):
    with progress("learning") as callback:
        assert callback is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress("learning") as callback:
        assert not callback(SimpleNamespace())  # nothing that would stop learning
    out, err = capsys.readouterr()
    assert out == ""
    assert "learning" in err


@pytest.mark.parametrize("defect", [AssertionError, TypeError, KeyError, RecursionError])
def test_a_defect_is_called_one_and_not_taken_for_bad_input(monkeypatch, capsys, defect):
    def broken(*_, **__):
        raise defect("of ours")

    monkeypatch.setattr(kf, "denoise_with_details", broken)
    monkeypatch.setattr(kf, "load", broken)
    put("a.png", noisy())
    put("b.gif.png", noisy())
    for words in (["denoise", "a.png"], ["info", "m.kf"]):
        code, out, err = ended(capsys, *words)
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert f"this is a bug in kappaform: {defect.__name__}: " in err
        assert "--debug" in err


def test_debug_shows_where_an_error_occurred(capsys):
    code, _, err = ended(capsys, "denoise", "missing.png", "--debug")
    assert code == 2
    assert err.startswith("Traceback")
    assert err.endswith("kappaform: error: missing.png: No such file or directory\n")


def test_errors_of_many_lines_become_one():
    assert failure(ValueError("one\n  two")) == (2, "one two")
    assert failure(ValueError("one"), source="a.png") == (2, "a.png: one")
    assert failure(FileNotFoundError(2, "No such file", "a.png")) == (2, "a.png: No such file")
    assert failure(MemoryError())[1].startswith("not enough memory")
