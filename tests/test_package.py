"""What holds for the package as a whole, whatever it computes."""

import ast
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import kappaform as kf

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kappaform"
MODULES = sorted(PACKAGE.rglob("*.py"))

# A unit may import units of its own layer or of an earlier one.
LAYERS = [
    {"files", "image_files", "linalg"},
    {"engines"},
    {"learning"},
    {"imaging", "estimators", "persistence", "plots"},
    {"paper", "cli"},
    {"__main__"},
]
LAYER = {unit: depth for depth, units in enumerate(LAYERS) for unit in units}

HEAVY = {"numpy", "scipy", "sklearn", "skimage", "numba", "matplotlib", "torch", "dask", "tqdm"}


def test_importing_kappaform_imports_nothing_heavy():
    script = "import sys, kappaform; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "kappaform" in loaded
    assert not HEAVY & set(loaded)


@pytest.mark.parametrize("name", [*kf.__all__, "__version__"])
def test_every_public_name_resolves_and_is_listed(name):
    assert getattr(kf, name) is not None
    assert name in dir(kf)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'kappaform' has no attribute 'nonsense'"):
        _ = kf.nonsense


def test_type_checkers_see_the_same_public_names():
    (guarded,) = (
        node
        for node in ast.parse((PACKAGE / "__init__.py").read_text()).body
        if isinstance(node, ast.If)
    )
    seen = {
        (alias.name, node.module)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = {(name, f"kappaform.{home}") for name, home in kf._HOME.items()}
    assert seen == homes | {("plots", "kappaform")}
    assert sorted(kf.__all__) == sorted(name for name, _ in seen)


def test_the_version_is_the_same_everywhere():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert kf.__version__ == declared
    assert f"\nversion: {declared}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {declared} " in (ROOT / "CHANGELOG.md").read_text()


def test_imports_go_one_way():
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        unit = _unit(path)
        if unit == "__init__":  # the lazy public names: above every layer
            continue
        for target in _imported_units(path) - {unit}:
            where = path.relative_to(PACKAGE)
            assert {unit, target} <= LAYER.keys(), f"{where}: {unit} or {target} has no layer"
            assert LAYER[target] <= LAYER[unit], f"{where}: {unit} must not import {target}"
            graph.setdefault(unit, set()).add(target)
    TopologicalSorter(graph).prepare()  # raises if units of one layer import each other in a circle


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_library_never_prints(path):
    calls = (node.func for node in _nodes(path) if isinstance(node, ast.Call))
    lines = [call.lineno for call in calls if isinstance(call, ast.Name) and call.id == "print"]
    assert not lines


def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _unit(path: Path) -> str:
    """The package or module directly below kappaform that `path` belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imported_units(path: Path) -> set[str]:
    """Units of kappaform named by any import statement of a file, at whatever depth."""
    names: set[str] = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(PACKAGE)}: write absolute imports"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    parts = (name.split(".") for name in names)
    return {unit for package, *rest in parts if package == "kappaform" for unit in rest[:1]}
