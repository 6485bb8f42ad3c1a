"""The command in this process or in its own, and images for it."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import kappaform as kf
from kappaform.cli import main
from kappaform.image_files import Picture, as_stored, check_target, write_image

PICTURE = np.kron(np.tri(6, dtype=np.uint8) * 120 + 60, np.ones((6, 6), np.uint8))


def noisy(seed=0, dtype=np.uint8, shape=PICTURE.shape):
    picture = np.resize(PICTURE, shape) if shape != PICTURE.shape else PICTURE
    scale = 257 if dtype == np.uint16 else 1
    return as_stored(kf.add_noise(picture, 15, rng=seed) * scale, dtype)


def put(path, values, has_channels=False, has_alpha=False):
    picture = Picture(values, has_channels, has_alpha=has_alpha)
    check_target(Path(path), picture)
    write_image(Path(path), picture)
    return path


def command(*arguments, cwd=None):
    """The real command, in a process of its own."""
    words = [sys.executable, "-m", "kappaform", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, check=False)


def ended(capsys, *arguments):
    """Exit code, standard output and standard error of the command in this process."""
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def rejected(capsys, *arguments):
    """The one line with which the command rejects its input."""
    code, out, err = ended(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("kappaform: error: ")
    assert err.count("\n") == 1
    return err
