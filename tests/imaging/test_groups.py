"""Groups of similar patches: where they are, how they are cleaned, and what always holds."""

import weakref

import naive
import numpy as np
import pytest
from group_cases import CASES, PLANE, ROUNDS, picture, some_covariance
from numba import types

from kappaform.imaging.cleaning.group_kernels import centre
from kappaform.imaging.cleaning.groups import Groups, noise_of_groups, refined
from kappaform.imaging.cleaning.kernels import denoise_groups, nearest
from kappaform.imaging.patches import rows_at
from kappaform.imaging.progress import Progress

cases = pytest.mark.parametrize(("shape", "search"), CASES.values(), ids=CASES.keys())


def places_of(groups):
    """First pixels of the members of every group: (groups, members, 3)."""
    corners = np.stack(groups.layout.grid.corners(np.arange(groups.layout.grid.n_patches)), axis=1)
    return corners[:, np.newaxis] + groups.layout.shifts[np.concatenate(groups.members)]


def found_in(image, search):
    groups = Groups(image, search)
    groups.find(image)
    return groups


@cases
def test_kernels_are_compiled_for_one_layout_of_their_arrays(shape, search, rng):
    """Compiling the search takes seconds: slices must not ask for it once more."""
    noisy = rng.standard_normal(shape)
    found_in(noisy, search).denoised(noisy, noisy, noisy, None, 0.5)
    for kernel in (nearest, denoise_groups):
        kinds = [kind for signature in kernel.signatures for kind in signature]
        assert {kind.layout for kind in kinds if isinstance(kind, types.Array)} == {"C"}


# --- Finding


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@cases
def test_members_are_the_nearest_patches_at_borders_and_in_corners_too(shape, search, dtype, rng):
    image = rng.integers(0, 9, shape).astype(dtype)  # sums of squares are exact in any order
    groups = found_in(image, search)
    corners = naive.patch_corners(shape, search.patch_shape, search.stride)
    for corner, members in zip(corners, places_of(groups).tolist(), strict=True):
        places = [tuple(place) for place in members]
        assert corner in places
        assert len(set(places)) == len(places)
        args = search.patch_shape, search.radius, search.context
        distances = naive.distances_of_patches(image, corner, *args)
        expected = naive.nearest_patches(image, corner, *args, search.n_members)
        found = sorted(distances[place] for place in places)  # inside: else there is no such key
        assert found == [distances[place] for place in expected]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@cases
def test_a_search_finds_the_same_whatever_was_found_before(shape, search, dtype, rng):
    """The last members only say how near enough patches are at least; they may be far by now."""
    image, smooth = rng.normal(size=(2, *shape)).astype(dtype)
    smooth += 3 * np.arange(shape[-1])
    for now in (image, smooth, np.zeros(shape, dtype)):
        groups = found_in(smooth - image, search)
        groups.find(now)
        for found, alone in zip(groups.members, found_in(now, search).members, strict=True):
            np.testing.assert_array_equal(found, alone)


@cases
def test_groups_about_holes_are_the_same_whatever_was_found_before(shape, search, rng):
    """With any number of members, and wherever holes were before."""
    before, now = rng.normal(size=(2, *shape)).astype(np.float32)
    few, many = max(1, search.n_members // 2), search.n_members
    known = rng.random((3, *shape)) > 0.02
    for first, last in ((few, many), (many, few)):
        groups = Groups(before, search)
        groups.find(before, known=known[:1], n_members=first)
        groups.find(now, known=known[1:], n_members=last)
        alone = found_in(now, search._replace(n_members=last))
        wanted = ~np.all([rows_at(each, groups.layout.grid) for each in known[1:]], axis=(0, 2))
        found, expected = (np.concatenate(each.members)[wanted] for each in (groups, alone))
        np.testing.assert_array_equal(found, expected)


def test_of_equal_patches_the_first_shifts_are_taken():
    groups = found_in(np.full((1, 20, 20), 7.0), PLANE)
    for corner, members in zip(
        naive.patch_corners((1, 20, 20), PLANE.patch_shape, PLANE.stride),
        np.concatenate(groups.members),
        strict=True,
    ):
        there = groups.layout.shifts + corner
        is_inside = ((there >= 0) & (there <= [0, 16, 16])).all(axis=1)
        assert sorted(members) == np.flatnonzero(is_inside)[: PLANE.n_members].tolist()


def test_the_patch_itself_is_the_first_shift():
    assert found_in(np.zeros((1, 9, 9)), PLANE).layout.shifts[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("exponent", [-50, 50])
def test_groups_do_not_depend_on_the_unit_of_values(exponent, rng):
    image = rng.integers(0, 9, (1, 20, 20)).astype(np.float32)
    images = image, np.ldexp(image, exponent)
    one, other = (np.concatenate(found_in(each, PLANE).members) for each in images)
    np.testing.assert_array_equal(one, other)


# --- Cleaning


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-4), (np.float64, 1e-10)])
@pytest.mark.parametrize("is_white", [True, False])
@cases
def test_a_round_is_that_of_the_rule(shape, search, is_white, dtype, tolerance, rng):
    clean, noisy, guide = picture(shape, rng, dtype)
    mixed = (clean + 0.6 * (noisy - clean)).astype(dtype)
    covariance = None if is_white else some_covariance(np.prod(search.patch_shape), rng)
    groups = found_in(guide, search)
    found = groups.denoised(noisy, mixed, guide, covariance, 0.3)
    places = [[tuple(place) for place in members] for members in places_of(groups).tolist()]
    images = (image.astype(np.float64) for image in (noisy, mixed, guide))
    expected = naive.round_of_groups(*images, places, search.patch_shape, 0.3, covariance)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("covariance", [None, 0.5 * np.eye(16)], ids=["white", "weaker"])
