"""EXIF of a picture that was turned upright: byte by byte as before, but for what that changes."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection

from PIL import Image

from kappaform.image_files.picture import Resolution

MARK = b"Exif\0\0"  # in front of the block in a JPEG
ORIENTATION = 0x0112
RESOLUTION = (0x011A, 0x011B, 0x0128)  # along x, along y, and the unit
_CAMERA, _PLACE = 0x8769, 0x8825  # tags that say where further tags are
#: What EXIF holds besides texts and resolution; TIFF is written without it.
DETAILS = {_CAMERA: "EXIF of the camera", _PLACE: "EXIF of the place"}
_SIZES = {0xA002: 0, 0xA003: 1}  # width and height of the picture
_LONG, _SHORT = 4, 3  # types of values

#: Tags that are text in EXIF and in TIFF alike: name, description, maker, model, page, software,
#: date, artist, computer, copyright.
TEXTS = (269, 270, 271, 272, 285, 305, 306, 315, 316, 33432)


def upright(block: bytes, size: tuple[int, int], without: Collection[int] = ()) -> bytes:
    """The block with the orientation 1 and the size of the picture, without preview and some tags.

    All else stays where it is: notes of a maker refer to places within the block.
    """
    data = bytearray(block)
    order = {b"II": "<", b"MM": ">"}[block[:2]]

    def entries(start: int) -> range:
        (n_entries,) = struct.unpack_from(f"{order}H", data, start)
        return range(start + 2, start + 2 + 12 * n_entries, 12)

    (start,) = struct.unpack_from(f"{order}I", data, 4)
    places, kept = entries(start), []
    struct.unpack_from(f"{order}I", data, places.stop)  # where the preview is: it must be there
    for place in places:
        tag, _, _, value = struct.unpack_from(f"{order}HHII", data, place)
        if tag == ORIENTATION:
            struct.pack_into(f"{order}HIHH", data, place + 2, _SHORT, 1, 1, 0)
        elif tag == _CAMERA:
            for detail in entries(value):
                (number,) = struct.unpack_from(f"{order}H", data, detail)
                if number in _SIZES:
                    side = size[_SIZES[number]]
                    struct.pack_into(f"{order}HII", data, detail + 2, _LONG, 1, side)
        if tag not in without:
            kept.append(bytes(data[place : place + 12]))
    content = struct.pack(f"{order}H", len(kept)) + b"".join(kept)
    length = places.stop + 4 - start
    data[start : start + length] = content.ljust(length, b"\0")  # zeros: no preview follows
    return bytes(data)


def upright_xmp(xmp: bytes) -> bytes:
    """The text with the orientation 1, if it has one."""
    return re.sub(rb"(tiff:Orientation(?:=[\"']|>))\d", rb"\g<1>1", xmp)


def texts_of(block: bytes) -> dict[int, bytes]:
    """Texts of a block that TIFF has, too."""
    exif = Image.Exif()
    if block:
        exif.load(MARK + block)
    texts = {tag: exif[tag] for tag in TEXTS if isinstance(exif.get(tag), str)}
    return {tag: text.encode("latin-1") for tag, text in texts.items()}  # as Pillow decodes it


def details_of(block: bytes) -> list[str]:
    """Names of the `DETAILS` of a block."""
    exif = Image.Exif()
    if block:
        exif.load(MARK + block)
    return [name for tag, name in DETAILS.items() if tag in exif]


def block_of(texts: dict[int, bytes], resolution: Resolution | None) -> bytes:
    """A block of texts and resolution; none if there are none."""
    exif = Image.Exif()
    for tag, text in texts.items():
        exif[tag] = text
    if resolution:
        exif.update(zip(RESOLUTION, resolution, strict=True))
    return exif.tobytes().removeprefix(MARK) if len(exif) else b""
