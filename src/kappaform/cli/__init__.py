"""The command `kappaform`."""

from kappaform.cli.parser import main

__all__ = ["main"]
