"""The command: its options and help, and how it ends.

Everything heavy is imported by the subcommand that needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

from kappaform.cli import messages
from kappaform.cli.options import SIZES_OF_NOISE, at_least, complete, norm, positive

_SIGPIPE = 13  # `signal.SIGPIPE`, which Windows does not have
#: Arguments that name a file or a folder, besides `inputs`.
_OF_FILES = ("input", "output", "report", "compare", "model", "signals", "codes", "plot", "init")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments, by default those of the process.

    Returns 0; or 1 if `reproduce` had to leave something out, 2 for bad input, 3 for a bug of
    kappaform; or 128 and the number of the signal that ended it, 130 for Ctrl-C, 141 if the reader
    of its output, say `head`, has seen enough and left.
    """
    messages.open_closed_streams()
    try:
        code = _run(argv)
        messages.write_output()
        return code
    except BrokenPipeError:
        messages.drop_what_nobody_reads()
        return 128 + _SIGPIPE
    except OSError as error:
        code, text = messages.failure(error)
        messages.complain(text)
        return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as leaving:  # --help and --version, or wrong usage
        return int(leaving.code or 0)
    with warnings.catch_warnings(), _signals_interrupt() as received:
        warnings.showwarning = messages.show_warning
        try:
            complete(arguments)
            command = import_module(f"kappaform.cli.{arguments.module}")
            code = getattr(command, arguments.function)(arguments) or 0
        except KeyboardInterrupt as interruption:
            messages.complain(str(interruption) or "interrupted")
            code = 128 + signal.SIGINT
        except BrokenPipeError:
            raise
        except Exception as error:
            code, text = messages.failure(error, arguments.debug, names=_files(arguments))
            messages.complain(text)
    return 128 + received[0] if received else int(code)


def _files(arguments: argparse.Namespace) -> list[str]:
    """Names of files and folders that the arguments give."""
    given = [getattr(arguments, name, None) for name in (*_OF_FILES, "folder", "data")]
    return [*(getattr(arguments, "inputs", None) or ()), *(name for name in given if name)]


@contextmanager
def _signals_interrupt() -> Iterator[list[int]]:
    """Let signals that would end the process interrupt it like Ctrl-C, so that it cleans up."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    in_main_thread = threading.current_thread() is threading.main_thread()  # a rule of Python
    numbers = [getattr(signal, name) for name in names if in_main_thread]
    # What the caller handles or ignores (nohup) stays as it is.
    ours = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


_VARIANTS = ("public", "reference", "paper", "monotone")
_COUNT, _SEED, _SHARE = at_least(1, int), at_least(0, int), at_least(0, most=1)
_QUALITY, _NUMBER = at_least(1, int, most=100), at_least(-math.inf)


# --- What each subcommand does with files

_EPILOG = """\
kappaform COMMAND --help shows the options of a command and an example.
Ends with 0, or 1 if reproduce had to leave something out, 2 for bad input, 3 for a bug of
kappaform, or with 128 and the number of the signal that ended it (130 after Ctrl-C, 141 if the
reader of its output left)."""
_DENOISE = """
The noise is estimated: whether it is white, that of photons (shot), or shared by neighbouring
pixels (correlated), and how strong it is. The line of each picture says what was assumed.

