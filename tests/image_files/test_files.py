"""Pictures survive their files, and files that hold none are rejected in one line."""

import io
import os
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.testing import assert_array_equal
from PIL import Image, ImageOps, JpegImagePlugin

from kappaform.files import check_writable, replaced_when_complete
from kappaform.image_files import Picture, as_stored, check_target, read_image, write_image


def write(path, picture):
    check_target(path, picture)
    write_image(path, picture)


def pixels(rng, shape, dtype):
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


NOISE = np.random.default_rng(0).integers(0, 255, (30, 30), np.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(*chunks):
    return b"".join([b"\x89PNG\r\n\x1a\n", *chunks, chunk(b"IEND", b"")])


LOSSLESS = [
    *[(".png", (7, 5, *channels), kind) for channels in ((), (3,), (4,)) for kind in ("u1", "u2")],
    *[(".png", (7, 5, 2), "u1"), (".png", (7, 5, 2), "u2")],
    *[(".tif", (7, 5, *channels), kind) for channels in ((), (3,)) for kind in ("u1", "u2", "f4")],
    *[(".tiff", (7, 5, 4), "u2"), (".tif", (7, 5, 2), "u1"), (".tif", (6, 7, 5), "i2")],
    *[(".tif", (6, 7, 3), "u2"), (".tif", (2, 7, 5, 3), "u1"), (".tif", (7, 5), "f8")],
    *[(".npy", (7, 5), "f8"), (".npy", (7, 5, 3), "u1"), (".npy", (6, 7, 5), "f4")],
]


@pytest.mark.parametrize(("suffix", "shape", "dtype"), LOSSLESS)
def test_a_written_image_is_read_back_bit_by_bit(tmp_path, rng, suffix, shape, dtype):
    has_channels = shape[-1] in (2, 3, 4) and shape != (6, 7, 3)
    has_alpha = has_channels and shape[-1] in (2, 4)
    values = pixels(rng, shape, dtype)
    write(tmp_path / f"a{suffix}", Picture(values, has_channels, has_alpha=has_alpha))
    picture = read_image(tmp_path / f"a{suffix}")
    assert picture.pixels.dtype == values.dtype
    assert_array_equal(picture.pixels, values)
    assert picture.has_channels == has_channels
    assert picture.has_alpha == has_alpha
    assert picture.has_pages == (len(shape) - has_channels == 3)
    assert [file.name for file in tmp_path.iterdir()] == [f"a{suffix}"]


@pytest.mark.parametrize("suffix", [".npy", ".tif"])
def test_a_fourth_channel_is_alpha_only_where_the_file_says_so(tmp_path, rng, suffix):
    values = pixels(rng, (7, 5, 4), "u1")
    write(tmp_path / f"a{suffix}", Picture(values, True))
    picture = read_image(tmp_path / f"a{suffix}")
    assert_array_equal(picture.pixels, values)
    assert (picture.has_channels, picture.has_alpha) == (True, False)
    with pytest.raises(ValueError, match=r"PNG cannot hold the 4 channels .* write TIFF or NPY"):
        write(tmp_path / "a.png", picture)


def test_jpeg_keeps_a_smooth_image_within_two_levels(tmp_path):
    ramp = np.tile(np.arange(0, 256, 4, dtype=np.uint8), (64, 1))
    write(tmp_path / "a.jpg", Picture(ramp, False))
    picture = read_image(tmp_path / "a.jpg")
    assert picture.pixels.dtype == np.uint8
    assert np.abs(picture.pixels.astype(int) - ramp).max() <= 2


def test_jpeg_keeps_colours_at_full_resolution(tmp_path, rng):
    write(tmp_path / "a.jpg", Picture(pixels(rng, (16, 16, 3), "u1"), True))
    with Image.open(tmp_path / "a.jpg") as image:
        assert JpegImagePlugin.get_sampling(image) == 0  # 4:4:4


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif"])
def test_the_colour_profile_is_kept(tmp_path, rng, suffix):
    profile = b"some profile" * 20
    for dtype in ("u1", "u2") if suffix != ".jpg" else ("u1",):
        picture = Picture(pixels(rng, (7, 5, 3), dtype), True, profile)
        write(tmp_path / f"a{suffix}", picture)
        assert read_image(tmp_path / f"a{suffix}").profile == profile


@pytest.mark.parametrize("interlaced", [False, True])
def test_sixteen_bit_colours_of_other_writers_are_read_whole(tmp_path, rng, interlaced):
    # With filters that Pillow must undo itself: 1 is the difference from the pixel to the left.
    values = pixels(rng, (8, 8, 3), "u2")
    passes = [values]
    if interlaced:
        starts = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2)]
        starts += [(0, 1, 2, 2), (1, 0, 2, 1)]
        passes = [values[top::down, left::right] for top, left, down, right in starts]
    content = b""
    for part in passes:
        rows = part.astype(">u2").view(np.uint8).reshape(len(part), -1)
        left = np.hstack([np.zeros((len(rows), 6), np.uint8), rows[:, :-6]])
        content += b"".join(b"\1" + row.tobytes() for row in rows - left)

    header = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, int(interlaced))
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(content))
    (tmp_path / "a.png").write_bytes(png_of(*parts))
    assert_array_equal(read_image(tmp_path / "a.png").pixels, values)


