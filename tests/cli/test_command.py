"""The command as such: help, progress, exit status."""

import json
import os
import re
import subprocess
import sys
import tomllib
import warnings
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli.command import PICTURE, ended, noisy, put, rejected

import kappaform as kf
from kappaform.cli import main
from kappaform.cli.messages import OPTIONS, calling_library, failure, in_options, show_warnings

COMMANDS = ("demo", "denoise", "learn", "encode", "decode", "path", "info")
QUALITIES = ("balanced", "best")


def test_the_declared_command_is_this_function():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
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


def test_help_says_every_exit_status_that_the_documents_list(capsys):
    page = (Path(__file__).parents[2] / "docs" / "command.md").read_text()
    listed = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    assert {"0", "1", "2", "3", "130", "141"} <= set(listed)
    text = ended(capsys, "--help")[1]
    ends = text[text.index("exit status") :]
    assert set(listed) <= set(re.findall(r"\d+", ends))


def test_version(capsys):
    assert ended(capsys, "--version") == (0, f"kappaform {kf.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND"),
        (["clean"], "invalid choice: 'clean'"),
        (["denoise"], "IN"),
        (["denoise", "a.png", "--sigma", "much"], "--sigma"),
        (["denoise", "a.png", "--max-condition", "0.5"], "0.5: give a finite number >= 1"),
        (["denoise", "a.png", "--patch-size", "0"], "0: give an integer >= 1"),
        (["denoise", "a.png", "--method", "best"], "invalid choice: 'best'"),
        (["denoise", "a.png", "--volume", "--stack"], "not allowed with"),
        (["denoise", "a.png", "--patch-size", "8.5"], "8.5: give an integer >= 1"),
        (["denoise", "a.png", "--strength", "much"], "much: give a finite number from 0 to 1"),
        (
            ["denoise", "a.png", "--sgima", "3"],
            "unknown option --sgima: did you mean --sigma? See kappaform denoise --help.\n",
        ),
        (
            ["denoise", "a.png", "--patchsize=3"],
            "unknown option --patchsize: did you mean --patch-size? See kappaform denoise --help.",
        ),
        (["denoise", "a.png", "--sig", "3"], "unknown option --sig: did you mean --sigma?"),
        (["denoise", "a.png", "--zzz"], "unknown option --zzz. See kappaform denoise --help."),
        (["--verison"], "required: COMMAND"),
        (["info", "a.kappaform", "b.kappaform"], "unrecognized arguments: b.kappaform"),
        (["denoise", "a.png", "--strength", "1.5"], "1.5: give a finite number from 0 to 1"),
        (["denoise", "a.png", "--strength", "nan"], "nan: give a finite number from 0 to 1"),
        (["learn", "a.npy"], "-o/--output"),
    ],
)
def test_wrong_usage_is_one_line_with_the_way_to_help(arguments, message, capsys):
    line = rejected(capsys, *arguments)
    assert message in line
    assert "--help" in line


# --- Demonstration, progress, defects


def test_the_demonstration_improves_its_image_and_draws(folder, capsys, monkeypatch):
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


def test_the_demonstration_prints_the_errors_that_it_draws(capsys, monkeypatch):
    drawn, plot_path = [], kf.plots.plot_path
    monkeypatch.setattr(kf.plots, "plot_path", lambda path: drawn.append(path) or plot_path(path))
    monkeypatch.setattr("skimage.data.camera", lambda: np.kron(PICTURE, np.ones((2, 2), np.uint8)))
    monkeypatch.setattr("kappaform.cli.demo._BOUNDS", (1, 2, 10))
    code, out, _ = ended(capsys, "demo")
    assert code == 0
    assert "sigma is the standard deviation of the noise, in grey levels" in out
    _, table = out.split("max_condition  sparsification  relative  reconstruction\n")
    rows = [list(map(float, line.split())) for line in table.splitlines()[:3]]
    assert [row[0] for row in rows] == [1, 2, 10]
    assert 1 > rows[0][1] > rows[1][1] > rows[2][1] > 0
    assert max(rows[0][1:]) <= min(rows[0][1:]) * 1.001  # orthonormal transforms preserve norms
    for column, axes in enumerate(plot_path(*drawn).axes, start=1):
        _, validation, *_ = axes.lines
        np.testing.assert_allclose([row[column] for row in rows], validation.get_ydata(), atol=1e-4)


def test_progress_is_shown_on_a_terminal_only(monkeypatch, capsys):
    with calling_library("learning") as callback:
        assert callback is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with calling_library("learning") as callback:
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("patch_size=8 exceeds the image", "--patch-size 8 exceeds the image"),
        ("preset='paper' with values", "--preset paper with values"),
        ("a preset has its own", "a preset has its own"),
        ("sigma=0.1 is small, sigma is", "--sigma 0.1 is small, sigma is"),
        ("n_nonzero_coefs=17 exceeds", "--n-nonzero 17 exceeds"),
        ("raise max_iter or tol.", "raise --max-iter or --tol."),
        ("value_range=(9, 1): give", "--value-range 9 1: give"),
        ("device 'foo' is unknown", "--device foo is unknown"),
        ("my_patch_size and --max-iter", "my_patch_size and --max-iter"),
    ],
)
def test_messages_of_the_library_name_options(text, expected, capsys):
    assert in_options(text) == expected
    with pytest.raises(ValueError, match=re.escape(expected)), calling_library():
        raise ValueError(text)
    with warnings.catch_warnings():
        show_warnings()
        warnings.showwarning(UserWarning(text), UserWarning, __file__, 1)
    assert capsys.readouterr().err == f"kappaform: warning: {expected}\n"


