"""A fitted transform, and the file of it."""

import pytest

import kappaform as kf

N_FEATURES = 16


@pytest.fixture
def signals(rng):
    return rng.standard_normal((200, N_FEATURES)).cumsum(axis=1)


@pytest.fixture
def fitted(signals):
    return kf.ConditionedTransform(3, max_condition=2.0, init="dct", tol=1e-2).fit(signals)


@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "transform.npz"
    kf.save(path, fitted)
    return path
