"""`kappaform denoise`: one picture or many; a failure costs only its own picture."""

from __future__ import annotations

import math
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import kappaform as kf
from kappaform.cli import messages, pictures, results
from kappaform.cli.options import check_patch_size, chosen, given_noise
from kappaform.cli.words import ROUGH, compared, facts_of, is_rough, line_of, short, tell_duration
from kappaform.files import check_readable
from kappaform.image_files import Picture, as_stored, check_target, write_image
from kappaform.image_files.picture import MOVIE, VOLUME
from kappaform.imaging.denoise import denoise_on
from kappaform.imaging.options import default_patch_shape
from kappaform.imaging.work import Progress

_ROUNDING = 12**-0.5  # deviation of the error of rounding to whole numbers
# Of the values, beyond a range that they are said to have. Noise brings at most about half of them
# there, those of an image that is at one end of the range everywhere.
_MOST_CUT = 0.6


class Given(NamedTuple):
    """A transform that is used instead of learning one from each picture."""

    transform: NDArray
    patch_shape: tuple[int, ...] | None  #: None: square patches, or cubes


def denoise(arguments: Namespace) -> int:
    own_suffix = arguments.suffix or results.OWN_SUFFIX
    found, n_skipped, errors = pictures.picture_files(
        arguments.inputs,
        own_suffix,
        arguments.recursive,
        without=[name for name in (arguments.output, arguments.report) if name],
    )
    jobs = results.jobs_of(found, arguments)
    given = _checked_settings(arguments)
    inputs = [job.source for job in jobs] + [job.reference for job in jobs if job.reference]
    inputs += [Path(arguments.model)] if arguments.model else []
    taken = results.identities(inputs)
    if arguments.share and len(jobs) > 1:
        given = _learned_from_all(jobs, taken, arguments)
    records: list[dict[str, Any]] = []
    codes: list[int] = []

    def failed(source: Path, error: Exception, *files: Path | None) -> None:
        names = [str(file) for file in files if file]
        code, text = messages.failure(error, arguments.debug, str(source), names)
        codes.append(code)
        records.append({"input": str(source), "error": text})
        messages.complain(text)

    for folder, error in errors.items():
        failed(folder, error)
    for job in jobs:
        try:
            with messages.warnings_about(job.source, job.target):
                records.append(_denoised_or_kept(job, taken, given, arguments))
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            raise _interrupted(len(records) - len(codes), len(jobs)) from None
        except Exception as error:
            failed(job.source, error, job.target, job.reference, job.report)
            continue
        if not arguments.json:
            messages.say(line_of(records[-1], arguments.verbose))
    _tell(records, len(codes), n_skipped, arguments)
    return max(codes, default=0)


def _tell(
    records: list[dict[str, Any]], n_failed: int, n_skipped: int, arguments: Namespace
) -> None:
    """What came of all pictures together."""
    n_kept = sum("kept" in record for record in records)
    n_denoised = len(records) - n_failed - n_kept
    if arguments.json:
        document = {"denoised": n_denoised, "kept": n_kept, "failed": n_failed}
        messages.say_json({"files": records} | document | {"skipped": n_skipped})
    elif len(records) + n_skipped > 1:
        kept = f"{n_kept} kept, " if n_kept else ""
        messages.say(f"{n_denoised} denoised, {kept}{n_failed} failed, {n_skipped} skipped")
    has_pages = any(record.get("n_pages", 1) > 1 for record in records)
    asked = [name for name in ("stack", "volume", "movie") if getattr(arguments, name)]
    if n_denoised and not has_pages and asked:
        messages.warn(f"--{asked[0]} had no effect: no file has pages.")


def _interrupted(n_done: int, number: int) -> KeyboardInterrupt:
    if number == 1:
        return KeyboardInterrupt()
    remedy = "the same command without --overwrite does the others"
    return KeyboardInterrupt(f"interrupted: {n_done} of {number} pictures are done, {remedy}")


# --- What is to be done


def _checked_settings(arguments: Namespace) -> Given | None:
    """Check what is the same for all pictures; the transform to use, if one is given."""
    side, given = arguments.patch_size, None
    if arguments.model:
        from kappaform.cli.models import load_model

        model = load_model(arguments.model)
        given = Given(model.result_.transform, model.patch_shape_)
        if side and model.patch_shape_:
            text = f"{arguments.model} has patches of shape {model.patch_shape_}"
            raise ValueError(f"--patch-size has no effect with --model: {text}; leave it out.")
    elif side:
        check_patch_size(side, 3 if arguments.volume else 2)
    if arguments.movie and arguments.quality == "fast":
        messages.note("--movie with --quality fast: frames share a transform, and nothing else")
    if arguments.device is not None:
        from kappaform.imaging.cleaning.torch import device_named

        arguments.device = device_named(arguments.device)
    return given


# --- All pictures


