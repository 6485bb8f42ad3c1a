"""Missing pixels: their estimate in groups, what always holds, and what is rejected."""

import sys
from types import SimpleNamespace

import naive
import numpy as np
import pytest
from group_cases import CASES
from skimage.data import astronaut, camera

import kappaform as kf
from kappaform.imaging import masked
from kappaform.imaging.cleaning import fill_rounds, holes
from kappaform.imaging.cleaning.fill_plan import ENOUGH_HELD_OUT, LEAST_MEMBERS, Plan
from kappaform.imaging.cleaning.fill_rounds import Watch
from kappaform.imaging.cleaning.first_guess import (
    first_guess,
    from_other_frames,
    start_without,
)
from kappaform.imaging.cleaning.groups import Groups
from kappaform.imaging.components import Component
from kappaform.imaging.denoise import Denoised
from kappaform.imaging.noise.estimate import UNSURE
from kappaform.imaging.options import Options
from kappaform.imaging.progress import SILENT

cases = pytest.mark.parametrize(("shape", "search"), CASES.values(), ids=CASES.keys())

PICTURE = camera()[100:148, 200:248].astype(np.float64)
MASK = np.random.default_rng(0).random(PICTURE.shape) < 0.4


def error(image, truth, where=...):
    return float(np.sqrt(np.mean((np.asarray(image, float) - truth)[where] ** 2)))


# --- One round


@pytest.mark.parametrize("denoises", [False, True])
@pytest.mark.parametrize("missing", [0.05, 0.5, 0.9])
@cases
def test_a_patch_is_its_conditional_mean_given_its_known_pixels(
    shape, search, missing, denoises, rng
):
    guide, given = rng.standard_normal((2, *shape))
    known = rng.random(shape) >= missing
    groups = Groups(guide, search)
    groups.find(guide)
    grid = groups.layout.grid
    corners = np.stack(grid.corners(np.arange(grid.n_patches)), axis=1)
    members = corners[:, np.newaxis] + groups.layout.shifts[np.concatenate(groups.members)]
    lists = []  # the reference first: it decides whether a group counts
    for own, some in zip(corners.tolist(), members.tolist(), strict=True):
        lists.append([tuple(own), *(tuple(place) for place in some if place != own)])
    expected = naive.round_with_holes(guide, given, known, lists, search.patch_shape, 0.3, denoises)
    found = groups.filled(guide, given, known, 0.3, denoises)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-8, atol=1e-8)


def test_hidden_values_do_not_matter_to_a_round(rng):
    shape, search = next(iter(CASES.values()))
    guide, given = rng.standard_normal((2, *shape))
    known = rng.random(shape) < 0.5
    groups = Groups(guide, search)
    groups.find(guide)
    one = groups.filled(guide, given, known, 0.1, False)
    two = groups.filled(guide, np.where(known, given, np.nan), known, 0.1, False)
    np.testing.assert_array_equal(one, two)


# --- The first guess


@pytest.mark.parametrize("shape", [(40, 31), (1, 50), (9, 10, 11)])
def test_a_first_guess_is_within_what_is_known_and_exact_for_constants(shape, rng):
    image, known = rng.random(shape), rng.random(shape) < 0.05
    known.flat[0] = True
    guess, _ = first_guess(image, known)
    assert np.isfinite(guess).all()
    assert guess.min() >= image[known].min() - 1e-12
    assert guess.max() <= image[known].max() + 1e-12
    guess, its_error = first_guess(np.full(shape, 7.0), known)
    assert its_error == 0
    np.testing.assert_array_equal(guess, 7.0)


def test_the_error_of_a_first_guess_is_that_of_pixels_left_out_in_turn(rng):
    image, known = rng.random((12, 13)), np.ones((12, 13), bool)
    known[4, 5] = known[0, 0] = False
    errors = []
    for place in np.argwhere(known):
        without = known.copy()
        without[tuple(place)] = False
        guess, _ = first_guess(np.where(without, image, 0), without)
        errors.append(guess[tuple(place)] - image[tuple(place)])
    assert first_guess(image, known)[1] == pytest.approx(np.sqrt(np.mean(np.square(errors))))


# --- Rounds


