"""A TIFF costs its reader no more than its size deserves, and texts in it never cost the pixels."""

import io
import struct
import tracemalloc
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from image_files.test_tiff import OME, copied, ome_text, values, warned, written
from numpy.testing import assert_array_equal

from kappaform.image_files import read_image

# --- Texts


def test_a_size_that_no_page_has_reserves_no_memory(tmp_path):
    text = ome_text(X=60_000, Y=60_000)  # as many values as 100 million pages of 9 x 8 pixels
    options = {"metadata": None, "description": text, "compression": "zlib"}
    source = written(tmp_path / "a.tif", values(2, 9, 8), **options)
    tracemalloc.start()
    try:
        picture = read_image(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert_array_equal(picture.pixels, values(2, 9, 8))
    (omitted,) = picture.metadata.omitted
    assert omitted.endswith("it declares 60000 x 60000 pixels, no page has this size")
    assert peak < 50e6


def test_labels_that_no_plane_has_reserve_no_memory(tmp_path):
    along = '<ModuloAlongZ Type="angle" Start="0" End="2e7" Step="1"/>'
    notes = '<StructuredAnnotations><XMLAnnotation ID="A" Namespace="modulo"><Value><Modulo>'
    notes += f"{along}</Modulo></Value></XMLAnnotation></StructuredAnnotations></OME>"
    text = ome_text().replace("</OME>", notes)
    source = written(tmp_path / "a.tif", values(2, 9, 8), metadata=None, description=text)
    tracemalloc.start()
    try:
        picture = read_image(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert_array_equal(picture.pixels, values(2, 9, 8))
    assert "it declares 2e+07 labels along an axis" in picture.metadata.omitted[0]
    assert peak < 50e6


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("n_pages", [1, 2])
@pytest.mark.parametrize(
    "text", ["images=7\nslices=7\n", "images=-3\n", "images=1\nslices=0\n", "images=abc\n"]
)
def test_pixels_outlive_a_text_of_imagej_that_is_not_true(tmp_path, text, n_pages, compression):
    options = {"metadata": None, "description": f"ImageJ=1.54\n{text}", "compression": compression}
    pixels = values(n_pages, 9, 8) if n_pages > 1 else values(9, 8)
    target, warning = warned(written(tmp_path / "a.tif", pixels, **options))
    assert "is written without the description: " in warning
    with tifffile.TiffFile(target) as file:
        assert_array_equal(file.asarray(), pixels)
        assert not file.is_imagej


def test_writing_ome_changes_no_other_xml(tmp_path):
    name = "urn:a-namespace-of-this-test"
    text = ome_text().replace(OME[1:-1], name)
    source = written(tmp_path / "a.tif", values(2, 9, 8), metadata=None, description=text)
    root = ElementTree.fromstring(text)
    before = ElementTree.tostring(root)
    target = copied(source)
    assert ElementTree.tostring(root) == before
    with tifffile.TiffFile(target) as file:
        assert f'<OME xmlns="{name}">' in file.ome_metadata  # no prefix: not all readers know one


# --- Tags


def with_entry(data, tag, kind, count, value):
    """The file with another entry of a tag of its first page."""
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        place = file.pages[0].tags[tag].offset
    data = bytearray(data)
    struct.pack_into("<HHII", data, place, tag, kind, count, value)
    return bytes(data)


DAMAGE = {"place": (2, 13, 10**8), "length": (2, 10**9, 8), "type": (99, 13, 8)}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("tag", [305, 315])
def test_pixels_outlive_a_damaged_text(tmp_path, tag, damage):
    source = tmp_path / "a.tif"
    tags = [(315, "s", 0, "an artist", True)]
    options = {"software": "some software", "metadata": None, "extratags": tags}
    written(source, values(9, 8), description="a field", **options)
    source.write_bytes(with_entry(source.read_bytes(), tag, *DAMAGE[damage]))
    target, warning = warned(source)
    assert warning.endswith(f"is written without tag {tag}: it is damaged.")
    with tifffile.TiffFile(target) as file:
        assert_array_equal(file.asarray(), values(9, 8))
        assert file.pages[0].description == "a field"


@pytest.mark.parametrize("tag", [256, 258, 259, 273, 277])
def test_damaged_tags_of_pixels_are_rejected(tmp_path, tag):
    source = written(tmp_path / "a.tif", values(9, 8), metadata=None)
    source.write_bytes(with_entry(source.read_bytes(), tag, 99, 1, 8))
    with pytest.raises(ValueError, match=r"a\.tif is not a valid TIFF file"):
        read_image(source)


# --- Pages


def pages_of_many_sizes(path, number):
    with tifffile.TiffWriter(path) as writer:
        for width in range(1, number + 1):
            pixels = np.full((1, width), 7, np.uint8)
            writer.write(pixels, metadata=None, photometric="minisblack")
    return path


def test_pages_of_too_many_sizes_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("kappaform.image_files.tiff_checks._MAX_LAYOUTS", 20)
    picture = read_image(pages_of_many_sizes(tmp_path / "a.tif", 20))
    assert "all except the first of its" in picture.metadata.omitted[0]
    with pytest.raises(ValueError, match=r"b\.tif: its pages have 21 different sizes .* split it"):
        read_image(pages_of_many_sizes(tmp_path / "b.tif", 21))


@pytest.mark.parametrize("options", [{"bigtiff": True}, {"byteorder": ">"}])
def test_pages_alike_are_one_layout_whatever_the_kind_of_file(tmp_path, monkeypatch, options):
    monkeypatch.setattr("kappaform.image_files.tiff_checks._MAX_LAYOUTS", 1)
    tifffile.imwrite(tmp_path / "a.tif", values(5, 9, 8), compression="zlib", **options)
    assert_array_equal(read_image(tmp_path / "a.tif").pixels, values(5, 9, 8))


def test_levels_of_a_pyramid_are_named_as_left_out(tmp_path):
    pixels = values(64, 64)
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        writer.write(pixels, subifds=2, tile=(16, 16))
        for step in (2, 4):
            writer.write(pixels[::step, ::step], subfiletype=1, tile=(16, 16))
    target, warning = warned(tmp_path / "a.tif")
    assert warning.endswith("is written without the 2 smaller levels of its pyramid.")
    assert_array_equal(tifffile.imread(target), pixels)
