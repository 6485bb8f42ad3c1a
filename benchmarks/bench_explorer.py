"""The explorer: time to make a page of 512 × 512 pixels, to open it, and to answer the slider.

Runs only where Chromium and Playwright are (pip install '.[browser]'). The slider has answered when
the new pictures are decoded; every position is visited five times.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image
from skimage.data import astronaut, camera

import kappaform as kf

_ANSWERS = """async () => {
  const slider = document.getElementById("bound"), times = [];
  for (let turn = 0; turn < 5; turn++) {
    for (let i = 0; i <= Number(slider.max); i++) {
      const started = performance.now();
      slider.value = i;
      slider.dispatchEvent(new Event("input"));
      await Promise.all(["after", "atoms"].map((id) => document.getElementById(id).decode()));
      times.push(performance.now() - started);
      await new Promise(requestAnimationFrame);
    }
  }
  return times;
}"""


def rows() -> Iterator[dict]:
    """Seconds to make, megabytes, milliseconds to open and to answer, of two pictures."""
    program = shutil.which("chromium")
    if program is None or not find_spec("playwright"):
        yield {"skipped": "all: Chromium or Playwright is not here (pip install '.[browser]')"}
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, image in {"grey": camera(), "colour": astronaut()}.items():
            noisy = np.clip(np.rint(kf.add_noise(image, 15)), 0, 255).astype(np.uint8)
            source, page = Path(folder, f"{name}.png"), Path(folder, f"{name}.html")
            Image.fromarray(noisy).save(source)
            command = [sys.executable, "-m", "kappaform", "explore", str(source), "-o", str(page)]
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds = time.perf_counter() - started
            opened, answers = _in_browser(page, program)
            megabytes = page.stat().st_size / 1e6
            yield from [
                _row(f"make a page of 512 x 512 pixels, {name}", seconds, "s", 50),
                _row(f"size of the page, {name}", megabytes, "MB", 3.5),
                _row(f"open it, {name}", opened, "ms", 500),
                _row(f"slider answers, median, {name}", median(answers), "ms", 50),
                _row(f"slider answers, slowest of {len(answers)}, {name}", max(answers), "ms", 50),
            ]


def _row(name: str, value: float, unit: str, target: float) -> dict:
    return {"name": name, "value": value, "unit": unit, "target": target}


def _in_browser(page: Path, program: str) -> tuple[float, list[float]]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page()
        started = time.perf_counter()
        tab.goto(page.as_uri())
        tab.evaluate("document.getElementById('after').decode()")
        opened = 1000 * (time.perf_counter() - started)
        answers = tab.evaluate(_ANSWERS)
        browser.close()
    return opened, answers
