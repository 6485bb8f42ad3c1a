"""`kappaform denoise`: one image or many; a failure affects only its own image."""

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
from kappaform.checks import counted
from kappaform.cli import files, holes, messages
from kappaform.cli.durations import watched
from kappaform.cli.noise import check_camera, for_volume
from kappaform.cli.options import check_patch_size, chosen, given_noise
from kappaform.cli.words import (
    ROUGH,
    compared,
    facts_of,
    is_rough,
    line_of,
    short,
    tell_duration,
    warn_about_sigma,
)
from kappaform.errors import ArgumentsWarning
from kappaform.files import check_readable
from kappaform.image_files import Picture, as_stored, write_image
from kappaform.image_files.picture import MOVIE, VOLUME
from kappaform.imaging.denoise import denoise_on
from kappaform.imaging.options import default_patch_shape
from kappaform.imaging.progress import Progress


class Settings(NamedTuple):
    """What is the same for all images."""

    noise: Any  #: a noise, the name of its kind, or None: it is estimated
    camera: Any  #: that the noise was measured for, if it comes from a file
    transform: NDArray | None = None  #: used instead of learning one from each image
    patch_shape: tuple[int, ...] | None = None  #: its patches; None: squares or cubes


def denoise(arguments: Namespace) -> int:
    batch = files.batch_of(arguments)
    arguments.is_batch = len(batch.jobs) > 1
    settings = _settings(arguments)
    if arguments.share and len(batch.jobs) > 1:
        settings = _learned_from_all(batch, settings, arguments)
    records: list[dict[str, Any]] = []
    codes: list[int] = []

    def failed(source: Path, error: Exception) -> None:
        code, text = messages.failure(error, arguments.debug, str(source))
        codes.append(code)
        records.append({"input": str(source), "error": text})
        messages.complain(text)

    for folder, error in batch.errors.items():
        failed(folder, error)
    for job in watched(batch, arguments, records) if len(batch.jobs) > 1 else batch.jobs:
        try:
            with messages.warnings_about(job.source, job.target):
                records.append(_record(job, batch.inputs, settings, arguments))
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            raise _interrupted(len(records) - len(codes), len(batch.jobs)) from None
        except Exception as error:
            failed(job.source, error)
            continue
        if not arguments.json:
            messages.say(line_of(records[-1], arguments.verbose))
    _summarise(records, len(codes), batch, arguments)
    return max(codes, default=0)


def _summarise(
    records: list[dict[str, Any]], n_failed: int, batch: files.Batch, arguments: Namespace
) -> None:
    n_ignored = batch.n_ignored
    n_kept = sum("kept" in record for record in records)
    n_denoised = len(records) - n_failed - n_kept
    if arguments.json:
        document = {"denoised": n_denoised, "kept": n_kept, "failed": n_failed}
        messages.say_json({"files": records} | document | {"skipped": n_ignored})
    elif len(records) + n_ignored + batch.n_subfolders > 1:
        skipped = f"{n_kept} skipped (output exists), " * bool(n_kept)
        ignored = f", {n_ignored} other file{'s' * (n_ignored > 1)} ignored" * bool(n_ignored)
        ignored += files.subfolders_in_words(batch.n_subfolders)
        messages.say(f"{n_denoised} denoised, {skipped}{n_failed} failed{ignored}")
    if n_denoised and not any(record.get("n_pages", 1) > 1 for record in records):
        warn_about_pages(arguments)
    has_colours = any(record.get("n_channels", 1) > 1 for record in records)
    if n_denoised and "colour_strength" in arguments.given and not has_colours:
        messages.warn("--colour-strength had no effect: no image has colours.")


def warn_about_pages(arguments: Namespace) -> None:
    """Warn about an option for pages, where no file has any."""
    for name in ("stack", "volume", "movie"):
        if getattr(arguments, name):
            messages.warn(f"--{name} had no effect: no file has pages.")


def _interrupted(n_done: int, number: int) -> KeyboardInterrupt:
    if number == 1:
        return KeyboardInterrupt()
    remedy = "run the same command without --overwrite for the others"
    return KeyboardInterrupt(f"interrupted: {n_done} of {number} images are done; {remedy}")


# --- All images


def _settings(arguments: Namespace) -> Settings:
    """Check what is the same for all images."""
    side, settings = arguments.patch_size, Settings(*given_noise(arguments))
    if arguments.model:
        from kappaform.cli.model_files import load_single

        model = load_single(arguments.model)
        settings = settings._replace(
            transform=model.result_.transform, patch_shape=model.patch_shape_
        )
        if side and model.patch_shape_:
            text = f"{arguments.model} has patches of shape {model.patch_shape_}"
            raise ValueError(f"--patch-size has no effect with --model: {text}; leave it out.")
    elif side:
        check_patch_size(side, 3 if arguments.volume else 2)
    if arguments.movie and arguments.quality == "fast":
        messages.note(
            "--movie with --quality fast: frames are denoised one by one, with the same transform; "
            "--quality balanced and best also find similar patches in the frames before and after"
        )
    name_device(arguments)
    return settings


