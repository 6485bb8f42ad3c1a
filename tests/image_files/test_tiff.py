"""A TIFF that is written says what the one that was read said, as far as it is true."""

import io
import struct
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile
from numpy.testing import assert_array_equal

from kappaform.image_files import Picture, read_image, write_image
from kappaform.image_files.picture import MOVIE, VOLUME

OME = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"
LUTS = [np.full((3, 256), value, np.uint8) for value in (1, 2, 3)]


def values(*shape, dtype="u2"):
    return np.random.default_rng(0).integers(0, 255, shape).astype(dtype)


def written(path, pixels, **options):
    tifffile.imwrite(path, pixels, **({"photometric": "minisblack"} | options))
    return path


def copied(source, suffix=".tif"):
    """The file that is written of the image that is read."""
    target = source.with_name(f"copy{suffix}")
    write_image(target, read_image(source))
    return target


def warned(source):
    """The copy, and what the warning says that it lacks."""
    with pytest.warns(UserWarning, match="is written without") as caught:
        target = copied(source)
    (warning,) = caught
    assert str(target) in str(warning.message)
    return target, str(warning.message)


def tags_of(path, *names):
    with tifffile.TiffFile(path) as file:
        tags = file.pages.first.tags
        return [tags[name].value if name in tags else None for name in names]


# --- What is kept


def test_imagej_keeps_spacing_unit_ranges_colours_and_labels(tmp_path):
    told = {"axes": "ZCYX", "spacing": 2.5, "unit": "um", "finterval": 0.5, "Info": "of a cell"}
    told |= {"Ranges": (0.0, 9.0, 1.0, 8.0, 2.0, 7.0), "LUTs": LUTS, "Labels": list("abcdef")}
    pixels = values(2, 3, 20, 16)
    source = tmp_path / "a.tif"
    tifffile.imwrite(source, pixels, imagej=True, resolution=(5.5, 4.5), metadata=told)
    target = copied(source)
    names = ("XResolution", "YResolution", "ResolutionUnit")
    assert tags_of(target, *names) == [(11, 2), (9, 2), tifffile.RESUNIT.NONE]
    with tifffile.TiffFile(target) as file:
        assert (file.series[0].kind, file.series[0].axes) == ("imagej", "ZCYX")
        assert_array_equal(file.asarray(), pixels)
        found = file.imagej_metadata
        assert_array_equal(found.pop("LUTs"), LUTS)
    with tifffile.TiffFile(source) as file:
        expected = file.imagej_metadata
        expected.pop("LUTs")
    assert found == expected


def test_ome_keeps_pixel_sizes_and_names_of_channels(tmp_path):
    told = {"axes": "TZCYX", "PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm"}
    told |= {"PhysicalSizeZ": 2.0, "Channel": {"Name": ["DAPI", "GFP"]}, "Name": "cells"}
    pixels = values(2, 3, 2, 20, 16)
    source = tmp_path / "a.ome.tif"
    tifffile.imwrite(source, pixels, ome=True, metadata=told)
    with tifffile.TiffFile(copied(source)) as file:
        assert (file.series[0].kind, file.series[0].axes) == ("ome", "TZCYX")
        assert_array_equal(file.asarray(), pixels)
        root = ElementTree.fromstring(file.ome_metadata.encode())
    found = root.find(f".//{OME}Pixels").attrib
    assert (found["PhysicalSizeX"], found["PhysicalSizeXUnit"]) == ("0.25", "µm")
    assert found["PhysicalSizeZ"] == "2.0"
    names = [channel.get("Name") for channel in root.iter(f"{OME}Channel")]
    assert names == ["DAPI", "GFP"]
    assert root.find(f"{OME}Image").get("Name") == "cells"


