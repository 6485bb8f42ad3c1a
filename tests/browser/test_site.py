"""The site that `make docs` builds, in a real browser."""

import re
from pathlib import Path

import pytest
from browser.looks import check_basics, is_wider_than_the_window, pale_texts

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
FIRST = SITE / "index.html"
PAGES = (
    "index.html",
    "denoising.html",
    "howto/choose-the-bound.html",
    "reference/generated/kappaform.learn.html",
    "tutorials/first_denoising.html",
    "mathematics.html",
    "glossary.html",
)


@pytest.fixture(autouse=True)
def _built(browser):
    if not FIRST.exists():
        pytest.skip("the site is not built: make docs")
    return browser


@pytest.mark.parametrize("name", PAGES)
def test_pages_open_without_an_error_and_ask_no_other_server(opened, name):
    with opened(SITE / name) as seen:
        seen.page.wait_for_timeout(300)
        assert seen.errors == []
        assert [url for url in seen.asked if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("name", PAGES)
def test_basics(opened, name):
    with opened(SITE / name) as seen:
        check_basics(seen.page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_text_is_readable(opened, name, scheme):
    with opened(SITE / name, color_scheme=scheme) as seen:
        seen.page.wait_for_timeout(300)
        pale, n_texts = pale_texts(seen.page)
        assert not pale
        assert n_texts > 20


@pytest.mark.parametrize("width", [360, 768, 1366])
def test_the_first_page_fits_every_width(opened, width):
    with opened(FIRST, width=width) as seen:
        assert not is_wider_than_the_window(seen.page)


def test_the_first_screen_says_what_it_is_and_opens_three_doors(opened):
    with opened(FIRST, width=1366, height=900) as seen:
        picture = seen.page.locator(".first-picture img")
        assert picture.evaluate("image => image.naturalWidth") > 500
        for door in ("Reproduce the paper", "Learn a transform", "Denoise an image"):
            box = seen.page.get_by_text(door, exact=True).first.bounding_box()
            assert box["y"] + box["height"] < 900
        with seen.page.expect_navigation():
            seen.page.mouse.click(box["x"] + 5, box["y"] + 5)
        assert "A first denoising" in seen.page.title()


def test_denoising_is_in_the_first_row_of_the_navigation(opened):
    with opened(FIRST, width=1366) as seen:
        first = seen.page.locator("header .bd-navbar-elements .nav-link").first
        assert first.inner_text().strip() == "Denoising"


def test_the_first_page_shows_a_result_with_its_number(opened):
    with opened(FIRST) as seen:
        assert re.search(r"20\.2 dB to 31\.4 dB", seen.page.locator("figcaption").inner_text())


def test_formulas_are_drawn(opened):
    with opened(SITE / "mathematics.html") as seen:
        seen.page.wait_for_selector("mjx-container", timeout=10_000)
        n_formulas = seen.page.locator(".math").count()
        assert seen.page.locator("mjx-container").count() >= n_formulas > 50
        assert seen.page.locator("mjx-merror").count() == 0


def test_the_explorer_of_the_site_moves(opened):
    with opened(SITE / "explorer.html", width=1366) as seen:
        frame = seen.page.frame_locator("iframe.explorer")
        frame.locator("#bound").focus()
        seen.page.keyboard.press("Home")
        first = frame.locator("#numbers").inner_text()
        seen.page.keyboard.press("ArrowRight")
        assert frame.locator("#bound-shown").inner_text() == "κ ≤ 1.1"
        assert frame.locator("#numbers").inner_text() != first
        assert seen.errors == []


def test_every_tutorial_ends_in_an_image():
    pages = [
        path
        for path in (SITE / "tutorials").glob("*.html")
        if path.stem not in ("index", "gpu", "sg_execution_times")
    ]
    assert len(pages) >= 9
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert f"_images/sphx_glr_{path.stem}_001.png" in text, path.name
