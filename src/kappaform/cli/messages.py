"""What the command says: results, notes, warnings, errors and progress, in words of its options.

Nothing here imports what is heavy.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    "the depth of a volume: denoise it plane by plane": "the depth of a volume: leave out --volume",
    "the time of a movie: denoise it plane by plane": "the time of a movie: leave out --movie",
}
_ASSIGNED = re.compile(rf"(?<![\w./-])({'|'.join(_OPTIONS)})=(?:'([^']*)')?")
_NAMED = re.compile(rf"(?<![\w./-])({'|'.join(sorted({*_OPTIONS} - _WORDS))})(?![\w/-]|\.\w)")
_DEVICE = re.compile(r"\bdevice '([^']*)'")


def say(text: str) -> None:
    """One result, on standard output, at once: it may be read while others are made."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    printable = text.encode(encoding, "backslashreplace").decode(encoding)  # names may be anything
    sys.stdout.write(printable + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """One error, on standard error."""
    sys.stderr.write(f"kappaform: error: {text}\n")


def drop_what_nobody_reads() -> None:
    """Let what is still to be written to a closed pipe vanish: Python would complain at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def note(text: str) -> None:
    """Something good to know, on standard error."""
    sys.stderr.write(f"kappaform: {text}\n")


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning of the library as one line, in place of `warnings.showwarning`."""
    sys.stderr.write(f"kappaform: warning: {in_options(' '.join(str(message).split()))}\n")


@contextmanager
def warnings_about(*files: Path) -> Iterator[None]:
    """Show warnings of the library, when all is done, as lines that name the first of some files.

    Those that differ in their numbers only, as of the pages of a file, become one line.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)  # each file, and not the first one only
        try:
            yield
        finally:
            texts = [" ".join(str(each.message).split()) for each in caught]
            alike: dict[str, list[str]] = {}
            for text in texts:
                alike.setdefault(re.sub(r"[\d.]+", "", text), []).append(text)
            for first, *more in alike.values():
                is_named = any(str(file) in first for file in files)
                name = "" if is_named else f"{files[0]}: "
                warn(f"{name}{first}" + f" (and {len(more)} more like this)" * bool(more))


def in_options(text: str) -> str:
    """A message of the library with the options of the command in place of its parameters."""
    for advice, ours in _ADVICE.items():
        text = text.replace(advice, ours)
    text = _ASSIGNED.sub(lambda found: f"{_OPTIONS[found[1]]} {found[2] or ''}", text)
    text = _NAMED.sub(lambda found: _OPTIONS[found[1]], text)
    return _DEVICE.sub(r"--device \1", text)


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
    if code == REFUSED:
        text = in_options(text)
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
    with tqdm(desc=name, bar_format=style, leave=False, file=sys.stderr, **options) as bar:

        def watch(done: Any) -> None:
            bar.update(done - bar.n if work else 1)

        yield watch
