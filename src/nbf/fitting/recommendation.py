"""Which filter to take: pure functions of the rows of a comparison.

The time of an update is a line, t(c) = measured time + calls · c, where c is what a call of the simulator costs beyond
what it costs here. Two lines cross at one cost; between crossings the choice does not change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from nbf.fitting.rows import Row, Score, advantage, is_better


@dataclass(frozen=True)
class Pick:
    """A filter, and the call cost from which it is the one to take."""

    row: Row | None
    """None: there is nothing to take."""
    from_cost: float
    """Microseconds."""


def crossing(one: Row, other: Row) -> float | None:
    """Find the call cost at which two filters take equally long.

    Args:
        one: A row with a time.
        other: Another.

    Returns:
        Microseconds a call; None if one of them is faster at every cost from 0 on, or neither is.
    """
    if one.microseconds is None or other.microseconds is None or one.calls is None or other.calls is None:
        return None
    if one.calls == other.calls:
        return None
    cost = (one.microseconds - other.microseconds) / (other.calls - one.calls)
    return cost if cost > 0 else None


def best(rows: Sequence[Row], by: Score) -> Row | None:
    """Choose the best of some rows; of those that are as good within a standard error, the one with the fewest calls.

    Args:
        rows: Any rows; yardsticks are left out.
        by: The score.

    Returns:
        The row; None if there is none to take.
    """
    able = [row for row in rows if row.recommendable]
    if not able:
        return None
    first = min(able, key=lambda row: row.loss(by))
    close = [row for row in able if row is first or _level(first, row, by)]
    return min(close, key=lambda row: (math.inf if row.calls is None else row.calls, row.time(0.0), row.loss(by)))


def _level(first: Row, row: Row, by: Score) -> bool:
    mean, error = advantage(first, row, by)
    return mean <= error


def _useless(row: Row, prior: Row, by: Score) -> bool:
    """Whether a row is no better than the prior, or worse by the other score: near, but sure of what is wrong."""
    return _level(row, prior, by) or any(is_better(prior, row, other) for other in SPOKEN)


def within_calls(rows: Sequence[Row], calls: float, by: Score) -> Row | None:
    """Choose the best row at equal calls. A filter of n particles has n, even if a step is sometimes simulated again.

    Args:
        rows: All rows.
        calls: Simulator calls per update, at most.
        by: The score.

    Returns:
        The row; None if none has so few calls.
    """
    asked = [(row, row.calls if row.particles is None else row.particles) for row in rows]
    return best([row for row, count in asked if count is not None and count <= calls], by)


def within_time(rows: Sequence[Row], limit: float, call_cost: float, by: Score) -> Row | None:
    """Choose the best row at equal time.

    Args:
        rows: All rows.
        limit: Microseconds per update, at most.
        call_cost: Of a call, in microseconds.
        by: The score.

    Returns:
        The row; None if none is so fast.
    """
    # The row whose time is the limit must not be lost by rounding.
    return best([row for row in rows if row.time(call_cost) <= limit * (1.0 + 1e-9)], by)


def picks(rows: Sequence[Row], anchor: Row, by: Score) -> list[Pick]:
    """Find the best filter that takes no longer than a given one, for every call cost.

    Args:
        rows: All rows.
        anchor: The row whose time is the limit at every cost.
        by: The score.

    Returns:
        The filters to take, from a cost of 0 on, in the order of the cost at which they begin to be.
    """
    costs = sorted({0.0, *(cost for row in rows if row.recommendable and (cost := crossing(row, anchor)) is not None)})
    found: list[Pick] = []
    for place, cost in enumerate(costs):
        # In the middle of the interval, since at its ends two filters are equally fast.
        inside = (cost + costs[place + 1]) / 2.0 if place + 1 < len(costs) else 2.0 * cost + 1.0
        row = within_time(rows, anchor.time(inside), inside, by)
        if not found or found[-1].row is not row:
            found.append(Pick(row, cost))
    return found


def front(rows: Sequence[Row], call_cost: float, by: Score) -> list[Row]:
    """List the filters worth their time: every faster one is worse.

    Args:
        rows: All rows.
        call_cost: Of a call, in microseconds.
        by: The score.

    Returns:
        The rows, the fastest first, each better than the one before by more than a standard error of the difference.
    """
    timed = [row for row in rows if row.recommendable and row.time(call_cost) < math.inf]
    found: list[Row] = []
    for row in sorted(timed, key=lambda row: (row.time(call_cost), row.loss(by))):
        if not found or not _level(row, found[-1], by):
            found.append(row)
    return found


def reasons_against(row: Row, rows: Sequence[Row], by: Score) -> list[str]:
    """List what a neural filter is no better than at equal calls, though it should be.

    Args:
        row: Of a neural filter.
        rows: All rows.
        by: The score.

    Returns:
        Names of what does as well; none if the filter earns its place.
    """
    found = [
        f"the prior ({_loss(other, by)})" for other in rows if other.kind == "prior" and not is_better(row, other, by)
    ]
    for other in rows:
        without = other.kind in ("regularised", "branching")
        if without and other.particles == row.particles and not is_better(row, other, by):
            found.append(f"{other.name} with as many calls ({_loss(other, by)})")
        if other.kind == "untrained" and other.particles == row.particles and not is_better(row, other, by):
            found.append(f"the same with an untrained network ({_loss(other, by)})")
    return found


def as_fast(row: Row, rows: Sequence[Row], call_cost: float, by: Score) -> list[str]:
    """Name the particle filter that does as well as a neural filter in its time, if there is one.

    Args:
        row: Of a neural filter.
        rows: All rows.
        call_cost: Of a call, in microseconds.
        by: The score.

    Returns:
        Its name, or nothing.
    """
    particle = [other for other in rows if other.kind == "particle"]
    found = within_time(particle, row.time(call_cost), call_cost, by) if row.time(call_cost) < math.inf else None
    if found is None or is_better(row, found, by):
        return []
    return [f"{found.name}, which takes no longer {_where(call_cost)} ({_loss(found, by)})"]


def _loss(row: Row, by: Score) -> str:
    return f"{row.divergence:.3f}" if by == "divergence" else f"{row.log_score:.2f}"


def _where(call_cost: float) -> str:
    return (
        "at what a call costs here" if call_cost == 0 else f"if a call costs {microseconds(call_cost)} more than here"
    )


def microseconds(value: float) -> str:
    """Write a time for a reader.

    Args:
        value: Microseconds.

    Returns:
        Two digits or all before the point, in µs or, from 10 000 on, in ms.
    """
    if value >= 10_000:
        return f"{value / 1000:,.0f} ms"
    return f"{value:,.0f} µs" if value >= 10 else f"{value:.2g} µs"


def recommendation(rows: Sequence[Row], call_cost: float, by: Score, budgets: Sequence[int]) -> list[str]:
    """Say which filter to take.

    Args:
        rows: All rows.
        call_cost: Of a call beyond what it costs here, in microseconds.
        by: The score by which rows are ranked.
        budgets: Simulator calls at which filters are compared.

    Returns:
        Sentences.
    """
    neural = [row for row in rows if row.kind == "neural"]
    priors = [row for row in rows if row.kind == "prior"]
    able = [row for row in rows if not any(_useless(row, prior, by) for prior in priors)]
    anchors = neural or [row for row in rows if row.kind == "particle" and row.particles in budgets]
    said = [*_at_equal_calls(able, by, budgets), *_at_equal_time(able, anchors, by)]
    worth = front(able, call_cost, by)
    if worth:
        told = "; ".join(f"{row.name} in {microseconds(row.time(call_cost))}" for row in worth)
        said.append(f"Worth their time, {_where(call_cost)}: {told}.")
    return [*said, *_about_the_network(rows, neural, call_cost, by)]


SPOKEN: dict[Score, str] = {"divergence": "divergence from the reference", "log score": "log score"}
"""How the score is called by which rows are ranked."""
NOTHING = "nothing that is better than the prior"


def _name(row: Row | None) -> str:
    return NOTHING if row is None else row.name


def _at_equal_calls(able: Sequence[Row], by: Score, budgets: Sequence[int]) -> list[str]:
    told = [f"{calls} calls {_name(within_calls(able, float(calls), by))}" for calls in sorted(budgets)]
    return [f"At equal calls: {'; '.join(told)}."] if told else []


def _at_equal_time(able: Sequence[Row], anchors: Sequence[Row], by: Score) -> list[str]:
    """What to take in the time of each anchor, unless that is always the anchor itself."""
    said = []
    for anchor in anchors:
        found = picks(able, anchor, by) if anchor.microseconds is not None else []
        if found and [pick.row for pick in found] != [anchor]:
            said.append(f"In the time of {anchor.name}, {microseconds(anchor.time(0.0))} here: {spoken(found)}.")
    return said


def spoken(found: Sequence[Pick]) -> str:
    """Say what to take at which call cost.

    Args:
        found: At least one pick, by rising cost.

    Returns:
        A phrase such as "up to 3 µs a call PF (2048), from there on neural (32)".
    """
    if len(found) == 1:
        return f"{_name(found[0].row)} at every call cost"
    parts = [f"up to {microseconds(found[1].from_cost)} a call {_name(found[0].row)}"]
    parts += [
        f"then up to {microseconds(after.from_cost)} {_name(pick.row)}" for pick, after in itertools.pairwise(found[1:])
    ]
    return ", ".join([*parts, f"from there on {_name(found[-1].row)}"])


def _about_the_network(rows: Sequence[Row], neural: Sequence[Row], call_cost: float, by: Score) -> list[str]:
    """What speaks against the network, and how far its filter is from its ceiling."""
    useless = {row.name: reasons_against(row, rows, by) for row in neural}
    against = {row.name: [*useless[row.name], *as_fast(row, rows, call_cost, by)] for row in neural}
    told = [
        f"{row.name} ({_loss(row, by)}) is no better than {' nor than '.join(against[row.name])}"
        for row in neural
        if against[row.name]
    ]
    said = []
    if neural and all(useless.values()):
        said.append(f"The network adds nothing here, by {SPOKEN[by]}: {'; '.join(told)}.")
    else:
        said += [f"{sentence}." for sentence in told]
    for ceiling in (row for row in rows if row.kind == "ceiling" and neural):
        nearest = min(neural, key=lambda row: row.loss(by))
        if is_better(nearest, ceiling, by):
            said.append(
                f"{nearest.name} ({_loss(nearest, by)}) is better than its model on samples of the reference belief "
                f"({_loss(ceiling, by)}): what it carries from step to step makes up for what the model loses."
            )
        elif is_better(ceiling, nearest, by):
            said.append(
                f"The model itself reaches {_loss(ceiling, by)} on samples of the reference belief; the filter with it "
                f"{_loss(nearest, by)}: the difference is lost in the loop."
            )
    return said