def test_rounds_end_when_held_out_pixels_get_worse():
    given, held = [np.zeros((1, 4, 200))], [np.ones((1, 4, 200), bool)]
    watch = Watch(given, held, 4)
    assert watch.goes_on([given[0] + 2.0])
    assert watch.goes_on([given[0] + 1.0])
    assert watch.goes_on([given[0] + 0.9])
    assert not watch.goes_on([given[0] + 0.9])  # no gain
    few = Watch(given, [held[0] & (np.arange(200) < 20)], 4)
    for gain in (0.0, 0.1, 0.2, 0.2):  # the last may be chance
        assert few.goes_on([given[0] + 1.0 - gain])
    assert not few.goes_on([given[0] + 0.8])


@pytest.mark.parametrize(("side", "repeated"), [(1448, True), (1449, False)])
def test_last_rounds_are_repeated_with_denser_groups_unless_the_image_is_large_or_noisy(
    side, repeated, rng
):
    known = rng.random((64, 64)) > 0.5
    plan = Plan.of((side, side), [known], 1.0, "balanced", frames=False, joint=False)
    assert plan.tried == repeated
    assert (plan.last[0].n_members > LEAST_MEMBERS) == repeated
    noisy = Plan.of((side, side), [known], 1.0, "balanced", frames=False, joint=False, noisy=True)
    assert not noisy.tried
    assert noisy.last[0].n_members == LEAST_MEMBERS


@pytest.mark.parametrize("missing", [0.02, 0.5, 0.8])
@pytest.mark.parametrize("quality", ["fast", "balanced", "best"])
def test_rounds_do_not_end_before_the_assumed_error_is_a_quarter(quality, missing, rng):
    known = rng.random((64, 64)) >= missing
    plan = Plan.of(known.shape, [known], 1.0, quality, frames=False, joint=False)
    assert plan.factor ** (plan.least_rounds - 1) <= 0.25
    assert 4 <= plan.least_rounds < plan.n_rounds
    given, held = [np.zeros((1, 40, 40))], [np.ones((1, 40, 40), bool)]
    watch = Watch(given, held, plan.least_rounds)
    gone_on = [watch.goes_on([given[0] + 1.0 + i]) for i in range(plan.least_rounds)]
    assert gone_on == [True] * (plan.least_rounds - 1) + [False]


@pytest.mark.parametrize(
    ("missing", "most_loss", "expected"), [(0.02, 2.0, 1), (0.5, 2.0, 3), (0.5, 0.0, 2)]
)
def test_last_rounds_are_repeated_if_a_trial_does_no_harm(
    missing, most_loss, expected, monkeypatch
):
    """Smaller and larger patches in turn: a trial without the held-out pixels, then the last."""
    sides, one_round = [], fill_rounds._one_round

    def spy(images, given, known, deviation, groups, *rest):
        sides.append(groups.search.patch_shape[1])
        return one_round(images, given, known, deviation, groups, *rest)

    monkeypatch.setattr(fill_rounds, "_one_round", spy)
    monkeypatch.setattr(fill_rounds, "MOST_LOSS", most_loss)
    kf.inpaint(PICTURE, np.random.default_rng(0).random(PICTURE.shape) < missing)
    others = sides[0]
    assert [side for side in sides if side != others] == [others - 1, others + 1] * expected
    assert sides[-2:] == [others - 1, others + 1]


def test_where_few_pixels_are_missing_few_are_held_out(rng):
    """They are holes as well; enough remain to measure the error."""
    known = [rng.random((600, 600)) >= 0.02]
    plan = Plan.of((600, 600), known, 1.0, "balanced", frames=False, joint=False)
    n_held = np.count_nonzero(holes._held_out(known, plan, seed=0))
    assert ENOUGH_HELD_OUT <= n_held < 0.3 * np.count_nonzero(~known[0])


def test_held_out_pixels_have_no_part_in_where_rounds_start(rng):
    """Else their error is smallest at the start, and rounds end at once."""
    given, known = rng.random((30, 31)), rng.random((30, 31)) < 0.2
    held = known & (rng.random(known.shape) < 0.2)
    one = start_without(given, known, held, [1, 8, 8], joint=False)
    two = start_without(np.where(held, 1e3, given), known, held, [1, 8, 8], joint=False)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one[known & ~held], given[known & ~held])


