"""`kappaform inpaint`: fill the missing pixels of an image."""

from __future__ import annotations

import time
import warnings
from argparse import Namespace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import counted
from kappaform.cli import files, holes, messages
from kappaform.cli.denoise import name_device, warn_about_pages
from kappaform.image_files import Picture, as_stored, check_target, write_image
from kappaform.image_files.picture import MOVIE
from kappaform.imaging.inpaint import inpaint_on
from kappaform.imaging.progress import Progress


def inpaint(arguments: Namespace) -> None:
    started = time.perf_counter()
    source = Path(arguments.input)
    (target,) = files.outputs(arguments, [source, arguments.mask], output=())
    picture = files.picture_with_pages(source, arguments, leaves_holes=True)
    check_target(target, picture)
    name_device(arguments)
    if not picture.has_pages:
        warn_about_pages(arguments)
    stack, missing = picture.as_stack(), _missing(picture, arguments)
    number = int(np.count_nonzero(missing))
    if number == 0 and np.isfinite(stack).all():
        messages.warn(f"{source}: nothing is missing, the image is written as it is.")
        filled = stack
    else:
        with messages.warnings_about(source, target):
            filled = as_stored(_filled(picture, missing, arguments), stack.dtype)
        np.copyto(filled, stack, where=~missing)  # exactly, whatever their type
    write_image(target, picture.with_stack(filled), None)
    facts = {
        "input": str(source),
        "output": str(target),
        "filled": number,
        "percent": round(100 * number / missing.size, 3),
        "seconds": round(time.perf_counter() - started, 3),
    }
    if arguments.json:
        messages.say_json(facts)
    else:
        text = "{input} -> {output}: {values} filled ({percent:.3g} %), {seconds:.1f} s"
        messages.say(text.format(**facts, values=counted(number, "value")))


def _missing(picture: Picture, arguments: Namespace) -> NDArray:
    """Which values are missing, for any of the reasons."""
    stack = picture.as_stack()
    missing = np.isnan(stack) if stack.dtype.kind == "f" else np.zeros(stack.shape, bool)
    if arguments.mask:
        missing = missing | holes.masked(picture, arguments.mask)
    if (without := picture.without_data) is not None:
        missing = missing | without
    if arguments.dead_pixels:
        missing = missing | holes.dead(picture, ~missing)
    return missing


def _filled(picture: Picture, missing: NDArray, arguments: Namespace) -> NDArray:
    """The stack with its missing pixels filled; shows progress."""
    stack, is_movie = picture.as_stack().astype(np.float64), picture.along == MOVIE
    value_range = arguments.value_range or picture.value_range
    movies = zip(stack, missing, strict=True) if is_movie else [(stack, missing)]
    n_movies = len(stack) if is_movie else 1
    work = counted(np.count_nonzero(missing), "value")
    with messages.calling_library(Path(arguments.input).name, work) as progress:
        if arguments.volume:  # declared, so that there is no doubt
            warnings.filterwarnings("ignore", "image has shape .* is taken for a volume")
        warnings.filterwarnings("ignore", "nothing is missing")  # in a movie among several
        parts = Progress(progress).sections([1] * n_movies)
        found = [
            inpaint_on(
                arguments.device,
                images,
                mask,
                quality=arguments.quality,
                value_range=value_range,
                channel_axis=picture.channel_axis,
                stack_axis=0,
                movie=is_movie,
                rng=arguments.seed,
                progress=part,
            )
            for (images, mask), part in zip(movies, parts, strict=True)
        ]
    return np.stack(found) if is_movie else found[0]
