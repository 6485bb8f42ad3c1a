"""Sphinx configuration of the site (`make docs`)."""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "kappaform"
author = "the kappaform developers"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]
version = release
html_title = f"kappaform {release}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    # In `_ext`:
    "command_options",
    "explorer",
    "offline_math",
]
exclude_patterns = ["_build", "generated", "results", "tutorials/*.py", "tutorials/*.ipynb"]
templates_path = ["_templates"]
smartquotes = False  # options begin with two hyphens, not with a dash

# --- Pages in Markdown, with formulas that GitHub renders as well
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# --- Reference: from docstrings
autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
default_role = "py:obj"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# --- Tutorials: scripts that run when the site is built
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"/(?!gpu\.py)\w+\.py$",
    "image_scrapers": ("figures",),
    "within_subsection_order": "tutorial_order.place_of",
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("kappaform",),
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "show_signature": False,
}

# --- Appearance
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_extra_path = ["generated/explorer"]
html_css_files = ["site.css"]
html_favicon = "_static/kappa.svg"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {
        "text": "kappaform",
        "image_light": "_static/kappa.svg",
        "image_dark": "_static/kappa.svg",
        "alt_text": "kappaform, home",
    },
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "show_toc_level": 2,
    "footer_start": ["license"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "explorer": [], "glossary": [], "changelog": [], "citing": []}
