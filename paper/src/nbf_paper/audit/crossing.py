"""Tables of the crossing: neural filters beside baselines of equal time, for several costs of a call."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nbf_paper.audit.arithmetic import MISSING, Derived, interpolated, mean_cell
from nbf_paper.audit.documents import Printed
from nbf_paper.audit.grids import Answer, missing
from nbf_paper.audit.meaning import FILTERS, key_of
from nbf_paper.audit.prices import LEAST, filters
from nbf_paper.audit.sources import Book, Key, Line

CONFIGS = {
    "Gridworld 8-2D, JAX": "8-2D-random", "Gridworld 8-3D, JAX": "8-3D-random",
    "Goofspiel, opponent network, JAX": "k=6", "Triangulation, JAX": "triangulation",
    "Acrobot, Gymnasium": "acrobot", "Touch, MuJoCo": "touch",
}  # fmt: skip
"""The simulators of the tables."""
SCORED_BY = {"acrobot": "crossing", "touch": "touch"}
"""Simulators without an exact truth, and the experiments that have their scores."""
METRICS = {"log score": ("log_score", 2), "energy distance": ("energy", 3)}
AS_IT_IS = "as it is"
DEAREST, NEAR = 1e6, 1.05


@dataclass(frozen=True)
class Competitor:
    """A filter with its time and the level of its error."""

    key: Key
    calls: int
    time: float
    level: float
    error: float
    score: Derived
    lines: tuple[Line, ...]


Group = list[Competitor]


def _competitors(book: Book, config: str, measure: str) -> Group:
    if config not in SCORED_BY:
        found = []
        for each in filters(book, config):
            value, error = _mean(each.lines)
            if not each.exact:
                level = math.log(max(value, LEAST)), error / max(value, LEAST)
                score = _score(each.lines, 3)
                found.append(
                    Competitor(each.key, each.calls, each.microseconds, *level, score, (*each.lines, each.time))
                )
        return found
    (metric, digits), experiment, found = METRICS[measure], SCORED_BY[config], []
    for key in sorted({line.key for line in book.lines("crossing") if line.config == f"{config}-times"}):
        times = book.group("crossing", key, f"{config}-times", "us_per_update")
        lines = book.group(experiment, key, config, metric)
        if times and lines:
            value, error = _mean(lines)
            level = (
                (-value, error) if metric == "log_score" else (math.log(max(value, LEAST)), error / max(value, LEAST))
            )
            calls = round(statistics.fmean(line.calls for line in lines))
            time = statistics.fmean(line.value for line in times)
            found.append(Competitor(key, calls, time, *level, _score(lines, digits), (*lines, *times)))
    return found


def _mean(lines: Sequence[Line]) -> tuple[float, float]:
    cell = mean_cell(lines, 3)
    return cell.numbers[0][0], cell.numbers[1][0] if len(cell.numbers) > 1 else 0.0


def _score(lines: Sequence[Line], digits: int) -> Derived:
    """Mean and error, without a mark."""
    value, error = _mean(lines)
    return Derived("{} ± {}", ((value, f".{digits}f"), (error, f".{digits}f")), "mean over seeds", tuple(lines))


def _cost(group: Group) -> float:
    """µs of a call: the slope of the particle filters' times from the smallest to the largest."""
    plain = sorted((each.calls, each.time) for each in group if each.key[0] in ("pf", "pf-kde"))
    return (plain[-1][1] - plain[0][1]) / (plain[-1][0] - plain[0][0])


def _kinds(group: Group, more: float) -> dict[str, list[tuple[float, float, float]]]:
    """Of each kind of baseline: log time, best level so far and its error, by calls."""
    names = {short: name for name, short in FILTERS.items()}
    kinds: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for each in sorted(group, key=lambda each: each.calls):
        if each.key[0] != "nbf":
            curve = kinds[names[each.key[0]]]
            time, best = math.log(each.time + each.calls * more), (each.level, each.error)
            if curve:
                time, best = max(time, curve[-1][0]), best if best[0] < curve[-1][1] else curve[-1][1:]
            curve.append((time, *best))
    return dict(kinds)


