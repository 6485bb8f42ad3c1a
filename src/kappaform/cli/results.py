"""The files that the command writes: which names are allowed, and folders for many."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kappaform.files import check_writable, replaced_when_complete

#: What the system knows a file by: its device and its number there.
Identity = tuple[int, int]
#: Suffixes of figures.
FIGURES = (".png", ".pdf", ".svg")


def identities(files: Iterable[Path]) -> set[Identity]:
    """What the system knows files by, whatever their names; those that are not there have none."""
    found = set()
    for file in files:
        with suppress(OSError, ValueError):
            facts = file.stat()
            found.add((facts.st_dev, facts.st_ino))
    return found


def check_output(
    path: Path, inputs: set[Identity], suffixes: tuple[str, ...] = (), *, overwrite: bool
) -> None:
    """Refuse, before any work is done, a name that cannot be written or is that of an input.

    Inputs are given by their `identities`.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{path}: give a name that ends with {' or '.join(suffixes)}.")
    if identities([path]) & inputs:
        raise ValueError(f"{path} is an input: give the output another name.")
    check_writable(path)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} is there already: give another name, or --overwrite.")


def is_folder(option: str, given: str, many: bool, suffixes: tuple[str, ...]) -> bool:
    """Whether a name is that of a folder for results, which need not be there."""
    path = Path(given)
    if path.is_dir() or given.endswith(("/", os.sep)):
        return True
    if many and path.exists():
        raise ValueError(f"{option} {given} is a file: give a folder.")
    if many and path.suffix.lower() in suffixes:
        raise ValueError(
            f"{option} {given} is the name of one file, and there may be several pictures: give a "
            f"folder ({path.stem}/)."
        )
    return many


def made_folder(folder: str, below: Path) -> Path:
    """The folder of some results, made if it is new; what it lies in must be there."""
    Path(folder).mkdir(exist_ok=True)
    home = Path(folder) / below
    home.mkdir(parents=True, exist_ok=True)
    return home


@contextmanager
def saved_figure(path: Path, figure: Any) -> Iterator[None]:
    """A figure that is drawn at once and takes its name only if all else succeeds."""
    with replaced_when_complete(path) as file:
        figure.savefig(file, format=path.suffix.lower()[1:], dpi=110)
        yield
