"""Count lines of code, without docstrings, comments and blank lines.

python benchmarks/code_lines.py                    src/kappaform, folder by folder
python benchmarks/code_lines.py tests --files      another folder, and each of its files
python benchmarks/code_lines.py --without 'cli/*'  all except these files
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "kappaform"
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count lines of code.")
    parser.add_argument("folder", nargs="?", type=Path, default=PACKAGE)
    parser.add_argument("--files", action="store_true", help="each file, too")
    parser.add_argument("--without", nargs="+", default=[], help="files to leave out, or patterns")
    options = parser.parse_args()
    folders: Counter[str] = Counter()
    for path in sorted(options.folder.rglob("*.py")):
        name = path.relative_to(options.folder)
        if any(name.match(pattern) for pattern in options.without):
            continue
        number = code_lines(path.read_text(encoding="utf-8"))
        folders[str(name.parent)] += number
        if options.files:
            print(f"{number:6} {name}")
    for name, number in sorted(folders.items()):
        print(f"{number:6} {name}")
    print(f"{folders.total():6} in all")


def code_lines(text: str) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(text))


def docstring_lines(text: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


if __name__ == "__main__":
    main()
