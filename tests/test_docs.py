"""The documentation agrees with the code, and its examples run."""

import doctest
import importlib.util
import inspect
import re
import sys
from fnmatch import fnmatch
from functools import reduce
from pathlib import Path

import pytest

import kappaform as kf
from kappaform.cli.parser import build_parser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = {"_build", "generated", "tutorials"}  # when the site is built
PAGES = [
    path for path in sorted(DOCS.rglob("*.md")) if not MADE & set(path.relative_to(DOCS).parts)
]
REFERENCE = (DOCS / "reference" / "index.rst").read_text(encoding="utf-8")

PLOTS = [f"plots.{name}" for name in kf.plots.__all__]
NAMES = sorted(set(kf.__all__) - {"plots"}) + PLOTS
# What users receive but do not make has attributes, no parameters worth describing.
RECEIVED = {
    "BatchRefused",
    "DenoiseResult",
    "InpaintRound",
    "LearnResult",
    "LearningInterrupted",
    "Method",
    "MethodFailed",
    "SignalsUnreadable",
    "UnionResult",
}


def _object(name):
    return reduce(getattr, name.split("."), kf)


def _module(path):
    """A module of a script that is not part of the package."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_the_python_blocks_run_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    text = path.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{path.name}, block {number}", "exec"), names)


# --- Reference


def test_the_reference_has_every_public_name_and_no_other():
    entries = re.findall(r"^   ([\w.]+)$", REFERENCE, flags=re.MULTILINE)
    assert sorted(entries) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_every_docstring_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    thing = _object(name)
    text = inspect.getdoc(thing)
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert len(example.examples) >= 2
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    report: list[str] = []
    assert runner.run(example, out=report.append).failed == 0, "".join(report)


@pytest.mark.parametrize("name", sorted(set(NAMES) - RECEIVED))
def test_every_parameter_is_described_and_no_other(name):
    thing = _object(name)
    text = inspect.getdoc(thing).partition("Parameters\n----------\n")[2]
    section = re.split(r"\n\n\w[\w ]*\n---", text)[0]
    heads = re.findall(r"^(\w[\w, ]*?)(?: :.*)?$", section, flags=re.MULTILINE)
    described = [each.strip() for head in heads for each in head.split(",")]
    assert sorted(described) == sorted(inspect.signature(thing).parameters)


@pytest.mark.parametrize("name", ["LearnResult", "DenoiseResult"])
def test_every_attribute_of_a_result_is_described(name):
    thing = _object(name)
    text = inspect.getdoc(thing)
    fields = {*thing.__dataclass_fields__, *vars(thing)}
    own = {each for each in fields if not each.startswith("_")}
    told = {each for each in own if inspect.getdoc(getattr(thing, each, None))}
    missing = {each for each in own - told if not re.search(rf"^{each} :", text, re.MULTILINE)}
    assert not missing


# --- Pages


def test_pages_of_methods_show_the_hooks_of_custom_methods_and_no_others():
    template = (DOCS / "_templates" / "autosummary" / "class.rst").read_text(encoding="utf-8")
    always, of_methods = (
        set(re.findall(r'"(\w+)"', line)) for line in re.findall(r"set hidden = (.*)", template)[:2]
    )
    public = {name for name in vars(kf.Method) if not name.startswith("_")}
    assert public - always == {"admissible", "loss", "momentum", "monotone", "update"} == of_methods


def test_every_subcommand_has_its_options_on_a_page():
    pages = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "howto").glob("*.md"))
    shown = re.findall(r"^```{command} (.+)$", pages, flags=re.MULTILINE)
    assert sorted(shown) == sorted(_subcommands(build_parser()))


def _subcommands(parser, prefix=""):
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for name, inner in action.choices.items():
                yield prefix + name
                yield from _subcommands(inner, f"{prefix}{name} ")


def test_every_tutorial_has_its_place():
    order = _module(DOCS / "_ext" / "tutorial_order.py")
    scripts = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert set(order._ORDER) == scripts
    assert sorted(map(order.place_of, scripts)) == list(range(len(scripts)))


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_of_the_front_pages_lead_somewhere(name):
    """Those of the site are checked when it is built."""
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        if file.startswith("https://"):
            continue
        page = ROOT / (file or name)
        assert page.exists(), target
        if anchor:
            assert anchor in _anchors(page), target


def _anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "path",
    [*(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")), *PAGES],
    ids=lambda path: path.name,
)
def test_lines_of_markdown_have_at_most_100_characters(path):
    """So that terminals and diffs can show them. Rows of tables cannot be split, nor images."""
    lines = path.read_text(encoding="utf-8").splitlines()
    long = [line for line in lines if len(line) > 100 and not re.match(r"\||!\[|\s*\$\$", line)]
    assert not long


# --- The check of links, which `make docs` runs on the built site


@pytest.fixture
def check(monkeypatch):
    monkeypatch.setitem(sys.modules, "check_links", None)  # not from elsewhere
    return _module(DOCS / "check_links.py")


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("other.html", ""),
        ("other.html#here", ""),
        ("#own", ""),
        ("inner/", ""),
        ("https://example.org/nothing", ""),
        ("missing.html", "there is no such file"),
        ("other.html#there", "there is no such place in the page"),
        ("#there", "there is no such place in the page"),
        ("../outside.html", "leads out of the site"),
    ],
)
def test_links_that_lead_nowhere_are_found(check, tmp_path, link, problem):
    site = tmp_path / "site"
    (site / "inner").mkdir(parents=True)
    (tmp_path / "outside.html").write_text("outside")
    (site / "inner" / "index.html").write_text("inner")
    (site / "other.html").write_text('<p id="here">')
    (site / "index.html").write_text(f'<h1 id="own">x</h1><a href="{link}">link</a>')
    expected = [f"index.html: {link}: {problem}"] if problem else []
    assert check.failures(site) == expected


def test_a_site_without_pages_is_an_error(check, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["check_links.py", str(tmp_path)])
    assert check.main() == 1
    assert "holds no page: build the site first" in capsys.readouterr().out


# --- For contributors


def test_the_map_for_contributors_names_every_file_and_no_other():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("Where do I change")[2].partition("Imports go one way")[0]
    package = Path(kf.__file__).parent
    sources = [*package.rglob("*.py"), package / "__init__.pyi"]
    files = {str(path.relative_to(package)) for path in sources}
    listed: set[str] = set()
    for line in table.splitlines():
        folder = ""
        for name in re.findall(r"`([^`]+\.pyi?|[a-z_/]+/)`", line):
            folder = name.rpartition("/")[0] or folder  # of the files that follow without one
            pattern = name if "/" in name else f"{folder}/{name}".lstrip("/")
            found = {file for file in files if file.startswith(name) or fnmatch(file, pattern)}
            assert found, name
            listed |= found
    rest = {
        file for file in files - listed if Path(file).name not in ("__init__.py", "__main__.py")
    }
    assert not rest


def test_every_word_is_explained_once_for_users_or_for_contributors():
    inside = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Words")[2]
    users = (DOCS / "glossary.md").read_text(encoding="utf-8")
    words: list[str] = []
    for text in (inside, users):
        cells = re.findall(r"^\| ([^|`]+) \|", text, flags=re.MULTILINE)
        found = [
            word for cell in cells if cell not in ("word", "term") for word in cell.split(", ")
        ]
        assert len(found) > 20
        words += [word.removesuffix("s") for word in found]
    assert sorted(words) == sorted(set(words))
