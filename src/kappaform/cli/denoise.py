"""`kappaform denoise`: one picture or many; a failure costs only its own picture."""

from __future__ import annotations

import os
import time
import warnings
from argparse import Namespace
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
    if arguments.device is not None:
        from kappaform.imaging.clean_torch import device_named

        arguments.device = device_named(arguments.device)
    taken = [*files, *(job.reference for job in jobs if job.reference)]
    taken += [Path(arguments.model)] if arguments.model else []
    records: list[dict[str, Any]] = []
    codes: list[int] = []

    def failed(source: Path, error: Exception) -> None:
        code, text = io.failure(error, arguments.debug, str(source))
        codes.append(code)
        records.append({"input": str(source), "error": text})
        io.complain(text)

    for folder, error in errors.items():
        failed(folder, error)
    for job in jobs:
        try:
            records.append(_denoise_file(job, taken, model, arguments))
            if not arguments.json:
                io.say(_in_words(records[-1]))
        except BrokenPipeError:
            raise
        except Exception as error:
            failed(job.source, error)
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
    seen = set()
    for path in (path for job in jobs for path in (job.target, job.report) if path):
        file = os.path.realpath(path)
        if file in seen:
            raise ValueError(f"{path} would be written twice: give each result its own name.")
        seen.add(file)
    return jobs


def _job(file: Path, arguments: Namespace, many: bool) -> Job:
    def place(option: str, given: str, name: str) -> Path:
        """The file that is given, or the one of that name in the folder that is given."""
        path = Path(given)
        if not many and not given.endswith(("/", os.sep)) and not path.is_dir():
            return path
        if path.exists() and not path.is_dir():
            raise ValueError(f"{option} {given} is a file: give a folder.")
        path.mkdir(exist_ok=True)
        return path / name

    output, suffix, report = arguments.output, arguments.suffix, arguments.report
    if suffix is None:
        suffix = "" if output else _SUFFIX
    name = f"{file.stem}{suffix}{file.suffix}"
    target = place("-o", output, name) if output else file.with_name(name)
    reference = Path(arguments.compare) if arguments.compare else None
    if reference and reference.is_dir():
        reference = reference / file.name
    drawing = place("--report", report, f"{file.name}_report.png") if report else None
    return Job(file, target, reference, drawing)


def _denoise_file(job: Job, taken: list[Path], model: Any, arguments: Namespace) -> dict[str, Any]:
    """Denoise one picture; what came of it, for people and programs."""
    picture = _interpreted(job.source, arguments)
    io.check_output(job.target, taken)
    check_target(job.target, picture)
    if job.report:
        io.check_output(job.report, taken, io.FIGURES)
    noisy, reference = picture.colours, None
    if job.reference:
        reference = _interpreted(job.reference, arguments).colours
        if noisy.shape != reference.shape:
            raise ValueError(
                f"{job.reference} has shape {reference.shape}, {job.source} {noisy.shape}: a "
                "reference has the same size."
            )
    started = time.perf_counter()
    options = _options(picture, model, arguments)
    with io.progress(job.source.name) as callback:
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
    if reference is not None:
        axes = {name: options[name] for name in ("channel_axis", "stack_axis")}
        record |= compared(reference, noisy, cleaned, **axes)
    with ExitStack() as results:  # picture and report, or neither
        if job.report:
            shown, channel_axis = replace(details, image=cleaned), picture.channel_axis
            figure = kf.plots.plot_denoising(noisy, shown, reference, channel_axis=channel_axis)
            results.enter_context(io.saved_figure(job.report, figure))
            record["report"] = str(job.report)
        write_image(job.target, picture.with_colours(cleaned))
    return record


def _interpreted(path: Path, arguments: Namespace) -> Picture:
    """The picture in a file, with its pages, if any, being what the arguments say."""
    picture = read_image(path)
    shape = picture.pixels.shape
    option = "--volume" if arguments.volume else "--stack" if arguments.stack else ""
    if option and path.suffix.lower() == ".npy" and len(shape) == 3:
        picture = picture._replace(has_channels=False)
    if picture.has_pages and not option:
        raise ValueError(
            f"{path} has pages, shape {shape}: add --stack to denoise each on its own, or --volume "
            "if they are slices of one volume."
        )
    if option and not picture.has_pages:
        raise ValueError(f"{path} has a single page, shape {shape}: leave {option} out.")
    return picture


def _floats(pixels: NDArray, device: Any) -> Any:
    """The pixels as floats that hold them exactly, as a tensor if there is a device for it."""
    single = np.can_cast(pixels.dtype, np.float32)
    floats = pixels.astype(np.float32 if single else np.float64, copy=False)
    if device is None:
        return floats
    import torch

    return torch.from_numpy(np.ascontiguousarray(floats)).to(device)


def _options(picture: Picture, model: Any, arguments: Namespace) -> dict[str, Any]:
    names = ("method", "max_condition", "patch_size", "preset", "value_range")
    options = io.chosen(arguments, *names) | {"rng": arguments.seed}
    options["channel_axis"] = picture.channel_axis
    options["stack_axis"] = 0 if arguments.stack else None
    dtype = picture.pixels.dtype
    if not arguments.value_range and not arguments.preset and dtype in (np.uint8, np.uint16):
        options["value_range"] = (0, np.iinfo(dtype).max)  # a preset has its own
    if model is not None:
        options["transform"] = model.result_.transform
        options["patch_size"] = arguments.patch_size or model.patch_shape_
    if arguments.volume:  # declared, so that there is no doubt
        warnings.filterwarnings("ignore", "image has shape .* is taken for a volume")
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
