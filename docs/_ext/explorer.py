"""The explorer of the site: made by the command itself, when the site is built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from skimage.data import astronaut
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

import kappaform as kf
from kappaform import cli, explore

_SIGMA = 15


def make_explorer(app: Sphinx) -> None:
    """Write it, unless the one that is there is newer than all that makes it."""
    folder = Path(app.srcdir) / "generated" / "explorer"
    page = folder / "explore.html"
    makers = [Path(__file__), *Path(explore.__file__).parent.iterdir()]
    if page.exists() and page.stat().st_mtime > max(maker.stat().st_mtime for maker in makers):
        return
    logging.getLogger(__name__).info("making the explorer ...")
    folder.mkdir(parents=True, exist_ok=True)
    noisy = np.clip(np.rint(kf.add_noise(astronaut(), _SIGMA, rng=0)), 0, 255).astype(np.uint8)
    pictures = Path(app.srcdir) / "generated"
    names = {"astronaut.png": noisy, "astronaut_clean.png": astronaut()}
    for name, pixels in names.items():
        Image.fromarray(pixels).save(pictures / name)
    source, clean = (str(pictures / name) for name in names)
    words = ["explore", source, "-o", str(page), "--compare", clean, "--overwrite", "--json"]
    if cli.main(words) != 0:
        raise ExtensionError("the explorer could not be made")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", make_explorer)
    return {"parallel_read_safe": True}
