"""Write the explorer of the site with `kappaform explore` when the site is built."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
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
_FOLDER = "generated/explorer"  # `html_extra_path` of the configuration


def make_explorer(app: Sphinx) -> None:
    """Write the page, unless it is newer than its sources."""
    page = Path(app.srcdir) / _FOLDER / "explore.html"
    makers = [Path(__file__), *Path(explore.__file__).parent.iterdir()]
    if page.exists() and page.stat().st_mtime > max(maker.stat().st_mtime for maker in makers):
        return
    logging.getLogger(__name__).info("writing the explorer ...")
    noisy = np.clip(np.rint(kf.add_noise(astronaut(), _SIGMA, rng=0)), 0, 255).astype(np.uint8)
    pictures = page.parents[1]
    names = {"astronaut.png": noisy, "astronaut_clean.png": astronaut()}
    for name, pixels in names.items():
        Image.fromarray(pixels).save(pictures / name)
    source, clean = (str(pictures / name) for name in names)
    words = ["explore", source, "-o", str(page), "--compare", clean, "--overwrite"]
    with redirect_stdout(StringIO()):
        code = cli.main(words)
    if code != 0:
        raise ExtensionError("the explorer could not be written")


def setup(app: Sphinx) -> dict[str, bool]:
    # The folder must exist before Sphinx checks `html_extra_path`.
    (Path(app.srcdir) / _FOLDER).mkdir(parents=True, exist_ok=True)
    app.connect("builder-inited", make_explorer)
    return {"parallel_read_safe": True}
