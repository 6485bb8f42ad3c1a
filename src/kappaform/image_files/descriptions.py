"""Descriptions that microscopes write into TIFF files, made true of a file that is written anew."""

from __future__ import annotations

import math
from xml.etree import ElementTree

_COUNTS = ("SizeZ", "SizeC", "SizeT")
_SIZES = ("PhysicalSizeX", "PhysicalSizeY", "PhysicalSizeZ")


def ome_misfit(text: str, n_planes: int) -> str:
    """Why an OME text cannot be true of a file of so many planes; empty if it can.

    It is asked before anything is reserved for the planes that the text promises.
    """
    try:
        root = ElementTree.fromstring(text.encode())
        for pixels in _found(root, "Pixels"):
            counts = [math.prod(int(pixels.attrib[name]) for name in _COUNTS)]
            for data in _found(pixels, "TiffData"):
                counts += [int(data.get(name, 0)) for name in ("PlaneCount", "NumPlanes")]
            if max(counts) > n_planes:
                return f"it tells of {max(counts)} planes, the file has {n_planes}"
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        return f"it cannot be read ({error})"
    return ""


def ome_of_the_first(text: str, n_planes: int, n_pictures: int, doubts: list[str]) -> bytes:
    """The OME text of a file that holds the first picture only, plane after plane.

    Names of other files go: a reader would look for the planes there.
    """
    root = ElementTree.fromstring(text.encode())
    namespace = root.tag.partition("}")[0].removeprefix("{") if "}" in root.tag else ""
    root.attrib.pop("UUID", None)
    images = [child for child in root if _name(child) == "Image"]
    if len(images) != n_pictures:
        doubts.append(f"the description: of its {len(images)} pictures the file has {n_pictures}")
        return b""
    for other in images[1:]:
        root.remove(other)
    for pixels in _found(root, "Pixels"):
        for name in _SIZES:
            if name in pixels.attrib and not is_a_size(pixels.attrib[name]):
                doubts.append(f"{name} of OME: it is {pixels.attrib.pop(name)!r}")
        places = [child for child in pixels if _name(child) == "TiffData"]
        first = list(pixels).index(places[0])
        for place in places:
            pixels.remove(place)
        tag = f"{{{namespace}}}TiffData" if namespace else "TiffData"
        data = ElementTree.Element(tag, IFD="0", PlaneCount=str(n_planes))
        pixels.insert(first, data)
    ElementTree.register_namespace("", namespace)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def imagej_text(text: str, doubts: list[str]) -> bytes:
    """The lines of ImageJ that can be true."""
    lines = []
    for line in text.split("\n"):
        key, _, value = line.partition("=")
        if key.strip() == "spacing" and not is_a_size(value):
            doubts.append(f"spacing of ImageJ: it is {value.strip()!r}")
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
