"""What the command reads, writes and says; nothing here imports what is heavy."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kappaform.files import check_writable, replaced_when_complete

#: Exit codes; 1 is for results that are incomplete.
REFUSED, BUG = 2, 3
#: What bad input raises, in the library and in those it uses. The command itself chooses the types
#: of all arguments, so that a TypeError is a bug like everything else.
_BAD_INPUT = (OSError, ValueError, ImportError, MemoryError)
#: Suffixes of figures.
FIGURES = (".png", ".pdf", ".svg")


# --- Words


def say(text: str) -> None:
    """One result, on standard output."""
    sys.stdout.write(text + "\n")


def complain(text: str) -> None:
    """One error, on standard error."""
    sys.stderr.write(f"kappaform: error: {text}\n")


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning of the library as one line, in place of `warnings.showwarning`."""
    sys.stderr.write(f"kappaform: warning: {' '.join(str(message).split())}\n")


def failure(error: Exception, debug: bool = False, source: str = "") -> tuple[int, str]:
    """Exit code and one line for an exception; `debug` shows where it comes from, too.

    The line names `source`, the file that was worked on: the library knows arrays, not files.
    """
    if debug:
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    if not isinstance(error, _BAD_INPUT):
        where = f" ({source})" if source else ""
        return BUG, (
            f"this is a bug in kappaform: {type(error).__name__}: {text}{where}; run again with "
            "--debug, and report what it shows"
        )
    if isinstance(error, MemoryError):
        text = "not enough memory: " + (text or "give a smaller input.")
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    text = text or type(error).__name__
    return REFUSED, text if source in text else f"{source}: {text}"


def tell(facts: dict[str, Any], as_json: bool) -> None:
    """Facts, one on each line, or as JSON."""
    if as_json:
        say_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        text = ", ".join(value) if isinstance(value, list) else text
        say(f"{name.replace('_', ' '):<{width}}  {text}")


def say_json(document: dict[str, Any]) -> None:
    """The one document that --json prints; what JSON cannot say (inf, NaN) becomes null."""
    say(json.dumps(_plain(document), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # arrays and numbers of NumPy
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)


@contextmanager
def progress(name: str) -> Iterator[Callable[[Any], None] | None]:
    """A callback that counts iterations on a terminal; None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    style = "{desc}: {n_fmt} iterations, {elapsed}"
    with tqdm(desc=name, bar_format=style, leave=False, file=sys.stderr) as bar:

        def watch(_: Any) -> None:
            bar.update()

        yield watch


# --- Files


class Found(NamedTuple):
    """Files to read, how many others their folders hold, and what is wrong with other folders."""

    files: list[Path]
    n_skipped: int
    errors: dict[Path, str]


def picture_files(inputs: Iterable[str], own_suffix: str = "") -> Found:
    """Files, and pictures in folders, in order.

    Pictures whose name ends with `own_suffix` are results of an earlier run, and skipped.
    """
    from kappaform.image_files import SUFFIXES

    def is_wanted(file: Path) -> bool:
        is_result = bool(own_suffix) and file.stem.endswith(own_suffix)
        return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and not is_result

    found, n_skipped = Found([], 0, {}), 0
    for path in map(Path, inputs):
        if not path.is_dir():
            found.files.append(path)
            continue
        inside = sorted(entry for entry in path.iterdir() if entry.is_file())
        wanted = [file for file in inside if is_wanted(file)]
        if not wanted:
            found.errors[path] = (
                f"{path} holds no picture: no file to read in it is {' '.join(SUFFIXES)}."
            )
            continue
        found.files.extend(wanted)
        n_skipped += len(inside) - len(wanted)
    return found._replace(n_skipped=n_skipped)


def check_output(path: Path, inputs: Iterable[Path], suffixes: tuple[str, ...] = ()) -> None:
    """Refuse, before any work is done, a name that cannot be written or is that of an input."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{path}: give a name that ends with {' or '.join(suffixes)}.")
    if any(is_same(path, other) for other in inputs):
        raise ValueError(f"{path} is an input: give the output another name.")
    check_writable(path)


def is_same(path: Path, other: Path) -> bool:
    """Whether two names are of the same file, which need not exist yet."""
    linked = path.exists() and other.exists() and path.samefile(other)
    return linked or os.path.realpath(path) == os.path.realpath(other)


@contextmanager
def saved_figure(path: Path, figure: Any) -> Iterator[None]:
    """A figure that is drawn at once and takes its name only if all else succeeds."""
    with replaced_when_complete(path) as file:
        figure.savefig(file, format=path.suffix.lower()[1:], dpi=110)
        yield
