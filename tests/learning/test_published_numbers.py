"""Representation errors on the paper's images, beside those of the authors' public code.

The signals are the 12288 mean-removed 8 by 8 patches of Barbara, Lena and Hill.
"""

import csv

import numpy as np
import pytest
from scipy.io import loadmat

import kappaform as kf

pytestmark = pytest.mark.paper

SETTINGS = [(s, mu) for s in (6, 8) for mu in ("2.1e-05", "2.1e-06", "2.1e-08", "1e-09")]
# Errors of the public code after 300 iterations when its spectrum search is repaired.
REPAIRED = {(6, "2.1e-05"): 208.9, (6, "2.1e-06"): 71.5, (6, "2.1e-08"): 7.12}
REPAIRED |= {(8, "2.1e-05"): 251.0, (8, "2.1e-06"): 78.6}


@pytest.fixture(scope="module")
def signals(paper_data):
    blocks = []
    for name in ("Barbara", "Lena", "Hill"):
        contents = loadmat(paper_data / "img" / name / "sigma5" / "I7.mat")
        image = next(value for key, value in contents.items() if not key.startswith("__"))
        rows, columns = (size // 8 for size in image.shape)
        patches = image.astype(np.float64).reshape(rows, 8, columns, 8).transpose(0, 2, 1, 3)
        blocks.append(patches.reshape(-1, 64))
    stacked = np.concatenate(blocks)
    return stacked - stacked.mean(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def published(paper_facts):
    with (paper_facts / "reference_representation.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {(int(r["n_nonzero"]), r["mu_over_y2"], r["method"]): r for r in rows}


def assert_same_curve(result, row):
    """Errors with the codes before the update, as the public code reports them."""
    for error, values in (
        ("err", result.errors.absolute_before),
        ("rel", result.errors.relative_before),
    ):
        # In between, the last bits decide in which iteration an error falls, so the processor does.
        for iteration, tolerance in (
            (1, 0.005),
            (10, 0.005),
            (30, 0.04),
            (100, 0.04),
            (300, 0.005),
        ):
            value = values[min(iteration, len(values) - 1)]
            assert value == pytest.approx(float(row[f"{error}_{iteration}"]), rel=tolerance)


@pytest.mark.parametrize("n_nonzero", [6, 8])
def test_orthonormal_errors_are_the_published_ones(signals, published, n_nonzero):
    result = kf.learn(signals, kf.Orthonormal(), n_nonzero_coefs=n_nonzero, max_iter=300, tol=0)
    assert_same_curve(result, published[n_nonzero, "0", "orthonormal"])


@pytest.mark.parametrize(("n_nonzero", "weight"), SETTINGS)
def test_log_det_errors_are_the_published_ones(signals, published, n_nonzero, weight):
    method = kf.LogDet(float(weight))
    result = kf.learn(signals, method, n_nonzero_coefs=n_nonzero, max_iter=300, tol=0)
    assert_same_curve(result, published[n_nonzero, weight, "logdet"])


@pytest.mark.parametrize(("n_nonzero", "weight"), SETTINGS)
def test_reference_variant_starts_as_the_public_code(signals, published, n_nonzero, weight):
    row = published[n_nonzero, weight, "conditioned"]
    kappa, norm = float(row["condition"]), float(row["norm"])
    method = kf.Conditioned(kappa, norm=norm, variant="reference")
    result = kf.learn(signals, method, n_nonzero_coefs=n_nonzero, max_iter=10, tol=0)
    # Later its inexact spectrum search leads elsewhere.
    for iteration in (1, 10):
        errors = (each[iteration] for each in result.errors[2:])
        for value, name in zip(errors, ("err", "rel"), strict=True):
            assert value == pytest.approx(float(row[f"{name}_{iteration}"]), rel=0.005)


@pytest.mark.parametrize(("n_nonzero", "weight"), SETTINGS)
def test_public_variant_goes_on_as_the_public_code(signals, published, n_nonzero, weight):
    row = published[n_nonzero, weight, "conditioned"]
    kappa, norm = float(row["condition"]), float(row["norm"])
    method = kf.Conditioned(kappa, norm=norm, variant="public")
    result = kf.learn(signals, method, n_nonzero_coefs=n_nonzero, max_iter=100, tol=0)
    # The fit is chaotic: small differences grow with the iterations.
    for iteration, tolerance in ((1, 1e-3), (10, 2e-3), (30, 0.01), (100, 0.03)):
        error = float(row[f"err_{iteration}"])
        assert result.errors.absolute_before[iteration] == pytest.approx(error, rel=tolerance)


@pytest.mark.parametrize(("n_nonzero", "weight"), SETTINGS)
def test_absolute_error_is_below_the_published_one_in_a_third_of_its_passes(
    signals, published, n_nonzero, weight
):
    row = published[n_nonzero, weight, "conditioned"]
    method = kf.Conditioned(float(row["condition"]), norm=float(row["norm"]))
    result = kf.learn(signals, method, n_nonzero_coefs=n_nonzero, max_iter=99, tol=0)
    assert result.n_passes == 100
    limit = min(float(row["err_300"]), REPAIRED.get((n_nonzero, weight), np.inf))
    assert result.errors.absolute[-1] < limit


@pytest.mark.parametrize(("n_nonzero", "weight"), SETTINGS)
def test_relative_error_is_below_the_published_one_in_a_third_of_its_passes(
    signals, published, n_nonzero, weight
):
    row = published[n_nonzero, weight, "conditioned"]
    kappa, norm = float(row["condition"]), float(row["norm"])
    method = kf.Conditioned(kappa, norm=norm, objective="relative")
    result = kf.learn(signals, method, n_nonzero_coefs=n_nonzero, max_iter=99, tol=0)
    assert result.n_passes == 100
    assert result.errors.relative[-1] < 0.8 * float(row["rel_300"])  # measured: 0.33 to 0.74


@pytest.mark.parametrize(("kappa", "limit"), [(2, 4420), (3, 3830), (5, 3095), (10, 2070)])
def test_automatic_start_reaches_low_errors_in_100_passes(signals, kappa, limit):
    method = kf.Conditioned(kappa, norm=8.0)
    result = kf.learn(signals, method, n_nonzero_coefs=6, max_iter=98, tol=0)
    assert result.n_passes <= 100
    assert result.errors.absolute[-1] <= limit
