"""Tensors are denoised as arrays are, on the device where they live."""

import sys

import numpy as np
import pytest
from helpers import psnr
from skimage import data

import kappaform as kf
from kappaform.imaging.cleaning import tiles
from kappaform.imaging.cleaning.patchwise import rule_of
from kappaform.imaging.cleaning.stages import two_sweeps
from kappaform.imaging.cleaning.tiles import HostBackend
from kappaform.imaging.patches import grid_of, patches_at
from kappaform.linalg import dct_basis

torch = pytest.importorskip("torch")

from kappaform.imaging import tensors  # noqa: E402
from kappaform.imaging.cleaning import torch as clean_torch  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="module")
def clean():
    return data.camera()[100:190, 150:230].astype(np.float64)


@pytest.fixture(scope="module")
def noisy(clean):
    return kf.add_noise(clean, 20.0, rng=1)


@pytest.fixture(scope="module")
def details(noisy):
    return kf.denoise_with_details(noisy, 20.0)


@pytest.fixture(params=DEVICES)
def device(request):
    return torch.device(request.param)


def perturbed_basis(patch_shape, rng):
    basis = dct_basis(patch_shape)
    return basis + 0.02 * rng.standard_normal(basis.shape) / np.sqrt(len(basis))


@pytest.fixture
def through_torch(monkeypatch, device):
    """Denoise by the sweeps of torch, on the CPU too."""
    module = sys.modules["kappaform.imaging.denoise"]

    def denoised(image, sigma, **options):
        with monkeypatch.context() as patch:
            backend = lambda parts, _: clean_torch.TorchBackend(parts, device)  # noqa: E731
            patch.setattr(module, "backend_of", backend)
            return kf.denoise_with_details(image, sigma, **options)

    return denoised


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-12)])
@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (-1.0, 1.5)])
@pytest.mark.parametrize(
    ("shape", "patch_shape"),
    [
        ((60, 45), (8, 8)),
        ((40, 50), (5, 7)),
        ((9, 8), (9, 8)),
        ((1, 40), (1, 6)),
        ((9, 14, 12), (4, 4, 4)),
        ((3, 5, 9), (3, 2, 4)),
    ],
)
def test_a_sweep_over_a_tensor_is_that_over_an_array(
    shape, patch_shape, bounds, dtype, tolerance, device, rng
):
    image = (3 * np.cumsum(rng.standard_normal(shape), axis=-1) / shape[-1]).astype(dtype)
    image += rng.standard_normal(shape).astype(dtype)
    rule = rule_of(perturbed_basis(patch_shape, rng))
    half = image[tuple(slice(max(1, size // 2)) for size in shape)]
    expected, numbers = two_sweeps(image, patch_shape, rule, bounds, tiles.HostBackend, half)
    tensor = torch.tensor(image, device=device)
    other = torch.tensor(half, device=device)
    found, counts = two_sweeps(tensor, patch_shape, rule, bounds, clean_torch.TorchBackend, other)
    assert found.device.type == device.type
    assert found.cpu().numpy().dtype == dtype
    np.testing.assert_allclose(found.cpu(), expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(counts.cpu(), numbers, rtol=1e-5)


def test_slabs_do_not_change_the_result(noisy, rng, monkeypatch):
    image, rule = torch.tensor(noisy / 20), rule_of(perturbed_basis((8, 8), rng))
    whole, counts = two_sweeps(image, (8, 8), rule, (-np.inf, np.inf), clean_torch.TorchBackend)
    monkeypatch.setattr(clean_torch, "_SLAB_ENTRIES", 1)
    parts, numbers = two_sweeps(image, (8, 8), rule, (-np.inf, np.inf), clean_torch.TorchBackend)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(numbers, counts)


def test_progress_moves_over_the_slabs_of_a_tensor(noisy, through_torch, monkeypatch):
    monkeypatch.setattr(clean_torch, "_SLAB_ENTRIES", 1)  # a row of positions at a time
    fractions = []
    options = {"transform": dct_basis((10, 10)), "quality": "fast"}
    through_torch(
        noisy[:, :39], 20.0, **options, progress=fractions.append
    )  # too small to be halved
    assert len(set(fractions)) == 2 * (len(noisy) - 10 + 1)
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1


def test_patches_of_a_tensor_are_those_of_an_array(device, rng):
    for shape, patch_shape in (((20, 30), (4, 5)), ((6, 7, 8), (2, 3, 4)), ((5, 5), (5, 5))):
        image = rng.standard_normal(shape)
        grid = grid_of(shape, patch_shape)
        numbers = rng.integers(0, grid.n_patches, 40)
        backend = clean_torch.TorchBackend([np.zeros(shape), image], device)
        (found,) = backend.patches(1, [(grid, numbers)])
        expected = patches_at(image, grid, numbers)
        np.testing.assert_allclose(found.cpu(), expected, rtol=0, atol=1e-14)
        ready = [
            each.training_patches(c, [(grid, numbers)], patch_shape, 3.0)
            for each, c in ((backend, 1), (HostBackend([image]), 0))
        ]
        (ours,), (theirs,) = ready
        np.testing.assert_allclose(ours.cpu(), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("quality", ["fast", "balanced"])
def test_with_the_same_transform_torch_differs_by_rounding(
    noisy, details, quality, through_torch, monkeypatch
):
    monkeypatch.setattr(tiles, "_PLANE", (40, 10))
    options = {"transform": details.transform, "quality": quality}
    image = noisy[:60, :60]
    expected = kf.denoise_with_details(image, 20.0, **options)
    found = through_torch(image, 20.0, **options)
    np.testing.assert_array_equal(found.transform, details.transform)
    np.testing.assert_allclose(found.image, expected.image, rtol=0, atol=0.1)
    assert np.abs(found.sparsity_map - expected.sparsity_map).mean() < 1e-3


def test_with_learning_torch_is_as_good(clean, noisy, details, through_torch):
    found = through_torch(noisy, 20.0)
    assert len(found.history) == len(details.history)
    assert found.condition_number <= 1.1 * (1 + 1e-9)
    # Learning magnifies rounding: it may end in another transform, which is as good.
    assert psnr(clean, found.image) == pytest.approx(psnr(clean, details.image), abs=0.02)


@pytest.mark.parametrize("value_range", [None, (0, 255)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_tensor_comes_back_on_its_device_and_of_its_dtype(noisy, dtype, value_range, device):
    given = torch.tensor(noisy, device=device).to(getattr(torch, dtype))
    transform = dct_basis((6, 6))
    # Halves are multiples of 1/8: with a deviation of 20, some sums are as large as thresholds.
    found = kf.denoise(given, 19.7, transform=transform, value_range=value_range)
    assert (found.device, found.dtype, found.shape) == (given.device, given.dtype, given.shape)
    host = given.cpu().float().numpy() if dtype == "bfloat16" else given.cpu().numpy()
    expected = kf.denoise(host, 19.7, transform=transform, value_range=value_range)
    spacing = 1.0 if dtype == "bfloat16" else 0.13 if dtype == "float16" else 2e-3
    np.testing.assert_allclose(found.cpu().double(), expected, rtol=0, atol=spacing)


def test_integers_come_back_as_floats_of_their_range(noisy, device):
    given = torch.tensor(np.clip(noisy, 0, 255).astype(np.uint8), device=device)
    # With another deviation, sums of integers would be as large as thresholds: rounding chose.
    found = kf.denoise(given, 19.7, transform=dct_basis((6, 6)))
    assert found.dtype == torch.float64
    expected = kf.denoise(given.cpu().numpy(), 19.7, transform=dct_basis((6, 6)))
    np.testing.assert_allclose(found.cpu(), expected, rtol=0, atol=2e-3)


def test_details_are_those_of_an_array(noisy, details, device):
    given = torch.tensor(noisy, device=device, requires_grad=True)
    found = kf.denoise_with_details(given, torch.tensor(20.0, device=device), transform=None)
    assert not found.image.requires_grad
    assert found.sigma == 20.0
    assert found.patch_shape == details.patch_shape
    assert isinstance(found.sparsity_map, np.ndarray)
    assert isinstance(found.transform, np.ndarray)
    assert found.condition_number <= 1.1 * (1 + 1e-9)
    assert np.abs(found.image.cpu().numpy() - details.image).mean() < 0.3


def test_colours_stacks_and_volumes_keep_their_axes(rng, device):
    image = kf.add_noise(data.astronaut()[:40, 150:182].astype(np.float64), 25.0, rng)
    options = {"patch_size": 5, "max_condition": 1.5}
    for axes in ({"channel_axis": -1}, {"stack_axis": -1}):
        expected = kf.denoise(image, 25.0, **options, **axes)
        found = kf.denoise(torch.tensor(image, device=device), 25.0, **options, **axes)
        assert np.abs(found.cpu().numpy() - expected).mean() < 0.3
    first = torch.tensor(np.moveaxis(image, -1, 0).copy(), device=device)
    moved = kf.denoise(first, 25.0, channel_axis=0, **options)
    assert moved.shape == first.shape
    together = kf.denoise(image, 25.0, channel_axis=-1, **options)
    assert np.abs(np.moveaxis(moved.cpu().numpy(), 0, -1) - together).mean() < 0.3
    volume = kf.denoise(torch.tensor(image[:12, :12, :], device=device).repeat(1, 1, 3), 25.0)
    assert volume.shape == (12, 12, 9)


def test_a_constant_tensor_and_no_noise_return_the_image(clean, device):
    flat = torch.full((20, 30), 3.5, device=device)
    assert torch.equal(kf.denoise(flat, 1.0), flat)
    given = torch.tensor(clean, device=device)
    assert torch.equal(kf.denoise(given, 0.0), given)


# Groups with such a value in them solve equations that round a thousand times more than patches do.
@pytest.mark.parametrize(("quality", "error"), [("fast", 1e-6), ("balanced", 1e-3)])
def test_large_values_are_denoised_in_double_precision(noisy, device, quality, error):
    offset = torch.tensor(noisy, device=device)
    offset[0, 0] = 1e7
    options = {"transform": dct_basis((6, 6)), "quality": quality}
    expected = kf.denoise(offset.cpu().numpy(), 20.0, **options)
    found = kf.denoise(offset, 20.0, **options)
    np.testing.assert_allclose(found.cpu(), expected, rtol=0, atol=error)


def test_the_settings_of_the_paper_are_applied_on_the_host(noisy, device):
    given = torch.tensor(noisy, device=device)
    found = kf.denoise(given, 20.0, preset="paper", method="orthonormal")
    assert found.device == given.device
    expected = kf.denoise(noisy, 20.0, preset="paper", method="orthonormal")
    np.testing.assert_array_equal(found.cpu(), expected)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: torch.ones((9, 9)).to_sparse(), TypeError, "image is sparse"),
        (lambda: torch.ones((9, 9), device="meta"), TypeError, "on the device 'meta'"),
        (lambda: torch.ones((9, 9), dtype=torch.complex64), TypeError, "real numbers"),
        (lambda: torch.full((9, 9), torch.nan), ValueError, "NaN or inf"),
        (lambda: torch.ones(9), ValueError, "dimensions of space"),
    ],
)
def test_what_is_no_image_is_rejected_in_a_sentence(make, error, text):
    with pytest.raises(error, match=text):
        kf.denoise(make(), 1.0)


def test_a_gpu_that_is_not_there_is_rejected(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"'cuda': torch finds no CUDA GPU here; choose 'cpu'\."):
        tensors.device_named("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert tensors.device_named("cuda:1").index == 1
    with pytest.raises(ValueError, match=r"'cuda:2': torch finds only 2 GPU\(s\)"):
        tensors.device_named("cuda:2")
    assert tensors.device_named("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["nonsense", "mps", "meta", "cuda:", "cuda:-1", ""])
@pytest.mark.parametrize("has_torch", [True, False])
def test_a_device_that_is_unknown_is_rejected_whether_torch_is_there_or_not(
    name, has_torch, monkeypatch
):
    if not has_torch:
        monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match=f"device '{name}' is unknown: choose 'cpu', 'cuda'"):
        tensors.device_named(name)


def test_without_torch_a_device_is_rejected_with_the_line_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'kappaform\[torch\]'"):
        tensors.device_named("cuda")


def test_the_command_takes_a_device(noisy, tmp_path, device):
    from kappaform.cli import main

    np.save(tmp_path / "noisy.npy", noisy)
    source = str(tmp_path / "noisy.npy")
    options = ["--sigma", "20", "--patch-size", "5", "-o"]
    assert main(["denoise", source, *options, str(tmp_path / "plain.npy")]) == 0
    chosen = [str(tmp_path / "chosen.npy"), "--device", device.type]
    assert main(["denoise", source, *options, *chosen]) == 0
    plain, other = (np.load(tmp_path / f"{name}.npy") for name in ("plain", "chosen"))
    assert other.dtype == plain.dtype
    assert np.abs(other - plain).mean() < 0.3


def test_the_command_says_in_a_line_that_there_is_no_gpu(noisy, tmp_path, capsys, monkeypatch):
    from kappaform.cli import main

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    np.save(tmp_path / "noisy.npy", noisy)
    assert main(["denoise", str(tmp_path / "noisy.npy"), "--sigma", "20", "--device", "cuda"]) == 2
    assert "torch finds no CUDA GPU here" in capsys.readouterr().err


@pytest.mark.parametrize("quality", ["fast", "balanced"])
def test_the_pixels_of_an_array_go_to_the_device_and_back_once(
    noisy, quality, through_torch, monkeypatch
):
    sent, fetched = [], []
    to_device, to_host = tensors.to_device, tensors.to_host
    monkeypatch.setattr(
        tensors, "to_device", lambda a, d: (sent.append(a.size), to_device(a, d))[1]
    )
    monkeypatch.setattr(tensors, "to_host", lambda a: (fetched.append(a.numel()), to_host(a))[1])
    through_torch(noisy[:50, :50], 20.0, patch_size=5, quality=quality)
    assert sent == [2500]
    assert fetched == [2500, 2500]  # the image, and the map of sparsities


def test_an_array_is_denoised_on_the_device_that_is_named(noisy, monkeypatch):
    module, chosen = sys.modules["kappaform.imaging.denoise"], []
    backend_of = module.backend_of
    monkeypatch.setattr(
        module,
        "backend_of",
        lambda parts, device: (chosen.append(device), backend_of(parts, None))[1],
    )
    image, transform = noisy[:30, :30], dct_basis((5, 5))
    for device in (torch.device("cuda:1"), torch.device("cpu"), None):
        found = module.denoise_on(device, image, 20.0, transform=transform)
        assert isinstance(found.image, np.ndarray)
    assert chosen == [torch.device("cuda:1"), None, None]


KINDS = {
    "white": kf.White(20.0),
    "shot": kf.Shot(8.5, 3.0),
    "varying": kf.Varying([0.0, 128.0, 255.0], [4.0, 16.0, 30.0]),
    "correlated": kf.Correlated(autocovariance=225 * np.array([[0.2, 1.0, 0.2]])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_noise_is_removed_from_a_tensor(clean, kind, through_torch, device):
    noise = KINDS[kind]
    noisy = kf.add_noise(clean[:50, :50], noise=noise, rng=1)
    options = {"noise": noise, "transform": dct_basis((6, 6))}
    expected = kf.denoise_with_details(noisy, **options)
    on_device = through_torch(noisy, None, **options)
    # Rounding chooses between members that are as near as each other.
    np.testing.assert_allclose(on_device.image, expected.image, rtol=0, atol=0.1)
    found = kf.denoise_with_details(torch.tensor(noisy, device=device), **options)
    assert found.image.device.type == device.type
    assert found.noise is noise
    np.testing.assert_allclose(found.image.cpu(), expected.image, rtol=0, atol=0.1)


def test_images_of_a_tensor_may_share_one_transform(clean, noisy, through_torch):
    stack = np.stack([noisy, kf.add_noise(clean, 10.0, rng=2)])
    options = {"stack_axis": 0, "share": True, "patch_size": 5, "quality": "fast"}
    expected = kf.denoise_with_details(stack, [20.0, 10.0], **options)
    found = through_torch(stack, [20.0, 10.0], **options)
    assert all(each is found.transform for each in found.transforms)
    for one, other in zip(found.image, expected.image, strict=True):
        assert psnr(clean, one) == pytest.approx(psnr(clean, other), abs=0.02)
