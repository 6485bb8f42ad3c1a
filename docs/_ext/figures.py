"""Figures of tutorials: every matplotlib figure that a block assigns to a global name."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst


def _new_figures(_: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    paths, texts = [], []
    for figure in block_vars["example_globals"].values():
        if isinstance(figure, Figure) and figure.get_label() != "shown":
            path = next(block_vars["image_path_iterator"])
            figure.savefig(path, dpi=110)
            figure.set_label("shown")
            paths.append(path)
            texts.append(_in_words(figure))
    return figure_rst(paths, gallery_conf["src_dir"], "; ".join(texts))


def _in_words(figure: Figure) -> str:
    """Alternative text, from the titles of a figure and the labels of its axes."""
    words = [figure.get_suptitle()]
    for axes in figure.axes:
        title = axes.get_title("left") or axes.get_title()
        labels = [text for text in (axes.get_ylabel(), axes.get_xlabel()) if text]
        words += [title, " over ".join(labels)]
    said = [" ".join(word.split()) for word in words if word]
    return ", ".join(dict.fromkeys(said)) or "atoms of a transform, as patches"


def _get_sg_image_scraper() -> Any:  # the name that sphinx-gallery expects
    return _new_figures
