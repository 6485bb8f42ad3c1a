"""EXIF of an image that was turned upright: unchanged except for what that affects."""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Collection

from PIL import Image

from kappaform.image_files.picture import SIDEWAYS, Resolution

MARK = b"Exif\0\0"  # in front of the block in a JPEG
ORIENTATION = 0x0112
RESOLUTION = (0x011A, 0x011B, 0x0128)  # along x, along y, and the unit
_CAMERA, _PLACE = 0x8769, 0x8825  # tags that point to sub-directories
#: Sub-directories of EXIF besides texts and resolution; TIFF is written without them.
SUB_DIRECTORIES = {_CAMERA: "EXIF of the camera", _PLACE: "EXIF of the place"}
_SIZES = {0xA002: 0, 0xA003: 1, 0x0100: 0, 0x0101: 1}  # width and height of the image
_ALONG_X_AND_Y = (RESOLUTION[:2], (0xA20E, 0xA20F))  # resolutions: of the image, of the sensor
_MODEL, _ISO = 0x0110, 0x8827
_LONGEST_NAME = 100  # characters of the model of a camera
_LONG, _SHORT = 4, 3  # types of values

#: Tags that are text in EXIF and in TIFF alike: name, description, maker, model, page, software,
#: date, artist, computer, copyright.
TEXTS = (269, 270, 271, 272, 285, 305, 306, 315, 316, 33432)


def upright(
    block: bytes, size: tuple[int, int], orientation: int, without: Collection[int] = ()
) -> bytes:
    """The EXIF block of an image that was turned upright, without preview and some tags.

    The orientation becomes 1, width and height become those of `size`, and resolutions along x and
    y are exchanged if the image was on its side. Everything else keeps its offset: maker notes
    refer to offsets within the block.
    """
    data = bytearray(block)
    order = {b"II": "<", b"MM": ">"}[block[:2]]

    def directory(start: int) -> dict[int, int]:
        """Offsets of the entries of tags."""
        (n_entries,) = struct.unpack_from(f"{order}H", data, start)
        places = range(start + 2, start + 2 + 12 * n_entries, 12)
        return {struct.unpack_from(f"{order}H", data, place)[0]: place for place in places}

    (start,) = struct.unpack_from(f"{order}I", data, 4)
    main = directory(start)
    stop = start + 2 + 12 * struct.unpack_from(f"{order}H", data, start)[0]
    struct.unpack_from(f"{order}I", data, stop)  # offset of the preview: it must exist
    directories = [main]
    if _CAMERA in main:
        directories.append(directory(*struct.unpack_from(f"{order}I", data, main[_CAMERA] + 8)))
    for tags in directories:
        for tag, side in _SIZES.items():
            if tag in tags:
                struct.pack_into(f"{order}HII", data, tags[tag] + 2, _LONG, 1, size[side])
        for across, down in _ALONG_X_AND_Y:
            if orientation in SIDEWAYS and {across, down} <= tags.keys():
                x, y = (slice(tags[tag] + 2, tags[tag] + 12) for tag in (across, down))
                data[x], data[y] = data[y], data[x]
    if ORIENTATION in main:
        struct.pack_into(f"{order}HIHH", data, main[ORIENTATION] + 2, _SHORT, 1, 1, 0)
    kept = [bytes(data[place : place + 12]) for tag, place in main.items() if tag not in without]
    content = struct.pack(f"{order}H", len(kept)) + b"".join(kept)
    length = stop + 4 - start
    data[start : start + length] = content.ljust(length, b"\0")  # zeros: no preview follows
    return bytes(data)


def upright_xmp(xmp: bytes) -> bytes:
    """The XMP text with orientation 1, if it has one."""
    return re.sub(rb"(tiff:Orientation(?:=[\"']|>))\d", rb"\g<1>1", xmp)


def texts_of(block: bytes) -> dict[int, bytes]:
    """Texts of a block that TIFF can store."""
    exif = _loaded(block)
    texts = {tag: exif[tag] for tag in TEXTS if isinstance(exif.get(tag), str)}
    return {tag: text.encode("latin-1") for tag, text in texts.items()}  # as Pillow decodes it


def sub_directories_of(block: bytes) -> list[str]:
    """Names of the sub-directories of a block."""
    exif = _loaded(block)
    return [name for tag, name in SUB_DIRECTORIES.items() if tag in exif]


def camera_of(block: bytes) -> tuple[str | None, float | None]:
    """Model and sensitivity (ISO) of the camera, as far as a block names them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow skips what is broken, with a warning
            exif = _loaded(block)
            model, iso = exif.get(_MODEL), exif.get_ifd(_CAMERA).get(_ISO)
    except Exception:  # broken in any way: it names nothing
        return None, None
    name = model.strip(" \0")[:_LONGEST_NAME] if isinstance(model, str) else ""
    return name or None, sensitivity(iso)


def sensitivity(iso: object) -> float | None:
    """A sensitivity as a number; cameras may store it twice."""
    first = iso[0] if isinstance(iso, tuple) and iso else iso
    return float(first) if isinstance(first, int) and 0 < first < 2**32 else None


def _loaded(block: bytes) -> Image.Exif:
    exif = Image.Exif()
    if block:
        exif.load(MARK + block)
    return exif


def block_of(texts: dict[int, bytes], resolution: Resolution | None) -> bytes:
    """A block of texts and resolution; empty if there are none."""
    exif = Image.Exif()
    for tag, text in texts.items():
        exif[tag] = text
    if resolution:
        exif.update(zip(RESOLUTION, resolution, strict=True))
    return exif.tobytes().removeprefix(MARK) if len(exif) else b""