def test_ome_does_not_send_its_readers_to_another_file(tmp_path):
    source = tmp_path / "a.ome.tif"
    tifffile.imwrite(source, values(3, 20, 16), ome=True, metadata={"axes": "ZYX"})
    with tifffile.TiffFile(source) as file:
        text = file.ome_metadata
        uuid = ElementTree.fromstring(text.encode()).get("UUID")
    own = f'<UUID FileName="a.ome.tif">{uuid}</UUID>'
    places = "".join(
        f'<TiffData IFD="{2 - z}" FirstZ="{z}" PlaneCount="1">{own}</TiffData>' for z in range(3)
    )
    text = text.replace('<TiffData IFD="0" PlaneCount="3"/>', places)
    assert own in text
    written(source, values(3, 20, 16), metadata=None, description=text.encode())
    target = copied(source)
    with tifffile.TiffFile(target) as file:
        assert "UUID" not in file.ome_metadata
        assert file.series[0].kind == "ome"
        assert_array_equal(file.asarray(), values(3, 20, 16)[::-1])  # in the order of the text


@pytest.mark.parametrize("compression", ["zlib", "lzw", "packbits", "zstd", "lzma"])
def test_compression_predictor_tiles_and_big_files_stay(tmp_path, compression):
    predictor = compression in ("zlib", "lzw", "zstd")
    options = {"compression": compression, "predictor": predictor, "tile": (32, 16)}
    source = written(tmp_path / "a.tif", values(2, 70, 50), bigtiff=True, metadata=None, **options)
    with tifffile.TiffFile(source) as before, tifffile.TiffFile(copied(source)) as after:
        assert after.is_bigtiff
        for name in ("compression", "predictor", "tile"):
            assert getattr(after.pages[1], name) == getattr(before.pages[1], name)
        assert_array_equal(after.asarray(), before.asarray())
        assert (before.series[0].axes, after.series[0].axes) == ("IYX", "IYX")


def test_lossy_compression_stays_at_full_resolution_of_colours(tmp_path):
    pixels = np.add.outer(np.arange(64), np.arange(64))[..., None] + np.array([0, 40, 80])
    options = {"photometric": "rgb", "compression": "jpeg"}
    source = written(tmp_path / "a.tif", pixels.astype("u1"), **options)
    target = copied(source)
    with tifffile.TiffFile(target) as file:
        assert file.pages[0].compression == tifffile.COMPRESSION.JPEG
        assert file.pages[0].subsampling == (1, 1)
        difference = file.asarray().astype(int) - tifffile.imread(source)
    assert np.abs(difference).max() <= 6


def test_texts_resolution_profile_and_place_on_earth_stay(tmp_path):
    scale, xmp = (0.5, 0.5, 0.0), b"<x:xmpmeta/>"
    tags = [(315, "s", 0, "José".encode(), True), (33432, "s", 0, "©".encode(), True)]
    tags += [(33550, "d", 3, scale, True), (700, "B", len(xmp), xmp, True)]
    options = {"description": "a field", "datetime": "2020:01:02 03:04:05", "software": "mine"}
    options |= {"resolution": (118, 118), "resolutionunit": 3, "iccprofile": b"profile" * 9}
    source = written(tmp_path / "a.tif", values(9, 8), metadata=None, extratags=tags, **options)
    names = ("Artist", "Copyright", "ModelPixelScaleTag", "XMP", "ImageDescription", "DateTime")
    names += ("Software", "XResolution", "YResolution", "ResolutionUnit", "InterColorProfile")
    assert None not in tags_of(source, *names)
    assert tags_of(copied(source), *names) == tags_of(source, *names)


def test_description_of_tifffile_stays_next_to_that_of_the_user(tmp_path):
    told = {"axes": "TCYX", "mine": [1, 2]}
    source = written(tmp_path / "a.tif", values(2, 3, 9, 8), metadata=told, description="own")
    with tifffile.TiffFile(copied(source)) as file:
        assert file.pages.first.description == "own"
        assert file.shaped_metadata[0]["mine"] == [1, 2]
        assert file.series[0].axes == "TCYX"


def test_alpha_stays_of_its_kind_and_samples_where_they_were(tmp_path):
    rgba = values(9, 8, 4, dtype="u1")
    source = written(tmp_path / "a.tif", rgba, photometric="rgb", extrasamples=["assocalpha"])
    assert tags_of(copied(source), "ExtraSamples") == tags_of(source, "ExtraSamples")
    apart = {"photometric": "rgb", "planarconfig": "separate"}
    source = written(tmp_path / "a.tif", values(3, 70, 50), **apart)
    target = copied(source)
    assert tags_of(target, "PlanarConfiguration") == [tifffile.PLANARCONFIG.SEPARATE]
    assert_array_equal(tifffile.imread(target), values(3, 70, 50))