def test_a_channel_whose_only_known_pixels_are_held_out_starts_at_the_first_guess(rng):
    given, known = rng.random((3, 20, 20)), rng.random((3, 20, 20)) < 0.5
    known[1] = False
    known[1, 3, 4] = True
    start = start_without(given, known, known & (np.arange(3) == 1)[:, None, None], [1, 5, 5], True)
    assert np.isfinite(start).all()
    np.testing.assert_array_equal(start[1], given[1])


@pytest.mark.parametrize(("missing", "left"), [(0.5, 0.1), (0.8, 0.4)])
def test_texture_that_averages_lose_is_found_again(missing, left):
    rows, columns = np.indices((96, 96))
    stripes = 128 + 60 * np.sin(1.1 * rows + 0.7 * columns) + 20 * np.sin(columns / 9)
    mask = np.random.default_rng(0).random(stripes.shape) < missing
    guess, _ = first_guess(stripes, ~mask)
    assert error(kf.inpaint(stripes, mask), stripes, mask) < left * error(guess, stripes, mask)


@pytest.mark.parametrize("n", [2, 7])
def test_known_pixels_are_amplified_within_the_bound_of_the_condition_number(n, rng):
    for _ in range(50):
        basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
        values = np.exp(rng.uniform(0, 5, n))
        matrix = (basis * values) @ basis.T
        seen = rng.random(n) < 0.5
        if not 0 < seen.sum() < n:
            continue
        gain = np.linalg.solve(matrix[np.ix_(seen, seen)], matrix[np.ix_(seen, ~seen)])
        ratio = values.max() / values.min()
        assert np.linalg.norm(gain, 2) <= (ratio**0.5 - ratio**-0.5) / 2 * (1 + 1e-9)


# --- What always holds


@pytest.fixture(scope="module")
def filled():
    return kf.inpaint(PICTURE, MASK)


def test_known_pixels_are_kept_exactly(filled):
    np.testing.assert_array_equal(filled[~MASK], PICTURE[~MASK])


def test_holes_are_filled_better_than_by_averages(filled):
    guess, _ = first_guess(PICTURE, ~MASK)
    assert error(filled, PICTURE, MASK) < 0.8 * error(guess, PICTURE, MASK)


def test_masks_nan_and_masked_arrays_are_the_same(filled):
    np.testing.assert_array_equal(kf.inpaint(np.where(MASK, np.nan, PICTURE)), filled)
    np.testing.assert_array_equal(kf.inpaint(np.ma.array(PICTURE, mask=MASK)), filled)
    np.testing.assert_array_equal(kf.inpaint(np.where(MASK, -1e9, PICTURE), MASK), filled)


def test_filling_commutes_with_scaling_and_shifting(filled):
    np.testing.assert_allclose(
        kf.inpaint(PICTURE * 1e-6 - 3, MASK),
        filled * 1e-6 - 3,
        rtol=0,
        atol=1e-8,  # 0.01 grey levels
    )


@pytest.mark.parametrize("exponent", [-1000, -540, 540, 980])
def test_squares_beyond_float64_do_not_matter(exponent, filled):
    scaled = kf.inpaint(np.ldexp(PICTURE, exponent), MASK)
    np.testing.assert_array_equal(scaled, np.ldexp(filled, exponent))


def test_colours_of_any_scale_are_filled(rng):
    colours = rng.random((24, 24, 3))
    options = {"mask": MASK[:24, :24], "channel_axis": -1, "quality": "fast"}
    scaled = kf.inpaint(np.ldexp(colours, 700), **options)
    np.testing.assert_array_equal(scaled, np.ldexp(kf.inpaint(colours, **options), 700))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_any_number_of_threads_gives_the_same_bits(n_threads, filled, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", str(n_threads))
    np.testing.assert_array_equal(kf.inpaint(PICTURE, MASK), filled)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float16, np.float32, np.float64])
def test_floats_keep_their_dtype_and_integers_become_float64(dtype, filled):
    image = PICTURE.astype(dtype)
    found = kf.inpaint(image, MASK)
    assert found.dtype == (dtype if np.dtype(dtype).kind == "f" else np.float64)
    np.testing.assert_array_equal(found[~MASK], image[~MASK])
    assert error(found, filled) < 0.1


