"""A Dask image is denoised as the same image in memory, chunk by chunk, when it is asked for."""

from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest
from skimage import data

import kappaform as kf
from kappaform.imaging import training
from kappaform.imaging.cleaning import tiles
from kappaform.imaging.cleaning.dask import DaskBackend, _merged
from kappaform.imaging.cleaning.stages import halved_patches
from kappaform.imaging.cleaning.tiles import HostBackend
from kappaform.imaging.patches import grid_of, patches_at

# Of the range of the values: sums of float32 in another order.
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def noisy():
    return kf.add_noise(data.camera()[100:180, 150:220].astype(np.float64), 20.0, rng=1)


@pytest.fixture(scope="module")
def details(noisy):
    return kf.denoise_with_details(noisy, patch_size=5)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * np.ptp(expected))


CHUNKS = {
    "one": (-1, -1),
    "even": (40, 35),
    "uneven": ((1, 50, 29), (20, 49, 1)),
    "smaller than the overlap": (7, 9),
    "rows": (30, -1),
}


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS.keys())
def test_chunks_do_not_change_the_result(noisy, details, chunks):
    found = kf.denoise_with_details(da.from_array(noisy, chunks=chunks), patch_size=5)
    assert found.sigma == details.sigma
    np.testing.assert_array_equal(found.transform, details.transform)
    assert len(found.history) == len(details.history)
    assert found.patch_shape == details.patch_shape
    for name in ("image", "sparsity_map"):
        lazy, expected = getattr(found, name), getattr(details, name)
        assert isinstance(lazy, da.Array)
        computed = lazy.compute()
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        assert (computed.shape, computed.dtype) == (expected.shape, expected.dtype)
        assert_close(computed, expected)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_every_scheduler_gives_the_same_bits(noisy, details, scheduler):
    lazy = kf.denoise(da.from_array(noisy, chunks=50), 20.0, transform=details.transform)
    np.testing.assert_array_equal(lazy.compute(scheduler=scheduler), lazy.compute())


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8", "int32"])
def test_dtypes_are_those_of_images_in_memory(noisy, details, dtype):
    image = np.clip(noisy, 0, 255).astype(dtype)
    options = {"sigma": 20.0, "transform": details.transform, "value_range": (5.0, 250.0)}
    expected = kf.denoise(image, **options)
    lazy = kf.denoise(da.from_array(image, chunks=60), **options)
    assert lazy.dtype == expected.dtype
    found = lazy.compute()
    assert found.dtype == expected.dtype
    assert found.min() >= 5
    assert found.max() <= 250
    step = 2**-3 if dtype == "float16" else 0.0  # from one number below 256 to the next
    difference = np.abs(found.astype(float) - expected.astype(float))
    assert difference.max() <= TOLERANCE * 255 + step


def volume(shape=(21, 30, 26)):
    smooth = np.random.default_rng(0).standard_normal(shape).cumsum(0).cumsum(1)
    return kf.add_noise(3 * smooth, 5.0, rng=0).astype(np.float32)


def test_volumes_are_denoised():
    noisy, options = volume((14, 20, 18)), {"sigma": 5.0, "patch_size": 3}
    expected = kf.denoise_with_details(noisy, **options)
    for chunks in ((6, 11, 18), (14, 8, 9), (5, 5, 5)):
        found = kf.denoise_with_details(da.from_array(noisy, chunks=chunks), **options)
        np.testing.assert_array_equal(found.transform, expected.transform)
        assert_close(found.image.compute(), expected.image)


@pytest.mark.parametrize("sigma", [None, 20.0, [10.0, 0.0, 20.0]])
def test_stacks_are_denoised_image_by_image(noisy, sigma):
    stack = np.stack([noisy[:40], np.full((40, 70), 3.0), noisy[40:]], axis=1)
    lazy = da.from_array(stack, chunks=(30, 2, 31))
    options = {"stack_axis": 1, "patch_size": 5, "quality": "fast"}
    expected = kf.denoise_with_details(stack, sigma, **options)
    found = kf.denoise_with_details(lazy, sigma, **options)
    np.testing.assert_array_equal(found.sigma, expected.sigma)
    assert len(found.transforms) == len(expected.transforms) == 2
    for one, other in zip(found.transforms, expected.transforms, strict=True):
        np.testing.assert_array_equal(one, other)
    assert_close(found.image.compute(), expected.image)
    assert_close(found.sparsity_map.compute(), expected.sparsity_map)


