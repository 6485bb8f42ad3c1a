"""Files of results: csv for programs, Markdown for people, pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kappaform.files import replaced_when_complete

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Rows that have the same columns; nothing but an empty file for no rows."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    with replaced_when_complete(path) as file:
        file.write(text.encode())


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns after the first are aligned to the right."""
    lines = [header, [":--", *["--:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write_picture(path: Path, figure: Figure) -> None:
    with replaced_when_complete(path) as file:
        figure.savefig(file, format="png", dpi=120)
