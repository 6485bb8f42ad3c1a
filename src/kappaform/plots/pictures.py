"""Images: the rows of a transform as patches, and the result of denoising."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray
from scipy.fft import dctn

from kappaform.plots.curves import draw_spectra, matrices_of, matrix_of, plain_axes

if TYPE_CHECKING:
    from kappaform.imaging import DenoiseResult

_FRAME, _MISSING = "#6BA3CF", "#E69F00"  # colours that are neither black nor white
_TITLE_WIDTH = 110  # letters: they fit into 12 inches at the default font size


def plot_atoms(transform: Any, patch_shape: int | Sequence[int] | None = None) -> Figure:
    """The rows of a transform as patches, from low to high spatial frequency.

    Each atom has its own scale, symmetric about zero, which is mid-grey. The transforms of a union
    are shown side by side, in their order.

    Parameters
    ----------
    transform : LearnResult, fitted estimator, (n, n) array or (K, n, n) array
    patch_shape : int or sequence of 1 to 3 ints, optional
        Shape of the patches, flattened in C order; by default square. The slices of a
        three-dimensional patch along its first axis are shown side by side; those of one
        dimension are bars.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import kappaform as kf
    >>> kf.plots.plot_atoms(kf.dct_basis((8, 8))).savefig("atoms.png")
    """
    matrices = matrices_of(transform)
    mosaics = [_sorted_atoms(matrix, patch_shape) for matrix in matrices]
    columns = math.ceil(math.sqrt(len(mosaics)))
    rows = -(-len(mosaics) // columns)
    height, width = rows * mosaics[0].shape[0], columns * mosaics[0].shape[1]
    longest = (6.0 if len(mosaics) == 1 else 9.0) / max(height, width)
    figure = Figure(figsize=(width * longest, height * longest), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for number, (axes, atoms) in enumerate(zip(panels, mosaics, strict=False)):
        _show_atoms(axes, atoms, f"transform {number}" if len(mosaics) > 1 else "")
    for axes in panels[len(mosaics) :]:
        axes.set_axis_off()
    return figure


def plot_denoising(
    noisy: NDArray,
    result: DenoiseResult,
    reference: NDArray | None = None,
    *,
    channel_axis: int | None = None,
    mask: NDArray | None = None,
) -> Figure:
    """Before, after and their difference; and the atoms, spectrum and sparsity map behind them.

    For a volume or stack the middle slice is shown, and the first of several transforms. The title
    reports the noise that was assumed for it. Missing pixels are orange.

    Parameters
    ----------
    noisy : array
        The noisy image.
    result : DenoiseResult
        The result of `kappaform.denoise_with_details` for it.
    reference : array, optional
        The image without noise: titles then show the PSNR of the others.
    channel_axis : int, optional
        The axis of the colours, as for `kappaform.denoise`.
    mask : array of booleans, optional
        Which values were missing, with the shape of the image or without its axis of colours;
        those that are NaN or masked in `noisy` are missing in any case.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> noisy = kf.add_noise(camera()[100:164, 200:264], sigma=20)
    >>> details = kf.denoise_with_details(noisy, sigma=20)
    >>> kf.plots.plot_denoising(noisy, details).savefig("report.png")
    """
    if not hasattr(result, "sparsity_map"):
        raise TypeError(
            f"result is of type {type(result).__name__}: give a result of "
            "kappaform.denoise_with_details."
        )
    figure = Figure(figsize=(12.0, 8.6), layout="constrained")
    noise = result.noise
    noise = noise[len(noise) // 2] if isinstance(noise, tuple) else noise
    figure.suptitle(fill(f"noise: {noise}", _TITLE_WIDTH))
    pictures, inside = figure.subplots(2, 3)
    for axes in (*pictures, *inside):
        axes.set_anchor("N")  # aligns the titles of a row, whatever the shape of its images
    missing = _missing(noisy, mask, channel_axis)
    noisy, denoised = np.asarray(noisy), np.asarray(result.image)
    before, after = (_middle_slice(image, channel_axis) for image in (noisy, denoised))
    left = _of_pixels(~np.isfinite(after))
    if np.array_equal(before[missing], after[missing], equal_nan=True):  # not filled
        left = left | missing
    limits = np.quantile(np.zeros(1) if missing.all() else after[~missing], (0.001, 0.999))
    titles = [" (orange: missing)" * bool(holes.any()) for holes in (missing, left)]
    titles = [t + _psnr(reference, im) for t, im in zip(titles, (noisy, denoised), strict=True)]
    _draw_picture(pictures[0], before, limits, "before" + titles[0], missing)
    _draw_picture(pictures[1], after, limits, "after" + titles[1], left)
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = before - after.astype(np.float64)
    _draw_difference(pictures[2], difference, missing)
    _draw_transform(inside[0], inside[1], result)
    _draw_sparsity(inside[2], np.asarray(result.sparsity_map))
    return figure


def _sorted_atoms(transform: object, patch_shape: int | Sequence[int] | None) -> NDArray:
    """The `mosaic` of all atoms of a transform, from low to high frequency."""
    matrix = matrix_of(transform)
    atoms = matrix.reshape(-1, *_patch_shape(matrix.shape[1], patch_shape))
    return mosaic(sorted(atoms, key=frequency_of))


def mosaic(atoms: Iterable[NDArray]) -> NDArray:
    """Atoms in rows, about as wide as high, each scaled to [-1, 1], with NaN in the margins."""
    patches = list(atoms)
    tiles = [_tile(atom) for atom in patches]
    height, width = tiles[0].shape
    # More than between the slices of a volume.
    gap = 2 if patches[0].ndim > 2 and width > 2 * height else 1
    columns = max(1, round(math.sqrt(len(tiles) * (height + gap) / (width + gap))))
    rows = -(-len(tiles) // columns)
    whole = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap), np.nan)
    for place, tile in enumerate(tiles):
        top, left = (height + gap) * (place // columns), (width + gap) * (place % columns)
        whole[top : top + height, left : left + width] = tile
    return whole


def _show_atoms(axes: Axes, atoms: NDArray, title: str = "") -> None:
    # Coloured margins and frame: white or black ones would merge with the atoms.
    grey = colormaps["gray"].with_extremes(bad=_FRAME)
    _show(axes, atoms, title, cmap=grey, vmin=-1, vmax=1, interpolation="nearest")
    axes.set_axis_on()
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color=_FRAME, linewidth=2)


def _patch_shape(n_features: int, given: int | Sequence[int] | None) -> tuple[int, ...]:
    if given is None:
        side = math.isqrt(n_features)
        if side**2 != n_features:
            raise ValueError(
                f"patch_shape=None means square patches, but n_features={n_features} is not a "
                "square: give the shape of the patches."
            )
        return side, side
    shape = (given,) if isinstance(given, int) else tuple(given)
    if len(shape) not in (1, 2, 3) or min(shape) < 1 or math.prod(shape) != n_features:
        raise ValueError(
            f"patch_shape={given} does not fit n_features={n_features}: give 1 to 3 positive "
            f"integers whose product is {n_features}."
        )
    return shape


def frequency_of(atom: NDArray) -> float:
    """Mean frequency of an atom, weighted by its energy in the DCT domain (0: constant)."""
    energy = dctn(atom, norm="ortho") ** 2
    squares = [(np.arange(side) / side) ** 2 for side in atom.shape]
    radius = np.sqrt(sum(np.meshgrid(*squares, indexing="ij")))
    total = energy.sum()
    return float((radius * energy).sum() / total) if total > 0 else 0.0


def _tile(atom: NDArray) -> NDArray:
    """An atom as an image with values in [-1, 1], slices of a volume separated by a thin line.

    One of a single dimension is a bar, four times as long as it is high.
    """
    atom = atom / (np.abs(atom).max() or 1.0)
    if atom.ndim == 1:
        return np.tile(atom, (max(1, round(len(atom) / 4)), 1))
    if atom.ndim == 2:
        return atom
    line = np.full((atom.shape[1], 1), np.nan)
    return np.hstack([part for piece in atom for part in (line, piece)][1:])


def _psnr(reference: NDArray | None, image: NDArray) -> str:
    if reference is None:
        return ""
    from kappaform.imaging.metrics import psnr

    return f", PSNR {psnr(np.asarray(reference), image):.2f} dB"


def _middle_slice(image: NDArray, channel_axis: int | None) -> NDArray:
    """An image of two dimensions, with channels last, if any."""
    if channel_axis is not None:
        image = np.moveaxis(image, channel_axis, -1)
    while image.ndim > 2 + (channel_axis is not None):
        image = image[len(image) // 2]
    return image


def _missing(noisy: NDArray, mask: NDArray | None, channel_axis: int | None) -> NDArray:
    """Which pixels of the slice that is shown are missing."""
    values = np.asarray(noisy)
    missing = np.ma.getmaskarray(noisy) | ~np.isfinite(values)
    if mask is not None:
        mask = np.asarray(mask, dtype=bool)
        if channel_axis is not None and mask.ndim == values.ndim - 1:
            mask = np.expand_dims(mask, channel_axis)
        fits = mask.ndim == values.ndim and all(
            given in (1, length) for given, length in zip(mask.shape, values.shape, strict=True)
        )
        if not fits:
            raise ValueError(
                f"mask has shape {mask.shape}: it must be that of the image, {values.shape}, or "
                "that without its axis of colours."
            )
        missing = missing | mask
    return _of_pixels(_middle_slice(missing, channel_axis))


def _of_pixels(marked: NDArray) -> NDArray:
    """Pixels with any channel that is marked."""
    return np.asarray(marked.any(axis=2)) if marked.ndim == 3 else marked


def _draw_picture(
    axes: Axes, image: NDArray, limits: NDArray, title: str, missing: NDArray
) -> None:
    """Draw an image; the limits are black and white."""
    span = float(limits[1] - limits[0]) or 1.0
    scaled = np.clip((image.astype(np.float64) - limits[0]) / span, 0, 1)
    if scaled.ndim == 3 and scaled.shape[2] != 3:
        scaled = scaled.mean(axis=2)  # channels that are not colours
    if scaled.ndim == 3:
        scaled[missing] = to_rgb(_MISSING)
    _show_grey(axes, scaled, title, missing, vmin=0, vmax=1)


def _draw_difference(axes: Axes, difference: NDArray, missing: NDArray) -> None:
    """Draw what was removed; the title says which values are black and white."""
    if difference.ndim == 3:
        difference = difference.mean(axis=2)
    known = difference[~missing]
    reach = 3 * float(known.std() if known.size else 0) or 1.0
    title = f"difference, from {-reach:.3g} (black) to {reach:.3g}"
    _show_grey(axes, difference, title, missing, vmin=-reach, vmax=reach)


def _show_grey(axes: Axes, values: NDArray, title: str, missing: NDArray, **limits: float) -> None:
    if values.ndim == 2:
        values = np.ma.masked_where(missing, values)
    _show(axes, values, title, cmap=colormaps["gray"].with_extremes(bad=_MISSING), **limits)


def _draw_transform(left: Axes, right: Axes, result: DenoiseResult) -> None:
    """Atoms and spectrum of the (first) transform, with its bound if it was learned."""
    if result.transform is None:  # without noise or without structure
        for axes in (left, right):
            axes.set_axis_off()
        left.set_title("atoms of the transform", loc="left")
        left.text(0.5, 0.5, "not needed", ha="center", transform=left.transAxes)
        return
    learned = (each for each in result.history if each.transform is result.transform)
    shown: Any = next(learned, result.transform)
    _show_atoms(left, _sorted_atoms(shown, result.patch_shape), "atoms of the transform")
    plain_axes(right)
    (spectrum,) = draw_spectra(right, [shown])
    right.set_title(f"spectrum, condition number {spectrum[0] / spectrum[-1]:.4g}", loc="left")


def _draw_sparsity(axes: Axes, counts: NDArray) -> None:
    title = "coefficients of the patches"
    image = _show(axes, _middle_slice(counts, None), title, cmap="cividis", vmin=0)
    figure = axes.get_figure()
    assert figure is not None
    # Below the panel and not part of it, so that all panels of the row have the same size.
    scale = axes.inset_axes((0.1, -0.06, 0.8, 0.025))
    figure.colorbar(image, cax=scale, orientation="horizontal", label="mean number per patch")


def _show(axes: Axes, values: NDArray, title: str, **options: Any) -> AxesImage:
    axes.set_title(title, loc="left")
    axes.set_axis_off()
    return axes.imshow(values, **options)
