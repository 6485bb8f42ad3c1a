"""Groups and scales of tensors are those of arrays."""

import naive
import numpy as np
import pytest
from group_cases import CASES, PLANE, ROUNDS, picture, some_covariance

from kappaform.imaging.cleaning import groups, stages
from kappaform.imaging.progress import Progress

torch = pytest.importorskip("torch")

from kappaform.imaging.cleaning import torch_groups  # noqa: E402
from kappaform.imaging.cleaning.torch_groups import TensorGroups  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
PRECISIONS = [("float32", 2e-4), ("float64", 1e-10)]

cases = pytest.mark.parametrize(("shape", "search"), CASES.values(), ids=CASES.keys())


@pytest.fixture(params=DEVICES)
def device(request):
    return torch.device(request.param)


def places_of(found):
    """First pixels of the members of every group: (groups, members, 3)."""
    grid = found.layout.grid
    corners = np.stack(grid.corners(np.arange(grid.n_patches)), axis=1)
    return corners[:, np.newaxis] + found.layout.shifts[found.members.cpu().numpy()]


def test_kernels_are_used_where_they_run_and_fit(monkeypatch):
    triton_groups = pytest.importorskip("kappaform.imaging.cleaning.triton_groups")

    class Image:  # of a GPU
        is_cuda, device, dtype = True, torch.device("cuda", 0), torch.float32

        @staticmethod
        def numel():
            return 4096

    def adder(runs=True, n_members=64, dtype=torch.float32):
        monkeypatch.setattr(torch_groups, "fused_kernels_run_on", lambda _: runs)
        monkeypatch.setattr(Image, "dtype", dtype)
        return torch_groups._adder_of_groups(Image, n_members, 36)

    assert adder() is triton_groups.add_groups
    for other in (adder(runs=False), adder(n_members=65), adder(dtype=torch.float64)):
        assert other is torch_groups.add_groups_by_torch


def tensors(images, device):
    return [torch.tensor(np.ascontiguousarray(image), device=device) for image in images]


@cases
def test_members_are_the_nearest_patches_at_borders_and_in_corners_too(shape, search, device, rng):
    image = rng.integers(0, 9, shape).astype(np.float32)
    tensor = torch.tensor(image, device=device)
    found = TensorGroups(tensor, search)
    found.find(tensor)
    corners = naive.patch_corners(shape, search.patch_shape, search.stride)
    for corner, members in zip(corners, places_of(found).tolist(), strict=True):
        places = [tuple(place) for place in members]
        assert corner in places
        assert len(set(places)) == len(places)
        args = search.patch_shape, search.radius, search.context
        distances = naive.distances_of_patches(image, corner, *args)
        expected = naive.nearest_patches(image, corner, *args, search.n_members)
        assert sorted(map(distances.get, places)) == list(map(distances.get, expected))


def test_the_number_of_distances_at_a_time_does_not_change_groups(device, rng, monkeypatch):
    shape, search = CASES["flat patches of a movie"]
    image = torch.tensor(rng.standard_normal(shape), device=device)
    found = TensorGroups(image, search)
    found.find(image)
    expected = found.members.sort(1).values
    monkeypatch.setattr(torch_groups, "_DISTANCE_ENTRIES", 1000)
    found.find(image)
    assert torch.equal(found.members.sort(1).values, expected)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("is_white", [True, False])
