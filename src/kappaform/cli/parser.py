"""The command: its options, help and exit status.

Heavy packages are imported by the subcommands that need them, so that ``--help`` is immediate.
"""

from __future__ import annotations

import argparse
import signal
import warnings
from collections.abc import Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Any, NoReturn

from kappaform.cli import messages, options
from kappaform.cli.options import at_least, complete, error_name, kind_or_file, number_or_word


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the given arguments, by default those of the process.

    Returns the exit status; `--help` lists its values.
    """
    messages.open_closed_streams()
    try:
        code = _run(argv)
        messages.write_output()
        return code
    except BrokenPipeError:
        messages.discard_unread_output()
        return 128 + messages.SIGPIPE
    except OSError as error:
        code, text = messages.failure(error)
        messages.complain(text)
        return code


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as exiting:  # --help and --version, or wrong usage
        return int(exiting.code or 0)
    with warnings.catch_warnings(), messages.signals_interrupt() as received:
        messages.show_warnings()
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
            code, text = messages.failure(error, arguments.debug)
            messages.complain(text)
    return 128 + received[0] if received else int(code)


_VARIANTS = ("public", "reference", "paper", "monotone")
_COUNT, _SEED, _BOUND = at_least(1, int), at_least(0, int), at_least(1)
_FRACTION, _JPEG_QUALITY = at_least(0, most=1), at_least(1, int, most=100)


class Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        style = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=style, allow_abbrev=False, **options)
        self.later_defaults: dict[str, Any] = {}
        self.set_defaults(defaults=self.later_defaults)

    def error(self, message: str) -> NoReturn:
        messages.complain(f"{message}; see {self.prog} --help")
        self.exit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, others = super().parse_known_args(args, namespace)
        messages.reject_options(others, self._option_string_actions, self.prog)
        return found, others

    def add(self, name: str, text: str, kind: Any = str, **options: Any) -> None:
        """Add an argument, whose help shows its default."""
        # The default is set later, so that options given by the user can be recognised.
        default = options.pop("default", None)
        if default is not None:
            shown = f"{default:g}" if isinstance(default, float) else str(default)
            text += f" (default: {shown})"
        argument = self.add_argument(*name.split(), help=text, type=kind, **options)
        self.later_defaults[argument.dest] = default

    def add_flag(self, name: str, text: str) -> None:
        self.add_argument(name, action="store_true", help=text)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command; `module` and `function` name the code of a subcommand."""
    text = "Denoise and fill images; learn sparsifying transforms with a bounded condition number."
    parser = Parser(prog="kappaform", description=text, epilog=options.EPILOG)
    parser.add_argument("--version", action=options.ShowVersion, nargs=0, help="show the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module, name, add, example in (
        ("demo", "demo", _demo, "--folder demo"),
        ("denoise", "denoise", _denoise, "noisy.png -o denoised.png --report report.png"),
        ("noise", "noise", _measuring, "burst/ -o camera.json"),
        ("inpaint", "inpaint", _inpaint, "photo.png --mask scratches.png -o filled.png"),
        ("models", "learn", _learn, "photo.png -o photo.kappaform --max-condition 2 --n-nonzero 6"),
        ("models", "encode", _encode, "photo.kappaform signals.npy -o codes.npz"),
        ("models", "decode", _decode, "photo.kappaform codes.npz -o y.npy"),
        ("models", "path", _path, options.PATH_EXAMPLE),
        ("models", "info", _info, "photo.kappaform"),
        ("explore", "explore", _explore, "photo.png -o explore.html"),
    ):
        add(subcommand(commands, module, name, add.__doc__, example))
    _add_reproduce(commands)
    return parser


def subcommand(commands: Any, module: str, name: str, about: str | None, example: str) -> Parser:
    """A subcommand: function `name` of `module`, or a group of them. `about` is its help."""
    text = cleandoc(about or "")
    summary = text[:1].lower() + text[1:].partition("\n")[0].removesuffix(".")
    parser: Parser = commands.add_parser(name, help=summary, description=text)
    parser.epilog = f"example:\n  {parser.prog} {example}"
    if module:
        parser.set_defaults(module=module, function=name)
        parser.add_flag("--json", "print one JSON document")
        parser.add_flag("--debug", "show the traceback of an error")
    return parser


def _demo(parser: Parser) -> None:
    """Denoise a photograph with known noise, and draw the result."""
    parser.add("--folder", "folder for the figures", default="demo")