def name_device(arguments: Namespace) -> None:
    """Replace the name of a device, if there is one, by the device."""
    if arguments.device is not None:
        from kappaform.imaging.tensors import device_named

        with messages.calling_library():
            arguments.device = device_named(arguments.device)


def _learned_from_all(batch: files.Batch, settings: Settings, arguments: Namespace) -> Settings:
    """Learn one transform from all images, also from those that have a result: it is the same.

    Files that cannot be read are left out here, and reported when it is their turn.
    """
    jobs = batch.jobs
    if all(files.has_result(job, batch.inputs, arguments.overwrite) for job in jobs):
        return settings
    read: list[str] = []  # names of files, and an empty one at the end
    spaces: list[tuple[int, ...]] = []

    def images(progress: Callable[[float], None] | None) -> Iterator[NDArray]:
        for number, job in enumerate(jobs, start=1):
            try:
                picture = files.noisy_picture(job.source, arguments)
                stack = _floats(picture.as_stack())
            except Exception:
                continue
            # Grey has one channel, so that it can be combined with colours.
            stack = stack if picture.channel_axis else stack[..., np.newaxis]
            read.append(f"{job.source}: ")
            spaces.append(stack.shape[1:-1])
            yield from stack
            if progress:
                progress(number / len(jobs))
        if read:
            read.append("")

    options = chosen(arguments, "method", "max_condition", "patch_size")
    options |= {"noise": settings.noise, "channel_axis": -1, "rng": arguments.seed}
    library = messages.calling_library("reading images", f"{len(jobs)} files")
    try:
        with warnings.catch_warnings(), library as progress:
            # Those about an image are shown when it is its turn. Nothing is learned then.
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", ArgumentsWarning)
            learned = kf.learn_from_images(images(progress), **options)
    except ValueError as error:
        if not read:
            return settings
        raise ValueError(f"--share: {read[-1]}{error}") from error
    patch_shape = default_patch_shape(spaces[0])
    return settings._replace(transform=learned.transform, patch_shape=patch_shape)


# --- One image


def _record(
    job: files.Job, inputs: set[files.Identity], settings: Settings, arguments: Namespace
) -> dict[str, Any]:
    """The result of an image; one that exists already is not even read."""
    if files.has_result(job, inputs, arguments.overwrite):
        if job.report:  # it may exist already, like the result
            files.check_output(job.report, inputs, files.FIGURES, overwrite=True)
        if job.reference:
            check_readable(job.reference)
        return {"input": str(job.source), "output": str(job.target), "kept": True}
    picture = files.noisy_picture(job.source, arguments)
    if settings.camera:
        check_camera(job.source, picture, settings.camera, arguments.noise)
        if picture.along == VOLUME:
            settings = settings._replace(noise=for_volume(settings.noise))
    with files.prepared(job, picture, inputs, arguments.overwrite):
        return _denoised(job, picture, settings, arguments)


def _denoised(
    job: files.Job, picture: Picture, settings: Settings, arguments: Namespace
) -> dict[str, Any]:
    """Denoise one image and write it; the facts about it, for people and programs."""
    noisy = picture.as_stack()
    reference = _reference(job, picture, arguments)
    if arguments.sigma is not None:
        warn_about_sigma(arguments.sigma, noisy, job.source)
    started = time.perf_counter()
    options, size = _options(picture, settings, arguments), _size(picture)
    n_channels = noisy.shape[-1] if options["channel_axis"] else 1
    image = _floats(noisy)
    masked = holes.masked(picture, arguments.mask) if arguments.mask else None
    if masked is not None and not masked.any():
        messages.warn(f"{arguments.mask}: no pixel is marked, all are black or transparent.")
    kept = picture.without_data
    if kept is not None and not arguments.preset:
        number = counted(n_kept := np.count_nonzero(kept), "value")
        left = "is left as it is" if n_kept == 1 else "are left as they are"
        text = f"{number} without data ({picture.metadata.no_data:g}) {left}"
        messages.note(f"{job.source}: {text}")
    missing = [each for each in (masked, kept) if each is not None]
    if missing and not arguments.preset:
        options["mask"] = np.logical_or.reduce(missing)
    details = _details(job.title, image, options, arguments)
    if is_rough(details, noisy.dtype):
        messages.warn(f"{job.source}: {ROUGH}")
    found = details.image
    with np.errstate(invalid="ignore"):
        denoised = as_stored(found if kept is None else np.where(kept, 0, found), noisy.dtype)
    if kept is not None:
        np.copyto(denoised, noisy, where=kept)
    if noisy.dtype.itemsize > 4:  # floats do not hold every integer of 64 bits
        np.copyto(denoised, noisy, where=found == image)
    record = {
        "input": str(job.source),
        "output": str(job.target),
        **size,
        "n_channels": n_channels,
        "n_volumes": len(noisy) if picture.along == VOLUME else 0,
        "n_movies": len(noisy) if picture.along == MOVIE else 0,
        **facts_of(details, n_channels),
        "noise_estimated": isinstance(settings.noise, str | None),
        **({"noise_file": arguments.noise} if settings.camera else {}),
        "strength": arguments.strength,
        "colour_strength": options.get("colour_strength", arguments.strength),
        "unchanged": np.array_equal(denoised, noisy),
        "seconds": round(time.perf_counter() - started, 3),
    }
    if reference is not None:
        axes = {name: options[name] for name in ("channel_axis", "stack_axis")}
        images = [reference, noisy, denoised]
        if picture.along == MOVIE:
            images = [each.reshape(-1, *each.shape[2:]) for each in images]
        record |= compared(*images, **axes)
    hidden = np.logical_or.reduce(missing) if missing else None
    shown = noisy, replace(details, image=denoised), reference
    draw = partial(_drawn, *shown, mask=hidden)
    _write(job, picture.with_stack(denoised), arguments, draw)
    return record | ({"report": str(job.report)} if job.report else {})


