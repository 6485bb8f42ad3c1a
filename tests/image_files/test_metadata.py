"""PNG, JPEG, WebP and BMP say of their pixels what the file that was read said."""

import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
import tifffile
from numpy.testing import assert_array_equal
from PIL import ExifTags, Image, JpegImagePlugin, PngImagePlugin
from skimage.data import astronaut

from kappaform.image_files import Picture, check_target, read_image, write_image

ORIENTATION, MAKER, COPYRIGHT, X_RESOLUTION, UNIT = 0x0112, 0x010F, 0x8298, 0x011A, 0x0128
CAMERA, PLACE, WIDTH, HEIGHT, EXPOSURE, NOTE = 0x8769, 0x8825, 0xA002, 0xA003, 0x829A, 0x927C
PROFILE = b"some profile" * 20
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><a tiff:Orientation="6"/></x:xmpmeta>'
COLOURS = np.ascontiguousarray(astronaut()[100:148, 200:232])  # 48 x 32

MAIN_WIDTH, MAIN_HEIGHT, SENSOR_X = 0x0100, 0x0101, 0xA20E

HOLDS_EXIF = [".png", ".jpg", ".webp"]


def camera_exif():
    exif = Image.Exif()
    exif[ORIENTATION], exif[MAKER], exif[COPYRIGHT] = 6, "maker", "© José".encode()
    exif[X_RESOLUTION] = exif[X_RESOLUTION + 1] = 300.0
    exif[UNIT] = 2
    exif.get_ifd(CAMERA).update({WIDTH: 32, HEIGHT: 48, EXPOSURE: 0.01, NOTE: b"note" * 9})
    exif.get_ifd(PLACE)[1] = "N"
    return exif


def saved(path, pixels=COLOURS, **options):
    Image.fromarray(pixels).save(path, **options)
    return path


def copied(source, suffix=None, **options):
    target = source.with_name(f"copy{suffix or source.suffix}")
    write_image(target, read_image(source), **options)
    return target


def exif_of(path):
    with Image.open(path) as image:
        return image.getexif()


def info_of(path):
    with Image.open(path) as image:
        image.load()
        return image.info


@pytest.mark.parametrize("suffix", HOLDS_EXIF)
@pytest.mark.parametrize("target", HOLDS_EXIF)
def test_exif_stays_and_the_orientation_is_that_of_the_upright_image(tmp_path, suffix, target):
    options = {"lossless": True} if suffix == ".webp" else {}
    source = saved(tmp_path / f"a{suffix}", exif=camera_exif(), **options)
    found = exif_of(copied(source, target))
    assert (found[ORIENTATION], found[MAKER]) == (1, "maker")
    assert found[COPYRIGHT].encode("latin-1") == "© José".encode()  # no letter is replaced
    camera = found.get_ifd(CAMERA)
    assert (camera[WIDTH], camera[HEIGHT]) == (48, 32)  # turned
    assert (camera[EXPOSURE], camera[NOTE]) == (0.01, b"note" * 9)
    assert found.get_ifd(PLACE)[1] == "N"
    with Image.open(source.with_name(f"copy{target}")) as image:
        assert image.size == (48, 32)


def test_the_preview_of_the_old_image_goes(tmp_path):
    block = struct.pack("<2sHIHHHIHHIH", b"II", 42, 8, 1, MAKER, 2, 2, 0x41, 0, 26, 1)
    block += struct.pack("<HHIII", 0x0201, 4, 1, 99, 0)  # a second directory, for the preview
    source = saved(tmp_path / "a.jpg", exif=b"Exif\0\0" + block)
    assert exif_of(source).get_ifd(ExifTags.IFD.IFD1) == {0x0201: 99}
    found = exif_of(copied(source))
    assert found[MAKER] == "A"
    assert found.get_ifd(ExifTags.IFD.IFD1) == {}


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif"])
def test_xmp_and_profile_stay(tmp_path, suffix):
    source = saved(tmp_path / "a.webp", lossless=True, xmp=XMP, icc_profile=PROFILE)
    found = info_of(copied(source, suffix))
    assert found["icc_profile"] == PROFILE
    assert found["xmp"] == XMP.replace(b'"6"', b'"1"')


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".tif"])
@pytest.mark.parametrize("target", [".png", ".jpg", ".bmp", ".tif", ".webp"])
def test_pixels_per_inch_stay(tmp_path, suffix, target):
    source = saved(tmp_path / f"a{suffix}", dpi=(300, 150))
    copy = copied(source, target)
    if target == ".webp":
        exif = exif_of(copy)
        found = exif[X_RESOLUTION], exif[X_RESOLUTION + 1]
    else:
        found = info_of(copy)["dpi"]
    np.testing.assert_allclose([float(each) for each in found], [300, 150], rtol=1e-4)


