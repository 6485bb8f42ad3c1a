"""Tensors are passed over as arrays are, on the device where they live."""

import importlib
import logging
import sys
import warnings

import naive
import numpy as np
import pytest
from helpers import STATISTICS, assert_same_bits, orthogonal, readings

import kappaform as kf
from kappaform.engines import NumpyEngine, engine_for, refit_of
from kappaform.linalg import scaled_inverse

torch = pytest.importorskip("torch")

DTYPES = ("float32", "float64")


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA GPU")
    return request.param


def assert_close(found, expected, tolerance):
    for field in STATISTICS:
        value = getattr(expected, field)
        atol = tolerance * np.abs(value).max()
        np.testing.assert_allclose(getattr(found, field), value, rtol=0, atol=atol, err_msg=field)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5, 64, 130, 300])
def test_statistics_are_those_of_arrays(n, dtype, device, rng):
    signals = rng.standard_normal((400, n)).astype(dtype)
    transform = rng.standard_normal((n, n))
    plain, engine = NumpyEngine(signals), engine_for(torch.tensor(signals, device=device))
    assert (engine.n_signals, engine.n_features) == signals.shape
    assert engine.dtype == dtype
    for n_nonzero in (0, 1, n // 2, n, rng.integers(0, n + 1, 400)):
        found = engine.run_pass(transform, n_nonzero)
        # Tensor cores round sums towards zero.
        single = 1e-6 if device == "cpu" else 3e-6
        tolerance = 1e-12 if dtype == "float64" else single
        assert_close(found, plain.run_pass(transform, n_nonzero), tolerance)
        assert found.n_signals == 400
        assert all(getattr(found, field).dtype == np.float64 for field in ("gram", "cross"))


def test_tensors_of_a_custom_type_are_tensors(rng):
    class Mine(torch.Tensor):
        pass

    signals = torch.tensor(rng.standard_normal((60, 5)))
    engine, plain = engine_for(signals.as_subclass(Mine)), engine_for(signals)
    assert type(engine) is type(plain)
    assert_same_bits(engine.run_pass(np.eye(5), 2), plain.run_pass(np.eye(5), 2))
    codes = engine.encode(np.eye(5), 2)
    assert type(codes) is torch.Tensor
    assert torch.equal(codes, plain.encode(np.eye(5), 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [6, 64, 70, 140])
def test_ties_are_broken_exactly_as_defined(n, dtype, device, rng):
    signals = rng.integers(-3, 4, (900, n)).astype(float)
    transform = rng.integers(-1, 2, (n, n)).astype(float)
    n_nonzero = rng.integers(0, n + 1, 900)
    engine = engine_for(torch.tensor(signals.astype(dtype), device=device))
    codes = naive.hard_threshold(signals @ transform.T, n_nonzero)
    np.testing.assert_array_equal(engine.encode(transform, n_nonzero).cpu(), codes)
    for _ in range(3):  # a warm pass meets the same ties
        found = engine.run_pass(transform, n_nonzero)
        np.testing.assert_array_equal(found.cross, codes.T @ signals)
        assert found.code_energy == (codes**2).sum()
        assert found.discarded_energy == ((signals @ transform.T - codes) ** 2).sum()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_pass_repeats_bitwise_whatever_came_before(dtype, device, rng):
    signals = torch.tensor(rng.standard_normal((3000, 20)).astype(dtype), device=device)
    signals[::7] = 0
    signals[1::7, 3:] = 0
    engine, transform = engine_for(signals), np.eye(20)
    for jump in (0, 1e-3, 1e-1, 10, 1e-6, 1e4, 1e-9):
        transform = transform + jump * rng.standard_normal((20, 20))
        for n_nonzero in (3, rng.integers(0, 21, 3000)):
            fresh = engine_for(signals).run_pass(transform, n_nonzero)
            assert_same_bits(engine.run_pass(transform, n_nonzero), fresh)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 5e-3), ("float64", 1e-3)])
def test_learning_ends_where_it_does_with_arrays(dtype, tolerance, device, rng):
    signals = rng.standard_normal((2000, 12)).cumsum(axis=1).astype(dtype)
    found = kf.learn(torch.tensor(signals, device=device), n_nonzero_coefs=3)
    expected = kf.learn(signals, n_nonzero_coefs=3)
    assert found.errors.absolute[-1] == pytest.approx(expected.errors.absolute[-1], rel=tolerance)
    assert found.condition_number <= 2 * (1 + 1e-9)


