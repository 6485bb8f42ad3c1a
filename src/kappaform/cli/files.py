"""Files of the command: which images it reads, which results it writes, and under which names."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from kappaform.cli.options import STRENGTHS_OF_NOISE
from kappaform.errors import warn
from kappaform.files import check_writable, file_of, replaced_when_complete
from kappaform.image_files import LOSSY_SUFFIXES, SUFFIXES, Picture, check_target, read_image
from kappaform.image_files.picture import MOVIE, VOLUME
from kappaform.imaging.axes import looks_like_colour

#: Device and inode of a file.
Identity = tuple[int, int]
#: Suffixes of figures.
FIGURES = (".png", ".pdf", ".svg")
_OWN_SUFFIX = "_denoised"  # end of the names of denoised images


# --- Images that are read


class Found(NamedTuple):
    """A file to read, and the folder below the given input that contains it."""

    file: Path
    below: Path = Path()


def picture_files(
    inputs: Iterable[str],
    own_suffix: str = "",
    recursive: bool = False,
    without: Iterable[str] = (),
) -> tuple[list[Found], int, int, dict[Path, Exception]]:
    """Files, and images in folders; numbers of ignored files and subfolders; errors of folders.

    Images whose name ends with `own_suffix` are results of an earlier run, and ignored, and so
    are folders in `without`.
    """

    def is_wanted(file: Path) -> bool:
        is_result = bool(own_suffix) and _split_name(file)[0].endswith(own_suffix)
        return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and not is_result

    found: list[Found] = []
    n_ignored = n_subfolders = 0
    errors: dict[Path, Exception] = {}
    left_out = {os.path.realpath(name) for name in without}
    for path in map(Path, inputs):
        if not path.is_dir():
            found.append(Found(path))
            continue
        inside = _files_in(path, recursive, left_out, errors)
        wanted = [Found(file, file.parent.relative_to(path)) for file in inside if is_wanted(file)]
        n_inner = 0 if recursive else _n_subfolders(path, left_out)
        if wanted:
            found += wanted
            n_ignored += len(inside) - len(wanted)
            n_subfolders += n_inner
        elif path not in errors:
            kinds = " ".join(SUFFIXES)
            inner = subfolders_in_words(n_inner)
            errors[path] = ValueError(f"{path} contains no image to read ({kinds}){inner}.")
    return found, n_ignored, n_subfolders, errors


def all_pictures(inputs: Iterable[str]) -> list[Path]:
    """Files, and images in folders; each folder must contain some."""
    found, *_, errors = picture_files(inputs)
    for error in errors.values():
        raise error
    return [each.file for each in found]


def _files_in(
    folder: Path, recursive: bool, left_out: set[str], errors: dict[Path, Exception]
) -> list[Path]:
    """Files of a folder and, if `recursive`, of folders in it except hidden ones and links."""

    def unreadable(error: OSError) -> None:
        errors[Path(error.filename)] = error

    files: list[Path] = []
    for home, folders, names in os.walk(folder, onerror=unreadable):
        entered = (name for name in folders if recursive and _is_inner(Path(home, name), left_out))
        folders[:] = sorted(entered)
        files += [Path(home, name) for name in sorted(names)]
    return [file for file in files if file.is_file()]


def _is_inner(folder: Path, left_out: set[str]) -> bool:
    """Whether a folder in a folder may contain images to read."""
    return not folder.name.startswith(".") and os.path.realpath(folder) not in left_out


def _n_subfolders(folder: Path, left_out: set[str]) -> int:
    with suppress(OSError):
        return sum(each.is_dir() and _is_inner(each, left_out) for each in folder.iterdir())
    return 0


def subfolders_in_words(number: int) -> str:
    """Mention folders that were not entered, if there are any."""
    some = "subfolder was" if number == 1 else "subfolders were"
    return f"; {number} {some} not entered (--recursive enters them)" if number else ""


def _split_name(file: Path) -> tuple[str, str]:
    """The name of a file and its suffix; that of OME files (.ome.tif) is not divided."""
    stem, suffix = file.stem, file.suffix
    if suffix.lower() in (".tif", ".tiff") and stem.lower().endswith(".ome"):
        stem, suffix = stem[:-4], stem[-4:] + suffix
    return stem, suffix


def one_picture(path: Path) -> Picture:
    """The image in a file without pages."""
    picture = _read(path)
    if picture.has_pages:
        raise ValueError(
            f"{path} has pages, shape {picture.pixels.shape}: save one of them as a file of its "
            "own."
        )
    return picture


def noisy_picture(path: Path, arguments: Namespace) -> Picture:
    """The image in a file that is to be denoised."""
    if path.suffix.lower() == ".kappaform":
        raise ValueError(f"{path} is a transform, not an image: give it as --model {path}.")
    picture = picture_with_pages(path, arguments, leaves_holes=True)
    estimated = arguments.noise in STRENGTHS_OF_NOISE
    estimated = estimated and arguments.sigma is None and arguments.gain is None
    if picture.metadata.is_bilevel and estimated:
        raise ValueError(
            f"{path} has one bit per pixel: the noise of black and white cannot be estimated; give "
            "--sigma to denoise it anyway."
        )
    return picture


def picture_with_pages(path: Path, arguments: Namespace, leaves_holes: bool = False) -> Picture:
    """The image in a file; the arguments say what its pages are, if there are any."""
    declared = arguments.volume or arguments.stack or arguments.movie
    picture = _read(path, declared, leaves_holes)
    if leaves_holes and arguments.nodata is not None:
        metadata = picture.metadata._replace(no_data=arguments.nodata)
        picture = picture._replace(metadata=metadata)
    if picture.has_pages and not picture.page_axes and not declared:
        raise ValueError(
            f"{path} has pages, shape {picture.pixels.shape}: add --stack if each is an image "
            "of its own, --movie if they are frames, or --volume if they are slices of one volume."
        )
    along = VOLUME if arguments.volume else MOVIE if arguments.movie else ""
    return picture._replace(along=along) if picture.has_pages else picture


def _read(path: Path, declared: bool = False, leaves_holes: bool = False) -> Picture:
    """An image with rows and columns; three axes of an array may be `declared` to have pages.

    Pixels without data are ordinary values to those who do not leave them alone.
    """
    picture = read_image(path)
    shape = picture.pixels.shape
    if declared and path.suffix.lower() == ".npy" and len(shape) == 3:
        picture = picture._replace(has_channels=looks_like_colour(shape))
    if len(shape) - picture.has_channels < 2:
        raise ValueError(f"{path} has shape {shape}: an image has rows and columns.")
    if (n_pixels := picture.n_without_data) and not leaves_holes:
        warn(
            f"{path}: {n_pixels} values are {picture.metadata.no_data:g}, which means no data "
            "(GDAL_NODATA). They are treated as ordinary values and affect their neighbours: crop "
            "them, or fill them first (kappaform inpaint)."
        )
    return picture


def check_reference(path: Path, reference: Picture, source: Path, picture: Picture) -> None:
    """Reject a reference whose size or type differs from that of the noisy image."""
    clean, noisy = reference.colours, picture.colours
    for name, rule, found, expected in (
        ("shape", "size", clean.shape, noisy.shape),
        ("type", "type", clean.dtype, noisy.dtype),
    ):
        if found != expected:
            raise ValueError(
                f"{path} has {name} {found}, {source} {expected}: a reference has the same {rule}."
            )


# --- Files that are written


def identities(files: Iterable[Path]) -> set[Identity]:
    """Device and inode of each file that exists: the same whatever name it was given by."""
    found = set()
    for file in files:
        with suppress(OSError, ValueError):
            facts = file.stat()
            found.add((facts.st_dev, facts.st_ino))
    return found


def check_output(
    path: Path, inputs: set[Identity], suffixes: tuple[str, ...] = (), *, overwrite: bool
) -> None:
    """Reject, before any work is done, a name that cannot be written or is that of an input.

    Inputs are given by their `identities`.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{path}: give a name that ends with {' or '.join(suffixes)}.")
    if identities([path]) & inputs:
        raise ValueError(f"{path} is an input: give the output another name.")
    check_writable(path)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already: give another name, or --overwrite.")


