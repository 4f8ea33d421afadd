"""The page of the crossing: what a call of a real simulator costs, and which filter wins at equal wall time.

| table | numbers |
|---|---|
| `crossing` | what a call costs, an update's time, a score, and from which cost of a call on NBF wins |
| `crossing-leads` | NBF's score against that of the best baseline that takes as long, for several costs of a call |
| `crossing-factors` | the time in which a baseline has NBF's score, over NBF's time, for the same costs |
| `acrobot`, `acrobot-distance`, `acrobot-lost`, `acrobot-leads` | the scores of the acrobot's filters, as of touch |

Of each simulator, filters have a time and a level of error: the logarithm of a divergence or a distance to the truth,
or minus the log score of the true state. What a baseline has between its recorded sizes is interpolated (levels, and
logarithms of times). Where a call costs c more, a filter of n calls takes n c more. What a call costs as it is, is the
slope of a particle filter's time over its particles.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from nbf.plot.style import FAINT, INK
from nbf_paper.names import ACROBOT, CROSSING_SIMULATORS, TIMES_ENDING, TOUCH
from nbf_paper.records import ALL, Row, read_records, records_path, summary
from nbf_paper.report import simulation_cost, touch
from nbf_paper.report.labels import FILTERS, label, row_order
from nbf_paper.report.tables import Page, layout

NAMES = {
    "8-2D-random": "Gridworld 8-2D, JAX", "8-3D-random": "Gridworld 8-3D, JAX", "triangulation": "Triangulation, JAX",
    "k=6": "Goofspiel, opponent network, JAX", "acrobot": "Acrobot, Gymnasium", "touch": "Touch, MuJoCo",
}  # fmt: skip
"""The simulators, as the tables name them."""
COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00", "#D55E00")
MEASURES = {"log_score": ("log score", 2), "energy": ("energy distance", 3)}
"""Measures of simulators that have no exact truth: their names and digits."""
JS = "JS"
"""The measure of the others."""
COSTS = (100, 1000)
"""Costs of a call, in µs, for which it is said who wins."""
DEAREST = 1e6
"""Cost of a call, in µs, up to which it is looked for a crossing."""
NEAR = 1.05
"""Times that differ by less are equal."""
OURS = ("", "default")
"""Arms of the neural filter that are set against the others."""
MORE = (
    "For calls that cost more than they do here, times are foretold (time + calls · cost); – where they cost more now."
)
CAPTIONS = {
    "crossing": (
        "Simulators, and filters with a time and a score. *Wins from*: the cost of a call from which on NBF has a "
        "better mean score than every baseline that takes as long, whatever the errors are."
    ),
    "crossing-leads": (
        "NBF against the best baseline that takes as long. Log score: NBF's less the baseline's, ± the error of both "
        "as if they had not seen the same episodes, which is too large. JS and energy distance: the baseline's over "
        "NBF's, and in brackets where it ends for one such error; above 1 NBF wins. ≤: the baseline's largest size on "
        f"record takes less time. {MORE}"
    ),
    "crossing-factors": (
        "The time in which the fastest baseline on record has NBF's score, over NBF's time; above 1 NBF wins. ≥: none "
        "on record is as good, the largest counts. ≤: every one is better, the smallest counts; or one that is better "
        f"at equal time ends on record before it is as good. {MORE}"
    ),
    "crossing.png": (
        "By what a call costs, the time in which the fastest baseline on record has the score of the neural filter "
        "with the fewest calls, over its time. Dots: the simulators as they are. Lines: if their calls cost more. "
        "Bands: if the neural filter were better or worse by one standard error of both."
    ),
}


class Simulator(NamedTuple):
    """A simulator, and by what its filters are scored."""

    config: str
    measure: str


@dataclass(frozen=True)
class Timed:
    """A filter with a simulator."""

    row: Row
    experiment: str
    calls: int
    microseconds: float
    level: float
    """Of its error; lower is better."""
    error: float
    """Standard error of the level."""
    score: str
    """As a table shows it."""


class Equal(NamedTuple):
    """The best baseline that takes as long as a filter."""

    level: float
    error: float
    kind: str
    bound: bool
    """Whether its largest size on record takes less time."""


def page(folder: Path) -> Page:
    """The tables and figures of the records in a folder and in those beside it."""
    found, records = timed_filters(folder), read_records(folder)
    tables, figures, captions = {}, {}, {}
    if found:
        tables = {
            "crossing": table(found),
            "crossing-leads": lead_table(found),
            "crossing-factors": factor_table(found),
        }
        figures, captions = {"crossing.png": functools.partial(figure, found)}, dict(CAPTIONS)
    if any((record.config, record.metric) == (ACROBOT, "log_score") for record in records):
        scored = touch.scores(records, ACROBOT)
        tables |= scored.tables
        figures |= scored.figures
        captions |= scored.captions
    return Page(tables, figures, "What a call costs, and which filter wins", captions)


def timed_filters(folder: Path) -> dict[Simulator, list[Timed]]:
    """By simulator and measure, the filters that have both a time and a score."""
    found: dict[Simulator, list[Timed]] = {}
    home = folder.parent / "simulation-cost"
    if records_path(home).exists():
        for config, points in simulation_cost.points(read_records(home), folder.parent).items():
            if config in NAMES:
                found[Simulator(config, JS)] = [_of_point(point) for point in points if not point.exact]
    times = {(t.config, t.row): t.value for t in summary(read_records(folder)) if t.metric == "us_per_update"}
    for config in CROSSING_SIMULATORS:
        source = folder.parent / TOUCH if config == TOUCH else folder
        records = read_records(source) if records_path(source).exists() else []
        for measure, (_, digits) in MEASURES.items():
            told = summary(r for r in records if (r.config, r.metric, r.step) == (config, measure, ALL))
            mine = []
            for entry in told:
                spent, error = times.get((f"{config}{TIMES_ENDING}", entry.row)), entry.se or 0.0
                level = (-entry.value, error) if measure == "log_score" else _logarithm(entry.value, error)
                if spent is not None:
                    score = f"{entry.value:.{digits}f} ± {error:.{digits}f}"
                    mine.append(Timed(entry.row, "crossing", entry.calls, spent, *level, score))
            if mine:
                found[Simulator(config, measure)] = mine
    return found


def _of_point(point: simulation_cost.Point) -> Timed:
    level = _logarithm(point.js, point.se)
    score = f"{point.js:.3f} ± {point.se:.3f}"
    return Timed(point.row, "simulation-cost", point.calls, point.microseconds, *level, score)


def _logarithm(value: float, error: float) -> tuple[float, float]:
    """Of a distance, and its error."""
    least = max(value, simulation_cost.LEAST)
    return float(np.log(least)), error / least


def call_cost(filters: Sequence[Timed]) -> float:
    """µs of a call: the slope of a particle filter's time over its particles."""
    sizes = sorted((f.calls, f.microseconds) for f in filters if f.row[0] in ("pf", "pf-kde"))
    (fewest, least), (most, longest) = sizes[0], sizes[-1]
    return (longest - least) / (most - fewest)