def test_only_filled_pixels_are_clipped():
    with pytest.warns(UserWarning, match="excludes most values of the image"):
        found = kf.inpaint(PICTURE, MASK, value_range=(80, 90))
    assert found[MASK].min() >= 80
    assert found[MASK].max() <= 90
    np.testing.assert_array_equal(found[~MASK], PICTURE[~MASK])


def test_progress_never_decreases_and_ends_at_one():
    seen = []
    kf.inpaint(PICTURE, MASK, quality="fast", progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_callback_sees_every_round_in_units_of_the_image_and_may_end_them():
    rounds = []
    kf.inpaint(PICTURE, MASK, quality="fast", callback=rounds.append)
    assert [each.number for each in rounds] == list(range(1, len(rounds) + 1))
    assert len(rounds) >= 3
    assumed = [each.assumed_error for each in rounds]
    assert assumed == sorted(assumed, reverse=True)
    scaled = []
    kf.inpaint(PICTURE / 8, MASK, quality="fast", callback=scaled.append)
    assert scaled[0].assumed_error == pytest.approx(assumed[0] / 8)
    few = []

    def stop(each):
        few.append(each)
        return each.number == 2

    kf.inpaint(PICTURE, MASK, quality="fast", callback=stop)
    assert [each.number for each in few] == [1, 2]
    with pytest.raises(TypeError, match="give a function of an InpaintRound"):
        kf.inpaint(PICTURE, MASK, callback=3)


def test_the_error_that_a_callback_sees_is_about_that_of_missing_pixels():
    rounds, rows = [], np.arange(96)[:, np.newaxis]
    image = 50 * np.sin(rows / 5 + rows.T / 9) + np.random.default_rng(0).normal(0, 5, (96, 96))
    mask = np.random.default_rng(1).random(image.shape) < 0.5
    found = kf.inpaint(image, mask, callback=rounds.append)
    least = min(each.error for each in rounds)
    scaled = []
    kf.inpaint(image / 8, mask, callback=scaled.append)
    assert scaled[0].error == pytest.approx(rounds[0].error / 8, rel=1e-3)
    assert least == pytest.approx(error(found, image, mask), rel=0.25)
    lonely = []
    kf.inpaint(PICTURE[:12, :12], MASK[:12, :12], callback=lonely.append)
    assert {each.error for each in lonely} == {None}  # too few are known to hold some out


# --- Axes


def test_images_of_a_stack_are_filled_independently():
    stack = np.stack([PICTURE, PICTURE[::-1]])
    found = kf.inpaint(stack, MASK, stack_axis=0, quality="fast")
    for one, image in zip(found, stack, strict=True):
        np.testing.assert_array_equal(one, kf.inpaint(image, MASK, quality="fast"))


@pytest.mark.parametrize("axis", [0, -1])
def test_channels_can_be_anywhere_and_have_masks_of_their_own(axis):
    colour = astronaut()[60:100, 200:240].astype(np.float64)
    masks = np.random.default_rng(1).random(colour.shape) < 0.3
    common = kf.inpaint(
        np.moveaxis(colour, -1, axis), masks[..., 0], channel_axis=axis, quality="fast"
    )
    own = kf.inpaint(
        np.moveaxis(colour, -1, axis),
        np.moveaxis(masks, -1, axis),
        channel_axis=axis,
        quality="fast",
    )
    common, own = np.moveaxis(common, axis, -1), np.moveaxis(own, axis, -1)
    np.testing.assert_array_equal(own[~masks], colour[~masks])
    # Other channels at the same pixel tell most about a value.
    assert error(own, colour, masks) < 0.8 * error(common, colour, masks[..., 0])


def test_a_hole_in_a_movie_is_filled_from_other_frames():
    movie = np.stack([camera()[100:132, 200 + i : 232 + i] for i in range(5)]).astype(float)
    mask = np.zeros(movie.shape, bool)
    mask[2, 10:16, 10:16] = True
    alone = kf.inpaint(movie, mask, stack_axis=0)
    together = kf.inpaint(movie, mask, stack_axis=0, movie=True)
    assert error(together, movie, mask) < 0.7 * error(alone, movie, mask)


def test_a_large_hole_in_a_movie_is_guessed_from_the_nearest_frame_that_knows_it(rng):
    movie = rng.random((5, 6, 7))
    known = np.ones(movie.shape, bool)
    known[1:3, 2, 3] = known[:, 4, 4] = False
    values, found = from_other_frames(movie, known, 2)
    assert values[1, 2, 3] == movie[0, 2, 3]  # the previous frame
    assert values[2, 2, 3] == movie[3, 2, 3]  # the next one is nearer
    assert values[0, 0, 0] == movie[1, 0, 0]
    assert found[1:, 2, 3].all()
    assert not found[0, 2, 3]  # the nearest is too far away
    assert not found[:, 4, 4].any()
    one = movie[:1], known[:1]
    assert not from_other_frames(*one, 2)[1].any()
    places = [np.s_[102 + i : 174 + i, 192 + 4 * i : 264 + 4 * i] for i in range(5)]
    frames = np.stack([camera()[place] for place in places])
    mask = np.zeros(frames.shape, bool)
    mask[2, 24:49, 24:49] = True
    alone, together = (
        kf.inpaint(frames, mask, stack_axis=0, movie=movie, quality="fast")
        for movie in (False, True)
    )
    assert error(together, frames, mask) < 0.45 * error(alone, frames, mask)


def test_volumes_are_filled():
    grid = np.mgrid[:16, :16, :16] / 5
    volume = np.sin(grid[0]) * np.cos(grid[1]) + np.sin(2 * grid[2])
    mask = np.random.default_rng(0).random(volume.shape) < 0.5
    found = kf.inpaint(volume, mask)
    assert error(found, volume, mask) < 0.05


# --- Holes of any form


@pytest.mark.parametrize(
    "hole",
    [np.s_[:9, :9], np.s_[-12:, -12:], np.s_[20:], np.s_[:, 7:9], np.s_[5:45, 5:45], np.s_[1:, :]],
    ids=["corner", "last corner", "most rows", "columns", "most", "all but a row"],
)
def test_large_holes_are_filled_calmly(hole):
    mask = np.zeros(PICTURE.shape, bool)
    mask[hole] = True
    found = kf.inpaint(PICTURE, mask, quality="fast")
    known = PICTURE[~mask]
    margin = 0.2 * np.ptp(known)
    assert known.min() - margin <= found.min()
    assert found.max() <= known.max() + margin


def test_a_single_known_pixel_and_constant_surroundings_give_constants():
    lonely = np.full((20, 21), np.nan)
    lonely[3, 4] = 7.25
    np.testing.assert_array_equal(kf.inpaint(lonely), 7.25)
    hole = np.full((30, 30), 1e6)
    hole[5:25, 5:25] = np.nan
    np.testing.assert_array_equal(kf.inpaint(hole), 1e6)


@pytest.mark.parametrize("shape", [(1, 30), (30, 1), (3, 3), (5, 40)])
def test_images_smaller_than_a_patch_are_filled(shape, rng):
    image = rng.random(shape).cumsum(axis=-1)
    mask = rng.random(shape) < 0.3
    mask.flat[:2] = [True, False]
    found = kf.inpaint(image, mask)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[~mask], image[~mask])


