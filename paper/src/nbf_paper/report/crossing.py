"""The page of the crossing: what a call of a real simulator costs, and which filter wins at equal wall time.

Of each simulator, filters have a time and a level of error: the logarithm of the divergence to the truth, or minus the
log score of the true state. A baseline reaches the neural filter's level in a time that is interpolated between its
recorded sizes (levels, and logarithms of times). Where a call costs c more, a filter of n calls takes n c more. What a
call costs as it is, is the slope of a particle filter's time over its particles.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nbf.plot.style import FAINT, INK
from nbf_paper.names import CROSSING_SIMULATORS, TOUCH
from nbf_paper.records import ALL, Row, read_records, records_path, summary
from nbf_paper.report import simulation_cost
from nbf_paper.report.labels import FILTERS, label, row_order
from nbf_paper.report.tables import Page, layout

NAMES = {
    "8-2D-random": "Gridworld 8-2D, JAX", "8-3D-random": "Gridworld 8-3D, JAX", "triangulation": "Triangulation, JAX",
    "k=6": "Goofspiel, opponent network, JAX", "acrobot": "Acrobot, Gymnasium", "touch": "Touch, MuJoCo",
}  # fmt: skip
"""The simulators, as the table names them."""
COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00", "#D55E00")
DEAREST = 1e6
"""Cost of a call, in µs, up to which it is looked for a crossing."""
OURS = ("", "default")
"""Arms of the neural filter that are set against the others."""
CAPTIONS = {
    "crossing": (
        "Filters at equal wall time. *Others need*: the time in which the fastest baseline has NBF's score, over NBF's "
        "time, and which baseline that is; above 1 NBF wins. ≥: no baseline on record is as good, the largest counts. "
        "≤: every baseline is better, the smallest counts. *Wins from*: the cost of a call from which on NBF is "
        "faster; calls that cost more than they do here are foretold (time + calls · cost)."
    ),
    "crossing.png": (
        "By what a call costs, the time in which the best filter without a network has the score of the neural filter "
        "with the fewest calls, over its time. Dots: the simulators as they are. Lines: if their calls cost more."
    ),
}


@dataclass(frozen=True)
class Timed:
    """A filter with a simulator."""

    row: Row
    experiment: str
    calls: int
    microseconds: float
    level: float
    """Of its error; lower is better."""
    score: str
    """As a table shows it."""


def page(folder: Path) -> Page:
    """The table and the figure of the records in a folder and in those beside it."""
    found = timed_filters(folder)
    figures = {"crossing.png": functools.partial(figure, found)}
    return Page({"crossing": table(found)}, figures, "What a call costs, and which filter wins", CAPTIONS)


def timed_filters(folder: Path) -> dict[str, list[Timed]]:
    """By simulator, the filters that have both a time and a score."""
    found = {}
    home = folder.parent / "simulation-cost"
    if records_path(home).exists():
        for config, points in simulation_cost.points(read_records(home), folder.parent).items():
            if config in NAMES:
                found[config] = [
                    Timed(
                        point.row, "simulation-cost", point.calls, point.microseconds,
                        float(np.log(max(point.js, simulation_cost.LEAST))), f"JS {point.js:.3f}",
                    )
                    for point in points if not point.exact
                ]  # fmt: skip
    times = {(t.config, t.row): t for t in summary(read_records(folder)) if t.metric == "us_per_update"}
    for config in CROSSING_SIMULATORS:
        source = folder.parent / "touch" if config == TOUCH else folder
        records = read_records(source) if records_path(source).exists() else []
        told = summary(r for r in records if (r.config, r.metric, r.step) == (config, "log_score", ALL))
        mine = [
            Timed(
                entry.row, "crossing", entry.calls, times[config, entry.row].value, -entry.value, f"{entry.value:.2f}"
            )
            for entry in told if (config, entry.row) in times
        ]  # fmt: skip
        if mine:
            found[config] = mine
    return found


def call_cost(filters: Sequence[Timed]) -> float:
    """µs of a call: the slope of a particle filter's time over its particles."""
    sizes = sorted((f.calls, f.microseconds) for f in filters if f.row[0] in ("pf", "pf-kde"))
    (fewest, least), (most, longest) = sizes[0], sizes[-1]
    return (longest - least) / (most - fewest)