# --- NBF against the others --------------------------------------------------------------------------


def _curves(filters: Sequence[Timed], more: float) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Of each kind of baseline, by size: the logarithm of its time if calls cost so much more, the best level up to
    there, and the error of that."""
    kinds: dict[str, list[Timed]] = {}
    for other in filters:
        if other.row[0] != "nbf":
            kinds.setdefault(FILTERS[other.row[0]], []).append(other)
    for kind, each in kinds.items():
        ordered = sorted(each, key=lambda other: other.calls)
        best = [min(ordered[: place + 1], key=lambda other: other.level) for place in range(len(ordered))]
        times = np.log([other.microseconds + other.calls * more for other in ordered])
        yield kind, np.maximum.accumulate(times), np.array([b.level for b in best]), np.array([b.error for b in best])


def equal_time(own: Timed, filters: Sequence[Timed], more: float = 0.0) -> Equal:
    """The best baseline that takes as long as a filter, if calls cost so much more. One whose smallest size takes
    longer counts with that."""
    spent = np.log(own.microseconds + own.calls * more)
    found = []
    for kind, times, levels, errors in _curves(filters, more):
        level, error = float(np.interp(spent, times, levels)), float(np.interp(spent, times, errors))
        found.append(Equal(level, error, kind, bool(spent > times[-1] + np.log(NEAR))))
    return min(found)


def others_need(own: Timed, filters: Sequence[Timed], more: float = 0.0) -> tuple[float, str, str]:
    """The time in which the fastest baseline has a filter's level, over the filter's time, if calls cost so much more:
    the ratio, its sign (`≥ ` or `≤ ` for a bound) and the kind of baseline."""
    spent, curves = own.microseconds + own.calls * more, list(_curves(filters, more))
    found = []
    for kind, times, levels, _ in curves:
        sign = "≥ " if own.level < levels[-1] else "≤ " if own.level > levels[0] else ""
        needed = np.exp(np.interp(own.level, levels[::-1], times[::-1]))
        found.append((sign == "≥ ", float(needed) / spent, sign, kind, (times, levels)))
    # One that reaches the level on record counts before one that does not.
    short, ratio, sign, kind, (times, levels) = min(found, key=lambda each: each[:2])
    if not short and any(
        own.level < others[-1] < np.interp(ends[-1], times, levels) for _, ends, others, _ in curves
    ):  # fmt: skip
        sign = "≤ "
    return ratio, sign, kind


def wins_from(own: Timed, filters: Sequence[Timed]) -> str:
    """The cost of a call from which on a filter is better than all baselines that take as long, as text."""
    here = call_cost(filters)
    more = np.concatenate([[0.0], np.geomspace(1e-3, DEAREST, 400)])
    ahead = np.array([own.level < equal_time(own, filters, cost).level for cost in more])
    if not ahead[-1]:
        return "never"
    last = int(np.flatnonzero(~ahead)[-1]) + 1 if not ahead.all() else 0
    return "here" if last == 0 else f"{significant(here + more[last])} µs"


def lead(own: Timed, filters: Sequence[Timed], measure: str, more: float) -> str:
    """A filter's score against that of the best baseline that takes as long, as text."""
    other = equal_time(own, filters, more)
    ahead, error, sign = other.level - own.level, float(np.hypot(own.error, other.error)), "≤ " if other.bound else ""
    if measure == "log_score":
        return f"{sign}{ahead:+.2f} ± {error:.2f}, {other.kind}"
    ratio, low, high = (significant(float(np.exp(ahead + shift))) for shift in (0.0, -error, error))
    return f"{sign}{ratio} ({low}–{high}), {other.kind}"