The formats are PNG, JPEG, WebP, BMP, TIFF (8 and 16 bit, float, pages) and NPY. The result has the
type of its input (palettes become RGB, single bits become 8 bit) and is written next to it, unless
-o or --suffix say otherwise. An opacity channel is kept, and so is what the file says besides its
pixels. In a folder every picture is denoised and other files are skipped. A result that exists is
kept, which is no error: the same command resumes after an interruption. Only a file that -o
names must not exist."""
_LEARN = """
Signals are the rows of .npy files, as they are, or random patches of pictures, whose means are
removed. After Ctrl-C what was learned until then is saved."""
_PATH = """
Every second signal is not learned from: it validates. With --choose the signals are cut into folds,
each of which validates what is learned from the others. What is chosen is the bound with the least
error; with the error of rebuilt signals, the one for encode and decode."""
_EXPLORE = """
Learns a transform of the picture's patches for every bound, and writes one file for a browser: a
slider over the bound, atoms, spectrum, errors, and the picture cleaned or rebuilt under a swipe.
The file needs no network. Of a picture above 512 x 512 pixels the middle is taken."""
_REPRODUCE = """
The paper is "Learning Explicitly Conditioned Sparsifying Transforms", arXiv:2403.03168. DIR is a
copy of the public repository pirofti/ConditionedTransformLearning. Finished parts are kept in OUT:
after an interruption the same command goes on."""
_TABLE1 = """
Compares PSNR and SSIM of three methods with the printed ones, in table1.csv, table1.md, table1.png
and timings.csv. Man has no public noisy images: its noise is made here, its cells are marked.
Ends with 1 if an image was missing or damaged and its cells are left out."""
_FIGURES = """
Learns from patches of barbara, peppers (DIR/peppers.png, not in the public repository) and lena, or
those that are there. Draws errors over the iterations (figures 1, 2) and over the bound (figure 3).
Writes figures.csv, figures_summary.csv, path.csv, figures_timings.csv, figures.md, figure*.png.
Ends with 2 for bad input."""


# --- Commands


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        style = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=style, allow_abbrev=False, **options)
        self.later_defaults: dict[str, Any] = {}
        self.set_defaults(defaults=self.later_defaults)

    def error(self, message: str) -> NoReturn:
        messages.complain(f"{message}; see {self.prog} --help")
        self.exit(2)

    def add(self, name: str, text: str, kind: Any = str, **options: Any) -> None:
        """Add an argument, whose help shows its default.

        The default is given later, so that what the user gave can be told from it.
        """
        default = options.pop("default", None)
        if default is not None:
            shown = f"{default:g}" if isinstance(default, float) else str(default)
            text += f" (default: {shown})"
        argument = self.add_argument(*name.split(), help=text, type=kind, **options)
        self.later_defaults[argument.dest] = default

    def add_flag(self, name: str, text: str) -> None:
        self.add_argument(name, action="store_true", help=text)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        import kappaform  # its version is looked up only here: that takes time

        sys.stdout.write(f"kappaform {kappaform.__version__}\n")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command; `module` and `function` name what runs a subcommand."""
    text = "Sparsifying transforms with a bounded condition number: denoise pictures, learn."
    parser = _Parser(prog="kappaform", description=text, epilog=_EPILOG)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    text = "denoise a photograph with known noise, and draw what happened"
    demo = _command(commands, "demo", "demo", text, "--folder demo")
    demo.add("--folder", "where pictures go", default="demo")
    _add_denoise(commands)
    _add_models(commands)
    _add_explore(commands)
    _add_reproduce(commands)
    return parser


def _command(
    commands: Any, module: str, name: str, text: str, example: str, about: str = ""
) -> _Parser:
    """A subcommand: function `name` of `module`; or, without a module, a group of subcommands."""
    description = f"{text[0].upper()}{text[1:]}.{about}"
    parser: _Parser = commands.add_parser(name, help=text, description=description)
    parser.epilog = f"example:\n  {parser.prog} {example}"
    if module:
        parser.set_defaults(module=module, function=name)
        parser.add_flag("--json", "print one JSON document")
        parser.add_flag("--debug", "show where an error occurred")
    return parser


def _add_denoise(commands: Any) -> None:
    text = "remove noise from pictures"
    example = "noisy.png -o clean.png --report report.png"
    parser = _command(commands, "denoise", "denoise", text, example, _DENOISE)
    _add_pictures(parser)
    _add_noise(parser)
    add = parser.add
    add("--strength", "from 0 (the input) to 1 (all noise removed)", _SHARE, default=1.0)
    _add_method(parser, bound=1.1)
    add("--patch-size", "side of patches (default: 11, of volumes 4)", _COUNT)
    text = "fast; balanced, up to 3 times as long; or best, up to 7 times as long"
    add("--quality", text, choices=("fast", "balanced", "best"), default="balanced")
    add("--preset", "the settings of the paper", choices=("paper",))
    add("--model", "use this transform, saved by learn, instead of learning one")
    text = "learn one transform from all pictures and pages, which are read twice"
    parser.add_flag("--share", text)
    text = "pages along T (else the last axis without a name, else Z) are frames of a movie: look "
    text += "for similar patches in the frames around, too (with --quality fast frames share a "
    text += "transform only)"
    parser.add_flag("--movie", text)
    text = "least and largest possible value (default: those of 8 and 16 bit files)"
    add("--value-range", text, float, nargs=2, metavar=("LO", "HI"))
    add("--seed", "of the random choices", _SEED, default=0)
    add("--device", "cuda: use a GPU, through torch (default: the processor)")
    text = "picture without noise, of the same type (or folder): print PSNR and SSIM"
    add("--compare", text, metavar="REF")
    add("--report", "file to draw what happened in, or folder (NAME/)")
    parser.add_flag("--verbose", "say the condition number and the size of patches, too")


