"""Table 1 in words."""

from __future__ import annotations

from kappaform.paper.printed import IMAGES, METHODS, NOISY_PSNR, SIGMAS
from kappaform.paper.table import Table, summary_of
from kappaform.paper.writing import markdown

_MADE = "\\*"


def table_text(table: Table) -> str:
    """Table 1 beside the paper's, what differs from it, and what is missing."""
    quick = "quick run, " * bool(table.settings["quick"])
    cells = f"{len(table.rows)} of {len(IMAGES) * len(SIGMAS) * len(METHODS)} cells"
    side = table.settings["patch_size"]
    printed = ", ".join(f"{value} ({sigma})" for sigma, value in NOISY_PSNR.items())
    paragraphs = [
        f"# Table 1: denoising with the paper's settings ({quick}{cells})\n",
        "PSNR in dB and SSIM (after downsampling) of three methods; *ours* with patches of "
        f"{side} × {side} pixels and seed {table.settings['seed']}, the conditioned method in its "
        f"variant `{table.settings['variant']}`, kappaform {table.settings['kappaform']}. "
        "Differences are ours minus the paper's.\n",
    ]
    if side != 11:
        paragraphs.append(
            "**The paper prints its table for patches of 11 × 11 pixels only:** the differences "
            "below include that of the patch size.\n"
        )
    if any(row["noise"] == "made" for row in table.rows):
        paragraphs.append(f"{_made_note(_MADE)}\n")
    paragraphs.append(
        f"For the noisy images the paper prints one PSNR for each level: {printed}. These are "
        "Barbara's, cut off after two decimals.\n"
    )
    paragraphs.append(_cells_text(table))
    paragraphs.append("## Summary\n")
    paragraphs.append("".join(f"- {line}\n" for line in summary_lines(table)))
    if table.failures:
        paragraphs.append("## Left out\n")
        paragraphs.append(
            "".join(f"- {name}: {reason}\n" for name, reason in table.failures.items())
        )
    return "\n".join(paragraphs)


def _made_note(mark: str) -> str:
    return (
        f"{mark} No noisy image of this one is public. Its noise was made here with a fixed seed, "
        "in float32, neither rounded nor clipped, as the public ones are; the paper's was another."
    )


def _cells_text(table: Table) -> str:
    header = ["image", "σ", "method", "noisy", "PSNR paper", "ours", "difference"]
    header += ["SSIM paper", "ours", "difference"]
    return markdown(
        header,
        (
            [
                row["image"] + _MADE * (row["noise"] == "made"),
                str(row["sigma"]),
                row["method"],
                f"{row['noisy_psnr']:.2f}",
                f"{row['paper_psnr']:.2f}",
                f"{row['psnr']:.2f}",
                f"{row['psnr_difference']:+.2f}",
                f"{row['paper_ssim']:.3f}",
                f"{row['ssim']:.3f}",
                f"{row['ssim_difference']:+.3f}",
            ]
            for row in table.rows
        ),
    )


def summary_lines(table: Table) -> list[str]:
    """The summary in sentences."""
    facts = summary_of(table)
    if "worst_cell" not in facts:
        return ["no cell with a public noisy image was computed"]
    lines = [
        "over the {cells_with_public_noise} cells with public noisy images, mean |difference| from "
        "the paper: {mean_absolute_psnr_difference:.3f} dB, SSIM "
        "{mean_absolute_ssim_difference:.4f}".format(**facts),
        "worst cell: {image}, sigma {sigma}, {method}: {psnr_difference:+.3f} dB, SSIM "
        "{ssim_difference:+.4f}".format(**facts["worst_cell"]),
    ]
    for other in ("log-det", "orthonormal"):
        key = f"gain_over_{other.replace('-', '_')}"
        if key in facts:
            lines.append(
                f"conditioned − {other}, mean: {facts[key]:+.3f} dB (the paper: "
                f"{facts['paper_' + key]:+.3f} dB)"
            )
    return lines