def outputs(
    arguments: Namespace, inputs: Iterable[str | Path | None], **suffixes: tuple[str, ...]
) -> list[Any]:
    """The files that options name, checked before any work is done; None for those not given."""
    taken = identities(Path(name) for name in inputs if name)
    paths = [file_of(name) if (name := getattr(arguments, option)) else None for option in suffixes]
    for path, allowed in zip(paths, suffixes.values(), strict=True):
        if path:
            check_output(path, taken, allowed, overwrite=arguments.overwrite)
    return paths


@contextmanager
def saved_figure(path: Path, figure: Any) -> Iterator[None]:
    """Draw a figure, and give it its name only if the block succeeds."""
    with replaced_when_complete(path) as file:
        figure.savefig(file, format=path.suffix.lower()[1:], dpi=110)
        yield


# --- Denoised images


class Job(NamedTuple):
    """One image to denoise, and the files that belong to it."""

    source: Path
    target: Path
    reference: Path | None
    report: Path | None
    title: str  #: its number among all, and its name
    folders: tuple[Path, ...]  #: folders of the results that may be new
    is_named: bool  #: whether the user gave the name of the result


class Batch(NamedTuple):
    """All images to denoise."""

    jobs: list[Job]
    inputs: set[Identity]
    n_ignored: int
    n_subfolders: int  #: that were not entered
    errors: dict[Path, Exception]  #: of folders