# --- Axes


@pytest.mark.parametrize("axes", ["ZYX", "CYX", "TZCYX", "TCZYX", "TYX", "YX"])
def test_planes_are_images_of_their_own_and_return_to_their_places(tmp_path, axes):
    lengths = {"T": 2, "Z": 4, "C": 3, "Y": 20, "X": 16}
    pixels = values(*(lengths[axis] for axis in axes))
    options = {"ome": True, "metadata": {"axes": axes}, "photometric": "minisblack"}
    tifffile.imwrite(tmp_path / "a.tif", pixels, **options)
    picture = read_image(tmp_path / "a.tif")
    assert (picture.axes, picture.page_axes) == (axes, axes[:-2])
    planes = picture.as_stack()
    assert_array_equal(planes, pixels.reshape(-1, 20, 16))
    write_image(tmp_path / "b.tif", picture.with_stack(planes + 1))
    assert_array_equal(tifffile.imread(tmp_path / "b.tif"), pixels + 1)


@pytest.mark.parametrize("axes", ["ZYX", "TZCYX", "ZTYX", "ZCYX"])
def test_volumes_never_mix_channels_or_times(tmp_path, axes):
    lengths = {"T": 2, "Z": 4, "C": 3, "Y": 20, "X": 16}
    pixels = values(*(lengths[axis] for axis in axes))
    written(tmp_path / "a.tif", pixels, metadata={"axes": axes})
    picture = read_image(tmp_path / "a.tif")
    volumes = picture._replace(along=VOLUME).as_stack()
    n_volumes = pixels.size // (4 * 20 * 16)
    assert volumes.shape == (n_volumes, 4, 20, 16)
    others = axes.replace("Z", "")[:-2]
    first = pixels.transpose([*(axes.index(axis) for axis in others), axes.index("Z"), -2, -1])
    assert_array_equal(volumes, first.reshape(volumes.shape))
    assert_array_equal(picture._replace(along=VOLUME).with_stack(volumes).pixels, picture.pixels)


@pytest.mark.parametrize("axes", ["TYX", "TZCYX", "ZTYX", "CTYX", "IYX", "ZYX"])
def test_movies_never_mix_channels_or_depths(tmp_path, axes):
    lengths = {"T": 5, "I": 5, "Z": 4, "C": 3, "Y": 20, "X": 16}
    pixels = values(*(lengths[axis] for axis in axes))
    written(tmp_path / "a.tif", pixels, metadata={"axes": axes})
    picture = read_image(tmp_path / "a.tif")
    movies = picture._replace(along=MOVIE).as_stack()
    time = next(axis for axis in "TIZ" if axis in axes)
    others = axes.replace(time, "")[:-2]
    first = pixels.transpose([*(axes.index(axis) for axis in others), axes.index(time), -2, -1])
    assert_array_equal(movies, first.reshape(-1, lengths[time], 20, 16))
    assert_array_equal(picture._replace(along=MOVIE).with_stack(movies).pixels, picture.pixels)


def test_colours_of_a_stack_come_last_and_keep_their_alpha(tmp_path):
    pixels = values(2, 3, 9, 8, 4, dtype="u1")
    options = {"photometric": "rgb", "extrasamples": ["unassalpha"]}
    written(tmp_path / "a.tif", pixels, metadata={"axes": "TZYXS"}, **options)
    picture = read_image(tmp_path / "a.tif")
    assert picture.as_stack().shape == (6, 9, 8, 3)
    assert picture._replace(along=VOLUME).as_stack().shape == (2, 3, 9, 8, 3)
    assert_array_equal(picture.with_stack(picture.as_stack()).pixels, pixels)


