"""The page of an exploration: what it holds, and that nothing in a name can become a program."""

import base64
import io
import json
import re
from functools import partial
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from skimage.data import camera

import kappaform as kf
from kappaform.explore import About, exploration, page, page_of

CLEAN = camera()[100:164, 200:264]
NOISY = np.clip(np.rint(kf.add_noise(CLEAN, 10, rng=0)), 0, 255).astype(np.uint8)

# Patches are small: learning them is most of the work.
explore = partial(exploration.explore, patch_size=4)


@pytest.fixture(scope="module")
def found():
    return explore(NOISY, (1, 2, 5))


@pytest.fixture(scope="module")
def text(found):
    return page_of(found, About("camera.png"), CLEAN)[0]


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def pixels_of(address):
    kind, _, encoded = address.partition(";base64,")
    assert kind in ("data:image/webp", "data:image/png")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))).convert("L"), float)


class Tags(HTMLParser):
    """Names and attributes of all tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_every_place_is_filled(text):
    assert "{{" not in text


def test_the_numbers_are_those_of_the_views(found, text):
    for view, shown in zip(found.views, data_of(text)["views"], strict=True):
        assert shown["bound"] == view.bound
        assert shown["reconstruction"] == view.reconstruction
        assert np.allclose(shown["spectrum"], view.spectrum, rtol=1e-5)
        assert shown["numbers"]["reconstruction error"] == f"{100 * view.reconstruction:.1f} %"


def test_the_images_are_those_of_the_views(found, text):
    for view, shown in zip(found.views, data_of(text)["views"], strict=True):
        for name in ("denoised", "reconstructed"):
            made = np.clip(getattr(view, name), 0, 255)
            assert np.sqrt(np.mean((pixels_of(shown[name]) - made) ** 2)) < 5  # WebP loses a bit


def test_psnr_is_shown_with_a_reference_only(found, text):
    shown = data_of(text)["views"][0]["numbers"]
    assert (
        15 < float(shown["PSNR, original"].split()[0]) < float(shown["PSNR, denoised"].split()[0])
    )
    without, _ = page_of(found, About("camera.png"))
    assert "PSNR" not in without


def test_the_assumed_noise_is_shown(found, text):
    assert f"noise assumed: {found.noise} (estimated)" in text
    given, _ = page_of(found, About("camera.png", estimated=False))
    assert f"noise assumed: {found.noise}</p>" in given
    assert "(estimated)" not in given


def test_shot_noise_is_shown_as_assumed():
    found = explore(NOISY, (1, 2), noise=kf.Shot(2.0, 3.0))
    text, _ = page_of(found, About("camera.png", estimated=False))
    assert "noise assumed: shot, gain 2, read noise 3" in text


def test_without_noise_the_page_says_that_nothing_is_denoised():
    text, _ = page_of(explore(NOISY, (1, 2), noise=kf.White(0.0)), About("x.png"))
    assert data_of(text)["notes"]["denoised"].startswith("No noise was found")


def test_the_page_asks_for_nothing_outside_itself(text):
    for tag, attributes in Tags(text).found:
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith("data:"), (tag, attributes[name][:80])
    addresses = re.findall(r"https?://[^\s\"']+", text)
    assert set(addresses) == {"http://www.w3.org/2000/svg"}  # a name, which nobody asks for


def test_the_policy_forbids_everything_else(text):
    policy = next(a["content"] for t, a in Tags(text).found if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>.png",
        "\"quotes\" and 'more' & <b>.png",
        "</title></script><img src=x onerror=alert(1)>.png",
        "{{script}}{{data}}.png",
    ],
)
def test_a_name_stays_a_name(found, name):
    text, _ = page_of(found, About("plain.png"))
    strange, _ = page_of(found, About(name, f"the middle of {name}"))
    tags = [tag for tag, _ in Tags(strange).found]
    assert tags == [tag for tag, _ in Tags(text).found]
    before = next(a for t, a in Tags(strange).found if a.get("id") == "before")
    assert before["alt"] == f"The original image: {name}, 64 × 64 pixels."
    assert not any("onerror" in attributes for _, attributes in Tags(strange).found)


def test_headings_are_in_order(text):
    levels = [int(tag[1]) for tag, _ in Tags(text).found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_table_has_all_numbers_without_a_program(found, text):
    table = re.search(r"<table>.*</table>", text)[0]
    assert table.count("<tr>") == 1 + len(found.views)
    for view in found.views:
        assert f"<td>{view.bound:g}</td><td>{view.condition_number:.4f}</td>" in table


def test_images_lose_quality_until_they_fit(found, monkeypatch):
    large, best = page_of(found, About("x.png"))
    pictures = [
        view[name] for view in data_of(large)["views"] for name in ("denoised", "reconstructed")
    ]
    monkeypatch.setattr(page, "_MOST_BYTES", sum(map(len, pictures)))  # without the original
    small, quality = page_of(found, About("x.png"))
    assert quality < best
    assert len(small) < len(large)


def test_values_of_other_types_are_shown_from_black_to_white():
    image = NOISY.astype(np.float32) * 100 - 4000
    text, _ = page_of(explore(image, (1, 2)), About("x.npy"))
    assert re.search(r"Values from -?[\d.]+ \(black\) to [\d.]+ \(white\) are shown", text)
    before = re.search(r'id="before".*?src="([^"]+)"', text, re.DOTALL)[1]
    assert pixels_of(before).min() < 10
    assert pixels_of(before).max() > 245