# --- Noise


def test_denoising_does_not_use_hidden_values_and_fills_them():
    noisy = kf.add_noise(PICTURE, 10)
    one = kf.denoise(noisy, 10, mask=MASK, quality="fast")
    two = kf.denoise(np.where(MASK, np.nan, noisy), 10, mask="nan", quality="fast")
    np.testing.assert_array_equal(one, two)
    assert error(one, PICTURE, ~MASK) < 0.8 * error(noisy, PICTURE, ~MASK)
    guess, _ = first_guess(noisy, ~MASK)
    assert error(one, PICTURE, MASK) < 0.9 * error(guess, PICTURE, MASK)


@pytest.mark.parametrize(("exponent", "shift"), [(-400, 0.0), (400, 0.0), (0, 1e9)])
def test_denoising_around_holes_commutes_with_scaling_and_shifting(exponent, shift):
    noisy = kf.add_noise(PICTURE, 10)
    here = kf.denoise(noisy, 10, mask=MASK, quality="fast")
    there = kf.denoise(
        np.ldexp(noisy, exponent) + shift, np.ldexp(10.0, exponent), mask=MASK, quality="fast"
    )
    there = np.ldexp(there - shift, -exponent)
    if not shift:
        assert error(there, here) < 1e-12
    # A shift rounds the values. That may decide which patch joins a group, but not how good it is.
    assert error(there, PICTURE) == pytest.approx(error(here, PICTURE), rel=0.02)


