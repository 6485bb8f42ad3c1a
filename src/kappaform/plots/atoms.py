"""Transforms as pictures of their rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.fft import dctn

from kappaform.plots.axes import as_matrix


def plot_atoms(transform: Any, patch_shape: int | Sequence[int] | None = None) -> Figure:
    """The rows of a transform as patches, from low to high spatial frequency.

    Each atom has its own scale, symmetric about zero, which is mid-grey.

    Parameters
    ----------
    transform : LearnResult, fitted estimator or (n, n) array
    patch_shape : int or sequence of 1 to 3 ints, optional
        Shape of the patches, flattened in C order; by default square. Of a three-dimensional patch
        the slices along its first axis are shown side by side.
    """
    mosaic = atom_mosaic(transform, patch_shape)
    height, width = mosaic.shape
    longest = 6.0 / max(height, width)
    figure = Figure(figsize=(width * longest, height * longest), layout="constrained")
    draw_mosaic(figure.subplots(), mosaic)
    return figure


def atom_mosaic(transform: object, patch_shape: int | Sequence[int] | None) -> NDArray:
    """All atoms in one picture with values in [-1, 1], margins not a number."""
    matrix = as_matrix(transform)
    atoms = matrix.reshape(-1, *_patch_shape(matrix.shape[1], patch_shape))
    atoms = atoms[np.argsort([_frequency(atom) for atom in atoms], kind="stable")]
    return _mosaic([_tile(atom) for atom in atoms])


def draw_mosaic(axes: Axes, mosaic: NDArray) -> None:
    # Margins in a colour: white or black ones would run into the atoms.
    grey = colormaps["gray"].with_extremes(bad="#6BA3CF")
    axes.imshow(mosaic, cmap=grey, vmin=-1, vmax=1, interpolation="nearest")
    axes.set_axis_off()


def _patch_shape(n_features: int, given: int | Sequence[int] | None) -> tuple[int, ...]:
    if given is None:
        side = math.isqrt(n_features)
        if side**2 != n_features:
            raise ValueError(
                f"patch_shape=None means square patches, but n_features={n_features} is no square: "
                "give the shape of the patches."
            )
        return side, side
    shape = (given,) if isinstance(given, int) else tuple(given)
    if len(shape) not in (1, 2, 3) or min(shape) < 1 or math.prod(shape) != n_features:
        raise ValueError(
            f"patch_shape={given} does not fit n_features={n_features}: give 1 to 3 positive "
            f"integers whose product is {n_features}."
        )
    return shape


def _frequency(atom: NDArray) -> float:
    """Mean frequency of an atom: where its energy lies in the DCT domain (0: constant)."""
    energy = dctn(atom, norm="ortho") ** 2
    squares = [(np.arange(side) / side) ** 2 for side in atom.shape]
    radius = np.sqrt(sum(np.meshgrid(*squares, indexing="ij")))
    total = energy.sum()
    return float((radius * energy).sum() / total) if total > 0 else 0.0


def _tile(atom: NDArray) -> NDArray:
    """An atom as a picture with values in [-1, 1], slices of a volume separated by a thin line."""
    atom = atom / (np.abs(atom).max() or 1.0)
    if atom.ndim < 3:
        return np.atleast_2d(atom)
    line = np.full((atom.shape[1], 1), np.nan)
    return np.hstack([part for piece in atom for part in (line, piece)][1:])


def _mosaic(tiles: list[NDArray]) -> NDArray:
    """Tiles in rows, about as wide as high, with margins that are not a number."""
    height, width = tiles[0].shape
    gap = 2 if width > 2 * height else 1  # more than between the slices of a volume
    columns = max(1, round(math.sqrt(len(tiles) * (height + gap) / (width + gap))))
    rows = -(-len(tiles) // columns)
    mosaic = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap), np.nan)
    for place, tile in enumerate(tiles):
        top, left = (height + gap) * (place // columns), (width + gap) * (place % columns)
        mosaic[top : top + height, left : left + width] = tile
    return mosaic
