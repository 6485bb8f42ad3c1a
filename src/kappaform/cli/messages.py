"""Output of the command: results, notes, warnings, errors and progress, in terms of its options.

Nothing here imports heavy packages.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TextIO

from kappaform.errors import ArgumentsWarning

#: Exit statuses; 1 means incomplete results.
BAD_INPUT, BUG = 2, 3
SIGPIPE = 13  #: `signal.SIGPIPE`, which Windows does not have
#: What bad input raises, in the library and in the packages that it uses. The command itself
#: chooses the types of all arguments, so that a TypeError is a bug like everything else.
_BAD_INPUT = (OSError, ValueError, ImportError, MemoryError)


def as_option(name: str) -> str:
    """The option that sets an argument of this name."""
    return f"--{name.replace('_', '-')}"


# Parameters of the library that are options of the same name.
_SAME = (
    *("max_condition", "max_iter", "n_rounds", "norm", "objective", "init", "variant", "noise"),
    *("patch_size", "preset", "quality", "seed", "sigma", "tol", "choose_by", "value_range"),
    *("device", "gain", "read_noise", "offset", "strength", "colour_strength", "frames"),
)
#: The option for each parameter that messages of the library may name.
OPTIONS = {name: as_option(name) for name in _SAME} | {
    "n_nonzero_coefs": "--n-nonzero",
    "n_transforms": "--transforms",
    "cv": "--folds",
    "max_conditions": "--bounds",
}
# Messages write a parameter as name=value or name 'value'; a bare name is a parameter only if it
# is no English word.
_BARE = [name for name in OPTIONS if "_" in name or name in ("tol", "cv")]
_PARAMETER = re.compile(
    rf"\b({'|'.join(OPTIONS)})(?:=| (?='))(?:'([^']*)')?|\b({'|'.join(_BARE)})\b"
)
#: What the library recommends, and the same in terms of the command.
_ADVICE: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"value_range=\(([^ ,]+), ([^ )]+)\)": r"--value-range \1 \2",
    "clipped to it; give it in image units": "clipped to it; give it in values of the file",
    r"noise=Shot\([^)]*\)": "--gain and --read-noise",
    r"noise=Correlated\([^)]*\)": "--noise white or --sigma",
    r"give sigma(?: or noise)?(?![\w=])": "give --sigma",
    r"inpaint\(image\) and denoise\(.*": "kappaform inpaint fills NaN, and inf with --nodata inf; "
    "kappaform denoise leaves them as they are with --nodata nan, or --nodata inf.",
    "A mask is True where pixels are missing, ~mask inverts it": (
        "What is black in a mask is known; invert it if it marks what is"
    ),
    "or None to leave it free": "or none to leave it free",
    r"\bimages\[(\d+)\](?: \(counted from 0\))?": lambda found: f"image {int(found[1]) + 1}",
    r"\bdark\[(\d+)\]": lambda found: f"--dark image {int(found[1]) + 1}",
    r"frames='burst' or 'flat', or leave out dark": "--frames burst or flat, or leave out --dark",
    "dark frames are used with a burst": "--dark images are used with a burst",
}
# What steers a terminal: control characters except tab and newline, and the writing direction.
_CONTROLS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")


# --- Streams


def open_closed_streams() -> None:
    """Redirect streams that were closed before the start to the null device."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def discard_unread_output() -> None:
    """Discard what is left to write to a closed pipe: Python would complain when it exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream)


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def write_output(text: str = "") -> None:
    """Write to standard output and flush; an error names it, and not the file in progress."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard(sys.stdout)
        reason = f"{error.strerror}; results already written remain"
        raise OSError(error.errno, reason, "standard output") from error


def printable(text: str) -> str:
    """Escape characters that would steer a terminal: names of files may contain any."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(text: str) -> None:
    """Write one result to standard output, flushed: it may be read while others are computed."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    shown = printable(text).encode(encoding, "backslashreplace").decode(encoding)
    write_output(f"{shown}\n")


def note(text: str) -> None:
    """Write one line to standard error; a full disk is ignored, because no result is lost."""
    try:
        sys.stderr.write(f"kappaform: {printable(text)}\n")
    except BrokenPipeError:
        raise
    except OSError:
        _discard(sys.stderr)


def complain(text: str) -> None:
    note(f"error: {text}")


def warn(text: str) -> None:
    note(f"warning: {text}")


def reject_options(words: Iterable[str], options: Iterable[str], prog: str) -> None:
    """Exit if there is an option among words that were not understood, naming a similar one."""
    name = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
    if name:
        similar = get_close_matches(name, options, n=1)
        remedy = f": did you mean {similar[0]}?" if similar else "."
        complain(f"unknown option {name}{remedy} See {prog} --help.")
        sys.exit(BAD_INPUT)


# --- Messages of the library


def in_options(text: str) -> str:
    """A message of the library, with the options of the command in place of its parameters."""
    for advice, ours in _ADVICE.items():
        text = re.sub(advice, ours, text)
    return _PARAMETER.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    assigned, value, bare = found.groups()
    return OPTIONS[bare] if bare else f"{OPTIONS[assigned]} {value or ''}"


def _names(text: str, file: object) -> bool:
    """Whether a message names a file."""
    return bool(re.search(rf"(?<![\w./-]){re.escape(str(file))}(?![\w/-])", text))


def show_warnings() -> None:
    """Show warnings of the library as lines from now on.

    One about arguments, which are the same for all files, is shown the first time.
    """
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if not isinstance(message, ArgumentsWarning) or text not in shown:
            warn(in_options(text))
        shown.add(text)

    warnings.showwarning = show
    warnings.simplefilter("always", ArgumentsWarning)


