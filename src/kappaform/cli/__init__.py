"""The command `kappaform`."""

from kappaform.cli.run import main

__all__ = ["main"]
