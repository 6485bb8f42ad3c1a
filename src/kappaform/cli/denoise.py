"""`kappaform denoise`: one picture or many; a failure costs only its own picture."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import kappaform as kf
from kappaform.cli import io
from kappaform.image_files import Picture, as_stored, check_target, read_image, write_image

_SUFFIX = "_denoised"


class Job(NamedTuple):
    """One picture, where its result goes, and what belongs to it."""

    source: Path
    target: Path
    reference: Path | None
    report: Path | None


def denoise(arguments: Namespace) -> int:
    files, n_skipped, errors = io.picture_files(arguments.inputs, arguments.suffix or _SUFFIX)
    jobs = _jobs(files, arguments)
    model = kf.load(arguments.model) if arguments.model else None
    taken = [*files, *(job.reference for job in jobs if job.reference)]
    taken += [Path(arguments.model)] if arguments.model else []
    records: list[dict[str, Any]] = []
    codes = [io.REFUSED] * len(errors)
    for path, text in errors.items():
        records.append({"input": str(path), "error": text})
        io.complain(text)
    for job in jobs:
        try:
            records.append(_denoise_file(job, taken, model, arguments))
            if not arguments.json:
                io.say(_in_words(records[-1]))
        except BrokenPipeError:
            raise
        except Exception as error:
            code, text = io.failure(error, arguments.debug, str(job.source))
            codes.append(code)
            records.append({"input": str(job.source), "error": text})
            io.complain(text)
    if arguments.json:
        io.say_json({"files": records, "failed": len(codes), "skipped": n_skipped})
    elif len(records) + n_skipped > 1:
        n_denoised = len(records) - len(codes)
        io.say(f"{n_denoised} denoised, {len(codes)} failed, {n_skipped} skipped")
    return max(codes, default=0)


def _jobs(files: list[Path], arguments: Namespace) -> list[Job]:
    """What is to be done, with no name written twice."""
    many = len(files) > 1 or any(Path(name).is_dir() for name in arguments.inputs)
    jobs = [_job(file, arguments, many) for file in files]
    for job in jobs:
        if job.report and io.is_same(job.target, job.report):
            raise ValueError(
                f"{job.report} is the name of both picture and report: give the report another."
            )
    results = [path for job in jobs for path in (job.target, job.report) if path]
    for path, count in Counter(results).items():
        if count > 1:
            raise ValueError(f"{path} would be written twice: denoise these files one by one.")
    return jobs


def _job(file: Path, arguments: Namespace, many: bool) -> Job:
    output, suffix = arguments.output, arguments.suffix
    if suffix is None:
        suffix = "" if output else _SUFFIX
    name = f"{file.stem}{suffix}{file.suffix}"
    target = _place("-o", output, name, many) if output else file.with_name(name)
    report = None
    if arguments.report:
        report = _place("--report", arguments.report, f"{file.name}_report.png", many)
    reference = Path(arguments.compare) if arguments.compare else None
    if reference and reference.is_dir():
        reference = reference / file.name
    return Job(file, target, reference, report)


def _place(option: str, given: str, name: str, many: bool) -> Path:
    """The file that is given, or the one of that name in the folder that is given."""
    path = Path(given)
    if not many and not given.endswith(("/", os.sep)) and not path.is_dir():
        return path
    if path.exists() and not path.is_dir():
        raise ValueError(f"{option} {given} is a file: give a folder.")
    path.mkdir(exist_ok=True)
    return path / name


def _denoise_file(job: Job, taken: list[Path], model: Any, arguments: Namespace) -> dict[str, Any]:
    """Denoise one picture; what came of it, for people and programs."""
    picture = _interpreted(job.source, arguments)
    io.check_output(job.target, taken)
    target = check_target(job.target, picture)
    if job.report:
        io.check_output(job.report, taken, io.FIGURES)
    noisy, reference = picture.colours, None
    if job.reference:
        reference = _interpreted(job.reference, arguments).colours
        if noisy.shape != reference.shape:
            raise ValueError(
                f"{job.reference} has shape {reference.shape}, {job.source} {noisy.shape}: a "
                "reference is of the same size."
            )
    started = time.perf_counter()
    with io.progress(job.source.name) as callback:
        options = _options(picture, model, arguments)
        image = _floats(noisy, arguments.device)
        details = kf.denoise_with_details(image, arguments.sigma, **options, callback=callback)
    cleaned: Any = details.image
    cleaned = as_stored(cleaned.cpu().numpy() if arguments.device else cleaned, noisy.dtype)
    record = {
        "input": str(job.source),
        "output": str(job.target),
        "sigma": details.sigma,
        "sigma_estimated": arguments.sigma is None,
        "condition_number": details.condition_number,
        "patch_shape": details.patch_shape,
        "seconds": round(time.perf_counter() - started, 3),
    }
    axes = {name: options[name] for name in ("channel_axis", "stack_axis")}
    if reference is not None:
        record |= compared(reference, noisy, cleaned, **axes)
    with ExitStack() as results:  # picture and report, or neither
        if job.report:
            written = replace(details, image=cleaned)
            channel_axis = axes["channel_axis"]
            figure = kf.plots.plot_denoising(noisy, written, reference, channel_axis=channel_axis)
            results.enter_context(io.saved_figure(job.report, figure))
            record["report"] = str(job.report)
        write_image(target, picture.with_colours(cleaned))
    return record


def _interpreted(path: Path, arguments: Namespace) -> Picture:
    """The picture in a file, with its pages, if any, being what the arguments say."""
    picture = read_image(path)
    declared = arguments.volume or arguments.stack
    if declared and path.suffix.lower() == ".npy" and picture.pixels.ndim == 3:
        picture = picture._replace(has_channels=False)
    if picture.has_pages and not declared:
        raise ValueError(
            f"{path} has pages, shape {picture.pixels.shape}: add --stack to denoise each on its "
            "own, or --volume if they are slices of one volume."
        )
    if declared and not picture.has_pages:
        option = "--volume" if arguments.volume else "--stack"
        raise ValueError(
            f"{path} has a single page, shape {picture.pixels.shape}: leave {option} out."
        )
    return picture


def _floats(pixels: NDArray, device: str | None) -> Any:
    """The pixels as floats that hold them exactly, as a tensor if there is a device for it."""
    single = np.can_cast(pixels.dtype, np.float32)
    floats = pixels.astype(np.float32 if single else np.float64, copy=False)
    if device is None:
        return floats
    from kappaform.imaging.clean_torch import device_named

    place = device_named(device)
    import torch

    return torch.from_numpy(np.ascontiguousarray(floats)).to(place)


def _options(picture: Picture, model: Any, arguments: Namespace) -> dict[str, Any]:
    value_range = arguments.value_range
    dtype = picture.pixels.dtype
    if value_range is None and dtype in (np.uint8, np.uint16) and arguments.preset is None:
        value_range = (0, np.iinfo(dtype).max)  # a preset has its own
    options = {
        "method": arguments.method,
        "max_condition": arguments.max_condition,
        "patch_size": arguments.patch_size,
        "preset": arguments.preset,
        "value_range": None if value_range is None else tuple(value_range),
        "channel_axis": picture.channel_axis,
        "stack_axis": 0 if arguments.stack else None,
        "rng": arguments.seed,
    }
    if model is not None:
        options["transform"] = model.result_.transform
        options["patch_size"] = arguments.patch_size or model.patch_shape_
    return options


def compared(
    reference: NDArray, noisy: NDArray, cleaned: NDArray, **axes: int | None
) -> dict[str, float]:
    """PSNR and SSIM of a picture before and after."""
    from kappaform.imaging.quality import psnr, ssim

    return {
        "psnr_before": psnr(reference, noisy),
        "psnr_after": psnr(reference, cleaned),
        "ssim_before": ssim(reference, noisy, **axes),
        "ssim_after": ssim(reference, cleaned, **axes),
    }


def _in_words(record: dict[str, Any]) -> str:
    least, largest = np.min(record["sigma"]), np.max(record["sigma"])  # of channels and pages
    text = f"{least:.4g}" if least == largest else f"{least:.4g} to {largest:.4g}"
    facts = [f"sigma {text}" + " (estimated)" * record["sigma_estimated"]]
    facts.append(f"condition number {record['condition_number']:.4f}")
    if "psnr_after" in record:
        facts.append("PSNR {psnr_before:.2f} -> {psnr_after:.2f} dB".format(**record))
        facts.append("SSIM {ssim_before:.4f} -> {ssim_after:.4f}".format(**record))
    facts.append(f"{record['seconds']:.1f} s")
    return f"{record['input']} -> {record['output']}: {', '.join(facts)}"