def test_palettes_bits_and_transparent_colours_become_plain_channels(tmp_path, rng):
    colours = Image.fromarray(pixels(rng, (7, 5, 3), "u1"))
    expected = {"P": (7, 5, 3), "1": (7, 5)}
    for mode, shape in expected.items():
        colours.convert(mode).save(tmp_path / "a.png")
        assert read_image(tmp_path / "a.png").pixels.shape == shape
    colours.save(tmp_path / "a.png", transparency=(1, 2, 3))
    assert read_image(tmp_path / "a.png").has_alpha


def test_photographs_are_turned_upright(tmp_path):
    values = np.zeros((16, 32), np.uint8)
    values[:, 16:] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera held upright: turn clockwise
    Image.fromarray(values).save(tmp_path / "a.jpg", exif=exif)
    upright = read_image(tmp_path / "a.jpg").pixels
    assert upright.shape == (32, 16)
    assert upright[:12].max() < 10
    assert upright[20:].min() > 245


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("shape", "dtype"), [((7, 5, 3), "u2"), ((7, 5, 3), "u1"), ((7, 5), "u2")])
def test_png_is_turned_upright_whatever_its_type(tmp_path, rng, orientation, shape, dtype):
    values = pixels(rng, shape, dtype)
    write(tmp_path / "a.png", Picture(values, len(shape) == 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = (tmp_path / "a.png").read_bytes()
    start, end = data[:33], data[33:]  # after IHDR
    content = chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))
    (tmp_path / "a.png").write_bytes(start + content + end)
    indices = np.arange(35, dtype=np.uint8).reshape(7, 5)  # turned by Pillow, as a viewer would
    image = Image.fromarray(indices)
    image.getexif()[0x0112] = orientation
    upright = np.array(ImageOps.exif_transpose(image))
    expected = values.reshape(35, -1)[upright.ravel()].reshape(*upright.shape, *shape[2:])
    assert_array_equal(read_image(tmp_path / "a.png").pixels, expected)


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_compressed_tiff_is_read(tmp_path, rng, compression):
    values = pixels(rng, (2, 7, 5), "u1")
    first, second = (Image.fromarray(page) for page in values)
    options = {"save_all": True, "append_images": [second], "compression": compression}
    first.save(tmp_path / "a.tif", **options)
    assert_array_equal(read_image(tmp_path / "a.tif").pixels, values)


