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
from kappaform.cli.console import BAD_INPUT, complain, one_line, progress, say, say_json
from kappaform.cli.sources import (
    check_figure,
    check_free,
    emptiness,
    is_same,
    picture_files,
    saved_figure,
)
from kappaform.image_files import Picture, as_stored, check_target, read_image, write_image

_SUFFIX = "_denoised"


class Job(NamedTuple):
    """One picture, where its result goes, and what belongs to it."""

    source: Path
    target: Path
    reference: Path | None
    report: Path | None


def denoise(arguments: Namespace) -> int:
    files, skipped, empty = picture_files(arguments.inputs, arguments.suffix or _SUFFIX)
    jobs = _jobs(files, arguments)
    model = kf.load(arguments.model) if arguments.model else None
    taken = [*files, *(job.reference for job in jobs if job.reference)]
    taken += [Path(arguments.model)] if arguments.model else []
    records: list[dict[str, Any]] = [
        {"input": str(path), "error": emptiness(path)} for path in empty
    ]
    for record in records:
        complain(record["error"])
    for job in jobs:
        try:
            records.append(_denoise_file(job, taken, model, arguments))
            if not arguments.json:
                say(_in_words(records[-1]))
        except BAD_INPUT as error:
            text = one_line(error)
            if str(job.source) not in text:  # the library knows arrays, not files
                text = f"{job.source}: {text}"
            records.append({"input": str(job.source), "error": text})
            complain(text)
    failed = sum("error" in record for record in records)
    if arguments.json:
        say_json({"files": records, "failed": failed, "skipped": skipped})
    elif len(records) + skipped > 1:
        say(f"{len(records) - failed} denoised, {failed} failed, {skipped} skipped")
    return 2 if failed else 0


def _jobs(files: list[Path], arguments: Namespace) -> list[Job]:
    many = len(files) > 1 or any(Path(name).is_dir() for name in arguments.inputs)
    jobs = [
        Job(
            source=file,
            target=_target(file, arguments, many),
            reference=_reference(file, arguments.compare),
            report=_report(file, arguments.report, many),
        )
        for file in files
    ]
    for job in jobs:
        if job.report and is_same(job.target, job.report):
            raise ValueError(
                f"{job.report} is the name of both picture and report: give the report another."
            )
    results = [path for job in jobs for path in (job.target, job.report) if path]
    for path, count in Counter(results).items():
        if count > 1:
            raise ValueError(f"{path} would be written twice: denoise these files one by one.")
    return jobs


def _target(file: Path, arguments: Namespace, many: bool) -> Path:
    output = arguments.output
    if output is None:
        suffix = _SUFFIX if arguments.suffix is None else arguments.suffix
        return file.with_name(f"{file.stem}{suffix}{file.suffix}")
    if not many and not _means_folder(output):
        return Path(output)
    folder = _folder(output, "-o")
    return folder / f"{file.stem}{arguments.suffix or ''}{file.suffix}"


def _report(file: Path, report: str | None, many: bool) -> Path | None:
    if report is None or (not many and not _means_folder(report)):
        return None if report is None else Path(report)
    return _folder(report, "--report") / f"{file.name}_report.png"


def _means_folder(name: str) -> bool:
    return name.endswith(("/", os.sep)) or Path(name).is_dir()


def _folder(name: str, option: str) -> Path:
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{option} {name} is a file: give a folder.")
    folder.mkdir(exist_ok=True)
    return folder


def _reference(file: Path, compare: str | None) -> Path | None:
    if compare is None:
        return None
    return Path(compare) / file.name if Path(compare).is_dir() else Path(compare)


def _denoise_file(job: Job, taken: list[Path], model: Any, arguments: Namespace) -> dict[str, Any]:
    """Denoise one picture; what came of it, for people and programs."""
    picture = _interpreted(job.source, arguments)
    _check_results(job, picture, taken)
    noisy, channel_axis = _without_alpha(picture)
    reference = None
    if job.reference:
        reference, _ = _without_alpha(_interpreted(job.reference, arguments))
        _check_same_shape(job, noisy, reference)
    started = time.perf_counter()
    with progress(job.source.name) as callback:
        options = _options(picture, channel_axis, model, arguments)
        image: Any = noisy if arguments.device is None else _on_device(noisy, arguments.device)
        details = kf.denoise_with_details(image, arguments.sigma, **options, callback=callback)
        if arguments.device is not None:
            cleaned_there: Any = details.image
            details = replace(details, image=cleaned_there.cpu().numpy())
    seconds = time.perf_counter() - started
    cleaned = as_stored(details.image, noisy.dtype)
    record = {
        "input": str(job.source),
        "output": str(job.target),
        "sigma": details.sigma,
        "sigma_estimated": arguments.sigma is None,
        "condition_number": details.condition_number,
        "patch_shape": details.patch_shape,
        "seconds": round(seconds, 3),
    }
    if reference is not None:
        record |= compared(reference, noisy, cleaned, channel_axis, 0 if arguments.stack else None)
    with ExitStack() as results:  # picture and report, or neither
        if job.report:
            written = replace(details, image=cleaned)
            figure = kf.plots.plot_denoising(noisy, written, reference, channel_axis=channel_axis)
            results.enter_context(saved_figure(job.report, figure))
            record["report"] = str(job.report)
        write_image(job.target, picture._replace(pixels=_with_alpha(cleaned, picture)))
    return record


