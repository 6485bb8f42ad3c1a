"""Check that every internal link of the built site leads to a file and to an anchor in it.

python docs/check_links.py docs/_build/html
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes that hold an address, per tag
_ADDRESSES = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src"}


class Page(HTMLParser):
    """Addresses in a page, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: set[str] = set()
        self.places: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.places |= {attributes[name] or "" for name in ("id", "name") if name in attributes}
        address = attributes.get(_ADDRESSES.get(tag, ""))
        if address:
            self.addresses.add(address)


@cache
def page_at(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def _pages(site: Path) -> list[Path]:
    """Pages of the site, without the templates of the theme among the static files."""
    return [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]


def failures(site: Path) -> list[str]:
    """One line for every broken link."""
    found = []
    for path in _pages(site):
        for address in sorted(page_at(path).addresses):
            problem = _problem(path, address, site)
            if problem:
                found.append(f"{path.relative_to(site)}: {address}: {problem}")
    return found


def _problem(path: Path, address: str, site: Path) -> str:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return ""  # data, or another site: not checked, so that the build needs no network
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.is_relative_to(site.resolve()):
        return "leads out of the site"
    if not target.is_file():
        return "there is no such file"
    if not parts.fragment or target.suffix != ".html":
        return ""
    is_there = unquote(parts.fragment) in page_at(target).places
    return "" if is_there else "there is no such place in the page"


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    pages = _pages(site)
    if not pages:
        print(f"{site} holds no page: build the site first, by make docs.")
        return 1
    found = failures(site)
    for line in found:
        print(line)
    print(f"{len(pages)} pages, {len(found)} links that lead nowhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