def test_tiff_that_stores_white_as_zero_or_channels_apart_is_read_as_it_looks(tmp_path, rng):
    grey, colours = pixels(rng, (7, 5), "u1"), pixels(rng, (3, 70, 50), "u1")
    tifffile.imwrite(tmp_path / "a.tif", 255 - grey, photometric="miniswhite")
    assert_array_equal(read_image(tmp_path / "a.tif").pixels, grey)
    tifffile.imwrite(tmp_path / "b.tif", colours, photometric="rgb", planarconfig="separate")
    assert_array_equal(read_image(tmp_path / "b.tif").pixels, np.moveaxis(colours, 0, -1))


def test_integers_are_rounded_and_clipped_and_floats_kept():
    values = np.array([-3.0, 0.49, 1.51, 254.6, 300.0])
    assert_array_equal(as_stored(values, np.uint8), np.array([0, 0, 2, 255, 255], np.uint8))
    assert_array_equal(as_stored(values, np.float32), values.astype(np.float32))


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
@pytest.mark.parametrize("values_dtype", ["f4", "f8"])
def test_integers_never_wrap_around(dtype, values_dtype):
    limits = np.iinfo(dtype)
    beyond = np.array([-1e30, -1e19, 1e19, 1e30, limits.min, limits.max], values_dtype)
    expected = [min(max(int(value), limits.min), limits.max) for value in beyond.tolist()]
    assert as_stored(beyond, dtype).tolist() == expected


def test_half_floats_beyond_their_range_stay_finite():
    values = np.array([-7e4, 65504.0, 65519.9, 65520.0, 1e30])
    stored = as_stored(values, np.float16)
    assert_array_equal(stored, np.array([-65504, 65504, 65504, 65504, 65504], np.float16))


def png_bytes(size):
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, size, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def huge_png():
    """A small file that says it has 10^10 pixels."""
    data = bytearray(png_bytes((9, 9)))
    data[16:24] = struct.pack(">II", 100_000, 100_000)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    return bytes(data)


def tiff_bytes(values, **options):
    stream = io.BytesIO()
    tifffile.imwrite(stream, values, **options)
    return stream.getvalue()


def huge_tiff():
    # Three million pages would be many pixels; a few with a wrong size are enough.
    data = tiff_bytes(np.zeros((2, 2), np.uint8), metadata=None)
    wide, high = (struct.pack("<HHII", tag, 4, 1, 2) for tag in (256, 257))
    assert wide in data
    return data.replace(wide, wide[:8] + struct.pack("<I", 100_000)).replace(
        high, high[:8] + struct.pack("<I", 100_000)
    )


def npy_bytes(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def png_of_rows(side, n_rows, interlaced=0):
    """A valid stream of rows that ends before the last one."""
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, interlaced)
    rows = zlib.compress(bytes(n_rows * (side + 1)))
    return png_of(chunk(b"IHDR", header), chunk(b"IDAT", rows))


def circular_tiff():
    """Pages of which the last is followed by the first, more than tifffile looks back at."""
    pages = np.zeros((120, 1, 1), np.uint8)
    data = bytearray(tiff_bytes(pages, metadata=None, photometric="minisblack"))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        first, last = file.pages[0].offset, file.pages[-1].offset
    (n_tags,) = struct.unpack_from("<H", data, last)
    struct.pack_into("<I", data, last + 2 + 12 * n_tags, first)
    return bytes(data)


def with_tags(data, **values):
    """The file with other values of tags of its first page."""
    data = bytearray(data)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        tags = [(file.pages[0].tags[name], value) for name, value in values.items()]
    for tag, value in tags:
        struct.pack_into("<H" if tag.dtype == 3 else "<I", data, tag.valueoffset, value)
    return bytes(data)


def tiff_of_samples(n_samples):
    """A small file that says it has many values at each of 300 x 300 pixels."""
    data = tiff_bytes(np.zeros((300, 300, 3), np.uint8), compression="zlib", photometric="rgb")
    return with_tags(data, SamplesPerPixel=n_samples)


def tiff_with_a_huge_tile():
    data = tiff_bytes(np.zeros((9, 9), np.uint8), tile=(16, 16), compression="zlib", metadata=None)
    return with_tags(data, TileWidth=64_000, TileLength=64_000)


