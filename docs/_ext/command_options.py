"""The directive `command`: description and options of a subcommand, taken from its parser.

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
    """Parser of a subcommand, such as ["reproduce", "table1"]."""
    parser = build_parser()
    for word in words:
        groups = (each for each in parser._actions if isinstance(each.choices, dict))
        parser = next(groups).choices[word]
    return parser


def _place(action: argparse.Action) -> int:
    """Sort key: arguments, then options, then the options of every subcommand."""
    if not action.option_strings:
        return 0
    return 2 if action.dest in ("json", "debug") else 1


def _value(action: argparse.Action) -> str:
    """Placeholder for the value of an argument."""
    if action.choices is not None and not isinstance(action.choices, dict):
        return "{" + ",".join(map(str, action.choices)) + "}"
    value = action.metavar or action.dest.upper()
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _usage(parser: argparse.ArgumentParser) -> str:
    """Usage line with the required arguments."""
    words = [parser.prog]
    for action in sorted(parser._actions, key=_place):
        if not action.option_strings:
            words.append(_value(action) + " ..." * (action.nargs == "+"))
        elif action.required:
            words.append(f"{action.option_strings[0]} {_value(action)}")
    return " ".join([*words, "[options]"])


class CommandOptions(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        parser = parser_of(self.arguments[0].split())
        usage = _usage(parser)
        shown = [action for action in parser._actions if action.dest != "help"]
        options = nodes.definition_list(classes=["command-options"])
        options += [self._entry(action) for action in sorted(shown, key=_place)]
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
        has_one = epilog.startswith("example:")
        return [nodes.literal_block(line, line, language="sh")] if has_one else []

    def _entry(self, action: argparse.Action) -> nodes.definition_list_item:
        name = ", ".join(action.option_strings)
        shown = name if name and action.nargs == 0 else f"{name} {_value(action)}".strip()
        term = nodes.term("", "", nodes.literal("", shown))
        text = (action.help or "").replace("%%", "%")
        if isinstance(action.choices, dict):  # a group of subcommands
            text = f"one of {', '.join(action.choices)}"
        return nodes.definition_list_item(
            "", term, nodes.definition("", nodes.paragraph(text, text))
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command", CommandOptions)
    return {"parallel_read_safe": True}
