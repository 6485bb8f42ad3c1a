"""What `denoise` reports of its progress: the completed fraction of the work."""

import re
import threading

import numpy as np
import pytest

import kappaform as kf
from kappaform.imaging import training
from kappaform.imaging.cleaning import patchwise, tiles
from kappaform.imaging.progress import Progress
from kappaform.threads import at_most_threads, mapped_in_order


def noisy(*shape):
    steps = np.add.outer(np.arange(shape[0]) // 8, np.arange(shape[1]) // 8) % 2 * 100.0
    image = np.broadcast_to(steps.reshape(*shape[:2], *[1] * (len(shape) - 2)), shape)
    return kf.add_noise(image, 10, rng=0)


def reported(image, sigma=10, **options):
    """All reported fractions, after checks that hold for every call."""
    fractions, threads = [], set()

    def progress(fraction):
        fractions.append(fraction)
        threads.add(threading.current_thread())

    options = {"patch_size": 4} | options
    result = kf.denoise(image, sigma, progress=progress, **options)
    assert all(type(fraction) is float for fraction in fractions)
    assert fractions[0] >= 0
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert threads == {threading.current_thread()}
    assert np.array_equal(result, kf.denoise(image, sigma, **options))
    return fractions


def end_of_learning(image, **options):
    """The fraction that is reported first after the last iteration."""
    reports = []
    calls = {"progress": reports.append, "callback": lambda _: reports.append(None)}
    kf.denoise(image, 10, **calls, patch_size=4, **options)
    last = max(i for i, each in enumerate(reports) if each is None)
    return reports[last + 1]


def assert_thirds_are_among(fractions):
    for third in (1 / 3, 2 / 3):
        assert any(fraction == pytest.approx(third, abs=1e-12) for fraction in fractions)


# One thread tells every item, several ten times a second: a few cases of those are enough.
@pytest.mark.parametrize(
    ("n_threads", "shape", "options"),
    [
        (1, (48, 40), {}),
        (1, (48, 40), {"method": "orthonormal"}),
        (1, (70, 40), {"preset": "paper", "sigma": 120.0}),
        (1, (70, 40), {"transform": kf.dct_basis((4, 4))}),
        (1, (30, 30, 3), {"channel_axis": -1}),
        (1, (30, 30, 2), {"stack_axis": -1}),
        (1, (20, 12, 12), {"patch_size": 3}),
        (1, (40, 40), {"sigma": 0}),
        (1, (70, 40), {"quality": "fast"}),
        (1, (40, 40), {"quality": "best"}),
        (3, (48, 40), {}),
        (3, (30, 30, 3), {"channel_axis": -1}),
        (3, (40, 40), {"quality": "best"}),
    ],
)
def test_the_fraction_never_decreases_and_ends_at_one_in_the_thread_of_the_caller(
    monkeypatch, n_threads, shape, options
):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", str(n_threads))
    reported(noisy(*shape), **options)


def test_it_moves_while_learning_and_while_denoising_every_part(monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "1")
    image = noisy(200, 60)
    learning = end_of_learning(image, quality="fast")
    assert 0 < learning < 1
    fractions = reported(image, quality="fast")
    heights = 200, 100, 50  # of the image and of coarser scales
    n_parts = sum(-(-(height - 3) // patchwise._PART_ROWS) for height in heights)
    later = {fraction for fraction in fractions if fraction > learning}
    assert len(later) == 2 * n_parts  # of both sweeps
    # More than the beginnings of rounds and of coarser scales: single iterations.
    assert len({*fractions} - later) > 4 * training.FOR_PATCHES.n_rounds


def test_it_moves_over_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "_PLANE", (24, 8))
    fractions = reported(noisy(3 * 24, 24), transform=kf.dct_basis((4, 4)))
    assert_thirds_are_among(fractions)


def test_slices_are_equal_parts_of_the_work():
    assert_thirds_are_among(reported(noisy(40, 40, 3), stack_axis=-1))


def test_learning_from_channels_is_in_equal_parts():
    image = noisy(40, 40, 3)
    learning = end_of_learning(image, channel_axis=-1)
    fractions = [fraction / learning for fraction in reported(image, channel_axis=-1)]
    assert_thirds_are_among(fractions)
    assert any(fraction == pytest.approx(1, abs=1e-12) for fraction in fractions)


def test_a_slice_without_noise_is_done_at_once():
    assert reported(noisy(40, 40, 2), [0, 10], stack_axis=-1)[0] == 0.5


def test_the_callback_is_called_as_without_progress():
    seen = []
    options = {"patch_size": 4, "callback": lambda result: seen.append(result.n_iter)}
    kf.denoise(noisy(30, 30), 10, **options)
    before, seen[:] = list(seen), []
    kf.denoise(noisy(30, 30), 10, progress=lambda _: None, **options)
    assert seen == before


def test_learning_that_the_callback_ends_counts_as_done():
    fractions = reported(noisy(40, 40), callback=lambda _: True)
    assert fractions[-1] == 1


@pytest.mark.parametrize("transform", [None, kf.dct_basis((4, 4))])
def test_of_a_dask_image_the_work_of_the_call_is_reported(transform):
    da = pytest.importorskip("dask.array")
    fractions = []
    image = da.from_array(noisy(60, 40), chunks=(30, 40))
    options = {"patch_size": 4, "transform": transform}
    result = kf.denoise(image, 10, progress=fractions.append, **options)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    n_told = len(fractions)
    result.compute(scheduler="synchronous")
    assert len(fractions) == n_told


def test_what_progress_raises_ends_the_work():
    class EnoughError(Exception):
        pass

    def progress(fraction):
        if fraction > 0.97:
            raise EnoughError

    for n_threads in (1, 2):
        with at_most_threads(n_threads), pytest.raises(EnoughError):
            kf.denoise(noisy(200, 60), 10, patch_size=4, progress=progress)


def test_a_progress_that_cannot_be_called_is_rejected():
    message = "progress=0.5: give a function of a fraction, 0 to 1, or None."
    with pytest.raises(TypeError, match=re.escape(message)):
        kf.denoise(noisy(40, 40), 10, progress=0.5)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_map_reports_how_many_items_are_done_and_all_of_them_in_the_end(monkeypatch, n_threads):
    monkeypatch.setattr("kappaform.threads._WATCH_SECONDS", 0)
    counts = []
    with at_most_threads(n_threads):
        results = mapped_in_order(lambda item, _: item**2, range(500), counts.append)
    assert results == [item**2 for item in range(500)]
    assert counts == sorted(counts)
    assert counts[-1] == 500


def test_a_map_reports_while_threads_still_work(monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "2")
    told = threading.Event()
    with at_most_threads(2):
        results = mapped_in_order(lambda *_: told.wait(60), range(2), lambda _: told.set())
    assert all(results)  # the items ended because they had been told of


@pytest.mark.parametrize("number", [3, 7, 10, 49, 1000])
def test_sections_follow_each_other_without_gap_or_fall(number):
    fractions = []
    for i in range(number):
        part = Progress(fractions.append).section(i / number, (i + 1) / number)
        for fraction in (0, 0.1, 1 / 3, 0.999, 1):
            part(fraction)
        assert fractions[-1] == (i + 1) / number
    assert fractions == sorted(fractions)


def test_a_section_ends_exactly_where_the_next_one_begins(rng):
    for start, stop in np.sort(rng.uniform(size=(500, 2))).tolist():
        fractions = []
        part = Progress(fractions.append).section(start, stop)
        for fraction in (0, 1e-17, 0.5, 1 - 1e-16, 1):
            part(fraction)
        assert fractions == sorted(fractions)
        assert fractions[0] >= start
        assert fractions[-1] == stop
