"""What the command reads, writes and says; nothing here imports what is heavy."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kappaform.files import check_writable, replaced_when_complete

#: Exit codes; 1 is for results that are incomplete.
REFUSED, BUG = 2, 3
#: What bad input raises, in the library and in those it uses. The command itself chooses the types
#: of all arguments, so that a TypeError is a bug like everything else.
_BAD_INPUT = (OSError, ValueError, ImportError, MemoryError)
#: What the system knows a file by: its device and its number there.
Identity = tuple[int, int]
#: Suffixes of figures.
FIGURES = (".png", ".pdf", ".svg")

#: What users of the command give for a parameter of the library.
_OPTIONS = {
    "max_condition": "--max-condition",
    "max_iter": "--max-iter",
    "n_rounds": "--n-rounds",
    "norm": "--norm",
    "objective": "--objective",
    "init": "--init",
    "variant": "--variant",
    "n_nonzero_coefs": "--n-nonzero",
    "noise": "--noise",
    "patch_size": "--patch-size",
    "preset": "--preset",
    "quality": "--quality",
    "seed": "--seed",
    "sigma": "--sigma",
    "tol": "--tol",
    "choose_by": "--choose-by",
    "cv": "--folds",
    "max_conditions": "--bounds",
    "value_range": "--value-range",
}
#: Options of the conditioned method besides its bound.
CONDITIONED = ("objective", "norm", "variant", "n_rounds")
# Of these, which are words as well, only ``name=value`` is meant.
_WORDS = {"init", "noise", "norm", "objective", "preset", "seed", "sigma", "variant"}
#: What the library advises, and the same for users of the command.
_ADVICE = {
    "noise=Shot(gain, read_noise)": "--gain and --read-noise",
    "noise=Correlated(autocovariance=...)": "--noise white or --sigma",
    "or give sigma": "or give --sigma",
    "denoise it plane by plane": "leave out --volume",
}
_ASSIGNED = re.compile(rf"(?<![\w./-])({'|'.join(_OPTIONS)})=(?:'([^']*)')?")
_NAMED = re.compile(rf"(?<![\w./-])({'|'.join(sorted({*_OPTIONS} - _WORDS))})(?![\w/-]|\.\w)")
_DEVICE = re.compile(r"\bdevice '([^']*)'")

# Pixels of a patch. Time grows with their square: denoising 512 x 512 pixels was measured to take
# 2 s with patches of 11 x 11, 36 s with 24 x 24 and 177 s with 32 x 32, on two busy cores.
_SLOW_PATCH, _LARGEST_PATCH = 24**2, 64**2


# --- Words


def say(text: str) -> None:
    """One result, on standard output, at once: it may be read while others are made."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    printable = text.encode(encoding, "backslashreplace").decode(encoding)  # names may be anything
    sys.stdout.write(printable + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """One error, on standard error."""
    sys.stderr.write(f"kappaform: error: {text}\n")


def drop_what_nobody_reads() -> None:
    """Let what is still to be written to a closed pipe vanish: Python would complain at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def note(text: str) -> None:
    """Something good to know, on standard error."""
    sys.stderr.write(f"kappaform: {text}\n")


def warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning of the library as one line, in place of `warnings.showwarning`."""
    sys.stderr.write(f"kappaform: warning: {in_options(' '.join(str(message).split()))}\n")


@contextmanager
def warnings_about(*files: Path) -> Iterator[None]:
    """Show warnings of the library, when all is done, as lines that name the first of some files.

    Those that differ in their numbers only, as of the pages of a file, become one line.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)  # each file, and not the first one only
        try:
            yield
        finally:
            texts = [" ".join(str(each.message).split()) for each in caught]
            alike: dict[str, list[str]] = {}
            for text in texts:
                alike.setdefault(re.sub(r"[\d.]+", "", text), []).append(text)
            for first, *more in alike.values():
                is_named = any(str(file) in first for file in files)
                name = "" if is_named else f"{files[0]}: "
                warn(f"{name}{first}" + f" (and {len(more)} more like this)" * bool(more))


def as_option(name: str) -> str:
    """The option that gives an argument of this name."""
    return f"--{name.replace('_', '-')}"


def in_options(text: str) -> str:
    """A message of the library with the options of the command in place of its parameters."""
    for advice, ours in _ADVICE.items():
        text = text.replace(advice, ours)
    text = _ASSIGNED.sub(lambda found: f"{_OPTIONS[found[1]]} {found[2] or ''}", text)
    text = _NAMED.sub(lambda found: _OPTIONS[found[1]], text)
    return _DEVICE.sub(r"--device \1", text)


def failure(error: Exception, debug: bool = False, source: str = "") -> tuple[int, str]:
    """Exit code and one line for an exception; `debug` shows where it comes from, too.

    The line names `source`, the file that was worked on: the library knows arrays, not files.
    """
    if debug:
        traceback.print_exception(error)
    code, text = REFUSED, " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, _BAD_INPUT):
        code = BUG
        text = f"this is a bug in kappaform: {type(error).__name__}: {text}; please report it, "
        text += "with what --debug shows"
    elif isinstance(error, MemoryError):
        text = f"not enough memory: give a smaller input ({text})"
    elif isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    if code == REFUSED:
        text = in_options(text)
    return code, text if source in text else f"{source}: {text}"


def tell(facts: dict[str, Any], as_json: bool) -> None:
    """Facts, one on each line, or as JSON."""
    if as_json:
        say_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        say(f"{name.replace('_', ' '):<{width}}  {text}")


def say_json(document: dict[str, Any]) -> None:
    """The one document that --json prints; what JSON cannot say (inf, NaN) becomes null."""

    def plain(value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else str(value)  # of NumPy, or else

    text = json.dumps(document, default=plain)
    say(json.dumps(json.loads(text, parse_constant=lambda _: None), indent=1))


@contextmanager
def progress(name: str, work: str = "") -> Iterator[Callable[[Any], None] | None]:
    """A callback that shows progress on a terminal; None where nobody watches.

    It counts its calls; or it is told the share that is done of the `work` of this name.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    style = "{desc}: {n_fmt} iterations, {elapsed}"
    if work:
        style = f"{{desc}}: {{percentage:.0f}} % of {work}, {{elapsed}} passed, {{remaining}} left"
    options: dict[str, Any] = {}
    if work:  # not smoothed: parts end in bursts, so only the mean rate says when the last will
        options = {"total": 1, "smoothing": 0, "mininterval": 0, "miniters": 0}
    with tqdm(desc=name, bar_format=style, leave=False, file=sys.stderr, **options) as bar:

        def watch(done: Any) -> None:
            bar.update(done - bar.n if work else 1)

        yield watch


# --- Options and files


def chosen(arguments: Namespace, *names: str) -> dict[str, Any]:
    """Options of the library that are arguments of the same name."""
    return {name: getattr(arguments, name) for name in names}


class Found(NamedTuple):
    """A file to read, and where it lies below the input that brought it."""

    file: Path
    below: Path = Path()


def picture_files(
    inputs: Iterable[str],
    own_suffix: str = "",
    recursive: bool = False,
    without: Iterable[str] = (),
) -> tuple[list[Found], int, dict[Path, Exception]]:
    """Files, and pictures in folders; how many files are skipped; folders that give nothing.

    Pictures whose name ends with `own_suffix` are results of an earlier run, and skipped. The
    folders named by `without` are left out.
    """
    from kappaform.image_files import SUFFIXES

    def is_wanted(file: Path) -> bool:
        is_result = bool(own_suffix) and file.stem.endswith(own_suffix)
        return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and not is_result

    found: list[Found] = []
    n_skipped = 0
    errors: dict[Path, Exception] = {}
    left_out = {os.path.realpath(name) for name in without}
    for path in map(Path, inputs):
        if not path.is_dir():
            found.append(Found(path))
            continue
        inside = _files_in(path, recursive, left_out, errors)
        wanted = [file for file in inside if is_wanted(file)]
        if wanted:
            found += [Found(file, file.parent.relative_to(path)) for file in wanted]
            n_skipped += len(inside) - len(wanted)
        elif path not in errors:
            kinds = " ".join(SUFFIXES)
            errors[path] = ValueError(f"{path} holds no picture: no file to read is {kinds}.")
    return found, n_skipped, errors


def _files_in(
    folder: Path, recursive: bool, left_out: set[str], errors: dict[Path, Exception]
) -> list[Path]:
    """Files of a folder and, if `recursive`, of folders in it but hidden ones and links."""

    def unreadable(error: OSError) -> None:
        errors[Path(error.filename)] = error

    def is_entered(inner: Path) -> bool:
        hidden = inner.name.startswith(".")
        return recursive and not hidden and os.path.realpath(inner) not in left_out

    files: list[Path] = []
    for home, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if is_entered(Path(home, name)))
        files += [Path(home, name) for name in sorted(names)]
    return [file for file in files if file.is_file()]


