"""Which options of the command were given, and which of them have no effect beside others."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from kappaform.cli.io import as_option

#: Options that have no effect beside another one, and why.
_WITHOUT_EFFECT = (
    ("max_condition", "preset", "the bound is that of a log-det transform"),
    ("value_range", "preset", "its grey levels are 0 to 255"),
    ("device", "preset", "it is computed on the processor"),
    ("gain", "preset", "the denoiser of the paper knows white noise only"),
    ("share", "preset", "the denoiser of the paper learns from every picture"),
    ("share", "model", "the transform is learned already"),
    ("sigma", "gain", "one is the size of white noise, the other that of shot noise"),
    ("preset", "model", "a preset learns its own transform"),
    ("method", "model", "the transform is learned already"),
    ("max_condition", "model", "the transform is learned already"),
    ("seed", "model", "it chooses patches to learn from, and nothing is learned"),
    ("verbose", "json", "the document says everything"),
)
#: For every kind of noise, the option that is its size, and why that of another has no effect.
_SIZES = {
    "auto": ("", "kind and size are estimated"),
    "white": ("sigma", "the size of white noise is --sigma"),
    "shot": ("gain", "the size of shot noise is --gain, with --read-noise"),
    "correlated": ("", "its size is estimated"),
}
NOISES = tuple(_SIZES)


def complete(arguments: Namespace) -> None:
    """Note which options were given, check them, and give the others their default."""
    options = vars(arguments)
    given = {name for name, value in options.items() if value is not None and value is not False}
    _check_effects(options, given)
    low, high = options.get("value_range") or (0, 1)
    if not low < high:
        raise ValueError(f"--value-range {low:g} {high:g}: give the smaller value first.")
    arguments.given = given
    for name, value in arguments.defaults.items():
        if name not in given:
            setattr(arguments, name, value)


def _check_effects(options: dict[str, Any], given: set[str]) -> None:
    """Refuse an option that has no effect beside another one."""
    rules = [*_WITHOUT_EFFECT]
    if options.get("method") in ("log-det", "orthonormal"):
        rules.append(("max_condition", "method", "only the conditioned method has a bound"))
    kind = options.get("noise") or ""
    if kind in ("shot", "correlated"):
        rules.append(("noise", "preset", "the denoiser of the paper knows white noise only"))
    own, why = _SIZES.get(kind, ("", ""))
    rules += [(name, "noise", why) for name in ("sigma", "gain") if name != own]
    for name, other, why in rules:
        if {name, other} <= given:
            text = f"{_shown(name, options)} has no effect with {_shown(other, options)}"
            raise ValueError(f"{text}: {why}; leave one of them out.")
    for name in ("read_noise", "offset"):
        if name in given and "gain" not in given:
            text = f"{as_option(name)} has no effect without --gain"
            raise ValueError(f"{text}: they describe shot noise together; give both or neither.")


def _shown(name: str, options: dict[str, Any]) -> str:
    """An option; where it is a choice, with what was chosen."""
    option = as_option(name)
    return f"{option} {options[name]}" if name in ("method", "noise", "preset") else option
