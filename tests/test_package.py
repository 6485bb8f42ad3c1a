"""What holds for the package as a whole, whatever it computes."""

import ast
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import kappaform as kf

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kappaform"
MODULES = sorted(PACKAGE.rglob("*.py"))

# A unit (a module or a package directly below kappaform) may import units of its own layer or of
# an earlier one. The lazy public names of `__init__` are no unit: they stand above all layers.
LAYERS = [
    {"checks", "errors", "files", "gpu", "image_files", "jit", "linalg", "threads"},
    {"engines"},
    {"learning"},
    {"imaging", "estimators", "persistence", "plots"},
    {"explore", "paper"},
    {"cli"},
    {"__main__"},
]
LAYER = {unit: depth for depth, units in enumerate(LAYERS) for unit in units}

# The preset of `denoise` is the paper's denoiser, which lives with the paper and uses the library.
# `denoise` imports it when it is called: the only import that goes to a layer above.
UPWARD = {("kappaform.imaging.denoise", "kappaform.paper.denoiser")}

# The command is a client of the library, so it may use the public names. Everything else imports
# what it needs from where it is.
MAY_USE_THE_PUBLIC_NAMES = {"cli"}

HEAVY = {"numpy", "scipy", "sklearn", "skimage", "numba", "matplotlib", "torch", "dask", "tqdm"}

MOST_LINES = 400


def test_importing_kappaform_imports_nothing_heavy():
    script = "import sys, kappaform; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "kappaform" in loaded
    assert not HEAVY & set(loaded)


@pytest.mark.parametrize("name", [*kf.__all__, "__version__"])
def test_every_public_name_resolves(name):
    assert getattr(kf, name) is not None


def test_only_public_names_are_shown():
    for name in kf.__all__:
        getattr(kf, name)  # names are imported on first use, which must show nothing more
    assert dir(kf) == sorted([*kf.__all__, "__version__"])


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'kappaform' has no attribute 'nonsense'"):
        _ = kf.nonsense


def test_the_stub_names_the_objects_that_users_get():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    listed = [
        (alias.name, node.module)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted(name for name, _ in listed) == sorted(kf.__all__)
    for name, home in listed:
        module = f"kappaform.{home or name}"
        found = import_module(module)
        assert getattr(kf, name) is (getattr(found, name) if home else found)


def test_the_version_is_the_same_everywhere():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert kf.__version__ == declared
    assert f"\nversion: {declared}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {declared} " in (ROOT / "CHANGELOG.md").read_text()


def test_imports_go_to_the_same_layer_or_below():
    for name, targets in ((_name(path), _imports(path)) for path in MODULES):
        unit = _unit(name)
        if unit == "":
            continue
        assert unit in LAYER, f"{unit} has no layer"
        for target in targets:
            if target == "kappaform":
                rule = f"{name} must import from where the name is"
                assert unit in MAY_USE_THE_PUBLIC_NAMES, rule
            else:
                is_below = LAYER[_unit(target)] <= LAYER[unit]
                assert is_below or (name, target) in UPWARD, f"{name} must not import {target}"


def test_imports_from_a_layer_above_are_made_when_a_function_is_called():
    for name, target in UPWARD:
        path = PACKAGE.parent.joinpath(*name.split(".")).with_suffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_import = [node.module for node in tree.body if isinstance(node, ast.ImportFrom)]
        named = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert (named.count(target), at_import.count(target)) == (1, 0)


def test_no_two_units_import_each_other():
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        units = {_unit(name) for name in _imports_below(path)}
        graph.setdefault(_unit(_name(path)), set()).update(units)
    _check_for_cycles({unit: others - {unit, ""} for unit, others in graph.items() if unit})


def test_no_two_modules_import_each_other():
    """Names for type checkers are not imported: they may be of a module that imports this one."""
    _check_for_cycles(
        {_name(path): _imports_below(path, for_types=False) - {"kappaform"} for path in MODULES}
    )


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        ("import kappaform", {"kappaform"}),
        ("import kappaform as kf", {"kappaform"}),
        ("from kappaform import learn", {"kappaform"}),
        ("from kappaform import threads", {"kappaform.threads"}),
        ("from kappaform.learning import learn", {"kappaform.learning"}),
        ("from kappaform.learning import methods", {"kappaform.learning.methods"}),
        ("from kappaform.learning.methods import LogDet", {"kappaform.learning.methods"}),
        ("import kappaform.threads", {"kappaform.threads"}),
        ("def f():\n    import kappaform.linalg.spectrum", {"kappaform.linalg.spectrum"}),
        ("import numpy, os.path\nfrom scipy import linalg", set()),
        ("if TYPE_CHECKING:\n    import kappaform.threads", {"kappaform.threads"}),
    ],
)
def test_every_way_to_import_is_seen(text, imported, tmp_path):
    file = tmp_path / "module.py"
    file.write_text(text)
    assert _imports(file) == imported
    assert _imports(file, for_types=False) == (set() if "TYPE_CHECKING" in text else imported)


def test_only_estimators_that_are_verbose_print():
    printing = [
        _name(path)
        for path in MODULES
        for node in _nodes(path)
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == ["kappaform.estimators.base"]


def test_a_file_is_a_room_and_not_a_warehouse():
    """Examples in docstrings do not count: they are documents."""
    n_lines = {_name(path): _n_lines(path) for path in MODULES}
    assert {name: n for name, n in n_lines.items() if n > MOST_LINES} == {}


def _n_lines(path: Path) -> int:
    documented = (ast.FunctionDef, ast.ClassDef)
    texts = [ast.get_docstring(node) or "" for node in _nodes(path) if isinstance(node, documented)]
    examples = [text[text.index("\nExamples\n") :] for text in texts if "\nExamples\n" in text]
    n_examples = sum(len(text.splitlines()) for text in examples)
    return len(path.read_text(encoding="utf-8").splitlines()) - n_examples


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _name(path: Path) -> str:
    """Dotted name of the module in a file of the package."""
    parts = ["kappaform", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {_name(path) for path in MODULES}


def _unit(module: str) -> str:
    """The unit that a module belongs to; that of kappaform itself is ''."""
    return module.split(".")[1] if "." in module else ""


def _imports(path: Path, *, for_types: bool = True) -> set[str]:
    """Modules of kappaform named by any import statement of a file, at whatever depth.

    "kappaform" itself stands for the public names. Without `for_types`, those that only type
    checkers follow are left out.
    """
    names: set[str] = set()
    checked = {id(each) for node in _nodes(path) if _is_for_types(node) for each in ast.walk(node)}
    for node in _nodes(path):
        if not for_types and id(node) in checked:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}, line {node.lineno}: write absolute imports"
            names.update(_home(str(node.module), alias.name) for alias in node.names)
    return {name for name in names if name.partition(".")[0] == "kappaform"}


def _imports_below(path: Path, *, for_types: bool = True) -> set[str]:
    imports = _imports(path, for_types=for_types)
    return {target for target in imports if (_name(path), target) not in UPWARD}


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _home(package: str, name: str) -> str:
    """What ``from package import name`` imports: a module of the package, or the package itself."""
    path = PACKAGE.parent.joinpath(*package.split("."), "__init__.py")
    if f"{package}.{name}" not in NAMES:
        return package
    given = (node for node in _nodes(path) if isinstance(node, ast.ImportFrom))
    return package if any(name == a.name for n in given for a in n.names) else f"{package}.{name}"


def _check_for_cycles(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("imports go in a circle: " + " <- ".join(error.args[1]))