def identities(files: Iterable[Path]) -> set[Identity]:
    """What the system knows files by, whatever their names; those that are not there have none."""
    found = set()
    for file in files:
        with suppress(OSError, ValueError):
            facts = file.stat()
            found.add((facts.st_dev, facts.st_ino))
    return found


def check_output(
    path: Path, inputs: set[Identity], suffixes: tuple[str, ...] = (), *, overwrite: bool
) -> None:
    """Refuse, before any work is done, a name that cannot be written or is that of an input.

    Inputs are given by their `identities`.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{path}: give a name that ends with {' or '.join(suffixes)}.")
    if identities([path]) & inputs:
        raise ValueError(f"{path} is an input: give the output another name.")
    check_writable(path)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} is there already: give another name, or --overwrite.")


def is_folder(option: str, given: str, many: bool, suffixes: tuple[str, ...]) -> bool:
    """Whether a name is that of a folder for results, which need not be there."""
    path = Path(given)
    if path.is_dir() or given.endswith(("/", os.sep)):
        return True
    if many and path.exists():
        raise ValueError(f"{option} {given} is a file: give a folder.")
    if many and path.suffix.lower() in suffixes:
        raise ValueError(
            f"{option} {given} is the name of one file, and there may be several pictures: give a "
            f"folder ({path.stem}/)."
        )
    return many


def made_folder(folder: str, below: Path) -> Path:
    """The folder of some results, made if it is new; what it lies in must be there."""
    Path(folder).mkdir(exist_ok=True)
    home = Path(folder) / below
    home.mkdir(parents=True, exist_ok=True)
    return home


def check_patch_size(side: int, n_axes: int) -> None:
    """Refuse patches that take for ever, and warn of those that take long."""
    n_pixels = side**n_axes
    usual = "8 to 16 are usual" if n_axes == 2 else "4 to 6 are usual in volumes"
    text = f"--patch-size {side}: patches of {n_pixels} pixels"
    if n_pixels > _LARGEST_PATCH:
        most = round(_LARGEST_PATCH ** (1 / n_axes))
        raise ValueError(f"{text} would take hours or days: give {most} at most, {usual}.")
    if n_pixels > _SLOW_PATCH:
        warn(f"{text} take minutes or hours: {usual}.")


def load_model(path: str) -> Any:
    """The transform in a file; if it is a file of another kind, the error says of which."""
    import kappaform as kf

    kind = kind_of(Path(path))
    if kind not in ("", "a transform"):
        raise ValueError(f"{path} is {kind}, not a transform: give a file that learn saved.")
    return kf.load(path)


def kind_of(path: Path) -> str:
    """What a file is, in words; empty if nobody knows, or if there is no file."""
    from kappaform.image_files import SUFFIXES

    if not path.is_file():
        return ""
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            return "an array of NumPy"
    if path.suffix.lower() in set(SUFFIXES) - {".npy"}:
        return "a picture"
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except Exception:  # damaged archives fail each in its own way
        return ""
    return "a transform" if "header.npy" in names else "sparse codes" * ("indptr.npy" in names)


@contextmanager
def saved_figure(path: Path, figure: Any) -> Iterator[None]:
    """A figure that is drawn at once and takes its name only if all else succeeds."""
    with replaced_when_complete(path) as file:
        figure.savefig(file, format=path.suffix.lower()[1:], dpi=110)
        yield
