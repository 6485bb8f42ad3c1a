"""What the figures show, in words and numbers."""

from __future__ import annotations

from typing import Any

from kappaform.paper.curves import Curve, name_of, rises
from kappaform.paper.figures import Figures
from kappaform.paper.tradeoff import N_NONZERO
from kappaform.paper.writing import markdown

_EXPLANATION = (
    "Bound and norm of the conditioned transforms are those of the final log-det transform of the "
    "same setting. Errors, here and drawn, are with a transform's own codes; figures.csv also has "
    "those with the codes before the update (`..._before`), which the authors' public code "
    "reports. The monotone variant explores several starts: its curve is of the best transform "
    "so far over all updates, those of starts that were left included. The paper and reference "
    "variants have the steps of the printed algorithm and of that code, and an exact spectrum; the "
    "public variant has that code's own search for the spectrum."
)


def figure_text(figures: Figures) -> str:
    settings = figures.settings
    quick = ", quick run" * bool(settings["quick"])
    images = ", ".join(settings["images"])
    note = "Quick: few of them, few settings, iterations and bounds. " * settings["quick"]
    return "\n".join(
        [
            f"# Figures 1 and 2: errors over the iterations{quick}\n",
            f"Signals: {settings['n_signals']} mean-free patches of 8 × 8 pixels of {images}. "
            f"{note}{settings['n_iter']} iterations, kappaform {settings['kappaform']}.\n",
            f"{_EXPLANATION}\n",
            *(_setting_text(setting) for setting in _settings(figures.curves)),
            "## Monotone beside reference\n",
            *(f"- {line}" for line in comparison_lines(figures)),
            "",
            f"# Figure 3: errors over the bound{quick}\n",
            f"{N_NONZERO} nonzeros, norm 8, half of the signals learned from, the other half "
            "for validation; at most "
            f"{settings['path_max_iter']} iterations for each bound.\n",
            _path_text(figures.paths),
        ]
    )


def _settings(curves: list[Curve]) -> list[list[Curve]]:
    """Curves that belong together: of one sparsity and weight."""
    groups: dict[Any, list[Curve]] = {}
    for curve in curves:
        groups.setdefault((curve["n_nonzero"], curve["weight"]), []).append(curve)
    return list(groups.values())


def _setting_text(curves: list[Curve]) -> str:
    first = curves[0]
    title = f"## {first['n_nonzero']} nonzeros"
    if first["weight"] is not None:
        title += (
            f", weight {first['weight']:g}: condition number {first['condition_number']:.4g}, norm "
            f"{first['norm']:.4g}"
        )
    header = ["", "absolute", "relative", "per norm", "rises", "largest rise", "iterations"]
    rows = []
    for curve in curves:
        error = "relative" if curve["objective"] == "relative" else "absolute"
        count, largest = rises(curve[error])
        final = [f"{curve[name][-1]:.5g}" for name in ("absolute", "relative", "per_norm")]
        rows.append([name_of(curve), *final, str(count), f"{100 * largest:.3g} %"])
        rows[-1].append(f"{curve['n_iter']} ({curve['stop_reason'].replace('_', ' ')})")
    note = "Rises are of the error that the curve minimises, for log-det of the absolute error."
    return f"{title}\n\n{markdown(header, rows)}\n{note}\n"


def comparison_lines(figures: Figures) -> list[str]:
    """How often the monotone variant ends at or below the reference variant."""
    found: dict[str, list[float]] = {"absolute": [], "relative": []}
    for curves in _settings(figures.curves):
        named = {name_of(curve): curve for curve in curves}
        for error, ratios in found.items():
            if f"monotone-{error}" in named:
                reference = named["reference-absolute"][error][-1]
                ratios.append(named[f"monotone-{error}"][error][-1] / reference)
    if figures.settings["quick"]:
        return ["quick run: too short to compare the monotone variant with the reference variant"]
    return [
        f"{error} error, {error} objective: at or below the reference variant in "
        f"{sum(ratio <= 1 for ratio in ratios)} of {len(ratios)} settings (ratios "
        f"{min(ratios):.3f} to {max(ratios):.3f})"
        for error, ratios in found.items()
    ]


def _path_text(paths: list[dict[str, Any]]) -> str:
    names = ("absolute", "relative", "reconstruction")
    header = ["", "bound", *names, *(f"validation {name}" for name in names)]
    rows = []
    for path in paths:
        table = path["table"]
        columns = [table[name] for name in (*names, *(f"validation_{name}" for name in names))]
        for bound, *values in zip(table["max_condition"], *columns, strict=True):
            label = f"{path['variant']}-{path['objective']}"
            rows.append([label, f"{bound:g}", *(f"{value:.4g}" for value in values)])
    return markdown(header, rows)