def _learned_from_all(
    jobs: list[results.Job], taken: set[results.Identity], arguments: Namespace
) -> Given | None:
    """One transform for all pictures, those whose result is there too: it is the same every time.

    Files that cannot be read are left out here, and told when it is their turn.
    """
    if all(results.is_kept(job, taken, arguments) for job in jobs):
        return None
    read: list[str] = []  # names of files, and an empty one when all are looked at
    spaces: list[tuple[int, ...]] = []

    def images(progress: Callable[[float], None] | None) -> Iterator[NDArray]:
        for number, job in enumerate(jobs, start=1):
            try:
                picture = pictures.noisy_picture(job.source, arguments)
                stack = _floats(picture.as_stack(_along(picture, arguments)), None)
            except Exception:
                continue
            # Grey has one channel, so that it may stand beside colours.
            stack = stack if picture.channel_axis else stack[..., np.newaxis]
            read.append(f"{job.source}: ")
            spaces.append(stack.shape[1:-1])
            yield from stack
            if progress:
                progress(number / len(jobs))
        if read:
            read.append("")

    options = chosen(arguments, "method", "max_condition", "patch_size")
    options |= {"noise": given_noise(arguments), "channel_axis": -1, "rng": arguments.seed}
    work = f"{len(jobs)} files"
    try:
        with warnings.catch_warnings(), messages.progress("looking at pictures", work) as progress:
            warnings.simplefilter("ignore")  # told when it is their turn
            learned = kf.learn_from_images(images(progress), **options)
    except ValueError as error:
        if not read:
            return None
        raise ValueError(f"--share: {read[-1]}{error}") from error
    return Given(learned.transform, default_patch_shape(spaces[0]))


# --- One picture


def _denoised_or_kept(
    job: results.Job, taken: set[results.Identity], given: Given | None, arguments: Namespace
) -> dict[str, Any]:
    """What came of a picture; one whose result is there is not even read."""
    if results.is_kept(job, taken, arguments):
        if job.report:  # it may be there already, like the result
            results.check_output(job.report, taken, results.FIGURES, overwrite=True)
        if job.reference:
            check_readable(job.reference)
        return {"input": str(job.source), "output": str(job.target), "kept": True}
    picture = pictures.noisy_picture(job.source, arguments)
    with results.made_folders(job):
        return _denoise_file(job, picture, taken, given, arguments)


def _denoise_file(
    job: results.Job,
    picture: Picture,
    taken: set[results.Identity],
    given: Given | None,
    arguments: Namespace,
) -> dict[str, Any]:
    """Denoise one picture; what came of it, for people and programs."""
    along = _along(picture, arguments)
    results.check_output(job.target, taken, overwrite=arguments.overwrite)
    check_target(job.target, picture)
    if job.report:
        results.check_output(job.report, taken, results.FIGURES, overwrite=arguments.overwrite)
    noisy = picture.as_stack(along)
    reference = _reference(job, picture, arguments)
    _warn_of_units(noisy, job.source, arguments)
    started = time.perf_counter()
    options, size = _options(picture, given, arguments), _size(picture)
    n_channels = noisy.shape[-1] if picture.channel_axis else 1
    details = _details(job.title, noisy, options, math.prod(size.values()), n_channels, arguments)
    if is_rough(details, noisy.dtype):
        messages.warn(f"{job.source}: {ROUGH}")
    blended = _blended(noisy, details.image, arguments.strength)
    cleaned = as_stored(blended, noisy.dtype)
    # Floats do not hold every large integer: pixels that nothing was taken from stay as they are.
    np.copyto(cleaned, noisy, where=blended == _floats(noisy, None))
    record = {
        "input": str(job.source),
        "output": str(job.target),
        **size,
        "n_volumes": len(noisy) if along == VOLUME else 0,
        "n_movies": len(noisy) if along == MOVIE else 0,
        **facts_of(details, n_channels),
        "noise_estimated": arguments.sigma is None and arguments.gain is None,
        "strength": arguments.strength,
        "unchanged": np.array_equal(cleaned, noisy),
        "seconds": round(time.perf_counter() - started, 3),
    }
    if reference is not None:
        axes = {name: options[name] for name in ("channel_axis", "stack_axis")}
        images = [_frames(each) if along == MOVIE else each for each in (reference, noisy, cleaned)]
        record |= compared(*images, **axes)
    done = picture.with_stack(cleaned, along)
    if job.report:
        shown, channel_axis = replace(details, image=cleaned), picture.channel_axis
        figure = kf.plots.plot_denoising(noisy, shown, reference, channel_axis=channel_axis)
        with results.saved_figure(job.report, figure):  # picture and report, or neither
            _write(job.target, done, arguments)
        return record | {"report": str(job.report)}
    _write(job.target, done, arguments)
    return record