def _at(time: float, curve: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    times = [each[0] for each in curve]
    level, error = (interpolated(time, times, [each[place] for each in curve]) for place in (1, 2))
    return level, error


def _equal(own: Competitor, group: Group, more: float) -> tuple[float, float, str, bool]:
    spent = math.log(own.time + own.calls * more)
    found = [
        (*_at(spent, curve), kind, spent > curve[-1][0] + math.log(NEAR))
        for kind, curve in _kinds(group, more).items()
    ]  # fmt: skip
    return min(found)


def _form(value: float) -> str:
    return ".0f" if value >= 9.95 else ".1f" if value >= 0.995 else ".2f"


def _lead(own: Competitor, group: Group, measure: str, more: float) -> Derived:
    level, error, kind, bound = _equal(own, group, more)
    sign, spread = "≤ " if bound else "", math.hypot(own.error, error)
    formula, lines = f"levels {level:.5g} - {own.level:.5g} at equal time, error {spread:.5g}", own.lines
    if measure == "log score":
        numbers = (level - own.level, "+.2f"), (spread, ".2f")
        return Derived(f"{sign}{{}} ± {{}}, {kind}", numbers, formula, lines)
    ratios = [math.exp(level - own.level + shift) for shift in (0.0, -spread, spread)]
    numbers = tuple((ratio, _form(ratio)) for ratio in ratios)
    # An en dash is no part of a number: the ends of the bracket are told apart by it.
    return Derived(f"{sign}{{}} ({{}}–{{}}), {kind}", numbers, formula, lines)


def _factor(own: Competitor, group: Group, measure: str, more: float) -> Derived:
    spent, kinds = own.time + own.calls * more, _kinds(group, more)
    reached: list[tuple[bool, float, str, str]] = []
    for kind, curve in kinds.items():
        falling = [(each[1], each[0]) for each in reversed(curve)]
        levels, times = [each[0] for each in falling], [each[1] for each in falling]
        # Among equal levels the smallest size counts.
        kept = [place for place in range(len(levels)) if place + 1 == len(levels) or levels[place] < levels[place + 1]]
        time = interpolated(own.level, [levels[place] for place in kept], [times[place] for place in kept])
        sign = "≥ " if own.level < levels[0] else "≤ " if own.level > levels[-1] else ""
        reached.append((sign == "≥ ", math.exp(time) / spent, sign, kind))
    short, ratio, sign, kind = min(reached)
    for curve in kinds.values():
        end, best, _ = curve[-1]
        if not short and own.level < best < _at(end, kinds[kind])[0]:
            sign = "≤ "
    return Derived(f"{sign}{{}}, {kind}", ((ratio, _form(ratio)),), "log times between the recorded sizes", own.lines)


def _wins_from(own: Competitor, group: Group) -> Derived:
    """The first of 401 costs from which on the mean is better than every baseline's at equal time."""
    costs = [0.0] + [10 ** (-3 + place * (math.log10(DEAREST) + 3) / 399) for place in range(400)]
    behind = [place for place, more in enumerate(costs) if own.level >= _equal(own, group, more)[0]]
    if not behind:
        return Derived("here", lines=own.lines)
    if behind[-1] == len(costs) - 1:
        return Derived("never", lines=own.lines)
    cost = _cost(group) + costs[behind[-1] + 1]
    return Derived("{} µs", ((cost, _form(cost)),), "by trying costs of a call", own.lines)


def crossing(book: Book, table: Printed) -> Answer:
    """What a call costs, and from where on a filter wins."""

    def cells(own: Competitor, group: Group, measure: str) -> dict[str, Derived]:
        cost = _cost(group)
        return {
            "µs a call": Derived("{}", ((cost, _form(cost)),), "slope of the particle filters' times", own.lines),
            "µs an update": Derived("{}", ((own.time, ".0f"),), "as recorded", own.lines),
            "score": own.score, "wins from": _wins_from(own, group),
        }  # fmt: skip

    return _answer(book, table, cells)


def _by_cost(cell: Callable[[Competitor, Group, str, float], Derived]) -> Callable[[Book, Printed], Answer]:
    """The rule of a table with a column for each cost."""

    def rule(book: Book, table: Printed) -> Answer:
        heads = [head for _, head in table.columns("Simulator", "Filter", "Measure")]

        def cells(own: Competitor, group: Group, measure: str) -> dict[str, Derived]:
            here, found = _cost(group), {}
            for head in heads:
                more = 0.0 if head == AS_IT_IS else float(head.removesuffix(" µs a call")) - here
                dear = Derived(MISSING, formula="a call costs more as it is", lines=own.lines)
                found[head] = dear if more < 0 else cell(own, group, measure, more)
            return found

        return _answer(book, table, cells)

    return rule


def _answer(
    book: Book, table: Printed, cells: Callable[[Competitor, Group, str], dict[str, Derived]]
) -> Answer:  # fmt: skip
    answer, shown = Answer(), []
    for row, (simulator, filter, measure, *_) in enumerate(table.rows):
        config = CONFIGS.get(simulator, simulator)
        group = _competitors(book, config, measure)
        key = key_of(filter, "crossing" if config in SCORED_BY else "simulation-cost")
        own = next((each for each in group if each.key == key), None)
        if own is None:
            answer.complaints.append(f"{simulator}, {filter}, {measure} is not on record")
            continue
        shown.append((config, measure, key))
        for head, derived in cells(own, group, measure).items():
            answer.cells[row, table.heads.index(head)] = derived
    recorded = [
        (config, measure, each.key)
        for config in CONFIGS.values()
        for measure in (METRICS if config in SCORED_BY else ("JS",))
        for each in _competitors(book, config, measure)
        if each.key[0] == "nbf" and each.key[1] in ("", "default")
    ]
    answer.complaints += missing(recorded, shown, "row")
    return answer


TABLES = {"crossing": crossing, "crossing-leads": _by_cost(_lead), "crossing-factors": _by_cost(_factor)}
"""What derives each table."""
