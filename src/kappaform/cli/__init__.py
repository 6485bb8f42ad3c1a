"""The command `kappaform`."""

from kappaform.cli.parser import main as main
