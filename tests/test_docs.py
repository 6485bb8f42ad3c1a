"""The documentation agrees with the code, and its examples run."""

import inspect
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

import kappaform as kf

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
API = (DOCS / "api.md").read_text(encoding="utf-8")

PLOTS = [name for name in dir(kf.plots) if name.startswith("plot_")]
# What users receive but do not make has attributes, no signature worth showing.
RECEIVED = {
    "BatchRefused",
    "DenoiseResult",
    "LearnResult",
    "LearningInterrupted",
    "Method",
    "MethodFailed",
    "SignalsUnreadable",
    "plots",
}
CALLED = sorted(set(kf.__all__) - RECEIVED)


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_python_blocks_run_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in enumerate(_blocks(path.read_text(encoding="utf-8"), "python"), 1):
        exec(compile(block, f"{path.name}, block {number}", "exec"), names)


@pytest.mark.parametrize("name", kf.__all__)
def test_every_public_name_has_a_section(name):
    assert f"\n### `{name}`\n" in API


@pytest.mark.parametrize("name", [*CALLED, *PLOTS])
def test_documented_signatures_are_those_of_the_code(name):
    signature = inspect.signature(getattr(kf.plots if name in PLOTS else kf, name))
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    expected = f"{name}{inspect.Signature(bare)}".replace("'", '"')
    assert expected in "".join(_blocks(API, "text")).splitlines()


def test_every_attribute_of_a_result_is_documented():
    fields = {*kf.LearnResult.__dataclass_fields__, *vars(kf.LearnResult)}
    missing = {name for name in fields if not name.startswith("_") and f"`{name}`" not in API}
    assert not missing


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        page = path.parent / file if file else path
        assert page.exists(), target
        if anchor:
            assert anchor in _anchors(page), target


def _anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub forms them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_map_for_contributors_names_every_file_and_no_other():
    text = (DOCS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("Where do I change")[2].partition("Imports go one way")[0]
    package = Path(kf.__file__).parent
    sources = [*package.rglob("*.py"), package / "__init__.pyi"]
    files = {str(path.relative_to(package)) for path in sources}
    listed: set[str] = set()
    for line in table.splitlines():
        folder = ""
        for name in re.findall(r"`([^`]+\.pyi?|[a-z_]+/)`", line):
            folder = name.rpartition("/")[0] or folder  # of the files that follow without one
            pattern = name if "/" in name else f"{folder}/{name}".lstrip("/")
            found = {file for file in files if file.startswith(name) or fnmatch(file, pattern)}
            assert found, name
            listed |= found
    rest = {
        file for file in files - listed if Path(file).name not in ("__init__.py", "__main__.py")
    }
    assert not rest