def test_one_call_is_better_than_filling_and_denoising_in_turn():
    clean = astronaut()[:96, 180:276, 1].astype(np.float64)
    noisy, mask = kf.add_noise(clean, 20), np.random.default_rng(1).random(clean.shape) < 0.5
    in_turn = kf.denoise(kf.inpaint(noisy, mask), 20)
    assert error(kf.denoise(noisy, 20, mask=mask), clean) < 0.955 * error(in_turn, clean)


@pytest.mark.parametrize(("missing", "low", "high"), [(0.5, 0.75, 0.87), (0.02, 0.98, 1.0)])
def test_filled_images_are_denoised_with_less_noise(missing, low, high, monkeypatch):
    seen, module = [], sys.modules["kappaform.imaging.denoise"]
    recipe_of = module.recipe_of

    def spy(part, *rest):
        seen.append(part.sigma)
        return recipe_of(part, *rest)

    monkeypatch.setattr(module, "recipe_of", spy)
    mask = np.random.default_rng(0).random(PICTURE.shape) < missing
    found = kf.denoise_with_details(PICTURE, 10, mask=mask, quality="fast", transform=np.eye(36))
    assert low < seen[0] / 10 < high
    assert found.sigma == 10  # the noise of the image


@pytest.mark.parametrize(("missing", "times"), [(0.0, 1), (0.02, 1), (0.5, 2)])
def test_where_much_is_missing_denoised_values_replace_the_filled_ones(missing, times, monkeypatch):
    monkeypatch.setattr(masked, "reestimated", lambda *given: given[2])
    mask = np.random.default_rng(0).random(PICTURE.shape) < missing
    mask[5, 7] = True
    part = Component(PICTURE, 10.0, None, 0.0, 255.0, (0.0, 255.0))
    seen = []

    def by(parts, *_):
        seen.append(parts[0])
        return Denoised([np.full(PICTURE.shape, 50.0 * len(seen))], [None], [None], [])

    options = Options.checked(PICTURE)
    masked.denoised_around_holes([part], [~mask], options, by, options.progress)
    assert len(seen) == times
    for each in seen:
        np.testing.assert_array_equal(each.image[~mask], PICTURE[~mask])
    if times == 2:
        assert (seen[1].image[mask] == 50).all()
        assert seen[1].sigma < seen[0].sigma < 10


class _Known:
    """Groups whose estimate is known, and whose means are zero."""

    layout = SimpleNamespace(grid=SimpleNamespace(patch_shape=(1, 8, 8)))

    def __init__(self, estimate):
        self.estimate = estimate

    def filled(self, *given):
        guide, _, known = given[:3]
        return (self.estimate if known.any() else np.zeros_like(guide)), np.ones_like(guide)


@pytest.mark.parametrize(
    ("large", "small", "expected"),
    [(1.1, 1.0, 1.01), (1.0, 2.0, 1.0), (1.5, 1.5, 1.25), (3.0, 3.0, 1.0)],
)
def test_estimates_count_unless_they_differ_by_as_much_as_patches_of_a_group(
    large, small, expected
):
    guide, known = np.ones((1, 30, 40)), np.ones((1, 30, 40), bool)  # one from the means
    groups = [_Known(value * guide) for value in (large, small)]
    found = holes._moved_to_groups(groups, guide, guide, known, SILENT)
    np.testing.assert_allclose(found, np.full_like(guide, expected), atol=0.002)


def test_a_hole_makes_no_difference_far_away():
    """Neither to the noise that is assumed, nor to where known pixels are estimated again."""
    noisy, mask = kf.add_noise(PICTURE, 10), np.zeros(PICTURE.shape, bool)
    mask[2:8, 2:8] = True
    options = {"quality": "fast", "transform": np.eye(36)}
    found = kf.denoise(noisy, 10, mask=mask, **options)
    expected = kf.denoise(noisy, 10, **options)
    far = np.s_[24:, 24:]
    assert error(found, expected, far) < 0.1
    assert error(found, noisy, far) > 4


def test_an_empty_mask_changes_nothing():
    noisy = kf.add_noise(PICTURE, 10)
    none = np.zeros(PICTURE.shape, bool)
    np.testing.assert_array_equal(
        kf.denoise(noisy, 10, mask=none, quality="fast"), kf.denoise(noisy, 10, quality="fast")
    )