def test_groups_that_show_little_next_to_the_noise_are_means(covariance, rng):
    noisy, guide = rng.standard_normal((2, 1, 17, 22))
    limit = 0.173 if covariance is None else 0.122  # 0.3 of the noise of a mean of 10, 1 or 0.5
    groups = found_in(guide, PLANE)

    def denoised(factor):
        return groups.denoised(noisy, noisy, factor * limit * guide, covariance, 0.3)

    np.testing.assert_array_equal(denoised(0.7), denoised(0.0))  # the nearest vary less
    assert np.abs(denoised(1.4)[0] - denoised(0.0)[0]).max() > 0.01


@pytest.mark.parametrize("case", ["plane", "volume", "flat patches of a movie"])
@pytest.mark.parametrize("guided", [0.0, 0.25, 1.0])
def test_all_rounds_are_those_of_the_rule(case, guided, rng):
    shape, search = CASES[case]
    _, noisy, guess = picture(shape, rng)
    rounds = ROUNDS._replace(guided=guided)
    (found,) = refined([noisy], [guess], [None], search, rounds, Groups)
    (expected,) = naive.rounds_of_groups([noisy], [guess], [None], search, rounds)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_components_are_denoised_with_the_groups_of_the_first(rng):
    shape, search = CASES["plane"]
    _, *first = picture(shape, rng)
    second = [image.transpose(0, 2, 1).reshape(shape) for image in picture(shape, rng)[1:]]
    noisy, guesses = zip(first, second, strict=True)
    covariances = [None, some_covariance(16, rng)]
    found = refined(noisy, list(guesses), covariances, search, ROUNDS, Groups)
    expected = naive.rounds_of_groups(noisy, guesses, covariances, search, ROUNDS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_an_estimate_is_released_when_there_is_a_better_one(rng):
    _, noisy, guess = picture(CASES["plane"][0], rng)
    guesses = [guess.copy() for _ in range(2)]
    first, alive = [weakref.ref(each) for each in guesses], []

    class Watched(Groups):
        def denoised(self, *arguments):
            alive.append([each() is not None for each in first])
            return super().denoised(*arguments)

    refined([noisy] * 2, guesses, [None] * 2, PLANE, ROUNDS, Watched)
    assert alive[:3] == [[True, True], [False, True], [False, False]]


def test_a_plane_needs_no_third_axis(rng):
    _, noisy, guess = picture((1, 20, 24), rng)
    (flat,) = refined([noisy[0]], [guess[0]], [None], PLANE, ROUNDS, Groups)
    (deep,) = refined([noisy], [guess], [None], PLANE, ROUNDS, Groups)
    np.testing.assert_array_equal(flat, deep[0])


def test_images_that_are_not_contiguous_are_denoised_alike(rng):
    _, noisy, guess = picture((1, 20, 24), rng)
    (expected,) = refined([noisy], [guess], [None], PLANE, ROUNDS, Groups)
    wide = np.repeat(noisy, 2, axis=2)
    (found,) = refined([wide[..., ::2]], [np.asfortranarray(guess)], [None], PLANE, ROUNDS, Groups)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [(1, 70, 30), (9, 12, 13)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_threads_gives_the_same_bits(shape, dtype, rng, monkeypatch):
    search = PLANE if shape[0] == 1 else CASES["volume"][1]
    _, noisy, guess = picture(shape, rng, dtype)
    results = []
    for number in (1, 2, 3):
        monkeypatch.setenv("KAPPAFORM_NUM_THREADS", str(number))
        results.append(refined([noisy], [guess], [None], search, ROUNDS, Groups)[0])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("n_threads", [1, 3])
def test_progress_never_falls_and_ends_at_one(n_threads, rng, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", str(n_threads))
    _, noisy, guess = picture((1, 61, 20), rng)
    fractions = []
    refined([noisy] * 2, [guess] * 2, [None] * 2, PLANE, ROUNDS, Groups, Progress(fractions.append))
    assert fractions == sorted(fractions)
    assert fractions[0] > 0
    assert fractions[-1] == 1
    if n_threads == 1:  # every strip of two searches and of four rounds of two components
        n_strips = len(Groups(noisy, PLANE).strips)
        assert n_strips > 1
        assert len(set(fractions)) == n_strips * (2 + 4 * 2)


def test_what_memory_held_before_does_not_matter(rng):
    patches = rng.standard_normal((7, 5))
    centred, mean = patches.copy(), np.full(5, np.nan)
    centre(centred, 7, mean)
    np.testing.assert_allclose(mean, patches.mean(axis=0))
    np.testing.assert_allclose(centred, patches - mean)


# --- What always holds


@pytest.mark.parametrize("value", [0.0, -3.5, 1e6])
@cases
def test_a_constant_stays_whatever_the_guide_says(shape, search, value, rng):
    _, _, guide = picture(shape, rng)
    image = np.full(shape, value)
    groups = found_in(guide, search)
    for result in groups.denoised(image, image, guide, None, 0.3):
        np.testing.assert_allclose(result, value, rtol=1e-12, atol=1e-12)
    (cleaned,) = refined([image], [image], [None], search, ROUNDS, Groups)
    np.testing.assert_allclose(cleaned, value, rtol=1e-12, atol=1e-12)


def test_rounds_commute_with_adding_a_constant(rng):
    _, noisy, guess = picture((1, 30, 32), rng)
    (expected,) = refined([noisy], [guess], [None], PLANE, ROUNDS, Groups)
    (found,) = refined([noisy + 100], [guess + 100], [None], PLANE, ROUNDS, Groups)
    np.testing.assert_allclose(found - 100, expected, rtol=0, atol=1e-9)


def test_what_stands_far_above_the_noise_stays(rng):
    clean, _, _ = picture((1, 30, 32), rng)
    (cleaned,) = refined([100 * clean], [100 * clean], [None], PLANE, ROUNDS, Groups)
    assert np.abs(cleaned - 100 * clean).max() < 0.1  # of a range of 1400


def test_rounds_remove_noise_and_the_guide_helps(rng):
    clean, noisy, guess = picture((1, 48, 48), rng)
    search = PLANE._replace(radius=(0, 12, 12), n_members=40)
    errors = [
        np.std(refined([noisy], [start], [None], search, ROUNDS, Groups)[0] - clean)
        for start in (guess, noisy)
    ]
    assert errors[1] < 0.8 * np.std(noisy - clean)
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.parametrize("value", [1e6, -1e9, 1e14])
def test_one_huge_value_leaves_the_rest_as_it_was(value, rng):
    clean, noisy, guess = picture((1, 40, 40), rng)
    search = PLANE._replace(radius=(0, 15, 15), n_members=40)
    (expected,) = refined([noisy], [guess], [None], search, ROUNDS, Groups)
    noisy[0, 20, 20] = guess[0, 20, 20] = value
    (cleaned,) = refined([noisy], [guess], [None], search, ROUNDS, Groups)
    assert np.isfinite(cleaned).all()
    rest = np.ones(clean.shape, bool)
    rest[0, 15:26, 15:26] = False
    assert np.std((cleaned - clean)[rest]) < 1.05 * np.std((expected - clean)[rest])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [1e-30, 1e-3, 1e3, 1e12])
def test_values_of_any_size_give_finite_results(dtype, factor, rng):
    _, noisy, guess = picture((1, 20, 20), rng)
    images = ((factor * image).astype(dtype) for image in (noisy, guess))
    (cleaned,) = refined(*([image] for image in images), [None], PLANE, ROUNDS, Groups)
    assert np.isfinite(cleaned).all()
    low, high = factor * noisy.min(), factor * noisy.max()
    assert low - 0.1 * (high - low) <= cleaned.min()
    assert cleaned.max() <= high + 0.1 * (high - low)


# --- The covariance of noise in a patch of groups


def covariance_of(shape, autocovariance):
    places = list(np.ndindex(*shape))
    return np.array([[autocovariance(np.subtract(p, q)) for q in places] for p in places])


@pytest.mark.parametrize(
    ("patch_shape", "sides"),
    [((5, 7), (1, 4, 4)), ((4, 4), (1, 4, 4)), ((4, 5, 3), (2, 3, 3)), ((1, 5, 6), (1, 4, 4))],
)
def test_the_noise_of_a_group_is_a_block_of_that_of_a_patch_and_counts_as_stronger(
    patch_shape, sides
):
    def decay(step):
        return 3.0 * np.exp(-np.sum(np.abs(step) * (0.5, 0.3, 0.2)[3 - len(step) :]))

    found = noise_of_groups(covariance_of(patch_shape, decay), patch_shape, sides)
    block = covariance_of(sides[3 - len(patch_shape) :], decay) / 3.0
    n_sharing = max(sum(abs(entry) for entry in row) for row in block)
    np.testing.assert_allclose(found, np.sqrt(n_sharing) * block)


def test_white_noise_needs_no_covariance():
    assert noise_of_groups(None, (5, 5), (1, 4, 4)) is None
    np.testing.assert_allclose(noise_of_groups(4 * np.eye(25), (5, 5), (1, 4, 4)), np.eye(16))
