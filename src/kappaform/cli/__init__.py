"""The command `kappaform`.

Everything heavy is imported by the subcommand that needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from kappaform.cli.io import REFUSED, complain, failure, warn
from kappaform.cli.parser import build_parser

__all__ = ["main"]

_SIGNALS = ("SIGTERM", "SIGHUP")  # the second is not everywhere


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments, by default those of the process.

    Returns 0; or 1 if `reproduce` had to leave something out, 2 for bad input, 3 for a bug of
    kappaform; or 128 and the number of the signal that ended it, 130 for Ctrl-C.
    """
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as leaving:  # --help and --version, or wrong usage
        return int(leaving.code or 0)
    with warnings.catch_warnings(), _signals_interrupt() as received:
        warnings.showwarning = warn
        try:
            command = import_module(f"kappaform.cli.{arguments.module}")
            code = int(getattr(command, arguments.function)(arguments))
        except KeyboardInterrupt:
            complain("interrupted")
            code = 128 + signal.SIGINT
        except BrokenPipeError:  # the reader of the output, say `head`, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = REFUSED
        except Exception as error:
            code, text = failure(error, arguments.debug)
            complain(text)
    return 128 + received[0] if received else code


@contextmanager
def _signals_interrupt() -> Iterator[list[int]]:
    """Let signals that would end the process interrupt it like Ctrl-C, so that it cleans up."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    in_main_thread = threading.current_thread() is threading.main_thread()  # a rule of Python
    # What the caller handles or ignores (nohup) stays as it is.
    ours = [n for n in numbers if in_main_thread and signal.getsignal(n) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