def test_without_noise_denoising_fills_as_inpainting_does(filled):
    np.testing.assert_array_equal(kf.denoise(PICTURE, 0, mask=MASK), filled)


def test_missing_pixels_do_not_count_as_noise():
    noisy = kf.add_noise(camera()[:256, :256].astype(float), 10)
    mask = np.zeros(noisy.shape, bool)
    mask[::37] = mask[:, 100:103] = True
    found = kf.denoise_with_details(
        np.where(mask, -9999, noisy), mask=mask, noise="white", quality="fast"
    )
    assert found.sigma == pytest.approx(10, rel=0.1)


def test_noise_can_be_estimated_without_any_complete_block():
    flat = kf.add_noise(np.zeros((96, 96)), 3.0)
    mask = np.random.default_rng(0).random(flat.shape) < 0.5
    found = kf.denoise_with_details(flat, mask=mask, quality="fast")
    assert found.sigma == pytest.approx(3, rel=0.1)
    assert np.ndim(found.noise.sigma) == 0  # as of any grey image
    with pytest.raises(ValueError, match="too few areas without missing pixels"):
        kf.denoise(flat, noise="shot", mask=mask)


def test_an_estimate_from_neighbouring_pixels_says_that_it_is_unsure(caplog):
    """Texture counts as noise there, and a noise that is given has confidence 1."""
    caplog.set_level("INFO", logger="kappaform")
    found = kf.denoise_with_details(PICTURE, mask=MASK, quality="fast").noise
    assert found.confidence < UNSURE
    assert found.alternative == "sigma"
    assert any(found.evidence in each.message for each in caplog.records)


def test_patches_with_holes_are_not_learned_from(monkeypatch):
    """If there are enough others: then what the holes are filled with makes no difference."""
    noisy = kf.add_noise(camera()[:96, :96].astype(float), 10)
    mask = np.zeros(noisy.shape, bool)
    mask[30:60, 30:60] = True

    def transform(value):
        with monkeypatch.context() as patch:
            patch.setattr(
                "kappaform.imaging.masked.filled",
                lambda images, known, *_: [np.where(known[0], images[0], value)],
            )
            return kf.denoise_with_details(noisy, 10, mask=mask, quality="fast").transform

    np.testing.assert_array_equal(transform(0.0), transform(200.0))
    mask[::8, ::8] = True  # no patch is complete
    assert not np.array_equal(transform(0.0), transform(200.0))


def test_colours_with_masks_of_their_own_are_denoised():
    colour = astronaut()[60:100, 200:240].astype(np.float64)
    noisy = kf.add_noise(colour, 10)
    masks = np.random.default_rng(1).random(colour.shape) < 0.2
    for mask in (masks, masks[..., 0]):
        found = kf.denoise(noisy, 10, mask=mask, channel_axis=-1, quality="fast")
        assert error(found, colour) < error(noisy, colour)


# --- What is rejected


@pytest.mark.parametrize(
    ("mask", "kind", "message"),
    [
        (MASK[:-1], ValueError, r"mask has shape \(47, 48\), the image \(48, 48\)"),
        (MASK.astype(int), TypeError, "mask has dtype int64: give booleans"),
        (np.ones_like(MASK), ValueError, "every pixel is missing"),
        ("nothing", ValueError, "mask='nothing' is unknown"),
    ],
)
def test_bad_masks_are_rejected(mask, kind, message):
    with pytest.raises(kind, match=message):
        kf.inpaint(PICTURE, mask)
    with pytest.raises(kind, match=message):
        kf.denoise(PICTURE, 1, mask=mask)


def test_infinite_values_and_nan_outside_the_mask_are_rejected():
    with pytest.raises(ValueError, match="NaN or inf"):
        kf.denoise(np.where(MASK, np.nan, PICTURE), 1, mask=~MASK)
    with_inf = np.where(MASK, np.inf, PICTURE)
    with pytest.raises(ValueError, match=r"with mask=~np.isfinite\(image\) they fill inf, too"):
        kf.inpaint(with_inf)
    assert np.isfinite(kf.inpaint(with_inf, ~np.isfinite(with_inf), quality="fast")).all()
    with pytest.raises(ValueError, match=r"denoise\(image, mask='nan'\)"):
        kf.denoise(np.where(MASK, np.nan, PICTURE), 1)
    with pytest.raises(ValueError, match="preset='paper' with mask"):
        kf.denoise(PICTURE, 1, mask=MASK, preset="paper")


