"""Every test of the command runs in a folder of its own."""

import numpy as np
import pytest

from kappaform.imaging import training


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def little_learning(monkeypatch):
    """What the command does with files does not depend on how long it learns for an image."""
    for name in ("FOR_PATCHES", "FOR_GROUPS"):
        little = getattr(training, name)._replace(n_iter=1, n_coarse_iter=1)
        monkeypatch.setattr(training, name, little)


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
