"""A small set of images in the layout of the paper's, and runs on them."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.io import savemat
from skimage import data

from kappaform.cli import main
from kappaform.paper import report, table

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
def no_pictures(monkeypatch):
    """Pictures are not drawn: they take longer than all the rest."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
    for name in ("draw_table", "_draw_curves", "_draw_paths"):
        monkeypatch.setattr(report, name, lambda *_: Figure())


@pytest.fixture
def fast(monkeypatch, request):
    """A denoiser that costs nothing, where what it does is not the question; and no images.

    Its calls are kept: the method and the first two draws of training patches.
    """
    request.getfixturevalue("no_pictures")
    calls = []

    def blurred(image, _, method, patch_shape, training, **__):
        calls.append((method, np.array([next(training), next(training)])))
        weight = len(method) * patch_shape[0] / 1000
        cleaned = (1 - weight) * image + weight * image.mean()
        return cleaned, None, [SimpleNamespace(condition_number=1.0 + weight)]

    monkeypatch.setattr(table, "published_denoise", blurred)
    return calls


@pytest.fixture
def reproduce(images, capsys):
    """Exit code, standard output and standard error of a run on these images, in one process."""

    def run(what, *words, out="out", data=images, workers=1):
        fixed = ["--data", data, "-o", out, "--workers", workers]
        code = main(["reproduce", what, *map(str, [*fixed, *words])])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def rejected(reproduce):
    """The one line with which a run rejects its input."""

    def run(what, *words, **options):
        code, out, err = reproduce(what, *words, **options)
        assert (code, out) == (2, "")
        assert err.startswith("kappaform: error: ")
        assert err.count("\n") == 1
        return err

    return run