def test_a_mask_without_its_axis_names_the_remedy():
    with pytest.raises(ValueError, match=r"channel_axis=-1 or stack_axis=-1"):
        kf.inpaint(np.stack([PICTURE] * 3, axis=-1), MASK)
    with pytest.raises(ValueError, match=r"channel_axis=0 or stack_axis=0"):
        kf.inpaint(np.stack([PICTURE] * 5), MASK)


def test_values_without_digits_left_are_rejected_before_they_overflow():
    for fill in (kf.inpaint, lambda image, mask: kf.denoise(image, 1, mask=mask)):
        with pytest.raises(ValueError, match="near the largest number of float64: scale them"):
            fill(PICTURE * 1e300, MASK)
    with pytest.raises(ValueError, match="16 digits of float64"):
        kf.denoise(PICTURE, 1e-30, mask=MASK)


def test_masked_entries_are_missing_to_denoising_with_a_mask():
    noisy = kf.add_noise(PICTURE, 10)
    expected = kf.denoise(noisy, 10, mask=MASK, quality="fast")
    half = MASK & (np.arange(48) < 20)
    for mask in (np.zeros_like(MASK), half):
        hidden = np.ma.array(np.where(MASK, 1e6, noisy), mask=MASK)
        found = kf.denoise(hidden, 10, mask=mask, quality="fast")
        np.testing.assert_array_equal(found, expected)
        assert not isinstance(found, np.ma.MaskedArray)


def test_a_channel_or_an_image_of_which_nothing_is_known_is_named():
    colour = np.zeros((20, 20, 3))
    colour[..., 1] = np.nan
    with pytest.raises(ValueError, match="every pixel of channel 1 is missing"):
        kf.inpaint(colour, channel_axis=-1)
    stack = np.zeros((3, 20, 20, 20))
    stack[2] = np.nan
    with pytest.raises(ValueError, match="every pixel of image 2 of the stack is missing"):
        kf.inpaint(stack, stack_axis=0)


def test_nothing_missing_returns_the_image_and_says_so():
    with pytest.warns(UserWarning, match="nothing is missing"):
        found = kf.inpaint(PICTURE, np.zeros_like(MASK))
    np.testing.assert_array_equal(found, PICTURE)


def test_a_mask_in_place_of_sigma_and_a_masked_image_without_a_mask_name_the_remedy():
    image, mask = np.arange(144.0).reshape(12, 12), np.eye(12, dtype=bool)
    with pytest.raises(TypeError, match=r"sigma is an array of booleans: .* mask="):
        kf.denoise(image, mask)
    with pytest.raises(TypeError, match=r"masked entries: .*; inpaint\(image\) and denoise\("):
        kf.denoise(np.ma.array(image, mask=mask), 5)


def test_a_masked_array_without_masked_entries_is_an_ordinary_one():
    expected = kf.denoise(PICTURE, 5, quality="fast")
    for mask in (False, np.zeros(PICTURE.shape, bool)):
        image = np.ma.array(PICTURE, mask=mask)
        found = kf.denoise(image, 5, quality="fast")
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, expected)
        assert kf.estimate_sigma(image) == kf.estimate_sigma(PICTURE)
    with pytest.raises(TypeError, match="a masked array with masked entries"):
        kf.denoise(np.ma.array(PICTURE, mask=MASK), 5)


def test_half_precision_is_denoised_around_holes():
    found = kf.denoise(PICTURE.astype(np.float16), 5, mask=MASK, quality="fast")
    assert found.dtype == np.float16
    expected = kf.denoise(PICTURE, 5, mask=MASK, quality="fast")
    assert error(found, expected) < 1


def test_a_dask_array_is_rejected_with_the_way_out():
    array = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match=r"image\.compute\(\)"):
        kf.inpaint(array.from_array(PICTURE), MASK)


def test_a_range_in_other_units_is_reported():
    text = r"value_range=\(0, 1\) excludes most values of the image, .*; give it in image units"
    with pytest.warns(UserWarning, match=text):
        kf.inpaint(PICTURE, MASK, value_range=(0, 1))
