"""The page of simulation cost: the cost of a simulator call above which a neural filter is a better use of time than
any particle filter.

Times are the records of `simulation-cost`, divergences those of the other experiments. A baseline needs n* particles
for the neural filter's divergence, interpolated between recorded sizes (both logarithmic). The neural filter is faster
once a call costs more than the c that solves

    time_NBF + calls_NBF · c = time_PF(n*) + calls_PF(n*) · c.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from nbf.plot.style import FAINT, INK
from nbf_paper.names import LONG_ENDING, TRIANGULATION, domain_of
from nbf_paper.records import ALL, Over, Record, RecordError, Row, Summary, read_records, records_path, summary
from nbf_paper.report.beyond import exact_cells
from nbf_paper.report.labels import FILTERS, label, row_order
from nbf_paper.report.tables import MISSING, Page, layout, legend, marks, one_among_several

BASELINES = {("pf", ""): "#0072B2", ("pf-kde", ""): "#56B4E9", ("branching", "branches chosen"): "#444444"}
"""Filters and arms that neural filters are set against, with their colours."""
EXPERIMENT = "simulation-cost"
LEAST = 4e-4
"""Replaces a divergence of zero, which has no logarithm; a table shows it as 0.000."""
COSTS = (0.0, 100.0, 10_000.0)
"""Costs of a call in µs: the columns of the figure, after the one of calls."""
NEURAL = ("#D55E00", "#E69F00", "#CC79A7", "#009E73", "#8C6D1F", "#6A51A3", "#B2182B")
"""One for each arm."""


def name_of(config: str) -> str:
    """A configuration with its experiment."""
    experiment = domain_of(config).capitalize()
    return experiment if config == TRIANGULATION else f"{experiment} {config}"


@dataclass(frozen=True)
class Point:
    """A filter: its divergence, time and calls."""

    row: Row
    js: float
    se: float
    microseconds: float
    """Time of an update without a cost of calls."""
    calls: int
    over: Over = ""
    """What `se` covers."""
    exact: bool = False
    """Whether it is so without its model."""

    def time(self, cost: float) -> float:
        """µs of an update when a call costs so many µs."""
        return self.microseconds + self.calls * cost


def page(folder: Path) -> Page:
    """The tables and the figure of the records in a folder and in those beside it."""
    records = read_records(folder)
    found = points(records, folder.parent)
    captions = {
        "simulation-cost": "From which cost of a simulator's call on a neural filter is closer to the truth than any "
        "particle filter that takes as much time.",
        "equal-time": "Neural filters beside particle filters (PF) and those that choose branches (FC) of as many "
        "calls, and of as much time where calls cost nothing more.",
        "simulation-cost-check": "Time of an update with a simulator that really is slow, and time without it plus "
        "calls times cost.",
        "simulation-cost.png": "Divergence against calls of the simulator, and against time of an update for three "
        "costs of a call: the more one costs, the more the time is that of the calls alone.",
    }
    return Page(
        {
            "simulation-cost": table(found),
            "equal-time": equal_table(found),
            "simulation-cost-check": check_table(records),
        },
        {"simulation-cost.png": functools.partial(figure, found)},
        title="The cost of simulation",
        captions=captions,
    )


def points(records: Sequence[Record], results: Path) -> dict[str, list[Point]]:
    """By configuration, the filters that have both a time and a divergence. Updates take the same time in long and
    short episodes."""
    times = {(entry.config, entry.row): entry for entry in summary(records) if entry.metric == "us_per_update"}
    times |= {(f"{config}{LONG_ENDING}", row): entry for (config, row), entry in times.items()}
    configs = sorted({config for config, _ in times})
    beyond = results / "beyond"
    means = {source: _divergences(source) for source in {beyond, *(results / domain_of(config) for config in configs)}}
    exact, found = exact_cells(means[beyond]), {}
    for config in configs:
        own = results / domain_of(config)
        mine: dict[Row, Point] = {}
        for source in (own, beyond):
            for entry in means[source]:
                row, time = entry.row, times.get((config, entry.row))
                told = source == own or row[:2] == ("nbf", "default") or row[:2] in BASELINES
                if entry.config == config and time is not None and told:
                    # Where both have a record, that of the domain's own experiment counts.
                    point = Point(row, entry.value, entry.se or 0.0, time.value, entry.calls, entry.over)
                    mine.setdefault(row, replace(point, exact=source == beyond and (row, config) in exact))
        if mine:
            found[config] = list(mine.values())
    if not found:
        raise RecordError(
            f"No filter has both a time and a divergence in {results}: record the experiments that are timed and then "
            "`nbf-paper reproduce simulation-cost`."
        )
    return {config: sorted(each, key=lambda point: row_order(point.row)) for config, each in found.items()}


def _divergences(source: Path) -> list[Summary]:
    """The mean divergences of a folder of records; none if it has none."""
    records = read_records(source) if records_path(source).exists() else []
    return summary(record for record in records if (record.metric, record.step) == ("js", ALL))


def break_even(own: Point, baselines: Sequence[Point]) -> str:
    """The cost of a call above which a filter beats all baselines of one kind at equal time, as text for a table.

    If its divergence is outside the range of the baselines, the answer is a bound, from the nearest of them.
    """
    if not baselines:
        return MISSING
    ordered = sorted(baselines, key=lambda point: point.calls)
    calls = np.array([point.calls for point in ordered], float)
    spent = np.array([point.microseconds for point in ordered])
    js = np.minimum.accumulate([max(point.js, LEAST) for point in ordered])
    level = max(own.js, LEAST)
    sign = "≤ " if level < js[-1] else "≥ " if level > js[0] else ""
    # Ascending for `interp`, which clamps at the ends; among equal divergences the fewest calls count.
    needed = float(np.exp(np.interp(np.log(level), np.log(js[::-1]), np.log(calls[::-1]))))
    if needed <= own.calls:
        return "never"
    cost = (own.microseconds - float(np.interp(needed, calls, spent))) / (needed - own.calls)
    if cost <= 0.0:
        return "0" if sign != "≥ " else "≥ 0"
    return f"{sign}{cost:.3g} µs"


def table(found: Mapping[str, Sequence[Point]]) -> str:
    """One line for each neural filter of each configuration."""
    heads = ["Configuration", "Filter", "JS", "µs without cost", "calls"]
    lines = [[*heads, *(f"better than any {FILTERS[baseline]} from" for baseline, _ in BASELINES)]]
    shown = [(config, point) for config, each in found.items() for point in each if point.row[0] == "nbf"]
    mixed = one_among_several(point.over for _, point in shown)
    for config, point in shown:
        baselines = [[other for other in found[config] if other.row[:2] == baseline] for baseline in BASELINES]
        js = f"{point.js:.3f} ± {point.se:.3f}{marks(point.over, mixed=mixed, exact=point.exact)}"
        numbers = [js, f"{point.microseconds:.0f}", f"{point.calls}"]
        lines.append(
            [name_of(config), _label(config, point), *numbers, *(break_even(point, some) for some in baselines)]
        )
    return layout(lines, legend((point.over for _, point in shown), exact=any(point.exact for _, point in shown)))


def _label(config: str, point: Point) -> str:
    return label(*point.row, EXPERIMENT, [config])


def baseline_js(baselines: Sequence[Point], price: Callable[[Point], float], spent: float) -> str:
    """The divergence of a baseline at some price, interpolated between those on record (both in logs), or a bound."""
    if not baselines:
        return MISSING
    ordered = sorted(baselines, key=price)
    prices, js = np.log([price(point) for point in ordered]), [point.js for point in ordered]
    sign = "≤ " if np.log(spent) > prices[-1] else "≥ " if np.log(spent) < prices[0] else ""
    return f"{sign}{np.exp(np.interp(np.log(spent), prices, np.log(np.maximum(js, LEAST)))):.3f}"


def equal_table(found: Mapping[str, Sequence[Point]]) -> str:
    """The paper's filters and the default ones beside particle filters, and those that select branches (FC), at the
    same number of calls and the same time."""
    heads = ["Configuration", "Filter", "calls", "µs", "JS"]
    lines = [[*heads, "PF, equal calls", "PF, equal time", "FC, equal calls", "FC, equal time"]]
    chosen = ("nbf", "faithful"), ("nbf", "default")
    for config, each in found.items():
        kind = "pf-kde" if any(point.row[0] == "pf-kde" for point in each) else "pf"
        kinds = [[point for point in each if point.row[0] == name] for name in (kind, "branching")]
        for point in each:
            if point.row[:2] in chosen:
                js = f"{point.js:.3f}{marks(point.over, exact=point.exact)}"
                cells = [f"{point.calls}", f"{point.microseconds:.0f}", js]
                for baselines in kinds:
                    cells.append(baseline_js(baselines, lambda baseline: baseline.calls, float(point.calls)))
                    cells.append(baseline_js(baselines, lambda baseline: baseline.microseconds, point.microseconds))
                lines.append([name_of(config), _label(config, point), *cells])
    return layout(lines, legend([], exact=any(p.exact for each in found.values() for p in each if p.row[:2] in chosen)))


def check_table(records: Sequence[Record]) -> str:
    """Times measured with a really slow simulator, and predicted."""
    lines = [["Configuration", "Filter", "µs a call", "µs an update, measured", "foretold", "ratio"]]
    entries = {(entry.config, entry.row, entry.metric): entry for entry in summary(records)}
    for (config, row, metric), entry in sorted(entries.items(), key=lambda item: (item[0][0], row_order(item[0][1]))):
        plain = entries.get((config, row, "us_per_update"))
        if metric == "us_per_update" or plain is None:
            continue
        cost = float(metric.removeprefix("us_per_update_").removesuffix("us"))
        foretold = plain.value + entry.calls * cost
        numbers = f"{cost:.0f}", f"{entry.value:.0f}", f"{foretold:.0f}", f"{entry.value / foretold:.3f}"
        lines.append([name_of(config), label(*row, EXPERIMENT, [config]), *numbers])
    return layout(lines)


def figure(found: Mapping[str, Sequence[Point]]) -> Figure:
    """Divergence against calls and time: a row for each configuration, a column for the calls and for each cost."""
    drawn = Figure(figsize=(2.6 * (len(COSTS) + 1), 2.5 * len(found) + 0.9), layout="constrained")
    axes = drawn.subplots(len(found), len(COSTS) + 1, squeeze=False, sharey="row")
    arms = sorted({point.row[1] for each in found.values() for point in each if point.row[0] == "nbf"})
    arms.sort(key=lambda arm: row_order(("nbf", arm, 0)))
    colours = {("nbf", arm): NEURAL[place % len(NEURAL)] for place, arm in enumerate(arms)}
    colours |= BASELINES
    names = {
        family: label(
            *family, 0, EXPERIMENT, [c for c, each in found.items() if any(p.row[:2] == family for p in each)]
        )
        for family in colours
    }
    handles = {}
    for line, (config, each) in zip(axes, found.items(), strict=True):
        for axis, cost in zip(line, (None, *COSTS), strict=True):
            for family, colour in colours.items():
                mine = sorted((p for p in each if p.row[:2] == family), key=lambda point: point.calls)
                if mine:
                    times, values = [p.calls if cost is None else p.time(cost) for p in mine], [p.js for p in mine]
                    (handles[names[family]],) = axis.plot(times, values, "o-", color=colour, markersize=3.5)
            axis.set(xscale="log")
            if cost == 0.0:  # hardly more than one power of ten
                axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.xaxis.set_minor_formatter(NullFormatter())
            axis.grid(color="#e4e4e4", linewidth=0.7)
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(labelsize=8, color=FAINT)
        line[0].set_ylabel(f"{name_of(config)}\nJS (nats)", fontsize=9, color=INK)
        line[0].set_ylim(bottom=0)
    for axis, cost in zip(axes[0][1:], COSTS, strict=True):
        axis.set_title(_cost(cost), fontsize=10, color=INK)
    for axis, told in zip(axes[-1], ("calls of an update", *["µs of an update"] * len(COSTS)), strict=True):
        axis.set_xlabel(told, fontsize=9, color=INK)
    drawn.legend(
        handles.values(), handles, loc="outside upper center", ncols=3, frameon=False, fontsize=8.5, labelcolor=INK
    )
    return drawn


def _cost(microseconds: float) -> str:
    if microseconds == 0.0:
        return "a call costs nothing more"
    return f"{microseconds / 1000:g} ms a call" if microseconds >= 1000 else f"{microseconds:g} µs a call"
