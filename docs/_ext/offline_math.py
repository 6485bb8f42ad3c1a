"""Copy the files of MathJax that pages need, so that formulas work without a network."""

from __future__ import annotations

import shutil
from importlib.metadata import files
from pathlib import Path

from sphinx.application import Sphinx

_PACKAGE = "sphinx-mathjax-offline"  # which holds all of MathJax 3, 24 MB
_NEEDED = ("mathjax/tex-chtml.js", "mathjax/output/chtml/fonts/")


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for file in files(_PACKAGE) or []:
        place = file.as_posix().partition("/static/")[2]
        if place.startswith(_NEEDED):
            target = Path(app.outdir) / "_static" / place
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)


def setup(app: Sphinx) -> dict[str, bool]:
    app.config.mathjax_path = "mathjax/tex-chtml.js"
    app.connect("build-finished", copy_mathjax)
    return {"parallel_read_safe": True}
