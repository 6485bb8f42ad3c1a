"""The explorer: time to make a page of 512 × 512 pixels, to open it, and to answer the slider.

    python benchmarks/bench_explorer.py        needs Chromium and pip install '.[browser]'

The slider has answered when the new pictures are decoded and the next frame is drawn.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright
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


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, image in {"grey": camera(), "colour": astronaut()}.items():
            noisy = np.clip(np.rint(kf.add_noise(image, 15)), 0, 255).astype(np.uint8)
            source, page = Path(folder, f"{name}.png"), Path(folder, f"{name}.html")
            Image.fromarray(noisy).save(source)
            command = [sys.executable, "-m", "kappaform", "explore", str(source), "-o", str(page)]
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds = time.perf_counter() - started
            opened, answers = _in_browser(page)
            print(
                f"{name}: made in {seconds:.1f} s, {page.stat().st_size / 1e6:.2f} MB, opens in "
                f"{opened:.0f} ms; the slider answers in {statistics.median(answers):.1f} ms, at "
                f"most {max(answers):.1f} ms"
            )


def _in_browser(page: Path) -> tuple[float, list[float]]:
    program = os.environ.get("KAPPAFORM_BROWSER") or shutil.which("chromium")
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


if __name__ == "__main__":
    main()