@pytest.mark.parametrize("suffix", HOLDS_EXIF)
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_resolution_and_size_are_those_of_the_upright_image(tmp_path, suffix, orientation):
    exif = camera_exif()
    exif[ORIENTATION], exif[X_RESOLUTION], exif[X_RESOLUTION + 1] = orientation, 300.0, 150.0
    exif[MAIN_WIDTH], exif[MAIN_HEIGHT] = 32, 48
    exif.get_ifd(CAMERA).update({SENSOR_X: 40.0, SENSOR_X + 1: 20.0})
    options = {} if suffix == ".webp" else {"dpi": (300, 150)}
    copy = copied(saved(tmp_path / f"a{suffix}", exif=exif, **options))
    found = exif_of(copy)
    camera, (x, y), sensor, sides = found.get_ifd(CAMERA), (300, 150), (40, 20), (32, 48)
    if orientation in (6, 8):
        (x, y), sensor, sides = (y, x), sensor[::-1], sides[::-1]
    assert (found[X_RESOLUTION], found[X_RESOLUTION + 1]) == (x, y)
    assert (camera[SENSOR_X], camera[SENSOR_X + 1]) == sensor
    assert (found[MAIN_WIDTH], found[MAIN_HEIGHT]) == sides == (camera[WIDTH], camera[HEIGHT])
    assert read_image(copy).pixels.shape[1::-1] == sides
    if options:
        np.testing.assert_allclose(info_of(copy)["dpi"], (x, y), rtol=1e-4)


@pytest.mark.parametrize("suffix", HOLDS_EXIF)
@pytest.mark.parametrize("target", [".png", ".jpg", ".bmp", ".tif"])
def test_a_resolution_of_exif_alone_has_the_unit_that_exif_says(tmp_path, suffix, target):
    exif = Image.Exif()
    exif[X_RESOLUTION] = exif[X_RESOLUTION + 1] = 118.0
    exif[UNIT] = 3  # centimetres
    copy = copied(saved(tmp_path / f"a{suffix}", exif=exif), target)
    np.testing.assert_allclose(np.float64(info_of(copy)["dpi"]), 118 * 2.54, rtol=2e-3)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_where_exif_differs_the_resolution_is_that_of_the_file(tmp_path, suffix):
    source = saved(tmp_path / f"a{suffix}", exif=camera_exif(), dpi=(96, 96))
    resolution = read_image(source).metadata.resolution
    np.testing.assert_allclose(resolution.dpi, (96, 96), rtol=2e-4)


def test_a_jpeg_without_resolution_gets_none(tmp_path):
    copy = copied(saved(tmp_path / "a.jpg"))
    assert "dpi" not in info_of(copy)
    assert info_of(copy)["jfif_unit"] == 0


def test_texts_and_colours_of_png_stay(tmp_path):
    said = PngImagePlugin.PngInfo()
    said.add_text("Title", "IDAT is only a word here")
    said.add_itxt("Author", "José", "pt", "Autor")
    said.add_text("long", "x" * 5000, zip=True)
    said.add(b"gAMA", struct.pack(">I", 45455))
    said.add(b"cHRM", struct.pack(">8I", *range(1000, 9000, 1000)))
    source = saved(tmp_path / "a.png", pnginfo=said)
    data = source.read_bytes()  # and one text after the pixels
    late = b"tEXtComment\0after all"
    chunk = struct.pack(">I", len(late) - 4) + late + struct.pack(">I", zlib.crc32(late))
    source.write_bytes(data[:-12] + chunk + data[-12:])
    target = copied(source)
    with Image.open(source) as before, Image.open(target) as after:
        assert after.text == before.text
        assert after.text["Comment"] == "after all"
        assert (after.text["Author"].lang, after.text["Author"].tkey) == ("pt", "Autor")
        for name in ("gamma", "chromaticity"):
            assert after.info[name] == before.info[name]
        assert_array_equal(after, COLOURS)


