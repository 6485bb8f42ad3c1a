"""The fused kernels select and sum exactly as defined.

They run on a GPU where there is one, else in Triton's interpreter.
"""

import os

import naive
import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is imported
pytest.importorskip("triton")

from kappaform.engines.triton_pass import FusedPass, can_pass_over  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _fast_interpreter(rows_at_once):
    """It reduces all rows at a time."""


def fused(signals):
    return FusedPass(torch.tensor(signals, device=DEVICE), float(np.abs(signals).max()))


def run(engine, transform, n_nonzero, exact=True):
    """Sums and codes of a pass."""
    wanted = torch.tensor(np.atleast_1d(n_nonzero).astype(np.int32), device=DEVICE)
    sums = engine.run(transform, wanted, exact)
    return sums.cross, *sums.energies, engine.encode(transform, wanted, exact).cpu().numpy()


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def assert_defined(found, signals, transform, n_nonzero, tolerance=2e-6):
    cross, kept, dropped, codes = found
    coefs = signals.astype(float) @ transform.astype(float).T
    expected = naive.hard_threshold(coefs, n_nonzero)
    np.testing.assert_allclose(codes, expected, rtol=0, atol=tolerance * np.abs(coefs).max())
    np.testing.assert_array_equal(codes != 0, expected != 0)
    sums = expected.T @ signals
    np.testing.assert_allclose(cross, sums, rtol=0, atol=tolerance * np.abs(sums).max())
    energy = (coefs**2).sum()
    assert kept == pytest.approx((expected**2).sum(), abs=tolerance * energy)
    assert dropped == pytest.approx(((coefs - expected) ** 2).sum(), abs=tolerance * energy)