def test_the_same_seed_draws_the_same_patches(noisy, monkeypatch):
    # Fewer than the image has: if all are drawn, seeds differ by the rounding of sums only.
    monkeypatch.setattr(training, "FOR_PATCHES", training.Amount(2, 1000))
    lazy = da.from_array(noisy, chunks=50)
    one, other, third = (
        kf.denoise_with_details(image, 20.0, rng=seed, patch_size=6, quality="fast").transform
        for image, seed in ((lazy, 3), (noisy, 3), (lazy, 4))
    )
    np.testing.assert_array_equal(one, other)
    assert np.abs(one - third).max() > 1e-6


def watched(state, seen):
    seen.append(state.n_iter)


def test_a_callback_sees_every_iteration(noisy):
    seen = {"lazy": [], "memory": []}
    for kind, image in (("lazy", da.from_array(noisy, chunks=50)), ("memory", noisy)):
        watch = partial(watched, seen=seen[kind])
        kf.denoise(image, 20.0, patch_size=6, callback=watch)
    assert seen["lazy"] == seen["memory"] != []


def test_nothing_is_denoised_before_it_is_asked_for(noisy, details, monkeypatch):
    monkeypatch.setattr(tiles, "_PLANE", (20, 16))
    computed = []

    def watched(chunk, block_id):
        computed.append(block_id)
        return chunk

    image = da.from_array(noisy, chunks=(20, -1)).map_blocks(watched, meta=np.empty((0, 0)))
    cleaned = kf.denoise(image, 20.0, transform=details.transform)
    assert len(computed) == 4  # limits
    computed.clear()
    cleaned[:10].compute()
    assert sorted(computed) == [(0, 0), (1, 0)]  # a tile and its margin


def test_an_image_is_computed_three_times_to_learn_from_it(noisy):
    computed = []

    def watched(chunk):
        computed.append(chunk.shape)
        return chunk

    image = da.from_array(noisy, chunks=(20, -1)).map_blocks(watched, meta=np.empty((0, 0)))
    found = kf.denoise_with_details(image, patch_size=6)
    assert 3 <= len(found.history) <= 5  # of the image and its two halves
    assert len(computed) == 3 * 4  # noise; limits; patches


@pytest.mark.parametrize("sigma", [0.0, None])
def test_an_image_without_noise_returns_itself(sigma, noisy):
    image = np.full((40, 50), 7) if sigma is None else noisy
    found = kf.denoise_with_details(da.from_array(image, chunks=20), sigma)
    assert found.image.dtype == np.float64
    np.testing.assert_array_equal(found.image.compute(), image)
    assert found.transforms == ()
    assert not found.sparsity_map.compute().any()


