"""Signals that learning must cope with."""

import numpy as np
import pytest
from skimage import data


def patches(image, side=8):
    rows, columns = (size // side for size in image.shape)
    blocks = image[: rows * side, : columns * side].reshape(rows, side, columns, side)
    flat = blocks.transpose(0, 2, 1, 3).reshape(-1, side * side).astype(np.float64)
    return flat - flat.mean(axis=1, keepdims=True)


@pytest.fixture(scope="session")
def photo_patches():
    """4096 mean-removed 8 by 8 patches of a photograph: rank 63."""
    return patches(data.camera())


@pytest.fixture(scope="session")
def small_patches():
    """4096 patches of 5 by 5 pixels from all over a photograph, in its order: rank 24."""
    windows = patches(data.camera(), 5)
    return windows[np.linspace(0, len(windows) - 1, 4096).astype(int)]


@pytest.fixture(scope="session")
def few_patches():
    """500 patches of 4 by 4 pixels, for what depends neither on their number nor on their size."""
    return patches(data.camera(), 4)[::32][:500]


def make_signals(kind):
    rng = np.random.default_rng(1)
    if kind == "patches":
        return patches(data.camera(), 3)[::20]
    if kind == "gaussian":
        return rng.standard_normal((300, 9))
    if kind == "correlated":
        return rng.standard_normal((300, 9)) @ np.diag(10.0 ** -np.arange(9)) @ rng.random((9, 9))
    if kind == "rank one":
        return np.outer(rng.standard_normal(50), rng.standard_normal(9))
    if kind == "few":
        return rng.standard_normal((4, 9))
    if kind == "one":
        return rng.standard_normal((1, 9))
    if kind == "integers":  # many ties and zeros
        return rng.integers(-1, 2, (200, 9)).astype(np.float64)
    if kind == "constant":
        return np.full((30, 9), 3.0)
    assert kind == "zero"
    return np.zeros((30, 9))


KINDS = (
    "patches",
    "gaussian",
    "correlated",
    "rank one",
    "few",
    "one",
    "integers",
    "constant",
    "zero",
)


@pytest.fixture(params=KINDS)
def signals(request):
    return make_signals(request.param)