def _denoise(parser: Parser) -> None:
    """Remove noise from images.

    The noise is estimated unless it is given: whether it is white, shot noise, or correlated
    between neighbouring pixels, and how strong it is. The line printed for an image reports it.

    The formats are PNG, JPEG, WebP, BMP, TIFF (8 and 16 bit, float, pages) and NPY. The result has
    the type of its input (palettes become RGB, single bits become 8 bit) and is written next to it,
    unless -o or --suffix says otherwise. Alpha channels and metadata are preserved. In a folder
    every image is denoised and other files are ignored. An image is skipped if its output
    exists, which is not an error: the same command resumes after an interruption. Only a file named
    by -o must not exist.
    """
    _add_pictures(parser)
    _add_noise(parser)
    add = parser.add
    add("--strength", "from 0 (the input) to 1 (all noise removed)", _FRACTION, default=1.0)
    add("--colour-strength", "the same for colours alone (default: --strength)", _FRACTION)
    _add_method(parser, bound=1.1)
    add("--patch-size", "side of the patches (default: 10, in volumes 4)", _COUNT)
    text = "balanced takes about 2 to 3 times as long as fast, best 5 to 7 times"
    add("--quality", text, choices=("fast", "balanced", "best"), default="balanced")
    add("--preset", "the settings of the paper", choices=("paper",))
    add("--model", "transform saved by learn, used instead of learning one")
    parser.add_flag("--share", "learn one transform from all images, which are read twice")
    parser.add_flag("--movie", options.MOVIE)
    _add_range_and_seed(parser)
    add("--device", options.DEVICE)
    _add_holes(parser, "left as they are")
    add("--compare", "image without noise, or folder: print PSNR and SSIM", metavar="REF")
    add("--report", "file for a figure of the result, or folder (NAME/)")
    parser.add_flag("--verbose", "also print the condition number and the size of patches")


def _inpaint(parser: Parser) -> None:
    """Fill missing pixels of an image.

    Missing are the pixels of a mask, NaN, and values that mean no data (GDAL's tag is read). All
    others are kept exactly. The formats are those of denoise; for noise use denoise --mask.
    """
    parser.add("input", "an image", metavar="IN")
    _add_output(parser, "image to write")
    _add_holes(parser, "filled")
    parser.add_flag("--dead-pixels", "also fill pixels that are far from all their neighbours")
    text = "best takes about twice as long as balanced"
    parser.add("--quality", text, choices=("fast", "balanced", "best"), default="balanced")
    _add_range_and_seed(parser)
    parser.add("--device", options.DEVICE)
    _add_pages(parser)
    parser.add_flag("--movie", "pages are frames of a movie: other frames help to fill holes")


def _add_holes(parser: Parser, fate: str) -> None:
    parser.add("--mask", "image of the same size: what is not black or transparent there is filled")
    text = "value that means no data, such as -9999 or nan (default: that of the file); "
    text += f"such pixels are {fate}"
    parser.add("--nodata", text, float, metavar="VALUE")


def _add_pictures(parser: Parser) -> None:
    """Images to read, and where the results go."""
    parser.add("inputs", "images, or folders of them", nargs="+", metavar="IN")
    parser.add_flag("--recursive", "enter subfolders; a folder -o mirrors the input tree")
    parser.add("-o --output", "file to write, or folder (NAME/, created if new)", metavar="OUT")
    parser.add("--suffix", "suffix of the new names (default: _denoised; none in a folder -o)")
    parser.add_flag("--overwrite", "replace existing results")
    parser.add("--jpeg-quality", options.JPEG_QUALITY, _JPEG_QUALITY)
    _add_pages(parser)


def _add_pages(parser: Parser) -> None:
    pages = parser.add_mutually_exclusive_group()
    text = "pages along Z (else the last axis without a name, else T) are slices of a volume"
    pages.add_argument("--volume", action="store_true", help=text)
    text = "pages of .npy files are separate images, as those of TIFF files always are"
    pages.add_argument("--stack", action="store_true", help=text)