def test_channels_are_no_depth(tmp_path):
    written(tmp_path / "a.tif", values(3, 20, 16), metadata={"axes": "CYX"})
    with pytest.raises(ValueError, match=r"axes of the image are CYX, none .* leave out --volume"):
        read_image(tmp_path / "a.tif")._replace(along=VOLUME).as_stack()


def test_pages_without_names_may_be_a_volume():
    picture = Picture(values(4, 9, 8), False)
    assert picture.axes == "QYX"
    assert picture._replace(along=VOLUME).as_stack().shape == (1, 4, 9, 8)


def test_axes_in_an_order_of_their_own_return_to_it(tmp_path):
    pixels = values(9, 8, 5)
    source = written(tmp_path / "a.tif", pixels, metadata={"axes": "YXZ"})
    assert_array_equal(read_image(source).pixels, np.moveaxis(pixels, -1, 0))
    assert_array_equal(tifffile.imread(copied(source)), pixels)


# --- Colours


def test_a_palette_becomes_colours(tmp_path):
    indices = values(9, 8, dtype="u1")
    for factor, dtype in ((257, "u1"), (256, "u1"), (255, "u2")):
        palette = (values(3, 256) * factor).astype("u2")
        options = {"photometric": "palette", "colormap": palette}
        source = written(tmp_path / "a.tif", indices, **options)
        colours = np.moveaxis(palette[:, indices], 0, -1)
        expected = colours >> 8 if dtype == "u1" else colours
        picture = read_image(source)
        assert picture.pixels.dtype == np.dtype(dtype)
        assert_array_equal(picture.pixels, expected)
        assert_array_equal(tifffile.imread(copied(source)), expected)


def test_the_palette_of_a_microscope_only_shows_its_values(tmp_path):
    source, palette = tmp_path / "a.tif", (values(3, 256) * 257).astype("u2")
    tifffile.imwrite(source, values(9, 8, dtype="u1"), imagej=True, colormap=palette)
    target = copied(source)
    assert_array_equal(tifffile.imread(target), values(9, 8, dtype="u1"))
    assert_array_equal(tags_of(target, "ColorMap")[0], palette)


def test_bits_become_black_and_white(tmp_path):
    bits = values(9, 8) > 100
    for photometric, expected in (("minisblack", bits), ("miniswhite", ~bits)):
        source = written(tmp_path / "a.tif", bits, photometric=photometric)
        assert_array_equal(read_image(source).pixels, 255 * expected.astype("u1"))


@pytest.mark.parametrize(
    ("photometric", "n_samples", "name"),
    [("separated", 4, "CMYK"), ("cielab", 3, "CIELAB"), ("ycbcr", 3, "YCBCR")],
)
def test_other_colours_are_rejected_by_their_names(tmp_path, photometric, n_samples, name):
    pixels = values(9, 8, n_samples, dtype="u1")
    source = written(tmp_path / "a.tif", pixels, photometric=photometric)
    with pytest.raises(ValueError, match=rf"its colours are {name}: convert it to RGB first"):
        read_image(source)


@pytest.mark.parametrize("orientation", [3, 6])
def test_an_orientation_is_followed_and_removed(tmp_path, orientation):
    pixels = values(9, 8)
    tags = [(274, "H", 1, orientation, True)]
    source = written(tmp_path / "a.tif", pixels, metadata=None, extratags=tags)
    target = copied(source)
    expected = np.rot90(pixels, 2 if orientation == 3 else -1)
    assert_array_equal(tifffile.imread(target), expected)
    assert tags_of(target, "Orientation") == [None]


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_the_resolution_is_that_of_the_upright_image(tmp_path, orientation):
    tags = [(274, "H", 1, orientation, True)]
    options = {"resolution": (300, 150), "resolutionunit": 2, "metadata": None}
    source = written(tmp_path / "a.tif", values(9, 8), extratags=tags, **options)
    expected = [(150, 1), (300, 1)] if orientation in (6, 8) else [(300, 1), (150, 1)]
    assert tags_of(copied(source), "XResolution", "YResolution") == expected


# --- What is not true