def others_need(own: Timed, filters: Sequence[Timed], more: float = 0.0) -> tuple[float, str, str]:
    """The time in which the fastest baseline has a filter's level, over the filter's time, if calls cost so much more:
    the ratio, its sign (`≥ ` or `≤ ` for a bound) and the kind of baseline."""
    kinds: dict[str, list[Timed]] = {}
    for other in filters:
        if other.row[0] != "nbf":
            kinds.setdefault(FILTERS[other.row[0]], []).append(other)
    found = []
    for kind, each in kinds.items():
        ordered = sorted(each, key=lambda other: other.calls)
        levels = np.minimum.accumulate([other.level for other in ordered])
        times = np.log([other.microseconds + other.calls * more for other in ordered])
        sign = "≥ " if own.level < levels[-1] else "≤ " if own.level > levels[0] else ""
        needed = np.exp(np.interp(own.level, levels[::-1], times[::-1]))
        found.append((sign == "≥ ", float(needed) / (own.microseconds + own.calls * more), sign, kind))
    # One that reaches the level is faster than one that does not, however long that takes.
    _, ratio, sign, kind = min(found)
    return ratio, sign, kind


def wins_from(own: Timed, filters: Sequence[Timed]) -> str:
    """The cost of a call from which on a filter is ahead of all baselines, as text."""
    here = call_cost(filters)
    more = np.concatenate([[0.0], np.geomspace(1e-3, DEAREST, 400)])
    ahead = np.array([others_need(own, filters, cost)[0] >= 1.0 for cost in more])
    if not ahead[-1]:
        return "never"
    last = int(np.flatnonzero(~ahead)[-1]) + 1 if not ahead.all() else 0
    return "here" if last == 0 else f"{here + more[last]:.2g} µs"


def _ours(filters: Sequence[Timed]) -> list[Timed]:
    """The neural filters that are set against the others, fewest calls first."""
    return sorted((f for f in filters if f.row[0] == "nbf" and f.row[1] in OURS), key=lambda own: row_order(own.row))


def table(found: Mapping[str, Sequence[Timed]]) -> str:
    """One line for each neural filter with each simulator."""
    lines = [["Simulator", "µs a call", "Filter", "µs an update", "score", "others need", "which", "wins from"]]
    for config, filters in found.items():
        for own in _ours(filters):
            ratio, sign, kind = others_need(own, filters)
            lines.append([
                NAMES[config], f"{call_cost(filters):.3g}", label(*own.row, own.experiment, [config]),
                f"{own.microseconds:.0f}", own.score, f"{sign}{ratio:.2g}", kind, wins_from(own, filters),
            ])  # fmt: skip
    return layout(lines)


def figure(found: Mapping[str, Sequence[Timed]]) -> Figure:
    """Who wins, against what a call costs: a line for each simulator, a dot where it is."""
    drawn = Figure(figsize=(7.2, 4.4), layout="constrained")
    axis = drawn.subplots()
    for colour, (config, filters) in zip(COLOURS, found.items(), strict=False):
        own, here = _ours(filters)[0], call_cost(filters)
        more = np.geomspace(max(here, 1e-3) * 1e-2, 1e4, 120)
        ratios = [others_need(own, filters, cost)[0] for cost in more]
        axis.plot(here + more, ratios, color=colour, linewidth=1.4, label=f"{NAMES[config]}, NBF ({own.row[2]})")
        axis.plot([here], [others_need(own, filters)[0]], "o", color=colour, markersize=6)
    axis.axhline(1.0, color=INK, linewidth=0.8)
    axis.set(xscale="log", yscale="log", xlabel="µs a call", ylabel="time that others need / time of NBF")
    axis.grid(color="#e4e4e4", linewidth=0.7)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8, color=FAINT)
    drawn.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8.5, labelcolor=INK)
    return drawn
