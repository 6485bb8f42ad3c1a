"""`kappaform noise`: the noise of a camera, measured once and used for its other images."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kappaform as kf
from kappaform.cli import files, messages
from kappaform.cli.words import noise_facts
from kappaform.image_files import Picture, read_image
from kappaform.image_files.exif import camera_of
from kappaform.imaging.noise.files import Camera


def noise(arguments: Namespace) -> None:
    """Measure the noise of images and save it."""
    dark = arguments.dark or []
    if not arguments.inputs and not dark:
        raise ValueError("no image is given: name images, or --dark frames.")
    sources = [files.all_pictures(names) for names in (arguments.inputs, dark)]
    (target,) = files.outputs(arguments, [*sources[0], *sources[1]], output=(".json",))
    (bright, cameras), (black, others) = (_read(paths) for paths in sources)
    camera = _common({**cameras, **others})
    images = [*bright, *black]
    has_channels = images[0].ndim == 3
    if any(image.ndim != images[0].ndim for image in images):
        raise ValueError("some images are grey and some have colours: measure them separately.")
    options: dict[str, Any] = {"frames": arguments.frames, "dark": black}
    options["channel_axis"] = -1 if has_channels else None
    first = next(path for paths in sources for path in paths)
    with messages.warnings_about(first), messages.calling_library():
        found = kf.measure_noise(bright, **options)
    about: dict[str, Any] = {"camera": camera.model, "iso": camera.iso, "dtype": camera.dtype}
    kf.save_noise(target, found, **about)
    n_channels = images[0].shape[-1] if has_channels else 1
    facts: dict[str, Any] = {"output": str(target), "images": len(images)}
    facts |= {name: value for name, value in about.items() if value is not None}
    shape = (2, 2) if getattr(found, "covariance", None) is None else (11, 11)
    described = noise_facts(found, n_channels, shape) if arguments.json else str(found)
    facts |= {"noise": described, "confidence": found.confidence, "evidence": found.evidence}
    messages.report(facts, arguments.json)


def _read(paths: list[Path]) -> tuple[list[NDArray], dict[Path, Camera]]:
    """All pages of images without alpha, and the cameras that took them."""
    images: list[NDArray] = []
    cameras = {}
    for path in paths:
        picture = read_image(path)
        images += list(picture.as_stack())
        cameras[path] = camera_that_took(picture)
    return images, cameras


def camera_that_took(picture: Picture) -> Camera:
    """Model and sensitivity, as far as the metadata name them, and the type of the values."""
    model, iso = camera_of(picture.metadata.exif)
    return Camera(model, iso or picture.metadata.iso, picture.pixels.dtype.name)


def _common(cameras: dict[Path, Camera]) -> Camera:
    """The camera of all images; it must be one, with one setting."""
    found = []
    for name, what in zip(Camera._fields, ("cameras", "ISO", "types of values"), strict=True):
        values = {getattr(each, name): path for path, each in cameras.items()}
        values.pop(None, None)
        if len(values) > 1:
            (one, first), (other, second), *_ = values.items()
            raise ValueError(
                f"{what} differ, {_shown(one)} in {first} and {_shown(other)} in {second}: measure "
                "the noise of each on its own."
            )
        found.append(next(iter(values), None))
    return Camera(*found)


def check_camera(path: Path, picture: Picture, camera: Camera, file: str) -> None:
    """Warn if a noise was measured with another camera or setting than that of an image."""
    its_own = camera_that_took(picture)
    for name, what in zip(Camera._fields, ("camera", "ISO", "type of values"), strict=True):
        measured, found = getattr(camera, name), getattr(its_own, name)
        if None not in (measured, found) and measured != found:
            messages.warn(
                f"{path}: its {what} is {_shown(found)}, and the noise in {file} was measured for "
                f"{_shown(measured)}: measure it again for this one (kappaform noise)."
            )


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def for_volume(noise: Any) -> Any:
    """The noise of an image as that of a volume, whose slices are independent."""
    if not isinstance(noise, kf.Correlated) or noise.autocovariance is None:
        return noise
    array = np.asarray(noise.autocovariance)
    if array.ndim not in (2, 4):
        return noise
    return replace(noise, autocovariance=np.expand_dims(array, array.ndim - 2))