@pytest.mark.parametrize("size", ["0", "-0.5", "nan", "inf", "wide"])
def test_sizes_that_cannot_be_are_left_out_and_named(tmp_path, size):
    told = {"axes": "ZYX", "PhysicalSizeX": 0.25, "PhysicalSizeY": 0.5}
    source = tmp_path / "a.tif"
    tifffile.imwrite(source, values(2, 9, 8), ome=True, metadata=told)
    with tifffile.TiffFile(source) as file:
        text = file.ome_metadata.replace('SizeX="0.25"', f'SizeX="{size}"')
    written(source, values(2, 9, 8), metadata=None, description=text.encode())
    target, warning = warned(source)
    assert f"PhysicalSizeX of OME: it is '{size}'" in warning
    assert_array_equal(tifffile.imread(target), values(2, 9, 8))
    with tifffile.TiffFile(target) as file:
        assert 'PhysicalSizeY="0.5"' in file.ome_metadata
        assert "PhysicalSizeX=" not in file.ome_metadata

    text = f"ImageJ=1.54\nimages=2\nslices=2\nspacing={size}\nunit=um\n"
    written(source, values(2, 9, 8), metadata=None, description=text)
    target, warning = warned(source)
    assert f"spacing of ImageJ: it is '{size}'" in warning
    with tifffile.TiffFile(target) as file:
        assert file.imagej_metadata["unit"] == "um"
        assert "spacing" not in file.imagej_metadata


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0)])
def test_a_resolution_that_cannot_be_is_left_out_and_named(tmp_path, wrong):
    right = struct.pack("<II", 7, 5)
    source = written(tmp_path / "a.tif", values(9, 8), resolution=((7, 5), (7, 5)), metadata=None)
    data = source.read_bytes()
    assert right in data
    source.write_bytes(data.replace(right, struct.pack("<II", *wrong)))
    target, warning = warned(source)
    assert f"the resolution: it is {wrong} x {wrong}" in warning
    assert_array_equal(tifffile.imread(target), values(9, 8))
    assert tags_of(target, "XResolution", "ResolutionUnit") == [(1, 1), tifffile.RESUNIT.NONE]


def ome_text(data='<TiffData IFD="0" PlaneCount="2"/>', **sizes):
    sizes = {"X": 8, "Y": 9, "Z": 2, "C": 1, "T": 1} | sizes
    told = " ".join(f'Size{axis}="{length}"' for axis, length in sizes.items())
    return (
        f'<?xml version="1.0"?><OME xmlns="{OME[1:-1]}"><Image ID="Image:0"><Pixels ID="Pixels:0" '
        f'DimensionOrder="XYZCT" Type="uint16" {told}>{data}</Pixels></Image></OME>'
    )


UNTRUE = {
    "broken xml": (ome_text().replace("</Pixels>", ""), "it cannot be read"),
    "more planes": (ome_text(Z=5), "it declares 5 planes, the file has 2"),
    "a billion planes": (ome_text(Z=10**9), "it declares 1000000000 planes"),
    "a billion counted": (
        ome_text(data='<TiffData IFD="0" PlaneCount="1000000000"/>'),
        "it declares 1000000000 planes",
    ),
    "another size": (ome_text(X=80), "it declares 80 x 9 pixels, no page has this size"),
    "no number": (ome_text(Z="two"), "it cannot be read"),
    "another file": (
        f'<?xml version="1.0"?><OME xmlns="{OME[1:-1]}"><BinaryOnly MetadataFile="b.ome" '
        'UUID="urn:uuid:1"/></OME>',
        "it has other axes or another shape",
    ),
    "imagej": ("ImageJ=1.54\nimages=7\nslices=7\n", "the description: "),
    "axes": ('{"shape": [2, 9, 8], "axes": "TZCYX"}', "axes do not match shape"),
    "shape": ('{"shape": [7, 9, 8]}', "the description: "),
}


@pytest.mark.parametrize("case", UNTRUE)
def test_pixels_outlive_a_description_that_is_not_true(tmp_path, case):
    text, reason = UNTRUE[case]
    options = {"metadata": None, "description": text, "compression": "zlib"}
    source = written(tmp_path / "a.tif", values(2, 9, 8), **options)
    target, warning = warned(source)
    assert reason in warning
    assert "\n" not in warning
    with tifffile.TiffFile(target) as file:
        assert_array_equal(file.asarray(), values(2, 9, 8))
        assert not file.is_ome
        assert not file.is_imagej