def test_every_option_that_messages_speak_of_is_one(capsys):
    helps = [ended(capsys, name, "--help")[1] for name in ("denoise", "noise", "learn", "path")]
    for option in OPTIONS.values():
        assert any(f"{option} " in text for text in helps)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (["--help"], "stdout"),
        (["denoise", "a.png", "--sigma", "0"], "stdout"),
        (["denoise", "missing.png"], "stderr"),
    ],
)
def test_a_reader_who_leaves_ends_the_command_quietly(folder, words, left):
    put("a.png", noisy())
    read, write = os.pipe()
    os.close(read)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(write, "wb") as closed:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, left: closed}
        arguments = [sys.executable, "-m", "kappaform", *words]
        done = subprocess.run(arguments, **streams, cwd=folder, env=environment, check=False)
    assert done.returncode == 141
    assert not done.stdout
    assert not done.stderr


def shell(command, folder):
    """What a shell makes of a command, in which "$0" is Python."""
    words = ["sh", "-c", command, sys.executable]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)


def test_a_closed_stream_changes_no_result(folder):
    put("a.png", noisy())
    denoise = '"$0" -m kappaform denoise a.png --sigma 0 --overwrite'
    for stream in ("2>&-", ">&-", ">&- 2>&-"):
        done = shell(f"{denoise} {stream}", folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert (folder / "a_denoised.png").is_file()
        (folder / "a_denoised.png").unlink()
    done = shell('"$0" -m kappaform denoise missing.png 2>&-', folder)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_standard_output_is_not_a_failure_of_the_image(folder):
    put("a.png", noisy())
    for words in ("a.png --sigma 0", "a.png --sigma 0 --overwrite --json", "--help"):
        done = shell(f'"$0" -m kappaform denoise {words} > /dev/full', folder)
        assert done.returncode == 2
        text = "standard output: No space left on device; results already written remain"
        assert done.stderr == f"kappaform: error: {text}\n"
        assert (folder / "a_denoised.png").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_standard_error_changes_no_result(folder):
    put("a.png", noisy())
    done = shell('"$0" -m kappaform denoise a.png --sigma 900 --patch-size 4 2> /dev/full', folder)
    assert done.returncode == 0
    assert (folder / "a_denoised.png").is_file()
    assert shell('"$0" -m kappaform denoise missing.png 2> /dev/full', folder).returncode == 2


def test_names_do_not_steer_the_terminal(capsys, monkeypatch):
    name = "a\x1b[31m\x9b\u202egnp.png"
    shown = r"a\x1b[31m\x9b\u202egnp.png"
    put(name, noisy())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    code, out, err = ended(capsys, "denoise", name, "--sigma", 900, "--patch-size", 4)
    assert code == 0
    assert out.startswith(f"{shown} -> ")
    assert f"warning: {shown}: --sigma 900 exceeds" in err
    err += ended(capsys, "denoise", f"missing{name}")[2]
    err += ended(capsys, "denoise", name, f"--{name}")[2]
    assert not {"\x9b", "\u202e"} & set(out + err)
    assert "\x1b[31m" not in out + err  # progress moves the cursor by itself


def test_names_that_the_terminal_cannot_show_are_no_bug(folder):
    put("a.png", noisy())
    name = "b\N{SNOWMAN}.png"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    arguments = [sys.executable, "-m", "kappaform", "denoise", "a.png", "-o", name, "--sigma", "0"]
    done = subprocess.run(arguments, capture_output=True, cwd=folder, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"b\\u2603.png: 36 \\xd7 36" in done.stdout
    assert (folder / name).is_file()


def test_a_batch_shows_which_file_how_much_of_it_and_the_time_left(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    put("a.png", noisy())
    put("b.png", noisy())
    code, _, err = ended(capsys, "denoise", "a.png", "b.png", "--sigma", 15, "--patch-size", 4)
    assert code == 0
    shown = re.findall(r"file (\d) of 2, ([ab])\.png: +(\d+) % of 0.0013 megapixels", err)
    for number, name in (("1", "a"), ("2", "b")):
        shares = [int(share) for n, letter, share in shown if (n, letter) == (number, name)]
        assert shares == sorted(shares)
        assert len(set(shares)) > 3
        assert shares[-1] == 100
    assert re.search(r"\d\d:\d\d elapsed, \d\d:\d\d left", err)


def test_one_image_is_not_counted(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    put("a.png", noisy())
    err = ended(capsys, "denoise", "a.png", "--sigma", 15, "--patch-size", 4)[2]
    assert "a.png: 100 % of" in err
    assert "file 1" not in err


def test_the_help_states_the_times_of_qualities_that_the_guide_does(capsys):
    guide = (Path(__file__).parents[2] / "docs" / "denoising.md").read_text(encoding="utf-8")
    small = [re.search(rf"`\"{name}\"`.*about ([\d.]+) \|", guide)[1] for name in QUALITIES]
    large = re.search(r"the ratios are about (\d+) and (\d+)", guide).groups()
    text = " ".join(ended(capsys, "denoise", "--help")[1].split())
    for name, least, most in zip(QUALITIES, small, large, strict=True):
        assert re.search(rf"{name}[a-z ]* {least} to {most} times", text)
