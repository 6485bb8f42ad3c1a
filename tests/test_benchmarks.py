"""Benchmarks can be run, keep what they measure, and are what the documents quote."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import check_numbers
import code_lines
import pytest
import stored

FOLDER = Path(__file__).parents[1] / "benchmarks"
OLD = {"date": "2001-01-01", "commit": "old", "machine": "another", "versions": "of then"}


def row(name, value, target=None):
    return {"name": name, "value": value, "unit": "s", "target": target}


@pytest.fixture
def folder(tmp_path):
    """A folder of benchmarks with the real runner and none of the real benchmarks."""
    for name in ("run.py", "stored.py"):
        shutil.copy(FOLDER / name, tmp_path)
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capfd):
    """The runner in this process; its benchmarks have one of their own."""
    monkeypatch.setenv("KAPPAFORM_BENCH_JOBS", "1")  # set by the runner
    monkeypatch.setitem(sys.modules, "stored", stored)

    def call(*only):
        specification = importlib.util.spec_from_file_location("runner", folder / "run.py")
        runner = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(runner)
        status = runner.main([*only, "--results", str(folder / "results")])
        return SimpleNamespace(returncode=status, **capfd.readouterr()._asdict())

    return call


def add(folder, name, *rows, then=""):
    lines = ["ANY_MACHINE = True", "def rows(*parts):", *(f"    yield {each!r}" for each in rows)]
    (folder / f"bench_{name}.py").write_text("\n".join([f'"""{name}"""', *lines, f"    {then}"]))


def results(folder):
    path = folder / "results" / "any-machine.json"
    return {(each["benchmark"], each["name"]): each for each in stored.read(path)}


def test_every_benchmark_can_be_imported_and_has_rows():
    command = [sys.executable, str(FOLDER / "run.py"), "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"^bench_\w+", done.stdout, flags=re.MULTILINE)
    assert listed == sorted(path.stem for path in FOLDER.glob("bench_*.py"))


def test_a_benchmark_that_fails_loses_neither_its_rows_nor_the_others(folder, run):
    add(folder, "a", row("before", 1.0), then="raise OSError('the disk is full')")
    add(folder, "b", row("after", 2.0))
    done = run()
    assert done.returncode == 1
    assert "bench_a: ended with 1" in done.out
    assert {name for _, name in results(folder)} == {"before", "after"}


def test_the_exit_status_says_whether_a_target_is_missed(folder, run):
    add(folder, "a", row("met", 1.0, 1.0), {**row("high enough", 3.0, 2.0), "better": "higher"})
    assert run().returncode == 0
    add(folder, "b", row("too slow", 1.5, 1.0))
    done = run()
    assert done.returncode == 1
    assert done.out.endswith("missed: 1\n  bench_b: too slow: 1.5 s (target 1)\n")


def test_a_partial_run_leaves_the_other_rows_as_they_are(folder, run):
    kept = {"benchmark": "bench_a", **row("x", 1.0), **OLD}
    stored.write(folder / "results" / "any-machine.json", [kept])
    add(folder, "a", row("x", 5.0))
    add(folder, "b", row("y", 2.0))
    run("b")
    found = results(folder)
    assert found["bench_a", "x"] == kept
    assert found["bench_b", "y"].keys() == kept.keys()
    assert found["bench_b", "y"]["date"] > OLD["date"]


@pytest.mark.parametrize("skips", [True, False])
def test_rows_stay_if_something_was_skipped_and_else_only_if_they_are_still_measured(
    folder, skips, run
):
    kept = {"benchmark": "bench_a", **row("needs pictures", 1.0), **OLD}
    stored.write(folder / "results" / "any-machine.json", [kept])
    message = {"skipped": "pictures: they are not here"}
    add(folder, "a", row("x", 5.0), *([message] if skips else []))
    done = run()
    assert (("bench_a", "needs pictures") in results(folder)) == skips
    assert ("bench_a: pictures: they are not here" in done.out) == skips


def test_two_rows_of_the_same_name_are_rejected(folder, run):
    add(folder, "a", row("x", 1.0), row("x", 2.0))
    done = run()
    assert done.returncode == 1
    assert "two rows have the name 'x'" in done.err


def test_every_stored_row_says_where_it_comes_from():
    for path in stored.files():
        rows = stored.read(path)
        names = [(each["benchmark"], each["name"]) for each in rows]
        assert len(set(names)) == len(names)
        for each in rows:
            assert {"value", "unit", "target", *OLD} <= each.keys(), each["name"]
            assert isinstance(each["value"], float | int)


# --- Numbers of the documents


def test_the_documents_quote_what_is_stored():
    table = tomllib.loads(check_numbers.TABLE.read_text(encoding="utf-8"))
    assert list(check_numbers.check(table)) == []


TABLE = {
    "machine": "this",
    "quote": [{"file": "page.md", "text": "{} s and {} s", "rows": ["a | x", "a | y"]}],
}


def page(tmp_path, text, **values):
    (tmp_path / "page.md").write_text(f"It takes {text}.", encoding="utf-8")
    rows = [{"benchmark": "bench_a", "name": name, "value": v} for name, v in values.items()]
    stored.write(tmp_path / "this.json", rows)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1.2 s and 3.46 s", None),
        ("1.23 s and 3.5 s", None),
        ("1.3 s and 3.46 s", "1.3 is 1.2 in 'a | x'"),
        ("1.2 s", "is there 0 times"),
        ("1.2 s and 3.46 s, or 1.2 s and 3.46 s", "is there 2 times"),
    ],
)
def test_a_number_agrees_if_it_is_the_stored_one_rounded(tmp_path, text, problem):
    folder = page(tmp_path, text, x=1.234, y=3.456)
    found = list(check_numbers.check(TABLE, folder, folder))
    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]


def test_a_number_without_a_row_is_a_problem_unless_it_is_pending(tmp_path):
    folder = page(tmp_path, "1.2 s and 3.46 s", x=1.234)
    assert "no row 'a | y'" in next(check_numbers.check(TABLE, folder, folder))
    pending = {**TABLE, "quote": [{**TABLE["quote"][0], "pending": "no time yet"}]}
    assert list(check_numbers.check(pending, folder, folder)) == []
    folder = page(tmp_path, "1.2 s and 3.46 s", x=1.234, y=3.456)
    assert "no longer pending" in next(check_numbers.check(pending, folder, folder))


def test_stored_numbers_are_written_with_the_digits_that_are_there(tmp_path):
    folder = page(tmp_path, "+1.2 s and 3.46 s", x=-2.06, y=12.345678)
    check_numbers.write(TABLE, folder, folder)
    assert (folder / "page.md").read_text(encoding="utf-8") == "It takes −2.1 s and 12.35 s."
    assert list(check_numbers.check(TABLE, folder, folder)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("a | x", 1.0), ("a | x | seconds", 7.0), ("least a | *", 1.0), ("most a | *", 2.0)],
)
def test_a_row_is_named_by_itself_by_a_field_or_by_a_pattern(name, value):
    rows = {"a | x": {"value": 1.0, "seconds": 7.0}, "a | y": {"value": 2.0}}
    assert check_numbers.value_of(name, rows) == value
    assert check_numbers.value_of(name.replace("a |", "b |"), rows) is None


def test_stored_files_are_one_row_per_line(tmp_path):
    stored.write(tmp_path / "x.json", [{"benchmark": "bench_b"}, {"benchmark": "bench_a"}])
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert [json.loads(line.strip(","))["benchmark"] for line in text.splitlines()[1:-1]] == [
        "bench_a",
        "bench_b",
    ]


def test_docstrings_comments_and_files_that_are_left_out_are_no_lines_of_code(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "rooms").mkdir()
    (tmp_path / "rooms" / "one.py").write_text('"""What it is."""\n\n# why\nx = (\n    1\n)\n')
    (tmp_path / "two.py").write_text("def f():\n    '''What it does.'''\n    return 2\n")

    def counted(*options):
        monkeypatch.setattr(sys, "argv", ["code_lines.py", str(tmp_path), *options])
        code_lines.main()
        return int(capsys.readouterr().out.splitlines()[-1].split()[0])

    assert counted() == 5
    assert counted("--without", "rooms/one.py") == 2
    assert counted("--without", "rooms/*", "two.py") == 0
