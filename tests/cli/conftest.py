"""Every test of the command runs in a folder of its own."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def little_learning(monkeypatch):
    """What the command does with files does not depend on how long it learns for an image."""
    monkeypatch.setattr("kappaform.imaging.training.N_ITER", 1)


@pytest.fixture
def files(folder):
    """Bytes of all files below the current folder, to see which of them changed."""
    return lambda: {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture
def signals(folder, rng):
    values = rng.standard_normal((200, 16)).cumsum(axis=1)
    np.save(folder / "signals.npy", values)
    return values
