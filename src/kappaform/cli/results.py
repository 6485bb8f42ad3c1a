"""The files that the command writes: the names of results, and which are allowed."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kappaform.cli.pictures import Found, split_name
from kappaform.files import check_writable, replaced_when_complete
from kappaform.image_files import LOSSY_SUFFIXES, SUFFIXES

#: What the system knows a file by: its device and its number there.
Identity = tuple[int, int]
#: Suffixes of figures.
FIGURES = (".png", ".pdf", ".svg")
#: End of the names of cleaned pictures.
OWN_SUFFIX = "_denoised"


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


def _is_folder(option: str, given: str, many: bool, suffixes: tuple[str, ...]) -> bool:
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


def _home(option: str, folder: str, below: Path) -> Path:
    """The folder of some results. It may be new, but what it lies in must be there."""
    root = Path(folder)
    if not root.is_dir():
        if root.exists():
            raise ValueError(f"{option} {folder} is a file: give a folder.")
        check_writable(root)
    return root / below


@contextmanager
def made_folders(job: Job) -> Iterator[None]:
    """The folders of the results of a job, made if new; they go again if it fails."""
    made: list[Path] = []
    try:
        for home in job.folders:
            for folder in reversed((home, *home.parents)):
                if folder.exists():
                    continue
                try:
                    folder.mkdir()
                except FileExistsError:  # another command has just made it
                    if not folder.is_dir():
                        raise
                else:
                    made.append(folder)
        yield
    except BaseException:
        for folder in reversed(made):
            with suppress(OSError):  # something else may be in it by now
                folder.rmdir()
        raise


@contextmanager
def saved_figure(path: Path, figure: Any) -> Iterator[None]:
    """A figure that is drawn at once and takes its name only if all else succeeds."""
    with replaced_when_complete(path) as file:
        figure.savefig(file, format=path.suffix.lower()[1:], dpi=110)
        yield


# --- Cleaned pictures


class Job(NamedTuple):
    """One picture, where its result goes, and what belongs to it."""

    source: Path
    target: Path
    reference: Path | None
    report: Path | None
    title: str  #: which of how many
    folders: tuple[Path, ...]  #: where results go, if that may be new
    is_named: bool  #: whether the user gave the name of the result


def jobs_of(found: list[Found], arguments: Namespace) -> list[Job]:
    """What is to be done, with no name written twice."""
    has_folder = any(Path(name).is_dir() for name in arguments.inputs)
    many = len(found) > 1 or has_folder
    if arguments.recursive and not has_folder:
        raise ValueError("--recursive has no effect: no input is a folder; leave it out.")
    jobs = []
    for number, each in enumerate(found, start=1):
        title = f"file {number} of {len(found)}, {each.file.name}" if many else each.file.name
        jobs.append(_job(each, title, many, arguments))
    seen = set()
    for path in (path for job in jobs for path in (job.target, job.report) if path):
        file = os.path.realpath(path)
        if file in seen:
            raise ValueError(f"{path} would be written twice: give each result its own name.")
        seen.add(file)
    if arguments.jpeg_quality and not any(is_lossy(job.target) for job in jobs):
        raise ValueError("--jpeg-quality has no effect: no result is JPEG or WebP; leave it out.")
    return jobs


def _job(found: Found, title: str, many: bool, arguments: Namespace) -> Job:
    file, output, suffix = found.file, arguments.output, arguments.suffix
    in_folder = output and _is_folder("-o", output, many, SUFFIXES)
    is_named = bool(output) and not in_folder
    if suffix is not None and is_named:
        raise ValueError(f"--suffix has no effect with -o {output}, a file: leave one of them out.")
    if suffix is None:
        suffix = "" if output else OWN_SUFFIX
    stem, end = split_name(file)
    target = file.with_name(f"{stem}{suffix}{end}")
    folders: list[Path] = []
    if is_named:
        target = Path(output)
    elif output:
        folders.append(_home("-o", output, found.below))
        target = folders[-1] / target.name
    reference = Path(arguments.compare) if arguments.compare else None
    if reference and reference.is_dir():
        reference = reference / found.below / file.name
    report = Path(arguments.report) if arguments.report else None
    if report and _is_folder("--report", arguments.report, many, FIGURES):
        folders.append(_home("--report", arguments.report, found.below))
        report = folders[-1] / f"{file.name}_report.png"
    return Job(file, target, reference, report, title, tuple(folders), is_named)


def is_lossy(path: Path) -> bool:
    return path.suffix.lower() in LOSSY_SUFFIXES


def is_kept(job: Job, taken: set[Identity], arguments: Namespace) -> bool:
    """Whether the result is there already, from an earlier run of the same command.

    A file that the user names may be any: it is not taken for a result.
    """
    is_there = job.target.is_file() and not identities([job.target]) & taken
    return is_there and not job.is_named and not arguments.overwrite
