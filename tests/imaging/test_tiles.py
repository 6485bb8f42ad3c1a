"""Tiles of an image: they cover it once, they are Dask's chunks, and no seam can be seen."""

from itertools import pairwise

import numpy as np
import pytest
from skimage import data

import kappaform as kf
from kappaform.imaging.cleaning import tiles
from kappaform.imaging.cleaning.tiles import cuts, sides_and_margins, tiles_of

SIGMA = 25.0


def shrink(monkeypatch, side, margin):
    """Tiles so small that small images have several."""
    for name in ("_PLANE", "_VOLUME"):
        monkeypatch.setattr(tiles, name, (side, margin))


@pytest.fixture(scope="module")
def noisy():
    return kf.add_noise(data.camera()[100:196, 150:246].astype(np.float64), SIGMA, rng=1)


@pytest.mark.parametrize("size", [1, 7, 40, 41, 99, 1000])
@pytest.mark.parametrize("side", [1, 7, 40, 5000])
def test_cuts_are_equal_parts_that_are_not_too_long(size, side):
    lengths = np.diff(cuts(size, side))
    assert lengths.sum() == size
    assert lengths.max() <= side
    assert lengths.max() - lengths.min() <= 1
    assert len(lengths) == -(-size // side)


@pytest.mark.parametrize(
    ("shape", "patch_shape"),
    [
        ((50, 70), (5, 5)),
        ((10, 12), (5, 5)),
        ((1, 100), (1, 5)),
        ((25, 40, 30), (4, 4, 4)),
        ((40, 20, 20), (1, 5, 5)),
        ((40, 600, 520), (1, 5, 5)),
    ],
)
def test_tiles_cover_every_pixel_once_with_a_margin_where_there_is_image(
    shape, patch_shape, monkeypatch
):
    shrink(monkeypatch, 20, 6)
    numbers = np.arange(np.prod(shape)).reshape(shape)
    covered = np.zeros(shape, int)
    margins = [margin for _, margin in sides_and_margins(patch_shape)]
    for tile in tiles_of(shape, patch_shape):
        covered[tile.inner] += 1
        np.testing.assert_array_equal(numbers[tile.outer][tile.within], numbers[tile.inner])
        for inner, outer, size, margin in zip(tile.inner, tile.outer, shape, margins, strict=True):
            assert outer.start == max(inner.start - margin, 0)
            assert outer.stop == min(inner.stop + margin, size)
    assert (covered == 1).all()


def test_small_images_are_one_tile():
    for shape, patch_shape in (((1250, 1250), (11, 11)), ((160, 20, 30), (4, 4, 4))):
        (tile,) = tiles_of(shape, patch_shape)
        assert tile.inner == tile.outer == tile.within == tuple(slice(0, n) for n in shape)


@pytest.mark.parametrize("quality", ["fast", "balanced"])
def test_no_seam_can_be_seen(noisy, quality, monkeypatch):
    """A seam is a step of the difference from the whole image, all along the cuts of tiles."""
    options = {"transform": kf.dct_basis((7, 7)), "quality": quality}
    whole = kf.denoise(noisy, SIGMA, **options)

    def steps(margin):
        shrink(monkeypatch, 48, margin)
        difference = (kf.denoise(noisy, SIGMA, **options) - whole) / SIGMA
        at_cuts = [np.diff(each, axis=0)[47] for each in (difference, difference.T)]
        return np.sqrt(np.mean(np.square(at_cuts)))

    # In five parts of the image 0.01 to 0.04; 0.04 to 0.09 with a margin of 8.
    assert 0 < steps(margin=32) < 0.06
    assert steps(margin=0) > 0.2  # 0.25 to 0.6


@pytest.mark.parametrize("quality", ["fast", "balanced"])
def test_each_tile_is_denoised_as_if_it_came_alone_with_its_margin(noisy, quality, monkeypatch):
    # Part and whole have the same extremes, whose middle is subtracted from all values.
    image = noisy.copy()
    image[::8, ::8], image[4::8, 4::8] = noisy.min(), noisy.max()
    options = {"transform": kf.dct_basis((6, 6)), "quality": quality}
    shrink(monkeypatch, 48, 16)
    whole = kf.denoise(image, SIGMA, **options)
    monkeypatch.undo()
    alone = kf.denoise(np.ascontiguousarray(image[:64, 32:]), SIGMA, **options)
    np.testing.assert_array_equal(whole[:48, 48:], alone[:48, 16:])


@pytest.mark.parametrize("quality", ["fast", "balanced"])
def test_dask_denoises_the_same_tiles_whatever_its_chunks(noisy, quality, monkeypatch):
    da = pytest.importorskip("dask.array")
    shrink(monkeypatch, 30, 12)
    options = {"transform": kf.dct_basis((5, 5)), "quality": quality}
    image = noisy[:50, :50]
    expected = kf.denoise_with_details(image, SIGMA, **options)
    edges = sorted({tile.inner[0].stop for tile in tiles_of(image.shape, (5, 5))})
    for chunks in (17, (50, 30)):
        found = kf.denoise_with_details(da.from_array(image, chunks=chunks), SIGMA, **options)
        assert found.image.chunks == (tuple(b - a for a, b in pairwise([0, *edges])),) * 2
        np.testing.assert_array_equal(found.image.compute(), expected.image)
        np.testing.assert_array_equal(found.sparsity_map.compute(), expected.sparsity_map)


def test_volumes_are_denoised_in_tiles(monkeypatch):
    clean = 40 * np.sin(np.indices((20, 12, 14)).sum(axis=0) / 4)
    noisy = kf.add_noise(clean, 10.0, rng=0)
    options = {"transform": kf.dct_basis((3, 3, 3))}
    whole = kf.denoise(noisy, 10.0, **options)
    shrink(monkeypatch, 10, 6)
    tiled = kf.denoise(noisy, 10.0, **options)
    assert 0 < np.sqrt(np.mean((tiled - whole) ** 2)) < 0.05 * 10
    assert np.std(tiled - clean) < 0.4 * 10


@pytest.mark.parametrize("axis", ["channel_axis", "stack_axis"])
@pytest.mark.parametrize("quality", ["fast", "balanced"])
def test_colours_and_stacks_are_denoised_in_tiles(quality, axis, monkeypatch):
    clean = data.astronaut()[60:112, 150:202].astype(np.float64)
    noisy = kf.add_noise(clean, SIGMA, rng=0)
    options = {"transform": kf.dct_basis((5, 5)), "quality": quality, axis: -1}
    whole = kf.denoise(noisy, SIGMA, **options)
    shrink(monkeypatch, 26, 20)
    tiled = kf.denoise(noisy, SIGMA, **options)
    errors = [np.sqrt(np.mean((image - clean) ** 2)) for image in (tiled, whole)]
    assert errors[0] == pytest.approx(errors[1], rel=0.03)  # 0.98 to 1.014 in six parts
    assert 0 < np.sqrt(np.mean((tiled - whole) ** 2)) < 0.2 * errors[1]


def test_progress_is_reported_for_equal_tiles(noisy, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "1")
    shrink(monkeypatch, 48, 8)
    shares = []
    kf.denoise(noisy, SIGMA, transform=kf.dct_basis((5, 5)), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert {0.25, 0.5, 0.75} <= set(shares)