def test_errors_and_paths_are_those_of_arrays(device, rng):
    signals = rng.standard_normal((1000, 9)).cumsum(axis=1)
    tensor = torch.tensor(signals, device=device)
    transform = np.eye(9) + 0.1 * rng.standard_normal((9, 9))
    for n_nonzero in (2, rng.integers(0, 10, 1000)):
        found, expected = (kf.evaluate(y, transform, n_nonzero) for y in (tensor, signals))
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    options = {"n_nonzero_coefs": 2, "max_iter": 5}
    found = kf.condition_path(tensor, [1, 2], validation=tensor[:300], **options)
    expected = kf.condition_path(signals, [1, 2], validation=signals[:300], **options)
    for column in expected.table:
        np.testing.assert_allclose(found[column], expected[column], rtol=1e-6, err_msg=column)


@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_and_products_stay_on_the_device_without_gradient(dtype, device, rng):
    signals = rng.standard_normal((500, 12)).astype(dtype)
    transform = rng.standard_normal((12, 12))
    tensor = torch.tensor(signals, device=device, requires_grad=True)
    engine, plain = engine_for(tensor), NumpyEngine(signals)
    assert_close(engine.run_pass(transform, 3), plain.run_pass(transform, 3), 1e-6)
    for found, expected in (
        (engine.encode(transform, 3), plain.encode(transform, 3)),
        (engine.decode((transform, 0)), plain.decode((transform, 0))),
    ):
        assert found.device == tensor.device
        assert not found.requires_grad
        assert found.cpu().numpy().dtype == dtype
        np.testing.assert_allclose(found.cpu(), expected, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_short_floats_are_computed_with_in_float32(name, device, rng):
    signals = torch.tensor(rng.standard_normal((500, 12)), device=device).to(getattr(torch, name))
    transform = rng.standard_normal((12, 12))
    engine, expected = engine_for(signals), engine_for(signals.float())
    assert engine.signals.dtype == signals.dtype
    assert engine.dtype == np.float32
    assert_same_bits(engine.run_pass(transform, 3), expected.run_pass(transform, 3))
    assert torch.equal(engine.encode(transform, 3), expected.encode(transform, 3))


LAYOUTS = {
    "columns first": lambda y: y.T.contiguous().T,
    "every second row, every third column": lambda y: y.repeat_interleave(2, 0).repeat_interleave(
        3, 1
    )[::2, ::3],
    "part of wider rows": lambda y: torch.cat([y, y], 1)[:, : y.shape[1]],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("n", [10, 64, 130])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_memory_layout_gives_the_same_statistics(dtype, n, layout, device, rng):
    signals = torch.tensor(rng.standard_normal((600, n)).astype(dtype), device=device)
    transform = rng.standard_normal((n, n))
    other = layout(signals)
    assert torch.equal(other, signals)
    found, expected = (engine_for(y).run_pass(transform, 4) for y in (other, signals))
    assert_close(found, expected, 1e-12 if dtype == "float64" else 1e-6)


def test_one_row_that_is_repeated_without_memory_is_accepted(device, rng):
    row = torch.tensor(rng.standard_normal((1, 8)), device=device)
    transform = rng.standard_normal((8, 8))
    found = engine_for(row.expand(300, 8)).run_pass(transform, 2)
    assert_close(found, engine_for(row.repeat(300, 1)).run_pass(transform, 2), 1e-12)


@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [("float64", e) for e in (500, -500, 1000, -1000)] + [("float32", e) for e in (60, -60, 110)],
)
def test_extreme_signals_give_the_same_statistics_times_a_power_of_two(
    dtype, exponent, device, rng
):
    signals = rng.standard_normal((900, 20)).astype(dtype)
    transform = orthogonal(rng, 20)
    extreme = np.ldexp(signals, exponent)
    engine, plain = engine_for(torch.tensor(extreme, device=device)), NumpyEngine(extreme)
    assert engine.exponent == plain.exponent
    tolerance = 1e-12 if dtype == "float64" else 1e-6
    assert_close(engine.run_pass(transform, 3), plain.run_pass(transform, 3), tolerance)
    codes, expected = engine.encode(transform, 3).cpu().numpy(), plain.encode(transform, 3)
    np.testing.assert_array_equal(codes != 0, expected != 0)
    np.testing.assert_allclose(codes, expected, rtol=1e-12 if dtype == "float64" else 1e-4)


@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [("float32", 60), ("float32", -110), ("float64", 660), ("float64", -1000)],
)
def test_a_scaled_transform_gives_what_it_gives_for_arrays(dtype, exponent, device, rng):
    signals = rng.standard_normal((900, 20)).astype(dtype)
    transform = np.ldexp(rng.standard_normal((20, 20)), exponent)
    inverse = scaled_inverse(transform)
    engine, plain = engine_for(torch.tensor(signals, device=device)), NumpyEngine(signals)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    found, expected = (each.energies(transform, inverse, 3) for each in (engine, plain))
    np.testing.assert_allclose(found, expected, rtol=tolerance)
    codes = plain.encode(transform, 3)
    scale = np.abs(codes).max()
    np.testing.assert_allclose(
        engine.encode(transform, 3).cpu().numpy() / scale, codes / scale, atol=tolerance
    )
    back = engine_for(torch.tensor(codes, device=device)).decode(inverse).cpu().numpy()
    np.testing.assert_allclose(back, NumpyEngine(codes).decode(inverse), rtol=1e-4, atol=1e-5)


