"""Campaigns about files: damaged models and images, and texts that lie."""

from __future__ import annotations

import io
import json
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from campaigns.common import Facts, bounded, check_result
from PIL import Image

import kappaform as kf
from kappaform.image_files import Picture, check_target, read_image, write_image


def model_files(rng: np.random.Generator, facts: Facts) -> None:
    """A damaged file of a transform is refused, or it gives the transform that was saved."""
    whole = _model(int(rng.integers(6)))
    crafted = rng.random() < 0.5
    facts["bytes"] = "changed inside the archive" if crafted else "changed"
    damaged = _crafted(rng, whole, facts) if crafted else _damaged(rng, whole, facts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        path.write_bytes(whole)
        saved = kf.load(path)
        path.write_bytes(damaged)
        loaded = bounded(lambda: kf.load(path), ValueError, OSError)
    if loaded is None:
        return
    check_result(loaded.result_)
    signals = np.random.default_rng(0).standard_normal((50, loaded.n_features_in_))
    assert np.isfinite(loaded.transform(signals)).all()
    if not crafted:
        np.testing.assert_array_equal(loaded.components_, saved.components_)
        np.testing.assert_array_equal(loaded.transform(signals), saved.transform(signals))


def _model(number: int) -> bytes:
    """A saved transform: of a race, of a race over batches, penalised, of another bound.

    Or a union: of a race, or of one over batches.
    """
    signals = np.random.default_rng(number).standard_normal((60, 6)).cumsum(axis=1)
    methods = (kf.Conditioned(2.0), kf.Conditioned(4.0), kf.LogDet(), kf.Conditioned(3.0))
    result: Any
    if number == 4:
        result = kf.learn_union(signals, n_transforms=2, n_nonzero_coefs=2, max_iter=4)
    elif number == 5:
        result = kf.UnionTransform(2, n_transforms=2).partial_fit(signals)
    elif number == 1:
        result = kf.learn_stream(np.split(signals, 3), methods[1], n_nonzero_coefs=2)
    else:
        result = kf.learn(signals, methods[number], n_nonzero_coefs=2, max_iter=4)
    with tempfile.TemporaryDirectory() as folder:
        kf.save(Path(folder) / "model.npz", result)
        return (Path(folder) / "model.npz").read_bytes()


def _damaged(rng: np.random.Generator, whole: bytes, facts: Facts) -> bytes:
    """Bytes changed, lost, repeated or cut off."""
    facts["damage"] = kind = str(rng.choice(["flip", "set", "cut", "lose", "repeat"]))
    data = np.frombuffer(whole, np.uint8).copy()
    i, j = np.sort(rng.integers(0, len(data) + 1, 2))
    if kind == "cut":
        return bytes(data[:i])
    if kind == "lose":
        return bytes(data[:i]) + bytes(data[min(j, i + 40) :])
    if kind == "repeat":
        return bytes(data[:j]) + bytes(data[i:])
    # Headers are short, and damage there is the most interesting.
    most = len(data) if rng.random() < 0.5 else min(len(data), 200)
    places = rng.integers(0, most, rng.integers(1, 5))
    if kind == "flip":
        data[places] ^= np.uint8(1) << rng.integers(0, 8, len(places)).astype(np.uint8)
    else:
        data[places] = rng.choice([0, 1, 127, 128, 255], len(places))
    return bytes(data)


def _crafted(rng: np.random.Generator, whole: bytes, facts: Facts) -> bytes:
    """An archive whose sums are right and whose contents are not."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    facts["entry"] = name = str(rng.choice(sorted(entries)))
    array = np.load(io.BytesIO(entries[name]))
    if array.dtype.kind == "f" and array.size and rng.random() < 0.7:
        array = array.copy()
        array.flat[rng.integers(array.size)] = rng.choice(
            [0.0, 1e300, -1.0, np.nan, 1e-300, np.inf]
        )
        entries[name] = _as_npy(array)
    elif array.dtype.kind == "U" and rng.random() < 0.7:
        header = json.loads(str(array))
        facts["key"] = key = str(rng.choice(sorted(header)))
        header[key] = [None, -1, 1e308, 10**12, "x", [], {}][rng.integers(7)]
        entries[name] = _as_npy(np.array(json.dumps(header)))
    else:
        entries[name] = _damaged(rng, entries[name], facts)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:  # as `save` does
        for entry, data in entries.items():
            archive.writestr(entry, data)
    return file.getvalue()


def _as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def picture_files(rng: np.random.Generator, facts: Facts) -> None:
    """A damaged image is refused in a sentence, or it is an image that can be written."""
    facts["kind"] = kind = str(rng.choice(sorted(PICTURES)))
    shape = (int(rng.integers(2, 40)), int(rng.integers(2, 40)))
    file = io.BytesIO()
    PICTURES[kind](rng, shape, file)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"picture.{kind.split()[-1]}"
        path.write_bytes(file.getvalue())
        assert isinstance(read_image(path), Picture)
        path.write_bytes(_damaged(rng, file.getvalue(), facts))
        picture = bounded(lambda: read_image(path), ValueError, OSError)
        if picture is None:
            return
        assert isinstance(picture, Picture)
        assert picture.pixels.dtype.kind in "uif"
        assert picture.pixels.size > 0
        path = path.with_suffix(".tif") if picture.has_pages else path
        if check_target(path, picture) is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of what is left out
                write_image(path, picture)
            assert read_image(path).colours.shape == picture.colours.shape


def _pixels(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "u1") -> np.ndarray:
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype)


def _pillow(kind: str, *channels: int, dtype: str = "u1", **options: Any) -> Callable[..., None]:
    def write(rng: np.random.Generator, shape: tuple[int, int], file: Any) -> None:
        Image.fromarray(_pixels(rng, (*shape, *channels), dtype)).save(file, kind, **options)

    return write


def _tiff(*channels: int, dtype: str = "u1", **options: Any) -> Callable[..., None]:
    def write(rng: np.random.Generator, shape: tuple[int, int], file: Any) -> None:
        tifffile.imwrite(file, _pixels(rng, (*shape, *channels), dtype), **options)

    return write


def _palette(rng: np.random.Generator, shape: tuple[int, int], file: Any) -> None:
    Image.fromarray(_pixels(rng, shape)).convert("P").save(file, "PNG")


def _npy(rng: np.random.Generator, shape: tuple[int, int], file: Any) -> None:
    np.save(file, _pixels(rng, shape, str(rng.choice(["u1", "u2", "i4"]))))


EXIF = Image.Exif()
EXIF[0x0112], EXIF[0x010F], EXIF[0x011A] = 6, "maker", 72.0  # orientation, maker, resolution

PICTURES: dict[str, Callable[..., None]] = {
    "grey png": _pillow("PNG"),
    "colour png": _pillow("PNG", 3),
    "16-bit png": _pillow("PNG", dtype="u2"),
    "palette png": _palette,
    "grey jpg": _pillow("JPEG", dpi=(300, 300)),
    "colour jpg": _pillow("JPEG", 3, progressive=True, exif=EXIF),
    "grey tif": _tiff(dtype="u2"),
    "deflated tif": _tiff(3, compression="zlib", photometric="rgb"),
    "tiled tif": _tiff(tile=(16, 16)),
    "pages tif": _tiff(3, photometric="minisblack"),
    "imagej tif": _tiff(dtype="u2", imagej=True, metadata={"spacing": 2.0, "unit": "um"}),
    "ome tif": _tiff(ome=True, metadata={"PhysicalSizeX": 2.0}),
    "lossy webp": _pillow("WEBP", 3, exif=EXIF),
    "lossless webp": _pillow("WEBP", 4, lossless=True),
    "grey bmp": _pillow("BMP"),
    "npy": _npy,
}


def ome_texts(rng: np.random.Generator, facts: Facts) -> None:
    """A TIFF whose OME text lies is refused, or gives pixels that are in the file."""
    n_pages = int(rng.integers(1, 5) if rng.random() < 0.95 else rng.integers(100, 3000))
    sizes = rng.integers(1, 60, (n_pages, 2)).tolist()
    sizes = sizes[:1] * n_pages if rng.random() < 0.5 else sizes
    facts.update(n_pages=n_pages, sizes=sizes[:5])
    facts["text"] = text = _ome_text(rng, sizes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture.ome.tif"
        with tifffile.TiffWriter(path) as file:
            for number, (height, width) in enumerate(sizes):
                description = {"description": text} if number == 0 else {}
                pixels = _pixels(rng, (height, width))
                file.write(pixels, photometric="minisblack", metadata=None, **description)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            picture = bounded(lambda: read_image(path), ValueError, OSError)
    if picture is not None:
        assert isinstance(picture, Picture)
        assert 0 < picture.pixels.size <= sum(height * width for height, width in sizes)


def _ome_text(rng: np.random.Generator, sizes: list[list[int]]) -> str:
    """A text that is true of the pages but for one to three of its statements."""
    height, width = sizes[0]
    pixels: dict[str, Any] = {"ID": "Pixels:0", "DimensionOrder": "XYZCT", "Type": "uint8"}
    pixels |= {"SizeX": width, "SizeY": height, "SizeZ": len(sizes), "SizeC": 1, "SizeT": 1}
    place: dict[str, Any] = {"IFD": 0, "PlaneCount": len(sizes)}
    n_images, inside, declaration = 1, "", ""
    for _ in range(rng.integers(1, 4)):
        lie = rng.integers(8)
        if lie == 0:
            pixels["SizeX"] = pixels["SizeY"] = _odd_number(rng)
        elif lie < 3:
            name = str(rng.choice([name for name in pixels if name.startswith("Size")]))
            pixels[name] = _odd_number(rng)
        elif lie == 3:
            pixels["DimensionOrder"] = str(rng.choice(["XYCZT", "YX", "", "XYZCTQ", "ZCTXY"]))
        elif lie == 4:
            pixels["Type"] = str(rng.choice(["double", "complex", "bit", "uint16", "x"]))
        elif lie == 5:
            place[str(rng.choice(["IFD", "PlaneCount", "FirstZ", "FirstC"]))] = _odd_number(rng)
        elif lie == 6:
            n_images = int(rng.choice([0, 2, 50, 3000]))
        else:
            declaration, inside = OME_INSIDES[rng.integers(len(OME_INSIDES))]
    element = f"<Pixels {_attributes(pixels)}><TiffData {_attributes(place)}/>{inside}</Pixels>"
    images = f'<Image ID="Image:0">{element}</Image>' * n_images
    space = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
    return f'<?xml version="1.0" encoding="UTF-8"?>{declaration}<OME xmlns="{space}">{images}</OME>'


ENTITIES = [
    f'<!ENTITY {new} "{f"&{old};" * 10}">' for old, new in zip("abcdefg", "bcdefgh", strict=True)
]
ENTITIES.append('<!ENTITY a "aaaaaaaaaa">')
#: Declarations and contents: another file, entities that grow, elements without end.
OME_INSIDES = (
    ("", '<TiffData IFD="0"><UUID FileName="/etc/hostname">urn:uuid:1</UUID></TiffData>'),
    ("", '<BinaryOnly MetadataFile="other.ome" UUID="urn:uuid:1"/>'),
    ("", "<a>" * 3000 + "</a>" * 3000),
    ("", "<Plane/>" * 20000),
    ("", "<a>"),
    (
        f"<!DOCTYPE OME [{''.join(ENTITIES)}]>",
        "<a>&h;</a>",
    ),
)


def _odd_number(rng: np.random.Generator) -> Any:
    return [0, -1, 2, 7, 1000, 10**6, 2**31, 10**12, "x", "", "1.5", "1e3"][rng.integers(12)]


def _attributes(of: dict[str, Any]) -> str:
    return " ".join(f'{name}="{value}"' for name, value in of.items())