JPEG = io.BytesIO()
Image.fromarray(NOISE).save(JPEG, "JPEG")
CMYK = io.BytesIO()
Image.fromarray(NOISE).convert("CMYK").save(CMYK, "JPEG")

DAMAGED = {
    "text.png": (b"no image", "cannot identify image file"),
    "empty.png": (b"", "cannot identify image file"),
    "cut.png": (png_bytes((30, 30))[:500], "not a valid"),
    "head.png": (png_bytes((30, 30))[:40], "not a valid"),
    "cut.jpg": (JPEG.getvalue()[:500], "truncated"),
    "cmyk.jpg": (CMYK.getvalue(), r"cmyk\.jpg: its colours are CMYK: convert it"),
    "rows.png": (png_of_rows(30, 15), "Not enough image data"),
    "interlaced.png": (png_of_rows(30, 29, interlaced=1), "Not enough image data"),
    "circle.tif": (circular_tiff(), "pages form a cycle"),
    "samples.tif": (tiff_of_samples(20_000), "1800000000 bytes, more than the limit"),
    "tile.tif": (tiff_with_a_huge_tile(), "bytes, more than the limit"),
    "huge.png": (huge_png(), "10000000000 pixels"),
    "text.tif": (b"no image", "not a TIFF file"),
    "empty.tif": (b"", "not a valid"),
    "cut.tif": (tiff_bytes(NOISE)[:600], "not a valid"),
    "deflated.tif": (tiff_bytes(NOISE, compression="zlib")[:600], "not a valid"),
    "pages.tif": (
        b"".join([tiff_bytes(np.stack([NOISE] * 9), metadata=None)])[:5000],
        "offset|not a valid",
    ),
    "huge.tif": (huge_tiff(), "10000000000 pixels"),
    "text.npy": (b"no array", "not a valid"),
    "empty.npy": (b"", "not a valid"),
    "cut.npy": (npy_bytes(NOISE)[:200], "not a valid"),
    "complex.npy": (npy_bytes(NOISE * 1j), "complex128"),
    "words.npy": (npy_bytes(np.array(["a"])), "contains <U1"),
    "nothing.npy": (npy_bytes(np.zeros((0, 3))), r"shape \(0, 3\)|not a valid"),
    "objects.npy": (npy_bytes(np.array([None])), "not a valid"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_image_is_rejected_in_one_line_that_names_the_file(tmp_path, name):
    data, message = DAMAGED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        read_image(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "failure", [ZeroDivisionError, RuntimeError, zipfile.BadZipFile, tokenize.TokenError]
)
def test_whatever_a_decoder_raises_means_damage(tmp_path, monkeypatch, failure):
    def fails(*_, **__):
        raise failure("two\nlines")

    (tmp_path / "a.npy").write_bytes(npy_bytes(NOISE))
    monkeypatch.setattr(np.lib.format, "open_memmap", fails)
    with pytest.raises(ValueError, match=r"a\.npy is not a valid NPY file: two lines"):
        read_image(tmp_path / "a.npy")


def test_lack_of_memory_is_no_damage(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise MemoryError

    (tmp_path / "a.png").write_bytes(png_bytes((9, 9)))
    monkeypatch.setattr(Image, "open", fails)
    with pytest.raises(MemoryError):
        read_image(tmp_path / "a.png")


COMPRESSIONS = [None, "zlib", "lzma"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("layout", [{"tile": (16, 16)}, {"rowsperstrip": 16}])
def test_tiff_without_all_of_its_tiles_or_strips_is_rejected(tmp_path, compression, layout):
    data = tiff_bytes(NOISE, compression=compression, metadata=None, **layout)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        offsets, lengths = file.pages[0].dataoffsets, file.pages[0].databytecounts
        tag = file.pages[0].tags["TileByteCounts" if "tile" in layout else "StripByteCounts"]
    assert len(offsets) > 1
    empty = bytearray(data)
    form = "<H" if tag.dtype == 3 else "<I"
    struct.pack_into(form, empty, tag.valueoffset + struct.calcsize(form), 0)
    for damaged in (data[: offsets[-1]], data[: offsets[-1] + lengths[-1] - 1], empty):
        (tmp_path / "a.tif").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.tif is not a valid TIFF file"):
            read_image(tmp_path / "a.tif")


def test_damaged_npy_headers_are_rejected_and_never_end_otherwise(tmp_path, rng):
    whole = npy_bytes(NOISE[:4, :4])
    path = tmp_path / "a.npy"
    header_length = len(whole) - 16
    for _ in range(300):
        data = bytearray(whole)
        for place in rng.integers(0, header_length, rng.integers(1, 4)):
            data[place] = rng.choice(np.frombuffer(whole[:header_length] + b"\0([{9'L", np.uint8))
        path.write_bytes(data)
        try:
            assert read_image(path).pixels.nbytes <= 16
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 4)",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (" + "(" * 300 + ")",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (10000000000000, 4), }",
        "{'descr': ('|u1', (2, 10**9)), 'fortran_order': False, 'shape': (4, 4), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4, -4), }",
        "{1: 2, 'descr': '|u1', 'shape': (4L, '4'), }",
    ],
)
def test_absurd_npy_headers_are_rejected(tmp_path, header):
    content = header.encode() + b"\n"
    data = b"\x93NUMPY\1\0" + struct.pack("<H", len(content)) + content + bytes(16)
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.npy is not a valid NPY file"):
        read_image(tmp_path / "a.npy")


