"""The directive `command`: what a subcommand does and its options, from the parser of the command.

```{command} denoise
```
"""

from __future__ import annotations

import argparse

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from kappaform.cli.parser import build_parser


def parser_of(words: list[str]) -> argparse.ArgumentParser:
    """The parser of a subcommand, given by its words: ["reproduce", "table1"]."""
    parser = build_parser()
    for word in words:
        groups = (each for each in parser._actions if isinstance(each.choices, dict))
        parser = next(groups).choices[word]
    return parser


def _place(action: argparse.Action) -> int:
    """Arguments first, then options, and those that every subcommand has at the end."""
    if not action.option_strings:
        return 0
    return 2 if action.dest in ("json", "debug") else 1


class CommandOptions(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        parser = parser_of(self.arguments[0].split())
        usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
        options = nodes.definition_list(classes=["command-options"])
        options += [
            self._entry(action)
            for action in sorted(parser._actions, key=_place)
            if action.dest != "help"
        ]
        return [
            nodes.literal_block(usage, usage, language="text", classes=["command-usage"]),
            *self._paragraphs(parser.description or ""),
            options,
            *self._example(parser.epilog or ""),
        ]

    def _paragraphs(self, text: str) -> list[nodes.Node]:
        parts = [" ".join(part.split()) for part in text.split("\n\n")]
        return [nodes.paragraph(part, part) for part in parts if part]

    def _example(self, epilog: str) -> list[nodes.Node]:
        line = epilog.removeprefix("example:").strip()
        return (
            [nodes.literal_block(line, line, language="sh")]
            if epilog.startswith("example:")
            else []
        )

    def _entry(self, action: argparse.Action) -> nodes.definition_list_item:
        value = action.metavar or action.dest.upper()
        if action.choices is not None:
            value = "{" + ",".join(map(str, action.choices)) + "}"
        value = " ".join(value) if isinstance(value, tuple) else value
        name = ", ".join(action.option_strings)
        shown = name if name and action.nargs == 0 else f"{name} {value}".strip()
        term = nodes.term("", "", nodes.literal("", shown))
        text = (action.help or "").replace("%%", "%")
        return nodes.definition_list_item(
            "", term, nodes.definition("", nodes.paragraph(text, text))
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command", CommandOptions)
    return {"parallel_read_safe": True}
