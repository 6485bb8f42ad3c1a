"""Descriptions of microscopes in TIFF files, adapted to a new file."""

from __future__ import annotations

import math
from xml.etree import ElementTree

_COUNTS = ("SizeZ", "SizeC", "SizeT")
_SIZES = ("PhysicalSizeX", "PhysicalSizeY", "PhysicalSizeZ")


def ome_misfit(text: str, sizes: list[tuple[int, int]], n_samples: int) -> str:
    """Why an OME text cannot describe a file; empty if it can.

    `sizes` are width and height of its pages, each of which has `n_samples`. This is checked before
    memory is allocated for what the text declares.
    """
    n_planes = len(sizes) * n_samples
    try:
        root = ElementTree.fromstring(text.encode())
        for pixels in _found(root, "Pixels"):
            counts = [math.prod(int(pixels.attrib[name]) for name in _COUNTS)]
            for data in _found(pixels, "TiffData"):
                counts += [int(data.get(name, 0)) for name in ("PlaneCount", "NumPlanes")]
            if max(counts) > n_planes:
                return f"it declares {max(counts)} planes, the file has {n_planes}"
            width, height = (int(pixels.attrib[name]) for name in ("SizeX", "SizeY"))
            if (width, height) not in sizes:
                return f"it declares {width} x {height} pixels, no page has this size"
        most = max((_labels(element) for element in root.iter()), default=0)
        if most > n_planes:  # tifffile would list them all
            return f"it declares {most:g} labels along an axis, the file has {n_planes} planes"
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        return f"it cannot be read ({error})"
    return ""


def _labels(element: ElementTree.Element) -> float:
    """Number of labels that an element gives an axis by start, end and step."""
    if not _name(element)[:-1].endswith("Along") or "Start" not in element.attrib:
        return 0
    start, end, step = (float(element.get(name, 1)) for name in ("Start", "End", "Step"))
    return abs((end - start) / step) + 1 if step else math.inf


def ome_of_the_first(text: str, n_planes: int, n_pictures: int, omitted: list[str]) -> bytes:
    """The OME text of a file that contains the first image only, plane after plane.

    Names of other files are removed: a reader would look for the planes there.
    """
    root = ElementTree.fromstring(text.encode())
    namespace = root.tag.partition("}")[0].removeprefix("{") if "}" in root.tag else ""
    root.attrib.pop("UUID", None)
    images = [child for child in root if _name(child) == "Image"]
    if len(images) != n_pictures:
        omitted.append(f"the description: it has {len(images)} images, the file {n_pictures}")
        return b""
    for other in images[1:]:
        root.remove(other)
    for pixels in _found(root, "Pixels"):
        for name in _SIZES:
            if name in pixels.attrib and not is_a_size(pixels.attrib[name]):
                omitted.append(f"{name} of OME: it is {pixels.attrib.pop(name)!r}")
        places = [child for child in pixels if _name(child) == "TiffData"]
        first = list(pixels).index(places[0])
        for place in places:
            pixels.remove(place)
        tag = f"{{{namespace}}}TiffData" if namespace else "TiffData"
        data = ElementTree.Element(tag, IFD="0", PlaneCount=str(n_planes))
        pixels.insert(first, data)
    _make_default(root, namespace)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _make_default(root: ElementTree.Element, namespace: str) -> None:
    """Make a namespace the default of this text.

    `register_namespace` would do so for every text that the process writes from then on.
    """
    prefix = f"{{{namespace}}}"
    for element in root.iter():
        element.tag = str(element.tag).removeprefix(prefix)
    if namespace:
        root.set("xmlns", namespace)


def imagej_text(text: str, omitted: list[str]) -> bytes:
    """The valid lines of an ImageJ text."""
    lines = []
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if key.strip() == "spacing" and not is_a_size(value):
            omitted.append(f"spacing of ImageJ: it is {value.strip()!r}")
        else:
            lines.append(line)
    return "\n".join(lines).encode()


def is_a_size(text: str) -> bool:
    """Whether a text is a positive, finite number."""
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def _found(element: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [child for child in element.iter() if _name(child) == name]


def _name(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]