def test_missing_files_folders_and_unknown_suffixes_are_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such file .*a\.png"):
        read_image(tmp_path / "a.png")
    (tmp_path / "b.png").mkdir()
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        read_image(tmp_path / "b.png")
    (tmp_path / "a.gif").touch()
    with pytest.raises(ValueError, match=r"suffix '\.gif' is unknown: use one of \.png"):
        read_image(tmp_path / "a.gif")
    with pytest.raises(ValueError, match=r"suffix '' is unknown"):
        write(tmp_path / "a", Picture(NOISE, False))


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("a.png", (9, 9), "f4", "PNG holds uint8 or uint16, the image is float32: write TIFF"),
        ("a.jpg", (9, 9), "u2", "JPEG holds uint8, the image is uint16: write PNG, TIFF or NPY"),
        ("a.jpg", (9, 9, 4), "u1", "JPEG cannot hold the 4 channels of the image: write PNG"),
        ("a.png", (9, 9, 9), "u1", "PNG holds one page"),
        ("a.jpg", (1, 65_501), "u1", "JPEG holds 65500 pixels per side, .*: write PNG"),
        ("a.tif", (9, 9), "?", "TIFF holds .*, the image is bool: write NPY"),
    ],
)
def test_a_format_that_would_lose_something_is_rejected(tmp_path, name, shape, dtype, message):
    picture = Picture(np.zeros(shape, dtype), shape[-1] == 4, has_alpha=shape[-1] == 4)
    with pytest.raises(ValueError, match=message):
        write(tmp_path / name, picture)
    assert not list(tmp_path.iterdir())


def test_targets_that_cannot_be_written_are_rejected_before_any_work(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist: create it"):
        check_writable(tmp_path / "none" / "a.png")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        check_writable(tmp_path)
    protected = tmp_path / "a.png"
    protected.write_bytes(b"mine")
    protected.chmod(0o444)
    with pytest.raises(PermissionError, match="is read-only"):
        write(protected, Picture(NOISE, False))
    assert protected.read_bytes() == b"mine"


def test_a_read_only_folder_is_rejected_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(PermissionError, match=r"a\.png: the folder .* is read-only"):
        check_writable(tmp_path / "a.png")


def test_a_file_that_cannot_be_opened_is_called_by_its_own_name(tmp_path, monkeypatch):
    def fails(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", fails)
    with pytest.raises(PermissionError) as caught, replaced_when_complete(tmp_path / "a.png"):
        pass
    assert caught.value.filename == str(tmp_path / "a.png")
