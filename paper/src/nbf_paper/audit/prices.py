"""Tables of the cost of simulation: neural filters beside baselines of the same price."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nbf_paper.audit.arithmetic import EXACT, MISSING, Derived, interpolated, is_mixed, mean_cell, with_complaint
from nbf_paper.audit.documents import Printed
from nbf_paper.audit.grids import Answer, exact_cells, missing, wrong_model
from nbf_paper.audit.meaning import key_of
from nbf_paper.audit.sources import Book, Key, Line, only
from nbf_paper.names import TRIANGULATION

LEAST = 4e-4
"""What stands for a divergence of zero, which has no logarithm."""
BASELINES = {
    "better than any PF from": ("pf", ""), "better than any PF + KDE from": ("pf-kde", ""),
    "better than any Fearnhead–Clifford from": ("branching", "branches chosen"),
}  # fmt: skip
LONG = "-long"


@dataclass(frozen=True)
class TimedFilter:
    """A filter of a configuration: its divergence, its time and its calls."""

    key: Key
    lines: tuple[Line, ...]
    """Of its divergence."""
    time: Line
    exact: bool

    @property
    def js(self) -> float:
        return statistics.fmean(line.value for line in self.lines)

    @property
    def floor(self) -> float:
        return max(self.js, LEAST)

    @property
    def calls(self) -> int:
        return round(statistics.fmean(line.calls for line in self.lines))

    @property
    def microseconds(self) -> float:
        return self.time.value


def filters(book: Book, config: str) -> list[TimedFilter]:
    """All filters of a configuration that have a divergence and a time. The divergence is that of the domain's own
    experiment; of the default filter, and of baselines that it has not, that of `beyond`."""
    domain = "goofspiel" if config.startswith("k=") else "gridworld" if "D-" in config else config
    exact = exact_cells(book)
    found: dict[Key, TimedFilter] = {}
    for experiment in (domain, "beyond"):
        for key in sorted({line.key for line in book.lines(experiment) if line.config == config}):
            wanted = experiment == domain or key[:2] == ("nbf", "default") or key[:2] in BASELINES.values()
            lines = book.group(experiment, key, config, "js")
            time = only(book.group("simulation-cost", key, config.removesuffix(LONG), "us_per_update"))
            if wanted and lines and time is not None and key not in found:
                own = experiment == "beyond" and (key, config) in exact
                found[key] = TimedFilter(key, tuple(lines), time, own)
    return list(found.values())


def _config(name: str) -> str:
    """The configuration that the first column of a table names."""
    return TRIANGULATION if name == "Triangulation" else name.partition(" ")[2]


def _rows(book: Book, table: Printed) -> dict[int, tuple[TimedFilter, list[TimedFilter]]]:
    """The filter of each row, and all of its configuration."""
    groups = {config: filters(book, config) for config in {_config(row[0]) for row in table.rows}}
    found = {}
    for place, row in enumerate(table.rows):
        config, key = _config(row[0]), key_of(row[1], "simulation-cost")
        mine = next((each for each in groups[config] if each.key == key), None)
        if mine is not None:
            found[place] = (mine, groups[config])
    return found


def _neural(book: Book, arms: Sequence[str] | None) -> set[tuple[str, Key]]:
    """The configurations and neural filters that a table should have."""
    timed = {line.config for line in book.lines("simulation-cost")}
    configs = timed | {f"{config}{LONG}" for config in timed}
    return {
        (config, each.key)
        for config in configs
        for each in filters(book, config)
        if each.key[0] == "nbf" and (arms is None or each.key[1] in arms)
    }


def simulation_cost(book: Book, table: Printed) -> Answer:
    """From which cost of a call on a filter is better than any baseline."""
    answer, rows = Answer(), _rows(book, table)
    mixed = is_mixed([own.lines for own, _ in rows.values()])
    for row, (own, others) in rows.items():
        js = mean_cell(own.lines, 3, mixed=mixed, exact=own.exact)
        numbers = {
            "JS": with_complaint(js, wrong_model(book, table.rows[row][1], list(own.lines))),
            "µs without cost": Derived("{}", ((own.microseconds, ".0f"),), "median of the updates", (own.time,)),
            "calls": Derived(str(own.calls), formula="simulator calls", lines=own.lines),
        }
        for column, head in table.columns("Configuration", "Filter"):
            some = [each for each in others if each.key[:2] == BASELINES.get(head)]
            answer.cells[row, column] = numbers[head] if head in numbers else break_even(own, some)
    _complete(answer, book, table, None)
    return answer


def _complete(answer: Answer, book: Book, table: Printed, arms: Sequence[str] | None) -> None:
    shown = [(_config(row[0]), key_of(row[1], "simulation-cost")) for row in table.rows]
    recorded = _neural(book, arms)
    answer.complaints += missing(recorded, shown, "row") + [
        f"{each} is not on record" for each in shown if each not in recorded
    ]


def break_even(own: TimedFilter, baselines: Sequence[TimedFilter]) -> Derived:
    """The cost of a call c at which own time + own calls · c is that of the smallest baseline that errs as little."""
    if not baselines:
        return Derived(MISSING)
    ordered = sorted(baselines, key=lambda each: each.calls)
    lines = (*own.lines, own.time, *(line for each in ordered for line in (*each.lines, each.time)))
    calls = [math.log(each.calls) for each in ordered]
    best = [math.log(min(each.floor for each in ordered[: place + 1])) for place in range(len(ordered))]
    level = math.log(own.floor)
    bound = "≤ " if level < best[-1] else "≥ " if level > best[0] else ""
    needed = calls[-1]
    for place, js in enumerate(best):
        if js <= level:
            step = (best[place - 1] - level) / (best[place - 1] - js) if place else 0.0
            needed = calls[place] if not place else calls[place - 1] + step * (calls[place] - calls[place - 1])
            break
    count = math.exp(needed)
    if count <= own.calls * (1 + 1e-12):
        return Derived("never", formula=f"{count:.4g} calls of the baseline do as well", lines=lines)
    spent = interpolated(count, [float(each.calls) for each in ordered], [each.microseconds for each in ordered])
    cost = (own.microseconds - spent) / (count - own.calls)
    formula = (
        f"({own.microseconds:.5g} - {spent:.5g}) µs / ({count:.5g} - {own.calls}) calls of the baseline for this JS"
    )
    if cost <= 0.0:
        return Derived("≥ 0" if bound == "≥ " else "0", formula=formula, lines=lines)
    return Derived(f"{bound}{{}} µs", ((cost, ".3g"),), formula, lines)


def equal_time(book: Book, table: Printed) -> Answer:
    """Baselines with as many calls, and with as much time."""
    answer = Answer()
    for row, (own, others) in _rows(book, table).items():
        smooth = any(each.key[0] == "pf-kde" for each in others)
        kinds = {"PF": "pf-kde" if smooth else "pf", "FC": "branching"}
        mark = f" {EXACT}" if own.exact else ""
        numbers = {
            "calls": Derived(str(own.calls), formula="simulator calls", lines=own.lines),
            "µs": Derived("{}", ((own.microseconds, ".0f"),), "median of the updates", (own.time,)),
            "JS": with_complaint(
                Derived("{}" + mark, ((own.js, ".3f"),), "mean over seeds", own.lines),
                wrong_model(book, table.rows[row][1], list(own.lines)),
            ),
        }
        for column, head in table.columns("Configuration", "Filter"):
            if head in numbers:
                answer.cells[row, column] = numbers[head]
                continue
            kind, _, price = head.partition(", equal ")
            some = [each for each in others if each.key[0] == kinds[kind]]
            of = {"calls": lambda each: float(each.calls), "time": lambda each: each.microseconds}[price]
            answer.cells[row, column] = _of_the_same_price(own, some, of)
    _complete(answer, book, table, ("faithful", "default"))
    return answer


def _of_the_same_price(
    own: TimedFilter, baselines: Sequence[TimedFilter], price: Callable[[TimedFilter], float]
) -> Derived:
    if not baselines:
        return Derived(MISSING)
    ordered = sorted(baselines, key=price)
    prices, spent = [math.log(price(each)) for each in ordered], math.log(price(own))
    bound = "≤ " if spent > prices[-1] else "≥ " if spent < prices[0] else ""
    js = math.exp(interpolated(spent, prices, [math.log(each.floor) for each in ordered]))
    lines = tuple(line for each in ordered for line in (*each.lines, each.time))
    return Derived(f"{bound}{{}}", ((js, ".3f"),), "interpolated on logarithmic scales between the baselines", lines)


def check(book: Book, table: Printed) -> Answer:
    """Updates with a simulator that is slow: measured, and foretold by calls times cost."""
    answer = Answer()
    for row, cells in enumerate(table.rows):
        config, key, cost = _config(cells[0]), key_of(cells[1], "simulation-cost"), cells[2]
        slow = only(book.group("simulation-cost", key, config, f"us_per_update_{cost}us"))
        plain = only(book.group("simulation-cost", key, config, "us_per_update"))
        if slow is None or plain is None:
            answer.complaints.append(f"{cells[:3]} is not on record")
            continue
        foretold = plain.value + slow.calls * float(cost)
        numbers = [
            Derived(cost), Derived("{}", ((slow.value, ".0f"),), "median of the updates", (slow,)),
            Derived("{}", ((foretold, ".0f"),), f"µs without cost + {slow.calls} calls x {cost} µs", (plain, slow)),
            Derived("{}", ((slow.value / foretold, ".3f"),), "measured / foretold", (plain, slow)),
        ]  # fmt: skip
        answer.cells |= {(row, column): each for column, each in enumerate(numbers, start=2)}
    shown = [
        (_config(cells[0]), key_of(cells[1], "simulation-cost"), f"us_per_update_{cells[2]}us") for cells in table.rows
    ]
    slow_ones = [line for line in book.lines("simulation-cost") if line.metric != "us_per_update"]
    answer.complaints += missing({(line.config, line.key, line.metric) for line in slow_ones}, shown, "row")
    return answer


TABLES = {"simulation-cost": simulation_cost, "equal-time": equal_time, "simulation-cost-check": check}
"""What derives each table."""