@contextmanager
def warnings_about(*files: Path) -> Iterator[None]:
    """Collect warnings of the library, and show them at the end with the name of the first file.

    Logged warnings are included. Warnings that differ in numbers only, such as those of the pages
    of a file, become one line. One that names a file comes from its reader or writer: it speaks of
    no parameters. Those about arguments are about no file, and are shown at once.
    """
    texts: list[str] = []
    logged: list[str] = []
    show = warnings.showwarning

    def collect(message: Warning | str, *where: Any, **more: Any) -> None:
        if isinstance(message, ArgumentsWarning):
            show(message, *where, **more)
        else:
            texts.append(" ".join(str(message).split()))

    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("kappaform")
    with warnings.catch_warnings():
        warnings.showwarning = collect
        warnings.simplefilter("always", UserWarning)  # for each file, and not the first one only
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            alike: dict[str, list[str]] = {}
            for text in texts + logged:
                alike.setdefault(re.sub(r"[\d.]+", "", text), []).append(text)
            for first, *more in alike.values():
                is_named = any(_names(first, file) for file in files)
                text = first if is_named else f"{files[0]}: {in_options(first)}"
                warn(text + f" (and {len(more)} more like this)" * bool(more))


def failure(error: Exception, debug: bool = False, source: str = "") -> tuple[int, str]:
    """Exit status and one line for an exception; with `debug`, its traceback is printed, too.

    The line names `source`, the file in progress: the library knows arrays, not files.
    """
    if debug:
        traceback.print_exception(error)
    code, text = BAD_INPUT, " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, _BAD_INPUT):
        code = BUG
        text = f"this is a bug in kappaform: {type(error).__name__}: {text}; please report it with "
        text += "the output of --debug"
    elif isinstance(error, MemoryError):
        text = f"not enough memory: give a smaller input ({text})"
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return code, text if not source or _names(text, source) else f"{source}: {text}"


@contextmanager
def calling_library(name: str = "", work: str = "") -> Iterator[Callable[[Any], None] | None]:
    """Show the progress of a call of the library, and let its errors name options.

    Yields a callback, or None where standard error is no terminal. It counts its calls; or, if
    `work` says how much there is to do, it is called with the completed fraction.
    """
    try:
        with progress(name, work) as callback:
            yield callback
    except ValueError as error:
        error.args = (in_options(str(error)),)
        raise


@contextmanager
def progress(name: str, work: str = "") -> Iterator[Callable[[Any], None] | None]:
    """Show progress only; see `calling_library`."""
    if not name or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    style = "{desc}: {n_fmt} iterations, {elapsed}"
    options: dict[str, Any] = {}
    if work:  # not smoothed: parts end in bursts, so only the mean rate predicts the end
        style = f"{{desc}}: {{percentage:.0f}} % of {work}, {{elapsed}} elapsed, {{remaining}} left"
        options = {"total": 1, "smoothing": 0, "mininterval": 0, "miniters": 0}
    options |= {"desc": printable(name), "bar_format": style, "leave": False, "file": sys.stderr}
    with tqdm(**options) as bar:

        def watch(done: Any) -> None:
            bar.update(done - bar.n if work else 1)

        yield watch


# --- Signals


@contextmanager
def signals_interrupt() -> Iterator[list[int]]:
    """Let signals that would kill the process interrupt it like Ctrl-C, so that it cleans up."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    in_main_thread = threading.current_thread() is threading.main_thread()  # a rule of Python
    numbers = [getattr(signal, name) for name in names if in_main_thread]
    # Handlers of the caller, and signals that it ignores (nohup), stay as they are.
    ours = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@dataclass
class Interruptions:
    """Whether a signal has interrupted, and those that came while they were held."""

    is_interrupted: bool = False
    are_held: bool = False
    held: list[int] = field(default_factory=list)


@contextmanager
def interrupted_once() -> Iterator[Interruptions]:
    """The first Ctrl-C interrupts; later ones are held, so that what is saved is complete.

    At the end, KeyboardInterrupt is raised again if it was lost; one that was held takes effect.
    """
    state = Interruptions()
    handlers: dict[int, Any] = {}

    def interrupt(number: int, frame: Any) -> None:
        if state.are_held:
            state.held.append(number)
            return
        state.are_held = state.is_interrupted = True
        handlers[number](number, frame)
        state.are_held = state.is_interrupted = False  # that handler lets the program go on

    if threading.current_thread() is threading.main_thread():
        names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
        numbers = [getattr(signal, name) for name in names]
        found = {number: signal.getsignal(number) for number in numbers}
        # Signals that the caller ignores (nohup) or leaves to the system stay as they are.
        handlers |= {number: handler for number, handler in found.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, interrupt)
    try:
        yield state
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if state.is_interrupted:
        raise KeyboardInterrupt
    for number in state.held[:1]:
        handlers[number](number, None)


# --- Documents


def report(facts: dict[str, Any], as_json: bool) -> None:
    """Print facts, one on each line, or as JSON."""
    if as_json:
        say_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        say(f"{name.replace('_', ' '):<{width}}  {text}")


def say_json(document: dict[str, Any]) -> None:
    """The one document that --json prints; values that JSON lacks (inf, NaN) become null."""

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else str(value)

    text = json.dumps(document, default=plain)
    say(json.dumps(json.loads(text, parse_constant=lambda _: None), indent=1))
