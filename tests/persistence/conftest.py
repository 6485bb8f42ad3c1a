"""A fitted transform, and the file of it."""

from copy import deepcopy

import numpy as np
import pytest

import kappaform as kf

N_FEATURES = 16


def random_walks(rng):
    return rng.standard_normal((200, N_FEATURES)).cumsum(axis=1)


@pytest.fixture
def signals(rng):
    return random_walks(rng)


@pytest.fixture(scope="session")
def learned():
    estimator = kf.ConditionedTransform(3, max_condition=2.0, init="dct", tol=1e-2)
    return estimator.fit(random_walks(np.random.default_rng(0)))


@pytest.fixture
def fitted(learned):
    """The estimator fitted to `signals`; tests may change it."""
    return deepcopy(learned)


@pytest.fixture
def saved(fitted, tmp_path):
    path = tmp_path / "transform.npz"
    kf.save(path, fitted)
    return path
