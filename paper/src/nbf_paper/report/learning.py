"""The page of learning while filtering: errors after some rounds, what they took, and after a change of the world.

| table | numbers |
|---|---|
| `learning` | Jensen-Shannon divergence (energy distance over real vectors) from the reference's posterior |
| `learning-scores` | log score of the true state |
| `learning-calls` | millions of simulator calls in all |
| `learning-changed` | the error in a world that changed |
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nbf.plot.style import FAINT, INK
from nbf_paper.names import LEARNED, LEARNED_CHANGES
from nbf_paper.records import ALL, Record, Summary, read_records, summary
from nbf_paper.report.tables import Page, markdown_table

COLOURS = {"learned": "#0072B2", "taught": "#D55E00", "changed": "#0072B2", "new world alone": "#009E73"}
NAMES = {
    "learned": "learned while filtering", "taught": "taught beforehand by as many calls", "changed": "goes on learning",
    "new world alone": "learns in the new world alone",
}  # fmt: skip
ERROR = (
    "Error of the belief: energy distance to the reference's posterior (triangulation, terrain), Jensen-Shannon "
    "divergence (8-2D-random); mean over the steps of new episodes."
)
ROUNDS = (
    "*Learned*: the neural filter of `nbf.learn` after so many rounds of 20 episodes. *Taught*: the same network, "
    "trained for as many steps on beliefs of the strongest filter of 512 calls without a network, which makes as many "
    "calls in all. *Approx Beliefs* is the ceiling, a model on samples of the reference's posterior; the prior sees no "
    "observation; the reference's own row compares two of its runs."
)
CHANGED = (
    "The error in the new world (triangulation-noise: readings with a deviation of 0.2 instead of 0.5; "
    "8-2D-random-walls: twelve obstacles of one cell instead of two of nine), by rounds of 20 episodes there. "
    "*Changed*: a run of `nbf.learn` that made six rounds in the old world first; round 0 is its filter as it came. "
    "*New world alone*: a run that began there."
)
CAPTIONS = {
    "learning": f"{ERROR} {ROUNDS}",
    "learning-scores": f"Log score of the true state, mean over the steps of new episodes. {ROUNDS}",
    "learning-calls": "Simulator calls in all, in millions: of `nbf.learn`, with the filters that it tried, and of the "
    "teacher.",
    "learning-changed": CHANGED,
    "learning.png": "Error by the calls of the simulator in all (above), and by rounds after a change of the world "
    "(below). Lines across: filters without a model, and the ceiling.",
}  # fmt: skip


def page(folder: Path) -> Page:
    """The tables and the figure of the records in a folder."""
    records = read_records(folder)
    first = [name for name in LEARNED if any(record.config == name for record in records)]
    first += sorted({r.config for r in records} - {*LEARNED, *LEARNED_CHANGES.values()})
    then = [name for name in LEARNED_CHANGES.values() if any(record.config == name for record in records)]
    tables = {}
    if first:
        tables |= {
            "learning": markdown_table(records, configs=first, metric="error"),
            "learning-scores": markdown_table(records, configs=first, metric="log_score", digits=2),
            "learning-calls": markdown_table(records, configs=first, metric="million_calls", digits=2),
        }
    if then:
        tables["learning-changed"] = markdown_table(records, configs=then, metric="error")
    figures = {"learning.png": functools.partial(figure, records, first, then)}
    return Page(tables, figures, "Learning while filtering", CAPTIONS)


def figure(records: Sequence[Record], first: Sequence[str], then: Sequence[str]) -> Figure:
    """Error against calls, a panel for each problem; and against rounds after a change."""
    columns = max(len(first), len(then), 1)
    drawn = Figure(figsize=(3.4 * columns, 5.6 if first and then else 2.9), layout="constrained")
    rows = [each for each in (first, then) if each]
    panels = drawn.subplots(len(rows), columns, squeeze=False)
    for place, names in enumerate(rows):
        for axis, name in zip(panels[place], names, strict=False):
            if names is first:
                _against_calls(axis, [r for r in records if r.config == name])
            else:
                _against_rounds(axis, [r for r in records if r.config == name])
            axis.set_title(name, fontsize=9, color=INK)
        for axis in panels[place][len(names) :]:
            axis.set_axis_off()
    for axis in (row[0] for row in panels):
        axis.legend(frameon=False, fontsize=7, labelcolor=INK)
    return drawn


def _curve(records: Iterable[Record], kind: str, metric: str) -> dict[int, Summary]:
    """What a kind of model has after each round."""
    wanted = (r for r in records if (r.filter, r.metric, r.step) == ("nbf", metric, ALL) and r.arm.startswith(kind))
    return {int(entry.row[1].rpartition(" ")[2]): entry for entry in summary(wanted)}


def _against_calls(axis: Axes, records: Sequence[Record]) -> None:
    for kind in ("learned", "taught"):
        errors, calls = _curve(records, kind, "error"), _curve(records, kind, "million_calls")
        rounds = sorted(errors.keys() & calls.keys())
        axis.errorbar(
            [calls[n].value for n in rounds], [errors[n].value for n in rounds], [errors[n].se or 0.0 for n in rounds],
            color=COLOURS[kind], marker="o", markersize=3.5, linewidth=1.4, label=NAMES[kind],
        )  # fmt: skip
    _across(axis, records)
    axis.set(xscale="log", xlabel="million simulator calls in all", ylabel="error")


def _against_rounds(axis: Axes, records: Sequence[Record]) -> None:
    for kind in ("changed", "new world alone"):
        errors = _curve(records, kind, "error")
        rounds = sorted(errors)
        axis.errorbar(
            rounds, [errors[n].value for n in rounds], [errors[n].se or 0.0 for n in rounds],
            color=COLOURS[kind], marker="o", markersize=3.5, linewidth=1.4, label=NAMES[kind],
        )  # fmt: skip
    _across(axis, records)
    axis.set(xlabel="rounds in the new world", ylabel="error")


def _across(axis: Axes, records: Sequence[Record]) -> None:
    """The prior, filters without a network of as many calls a step, and the ceiling."""
    named = {("prior", 0): "prior", ("pf", 32): "PF (32)", ("pf-regularized", 32): "regularized PF (32)",
             ("branching", 32): "Fearnhead–Clifford (32)", ("approx", 0): "ceiling"}  # fmt: skip
    wanted = (r for r in records if (r.metric, r.step) == ("error", ALL) and (r.filter, r.particles) in named)
    for style, entry in zip((":", "--", "-.", (0, (1, 3)), (0, (5, 4))), summary(wanted), strict=False):
        name = named[entry.row[0], entry.row[2]]
        axis.axhline(max(entry.value, 1e-4), color=FAINT, linewidth=0.9, linestyle=style)
        axis.annotate(name, (1.0, max(entry.value, 1e-4)), xycoords=("axes fraction", "data"), fontsize=6, color=FAINT,
                      ha="right", va="bottom")  # fmt: skip
    axis.set_yscale("log")
    axis.grid(color="#e4e4e4", linewidth=0.7)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8, color=FAINT)