@cases
def test_a_round_is_that_of_the_rule(
    shape, search, is_white, dtype, tolerance, device, rng, monkeypatch
):
    monkeypatch.setattr(torch_groups, "_GROUP_ENTRIES", 3000)  # several parts
    clean, noisy, guide = picture(shape, rng, dtype)
    mixed = (clean + 0.6 * (noisy - clean)).astype(dtype)
    covariance = None if is_white else some_covariance(np.prod(search.patch_shape), rng)
    tensor = torch.tensor(guide, device=device)
    found = TensorGroups(tensor, search)
    found.find(tensor)
    results = found.denoised(*tensors([noisy, mixed, guide], device), covariance, 0.3)
    places = [[tuple(place) for place in members] for members in places_of(found).tolist()]
    images = (image.astype(np.float64) for image in (noisy, mixed, guide))
    expected = naive.round_of_groups(*images, places, search.patch_shape, 0.3, covariance)
    for one, other in zip(results, expected, strict=True):
        assert one.dtype == getattr(torch, dtype)
        np.testing.assert_allclose(one.cpu(), other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("case", ["plane", "volume", "flat patches of a movie"])
def test_all_rounds_are_those_of_arrays(case, device, rng):
    shape, search = CASES[case]
    noisy, guesses = zip(*(picture(shape, rng)[1:] for _ in range(2)), strict=True)
    covariances = [None, some_covariance(np.prod(search.patch_shape), rng)]
    expected = groups.refined(noisy, list(guesses), covariances, search, ROUNDS, groups.Groups)
    given = (list(tensors(images, device)) for images in (noisy, guesses))
    found = groups.refined(*given, covariances, search, ROUNDS, TensorGroups)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == shape
        np.testing.assert_allclose(one.cpu(), other, rtol=0, atol=1e-9)


def test_the_same_tensors_give_the_same_bits(device, rng):
    _, *images = (each.astype(np.float32) for each in picture((1, 40, 50), rng))
    (one,), (other,) = (
        groups.refined(
            *([each] for each in tensors(images, device)), [None], PLANE, ROUNDS, TensorGroups
        )
        for _ in range(2)
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("value", [0.0, -3.5, 1e6])
def test_a_constant_stays_and_every_patch_is_in_its_group(value, device):
    image = torch.full((1, 20, 20), value, dtype=torch.float64, device=device)
    equal = TensorGroups(image, PLANE)
    equal.find(image)
    assert (equal.members == 0).any(1).all()
    (found,) = groups.refined([image], [image], [None], PLANE, ROUNDS, TensorGroups)
    np.testing.assert_allclose(found.cpu(), value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("value", [1e6, -1e9, 1e11])
def test_one_huge_value_leaves_the_rest_as_in_an_array(value, device, rng):
    _, noisy, guess = picture((1, 40, 40), rng)
    noisy[0, 20, 20] = guess[0, 20, 20] = value
    (expected,) = groups.refined([noisy], [guess], [None], PLANE, ROUNDS, groups.Groups)
    given = ([each] for each in tensors([noisy, guess], device))
    (found,) = groups.refined(*given, [None], PLANE, ROUNDS, TensorGroups)
    # Patches with the value are equally far from all others, up to rounding, which chooses the
    # members of their groups: 3 + 5 + 3 pixels away at most.
    rest = np.ones(noisy.shape, bool)
    rest[0, 9:32, 9:32] = False
    np.testing.assert_allclose(found.cpu()[rest], expected[rest], rtol=0, atol=0.1)


def test_progress_never_falls_and_ends_at_one(device, rng):
    given = ([each] for each in tensors(picture((1, 20, 20), rng)[1:], device))
    fractions = []
    groups.refined(*given, [None], PLANE, ROUNDS, TensorGroups, Progress(fractions.append))
    assert fractions == sorted(fractions)
    assert len(set(fractions)) >= ROUNDS.number
    assert fractions[-1] == 1


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize(
    ("shape", "patch_shape"),
    [((24, 31), (5, 5)), ((12, 9, 10), (2, 2, 2)), ((5, 20, 17), (1, 4, 4)), ((1, 40), (1, 6))],
)
def test_halves_and_smooth_parts_are_those_of_arrays(
    shape, patch_shape, dtype, tolerance, device, rng
):
    image = rng.standard_normal(shape).astype(dtype)
    tensor = torch.tensor(image, device=device)
    half = naive.halved(image, patch_shape)
    np.testing.assert_allclose(stages.halved(tensor, patch_shape).cpu(), half, atol=tolerance)
    other = rng.standard_normal(half.shape).astype(dtype)
    found = stages.with_smooth_part(tensor, torch.tensor(other, device=device))
    expected = naive.with_smooth_part(image, other, stages._TAKEN)
    assert (found.dtype, found.device) == (tensor.dtype, tensor.device)
    np.testing.assert_allclose(found.cpu(), expected, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(tensor.cpu(), image)
