"""Fixtures that every test may use."""

import gc
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# The same tree gives the same verdict. No deadline: the first call of a kernel compiles it.
settings.register_profile("kappaform", deadline=None, derandomize=True)
settings.load_profile("kappaform")

# Tests and modules stay. Garbage is not looked for among them while tests are collected, which
# would take a quarter of the time, nor later.
gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def signals_as_in_a_terminal():
    """Tests started in the background inherit that SIGINT is ignored: a person's shell has not."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    if hasattr(signal, "SIGHUP"):
        handlers[signal.SIGHUP] = signal.SIG_DFL
    saved = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in saved.items():
        signal.signal(number, handler)


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