def test_nothing_is_written_to_the_signals(device, rng):
    signals = torch.tensor(rng.standard_normal((900, 20)), device=device)
    before, engine, transform = signals.clone(), engine_for(signals), rng.standard_normal((20, 20))
    engine.run_pass(transform, 3)
    engine.energies(transform, scaled_inverse(transform), 3)
    engine.encode(transform, 20)
    engine.decode(scaled_inverse(transform))
    assert torch.equal(signals, before)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_signals_that_are_not_finite_are_rejected_by_row(bad, dtype, device):
    signals = torch.ones((5000, 4), dtype=getattr(torch, dtype), device=device)
    signals[4321, 2] = bad
    text = "patches contains NaN or inf, first in row 4321: drop such rows or fill them."
    for call in readings(engine_for(signals, "patches")):
        with pytest.raises(ValueError, match=text):
            call()


REFUSED = {
    "integers": (lambda: torch.ones((3, 2), dtype=torch.int64), TypeError, "dtype torch.int64"),
    "bytes": (lambda: torch.ones((3, 2), dtype=torch.uint8), TypeError, "for instance y.float()"),
    "truth values": (lambda: torch.ones((3, 2), dtype=torch.bool), TypeError, "torch.bool"),
    "complex": (lambda: torch.ones((3, 2), dtype=torch.complex64), TypeError, "complex64"),
    "eight bits": (
        lambda: torch.ones((3, 2)).to(torch.float8_e4m3fn),
        TypeError,
        "dtype torch.float8_e4m3fn",
    ),
    "sparse": (lambda: torch.ones((3, 2)).to_sparse(), TypeError, "y is sparse: .*to_dense"),
    "meta": (lambda: torch.ones((3, 2), device="meta"), TypeError, "on the device 'meta'"),
    "one axis": (lambda: torch.ones(3), ValueError, r"shape \(3,\): it must be 2-D"),
    "three axes": (lambda: torch.ones(2, 3, 4), ValueError, r"y.reshape\(len\(y\), -1\)"),
    "no rows": (lambda: torch.ones((0, 3)), ValueError, "at least one signal"),
    "no columns": (lambda: torch.ones((3, 0)), ValueError, "at least one signal"),
}


