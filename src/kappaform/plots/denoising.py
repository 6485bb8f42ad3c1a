"""What denoising did to a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kappaform.plots.atoms import atom_mosaic, draw_mosaic
from kappaform.plots.axes import COLOURS, log_scale, plain_axes
from kappaform.plots.learned import draw_spectrum

if TYPE_CHECKING:
    from kappaform.imaging import DenoiseResult


def plot_denoising(
    noisy: NDArray,
    result: DenoiseResult,
    reference: NDArray | None = None,
    *,
    channel_axis: int | None = None,
) -> Figure:
    """Before, after and their difference; and atoms, spectrum and sparsity map behind them.

    Of a volume or stack the middle slice is shown, of several transforms the first.

    Parameters
    ----------
    noisy : array
        What was denoised.
    result : DenoiseResult
        What `kappaform.denoise_with_details` returned for it.
    reference : array, optional
        The picture without noise: titles then say how near to it the others are.
    channel_axis : int, optional
        Where the colours are, as for `kappaform.denoise`.
    """
    figure = Figure(figsize=(12.0, 8.6), layout="constrained")
    pictures, inside = figure.subplots(2, 3)
    for axes in (*pictures, *inside):
        axes.set_anchor("N")  # titles of a row in line, whatever the shape of its pictures
    noisy, cleaned = np.asarray(noisy), np.asarray(result.image)
    before, after = (_middle_slice(image, channel_axis) for image in (noisy, cleaned))
    limits = np.quantile(after, (0.001, 0.999))
    _draw_picture(pictures[0], before, limits, "before" + _nearness(reference, noisy))
    _draw_picture(pictures[1], after, limits, "after" + _nearness(reference, cleaned))
    _draw_difference(pictures[2], before - after.astype(np.float64), result.sigma)
    _draw_transform(inside[0], inside[1], result)
    _draw_sparsity(inside[2], np.asarray(result.sparsity_map))
    return figure


def _nearness(reference: NDArray | None, image: NDArray) -> str:
    if reference is None:
        return ""
    from kappaform.imaging.quality import psnr  # here, because the other figures need no imaging

    return f", PSNR {psnr(np.asarray(reference), image):.2f} dB"


def _middle_slice(image: NDArray, channel_axis: int | None) -> NDArray:
    """A picture of two dimensions, with its channels, if any, last."""
    if channel_axis is not None:
        image = np.moveaxis(image, channel_axis, -1)
    while image.ndim > 2 + (channel_axis is not None):
        image = image[len(image) // 2]
    return image


def _draw_picture(axes: Axes, image: NDArray, limits: NDArray, title: str) -> None:
    """A picture between the given limits, which are black and white."""
    span = float(limits[1] - limits[0]) or 1.0
    scaled = np.clip((image.astype(np.float64) - limits[0]) / span, 0, 1)
    if scaled.ndim == 3 and scaled.shape[2] != 3:
        scaled = scaled.mean(axis=2)  # channels that are no colours
    axes.imshow(scaled, cmap="gray", vmin=0, vmax=1)
    axes.set_title(title, loc="left")
    axes.set_axis_off()


def _draw_difference(axes: Axes, difference: NDArray, sigma: Any) -> None:
    if difference.ndim == 3:
        difference = difference.mean(axis=2)
    reach = 3 * float(difference.std()) or 1.0
    axes.imshow(difference, cmap="gray", vmin=-reach, vmax=reach)
    axes.set_title(f"difference (σ = {float(np.mean(sigma)):.3g})", loc="left")
    axes.set_axis_off()


def _draw_transform(left: Axes, right: Axes, result: DenoiseResult) -> None:
    """Atoms and spectrum of the (first) transform, with its bound where it was learned."""
    left.set_title("atoms of the transform", loc="left")
    if result.transform is None:  # without noise or without structure
        for axes in (left, right):
            axes.set_axis_off()
        left.text(0.5, 0.5, "none was needed", ha="center", transform=left.transAxes)
        return
    learned = (each for each in result.history if each.transform is result.transform)
    shown: Any = next(learned, result.transform)
    draw_mosaic(left, atom_mosaic(shown, result.patch_shape))
    plain_axes(right)
    spectrum = draw_spectrum(right, shown, COLOURS[0])
    right.margins(x=0.02, y=0.1)
    log_scale(right, "y", narrowest=1.5)
    right.set_title(f"spectrum, condition number {spectrum[0] / spectrum[-1]:.4g}", loc="left")
    right.set(xlabel="index, in descending order", ylabel=r"singular value $\sigma$")


def _draw_sparsity(axes: Axes, counts: NDArray) -> None:
    image = axes.imshow(_middle_slice(counts, None), cmap="cividis", vmin=0)
    axes.set_title("coefficients of the patches", loc="left")
    axes.set_axis_off()
    figure = axes.get_figure()
    assert figure is not None
    # Below the panel and not a part of it, so that all panels of the row stay equal.
    scale = axes.inset_axes((0.1, -0.06, 0.8, 0.025))
    figure.colorbar(image, cax=scale, orientation="horizontal", label="mean number per patch")
