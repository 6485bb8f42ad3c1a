"""Draws the pictures of the first page, `images/first.png`, and of the GPU tutorial.

python docs/pictures.py
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from skimage.data import camera, moon

import kappaform as kf

FOLDER = Path(__file__).parent / "images"
BLUE, ORANGE, GREY = "#0072B2", "#B24A00", "#444444"  # readable for the colour-blind, and as text


def patches_of(image: np.ndarray) -> np.ndarray:
    patches = kf.extract_patches(image / 255, 8, stride=5)
    return patches - patches.mean(axis=1, keepdims=True)


def draw_picture(axes) -> None:
    clean = camera()[:400, 60:460].astype(float)
    noisy = kf.add_noise(clean, 25, rng=0)
    cleaned = kf.denoise(noisy)
    half = clean.shape[1] // 2
    both = np.hstack([noisy[:, :half], cleaned[:, half:]])
    axes.imshow(both, cmap="gray", vmin=0, vmax=255)
    axes.axvline(half - 0.5, color="white", linewidth=2)
    axes.set_axis_off()
    axes.set_title("clean a picture", loc="left")


def draw_path(axes) -> None:
    left, right = np.hsplit(moon(), 2)
    train, test = patches_of(left), patches_of(right)
    bounds = [1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7, 10]
    path = kf.condition_path(train, bounds, n_nonzero_coefs=8, validation=test, tol=1e-3)
    lost = path["validation_absolute"] / np.linalg.norm(test)
    paid = path["validation_reconstruction"]
    for values, colour, marker in ((lost, BLUE, "o"), (paid, ORANGE, "s")):
        axes.plot(bounds, 100 * values, color=colour, marker=marker, markersize=5, linewidth=2)
    axes.text(3.1, 100 * lost[6] - 4.4, "lost among\nthe coefficients", color=BLUE, ha="right")
    axes.text(1.6, 100 * paid[6] + 2.5, "lost in the picture", color=ORANGE)
    axes.set(xscale="log", ylim=(0, 45), xlabel="bound on the condition number", ylabel="error, %")
    axes.set_xticks([1, 2, 3, 5, 10], ["1", "2", "3", "5", "10"])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("choose the bound", loc="left")


def main() -> None:
    result = kf.learn(patches_of(camera()), kf.Conditioned(1.1), n_nonzero_coefs=6, tol=1e-3)
    atoms = kf.plots.plot_atoms(result)
    atoms.savefig(FOLDER / "atoms.png", dpi=60)
    atoms.canvas.draw()
    figure = Figure(figsize=(13, 4.3), layout="constrained")
    first, second, third = figure.subplots(1, 3, width_ratios=(1, 1, 1.15))
    draw_picture(first)
    shown = atoms.axes[0].images[0]
    framed = np.pad(shown.get_array().filled(np.nan), 1, constant_values=np.nan)
    second.imshow(framed, cmap=shown.get_cmap(), vmin=-1, vmax=1, interpolation="nearest")
    second.set_axis_off()
    second.set_title("learn what it is made of", loc="left")
    draw_path(third)
    for axes in (first, second, third):
        axes.title.set(color=GREY, fontsize=13)
        axes.set_anchor("N")
    figure.savefig(FOLDER / "first.png", dpi=110)


if __name__ == "__main__":
    main()