@pytest.mark.parametrize("n", [1, 5, 64, 121, 144])
def test_sums_and_codes_are_as_defined(n, rng):
    signals, transform = normal(rng, 90, n), normal(rng, n, n)
    for n_nonzero in (0, n // 3, n, rng.integers(0, n + 1, 90)):
        assert_defined(run(fused(signals), transform, n_nonzero), signals, transform, n_nonzero)


@pytest.mark.parametrize("n", [6, 64, 144])
def test_ties_keep_the_first(n, rng):
    signals = rng.integers(-3, 4, (90, n)).astype(np.float32)
    transform = rng.integers(-1, 2, (n, n)).astype(np.float32)
    engine = fused(signals)
    for n_nonzero in (n // 4, rng.integers(0, n + 1, 90)):
        cross, kept, dropped, codes = run(engine, transform, n_nonzero)
        expected = naive.hard_threshold(signals @ transform.T, n_nonzero)
        np.testing.assert_array_equal(codes, expected)
        np.testing.assert_array_equal(cross, expected.T @ signals)
        assert kept == (expected**2).sum()
        assert dropped == ((signals @ transform.T - expected) ** 2).sum()


@pytest.mark.parametrize("equal", [3e-5, 7e4])
def test_rows_of_equal_entries_keep_the_first(equal):
    signals = np.full((70, 20), equal, np.float32)
    signals[1::2] *= np.float32(-1)
    for n_nonzero in (0, 1, 13, 20):
        _, _, _, codes = run(fused(signals), np.eye(20, dtype=np.float32), n_nonzero)
        np.testing.assert_array_equal(codes != 0, np.arange(20) < np.full((70, 1), n_nonzero))
        np.testing.assert_allclose(codes, np.where(codes != 0, signals, 0), rtol=1e-6)


@pytest.mark.parametrize("n", [5, 64, 144])
def test_what_earlier_passes_left_never_changes_a_bit(n, rng):
    signals, transform = normal(rng, 70, n), np.eye(n, dtype=np.float32)
    signals[::7] = 0
    signals[1::7, n // 2 :] = 0
    warm = fused(signals)
    for jump, n_nonzero in ((0, 2), (1e-3, 2), (0.3, n), (1e3, 0), (1e-9, 2)):
        transform = transform + np.float32(jump) * normal(rng, n, n)
        found, expected = run(warm, transform, n_nonzero), run(fused(signals), transform, n_nonzero)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_zeros_are_never_counted_as_kept(rng):
    signals = normal(rng, 100, 12)
    signals[:50] = 0
    signals[50:, 4:] = 0
    cross, kept, dropped, codes = run(fused(signals), np.eye(12, dtype=np.float32), 7)
    np.testing.assert_allclose(codes, signals, rtol=1e-6)
    np.testing.assert_allclose(cross, signals.T @ signals, rtol=0, atol=1e-4)
    assert kept == pytest.approx((signals.astype(float) ** 2).sum(), rel=1e-6)
    assert dropped == 0


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("weight", [1e-6, 1.0, 1e6])
def test_no_size_of_signals_or_transform_leaves_the_range_of_halves(size, weight, rng):
    signals = (size * normal(rng, 80, 9)).astype(np.float32)
    transform = (weight * normal(rng, 9, 9)).astype(np.float32)
    assert_defined(run(fused(signals), transform, 3), signals, transform, 3)


def test_rows_far_below_the_peak_keep_their_digits(rng):
    sizes = np.float32(10) ** -np.arange(6, dtype=np.float32)
    signals = normal(rng, 60, 16) * np.repeat(sizes, 10)[:, np.newaxis]
    transform = np.linalg.qr(normal(rng, 16, 16))[0]
    _, _, _, codes = run(fused(signals), transform, 16)
    errors = np.linalg.norm(codes - signals.astype(float) @ transform.T, axis=1)
    assert (errors < 1e-5 * np.linalg.norm(signals, axis=1)).all()


@pytest.mark.parametrize("n", [20, 144])
def test_inexact_products_have_the_precision_of_tf32(n, rng):
    signals, transform = normal(rng, 130, n), normal(rng, n, n)
    *sums, codes = run(fused(signals), transform, n // 5, exact=False)
    coefs = signals @ transform.T
    np.testing.assert_array_equal(np.count_nonzero(codes, axis=1), n // 5)
    found = np.where(codes != 0, coefs, 0)
    assert np.linalg.norm(codes - found) < 1e-3 * np.linalg.norm(found)
    cross = codes.astype(float).T @ signals
    assert np.linalg.norm(sums[0] - cross) < 1e-3 * np.linalg.norm(cross)


@pytest.mark.parametrize("n_rows", [1, 64, 65, 300])
@pytest.mark.parametrize("n", [10, 130])
def test_any_number_of_rows_is_cut_without_loss(n_rows, n, rng):
    signals, transform = normal(rng, n_rows, n), normal(rng, n, n)
    assert_defined(run(fused(signals), transform, 4), signals, transform, 4)


def test_what_does_not_fit_at_once_is_summed_in_parts(rng, monkeypatch):
    from kappaform.engines import triton_pass

    monkeypatch.setattr(triton_pass, "_SUM_BYTES", 1)
    monkeypatch.setattr(triton_pass, "_SUM_BYTES_BESIDE_CODES", 3 * 8 * 192**2)
    monkeypatch.setattr(triton_pass, "_CODE_BYTES", 4 * 130 * 128)
    shape = triton_pass._CROSS_SHAPES[64]._replace(most_rows=128)
    monkeypatch.setitem(triton_pass._CROSS_SHAPES, 64, shape)
    for n, n_rows in ((10, 300), (130, 500)):
        signals, transform = normal(rng, n_rows, n), normal(rng, n, n)
        wanted = rng.integers(0, n + 1, n_rows)
        assert_defined(run(fused(signals), transform, wanted), signals, transform, wanted)


def test_columns_may_be_contiguous_and_rows_apart(rng):
    signals, transform = normal(rng, 100, 20), normal(rng, 20, 20)
    wide = torch.tensor(signals, device=DEVICE)
    peak = float(np.abs(signals).max())
    for view in (wide.T.contiguous().T, torch.cat([wide, wide], 1)[:, :20]):
        assert_defined(run(FusedPass(view, peak), transform, 5), signals, transform, 5)


def test_only_what_offsets_reach_is_passed_over():
    row = torch.ones(1, 256)
    assert can_pass_over(row.expand(10**9, 256))
    assert not can_pass_over(torch.ones(1, 257))
    assert can_pass_over(torch.empty(10**6, 256, device="meta").T.contiguous().T)
    assert not can_pass_over(torch.empty(10**7, 256, device="meta").T.contiguous().T)
    assert not can_pass_over(torch.empty(10, 10**6, device="meta")[:, :50])


def test_where_stages_do_not_fit_one_does():
    from triton.runtime.errors import OutOfResources

    from kappaform.engines.triton_pass import Shape, _launch

    tried = []

    def launched(*_, num_stages, **__):
        tried.append(num_stages)
        if num_stages > least:
            raise OutOfResources(200_000, 100_000, "shared memory")

    least = 1
    _launch({(4,): launched}, (4,), Shape(64, 64, 4, 3), torch.ones(1, device=DEVICE))
    assert tried == [3, 1]
    least = 0
    with pytest.raises(OutOfResources):
        _launch({(4,): launched}, (4,), Shape(64, 64, 4, 1), torch.ones(1, device=DEVICE))