def _details(
    title: str, image: NDArray, options: dict[str, Any], arguments: Namespace
) -> kf.DenoiseResult:
    """The result of the library, with its image in memory; shows progress."""
    if not arguments.preset and not arguments.device and not arguments.is_batch:
        tell_duration(title, image.size, arguments.quality)
    movies, masks = image, options.pop("mask", None)
    if not options["movie"]:
        movies, masks = image[np.newaxis], None if masks is None else [masks]
    masks = [None] * len(movies) if masks is None else masks
    # Pixels go to a device and back once if the library gets an array, not a tensor.
    on_host, device = kf.denoise_with_details, arguments.device
    denoise = on_host if device is None else partial(denoise_on, device)
    n_pixels = image.size // (image.shape[-1] if options["channel_axis"] else 1)
    with messages.calling_library(title, f"{short(n_pixels / 1e6)} megapixels") as progress:
        sections = Progress(progress).sections([1] * len(movies))
        parts = zip(movies, masks, sections, strict=True)
        found = [denoise(each, mask=mask, **options, progress=part) for each, mask, part in parts]
    return _of_movies(found) if options["movie"] else found[0]


def _of_movies(found: list[kf.DenoiseResult]) -> kf.DenoiseResult:
    """The results of several movies of the same size, each of which has its own noise, as one."""
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


def _drawn(*images: Any, **options: Any) -> Any:
    """The report. Without one matplotlib is not imported, which takes as long as all else."""
    return kf.plots.plot_denoising(*images, **options)


def _write(
    job: files.Job,
    picture: Picture,
    arguments: Namespace,
    draw: Callable[..., Any],
) -> None:
    """Write image and report, or neither."""
    jpeg_quality = arguments.jpeg_quality if files.is_lossy(job.target) else None
    if not job.report:
        write_image(job.target, picture, jpeg_quality)
        return
    with files.saved_figure(job.report, draw(channel_axis=picture.channel_axis)):
        write_image(job.target, picture, jpeg_quality)


def _size(picture: Picture) -> dict[str, int]:
    *pages, height, width = picture.pixels.shape[: -1 if picture.has_channels else None]
    return {"width": width, "height": height, "n_pages": math.prod(pages)}


def _reference(job: files.Job, picture: Picture, arguments: Namespace) -> NDArray | None:
    """The image without noise, if there is one, as a stack like the noisy one."""
    if job.reference is None:
        return None
    reference = files.picture_with_pages(job.reference, arguments)
    files.check_reference(job.reference, reference, job.source, picture)
    return picture.with_colours(reference.colours).as_stack()


def _floats(pixels: NDArray) -> NDArray:
    """The pixels as floats that hold them exactly, if there are any."""
    single = np.can_cast(pixels.dtype, np.float32)
    return pixels.astype(np.float32 if single else np.float64, copy=False)


def _options(picture: Picture, settings: Settings, arguments: Namespace) -> dict[str, Any]:
    names = ("method", "max_condition", "patch_size", "preset", "quality", "value_range")
    options = chosen(arguments, *names, "strength")
    if picture.channel_axis and arguments.colour_strength is not None:
        options["colour_strength"] = arguments.colour_strength
    options |= {"noise": settings.noise, "rng": arguments.seed}
    options |= {"channel_axis": picture.channel_axis, "stack_axis": 0}
    options["movie"] = picture.along == MOVIE
    if arguments.preset:
        options["quality"] = None  # it has its own, and its own range
    elif not arguments.value_range:
        options["value_range"] = picture.value_range
    if settings.transform is not None:
        options["transform"] = settings.transform
        options["patch_size"] = arguments.patch_size or settings.patch_shape
    elif arguments.share:
        options["share"] = True
    if arguments.volume:  # declared, so that there is no doubt
        warnings.filterwarnings("ignore", "image has shape .* is taken for a volume")
    return options
