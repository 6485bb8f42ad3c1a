"""What the command reports about a denoised image, in words and in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kappaform as kf
from kappaform.cli import messages
from kappaform.imaging.axes import doubt_about_sigma
from kappaform.imaging.noise.estimate import UNSURE
from kappaform.threads import n_threads

# Seconds of one thread per megapixel of a plane, on a machine of 2026, and of learning from a plane
# with a few thousand pixels or more. Twice the seconds on two threads of benchmarks/results/
# amd-epyc.json, where learning hardly counts: "12 megapixels in colour" for fast and balanced,
# "2048 x 2048" for best. Learning is what "512 x 512" takes beyond that, 0 to 0.5 on one thread.
SECONDS = {"fast": 1.8, "balanced": 4.3, "best": 12.6}
_LEARNING, _FEW_PIXELS = 0.5, 5e4
LONG = 30  #: seconds: worth announcing


def line_of(record: dict[str, Any], verbose: bool) -> str:
    """The line of one image: size, noise and time; with `verbose`, details of the transform."""
    names = f"{record['input']} -> {record['output']}"
    if "kept" in record:
        return f"{names}: skipped, the output exists (--overwrite replaces it)"
    facts = ["{width} × {height}".format(**record)]
    if record["n_pages"] > 1:
        kinds = [kind for kind in ("volumes", "movies") if record[f"n_{kind}"] > 1]
        several = "".join(f" as {record[f'n_{kind}']} {kind}" for kind in kinds)
        facts = ["{n_pages} pages of {width} × {height}".format(**record) + several]
    facts.append(noise_in_words(record) + _doubt(record) * record["noise_estimated"])
    if "noise_file" in record:
        facts[-1] += f" ({record['noise_file']})"
    if record["unchanged"]:
        facts.append("left unchanged")
    if record["strength"] != 1 or record["colour_strength"] != 1:
        facts.append("strength {strength:g}".format(**record))
    if record["colour_strength"] != record["strength"]:
        facts[-1] += ", of colours {colour_strength:g}".format(**record)
    if "psnr_after" in record:
        facts.append("PSNR {psnr_before:.2f} -> {psnr_after:.2f} dB".format(**record))
        facts.append("SSIM {ssim_before:.4f} -> {ssim_after:.4f}".format(**record))
    if verbose:
        facts.append("patches {}".format(" × ".join(map(str, record["patch_shape"]))))
        facts.append("condition number {condition_number:.4f}".format(**record))
    facts.append("{seconds:.1f} s".format(**record))
    return f"{names}: {', '.join(facts)}"


def compared(
    reference: NDArray, noisy: NDArray, denoised: NDArray, **axes: int | None
) -> dict[str, float]:
    """PSNR and SSIM of an image before and after, and the range of values that they refer to."""
    from kappaform.imaging.metrics import data_range, psnr, ssim

    return {
        "data_range": data_range(reference),
        "psnr_before": psnr(reference, noisy),
        "psnr_after": psnr(reference, denoised),
        "ssim_before": ssim(reference, noisy, **axes),
        "ssim_after": ssim(reference, denoised, **axes),
    }


def facts_of(details: kf.DenoiseResult, n_channels: int) -> dict[str, Any]:
    """How an image was denoised, with the noise of every image of its stack."""
    noises = _noises(details)
    return {
        "noise": [noise_facts(noise, n_channels, details.patch_shape) for noise in noises],
        "noise_confidence": [noise.confidence for noise in noises],
        "noise_evidence": [noise.evidence for noise in noises],
        "noise_alternative": [noise.alternative for noise in noises],
        "sigma": details.sigma,
        "condition_number": details.condition_number,
        "patch_shape": details.patch_shape,
    }


def _noises(details: kf.DenoiseResult) -> tuple[Any, ...]:
    """The noise of each image of a stack."""
    return details.noise if isinstance(details.noise, tuple) else (details.noise,)


def noise_facts(noise: Any, n_channels: int, patch_shape: tuple[int, ...]) -> dict[str, Any]:
    """Kind and parameters of a noise, for JSON."""
    kind = type(noise).__name__.lower()
    if not isinstance(noise, kf.Correlated):
        return {"kind": kind} | {k: v for k, v in noise.parameters.items() if v is not None}
    facts: dict[str, Any] = {"kind": kind}
    facts["deviation"] = np.squeeze(noise.deviations(n_channels, patch_shape))
    for name in ("covariance", "autocovariance"):
        if getattr(noise, name) is not None:  # too large to print
            facts[f"{name}_shape"] = np.shape(getattr(noise, name))
    if noise.stabiliser is not None:  # the standard deviation is that of stabilised values
        facts["stabiliser"] = noise_facts(noise.stabiliser, n_channels, patch_shape)
    return facts


def _doubt(record: dict[str, Any]) -> str:
    """A note that the noise was estimated; if that is uncertain, with the reason and a remedy."""
    names = ("noise_confidence", "noise_evidence", "noise_alternative")
    confidence, evidence, alternative = min(zip(*map(record.get, names), strict=True))
    if confidence >= UNSURE:
        return " (estimated)"
    others = {"": "--sigma or --noise correlated", "sigma": "--sigma"}
    remedy = others.get(alternative, f"--noise {alternative}")
    return f" (estimated; unsure: {evidence}; try {remedy})"


def noise_in_words(record: dict[str, Any]) -> str:
    """The noise of a file; with several channels or pages, the range of each parameter."""
    noises, size = record["noise"], span(record["sigma"])
    kinds = {each["kind"] for each in noises}
    if kinds == {"white"}:
        return f"noise {size}"
    if kinds == {"shot"}:
        names = ["gain", "read_noise"]
        names += ["offset"] if any(np.any(each["offset"]) for each in noises) else []
        values = ((name, np.hstack([each[name] for each in noises])) for name in names)
        sizes = (f"{name.replace('_', ' ')} {span(numbers)}" for name, numbers in values)
        return f"shot noise, {', '.join(sizes)}"
    if len(kinds) > 1:
        return f"several kinds of noise, {size} at mean brightness"
    depends = any("stabiliser" in each for each in noises)
    return f"{kinds.pop()} noise {size}" + " at mean brightness" * depends


def span(values: Any) -> str:
    """The smallest and the largest of several numbers, or the only one."""
    least, largest = short(np.min(values)), short(np.max(values))
    return least if least == largest else f"{least} to {largest}"


def short(number: float) -> str:
    """Three significant digits, or all before the decimal point."""
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"


#: Warning about an image that `is_rough`.
ROUGH = (
    "its noise is shot noise of a few photons and its values are integers, to which the result is "
    "rounded: convert it to floats (TIFF, NPY) first for a finer result."
)
_LEAST_NOISE = 3.0  # of integers: the residual of weaker noise is close to the rounding error, 0.3


def is_rough(details: Any, dtype: np.dtype) -> bool:
    """Whether integers are too coarse for the residual of the shot noise of a few photons."""
    is_shot = any(isinstance(each, kf.Shot) for each in _noises(details))
    return dtype.kind in "iu" and is_shot and bool(np.max(details.sigma) < _LEAST_NOISE)


def warn_about_sigma(sigma: float, values: NDArray, source: Path) -> None:
    """Warn about a sigma that cannot be meant in values of the file, but on another scale."""
    if doubt := doubt_about_sigma(sigma, float(values.min()), float(values.max()), values.dtype):
        messages.warn(
            f"{source}: --sigma {sigma:g} {doubt}: it is the standard deviation of the noise in "
            "values of the file."
        )


def in_minutes(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"


def seconds_of(n_planes: int, n_pixels: int, quality: str) -> float:
    """Time for planes of so many pixels, on the machine of the rates and this number of threads."""
    learning = _LEARNING * min(1.0, n_pixels / _FEW_PIXELS)
    return n_planes * (learning + n_pixels / 1e6 * SECONDS[quality]) / n_threads()


def tell_duration(title: str, n_pixels: int, quality: str) -> None:
    """Announce about how long a long job will take: machines differ."""
    seconds = seconds_of(1, n_pixels, quality)
    if seconds >= LONG:
        faster = "" if quality == "fast" else "; --quality fast takes less"
        messages.note(f"{title}: this will take about {in_minutes(seconds)}{faster}")