def test_pixels_of_other_files_are_not_read(tmp_path):
    other = '<TiffData IFD="0" FirstZ="1" PlaneCount="1"><UUID FileName="b.tif">urn:uuid:2</UUID>'
    data = f'<TiffData IFD="0" PlaneCount="1"/>{other}</TiffData>'
    for name, shift in (("a.tif", 0), ("b.tif", 1)):
        pixels = np.stack([values(9, 8), values(9, 8)]) + shift
        options = {"metadata": None, "description": ome_text(data)}
        written(tmp_path / name, pixels.astype("u2"), **options)
    target, warning = warned(tmp_path / "a.tif")
    assert "the description: it has other axes" in warning
    assert_array_equal(tifffile.imread(target), np.stack([values(9, 8)] * 2))


def test_other_images_of_a_file_are_named_as_left_out(tmp_path):
    source = tmp_path / "a.tif"
    with tifffile.TiffWriter(source, ome=True) as writer:
        writer.write(values(2, 9, 8), metadata={"axes": "ZYX", "Name": "first"})
        writer.write(values(30, 20), metadata={"Name": "second"})
    target, warning = warned(source)
    assert "all except the first of its 2 images" in warning
    with tifffile.TiffFile(target) as file:
        assert len(file.series) == 1
        assert file.series[0].name == "first"
        assert "second" not in file.ome_metadata


def test_a_description_of_other_pixels_is_not_written(tmp_path):
    source = tmp_path / "a.tif"
    tifffile.imwrite(source, values(2, 9, 8), ome=True, metadata={"axes": "ZYX"})
    picture = read_image(source)
    write_image(tmp_path / "b.tif", picture._replace(pixels=values(3, 9, 8)))
    assert tags_of(tmp_path / "b.tif", "ImageDescription") != tags_of(source, "ImageDescription")
    assert_array_equal(tifffile.imread(tmp_path / "b.tif"), values(3, 9, 8))


# --- Sizes


def test_a_large_file_is_no_trap_but_a_small_one_that_promises_as_much_is(tmp_path, monkeypatch):
    monkeypatch.setattr("kappaform.image_files.tiff_checks._MAX_PIXELS", 100)
    monkeypatch.setattr("kappaform.image_files.tiff_checks._MAX_BYTES", 200)
    noise = np.random.default_rng(0).integers(0, 2**16, (200, 200), np.uint16)
    assert read_image(written(tmp_path / "a.tif", noise, compression="zlib")).pixels.size == 40_000
    written(tmp_path / "b.tif", np.zeros((900, 900), np.uint16), compression="zlib")
    with pytest.raises(ValueError, match=r"b\.tif: it has 810000 pixels, more than the limit"):
        read_image(tmp_path / "b.tif")


def test_a_stack_with_one_header_must_have_all_its_pixels(tmp_path):
    stream = io.BytesIO()
    tifffile.imwrite(stream, values(9, 30, 20), imagej=True, metadata={"axes": "ZYX"})
    data = bytearray(stream.getvalue())
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        first = file.pages[0]
        end, n_tags = first.dataoffsets[0] + 9 * first.nbytes, len(first.tags)
    struct.pack_into("<I", data, first.offset + 2 + 12 * n_tags, 0)  # no second page
    (tmp_path / "a.tif").write_bytes(data[:end])
    assert_array_equal(read_image(tmp_path / "a.tif").pixels, values(9, 30, 20))
    (tmp_path / "a.tif").write_bytes(data[: end - 1])
    with pytest.raises(ValueError, match=r"a\.tif is not a valid TIFF file"):
        read_image(tmp_path / "a.tif")


def test_a_truthful_file_is_copied_without_a_warning(tmp_path):
    source = written(tmp_path / "a.tif", values(2, 9, 8), metadata={"axes": "ZYX"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied(source)
