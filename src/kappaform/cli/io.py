"""What the command reads, writes and says; nothing here imports what is heavy."""

from __future__ import annotations

import json
import sys
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    code, text = REFUSED, " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, _BAD_INPUT):
        code = BUG
        text = f"this is a bug in kappaform: {type(error).__name__}: {text}; please report it, "
        text += "with what --debug shows"
    elif isinstance(error, MemoryError):
        text = f"not enough memory: give a smaller input ({text})"
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return code, text if source in text else f"{source}: {text}"


def tell(facts: dict[str, Any], as_json: bool) -> None:
    """Facts, one on each line, or as JSON."""
    if as_json:
        say_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        say(f"{name.replace('_', ' '):<{width}}  {text}")


def say_json(document: dict[str, Any]) -> None:
    """The one document that --json prints; what JSON cannot say (inf, NaN) becomes null."""

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else str(value)  # of NumPy, or else

    text = json.dumps(document, default=plain)
    say(json.dumps(json.loads(text, parse_constant=lambda _: None), indent=1))


@contextmanager
def progress(name: str, of_work: bool = False) -> Iterator[Callable[[Any], None] | None]:
    """A callback that shows progress on a terminal; None where nobody watches.

    It counts its calls; or, `of_work`, it is told the share of the work that is done.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    style = "{desc}: {n_fmt} iterations, {elapsed}"
    if of_work:
        style = "{desc}, {percentage:.0f} % of the work, {elapsed} passed, {remaining} remaining"
    # Not smoothed: parts end in bursts, so only the mean rate says when the last will.
    options: dict[str, Any] = {"total": 1, "smoothing": 0, "mininterval": 0} if of_work else {}
    with tqdm(desc=name, bar_format=style, leave=False, file=sys.stderr, **options) as bar:

        def watch(done: Any) -> None:
            bar.update(done - bar.n if of_work else 1)

        yield watch


# --- Options and files


def chosen(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Options of the library that are arguments of the same name."""
    return {name: getattr(arguments, name) for name in names}


def picture_files(
    inputs: Iterable[str], own_suffix: str = ""
) -> tuple[list[Path], int, dict[Path, ValueError]]:
    """Files, and pictures in folders; how many files are skipped; folders without pictures.

    Pictures whose name ends with `own_suffix` are results of an earlier run, and skipped.
    """
    from kappaform.image_files import SUFFIXES

    def is_wanted(file: Path) -> bool:
        is_result = bool(own_suffix) and file.stem.endswith(own_suffix)
        return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and not is_result

    files: list[Path] = []
    n_skipped, errors = 0, {}
    for path in map(Path, inputs):
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(entry for entry in path.iterdir() if entry.is_file())
        wanted = [file for file in inside if is_wanted(file)]
        if wanted:
            files += wanted
            n_skipped += len(inside) - len(wanted)
        else:
            kinds = " ".join(SUFFIXES)
            errors[path] = ValueError(f"{path} holds no picture: no file to read is {kinds}.")
    return files, n_skipped, errors


def check_output(path: Path, inputs: Iterable[Path], suffixes: tuple[str, ...] = ()) -> None:
    """Refuse, before any work is done, a name that cannot be written or is that of an input."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{path}: give a name that ends with {' or '.join(suffixes)}.")
    if path.exists() and any(other.exists() and path.samefile(other) for other in inputs):
        raise ValueError(f"{path} is an input: give the output another name.")
    check_writable(path)


@contextmanager
def saved_figure(path: Path, figure: Any) -> Iterator[None]:
    """A figure that is drawn at once and takes its name only if all else succeeds."""
    with replaced_when_complete(path) as file:
        figure.savefig(file, format=path.suffix.lower()[1:], dpi=110)
        yield
