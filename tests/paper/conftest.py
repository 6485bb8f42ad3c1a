"""A small set of images in the layout of the paper's."""

import shutil

import numpy as np
import pytest
from scipy.io import savemat
from skimage import data

from kappaform.cli import main

PHOTO = data.camera()
SIDE = 40


def picture(name):
    """A piece of a photograph, another for each name."""
    corner = 40 * (sum(name.encode()) % 9)
    return PHOTO[corner : corner + SIDE, 100 : 100 + SIDE].copy()


def put(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {path.stem: values})


def put_image(folder, name, sigmas=(20, 100)):
    rng = np.random.default_rng(sum(name.encode()))
    for sigma in sigmas:
        home = folder / "img" / name / f"sigma{sigma}"
        noisy = picture(name) + sigma * rng.standard_normal((SIDE, SIDE))
        put(home / "I7.mat", picture(name))
        put(home / "I1.mat", noisy.astype(np.float32))


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """Folder with two images that have noisy ones, and Man, which has none."""
    folder = tmp_path_factory.mktemp("paper") / "data"
    put_image(folder, "Barbara")
    put_image(folder, "Cameraman")
    put(folder / "img" / "Man" / "clean" / "I7.mat", picture("Man"))
    return folder


@pytest.fixture
def images(dataset, tmp_path, monkeypatch):
    """A copy of them to change, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(dataset, tmp_path / "data")


@pytest.fixture
def reproduce(images, capsys):
    """Exit code, standard output and standard error of a run on these images, in one process."""

    def run(what, *words, out="out", data=images, workers=1):
        fixed = ["--data", data, "-o", out, "--workers", workers]
        code = main(["reproduce", what, *map(str, [*fixed, *words])])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(reproduce):
    """The one line with which a run refuses its input."""

    def run(what, *words, **options):
        code, out, err = reproduce(what, *words, **options)
        assert (code, out) == (2, "")
        assert err.startswith("kappaform: error: ")
        assert err.count("\n") == 1
        return err

    return run
