"""Options of the command: which can be combined, and what they mean to the library."""

from __future__ import annotations

import math
import sys
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import kappaform as kf
from kappaform.cli.messages import as_option, calling_library, warn

#: Options that have no effect when combined with another one, and why. They are rejected here,
#: before any file is read: the library would reject some of them once per image.
_WITHOUT_EFFECT = (
    ("max_condition", "preset", "the bound is that of a log-det transform"),
    ("quality", "preset", "the preset has one quality"),
    ("value_range", "preset", "its grey levels are 0 to 255"),
    ("device", "preset", "it is computed on the CPU"),
    ("gain", "preset", "the paper's denoiser assumes white noise"),
    ("share", "preset", "the paper's denoiser learns from every image"),
    ("movie", "preset", "the paper's denoiser processes single images"),
    ("mask", "preset", "the paper's denoiser has no missing pixels"),
    ("nodata", "preset", "the paper's denoiser has no missing pixels"),
    ("volume", "movie", "pages are then frames, not slices"),
    ("share", "movie", "its frames share a transform already"),
    ("share", "model", "the transform is learned already"),
    ("sigma", "gain", "one is the strength of white noise, the other that of shot noise"),
    ("preset", "model", "a preset learns its own transform"),
    ("method", "model", "the transform is learned already"),
    ("max_condition", "model", "the transform is learned already"),
    ("seed", "model", "it selects patches to learn from, and nothing is learned"),
    ("verbose", "json", "the document contains everything"),
)
#: Long texts of the help.
NOISE = (
    "auto, white, shot or correlated: a kind of noise, whose strength is estimated; or a file "
    "written by kappaform noise (.json)"
)
DEVICE = "cuda: use a GPU, through torch (default: the CPU)"
MOVIE = (
    "pages along T (else the last axis without a name, else Z) are frames of a movie: search "
    "neighbouring frames for similar patches, too (with --quality fast frames share a transform "
    "only)"
)
JPEG_QUALITY = (
    "quality of JPEG and WebP, 1 to 100 (default: that of an input of the same format; else 95 for "
    "JPEG, and lossless WebP)"
)
PATH_EXAMPLE = "photo.png --bounds 1 1.5 2 3 5 --plot path.png --choose -o photo.kappaform"
EPILOG = """\
kappaform COMMAND --help shows the options of a command and an example.

exit status:
  0    success
  1    reproduce had to leave something out
  2    bad input
  3    a bug in kappaform
  130  interrupted by Ctrl-C (128 plus the number of any other signal)
  141  the reader of the output closed the pipe"""

#: For every kind of noise, the option that sets its strength, and why those of others do nothing.
STRENGTHS_OF_NOISE = {
    "auto": ("", "kind and strength are estimated"),
    "white": ("sigma", "--sigma is the strength of white noise"),
    "shot": ("gain", "--gain and --read-noise are the strength of shot noise"),
    "correlated": ("", "its strength is estimated"),
}
#: Options of the conditioned method besides its bound.
CONDITIONED = ("objective", "norm", "variant", "n_rounds")
_LARGEST_PATCH = 64**2  # pixels; SLOW_PATCH is a seventh of them


# --- Numbers


def at_least(least: float, kind: type = float, most: float = math.inf) -> Callable[[str], float]:
    """The type of an argument: a finite number between two bounds."""

    def number(text: str) -> float:
        try:
            value: float = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or math.isinf(value):
            rule = "an integer" if kind is int else "a finite number"
            end = f" >= {least:g}" if most == math.inf else f" from {least:g} to {most:g}"
            raise ArgumentTypeError(f"{text}: give {rule}{end}")
        return value

    return number


def kind_or_file(text: str) -> str:
    """The type of --noise: a kind, or the name of a file."""
    if text not in STRENGTHS_OF_NOISE and Path(text).suffix.lower() != ".json":
        from kappaform.imaging.noise.kinds import other_name_of_kind

        kinds = ", ".join(STRENGTHS_OF_NOISE)
        hint = other_name_of_kind(text)
        told = f"{text}: give one of {kinds}, or a file of noise (.json)"
        raise ArgumentTypeError(f"{told}. {hint.rstrip('.')}" if hint else told)
    return text


def number_or_word(text: str) -> float | str:
    """The type of --norm: a number, or a word for one that is not given."""
    try:
        return text if text in ("auto", "none") else float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text}: give a number, auto or none") from None


def error_name(text: str) -> str:
    """The type of --choose-by: the name of an error, or its name in version 0.2."""
    if text == "absolute":
        warn("--choose-by absolute is now called sparsification; the former name will be removed.")
        return "sparsification"
    return text


class ShowVersion(Action):
    def __call__(self, parser: ArgumentParser, *_: Any) -> NoReturn:
        import kappaform  # looking up the version takes time

        sys.stdout.write(f"kappaform {kappaform.__version__}\n")
        parser.exit()


# --- Combinations


def complete(arguments: Namespace) -> None:
    """Note which options were given, check them, and set the others to their defaults."""
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
    """Reject an option that has no effect when combined with another one."""
    rules = [*_WITHOUT_EFFECT]
    if options.get("method") in ("log-det", "orthonormal"):
        why = "only the conditioned method has it"
        rules += [(name, "method", why) for name in ("max_condition", *CONDITIONED)]
    kind = options.get("noise") or ""
    if kind in ("shot", "correlated"):
        rules.append(("noise", "preset", "the paper's denoiser assumes white noise"))
    own, why = STRENGTHS_OF_NOISE.get(kind, ("", "the file contains its strength"))
    rules += [(name, "noise", why) for name in ("sigma", "gain") if name != own]
    for name, other, why in rules:
        if {name, other} <= given:
            text = f"{_shown(name, options)} has no effect with {_shown(other, options)}"
            raise ValueError(f"{text}: {why}; leave one of them out.")
    for name in ("read_noise", "offset"):
        if name in given and "gain" not in given:
            text = f"{as_option(name)} has no effect without --gain"
            raise ValueError(f"{text}: together they describe shot noise; give both or neither.")


def _shown(name: str, options: dict[str, Any]) -> str:
    """An option, with its value if that is a choice."""
    option = as_option(name)
    return f"{option} {options[name]}" if name in ("method", "noise", "preset") else option


def chosen(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Parameters of the library that are arguments of the same name; the word none is None."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: None if value == "none" else value for name, value in values.items()}


def check_patch_size(side: int, n_axes: int) -> None:
    """Reject patches that take days."""
    n_pixels = side**n_axes
    if n_pixels > _LARGEST_PATCH:
        most = round(_LARGEST_PATCH ** (1 / n_axes))
        usual = "8 to 16 are usual" if n_axes == 2 else "4 to 6 are usual in volumes"
        raise ValueError(
            f"--patch-size {side}: patches of {n_pixels} pixels would take hours or days: give at "
            f"most {most}; {usual}."
        )


def given_noise(arguments: Namespace) -> tuple[Any, Any]:
    """The noise of every image, for the library, and the camera that it was measured for.

    Without a noise, None, its kind and strength are estimated. The camera may be None, too.
    """
    if arguments.noise not in STRENGTHS_OF_NOISE:
        from kappaform.imaging.noise.files import read_noise

        return read_noise(Path(arguments.noise))
    if arguments.gain is None and arguments.sigma is None:
        return None if arguments.noise == "auto" else arguments.noise, None
    with calling_library():
        if arguments.sigma is not None:
            return kf.White(arguments.sigma), None
        return kf.Shot(arguments.gain, arguments.read_noise, arguments.offset), None