def batch_of(arguments: Namespace) -> Batch:
    """The images that the arguments name, with no result written twice."""
    without = [name for name in (arguments.output, arguments.report) if name]
    found, n_ignored, n_subfolders, errors = picture_files(
        arguments.inputs, arguments.suffix or _OWN_SUFFIX, arguments.recursive, without
    )
    has_folder = any(Path(name).is_dir() for name in arguments.inputs)
    many = len(found) > 1 or has_folder
    if arguments.recursive and not has_folder:
        raise ValueError("--recursive has no effect: no input is a folder; leave it out.")
    jobs = []
    for number, each in enumerate(found, start=1):
        title = f"file {number} of {len(found)}, {each.file.name}" if many else each.file.name
        jobs.append(_job(each, title, many, arguments))
    seen = set()
    for path in (path for job in jobs for path in (job.target, job.report) if path):
        file = os.path.realpath(path)
        if file in seen:
            raise ValueError(f"{path} would be written twice: give each result its own name.")
        seen.add(file)
    if arguments.jpeg_quality and not any(is_lossy(job.target) for job in jobs):
        raise ValueError("--jpeg-quality has no effect: no result is JPEG or WebP; leave it out.")
    inputs = [file for job in jobs for file in (job.source, job.reference) if file]
    inputs += [Path(name) for name in (arguments.model, arguments.mask) if name]
    return Batch(jobs, identities(inputs), n_ignored, n_subfolders, errors)


def _job(found: Found, title: str, many: bool, arguments: Namespace) -> Job:
    file, output, suffix = found.file, arguments.output, arguments.suffix
    folders: list[Path] = []

    def in_folder(option: str, given: str, name: str, suffixes: tuple[str, ...]) -> Path | None:
        """The file of this name in the folder that an option gives, if it gives one."""
        if not _is_folder(option, given, many, suffixes):
            return None
        folders.append(Path(given) / found.below)
        return folders[-1] / name

    if suffix is None:
        suffix = "" if output else _OWN_SUFFIX
    stem, end = _split_name(file)
    target = file.with_name(f"{stem}{suffix}{end}")
    inside = in_folder("-o", output, target.name, SUFFIXES) if output else None
    is_named = bool(output) and inside is None
    if is_named and arguments.suffix is not None:
        raise ValueError(f"--suffix has no effect with -o {output}, a file: leave one of them out.")
    if is_named and not Path(output).suffix:
        raise ValueError(
            f"{output} has no suffix: write {output}/ for a folder, or {output}{end} for a file."
        )
    target = Path(output) if is_named else inside or target
    reference = Path(arguments.compare) if arguments.compare else None
    if reference and reference.is_dir():
        reference = reference / found.below / file.name
    report = Path(arguments.report) if arguments.report else None
    if report:
        name = f"{file.name}_report.png"
        report = in_folder("--report", arguments.report, name, FIGURES) or report
    return Job(file, target, reference, report, title, tuple(folders), is_named)


def _is_folder(option: str, given: str, many: bool, suffixes: tuple[str, ...]) -> bool:
    """Whether a name is that of a folder for results; it may be new, but its parent must exist."""
    path = Path(given)
    if path.is_dir():
        return True
    is_folder = given.endswith(("/", os.sep))
    if path.exists() and (many or is_folder):
        raise ValueError(f"{option} {given} is a file: give a folder.")
    if many and not is_folder and path.suffix.lower() in suffixes:
        raise ValueError(
            f"{option} {given} is the name of one file, and there may be several images: give a "
            f"folder ({path.stem}/)."
        )
    if many or is_folder:
        check_writable(path)
    return many or is_folder


def is_lossy(path: Path) -> bool:
    return path.suffix.lower() in LOSSY_SUFFIXES


def has_result(job: Job, inputs: set[Identity], overwrite: bool) -> bool:
    """Whether an earlier run of the same command has written the result.

    A file that the user names does not count as one: it may be any file.
    """
    exists = job.target.is_file() and not identities([job.target]) & inputs
    return exists and not job.is_named and not overwrite


@contextmanager
def prepared(job: Job, picture: Picture, inputs: set[Identity], overwrite: bool) -> Iterator[None]:
    """Create the folders of a job, and check names and format; new folders go if it fails."""
    made: list[Path] = []
    try:
        for home in job.folders:
            for folder in reversed((home, *home.parents)):
                if folder.exists():
                    continue
                try:
                    folder.mkdir()
                except FileExistsError:  # another command has just created it
                    if not folder.is_dir():
                        raise
                else:
                    made.append(folder)
        check_output(job.target, inputs, overwrite=overwrite)
        check_target(job.target, picture)
        if job.report:
            check_output(job.report, inputs, FIGURES, overwrite=overwrite)
        yield
    except BaseException:
        for folder in reversed(made):
            with suppress(OSError):  # it may contain something else by now
                folder.rmdir()
        raise