def png_with(path, pixels=COLOURS, **chunks):
    """A PNG with further chunks after its header."""
    data = saved(path, pixels).read_bytes()
    added = b""
    for name, content in chunks.items():
        chunk = name.encode() + content
        added += struct.pack(">I", len(content)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    path.write_bytes(data[:33] + added + data[33:])
    return path


CICP, WHITE = bytes([9, 16, 0, 1]), struct.pack(">3H", 255, 255, 255)


def test_chunks_of_png_that_stay_true_stay(tmp_path):
    chunks = {"cICP": CICP, "cLLI": bytes(8), "bKGD": WHITE, "sBIT": bytes([8, 8, 8])}
    data = copied(png_with(tmp_path / "a.png", **chunks)).read_bytes()
    for name, content in chunks.items():
        assert data.count(name.encode() + content) == 1
        assert data.index(name.encode()) < data.index(b"IDAT")
    with Image.open(tmp_path / "copy.png") as image:
        assert_array_equal(image, COLOURS)


@pytest.mark.parametrize(
    ("name", "content"),
    [("tIME", bytes(7)), ("sBIT", bytes([5, 6, 5])), ("hIST", bytes(4)), ("oFFs", bytes(9))],
)
def test_chunks_of_png_that_may_not_be_true_are_left_out_and_named(tmp_path, name, content):
    source = png_with(tmp_path / "a.png", **{name: content})
    with pytest.warns(UserWarning, match=f"is written without the chunk {name} of PNG") as caught:
        copy = copied(source)
    assert len(caught) == 1
    assert name.encode() not in copy.read_bytes()


def test_colours_of_png_that_change_their_type_lose_what_refers_to_it(tmp_path):
    picture = read_image(png_with(tmp_path / "a.png", cICP=CICP, bKGD=WHITE))
    picture = picture._replace(pixels=picture.pixels.astype(np.uint16) * 257)
    with pytest.warns(UserWarning, match=r"is written without the chunk bKGD of PNG\.$"):
        write_image(tmp_path / "b.png", picture)
    assert b"cICP" + CICP in (tmp_path / "b.png").read_bytes()


def test_sixteen_bit_png_keeps_all_that_eight_bit_keeps(tmp_path):
    source = saved(tmp_path / "a.png", exif=camera_exif(), icc_profile=PROFILE, dpi=(300, 300))
    picture = read_image(source)
    picture = picture._replace(pixels=picture.pixels.astype(np.uint16) * 257)
    write_image(tmp_path / "b.png", picture)
    found = info_of(tmp_path / "b.png")
    assert found["icc_profile"] == PROFILE
    assert round(found["dpi"][0]) == 300
    assert exif_of(tmp_path / "b.png")[MAKER] == "maker"
    assert (tmp_path / "b.png").read_bytes()[24] == 16  # bits


# --- Quality


@pytest.mark.parametrize("sampling", [0, 1, 2])
@pytest.mark.parametrize("quality", [40, 75, 92])
def test_a_jpeg_keeps_tables_sampling_and_kind_of_its_source(tmp_path, sampling, quality):
    options = {"quality": quality, "subsampling": sampling, "progressive": quality == 75}
    source = saved(tmp_path / "a.jpg", comment=b"hello", **options)
    with Image.open(source) as before, Image.open(copied(source)) as after:
        assert after.quantization == before.quantization
        assert JpegImagePlugin.get_sampling(after) == sampling
        assert after.info.get("progressive") == before.info.get("progressive")
        assert after.info["comment"] == b"hello"


def test_a_quality_that_is_given_counts(tmp_path):
    source = saved(tmp_path / "a.jpg", quality=40, subsampling=2)
    for quality in (1, 60, 100):
        expected = saved(tmp_path / "b.jpg", quality=quality)
        copy = copied(source, jpeg_quality=quality)
        with Image.open(expected) as right, Image.open(copy) as found:
            assert found.quantization == right.quantization
            assert JpegImagePlugin.get_sampling(found) == 2
    small, large = (copied(source, ".webp", jpeg_quality=each).stat().st_size for each in (10, 95))
    assert small < large


def test_images_from_elsewhere_become_jpeg_of_quality_95(tmp_path):
    expected = saved(tmp_path / "b.jpg", quality=95)
    with Image.open(copied(saved(tmp_path / "a.png"), ".jpg")) as found:
        assert JpegImagePlugin.get_sampling(found) == 0
        with Image.open(expected) as right:
            assert found.quantization == right.quantization


# --- WebP and BMP


@pytest.mark.parametrize("shape", [(48, 32), (48, 32, 3), (48, 32, 4)])
def test_webp_keeps_every_bit_unless_its_source_was_lossy(tmp_path, rng, shape):
    pixels = rng.integers(0, 256, shape, np.uint8)
    pixels[0, 0] = 0  # the colours of a transparent pixel, too
    copy = copied(saved(tmp_path / "a.png", pixels), ".webp")
    with Image.open(copy) as image:
        expected = pixels if pixels.ndim == 3 else np.stack([pixels] * 3, axis=-1)
        assert_array_equal(image, expected)
    assert_array_equal(read_image(copied(copy)).pixels, expected)
    lossy = saved(tmp_path / "b.webp", pixels, quality=50)
    assert b"VP8L" not in copied(lossy).read_bytes()


@pytest.mark.parametrize("length", [240, 241])
def test_webp_stays_lossless_whatever_stands_before_its_pixels(tmp_path, length):
    options = {"lossless": True, "icc_profile": bytes(length)}
    copy = copied(saved(tmp_path / "a.webp", **options))
    assert b"VP8L" in copy.read_bytes()
    assert_array_equal(read_image(copy).pixels, COLOURS)


@pytest.mark.parametrize("shape", [(48, 32), (48, 32, 3)])
def test_bmp_keeps_every_bit(tmp_path, rng, shape):
    pixels = rng.integers(0, 256, shape, np.uint8)
    copy = copied(saved(tmp_path / "a.bmp", pixels))
    with Image.open(copy) as image:
        assert image.format == "BMP"
        assert_array_equal(image, pixels)


def test_palettes_and_bits_of_bmp_become_colours_and_grey(tmp_path):
    image = Image.fromarray(COLOURS)
    for mode, shape in (("P", (48, 32, 3)), ("1", (48, 32))):
        image.convert(mode).save(tmp_path / "a.bmp")
        assert read_image(tmp_path / "a.bmp").pixels.shape == shape


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("a.bmp", (9, 9, 4), "BMP cannot hold the 4 channels of the image: write PNG"),
        ("a.webp", (1, 16_384), "WEBP holds 16383 pixels per side, .*: write PNG"),
    ],
)
def test_what_webp_and_bmp_cannot_hold_is_rejected(tmp_path, name, shape, message):
    picture = Picture(np.zeros(shape, np.uint8), shape[-1] == 4, has_alpha=shape[-1] == 4)
    with pytest.raises(ValueError, match=message):
        check_target(tmp_path / name, picture)


