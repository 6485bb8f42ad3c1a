"""The page that `explore` writes, in a real browser."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest
from browser.looks import check_basics, is_wider_than_the_window, pale_texts
from skimage.data import astronaut

import kappaform as kf
from kappaform.explore import About, explore, page_of

CLEAN = astronaut()[60:156, 180:276]
BOUNDS = (1, 1.5, 3, 8)


@pytest.fixture(scope="module")
def found():
    noisy = np.clip(np.rint(kf.add_noise(CLEAN, 15, rng=0)), 0, 255).astype(np.uint8)
    return explore(noisy, BOUNDS, noise=kf.White(15.0))


@pytest.fixture(scope="module")
def file(found, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "page.html"
    path.write_text(page_of(found, About("astronaut.png"), CLEAN)[0], encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def data(file):
    text = file.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def shown(page):
    """What the page shows now."""
    return page.evaluate(
        """async () => {
          const source = async (id) => {
            const image = document.getElementById(id);
            await image.decode();
            return [image.src, image.naturalWidth];
          };
          const rows = [...document.querySelectorAll("#numbers div")];
          const texts = (row) => [...row.children].map((cell) => cell.textContent);
          return {
            bound: document.getElementById("bound-shown").textContent,
            numbers: Object.fromEntries(rows.map(texts)),
            after: await source("after"),
            atoms: await source("atoms"),
            spectrum: document.querySelector("#spectrum polyline").getAttribute("points"),
            mark: document.querySelector("#errors .now").getAttribute("x1"),
            label: document.getElementById("errors").getAttribute("aria-label"),
          };
        }"""
    )


def test_it_opens_without_an_error_and_asks_for_nothing(opened, file):
    with opened(file) as seen:
        seen.page.wait_for_timeout(200)
        assert seen.errors == []
        assert [url for url in seen.asked if not url.startswith("data:")] == [file.as_uri()]


def test_basics(opened, file):
    with opened(file) as seen:
        check_basics(seen.page)
        assert seen.page.title() == "astronaut.png: explore the bound"


def test_it_starts_at_the_best_bound(opened, file, data):
    with opened(file) as seen:
        best = data["views"][data["best"]]
        assert shown(seen.page)["bound"] == f"κ ≤ {best['bound']:g}"


def test_every_position_shows_its_own_data(opened, file, data):
    with opened(file) as seen:
        seen.page.focus("#bound")
        seen.page.keyboard.press("Home")
        views = []
        for view in data["views"]:
            now = shown(seen.page)
            assert now["bound"] == f"κ ≤ {view['bound']:g}"
            assert now["numbers"] == view["numbers"]
            assert now["after"] == [view["denoised"], 96]
            assert now["atoms"] == [view["atoms"], 71]
            assert f"reconstruction {100 * view['reconstruction']:.1f} %" in now["label"]
            views.append(now)
            seen.page.keyboard.press("ArrowRight")
        for name in ("bound", "spectrum", "mark", "label"):
            assert len({view[name] for view in views}) == len(BOUNDS), name
        assert len({view["after"][0] for view in views}) == len(BOUNDS)
        assert seen.errors == []


def test_the_spectrum_is_drawn_where_its_values_are(opened, file, data):
    """Heights are those of the ticks, linear in the logarithm between them."""
    with opened(file) as seen:
        seen.page.focus("#bound")
        seen.page.keyboard.press("End")
        points = [pair.split(",") for pair in shown(seen.page)["spectrum"].split()]
        heights = [float(y) for _, y in points]
        ticks = seen.page.eval_on_selector_all(
            "#spectrum text[text-anchor=end]",
            "all => all.map((each) => [Number(each.textContent), each.getAttribute('y') - 4])",
        )
        values, places = np.transpose(sorted(ticks))
        assert len(values) >= 2
        line = np.polyfit(np.log(values), places, 1)
        assert np.allclose(np.polyval(line, np.log(data["views"][-1]["spectrum"])), heights)


def test_the_mouse_moves_the_slider(opened, file):
    with opened(file) as seen:
        box = seen.page.locator("#bound").bounding_box()
        seen.page.mouse.click(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
        assert shown(seen.page)["bound"] == "κ ≤ 8"
        seen.page.click("#best")
        assert shown(seen.page)["bound"] != "κ ≤ 8"


def test_the_other_image_can_be_chosen(opened, file, data):
    with opened(file) as seen:
        seen.page.check("input[value=reconstructed]")
        view = data["views"][data["best"]]
        assert shown(seen.page)["after"] == [view["reconstructed"], 96]
        alternative = seen.page.get_attribute("#after", "alt")
        assert alternative.startswith("The image reconstructed from 6 of 64 numbers")
        assert seen.page.inner_text("#picture-note").startswith("Reconstructed")
        seen.page.focus("#bound")
        seen.page.keyboard.press("End")
        assert shown(seen.page)["after"] == [data["views"][-1]["reconstructed"], 96]


def edge(page):
    """Where the right image begins, as a fraction of the width."""
    text = page.evaluate("getComputedStyle(document.getElementById('after')).clipPath")
    return float(re.search(r"([\d.]+)%\)", text)[1]) / 100


def test_the_swipe_follows_keyboard_and_mouse(opened, file):
    with opened(file) as seen:
        seen.page.focus("#swipe")
        assert edge(seen.page) == 0.5
        seen.page.keyboard.press("Home")
        assert edge(seen.page) == 0
        box = seen.page.locator("#swipe-box").bounding_box()
        seen.page.mouse.move(box["x"] + 5, box["y"] + 50)
        seen.page.mouse.down()
        seen.page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 60, steps=3)
        seen.page.mouse.up()
        assert edge(seen.page) == pytest.approx(0.8, abs=0.01)
        seen.page.mouse.move(box["x"] + 5, box["y"] + 50)  # not held down
        assert edge(seen.page) == pytest.approx(0.8, abs=0.01)


def test_the_swipe_follows_a_finger(opened, file):
    with opened(file, width=390, height=844, has_touch=True, is_mobile=True) as seen:
        seen.page.locator("#swipe-box").scroll_into_view_if_needed()
        box = seen.page.locator("#swipe-box").bounding_box()
        seen.page.touchscreen.tap(box["x"] + 0.25 * box["width"], box["y"] + 0.5 * box["height"])
        assert edge(seen.page) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("width", [320, 390, 768, 1024, 1366])
def test_it_fits_every_width(opened, file, width):
    with opened(file, width=width) as seen:
        assert not is_wider_than_the_window(seen.page)
        ticks = seen.page.locator(".ticks span")
        boxes = [ticks.nth(i).bounding_box() for i in range(len(BOUNDS))]
        assert all(a["x"] + a["width"] <= b["x"] for a, b in pairwise(boxes))


@pytest.mark.parametrize("width", [1200, 1300, 1500])
def test_cards_are_not_stretched_far_beyond_what_they_hold(opened, file, width):
    with opened(file, width=width) as seen:
        filled = seen.page.evaluate(
            """() => [...document.querySelectorAll("main > section")].map((card) => {
              const { top, bottom } = card.getBoundingClientRect();
              return (card.lastElementChild.getBoundingClientRect().bottom - top) / (bottom - top);
            })"""
        )
    assert len(filled) == 6
    assert min(filled) > 0.75


def test_the_slider_stays_in_reach(opened, file):
    with opened(file, width=390, height=844) as seen:
        seen.page.evaluate("window.scrollTo(0, document.body.scrollHeight / 2)")
        box = seen.page.locator("#bound").bounding_box()
        assert 0 <= box["y"] < 844


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable(opened, file, scheme):
    with opened(file, color_scheme=scheme) as seen:
        seen.page.click("summary")
        pale, n_texts = pale_texts(seen.page)
        assert not pale
        assert n_texts > 50


def test_dark_mode_is_dark(opened, file):
    papers = []
    for scheme in ("light", "dark"):
        with opened(file, color_scheme=scheme) as seen:
            colour = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
            papers.append(sum(map(int, re.findall(r"\d+", colour)[:3])))
    assert papers[0] > 600 > 200 > papers[1]


def test_curves_differ_in_more_than_their_colour(opened, file):
    with opened(file) as seen:
        shapes = {
            kind: seen.page.get_attribute(f"#errors path.{kind}", "d")[-20:]
            for kind in ("one", "two")
        }
        assert shapes["one"] != shapes["two"]


def test_a_name_that_is_a_program_does_not_run(opened, found, tmp_path):
    name = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>.png"
    path = tmp_path / "page.html"
    path.write_text(page_of(found, About(name))[0], encoding="utf-8")
    with opened(path) as seen:
        seen.page.wait_for_timeout(200)
        assert seen.errors == []
        assert name in seen.page.inner_text(".facts")
        assert shown(seen.page)["bound"].startswith("κ ≤ ")


def test_errors_of_zero_are_drawn(opened, found, tmp_path):
    exact = [view._replace(sparsification=0.0, reconstruction=0.0) for view in found.views]
    path = tmp_path / "page.html"
    text, _ = page_of(found._replace(views=tuple(exact)), About("x.png"))
    path.write_text(text, encoding="utf-8")
    with opened(path) as seen:
        assert seen.errors == []
        assert "NaN" not in seen.page.inner_html("#errors")


def test_without_a_program_the_table_is_there(opened, file, data):
    with opened(file, java_script_enabled=False) as seen:
        seen.page.click("summary")
        assert seen.page.is_visible("table")
        cells = seen.page.locator("tbody tr").first.inner_text()
        assert all(number in cells for number in data["views"][0]["numbers"].values())
