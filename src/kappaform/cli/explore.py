"""`kappaform explore`: a page on which one drags the bound and sees what it does to a picture."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.cli import messages, results
from kappaform.cli.options import check_patch_size, given_noise
from kappaform.cli.pictures import check_reference, one_picture
from kappaform.explore import About, Exploration, page_of
from kappaform.explore import explore as explored
from kappaform.files import replaced_when_complete
from kappaform.image_files import Picture

#: Pixels along a side: a page of twelve bounds then takes less than a minute and 5 MB.
MOST_PIXELS = 512
#: Positions of the slider: with more, the page would be large or its pictures poor.
_MOST_BOUNDS = 25


def explore(arguments: Namespace) -> None:
    started = time.perf_counter()
    source, target = Path(arguments.input), Path(arguments.output)
    reference = Path(arguments.compare) if arguments.compare else None
    inputs = results.identities([source, *([reference] if reference else [])])
    results.check_output(target, inputs, (".html", ".htm"), overwrite=arguments.overwrite)
    _check_settings(arguments)
    picture = one_picture(source)
    image = picture.colours
    clean = None
    if reference:
        clean_picture = one_picture(reference)
        check_reference(reference, clean_picture, source, picture)
        clean = clean_picture.colours
    part = _middle(image.shape)
    with messages.warnings_about(source), messages.progress("exploring", "the bounds") as progress:
        result = _explored(picture, part, arguments, progress)
    name = _printable(source.name)
    about = About(
        name, _said(name, image, part), arguments.sigma is None and arguments.gain is None
    )
    page, quality = page_of(result, about, None if clean is None else clean[part])
    with replaced_when_complete(target) as file:
        file.write(page.encode())
    height, width = result.image.shape[:2]
    facts: dict[str, Any] = {
        "input": about.source,
        "output": str(target),
        "width": width,
        "height": height,
        "noise": f"{result.noise}{' (estimated)' * about.estimated}",
        "bounds": ", ".join(f"{view.bound:g}" for view in result.views),
        "best_bound": result.views[result.best].bound,
        "quality_of_pictures": quality,
        "megabytes": round(len(page.encode()) / 1e6, 2),
        "seconds": round(time.perf_counter() - started, 1),
    }
    messages.tell(facts, arguments.json)


def _check_settings(arguments: Namespace) -> None:
    check_patch_size(arguments.patch_size, n_axes=2)
    n_bounds = len(set(arguments.bounds))
    if not 2 <= n_bounds <= _MOST_BOUNDS:
        raise ValueError(
            f"--bounds: {n_bounds} different ones are given; a slider has 2 to {_MOST_BOUNDS}."
        )
    n_pixels = arguments.patch_size**2
    if arguments.n_nonzero and arguments.n_nonzero > n_pixels:
        text = f"--n-nonzero {arguments.n_nonzero} exceeds the {n_pixels} pixels of a patch"
        raise ValueError(f"{text}: give less.")


def _middle(shape: tuple[int, ...]) -> tuple[slice, slice]:
    """The part of a picture that is explored: all of it, or the middle of a large one."""
    starts = [max(0, (side - MOST_PIXELS) // 2) for side in shape[:2]]
    rows, columns = (slice(start, start + MOST_PIXELS) for start in starts)
    return rows, columns


def _said(name: str, image: NDArray, part: tuple[slice, slice]) -> str:
    height, width = image.shape[:2]
    whole = image[part].shape == image.shape
    return name if whole else f"the middle of {name} ({width} × {height} pixels)"


def _printable(name: str) -> str:
    """A file name as text: bytes that are no letters are shown by their numbers."""
    return name.encode("utf-8", "backslashreplace").decode()


def _explored(
    picture: Picture, part: tuple[slice, slice], arguments: Namespace, progress: Any
) -> Exploration:
    try:
        return explored(
            picture.colours[part],
            arguments.bounds,
            grey=picture.grey[part].astype(np.float64),
            noise=given_noise(arguments),
            patch_size=arguments.patch_size,
            n_nonzero=arguments.n_nonzero,
            value_range=picture.value_range,
            rng=arguments.seed,
            progress=progress,
        )
    except ValueError as error:
        raise ValueError(f"{arguments.input}: {error}") from error
