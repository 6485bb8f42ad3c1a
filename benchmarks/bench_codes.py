"""Codes that rebuild best: what they gain on signals that were not learned from.

The relative error of reconstructed signals for default estimators, and for a fixed cosine basis.
The kinds are patches of photographs, learned from other photographs; digits; a table; signals like
those of an ECG. Nobody looked at the others before the codes were chosen: textures, learned from
their left halves; brick, learned from grass and gravel, where no learned transform is as good as
the cosine basis; faces.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pictures import Part, rows_of
from skimage import color, data
from sklearn import datasets

import kappaform as kf

ANY_MACHINE = True


def rows() -> Iterator[dict]:
    """One row for each of seven kinds of signals and each estimator, and for the cosine basis."""
    return rows_of(_part(*each) for each in kinds())


def _part(name: str, train: np.ndarray, others: np.ndarray) -> Part:
    def rows(errors: Iterator[float]) -> Iterator[dict]:
        before: list[float] = []
        for kind, error in zip(CODED, errors, strict=True):
            promised = kind == "conditioned, refit" and name != "another texture"
            yield _row(name, kind, error, min(before) if promised else None)
            before.append(error)

    return Part([(error_of, train, others) for error_of in CODED.values()], rows)


def _of_cosines(_: np.ndarray, others: np.ndarray) -> float:
    side = round(others.shape[1] ** 0.5)
    shape = (side, side) if side * side == others.shape[1] else others.shape[1]
    return kf.evaluate(others, kf.dct_basis(shape)).reconstruction


def _of_fit(estimator_class: type, options: dict, train: np.ndarray, others: np.ndarray) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return -estimator_class(**options).fit(train).score(others)


CODED = {
    "cosine basis": _of_cosines,
    "orthonormal": partial(_of_fit, kf.OrthonormalTransform, {}),
    "conditioned, largest": partial(_of_fit, kf.ConditionedTransform, {"coding": "largest"}),
    "conditioned, refit": partial(_of_fit, kf.ConditionedTransform, {}),
}


def _row(name: str, kind: str, error: float, target: float | None) -> dict:
    words = f"{name}, {kind}: error of reconstructed signals"
    return {"name": words, "value": error, "unit": "", "target": target}


def kinds() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Signals to learn from, and others."""
    photos = data.camera(), data.astronaut(), data.coins()
    unseen = data.coffee(), data.cat(), data.moon()
    yield "patches", _patches_of(photos, 4000), _patches_of(unseen, 2000)
    digits = datasets.load_digits().data
    yield "digits", digits[::2], digits[1::2]
    table = datasets.load_breast_cancer().data
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    yield "table", table[::2], table[1::2]
    beats = _beats(8000, np.random.default_rng(5))
    yield "beats", beats[:5000], beats[5000:]
    textures = data.grass(), data.gravel(), data.brick()
    halves = [np.hsplit(texture, 2) for texture in textures]
    learned, others = zip(*halves, strict=True)
    yield "textures", _patches_of(learned, 4000), _patches_of(others, 2000)
    yield "another texture", _patches_of(textures[:2], 4000), _patches_of(textures[2:], 4000)
    faces = data.lfw_subset()[:100]  # the others are no faces
    some, rest = np.hstack(faces[:50]), np.hstack(faces[50:])
    yield (
        "faces",
        _patches_of((255 * some,), 6000),
        _patches_of((255 * rest,), 4000),
    )


def _patches_of(photos: tuple[np.ndarray, ...], count: int) -> np.ndarray:
    rng, found = np.random.default_rng(0), []
    for photo in photos:
        grey = 255 * color.rgb2gray(photo) if photo.ndim == 3 else photo.astype(float)
        windows = sliding_window_view(grey, (8, 8))
        chosen = [rng.integers(0, length, count) for length in windows.shape[:2]]
        found.append(windows[tuple(chosen)].reshape(count, -1) / 255)
    signals = np.concatenate(found)
    return signals - signals.mean(axis=1, keepdims=True)


def _beats(count: int, rng: np.random.Generator) -> np.ndarray:
    """Peaks of any place, width and height on a slow wave, with little noise."""
    times = np.linspace(0, 1, 48)
    centre, width = rng.uniform(0.2, 0.8, (count, 1)), rng.uniform(0.01, 0.04, (count, 1))
    height, phase = rng.normal(1, 0.3, (count, 1)), rng.uniform(0, 1, (count, 1))

    def bump(at: np.ndarray, wide: np.ndarray | float) -> np.ndarray:
        return np.exp(-((times - at) ** 2) / (2 * wide**2))

    peaks = height * (bump(centre, width) - 0.3 * bump(centre + 2.5 * width, width))
    slow = 0.2 * bump(centre + 0.2, 0.05) + 0.1 * np.sin(2 * np.pi * (times + phase))
    return peaks + slow + 0.02 * rng.standard_normal((count, 48))