def _add_pictures(parser: _Parser) -> None:
    """Which pictures are read, and where the results go."""
    add = parser.add
    add("inputs", "pictures, or folders of them", nargs="+", metavar="IN")
    text = "folders in folders, too; in a folder -o the results lie as their inputs do"
    parser.add_flag("--recursive", text)
    add("-o --output", "file to write, or folder (NAME/, made if new)", metavar="OUT")
    add("--suffix", "end of the new names (default: _denoised; none in a folder -o)")
    parser.add_flag("--overwrite", "replace results that exist")
    text = "of JPEG and WebP, 1 to 100 (default: as the input, if it has the same format; else 95,"
    add("--jpeg-quality", f"{text} and WebP loses nothing)", _QUALITY)
    pages = parser.add_mutually_exclusive_group()
    text = "pages along Z (else the last axis without a name, else T) are slices of a volume"
    pages.add_argument("--volume", action="store_true", help=text)
    text = "pages of .npy files are pictures of their own, as those of TIFF files always are"
    pages.add_argument("--stack", action="store_true", help=text)


def _add_noise(parser: _Parser) -> None:
    add = parser.add
    text = "kind of noise to estimate; auto: the kind that fits"
    add("--noise", text, choices=tuple(SIZES_OF_NOISE), default="auto")
    text = "deviation of white noise, in values of the file (default: estimated)"
    add("--sigma", text, at_least(0))
    text = "of shot noise: values of the file for one photon (default: estimated)"
    add("--gain", text, positive)
    add("--read-noise", "beside --gain: deviation without light", at_least(0), default=0.0)
    add("--offset", "beside --gain: value without light", _NUMBER, default=0.0)


def _add_models(commands: Any) -> None:
    text = "learn a transform and save it"
    example = "photo.png -o photo.kappaform --max-condition 2 --n-nonzero 6"
    learn = _command(commands, "models", "learn", text, example, _LEARN)
    _add_signals(learn, tol=1e-4)
    _add_output(learn, "file to write")
    _add_method(learn, bound=2.0)
    _add_conditioned(learn)
    text = "auto, dct, identity, least-squares or procrustes; or a model to go on from"
    learn.add("--init", text, default="auto")

    text = "code signals sparsely with a saved transform"
    example = "photo.kappaform signals.npy -o codes.npz"
    encode = _command(commands, "models", "encode", text, example)
    encode.add("model", "saved by learn")
    encode.add("signals", ".npy, one signal per row")
    _add_output(encode, ".npz to write, for scipy.sparse.load_npz")

    text = "rebuild signals from sparse codes"
    example = "photo.kappaform codes.npz -o approximations.npy"
    decode = _command(commands, "models", "decode", text, example)
    decode.add("model", "the one that coded them")
    decode.add("codes", ".npz, written by encode")
    _add_output(decode, ".npy to write, one signal per row")

    _add_path(commands)
    text = "say what is in a model file; its condition number is computed, not believed"
    info = _command(commands, "models", "info", text, "photo.kappaform")
    info.add("model", "saved by learn, or by kappaform.save")


def _add_path(commands: Any) -> None:
    text = "show errors over the bound on the condition number, to choose one"
    example = "photo.png --bounds 1 1.5 2 3 5 --plot path.png --choose -o photo.kappaform"
    path = _command(commands, "models", "path", text, example, _PATH)
    _add_signals(path, tol=1e-3)
    bounds = [1, 1.25, 1.5, 2, 3, 5, 10]
    path.add("--bounds", "bounds >= 1", at_least(1), nargs="+", default=bounds)
    _add_conditioned(path)
    errors = ("reconstruction", "relative", "absolute")
    path.add("--choose-by", "error that chooses a bound", choices=errors, default=errors[0])
    path.add_flag("--choose", "choose by cross-validation, and learn from all signals")
    path.add("--folds", "beside --choose: their number", _COUNT, default=5)
    path.add("-o --output", "beside --choose: file to write the transform to")
    path.add("--plot", "file to draw the errors in")
    path.add_flag("--overwrite", "replace a --plot or an output that is there")


