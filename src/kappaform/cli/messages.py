"""What the command says: results, notes, warnings, errors and progress, in words of its options.

Nothing here imports what is heavy.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

#: Exit codes; 1 is for results that are incomplete.
REFUSED, BUG = 2, 3
#: What bad input raises, in the library and in those it uses. The command itself chooses the types
#: of all arguments, so that a TypeError is a bug like everything else.
_BAD_INPUT = (OSError, ValueError, ImportError, MemoryError)


def as_option(name: str) -> str:
    """The option that gives an argument of this name."""
    return f"--{name.replace('_', '-')}"


# Parameters of the library that are options of the same name.
_SAME = (
    *("max_condition", "max_iter", "n_rounds", "norm", "objective", "init", "variant", "noise"),
    *("patch_size", "preset", "quality", "seed", "sigma", "tol", "choose_by", "value_range"),
)
#: What users of the command give for a parameter of the library.
_OPTIONS = {name: as_option(name) for name in _SAME} | {
    "n_nonzero_coefs": "--n-nonzero",
    "cv": "--folds",
    "max_conditions": "--bounds",
}
# Of these, which are words as well, only ``name=value`` is meant.
_WORDS = {"init", "noise", "norm", "objective", "preset", "seed", "sigma", "variant"}
#: What the library advises, and the same for users of the command.
_ADVICE = {
    "noise=Shot(gain, read_noise)": "--gain and --read-noise",
    "noise=Correlated(autocovariance=...)": "--noise white or --sigma",
    "or give sigma": "or give --sigma",
    "is wrong, give sigma": "is wrong, give --sigma",
    "is noisy, give sigma or noise": "is noisy, give --sigma",
    "the depth of a volume: denoise it plane by plane": "the depth of a volume: leave out --volume",
    "the time of a movie: denoise it plane by plane": "the time of a movie: leave out --movie",
}
_ASSIGNED = re.compile(rf"(?<![\w./-])({'|'.join(_OPTIONS)})=(?:'([^']*)')?")
_NAMED = re.compile(rf"(?<![\w./-])({'|'.join(sorted({*_OPTIONS} - _WORDS))})(?![\w/-]|\.\w)")
# What steers a terminal: control characters but tab and newline, and the direction of writing.
_CONTROLS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")
_DEVICE = re.compile(r"\bdevice '([^']*)'")


# --- Streams


def open_closed_streams() -> None:
    """Let streams that were closed before the start lead nowhere, as if nobody read them."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def drop_what_nobody_reads() -> None:
    """Let what is still to be written to a closed pipe vanish: Python would complain at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _lead_nowhere(stream)


def _lead_nowhere(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_output(text: str = "") -> None:
    """Write to standard output, at once; an error names it, and not the file that is worked on."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _lead_nowhere(sys.stdout)
        reason = f"{error.strerror}; results that are written stay"
        raise OSError(error.errno, reason, "standard output") from error


def printable(text: str) -> str:
    """Text without characters that would steer a terminal: names of files may have any."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(text: str) -> None:
    """One result, on standard output, at once: it may be read while others are made."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    shown = printable(text).encode(encoding, "backslashreplace").decode(encoding)
    write_output(f"{shown}\n")


def _say_beside(text: str) -> None:
    """One line on standard error; that it is full changes no result."""
    try:
        sys.stderr.write(f"kappaform: {printable(text)}\n")
    except BrokenPipeError:
        raise
    except OSError:
        _lead_nowhere(sys.stderr)


def complain(text: str) -> None:
    """One error, on standard error."""
    _say_beside(f"error: {text}")


def note(text: str) -> None:
    """Something good to know, on standard error."""
    _say_beside(text)


def warn(text: str) -> None:
    """One warning of the command, on standard error."""
    _say_beside(f"warning: {text}")


# --- What the library says


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning of the library as one line, in place of `warnings.showwarning`."""
    warn(in_options(" ".join(str(message).split())))


@contextmanager
def warnings_about(*files: Path) -> Iterator[None]:
    """Show warnings of the library, when all is done, as lines that name the first of some files.

    So are those that it logs. Those that differ in their numbers only, as of the pages of a file,
    become one line.
    """
    logged: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kappaform")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)  # each file, and not the first one only
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            texts = [" ".join(str(each.message).split()) for each in caught] + logged
            alike: dict[str, list[str]] = {}
            for text in texts:
                alike.setdefault(re.sub(r"[\d.]+", "", text), []).append(text)
            for first, *more in alike.values():
                is_named = any(str(file) in first for file in files)
                name = "" if is_named else f"{files[0]}: "
                text = f"{name}{in_options(first, map(str, files))}"
                warn(text + f" (and {len(more)} more like this)" * bool(more))


def in_options(text: str, names: Iterable[str] = ()) -> str:
    """A message of the library with the options of the command in place of its parameters.

    Some `names` of files stay as they are: they may look like parameters.
    """
    longest_first = sorted({name for name in names if name}, key=len, reverse=True)
    if longest_first:
        known = "|".join(map(re.escape, longest_first))
        # But a value of a parameter, as in preset='paper', belongs to it.
        pieces = re.split(rf"(?<!=')(?<![\w./-])({known})(?![\w-])", text)
        pieces[::2] = map(in_options, pieces[::2])
        return "".join(pieces)
    for advice, ours in _ADVICE.items():
        text = text.replace(advice, ours)
    text = _ASSIGNED.sub(lambda found: f"{_OPTIONS[found[1]]} {found[2] or ''}", text)
    text = _NAMED.sub(lambda found: _OPTIONS[found[1]], text)
    return _DEVICE.sub(r"--device \1", text)


def failure(
    error: Exception, debug: bool = False, source: str = "", names: Iterable[str] = ()
) -> tuple[int, str]:
    """Exit code and one line for an exception; `debug` shows where it comes from, too.

    The line names `source`, the file that was worked on: the library knows arrays, not files.
    `names` are further files that it may name.
    """
    if debug:
        traceback.print_exception(error)
    code, text = REFUSED, " ".join(str(error).split()) or type(error).__name__
    names = {source, *names}
    if not isinstance(error, _BAD_INPUT):
        code = BUG
        text = f"this is a bug in kappaform: {type(error).__name__}: {text}; please report it, "
        text += "with what --debug shows"
    elif isinstance(error, MemoryError):
        text = f"not enough memory: give a smaller input ({text})"
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
        names.add(str(error.filename))
    if code == REFUSED:
        text = in_options(text, names)
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
def progress(name: str, work: str = "") -> Iterator[Callable[[Any], None] | None]:
    """A callback that shows progress on a terminal; None where nobody watches.

    It counts its calls; or it is told the share that is done of the `work` of this name.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    style = "{desc}: {n_fmt} iterations, {elapsed}"
    if work:
        style = f"{{desc}}: {{percentage:.0f}} % of {work}, {{elapsed}} passed, {{remaining}} left"
    options: dict[str, Any] = {}
    if work:  # not smoothed: parts end in bursts, so only the mean rate says when the last will
        options = {"total": 1, "smoothing": 0, "mininterval": 0, "miniters": 0}
    with tqdm(
        desc=printable(name), bar_format=style, leave=False, file=sys.stderr, **options
    ) as bar:

        def watch(done: Any) -> None:
            bar.update(done - bar.n if work else 1)

        yield watch