# --- What is rejected or left out


@pytest.mark.parametrize("suffix", [".png", ".webp"])
def test_animations_are_rejected(tmp_path, suffix):
    frames = [Image.fromarray(COLOURS), Image.fromarray(255 - COLOURS)]
    frames[0].save(tmp_path / f"a{suffix}", save_all=True, append_images=frames[1:])
    with pytest.raises(ValueError, match=r"it is an animation of 2 frames: store them as pages"):
        read_image(tmp_path / f"a{suffix}")


def test_of_a_photograph_with_a_second_image_the_first_is_kept(tmp_path):
    first, second = Image.fromarray(COLOURS), Image.fromarray(255 - COLOURS)
    first.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[second])
    with pytest.warns(UserWarning, match="without all except the first of its 2 images"):
        copy = copied(tmp_path / "a.jpg")
    with Image.open(copy) as image:
        assert image.format == "JPEG"
        assert np.abs(np.asarray(image).astype(int) - COLOURS).mean() < 10


def test_inks_are_rejected_by_their_names(tmp_path):
    import imagecodecs

    inks = np.random.default_rng(0).integers(0, 256, (16, 16, 4), np.uint8)
    for colours in ("CMYK", "YCCK"):
        options = {"colorspace": "CMYK", "outcolorspace": colours}
        (tmp_path / "a.jpg").write_bytes(imagecodecs.jpeg8_encode(inks, **options))
        with pytest.raises(ValueError, match=f"its colours are {colours}: convert it"):
            read_image(tmp_path / "a.jpg")


def broken_exif():
    block = camera_exif().tobytes()
    return {
        "cut": block[:30],
        "no order": block.replace(b"MM\0*", b"XX\0*"),
        "far away": block[:10] + struct.pack(">I", 10**6) + block[14:],
        "no tags": b"Exif\0\0MM\0*\0\0\0\x08\xff\xff",
    }


