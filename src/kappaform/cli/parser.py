"""Options and help of every subcommand; nothing here imports what is heavy."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

_METHODS = ("conditioned", "log-det", "orthonormal")

_DESCRIPTION = "Sparsifying transforms with a bounded condition number: denoise pictures, learn."
_EPILOG = """\
kappaform COMMAND --help shows the options of a command and an example.
Ends with 0, or 2 for bad input, 3 for a bug of kappaform, 130 after Ctrl-C."""
_DENOISE = """\
Remove Gaussian noise from pictures: PNG, JPEG, TIFF (8 and 16 bit, float, pages) or NPY.
The result has the type of its input, rounded and clipped to what that type holds, and is
written beside it unless -o or --suffix say otherwise. An opacity channel is left as it is.
Of a folder every picture is denoised, other files are skipped."""
_LEARN = """\
Learn a transform from signals (.npy, one per row) or from random patches of pictures,
whose means are removed, and save it."""
_REPRODUCE = """\
Compute the table or the figures of the paper "Learning Explicitly Conditioned Sparsifying
Transforms" (arXiv:2403.03168) from its images. DIR is a copy of the public repository
pirofti/ConditionedTransformLearning, with img/NAME/sigmaLEVEL/I7.mat (clean) and I1.mat (noisy).
What is finished is kept in OUT: after an interruption the same command goes on."""
_TABLE1 = """\
Denoise the paper's noisy images with its settings and three methods, and compare PSNR and SSIM with
its Table 1. Writes table1.csv, table1.md, table1.png and timings.csv. The results depend neither on
the number of processes nor on which cells are computed. Of an image without public noisy ones
(Man) noise is made with a fixed seed; its cells are marked.
Ends with 1 if an image was missing or damaged and its cells left out."""
_FIGURES = """\
Learn transforms from the patches of barbara, peppers (DIR/peppers.png, which is not in the public
repository) and lena, or of those that are there, and draw their errors over the iterations
(Figures 1 and 2 of the paper) and over the bound on the condition number (figure 3). Writes
figures.csv, figures_summary.csv, path.csv, figures.md, figure1.png to figure3.png and
figures_timings.csv. Ends with 2 for bad input."""


def _number(least: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not least <= value < math.inf:
            rule = "" if least == -math.inf else f" >= {least:g}"
            raise argparse.ArgumentTypeError(f"{text}: give a finite number{rule}")
        return value

    return number


def _integer(least: int) -> Callable[[str], int]:
    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text}: give an integer >= {least}")
        return value

    return integer


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text}: give cuda, cuda:N for one of several, or cpu")
    return text


#: What options of several commands have in common.
_BOUND: dict[str, Any] = {"type": _number(1), "metavar": "K"}
_SIDE: dict[str, Any] = {"type": _integer(1), "metavar": "P"}
_COUNT: dict[str, Any] = {"type": _integer(1), "metavar": "N"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"kappaform: error: {message}; see {self.prog} --help\n")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        import kappaform

        sys.stdout.write(f"kappaform {kappaform.__version__}\n")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command; `module` and `function` name what runs a subcommand."""
    parser = _Parser(
        "kappaform",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and leave")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_denoise(commands)
    _add_learn(commands)
    _add_encode(commands)
    _add_decode(commands)
    _add_path(commands)
    _add_info(commands)
    _add_reproduce(commands)
    return parser


def _command(
    commands: Any, name: str, text: str, example: str, about: str = "", module: str = ""
) -> argparse.ArgumentParser:
    """A command that is a function of the same name, or a group of commands without a module."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=about or f"{text[0].upper()}{text[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if module:
        parser.set_defaults(module=module, function=name)
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        help_text = "show where in the program an error occurred"
        parser.add_argument("--debug", action="store_true", help=help_text)
    return parser


def _add_demo(commands: Any) -> None:
    text = "denoise a photograph with known noise, and draw what happened"
    parser = _command(commands, "demo", text, "kappaform demo --folder demo", module="demo")
    parser.add_argument("--folder", default="demo", help="where pictures go (default: demo)")


def _add_denoise(commands: Any) -> None:
    example = "kappaform denoise noisy.png -o clean.png --report report.png"
    text = "remove noise from pictures"
    parser = _command(commands, "denoise", text, example, _DENOISE, "denoise")
    add = parser.add_argument
    add("inputs", nargs="+", metavar="IN", help="pictures, or folders of them")
    help_text = "file to write; a folder (or a new one: NAME/) for several pictures"
    add("-o", "--output", metavar="OUT", help=help_text)
    add("--suffix", help="end of the new names (default: _denoised, none in a folder -o)")
    help_text = "deviation of the noise, in values of the file (default: estimated)"
    add("--sigma", type=_number(0), help=help_text)
    _add_method(parser)
    add("--patch-size", help="default: 11, of volumes 4", **_SIDE)
    add("--preset", choices=("paper",), help="the settings of the paper")
    add("--model", help="use this transform, saved by learn, instead of learning one")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--volume", action="store_true", help="pages are slices of one volume")
    shape.add_argument("--stack", action="store_true", help="pages are pictures of their own")
    values: dict[str, Any] = {"nargs": 2, "type": _number(-math.inf), "metavar": ("LO", "HI")}
    help_text = "least and largest possible value (default: those of 8 and 16 bit files)"
    add("--value-range", help=help_text, **values)
    _add_seed(parser)
    help_text = "cuda: use a GPU, through torch (default: the processor)"
    add("--device", type=_device, metavar="NAME", help=help_text)
    add("--compare", metavar="REF", help="picture without noise (or folder): print PSNR and SSIM")
    add("--report", metavar="FILE", help="draw what happened; a folder for several pictures")


def _add_learn(commands: Any) -> None:
    example = "kappaform learn photo.png -o photo.kappaform --max-condition 2 --n-nonzero 6"
    text = "learn a transform and save it"
    parser = _command(commands, "learn", text, example, _LEARN, "models")
    _add_signals(parser)
    parser.add_argument("-o", "--output", metavar="MODEL", required=True, help="file to write")
    _add_method(parser)
    _add_limits(parser, tol=1e-4)


def _add_encode(commands: Any) -> None:
    example = "kappaform encode photo.kappaform signals.npy -o codes.npz"
    text = "code signals (.npy, one per row) sparsely with a saved transform"
    add = _command(commands, "encode", text, example, module="models").add_argument
    add("model", metavar="MODEL", help="saved by learn")
    add("signals", metavar="SIGNALS", help=".npy, one signal per row")
    help_text = ".npz to write, readable by scipy.sparse.load_npz"
    add("-o", "--output", metavar="CODES", required=True, help=help_text)


def _add_decode(commands: Any) -> None:
    example = "kappaform decode photo.kappaform codes.npz -o approximations.npy"
    text = "rebuild signals from sparse codes"
    add = _command(commands, "decode", text, example, module="models").add_argument
    add("model", metavar="MODEL", help="the one that coded them")
    add("codes", metavar="CODES", help=".npz, written by encode")
    help_text = ".npy to write, one signal per row"
    add("-o", "--output", metavar="SIGNALS", required=True, help=help_text)


def _add_path(commands: Any) -> None:
    example = "kappaform path photo.png --bounds 1 1.5 2 3 5 --plot path.png"
    text = "show errors over the bound on the condition number, to choose one"
    about = f"{text[0].upper()}{text[1:]}.\nEvery second signal is not learned from but validates."
    parser = _command(commands, "path", text, example, about, "models")
    _add_signals(parser)
    bounds = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
    help_text = f"bounds >= 1 (default: {' '.join(f'{bound:g}' for bound in bounds)})"
    parser.add_argument("--bounds", nargs="+", default=bounds, help=help_text, **_BOUND)
    parser.add_argument("--plot", metavar="FILE", help="draw the errors")
    _add_limits(parser, tol=1e-3)


def _add_info(commands: Any) -> None:
    text = "say what is in a model file; its condition number is computed, not believed"
    parser = _command(commands, "info", text, "kappaform info photo.kappaform", module="models")
    parser.add_argument("model", metavar="MODEL", help="saved by learn, or by kappaform.save")


def _add_reproduce(commands: Any) -> None:
    text = "compute the table and the figures of the paper"
    example = "kappaform reproduce table1 --data ConditionedTransformLearning -o results"
    parser = _command(commands, "reproduce", text, example, _REPRODUCE)
    parts = parser.add_subparsers(metavar="WHAT", required=True)
    text = "Table 1: denoising with the paper's settings"
    table = _command(parts, "table1", text, f"{example} --quick", _TABLE1, "reproduce")
    add = table.add_argument
    add("--images", nargs="+", metavar="NAME", help="default: all seven; quick: Cameraman")
    add("--sigmas", nargs="+", help="default: all; quick: 20 100", **_COUNT)
    help_text = "8 or 11, as the paper's table (default: 11)"
    add("--patch-size", type=int, choices=(8, 11), default=11, help=help_text)
    variants = ("public", "reference", "paper", "monotone")
    help_text = f"of the conditioned method: {', '.join(variants)} (default: public)"
    add("--variant", choices=variants, default="public", metavar="NAME", help=help_text)
    _add_seed(table)
    _add_run(table)
    text = "Figures 1 and 2, and errors over the bound"
    example = "kappaform reproduce figures --data ConditionedTransformLearning -o results --quick"
    figures = _command(parts, "figures", text, example, _FIGURES, "reproduce")
    help_text = "folders in DIR/img or pictures DIR/NAME.png (default: those above that are there)"
    figures.add_argument("--images", nargs="+", metavar="NAME", help=help_text)
    figures.add_argument("--n-iter", help="default: 300; quick: 60", **_COUNT)
    _add_seed(figures, "the half that validates figure 3")
    _add_run(figures)


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder of the paper's images")
    add("-o", "--output", required=True, metavar="OUT", help="folder for the results, made if new")
    add("--workers", help="processes side by side, of one thread each (default: all)", **_COUNT)
    add("--quick", action="store_true", help="a small part of it in seconds, marked as such")


def _add_method(parser: argparse.ArgumentParser) -> None:
    help_text = f"transform to learn: {', '.join(_METHODS)} (default: conditioned)"
    method: dict[str, Any] = {"choices": _METHODS, "default": "conditioned", "metavar": "NAME"}
    parser.add_argument("--method", help=help_text, **method)
    help_text = "bound on the condition number of the conditioned one (default: 2)"
    parser.add_argument("--max-condition", default=2.0, help=help_text, **_BOUND)


def _add_signals(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("inputs", nargs="+", metavar="IN", help=".npy of signals; or pictures, folders of them")
    add("--patch-size", default=8, help="side of the patches of pictures (default: 8)", **_SIDE)
    add("--n-patches", default=20_000, help="patches drawn in all (default: 20000)", **_COUNT)
    _add_seed(parser)


def _add_limits(parser: argparse.ArgumentParser, tol: float) -> None:
    add = parser.add_argument
    add("--n-nonzero", type=_integer(0), metavar="S", help="nonzeros of a code (default: a tenth)")
    add("--max-iter", default=100, help="default: 100", **_COUNT)
    add("--tol", type=_number(0), default=tol, help=f"default: {tol:g}")


def _add_seed(parser: argparse.ArgumentParser, chosen: str = "patches") -> None:
    help_text = f"of the choice of {chosen} (default: 0)"
    parser.add_argument("--seed", type=_integer(0), default=0, metavar="N", help=help_text)
