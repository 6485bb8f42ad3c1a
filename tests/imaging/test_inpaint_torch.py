"""Holes of tensors are filled as those of arrays are, on the device where they live."""

import sys

import numpy as np
import pytest
from group_cases import CASES
from helpers import psnr
from skimage.data import astronaut, camera

import kappaform as kf
from kappaform.imaging.cleaning.groups import Groups

torch = pytest.importorskip("torch")

from kappaform.imaging.cleaning import torch_fill  # noqa: E402
from kappaform.imaging.cleaning.torch_groups import TensorGroups  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
PICTURE = camera()[100:164, 200:264].astype(np.float64)
cases = pytest.mark.parametrize(("shape", "search"), CASES.values(), ids=CASES.keys())


@pytest.fixture(params=DEVICES)
def device(request):
    return torch.device(request.param)


@pytest.fixture
def through_torch(monkeypatch, device):
    """Fill or denoise with groups of tensors, on the CPU too."""

    def called(function, *arguments, **options):
        with monkeypatch.context() as patch:
            for module in ("inpaint", "components"):
                name = f"kappaform.imaging.{module}"
                patch.setattr(sys.modules[name], "place_of", lambda *_: device)
            return function(*arguments, **options)

    return called


def mask_of(shape, fraction, seed=0):
    return np.random.default_rng(seed).random(shape) < fraction


def of_arrays_and_tensors(guide, given, known, search, variance, denoises, device):
    """The sums of `filled`, with the same members in both libraries."""
    arrays = Groups(guide, search)
    arrays.find(guide)
    expected = arrays.filled(guide, given, known, variance, denoises)
    images = [torch.tensor(each, device=device) for each in (guide, given, known)]
    tensors = TensorGroups(images[0], search)
    members = np.concatenate(arrays.members).astype(np.int64)
    tensors.members = torch.tensor(members, device=device)
    return expected, tensors.filled(*images, variance, denoises)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-3), ("float64", 1e-10)])
@pytest.mark.parametrize("denoises", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.05, 0.5, 0.9])
@cases
def test_a_round_is_that_of_arrays(
    shape, search, missing, denoises, dtype, tolerance, device, rng, monkeypatch
):
    monkeypatch.setattr(torch_fill, "_SYSTEM_ENTRIES", 3000)  # several parts
    guide, given = rng.standard_normal((2, *shape)).astype(dtype)
    known = rng.random(shape) >= missing
    given[~known] = np.nan  # hidden values do not matter
    expected, found = of_arrays_and_tensors(guide, given, known, search, 0.3, denoises, device)
    np.testing.assert_array_equal(found[1].cpu(), expected[1])
    most = max(1.0, float(np.abs(expected[0]).max()))
    np.testing.assert_allclose(found[0].cpu(), expected[0], rtol=0, atol=tolerance * most)


@cases
def test_only_groups_about_holes_are_found(shape, search, device, rng):
    guide, given = rng.standard_normal((2, *shape))
    known = rng.random((2, *shape)) >= 0.02
    images = [torch.tensor(each, device=device) for each in (guide, given, *known)]
    groups, every = (TensorGroups(images[0], search) for _ in range(2))
    groups.find(images[0], known=images[2:])
    every.find(images[0])
    assert len(groups.members) <= len(every.members)
    for one, other in zip(
        groups.filled(*images[:3], 0.3, False), every.filled(*images[:3], 0.3, False), strict=True
    ):
        assert torch.equal(one, other)
    assert (known[0] & known[1]).all() or groups.members.numel()
    complete = torch.ones_like(images[2])
    groups.find(images[0], known=[complete])
    assert not groups.members.numel()


def test_systems_that_are_not_positive_definite_have_no_solution(device, rng):
    factor = rng.standard_normal((6, 6))
    good = factor @ factor.T + np.eye(6)
    bad = good - 3 * np.eye(6) * np.linalg.eigvalsh(good).max()
    system = torch.tensor(np.stack([good, bad, np.zeros((6, 6))], -1), device=device)
    right = torch.tensor(rng.standard_normal((6, 3)), device=device)
    expected = np.linalg.solve(good, right[:, 0].cpu())
    found, sound = torch_fill._eliminated(system, right)
    assert sound.tolist() == [True, False, False]
    np.testing.assert_allclose(found[:, 0].cpu(), expected, atol=1e-10)
    assert not found[:, 1:].any()


