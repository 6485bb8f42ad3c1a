"""The command from start to end: what it runs, and with which exit status it ends."""

from __future__ import annotations

import signal
import threading
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from kappaform.cli import messages
from kappaform.cli.options import complete
from kappaform.cli.parser import build_parser

_SIGPIPE = 13  # `signal.SIGPIPE`, which Windows does not have
#: Arguments that name a file or a folder, besides `inputs`.
_OF_FILES = (
    "input",
    "output",
    "report",
    "compare",
    "model",
    "signals",
    "codes",
    "plot",
    "init",
    "folder",
    "data",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments, by default those of the process.

    Returns 0; or 1 if `reproduce` had to leave something out, 2 for bad input, 3 for a bug of
    kappaform; or 128 and the number of the signal that ended it, 130 for Ctrl-C, 141 if the reader
    of its output, say `head`, has seen enough and left.
    """
    messages.open_closed_streams()
    try:
        code = _run(argv)
        messages.write_output()
        return code
    except BrokenPipeError:
        messages.drop_what_nobody_reads()
        return 128 + _SIGPIPE
    except OSError as error:
        code, text = messages.failure(error)
        messages.complain(text)
        return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as leaving:  # --help and --version, or wrong usage
        return int(leaving.code or 0)
    with warnings.catch_warnings(), _signals_interrupt() as received:
        warnings.showwarning = messages.show_warning
        try:
            complete(arguments)
            command = import_module(f"kappaform.cli.{arguments.module}")
            code = getattr(command, arguments.function)(arguments) or 0
        except KeyboardInterrupt as interruption:
            messages.complain(str(interruption) or "interrupted")
            code = 128 + signal.SIGINT
        except BrokenPipeError:
            raise
        except Exception as error:
            code, text = messages.failure(error, arguments.debug, names=_files(arguments))
            messages.complain(text)
    return 128 + received[0] if received else int(code)


def _files(arguments: Namespace) -> list[str]:
    """Names of files and folders that the arguments give."""
    given = [getattr(arguments, name, None) for name in _OF_FILES]
    return [*(getattr(arguments, "inputs", None) or ()), *(name for name in given if name)]


@contextmanager
def _signals_interrupt() -> Iterator[list[int]]:
    """Let signals that would end the process interrupt it like Ctrl-C, so that it cleans up."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    in_main_thread = threading.current_thread() is threading.main_thread()  # a rule of Python
    numbers = [getattr(signal, name) for name in names if in_main_thread]
    # What the caller handles or ignores (nohup) stays as it is.
    ours = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
