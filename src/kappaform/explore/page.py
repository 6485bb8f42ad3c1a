"""The page of an exploration: one HTML file that needs neither server nor network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.resources import files
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kappaform.explore.exploration import Exploration, View
from kappaform.imaging.metrics import psnr
from kappaform.plots.pictures import mosaic

_MOST_BYTES = 4_500_000  # of all images together; the rest of the page is below half a megabyte
_QUALITIES = (92, 85, 75, 60, 45, 30)  # of WebP: the first one that fits


class About(NamedTuple):
    """Facts about the image for the reader."""

    name: str
    source: str = ""  #: the name, and the part that is shown
    estimated: bool = True  #: whether the noise was estimated, not given


def page_of(
    exploration: Exploration, about: About, reference: NDArray | None = None
) -> tuple[str, int]:
    """The page, and the WebP quality of its images; `reference` is the image without noise."""
    quality, pictures = _fitting(exploration)
    images = iter(pictures)
    before = next(images)
    numbers = [_numbers(exploration, view, reference) for view in exploration.views]
    views = [
        _facts(view) | {"numbers": its, "denoised": next(images), "reconstructed": next(images)}
        for view, its in zip(exploration.views, numbers, strict=True)
    ]
    kept = f"{exploration.n_nonzero} of {exploration.patch_size**2} numbers"
    document = {
        "views": views,
        "best": exploration.best,
        "kept": kept,
        "notes": _notes(exploration, about),
    }
    texts = _texts(exploration, about) | {"kept": kept, "quality": str(quality)}
    safe = {name: html.escape(text) for name, text in texts.items()}
    ticks = "".join(f"<span>{view.bound:g}</span>" for view in exploration.views)
    made = {"ticks": ticks, "before": before, "table": _table(exploration.views, numbers)}
    filled = safe | _parts(document) | made
    # In one pass: a name that looks like a placeholder is left alone.
    return re.sub(r"{{(\w+)}}", lambda place: filled[place[1]], _read("page.html")), quality


def _parts(document: dict[str, Any]) -> dict[str, str]:
    """Style, script and data, and a policy that forbids everything else."""
    style, script = _read("page.css"), _read("page.js")
    # Only "<" could end the script element; U+2028 is a line break in old browsers.
    data = json.dumps(document, ensure_ascii=True).replace("<", "\\u003c")
    rules = {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'"}
    rules |= {"form-action": "'none'", "style-src": _hash(style), "script-src": _hash(script)}
    policy = "; ".join(f"{name} {value}" for name, value in rules.items())
    return {"style": style, "script": script, "data": data, "policy": policy}


def _read(name: str) -> str:
    return files("kappaform.explore").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# --- Words and numbers


def _texts(exploration: Exploration, about: About) -> dict[str, str]:
    height, width = exploration.image.shape[:2]
    views, side = exploration.views, exploration.patch_size
    noise = f"noise assumed: {exploration.noise}{' (estimated)' * about.estimated}"
    source = about.source or about.name
    return {
        "name": about.name,
        "source": source,
        "facts": f"{source} · {width} × {height} pixels · {noise}",
        "values": _shown(exploration),
        "width": str(width),
        "height": str(height),
        "side": str(side),
        "n": str(side**2),
        "s": str(exploration.n_nonzero),
        "best": f"{views[exploration.best].bound:g}",
        "start": str(exploration.best),
        "last": str(len(views) - 1),
        "version": version("kappaform"),
    }


def _notes(exploration: Exploration, about: About) -> dict[str, str]:
    """How the images were computed."""
    denoised = "No noise was found, so the denoised image is the original."
    if np.any(exploration.noise.level(_mean_brightness(exploration.image))):
        how = "estimated from the image" if about.estimated else "given"
        denoised = "Denoised: small coefficients of overlapping patches are set to zero. The noise "
        denoised += f"is assumed to be {exploration.noise}, {how}."
    reconstructed = f"Reconstructed: every patch from its mean and the {exploration.n_nonzero} "
    reconstructed += f"largest of its {exploration.patch_size**2} coefficients. Patches do not "
    return {"denoised": denoised, "reconstructed": f"{reconstructed}overlap."}


def _mean_brightness(image: NDArray) -> NDArray:
    return image.reshape(-1, 1 if image.ndim == 2 else image.shape[-1]).mean(axis=0)


def _numbers(exploration: Exploration, view: View, reference: NDArray | None) -> dict[str, str]:
    """The numbers of a view, as the page shows them."""
    image = exploration.image.astype(np.float64)
    level = exploration.noise.level(_mean_brightness(image))
    assumed = math.sqrt(float(np.mean(np.square(level))))
    removed = math.sqrt(float(np.mean((view.denoised - image) ** 2)))
    facts = {
        "condition number": f"{view.condition_number:.4f}",
        "sparsification error": f"{100 * view.sparsification:.1f} %",
        "reconstruction error": f"{100 * view.reconstruction:.1f} %",
        "noise assumed": f"{assumed:.3g}",
        "removed by denoising": f"{removed:.3g}",
    }
    if reference is not None:
        pictures = {"original": image, "denoised": view.denoised}
        for name, each in (pictures | {"reconstructed": view.reconstructed}).items():
            facts[f"PSNR, {name}"] = f"{psnr(reference, each):.2f} dB"
    return facts


def _facts(view: View) -> dict[str, Any]:
    return {
        "bound": view.bound,
        "condition": view.condition_number,
        "sparsification": view.sparsification,
        "reconstruction": view.reconstruction,
        "spectrum": [float(f"{value:.6g}") for value in view.spectrum],
        "atoms": _encoded(_atoms(view.atoms), format="PNG", optimize=True),
    }


def _table(views: Iterable[View], numbers: list[dict[str, str]]) -> str:
    """All numbers of all views, for screen readers and without JavaScript."""

    def row(cells: Iterable[str], begin: str = "<td>", end: str = "</td>") -> str:
        return "<tr>" + "".join(f"{begin}{html.escape(cell)}{end}" for cell in cells) + "</tr>"

    head = row(["bound κ", *numbers[0]], '<th scope="col">', "</th>")
    named = zip(views, numbers, strict=True)
    body = "".join(row([f"{view.bound:g}", *each.values()]) for view, each in named)
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


# --- Images


def _fitting(exploration: Exploration) -> tuple[int, list[str]]:
    """All images, and the highest quality with which their total size is small enough."""
    shown = _to_bytes(exploration.image)
    made = (each for view in exploration.views for each in (view.denoised, view.reconstructed))
    pixels = [shown(exploration.image), *map(shown, made)]
    for quality in _QUALITIES:
        pictures = [_encoded(each, format="WEBP", quality=quality, method=4) for each in pixels]
        if sum(map(len, pictures)) <= _MOST_BYTES:
            break
    return quality, pictures


def _limits(image: NDArray) -> tuple[float, float]:
    """The values that are black and white."""
    if image.dtype == np.uint8:
        return 0.0, 255.0
    low, high = np.quantile(image, (0.001, 0.999))
    return (float(low), float(high)) if low < high else (float(image.min()), float(image.max()))


def _shown(exploration: Exploration) -> str:
    if exploration.image.dtype == np.uint8:
        return ""
    low, high = _limits(exploration.image)
    return f"Values from {low:.6g} (black) to {high:.6g} (white) are shown."


def _to_bytes(image: NDArray) -> Callable[[NDArray], NDArray]:
    """A function from values of the image to 8 bit grey levels or colours."""
    low, high = _limits(image)

    def shown(values: NDArray) -> NDArray:
        if values.ndim == 3 and values.shape[-1] != 3:  # channels that are not colours
            values = values.mean(axis=-1)
        fraction = (values.astype(np.float64) - low) / (high - low)
        return np.rint(255 * fraction.clip(0, 1)).astype(np.uint8)

    return shown


def _atoms(atoms: NDArray) -> NDArray:
    """Atoms in rows, each on its own scale with zero in the middle; transparent between them."""
    values = mosaic(atoms)
    grey = np.rint(127.5 + 127.5 * np.nan_to_num(values, nan=-1.0))
    return np.dstack([grey, np.where(np.isnan(values), 0, 255)]).astype(np.uint8)


def _encoded(pixels: NDArray, **options: Any) -> str:
    file = BytesIO()
    Image.fromarray(pixels).save(file, **options)
    kind = options["format"].lower()
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
