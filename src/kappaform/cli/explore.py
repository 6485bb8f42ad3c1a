"""`kappaform explore`: a page with a slider over the bound, and its effects on an image."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from kappaform.cli import files, messages
from kappaform.cli.options import check_patch_size, given_noise
from kappaform.explore import About, page_of
from kappaform.explore import explore as explored
from kappaform.files import replaced_when_complete
from kappaform.imaging.options import warn_about_patches

#: Pixels along a side: a page of twelve bounds then takes less than a minute and 5 MB.
MOST_PIXELS = 512
#: Positions of the slider: with more, the page would be large or its images poor.
_MOST_BOUNDS = 25


def explore(arguments: Namespace) -> None:
    started = time.perf_counter()
    source = Path(arguments.input)
    reference = Path(arguments.compare) if arguments.compare else None
    (target,) = files.outputs(arguments, [source, reference], output=(".html", ".htm"))
    check_patch_size(arguments.patch_size, n_axes=2)
    warn_about_patches((arguments.patch_size, arguments.patch_size))
    n_bounds = len(set(arguments.bounds))
    if not 2 <= n_bounds <= _MOST_BOUNDS:
        text = f"--bounds: the slider has 2 to {_MOST_BOUNDS} different positions"
        raise ValueError(f"{text}, {n_bounds} given.")
    noise, _ = given_noise(arguments)
    picture, clean = files.one_picture(source), None
    part = _centre(picture.pixels.shape)
    if reference:
        clean_picture = files.one_picture(reference)
        files.check_reference(reference, clean_picture, source, picture)
        clean = clean_picture.colours[part]
    image = picture.colours[part]
    library = messages.calling_library("exploring", "the bounds")
    try:
        with messages.warnings_about(source), library as progress:
            result = explored(
                image,
                arguments.bounds,
                grey=picture.grey[part].astype(np.float64),
                noise=noise,
                patch_size=arguments.patch_size,
                n_nonzero=arguments.n_nonzero,
                value_range=picture.value_range,
                rng=arguments.seed,
                progress=progress,
            )
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    about = _about(source, picture.pixels.shape, image.shape, isinstance(noise, str | None))
    page, webp_quality = page_of(result, about, clean)
    with replaced_when_complete(target) as file:
        file.write(page.encode())
    facts: dict[str, Any] = {
        "input": about.source,
        "output": str(target),
        "width": image.shape[1],
        "height": image.shape[0],
        "noise": f"{result.noise}{' (estimated)' * about.estimated}",
        "bounds": ", ".join(f"{view.bound:g}" for view in result.views),
        "best_bound": result.views[result.best].bound,
        "quality_of_pictures": webp_quality,
        "megabytes": round(len(page.encode()) / 1e6, 2),
        "seconds": round(time.perf_counter() - started, 1),
    }
    messages.report(facts, arguments.json)


def _centre(shape: tuple[int, ...]) -> tuple[slice, slice]:
    """The part of an image that is explored: all of it, or the centre of a large one."""
    starts = [max(0, (side - MOST_PIXELS) // 2) for side in shape[:2]]
    rows, columns = (slice(start, start + MOST_PIXELS) for start in starts)
    return rows, columns


def _about(source: Path, whole: tuple[int, ...], shown: tuple[int, ...], estimated: bool) -> About:
    name = source.name.encode("utf-8", "backslashreplace").decode()  # it may have any bytes
    if shown[:2] == whole[:2]:
        return About(name, name, estimated)
    return About(name, f"the centre of {name} ({whole[1]} × {whole[0]} pixels)", estimated)
