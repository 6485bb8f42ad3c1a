"""Every number of the documents that comes from a benchmark is the number that is stored.

    python benchmarks/check_numbers.py            lists what differs; exit status 1 if anything does
    python benchmarks/check_numbers.py --write    puts the stored numbers into the documents

`numbers.toml` lists the passages: a text in which each {} stands for a number, and the row of each.
A number agrees if it is the stored value, rounded to as many digits as the document shows.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import stored

ROOT = stored.HERE.parent
TABLE = stored.HERE / "numbers.toml"
NUMBER = r"([-+−]?\d+(?:\.\d+)?)"
REDUCE = {"least": min, "most": max}


def main(arguments: list[str]) -> int:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    if arguments == ["--write"]:
        write(table)
    problems = list(check(table))
    print(*problems, sep="\n")
    n_pending = sum("pending" in quote for quote in table["quote"])
    print(f"{len(table['quote'])} passages, {n_pending} of them pending: {len(problems)} problems")
    return 1 if problems else 0


def check(table: dict, root: Path = ROOT, results: Path = stored.RESULTS) -> Iterator[str]:
    """What is wrong, in words: a passage, a row or a number at a time."""
    for quote in table["quote"]:
        rows = rows_of(results, quote.get("machine", table["machine"]))
        where = f"{quote['file']}: {quote['text'].strip().splitlines()[0]!r}"
        found = re.findall(pattern_of(quote), (root / quote["file"]).read_text(encoding="utf-8"))
        if len(found) != 1:
            yield f"{where} is there {len(found)} times: the entry must follow the document."
            continue
        numbers = found[0] if isinstance(found[0], tuple) else found
        values = [value_of(name, rows) for name in quote["rows"]]
        if "pending" in quote and None not in values:
            yield f"{where}: its rows are stored, so it is no longer pending."
        for number, name, value in zip(numbers, quote["rows"], values, strict=True):
            if value is None and "pending" not in quote:
                yield f"{where}: no row {name!r} is stored."
            if value is not None and not agrees(number, value):
                yield f"{where}: {number} is {shown(number, value)} in {name!r}."


def write(table: dict, root: Path = ROOT, results: Path = stored.RESULTS) -> None:
    """Replace the numbers whose rows are stored, with as many digits as are there."""
    for quote in table["quote"]:
        rows = rows_of(results, quote.get("machine", table["machine"]))
        values = [value_of(name, rows) for name in quote["rows"]]

        def with_values(match: re.Match, values: list = values, quote: dict = quote) -> str:
            texts = [_corrected(*pair) for pair in zip(match.groups(), values, strict=True)]
            parts = quote["text"].split("{}")
            return "".join(part + text for part, text in zip(parts, [*texts, ""], strict=True))

        path = root / quote["file"]
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(pattern_of(quote), with_values, text), encoding="utf-8")


def _corrected(number: str, value: float | None) -> str:
    return number if value is None or agrees(number, value) else shown(number, value)


def pattern_of(quote: dict) -> str:
    return NUMBER.join(re.escape(part) for part in quote["text"].split("{}"))


def rows_of(results: Path, machine: str) -> dict[str, dict]:
    """Rows by "benchmark | name": of the machine whose times are quoted, of GPUs, and of none."""
    chosen = [
        path
        for path in stored.files(results)
        if path.stem in (machine, stored.ANY_MACHINE) or path.stem.startswith("nvidia")
    ]
    found = [row for path in chosen for row in stored.read(path)]
    return {f"{row['benchmark'].removeprefix('bench_')} | {row['name']}": row for row in found}


def value_of(name: str, rows: dict[str, dict]) -> float | None:
    """The value of a row; "row | field" is another field of it, "least ROW*" is one of several."""
    word, _, rest = name.partition(" ")
    if word in REDUCE:
        values = [row["value"] for key, row in rows.items() if fnmatchcase(key, rest)]
        return REDUCE[word](values) if values else None
    if name in rows:
        return rows[name]["value"]
    name, _, field = name.rpartition(" | ")
    return rows.get(name, {}).get(field)


def agrees(number: str, value: float) -> bool:
    """Whether `number` is `value`, rounded; a value in the middle may be rounded either way."""
    half = 0.5 * 10.0 ** -_n_decimals(number)
    return abs(float(number.replace("−", "-")) - value) <= half * (1 + 1e-6)


def shown(number: str, value: float) -> str:
    """`value` with as many decimals as `number`, and with a sign if that has one."""
    sign = "+" if number[0] == "+" else ""
    return f"{value:{sign}.{_n_decimals(number)}f}".replace("-", "−")


def _n_decimals(number: str) -> int:
    return len(number.partition(".")[2])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