def _measuring(parser: Parser) -> None:
    """Measure the noise of a camera, for denoise --noise.

    The images are a burst (two or more of a still scene), flat frames (an evenly lit surface, at
    several exposures), or any others, and so are the pages of a file. Camera and ISO are stored:
    denoise warns if those of an image differ.
    """
    parser.add("inputs", "images, or folders of them", nargs="*", metavar="IN")
    parser.add("--dark", "images without light, or folders of them", nargs="+", metavar="DARK")
    text = "what the images are (default: it is recognised)"
    parser.add("--frames", text, choices=("burst", "flat", "any"))
    _add_output(parser, "file to write (.json)")


def _add_noise(parser: Parser) -> None:
    parser.add("--noise", options.NOISE, kind_or_file, default="auto", metavar="NOISE")
    text = "standard deviation of white noise, in values of the file (default: estimated)"
    parser.add("--sigma", text, float)
    parser.add("--gain", "shot noise: values of the file per photon (default: estimated)", float)
    parser.add("--read-noise", "with --gain: standard deviation without light", float, default=0.0)
    parser.add("--offset", "with --gain: value without light", float, default=0.0)


def _learn(parser: Parser) -> None:
    """Learn a transform, or a union of several, and save it.

    Signals are the rows of .npy files, unchanged, or random patches of images, whose means are
    removed. After Ctrl-C the transform learned so far is saved.
    """
    _add_signals(parser, tol=1e-4)
    _add_output(parser, "file to write")
    _add_method(parser, bound=2.0)
    _add_conditioned(parser)
    text = "number of transforms; each signal is coded in the one that fits it best"
    parser.add("--transforms", text, _COUNT, default=1, dest="n_transforms", metavar="K")
    text = "auto, dct, identity, least-squares or procrustes; or a model to resume from"
    parser.add("--init", text, default="auto")


def _encode(parser: Parser) -> None:
    """Compute sparse codes of signals with a saved transform."""
    parser.add("model", "file saved by learn")
    parser.add("signals", ".npy file, one signal per row")
    _add_output(parser, ".npz file to write, for scipy.sparse.load_npz")


def _decode(parser: Parser) -> None:
    """Reconstruct signals from sparse codes."""
    parser.add("model", "model that computed them")
    parser.add("codes", ".npz file written by encode")
    _add_output(parser, ".npy file to write, one signal per row")


def _path(parser: Parser) -> None:
    """Show errors over the bound on the condition number, to choose one.

    Every second signal is held out for validation. With --choose, cross-validation is used instead.
    The bound with the smallest error is chosen; for encode and decode, that is the reconstruction
    error.
    """
    _add_signals(parser, tol=1e-3)
    parser.add("--bounds", "bounds >= 1", _BOUND, nargs="+", default=[1, 1.25, 1.5, 2, 3, 5, 10])
    _add_conditioned(parser)
    errors = ("reconstruction", "relative", "sparsification")
    parser.add("--choose-by", "error to choose by", error_name, choices=errors, default=errors[0])
    parser.add_flag("--choose", "choose by cross-validation, then learn from all signals")
    parser.add("--folds", "with --choose: number of folds", int, default=5)
    parser.add("-o --output", "with --choose: file to save the transform to")
    parser.add("--plot", "file for a figure of the errors")
    parser.add_flag("--overwrite", "replace an existing plot or output")


def _info(parser: Parser) -> None:
    """Describe a model file; its condition number is recomputed."""
    parser.add("model", "file saved by learn, or by kappaform.save")


def _explore(parser: Parser) -> None:
    """Write a page with a slider over the bound.

    Learns a transform from the patches of the image for every bound, and writes one HTML file: a
    slider over the bound, atoms, spectrum, errors, and the image denoised or reconstructed under
    a swipe. The file needs no network. Only the centre of an image above 512 x 512 pixels is used.
    """
    parser.add("input", "an image", metavar="IN")
    _add_output(parser, "page to write (.html)")
    bounds = [1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 20]
    parser.add("--bounds", "two or more bounds >= 1", _BOUND, nargs="+", default=bounds)
    _add_noise(parser)
    parser.add("--patch-size", "side of the patches", _COUNT, default=8)
    parser.add("--n-nonzero", "coefficients per patch (default: a tenth)", int, metavar="N")
    parser.add("--compare", "image without noise, of the same size: show PSNR", metavar="REF")
    _add_seed(parser)