def _on_device(pixels: NDArray, name: str) -> Any:
    """Tensor of a picture; its integers as floats, because torch does not know them all."""
    from kappaform.imaging.clean_torch import device_named

    device = device_named(name)
    import torch

    floats = pixels.astype(np.float32 if pixels.dtype == np.float32 else np.float64)
    return torch.from_numpy(floats).to(device)


def _check_results(job: Job, picture: Picture, taken: list[Path]) -> None:
    """Refuse, before any work is done, results that could not be written or would destroy."""
    check_free(job.target, taken)
    check_target(job.target, picture)
    if job.report:
        check_free(job.report, taken)
        check_figure(job.report)


def compared(
    reference: NDArray,
    noisy: NDArray,
    cleaned: NDArray,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
) -> dict[str, float]:
    """PSNR and SSIM of a picture before and after."""
    from kappaform.imaging.quality import psnr, ssim

    axes = {"channel_axis": channel_axis, "stack_axis": stack_axis}
    return {
        "psnr_before": psnr(reference, noisy),
        "psnr_after": psnr(reference, cleaned),
        "ssim_before": ssim(reference, noisy, **axes),
        "ssim_after": ssim(reference, cleaned, **axes),
    }


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


def _options(
    picture: Picture, channel_axis: int | None, model: Any, arguments: Namespace
) -> dict[str, Any]:
    value_range = arguments.value_range
    whole = picture.pixels.dtype in (np.uint8, np.uint16)
    if value_range is None and whole and arguments.preset is None:  # a preset has its own
        value_range = (0, np.iinfo(picture.pixels.dtype).max)
    options = {
        "method": arguments.method,
        "max_condition": arguments.max_condition,
        "patch_size": arguments.patch_size,
        "preset": arguments.preset,
        "value_range": None if value_range is None else tuple(value_range),
        "channel_axis": channel_axis,
        "stack_axis": 0 if arguments.stack else None,
        "rng": arguments.seed,
    }
    if model is not None:
        options["transform"] = model.result_.transform
        options["patch_size"] = arguments.patch_size or model.patch_shape_
    return options


def _without_alpha(picture: Picture) -> tuple[NDArray, int | None]:
    """What is denoised of a picture, and where its colours are."""
    pixels = picture.pixels[..., :-1] if picture.has_alpha else picture.pixels
    if picture.has_channels and pixels.shape[-1] == 1:
        return pixels[..., 0], None
    return pixels, -1 if picture.has_channels else None


def _with_alpha(cleaned: NDArray, picture: Picture) -> NDArray:
    if not picture.has_channels:
        return cleaned
    colours = cleaned.reshape(*picture.pixels.shape[:-1], -1)
    alpha = picture.pixels[..., colours.shape[-1] :]
    return np.concatenate([colours, alpha], axis=-1)


def _check_same_shape(job: Job, noisy: NDArray, reference: NDArray) -> None:
    if noisy.shape != reference.shape:
        raise ValueError(
            f"{job.reference} has shape {reference.shape}, {job.source} {noisy.shape}: a reference "
            "is of the same size."
        )


def _in_words(record: dict[str, Any]) -> str:
    sigmas = np.ravel(record["sigma"])
    text = ", ".join(f"{value:.4g}" for value in sigmas)
    if sigmas.min() == sigmas.max() or sigmas.size > 4:  # the slices of a stack may be many
        text = " to ".join(f"{value:.4g}" for value in np.unique([sigmas.min(), sigmas.max()]))
    facts = [f"sigma {text}" + " (estimated)" * record["sigma_estimated"]]
    facts.append(f"condition number {record['condition_number']:.4f}")
    if "psnr_after" in record:
        facts.append("PSNR {psnr_before:.2f} -> {psnr_after:.2f} dB".format(**record))
        facts.append("SSIM {ssim_before:.4f} -> {ssim_after:.4f}".format(**record))
    facts.append(f"{record['seconds']:.1f} s")
    return f"{record['input']} -> {record['output']}: {', '.join(facts)}"
