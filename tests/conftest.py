"""Fixtures that every test may use."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# The same tree gives the same verdict. No deadline: the first call of a kernel compiles it.
settings.register_profile("kappaform", deadline=None, derandomize=True)
settings.load_profile("kappaform")


def pytest_collection_finish() -> None:
    """Tests and modules stay: no collection of garbage need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def paper_data() -> Path:
    """Folder of the paper's images."""
    return _folder_named_by("KAPPAFORM_PAPER_DATA")


@pytest.fixture(scope="session")
def paper_facts() -> Path:
    """Folder of the paper's tables and of measurements of the public implementation."""
    return _folder_named_by("KAPPAFORM_PAPER_FACTS")


def _folder_named_by(variable: str) -> Path:
    folder = os.environ.get(variable)
    if folder is None:
        pytest.skip(f"{variable} is not set")
    return Path(folder)