def _add_reproduce(commands: Any) -> None:
    """Compute the table and the figures of the paper.

    The paper is "Learning Explicitly Conditioned Sparsifying Transforms", arXiv:2403.03168. DIR is
    a copy of the public repository pirofti/ConditionedTransformLearning. Finished parts are stored
    in OUT: after an interruption the same command resumes.
    """
    example = "--data ConditionedTransformLearning --quick"
    group = subcommand(commands, "", "reproduce", _add_reproduce.__doc__, f"table1 {example}")
    parts = group.add_subparsers(metavar="WHAT", required=True)
    for parser in (_add_table1(parts, example), _add_figures(parts, example)):
        add = parser.add
        add("--data", "folder of images", default="ConditionedTransformLearning", metavar="DIR")
        add("-o --output", "folder for results, created if new", default="results", metavar="OUT")
        add("--workers", "processes of one thread each (default: all CPUs)", _COUNT)
        _add_seed(parser)
        parser.add_flag("--quick", "compute a small part in seconds, marked as such")


def _add_table1(parts: Any, example: str) -> Parser:
    """Table 1: denoising with the settings of the paper.

    Compares PSNR and SSIM of three methods with the printed values, in table1.csv, table1.md,
    table1.png and timings.csv. There are no public noisy images of Man: its noise is simulated and
    its cells are marked. The exit status is 1 if an image is missing or damaged: its cells are left
    out.
    """
    table = subcommand(parts, "reproduce", "table1", _add_table1.__doc__, example)
    table.add("--images", "default: all seven; quick: Cameraman", nargs="+")
    table.add("--sigmas", "default: all; quick: 20 100", _COUNT, nargs="+")
    table.add("--patch-size", "as in the paper's table", int, choices=(8, 11), default=11)
    table.add("--variant", "variant of the conditioned method", choices=_VARIANTS, default="public")
    return table


def _add_figures(parts: Any, example: str) -> Parser:
    """Figures 1 and 2, and errors over the bound.

    Learns from patches of barbara, peppers (DIR/peppers.png, not in the public repository) and
    lena, or those that exist. Draws errors over the iterations (figures 1, 2) and over the bound
    (figure 3). Writes figures.csv, figures_summary.csv, path.csv, figures_timings.csv, figures.md,
    figure*.png. The exit status is 2 for bad input.
    """
    figures = subcommand(parts, "reproduce", "figures", _add_figures.__doc__, example)
    figures.add("--images", "folders in DIR/img or images in DIR (default: above)", nargs="+")
    figures.add("--n-iter", "default: 300; quick: 60", _COUNT)
    return figures


def _add_method(parser: Parser, bound: float) -> None:
    methods = ("conditioned", "log-det", "orthonormal")
    parser.add("--method", "kind of transform to learn", choices=methods, default="conditioned")
    text = "bound on the condition number of the conditioned method"
    parser.add("--max-condition", text, _BOUND, default=bound)


def _add_conditioned(parser: Parser) -> None:
    add, errors = parser.add, ("absolute", "relative")
    add("--objective", "error to minimise", choices=errors, default="absolute")
    text = "Frobenius norm of the transform; auto: that of an orthonormal one; none: free"
    add("--norm", text, number_or_word, default="auto")
    text = "steps that never increase the loss (monotone), or published ones"
    add("--variant", text, choices=_VARIANTS, default="monotone")
    add("--n-rounds", "rounds of monotone steps per iteration", int, default=5)


def _add_output(parser: Parser, text: str) -> None:
    parser.add("-o --output", text, required=True)
    parser.add_flag("--overwrite", "replace an existing output")


def _add_seed(parser: Parser) -> None:
    parser.add("--seed", "seed of the random choices", _SEED, default=0)


def _add_range_and_seed(parser: Parser) -> None:
    text = "smallest and largest possible value (default: those of 8 and 16 bit files)"
    parser.add("--value-range", text, float, nargs=2, metavar=("LO", "HI"))
    _add_seed(parser)


def _add_signals(parser: Parser, tol: float) -> None:
    add = parser.add
    add("inputs", ".npy files of signals; or images, or folders of them", nargs="+", metavar="IN")
    add("--patch-size", "side of the patches of images", _COUNT, default=8)
    add("--n-patches", "total number of patches", _COUNT, default=20_000)
    text = "nonzero entries per code (default: a tenth)"
    add("--n-nonzero", text, int, dest="n_nonzero_coefs", metavar="N")
    add("--max-iter", "maximum number of iterations", int, default=500)
    add("--tol", "relative change of the loss at which learning stops", float, default=tol)
    _add_seed(parser)