def _details(
    title: str,
    noisy: NDArray,
    options: dict[str, Any],
    n_pixels: int,
    n_channels: int,
    arguments: Namespace,
) -> kf.DenoiseResult:
    """What the library makes of a picture, with an array as its image; people see it go on."""
    if not arguments.preset and not arguments.device:
        tell_duration(title, n_pixels * n_channels, arguments.quality)
    with messages.progress(title, f"{short(n_pixels / 1e6)} megapixels") as progress:
        image = _floats(noisy, None)
        movies = image if options["movie"] else [image]
        parts = zip(movies, Progress(progress).sections([1] * len(movies)), strict=True)
        # Pixels go to a device and back once if the library gets an array, not a tensor.
        on_host, device = kf.denoise_with_details, arguments.device
        denoise = on_host if device is None else partial(denoise_on, device)
        found = [denoise(each, **options, progress=part) for each, part in parts]
    return _of_movies(found) if options["movie"] else found[0]


def _of_movies(found: list[kf.DenoiseResult]) -> kf.DenoiseResult:
    """What came of several movies of the same size, each of which has its own noise."""
    several = len(found) > 1
    noises: Any = tuple(each.noise for each in found)  # one each: frames share it
    return replace(
        found[0],
        image=np.stack([each.image for each in found]),
        sparsity_map=np.stack([each.sparsity_map for each in found]),
        noise=noises if several else noises[0],
        sigma=np.stack([each.sigma for each in found]) if several else found[0].sigma,
        transforms=tuple(matrix for each in found for matrix in each.transforms),
        history=tuple(result for each in found for result in each.history),
    )


def _write(path: Path, picture: Picture, arguments: Namespace) -> None:
    write_image(path, picture, arguments.jpeg_quality if results.is_lossy(path) else None)


def _size(picture: Picture) -> dict[str, int]:
    *pages, height, width = picture.pixels.shape[: -1 if picture.has_channels else None]
    return {"width": width, "height": height, "n_pages": math.prod(pages)}


def _along(picture: Picture, arguments: Namespace) -> str:
    """What the pages of a picture are together: a volume, a movie, or nothing."""
    if not picture.has_pages:
        return ""
    return VOLUME if arguments.volume else MOVIE if arguments.movie else ""


def _frames(movies: NDArray) -> NDArray:
    return movies.reshape(-1, *movies.shape[2:])


def _reference(job: results.Job, picture: Picture, arguments: Namespace) -> NDArray | None:
    """The picture without noise, if there is one, as a stack like the noisy one."""
    if job.reference is None:
        return None
    reference = pictures.picture_with_pages(job.reference, arguments)
    pictures.check_reference(job.reference, reference, job.source, picture)
    return picture.with_colours(reference.colours).as_stack(_along(picture, arguments))


def _warn_of_units(values: NDArray, source: Path, arguments: Namespace) -> None:
    """Tell of numbers that cannot be meant in values of the file, as those of another scale."""
    sigma, value_range = arguments.sigma, arguments.value_range
    low, high = float(values.min()), float(values.max())
    what = "it is the deviation of the noise in values of the file."
    if sigma is not None and sigma > high - low > 0:
        messages.warn(
            f"--sigma {sigma:g} exceeds the range of the values of {source}, {low:g} to {high:g}: "
            f"{what}"
        )
    if sigma and sigma < _ROUNDING and values.dtype.kind in "iu":
        messages.warn(
            f"--sigma {sigma:g} is less than what rounding does to whole numbers, as those of "
            f"{source}: {what}"
        )
    if value_range and np.mean((values < value_range[0]) | (values > value_range[1])) > _MOST_CUT:
        messages.warn(
            f"--value-range {value_range[0]:g} {value_range[1]:g} leaves out most values of "
            f"{source}, {low:g} to {high:g}, and they are cut: give it in values of the file."
        )


def _floats(pixels: NDArray, device: Any) -> Any:
    """The pixels as floats that hold them exactly, as a tensor if there is a device for it."""
    single = np.can_cast(pixels.dtype, np.float32)
    floats = pixels.astype(np.float32 if single else np.float64, copy=False)
    if device is None:
        return floats
    import torch

    return torch.from_numpy(np.ascontiguousarray(floats)).to(device)


def _blended(noisy: NDArray, cleaned: NDArray, strength: float) -> NDArray:
    """From the noisy picture the share `strength` of the way to the cleaned one."""
    if strength == 1:
        return cleaned
    given = noisy.astype(np.float64)
    return given + strength * (cleaned - given)


def _options(picture: Picture, given: Given | None, arguments: Namespace) -> dict[str, Any]:
    names = ("method", "max_condition", "patch_size", "preset", "quality", "value_range")
    options = chosen(arguments, *names)
    options |= {"noise": given_noise(arguments), "rng": arguments.seed}
    options |= {"channel_axis": picture.channel_axis, "stack_axis": 0}
    options["movie"] = _along(picture, arguments) == MOVIE
    if arguments.preset:
        options["quality"] = None  # it has its own, and its own range
    elif not arguments.value_range:
        options["value_range"] = picture.value_range
    if given is not None:
        options["transform"] = given.transform
        options["patch_size"] = arguments.patch_size or given.patch_shape
    elif arguments.share:
        options["share"] = True
    if arguments.volume:  # declared, so that there is no doubt
        warnings.filterwarnings("ignore", "image has shape .* is taken for a volume")
    return options