@pytest.mark.parametrize(("make", "error", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_passed_over_is_rejected_in_a_sentence(make, error, text):
    with pytest.raises(error, match=text):
        engine_for(make(), "y")


def test_sparsities_may_be_a_tensor(rng):
    signals = torch.tensor(rng.standard_normal((50, 6)))
    wanted = rng.integers(0, 7, 50)
    found, expected = (kf.evaluate(signals, np.eye(6), s) for s in (torch.tensor(wanted), wanted))
    assert found == expected


def test_a_last_block_of_one_row_keeps_the_sparsity_of_its_row(device, monkeypatch, rng):
    module = importlib.import_module("kappaform.engines.torch")
    monkeypatch.setattr(module, "_BLOCK_BYTES", dict.fromkeys(("cpu", "cuda"), 8 * 8 * 20))
    signals, wanted = rng.standard_normal((41, 8)), np.full(41, 7)
    wanted[-1] = 2  # blocks have 20 rows, so that it is alone
    transform = np.geomspace(1, 3, 8)[:, np.newaxis] * kf.random_basis(8, 0)
    engine, plain = engine_for(torch.tensor(signals, device=device)), NumpyEngine(signals)
    for refit in (None, refit_of(transform)):
        codes = engine.encode(transform, wanted, refit).cpu().numpy()
        assert (np.count_nonzero(codes, axis=1) == wanted).all()
        np.testing.assert_allclose(codes, plain.encode(transform, wanted, refit), atol=1e-12)
    assert_close(engine.run_pass(transform, wanted), plain.run_pass(transform, wanted), 1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA GPU")
def test_matrices_and_sparsities_on_a_gpu_are_asked_for_on_the_host():
    signals = torch.ones((5, 4), device="cuda")
    with pytest.raises(TypeError, match=r"transform is a tensor .*pass transform\.detach\(\)\.cpu"):
        kf.evaluate(signals, torch.eye(4, device="cuda"), 2)
    with pytest.raises(TypeError, match=r"n_nonzero_coefs is a tensor .*\.cpu"):
        kf.learn(signals, n_nonzero_coefs=torch.ones(5, dtype=torch.int64, device="cuda"))


def test_a_matrix_with_a_gradient_is_asked_for_without():
    with pytest.raises(TypeError, match=r"transform is a tensor .*pass transform\.detach\(\)\.cpu"):
        kf.evaluate(torch.ones((5, 4)), torch.eye(4, requires_grad=True), 2)


def test_zero_signals_have_zero_statistics(device):
    for dtype in (torch.float32, torch.float64):
        engine = engine_for(torch.zeros((300, 5), dtype=dtype, device=device))
        assert engine.exponent == 0
        for field in STATISTICS:
            assert not np.any(getattr(engine.run_pass(np.eye(5), 2), field))
        assert not engine.encode(np.eye(5), 2).any()


def test_a_transform_of_zeros_keeps_nothing(device, rng):
    signals = torch.tensor(rng.standard_normal((90, 5)).astype("float32"), device=device)
    found = engine_for(signals).run_pass(np.zeros((5, 5)), 2)
    assert not found.cross.any()
    assert (found.code_energy, found.discarded_energy) == (0, 0)


@pytest.mark.parametrize("n", [64, 200])
def test_float32_signals_have_statistics_of_six_digits(n, device, rng):
    # Signals with a large mean: the worst case, where all terms of a sum have one sign.
    signals = (100 + 20 * rng.standard_normal((8_000, n))).astype(np.float32)
    transform = orthogonal(rng, n).astype(np.float32)
    engine = engine_for(torch.tensor(signals, device=device))
    found = engine.run_pass(transform, 4)
    codes = engine.encode(transform, 4).cpu().numpy().astype(float)
    cross = codes.T @ signals.astype(float)
    assert np.linalg.norm(found.cross - cross) < 1e-6 * np.linalg.norm(cross)
    assert found.code_energy == pytest.approx((codes**2).sum(), rel=1e-6)
    gram = signals.astype(float).T @ signals.astype(float)
    assert np.linalg.norm(found.gram - gram) < 1e-13 * np.linalg.norm(gram)


def test_a_pass_needs_little_memory_beyond_the_data():
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA GPU")
    for dtype, n in ((torch.float32, 64), (torch.float32, 200), (torch.float64, 64)):
        signals = torch.randn((3_000_000, n), dtype=dtype, device="cuda")
        engine = engine_for(signals)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        engine.run_pass(np.eye(n), n // 8)
        cuts = 4 * len(signals)  # bytes that the kernels keep from pass to pass
        assert torch.cuda.max_memory_allocated() - before < 2**28 + cuts


def test_without_kernels_a_gpu_is_used_through_torch_and_that_is_reported(monkeypatch, caplog):
    from kappaform.gpu import fused_kernels_run_on

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setitem(sys.modules, "triton", None)
    with caplog.at_level(logging.INFO, logger="kappaform"):
        assert not fused_kernels_run_on.__wrapped__(0)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
        assert not fused_kernels_run_on.__wrapped__(0)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    assert "need the package triton" in caplog.messages[0]
    assert "compute capability 8.0" in caplog.messages[1]


def test_on_a_gpu_that_is_too_small_for_the_kernels_torch_takes_over(rng, caplog):
    errors = pytest.importorskip("triton.runtime.errors")

    class TooLarge:
        def run(self, *_, **__):
            raise errors.OutOfResources(200_000, 100_000, "shared memory")

        encode = run

    signals = torch.tensor(rng.standard_normal((60, 7)).astype("float32"))
    expected = engine_for(signals)
    for operation in ("run_pass", "encode"):
        engine = engine_for(signals)
        engine._fused = TooLarge()
        with caplog.at_level(logging.INFO, logger="kappaform"):
            found = getattr(engine, operation)(np.eye(7), 3)
        assert "needs a larger GPU" in caplog.messages[-1]
        if operation == "encode":
            assert torch.equal(found, expected.encode(np.eye(7), 3))
        else:
            assert_same_bits(found, expected.run_pass(np.eye(7), 3))


def test_tf32_is_used_where_torch_allows_it():
    from kappaform.engines.torch import allows_tf32

    before = torch.get_float32_matmul_precision()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch is about to prefer another name
            for setting, allowed in (("highest", False), ("high", True), ("medium", True)):
                torch.set_float32_matmul_precision(setting)
                assert allows_tf32() is allowed
    finally:
        torch.set_float32_matmul_precision(before)
