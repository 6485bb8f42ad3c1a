"""Draw figures of the site into `images/`: first page, GPU tutorial, qualities of the denoiser.

python docs/pictures.py             first.png, atoms.png
python docs/pictures.py qualities   qualities.png; it needs the package bm3d, and some minutes
python docs/pictures.py real-noise  real_noise.png, of the tutorial; it needs the package bm3d
python docs/pictures.py inpainting  inpainting.png
"""

import runpy
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw
from skimage.data import astronaut, camera, moon

import kappaform as kf

FOLDER = Path(__file__).parent / "images"
BLUE, ORANGE, GREY = "#0072B2", "#B24A00", "#444444"  # readable for the colour-blind, and as text


def patches_of(image: np.ndarray) -> np.ndarray:
    patches = kf.extract_patches(image / 255, 8, stride=5)
    return patches - patches.mean(axis=1, keepdims=True)


def psnr(image: np.ndarray, clean: np.ndarray) -> float:
    return 10 * np.log10(255**2 / np.mean((image - clean) ** 2))


def draw_picture(axes) -> None:
    clean = camera()[:400, 60:460].astype(float)
    noisy = kf.add_noise(clean, 25, rng=0)
    denoised = kf.denoise(noisy)
    half = clean.shape[1] // 2
    both = np.hstack([noisy[:, :half], denoised[:, half:]])
    axes.imshow(both, cmap="gray", vmin=0, vmax=255)
    axes.axvline(half - 0.5, color="white", linewidth=2)
    axes.set_axis_off()
    before, after = psnr(noisy, clean), psnr(denoised, clean)
    axes.set_title(f"denoise: {before:.1f} dB → {after:.1f} dB", loc="left")


def draw_path(axes) -> None:
    left, right = np.hsplit(moon(), 2)
    train, test = patches_of(left), patches_of(right)
    bounds = [1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7, 10]
    path = kf.condition_path(train, bounds, n_nonzero_coefs=8, validation=test, tol=1e-3)
    sparsification = path["validation_sparsification"]
    reconstruction = path["validation_reconstruction"]
    for values, colour, marker in ((sparsification, BLUE, "o"), (reconstruction, ORANGE, "s")):
        axes.plot(bounds, 100 * values, color=colour, marker=marker, markersize=5, linewidth=2)
    axes.text(3.1, 100 * sparsification[6] - 4.4, "sparsification", color=BLUE, ha="right")
    axes.text(1.6, 100 * reconstruction[6] + 2.5, "reconstruction", color=ORANGE)
    axes.set(
        xscale="log",
        ylim=(0, 45),
        xlabel="bound on the condition number",
        ylabel="relative error on held-out patches, %",
    )
    axes.set_xticks([1, 2, 3, 5, 10], ["1", "2", "3", "5", "10"])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("select the bound", loc="left")


def draw_qualities() -> None:
    """Crops of a photograph at four noise levels, denoised by BM3D and by kappaform."""
    import bm3d

    clean = camera().astype(float)
    crop = np.s_[95:215, 170:290]
    sigmas, names = (15, 25, 50, 100), ("noisy", "BM3D", "fast", "balanced", "best")
    figure = Figure(figsize=(12.5, 11), layout="constrained")
    for row, sigma in zip(figure.subplots(len(sigmas), len(names)), sigmas, strict=True):
        noisy = kf.add_noise(clean, sigma, rng=0)
        for axes, name in zip(row, names, strict=True):
            if name in ("noisy", "BM3D"):
                image = noisy if name == "noisy" else bm3d.bm3d(noisy, sigma)
            else:
                image = kf.denoise(noisy, sigma, quality=name)
            image = image.clip(0, 255)
            axes.imshow(image[crop], cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axes.set_title(f"{name}, {psnr(image, clean):.2f} dB", color=GREY, fontsize=11)
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"sigma {sigma}", color=GREY, fontsize=13)
    figure.savefig(FOLDER / "qualities.png", dpi=80)


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
    second.set_title("learn a transform: its 64 atoms", loc="left")
    draw_path(third)
    for axes in (first, second, third):
        axes.title.set(color=GREY, fontsize=13)
        axes.set_anchor("N")
    figure.savefig(FOLDER / "first.png", dpi=110)


def draw_real_noise() -> None:
    """The figure of a tutorial, which shows CBM3D where its package is installed."""
    names = runpy.run_path(str(FOLDER.parents[1] / "examples" / "real_noise.py"))
    names["figure"].savefig(FOLDER / "real_noise.png", dpi=110)


def draw_inpainting() -> None:
    """Two photographs with missing pixels, and filled: most pixels at random, and writing."""
    face = astronaut()[:256, 100:356]
    page = Image.new("L", (256, 256))
    for i, top in enumerate(range(2, 256, 22)):
        text = ("fill what is missing from what is known ... " * 3)[2 * i :]
        ImageDraw.Draw(page).text((3, top), text, fill=255, font_size=15)
    part = camera()[60:316, 120:376]
    masks = np.asarray(page) > 127, np.random.default_rng(0).random(part.shape) < 0.8
    figure = Figure(figsize=(13, 3.6), layout="constrained")
    panels = iter(figure.subplots(1, 4))
    words = "text", "80 % of the pixels"
    for clean, mask, what in zip((face, part), masks, words, strict=True):
        axis = -1 if clean.ndim == 3 else None
        filled = kf.inpaint(clean, mask, channel_axis=axis, value_range=(0, 255))
        holes = mask[..., np.newaxis] if clean.ndim == 3 else mask
        inside = psnr(filled[mask], clean[mask].astype(float))
        titles = f"{what} missing", f"filled: {inside:.1f} dB in the holes"
        for image, title in zip((np.where(holes, 255, clean), filled), titles, strict=True):
            axes = next(panels)
            axes.imshow(image.round().astype(np.uint8), cmap="gray", vmin=0, vmax=255)
            axes.set_axis_off()
            axes.set_title(title, loc="left", color=GREY, fontsize=12)
    figure.savefig(FOLDER / "inpainting.png", dpi=70)


DRAWN = {
    "qualities": draw_qualities,
    "real-noise": draw_real_noise,
    "inpainting": draw_inpainting,
}

if __name__ == "__main__":
    DRAWN.get("".join(sys.argv[1:]), main)()
