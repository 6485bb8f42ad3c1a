"""What the command says: results, errors of one line, progress."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: What bad input raises, in the library and in those it uses; anything else is a defect.
BAD_INPUT = (OSError, ValueError, TypeError, ImportError, MemoryError)


def say(text: str) -> None:
    """One result, on standard output."""
    sys.stdout.write(text + "\n")


def complain(text: str) -> None:
    """One error, on standard error."""
    sys.stderr.write(f"kappaform: error: {text}\n")


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning of the library as one line, in place of `warnings.showwarning`."""
    sys.stderr.write(f"kappaform: warning: {' '.join(str(message).split())}\n")


def one_line(error: BaseException) -> str:
    """An exception in words."""
    if isinstance(error, MemoryError):
        return "not enough memory: " + (" ".join(str(error).split()) or "give a smaller input.")
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


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