@pytest.mark.parametrize("damage", broken_exif())
@pytest.mark.parametrize("suffix", HOLDS_EXIF)
def test_pixels_outlive_broken_exif(tmp_path, damage, suffix):
    source = saved(tmp_path / f"a{suffix}", exif=broken_exif()[damage])
    with pytest.warns(UserWarning, match="is written without EXIF") as caught:
        copy = copied(source)
    assert len(caught) == 1
    assert dict(exif_of(copy)) == {}
    with Image.open(copy) as image:
        assert np.abs(np.asarray(image).astype(int) - COLOURS).mean() < 10


def test_resolutions_that_cannot_be_are_left_out_and_named(tmp_path):
    exif = camera_exif()
    block = exif.tobytes()
    assert block.count(struct.pack(">II", 300, 1)) == 2
    block = block.replace(struct.pack(">II", 300, 1), struct.pack(">II", 0, 0))
    source = saved(tmp_path / "a.jpg", exif=block)
    with pytest.warns(UserWarning, match="without the resolution: it is nan x nan"):
        found = exif_of(copied(source))
    assert found[MAKER] == "maker"
    assert X_RESOLUTION not in found
    assert found.get_ifd(CAMERA)[EXPOSURE] == 0.01

    data = saved(tmp_path / "a.png", dpi=(300, 300)).read_bytes()
    start = data.index(b"pHYs")
    chunk = b"pHYs" + struct.pack(">IIB", 0, 0, 1)
    chunk += struct.pack(">I", zlib.crc32(chunk))
    (tmp_path / "a.png").write_bytes(data[:start] + chunk + data[start + len(chunk) :])
    with pytest.warns(UserWarning, match=r"without the resolution: it is 0\.0 x 0\.0"):
        assert "dpi" not in info_of(copied(tmp_path / "a.png"))


def test_what_a_jpeg_is_too_small_for_is_left_out_and_named(tmp_path):
    fine = {"resolution": (1e6, 1e6), "resolutionunit": 2, "photometric": "rgb"}
    tifffile.imwrite(tmp_path / "a.tif", COLOURS, **fine)
    with pytest.warns(UserWarning, match=r"the resolution: JPEG cannot hold 1e\+06 pixels per"):
        copied(tmp_path / "a.tif", ".jpg")
    source = saved(tmp_path / "a.webp", xmp=b"x" * 70_000)
    with pytest.warns(UserWarning, match="without XMP: JPEG cannot hold its 70000 bytes"):
        copied(source, ".jpg")


def test_texts_of_exif_become_tags_of_tiff_and_the_rest_is_named(tmp_path):
    source = saved(tmp_path / "a.jpg", exif=camera_exif())
    with pytest.warns(UserWarning, match="without EXIF of the camera; without EXIF of the place"):
        copy = copied(source, ".tif")
    with tifffile.TiffFile(copy) as file:
        tags = file.pages[0].tags
        assert (tags["Make"].value, tags["Copyright"].value) == ("maker", "© José")
        assert tags["XResolution"].value == (300, 1)


def test_a_text_that_would_fill_the_memory_is_left_out_and_named(tmp_path):
    data = saved(tmp_path / "a.png", exif=camera_exif()).read_bytes()
    assert b"eXIf" in data
    chunk = b"zTXtComment\0\0" + zlib.compress(bytes(10**7))
    chunk = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    (tmp_path / "a.png").write_bytes(data[:-12] + chunk + data[-12:])
    with pytest.warns(UserWarning, match="without EXIF and texts: Decompressed data too large"):
        copy = copied(tmp_path / "a.png")
    with Image.open(copy) as image:
        assert_array_equal(image, COLOURS)


def test_an_interlaced_png_is_read_without_a_word(tmp_path, caplog, capfd):
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2)]
    passes += [(0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [COLOURS[top::down, left::right] for top, left, down, right in passes]
    rows = b"".join(b"\0" + row.tobytes() for part in parts for row in part)
    source, stream = saved(tmp_path / "a.png"), io.BytesIO()
    header = b"IHDR" + struct.pack(">IIBBBBB", 32, 48, 8, 2, 0, 0, 1)
    for chunk in (header, b"IDAT" + zlib.compress(rows), b"IEND"):
        stream.write(struct.pack(">I", len(chunk) - 4) + chunk)
        stream.write(struct.pack(">I", zlib.crc32(chunk)))
    source.write_bytes(b"\x89PNG\r\n\x1a\n" + stream.getvalue())
    assert_array_equal(read_image(source).pixels, COLOURS)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_codecs_are_imported_when_a_file_needs_them():
    script = "import sys, kappaform, kappaform.image_files, kappaform.cli; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"imagecodecs", "tifffile"} & set(run.stdout.split())