def test_where_rounding_spoils_an_inverse_known_pixels_decide(device, rng, monkeypatch):
    shape, search = CASES["plane"]
    guide, given = rng.standard_normal((2, *shape))
    known = rng.random(shape) >= 0.1
    inverted = torch_fill._inverted
    monkeypatch.setattr(torch_fill, "_inverted", lambda matrices: -inverted(matrices))
    expected, found = of_arrays_and_tensors(guide, given, known, search, 0.3, False, device)
    np.testing.assert_allclose(found[0].cpu(), expected[0], rtol=0, atol=1e-8)


def test_the_same_tensors_give_the_same_bits(device, rng):
    shape, search = CASES["plane"]
    guide = torch.tensor(rng.standard_normal(shape), dtype=torch.float32, device=device)
    known = torch.tensor(rng.random(shape) < 0.5, device=device)
    groups = TensorGroups(guide, search)
    groups.find(guide)
    one, two = (groups.filled(guide, guide, known, 0.1, False) for _ in range(2))
    assert torch.equal(one[0], two[0])


@pytest.mark.parametrize("fraction", [0.02, 0.5, 0.8])
def test_images_are_filled_as_on_the_host(fraction, through_torch):
    mask = mask_of(PICTURE.shape, fraction)
    expected = kf.inpaint(PICTURE, mask)
    found = through_torch(kf.inpaint, PICTURE, mask)
    np.testing.assert_array_equal(found[~mask], PICTURE[~mask])
    difference = psnr(found[mask], PICTURE[mask]) - psnr(expected[mask], PICTURE[mask])
    assert abs(difference) < 0.2
    assert psnr(found[mask], expected[mask]) > psnr(expected[mask], PICTURE[mask]) + 6


def test_large_holes_colours_and_movies_are_filled_as_on_the_host(through_torch):
    hole = np.zeros(PICTURE.shape, bool)
    hole[20:45, 20:45] = True
    colours = astronaut()[60:92, 200:232].astype(np.float64)
    movie = np.stack([camera()[100:124, 200 + i : 224 + i] for i in range(5)]).astype(float)
    cases = [
        (PICTURE, hole, {}),
        (colours, mask_of(colours.shape, 0.3), {"channel_axis": -1}),
        (colours, mask_of(colours.shape[:2], 0.3), {"channel_axis": -1}),
        (movie, mask_of(movie.shape, 0.3), {"stack_axis": 0, "movie": True}),
        (movie, mask_of(movie.shape, 0.3), {}),  # a volume
    ]
    for image, mask, options in cases:
        expected = kf.inpaint(image, mask, quality="fast", **options)
        found = through_torch(kf.inpaint, image, mask, quality="fast", **options)
        wrong, apart = (np.sqrt(np.mean((found - each) ** 2)) for each in (image, expected))
        assert apart < 0.4 * wrong


def test_noise_around_holes_is_removed_as_on_the_host(through_torch):
    noisy, mask = kf.add_noise(PICTURE, 15), mask_of(PICTURE.shape, 0.4)
    found = through_torch(kf.denoise, noisy, 15, mask=mask)
    on_host = kf.denoise(noisy, 15, mask=mask)
    assert abs(psnr(found, PICTURE) - psnr(on_host, PICTURE)) < 0.1


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_a_tensor_is_returned_on_its_device_and_its_known_pixels_are_kept(dtype, device):
    image = torch.tensor(PICTURE[:32, :32], device=device).to(getattr(torch, dtype))
    mask = torch.tensor(mask_of(image.shape, 0.4), device=device)
    found = kf.inpaint(image, mask, quality="fast")
    assert found.device == image.device
    assert found.dtype == (torch.float64 if dtype == "uint8" else image.dtype)
    assert torch.equal(found[~mask], image[~mask].to(found.dtype))


def test_progress_on_a_device_never_decreases_and_ends_at_one(through_torch):
    seen = []
    mask = mask_of((32, 32), 0.5)
    through_torch(kf.inpaint, PICTURE[:32, :32], mask, quality="fast", progress=seen.append)
    assert seen == sorted(seen)
    assert len(set(seen)) > 8
    assert seen[-1] == 1.0
