"""A real browser, without a window; what goes wrong on a page is written down."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    """Chromium of the system, by its usual names or by KAPPAFORM_BROWSER."""
    programs = [os.environ.get("KAPPAFORM_BROWSER"), *map(shutil.which, NAMES)]
    program = next((each for each in programs if each), None)
    if program is None:
        pytest.skip("no browser is here: install chromium, or name one in KAPPAFORM_BROWSER")
    reason = "Playwright is not here: pip install '.[browser]'"
    api = pytest.importorskip("playwright.sync_api", reason=reason)
    with api.sync_playwright() as playwright:
        # Containers seldom allow the sandbox; the pages are our own.
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Open a file: gives the page, with its errors and with all addresses that it asked for."""

    @contextmanager
    def open_file(path: Path, width=1280, height=800, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        page = context.new_page()
        seen = SimpleNamespace(errors=[], asked=[], page=page)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("console", lambda said: seen.errors.append(said.text) if said.type in BAD else None)
        page.on("dialog", lambda dialog: (seen.errors.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: seen.asked.append(request.url))
        page.goto(path.resolve().as_uri())
        page.wait_for_load_state("load")
        try:
            yield seen
        finally:
            context.close()

    return open_file


BAD = ("error", "warning")