def factor(own: Timed, filters: Sequence[Timed], more: float) -> str:
    """The time that others need for a filter's score over its own, as text."""
    ratio, sign, kind = others_need(own, filters, more)
    return f"{sign}{significant(ratio)}, {kind}"


def significant(value: float) -> str:
    """A number above 0 with two significant digits, or all those before the point."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


# --- what is shown -----------------------------------------------------------------------------------


def _ours(filters: Sequence[Timed]) -> list[Timed]:
    """The neural filters that are set against the others, fewest calls first."""
    return sorted((f for f in filters if f.row[0] == "nbf" and f.row[1] in OURS), key=lambda own: row_order(own.row))


def _named(simulator: Simulator, own: Timed) -> list[str]:
    measure = JS if simulator.measure == JS else MEASURES[simulator.measure][0]
    return [NAMES[simulator.config], label(*own.row, own.experiment, [simulator.config]), measure]


def table(found: Mapping[Simulator, Sequence[Timed]]) -> str:
    """One line for each neural filter with each simulator and measure."""
    lines = [["Simulator", "Filter", "Measure", "µs a call", "µs an update", "score", "wins from"]]
    for simulator, filters in found.items():
        lines += [
            [
                *_named(simulator, own), significant(call_cost(filters)), f"{own.microseconds:.0f}", own.score,
                wins_from(own, filters),
            ]
            for own in _ours(filters)
        ]  # fmt: skip
    return layout(lines, "± is one standard error, over training seeds and episodes where there are several seeds.")


def _by_cost(found: Mapping[Simulator, Sequence[Timed]], cell) -> list[list[str]]:
    """Lines of a table: as simulators are, and for each cost."""
    lines = [["Simulator", "Filter", "Measure", "as it is", *(f"{cost} µs a call" for cost in COSTS)]]
    for simulator, filters in found.items():
        here = call_cost(filters)
        more = [0.0, *(cost - here if cost >= here else None for cost in COSTS)]
        for own in _ours(filters):
            cells = ["–" if extra is None else cell(own, filters, simulator.measure, extra) for extra in more]
            lines.append([*_named(simulator, own), *cells])
    return lines


def lead_table(found: Mapping[Simulator, Sequence[Timed]]) -> str:
    """Who has the better score at equal time."""
    return layout(_by_cost(found, lead), "± and brackets: one standard error.")


def factor_table(found: Mapping[Simulator, Sequence[Timed]]) -> str:
    """How much longer others take for the same score."""
    return layout(_by_cost(found, lambda own, filters, measure, more: factor(own, filters, more)))


def figure(found: Mapping[Simulator, Sequence[Timed]]) -> Figure:
    """Who wins, against what a call costs: a line for each simulator, a dot where it is; scored by JS or log score."""
    drawn = Figure(figsize=(7.2, 4.4), layout="constrained")
    axis = drawn.subplots()
    shown = {simulator.config: each for simulator, each in found.items() if simulator.measure in (JS, "log_score")}
    for config, filters in shown.items():
        own, here = _ours(filters)[0], call_cost(filters)
        colour = COLOURS[list(NAMES).index(config)]
        more = np.geomspace(max(here, 1e-3) * 1e-2, 1e4, 120)
        errors = [float(np.hypot(own.error, equal_time(own, filters, cost).error)) for cost in more]
        worse, ratios, better = (
            [
                others_need(replace(own, level=own.level + side * error), filters, cost)[0]
                for cost, error in zip(more, errors, strict=True)
            ]
            for side in (1, 0, -1)
        )
        axis.fill_between(here + more, worse, better, color=colour, alpha=0.13, linewidth=0)
        axis.plot(here + more, ratios, color=colour, linewidth=1.4, label=f"{NAMES[config]}, NBF ({own.row[2]})")
        axis.plot([here], [others_need(own, filters)[0]], "o", color=colour, markersize=6)
    axis.axhline(1.0, color=INK, linewidth=0.8)
    axis.set(xscale="log", yscale="log", xlabel="µs a call", ylabel="time that others need / time of NBF")
    axis.grid(color="#e4e4e4", linewidth=0.7)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8, color=FAINT)
    drawn.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8.5, labelcolor=INK)
    return drawn