@pytest.mark.parametrize("chunks", [(5, 6, 7), (3, 30, 4), (21, 30, 26)])
def test_patches_are_gathered_from_the_chunks(chunks, rng):
    image, unit = volume(), 3.0
    rounds = []
    for shape, number in (((4, 3, 5), 500), ((4, 3, 5), 1), ((8, 6, 10), 900), ((4, 3, 5), 7)):
        grid = grid_of(image.shape, shape)
        rounds.append((grid, rng.choice(grid.n_patches, number, replace=False)))
    backends = DaskBackend([da.from_array(image, chunks=chunks)]), HostBackend([image])
    found = (backend.training_patches(0, rounds, (4, 3, 5), unit) for backend in backends)
    for patches, others, (grid, numbers) in zip(*found, rounds, strict=True):
        np.testing.assert_array_equal(patches, others)
        expected = patches_at(image, grid, numbers) / unit
        if grid.patch_shape == (8, 6, 10):
            expected = halved_patches(expected, (4, 3, 5), 1)
        np.testing.assert_allclose(patches, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize("layout", ["C", "F", "one of three channels"])
def test_patches_to_learn_from_do_not_depend_on_how_an_image_is_stored(dtype, layout, rng):
    values = rng.integers(0, 100, (40, 50))
    image = np.asarray(values, dtype, order="F" if layout == "F" else "C")
    if layout.startswith("one"):
        image = np.repeat(image[..., np.newaxis], 3, axis=2)[..., 1]
    grid = grid_of(image.shape, (10, 12))
    numbers = np.arange(0, grid.n_patches, 7)
    (found,) = HostBackend([image]).training_patches(0, [(grid, numbers)], (5, 6), 2.0)
    expected = halved_patches(patches_at(values, grid, numbers) / 2.0, (5, 6), 1)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("least", [0, 1, 5, 20, 100])
def test_merged_chunks_are_long_enough_and_cover_the_axis(least, rng):
    for _ in range(50):
        chunks = (*rng.integers(0, 12, rng.integers(1, 12)).tolist(), 1)
        merged = _merged(chunks, least)
        assert sum(merged) == sum(chunks)
        assert len(merged) == 1 or min(merged) >= max(least, 1)
        assert set(np.cumsum(merged)) <= set(np.cumsum(chunks))


@pytest.mark.parametrize("size", [(100, 90), (1700, 1300)])
def test_the_noise_of_a_dask_image_is_estimated_as_in_memory(size):
    image = kf.add_noise(np.tile(data.camera(), (4, 3))[: size[0], : size[1]], 12.0, rng=0)
    lazy = da.from_array(image, chunks=(300, 401))
    assert kf.estimate_sigma(lazy) == kf.estimate_sigma(image)


def test_channels_of_a_dask_image_have_their_own_noise():
    image = kf.add_noise(data.astronaut()[:80, :90].astype(float), 9.0, rng=0)
    found = kf.estimate_sigma(da.from_array(image, chunks=(30, 40, 2)), channel_axis=-1)
    np.testing.assert_array_equal(found, kf.estimate_sigma(image, channel_axis=-1))


def unknown_sizes():
    lazy = da.ones((40, 40), chunks=20)
    return lazy[lazy[:, 0] > 0]


def with_nan():
    image = np.ones((40, 40))
    image[30, 3] = np.nan
    return da.from_array(image, chunks=20)


@pytest.mark.parametrize(
    ("make", "options", "error", "message"),
    [
        (
            lambda: da.ones((40, 40, 3)),
            {"channel_axis": -1},
            ValueError,
            "in denoise, stack_axis=-1",
        ),
        (lambda: da.ones((40, 40, 3)), {}, ValueError, "looks like colour"),
        (lambda: da.ones((40, 40)), {"preset": "paper"}, ValueError, r"image\.compute\(\)"),
        (lambda: da.ones((40, 40)), {"patch_size": 50}, ValueError, "patch_size=50 is larger than"),
        (lambda: da.ones(40), {}, ValueError, r"image has shape \(40,\)"),
        (lambda: da.ones((40, 40), dtype=complex), {}, TypeError, "image has dtype complex128"),
        (unknown_sizes, {}, ValueError, r"image\.compute_chunk_sizes\(\)"),
        (with_nan, {}, ValueError, "image contains NaN or inf"),
        (with_nan, {"sigma": 3.0}, ValueError, "image contains NaN or inf"),
        (lambda: da.ones((40, 40)), {"sigma": -1}, ValueError, "sigma=-1"),
        (lambda: dask.delayed(np.ones((4, 4))), {}, TypeError, "image is a Delayed"),
    ],
)
def test_what_cannot_be_denoised_in_chunks_is_rejected(make, options, error, message):
    with pytest.raises(error, match=message):
        kf.denoise(make(), **options)
