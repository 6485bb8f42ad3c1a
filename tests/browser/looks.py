"""What can be said of any page: contrast of its text, headings, alternative texts, width."""

from itertools import pairwise

LEAST_CONTRAST = 4.5  # of text: WCAG 2, level AA

# For every visible piece of text, its colour over the background that the page paints below it.
_TEXTS = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const over = (upper, lower) => {
    const share = upper.length > 3 ? upper[3] : 1;
    return [0, 1, 2].map((i) => share * upper[i] + (1 - share) * lower[i]);
  };
  const behind = (element) => {
    const layers = [];
    for (let node = element; node instanceof Element; node = node.parentElement) {
      layers.push(numbers(getComputedStyle(node).backgroundColor));
    }
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const paper = dark ? [0, 0, 0] : [255, 255, 255];
    return layers.reduceRight((below, layer) => over(layer, below), paper);
  };
  const brightness = (colour) => {
    const [r, g, b] = colour.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  for (const element of document.body.querySelectorAll("*")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3)
      .map((node) => node.textContent.trim()).join("");
    if (!text || element.closest("script, style, noscript, svg defs")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    const style = getComputedStyle(element), paper = behind(element);
    const colour = element instanceof SVGElement ? style.fill : style.color;
    if (!colour.startsWith("rgb")) { found.push([text, colour, 0]); continue; }
    const [a, b] = [brightness(over(numbers(colour), paper)), brightness(paper)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([text.slice(0, 60), `${colour} on ${paper.map(Math.round)}`, contrast]);
  }
  return found;
}"""


def pale_texts(page):
    """Texts whose contrast is too low, with colours; and how many texts were looked at."""
    texts = page.evaluate(_TEXTS)
    return [text for text in texts if text[2] < LEAST_CONTRAST], len(texts)


def check_basics(page):
    """Title, language, viewport, one first heading, headings in order, texts for images."""
    assert page.title().strip()
    assert page.get_attribute("html", "lang") == "en"
    assert "width=device-width" in page.get_attribute("meta[name=viewport]", "content")
    levels = page.eval_on_selector_all(
        "h1, h2, h3, h4, h5, h6", "all => all.map((each) => Number(each.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    drawn = "svg[role=img]:not([aria-label], [aria-hidden=true], [title])"
    # Thumbnails of tutorials stand beside their titles, which say the same.
    silent = f"img:not([alt]), img[alt='']:not(.sphx-glr-thumbcontainer img), {drawn}"
    assert page.locator(silent).count() == 0


def is_wider_than_the_window(page):
    return page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