def _add_explore(commands: Any) -> None:
    text, example = "write a page with a slider over the bound", "photo.png -o explore.html"
    parser = _command(commands, "explore", "explore", text, example, _EXPLORE)
    parser.add("input", "a picture", metavar="IN")
    _add_output(parser, "page to write (.html)")
    bounds = [1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 20]
    parser.add("--bounds", "two bounds >= 1 or more", at_least(1), nargs="+", default=bounds)
    _add_noise(parser)
    parser.add("--patch-size", "side of the patches", _COUNT, default=8)
    parser.add("--n-nonzero", "coefficients of a patch (default: a tenth)", _COUNT, metavar="N")
    parser.add("--compare", "picture without noise, of the same size: show PSNR", metavar="REF")
    parser.add("--seed", "of the random choices", _SEED, default=0)


def _add_reproduce(commands: Any) -> None:
    text = "compute the table and the figures of the paper"
    example = "--data ConditionedTransformLearning --quick"
    group = _command(commands, "", "reproduce", text, f"table1 {example}", _REPRODUCE)
    parts = group.add_subparsers(metavar="WHAT", required=True)
    text = "Table 1: denoising with the paper's settings"
    table = _command(parts, "reproduce", "table1", text, example, _TABLE1)
    table.add("--images", "default: all seven; quick: Cameraman", nargs="+")
    table.add("--sigmas", "default: all; quick: 20 100", _COUNT, nargs="+")
    table.add("--patch-size", "as in the paper's table", int, choices=(8, 11), default=11)
    table.add("--variant", "of the conditioned method", choices=_VARIANTS, default="public")
    text = "figures 1 and 2, and errors over the bound"
    figures = _command(parts, "reproduce", "figures", text, example, _FIGURES)
    text = "folders in DIR/img or pictures in DIR (default: see above)"
    figures.add("--images", text, nargs="+")
    figures.add("--n-iter", "default: 300; quick: 60", _COUNT)
    for parser in (table, figures):
        add = parser.add
        text = "folder of the paper's images"
        add("--data", text, default="ConditionedTransformLearning", metavar="DIR")
        add("-o --output", "folder for results, made if new", default="results", metavar="OUT")
        add("--workers", "processes of one thread each (default: all processors)", _COUNT)
        add("--seed", "of the random choices", _SEED, default=0)
        parser.add_flag("--quick", "a small part of it in seconds, marked as such")


def _add_method(parser: _Parser, bound: float) -> None:
    methods = ("conditioned", "log-det", "orthonormal")
    parser.add("--method", "kind of transform to learn", choices=methods, default="conditioned")
    text = "bound on the condition number of the conditioned one"
    parser.add("--max-condition", text, at_least(1), default=bound)


def _add_conditioned(parser: _Parser) -> None:
    add, errors = parser.add, ("absolute", "relative")
    add("--objective", "error to minimise", choices=errors, default="absolute")
    text = "Frobenius norm of the transform, or auto: that of an orthonormal one"
    add("--norm", text, norm, default="auto")
    text = "steps that never raise the loss (monotone), or published ones"
    add("--variant", text, choices=_VARIANTS, default="monotone")
    add("--n-rounds", "rounds of the monotone steps in an iteration", _COUNT, default=5)


def _add_output(parser: _Parser, text: str) -> None:
    parser.add("-o --output", text, required=True)
    parser.add_flag("--overwrite", "replace an output that is there")


def _add_signals(parser: _Parser, tol: float) -> None:
    add = parser.add
    add("inputs", ".npy of signals; or pictures, folders of them", nargs="+", metavar="IN")
    add("--patch-size", "side of the patches of pictures", _COUNT, default=8)
    add("--n-patches", "patches drawn in all", _COUNT, default=20_000)
    text = "nonzeros of a code (default: a tenth)"
    add("--n-nonzero", text, at_least(0, int), dest="n_nonzero_coefs", metavar="N")
    add("--max-iter", "most iterations", _COUNT, default=500)
    add("--tol", "relative change at which learning ends", at_least(0), default=tol)
    add("--seed", "of the random choices", _SEED, default=0)
