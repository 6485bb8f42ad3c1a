"""The kernels of groups compute what operations of torch do.

They run on a GPU where there is one, else in Triton's interpreter.
"""

import os

import naive
import numpy as np
import pytest
from group_cases import CASES, picture, some_covariance

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when kernels are decorated
pytest.importorskip("triton")

from kappaform.imaging.cleaning import torch_groups, triton, triton_groups  # noqa: E402
from kappaform.imaging.cleaning.torch_groups import TensorGroups  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SOME = ["plane", "volume", "flat patches of a movie", "only the patch itself"]


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """They are used on the CPU as well."""
    monkeypatch.setattr(torch_groups, "_adder_of_groups", lambda *_: triton_groups.add_groups)


def groups_of(shape, search, rng):
    """Groups with their places, and a noisy, a partially denoised and a guessed image."""
    clean, noisy, guide = picture(shape, rng, np.float32)
    images = noisy, (clean + 0.6 * (noisy - clean)).astype(np.float32), guide
    tensors = [torch.tensor(np.ascontiguousarray(image), device=DEVICE) for image in images]
    found = TensorGroups(tensors[2], search)
    found.find(tensors[2])
    return found, tensors


def places_of(found):
    grid = found.layout.grid
    corners = np.stack(grid.corners(np.arange(grid.n_patches)), axis=1)
    places = corners[:, np.newaxis] + found.layout.shifts[found.members.cpu().numpy()]
    return [[tuple(place) for place in members] for members in places.tolist()]


@pytest.mark.parametrize("is_white", [True, False])
@pytest.mark.parametrize("case", SOME)
def test_a_round_is_that_of_the_rule(case, is_white, rng, monkeypatch):
    shape, search = CASES[case]
    found, tensors = groups_of(shape, search, rng)
    n = len(found.offsets)
    monkeypatch.setattr(triton_groups, "_MATRIX_ENTRIES", 11 * n**2)  # several parts
    covariance = None if is_white else some_covariance(n, rng)
    results = found.denoised(*tensors, covariance, 0.3)
    images = (tensor.cpu().numpy().astype(float) for tensor in tensors)
    expected = naive.round_of_groups(*images, places_of(found), search.patch_shape, 0.3, covariance)
    for one, other in zip(results, expected, strict=True):
        assert one.dtype == torch.float32
        np.testing.assert_allclose(one.cpu(), other, rtol=0, atol=2e-4)


@pytest.mark.parametrize("value", [1e4, 1e6])
def test_groups_whose_values_hide_the_noise_count_as_little_as_in_operations_of_torch(value, rng):
    found, tensors = groups_of((1, 20, 21), CASES["plane"][1], rng)
    for tensor in tensors:
        tensor[0, 10, 10] = value
    results = found.denoised(*tensors, None, 0.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_groups, "_adder_of_groups", lambda *_: torch_groups.add_groups_by_torch)
        expected = found.denoised(*tensors, None, 0.3)
    far = torch.ones(tensors[0].shape, dtype=torch.bool)
    far[0, 7:14, 7:14] = False  # patches with the value, of four pixels
    for one, other in zip(results, expected, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one.cpu()[far], other.cpu()[far], rtol=0, atol=2e-4)


def test_flat_groups_are_their_means(rng):
    found, (noisy, partial, guide) = groups_of((1, 17, 22), CASES["plane"][1], rng)
    flat = 3 + 0.02 * guide  # less power than the noise, but some
    estimate, rest = found.denoised(noisy, partial, flat, None, 0.0)
    images = (tensor.cpu().numpy().astype(float) for tensor in (noisy, partial, flat))
    expected = naive.round_of_groups(*images, places_of(found), (1, 4, 4), 0.0, None)
    for one, other in zip((estimate, rest), expected, strict=True):
        np.testing.assert_allclose(one.cpu(), other, rtol=0, atol=2e-4)


def test_the_same_tensors_give_the_same_bits(rng):
    found, tensors = groups_of((1, 17, 22), CASES["plane"][1], rng)
    for one, other in zip(*(found.denoised(*tensors, None, 0.3) for _ in range(2)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("shape", "sides", "radius"),
    [((1, 19, 23), (1, 4, 4), (0, 12, 13)), ((5, 7, 9), (2, 3, 2), (2, 3, 4))],
)
def test_distances_are_those_of_the_definition(shape, sides, radius, rng):
    image = rng.normal(size=shape).astype(np.float32)
    last = np.subtract(shape, sides)
    corners = rng.integers(0, last + 1, size=(13, 3), dtype=np.int32)
    corners[:2] = np.zeros(3), last  # most shifts from these lead outside
    around = [np.arange(-r, r + 1) for r in radius]
    shifts = np.stack(np.meshgrid(*around, indexing="ij"), -1).reshape(-1, 3).astype(np.int32)

    def patch(corner):
        return image[tuple(slice(c, c + side) for c, side in zip(corner, sides, strict=True))]

    expected = np.full((len(corners), len(shifts)), np.inf)
    for i, corner in enumerate(corners):
        for j, there in enumerate(corner + shifts):
            if (there >= 0).all() and (there <= last).all():
                expected[i, j] = ((patch(there) - patch(corner)) ** 2).sum(dtype=float)
    tensors = (torch.tensor(a, device=DEVICE) for a in (image, corners, shifts))
    found = triton.squared_distances(*tensors, sides)
    np.testing.assert_allclose(found.cpu(), expected, rtol=1e-5)
