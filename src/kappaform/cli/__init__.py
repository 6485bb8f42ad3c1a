"""The command `kappaform`.

Everything heavy is imported by the subcommand that needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from kappaform.cli.console import BAD_INPUT, complain, one_line, warn
from kappaform.cli.parser import build_parser

__all__ = ["main"]

FAILED, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments, by default those of the process.

    Returns 0, or 2 for bad input, or 130 after Ctrl-C.
    """
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as leaving:  # --help and --version, or wrong usage
        return int(leaving.code or 0)
    with warnings.catch_warnings():
        warnings.showwarning = warn
        try:
            command = import_module(f"kappaform.cli.{arguments.module}")
            return int(getattr(command, arguments.function)(arguments))
        except KeyboardInterrupt:
            complain("interrupted")
            return INTERRUPTED
        except BrokenPipeError:  # the reader of the output, say `head`, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAILED
        except BAD_INPUT as error:
            complain(one_line(error))
            return FAILED
