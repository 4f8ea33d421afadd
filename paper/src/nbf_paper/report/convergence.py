"""The page of convergence: the error against the number of particles, and the rates."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nbf.plot.style import FAINT, INK
from nbf_paper.records import Record, Summary, read_records, summary
from nbf_paper.report.labels import label, row_order
from nbf_paper.report.tables import MISSING, Page, cell, layout, legend

FAMILIES = {
    ("nbf", "tabular"): "NBF, perfect model", ("nbf", "tabular-default"): "NBF, perfect model, default update",
    ("nbf", "faithful"): "NBF, paper's flow", ("pf", ""): "PF",
}  # fmt: skip
"""The names of the filters with their arms."""
COLOURS = {("nbf", "tabular"): "#D55E00", ("nbf", "faithful"): "#E69F00", ("pf", ""): "#0072B2"}
SPARE = ("#009E73", "#CC79A7", "#56B4E9", "#8C6D1F")
METRICS = {"sup_error": "worst step's error of a mean", "sup_tv": "worst step's total variation"}

Family = tuple[str, str]


def page(folder: Path) -> Page:
    """The table and the figure of the records in a folder."""
    records = read_records(folder)
    captions = {
        "convergence": "The largest error over the steps of an episode with few and with many particles, and the "
        "rate at which it falls. The last column says how many particles make a perfect model err as much.",
        "convergence.png": "Errors against the number of particles, both on logarithmic scales: with a perfect model "
        "they fall along the line of slope -1/2, with a learned one until its own error takes over.",
    }
    return Page(
        {"convergence": table(records)},
        {"convergence.png": functools.partial(figure, records)},
        title="Convergence",
        captions=captions,
        claims=claims(records),
    )


def claims(records: list[Record]) -> list[tuple[str, str]]:
    """The corollary, and the slope on record."""
    found = {
        entry.metric: entry.value
        for entry in summary(records)
        if (entry.filter, entry.arm, entry.particles) == ("nbf", "tabular", 0)
    }
    if "slope" not in found:
        return []
    interval = f"{found['slope_low']:.3f} to {found['slope_high']:.3f}"
    return [
        (
            "With a perfect model the error of an estimate falls as one over the root of the number of particles.",
            f"Slope {found['slope']:.3f} on logarithmic scales, 95% interval {interval}; -0.5 is that rate.",
        )
    ]


def _families(found: Iterable[Summary]) -> list[Family]:
    return sorted({(entry.filter, entry.arm) for entry in found}, key=lambda family: row_order((*family, 0)))


def _name(family: Family) -> str:
    return FAMILIES.get(family) or label(*family)


def _curve(found: Iterable[Summary], family: Family, metric: str) -> list[Summary]:
    chosen = (entry for entry in found if (entry.filter, entry.arm, entry.metric) == (*family, metric))
    return sorted(chosen, key=lambda entry: entry.particles)


def table(records: list[Record]) -> str:
    """One line per family: its errors with the fewest and the most particles, its rate with a 95% interval, and the
    particles with which the perfect model has this family's smallest error."""
    found = summary(records)
    heads = ["Filter", "error, fewest particles", "error, most particles", "slope", "95% interval"]
    lines = [[*heads, "slope, total variation", "95% interval", "a perfect model's particles for that error"]]
    perfect = _curve(found, ("nbf", "tabular"), "sup_error")
    for family in _families(found):
        values = {entry.metric: entry for entry in found if (entry.filter, entry.arm) == family}
        curve = _curve(found, family, "sup_error")
        ends = [f"{cell(entry, 3)} (n = {entry.particles})" for entry in (curve[0], curve[-1])] if curve else []
        rates = []
        for metric in ("slope", "slope_tv"):
            low, high = (values.get(f"{metric}_{end}") for end in ("low", "high"))
            interval = f"{low.value:.3f} to {high.value:.3f}" if low and high else MISSING
            rates += [cell(values.get(metric), 3), interval]
        lines.append([_name(family), *(ends or [MISSING] * 2), *rates, equal_particles(perfect, curve, family)])
    return layout(lines, legend(entry.over for entry in found))


def equal_particles(perfect: list[Summary], curve: list[Summary], family: Family) -> str:
    """The particles with which the perfect model has the last error of another curve, interpolated."""
    if not perfect or not curve or family == ("nbf", "tabular"):
        return MISSING
    errors, counts = ([getattr(entry, name) for entry in perfect] for name in ("value", "particles"))
    level = curve[-1].value
    if level <= min(errors):
        return f"more than {max(counts)}"
    if level >= max(errors):
        return f"fewer than {min(counts)}"
    order = np.argsort(errors)
    count = np.exp(np.interp(np.log(level), np.log(errors)[order], np.log(counts)[order]))
    return f"{count:.0f}"


def figure(records: list[Record]) -> Figure:
    """Both errors against n, with a line of slope -1/2."""
    found = summary(records)
    drawn = Figure(figsize=(8.4, 3.6), layout="constrained")
    spare = iter(SPARE * len(found))
    colours = {family: COLOURS.get(family) or next(spare) for family in _families(found)}
    for axis, (metric, head) in zip(drawn.subplots(1, 2), METRICS.items(), strict=True):
        for family, colour in colours.items():
            curve = _curve(found, family, metric)
            if not curve:
                continue
            counts, values = (np.array([getattr(entry, name) for entry in curve]) for name in ("particles", "value"))
            errors = 1.96 * np.array([entry.se or 0.0 for entry in curve])
            axis.errorbar(counts, values, errors, marker="o", markersize=3.5, color=colour, label=_name(family))
            if family == ("nbf", "tabular"):
                rate = values[-1] * np.sqrt(counts[-1] / counts)
                axis.plot(counts, rate, ":", color=FAINT, label="slope −1/2", zorder=1)
        axis.set(xscale="log", yscale="log", xlabel="particles")
        axis.set_title(head, fontsize=10, color=INK)
        axis.set_ylim(top=1.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e4e4e4", linewidth=0.7)
    drawn.axes[0].legend(frameon=False, fontsize=8.5, labelcolor=INK)
    return drawn
