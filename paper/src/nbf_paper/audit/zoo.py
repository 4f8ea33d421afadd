"""The summary of the zoo: problems in the rows, filters in the columns, and what the network brings; and the leads."""

from __future__ import annotations

import re
import statistics

from nbf_paper.audit.arithmetic import MISSING, Derived, is_mixed, mean_cell
from nbf_paper.audit.documents import Printed
from nbf_paper.audit.grids import Answer, MetricTable, missing
from nbf_paper.audit.meaning import key_of
from nbf_paper.audit.sources import Book, Line
from nbf_paper.names import (
    BASELINES_OF_CARDS,
    EARLY,
    FORECASTS,
    GAPS,
    INTERPOLATED_BASELINES_OF_CARDS,
    LATE,
    LEARNED_CHANGES,
    ZOO,
    ZOO_KINDS,
)

OURS = "NBF (32), fitted"
PLAIN = {"beliefs": lambda name: ZOO[name].kind, "split": lambda name: ZOO[name].split}
"""Columns of words, fixed before anything was measured."""
CEILING = {"Ceiling": "Approx Beliefs, fitted"}
"""Heads that are called otherwise in other tables."""


def _of(kind: str, metric: str, digits: int) -> MetricTable:
    return MetricTable("zoo", metric, digits, lambda line: line.config in ZOO and ZOO[line.config].kind == kind)


GRIDS = {f"zoo-{kind}": _of(kind, "log_score", 2) for kind in ZOO_KINDS} | {
    f"zoo-{kind}-distance": _of(kind, "js" if kind == "discrete" else "energy", 3) for kind in ZOO_KINDS
}
"""The tables of one kind of problem."""


def _left_out(metric: str, digits: int, *, listed: bool | None = None) -> MetricTable:
    wanted = {True: ("discrete",), False: tuple(set(ZOO_KINDS) - {"discrete"}), None: ZOO_KINDS}[listed]
    return MetricTable("ablation", metric, digits, lambda line: line.config in ZOO and ZOO[line.config].kind in wanted)


GRIDS |= {
    "ablation": _left_out("lead_over_default", 2), "ablation-scores": _left_out("log_score", 2),
    "ablation-distance": _left_out("energy", 3, listed=False), "ablation-divergence": _left_out("js", 3, listed=True),
}  # fmt: skip


GRIDS |= {
    "cards": MetricTable("cards", "marginal_error", 4), "cards-deals": MetricTable("cards", "deal_log_prob", 2),
    "cards-large": MetricTable("cards", "card_log_score"),
    "cards-next": MetricTable("cards", "next_action_log_prob", 4),
    "cards-calibration": MetricTable("cards", "calibration_error", 4),
    "cards-points": MetricTable("cards-play", "points", 2), "cards-lead": MetricTable("cards-play", "points_lead", 2),
    "cards-ratio": MetricTable("cards-play", "true_deal_ratio", 2),
    "cards-decision": MetricTable("cards-play", "decision_ms", 0),
    "cards-resampler": MetricTable("cards-play", "resampler_ms", 1),
    "cards-error": MetricTable("cards-play", "decision_error", 4),
    "learning": MetricTable("learning", "error", 3, lambda line: line.config not in LEARNED_CHANGES.values()),
    "learning-scores": MetricTable(
        "learning", "log_score", 2, lambda line: line.config not in LEARNED_CHANGES.values()
    ),
    "learning-calls": MetricTable("learning", "million_calls", 2),
    "learning-changed": MetricTable("learning", "error", 3, lambda line: line.config in LEARNED_CHANGES.values()),
    "drift": MetricTable("drift", "drift", 2), "drift-early": MetricTable("drift", f"error_at_{EARLY}"),
    "drift-late": MetricTable("drift", f"error_at_{LATE}"), "plaza": MetricTable("plaza", "log_score", 2),
    "plaza-distance": MetricTable("plaza", "energy"), "touch": MetricTable("touch", "log_score", 2),
    "touch-distance": MetricTable("touch", "energy"), "touch-lost": MetricTable("touch", "lost", 2),
    "acrobot": MetricTable("crossing", "log_score", 2), "acrobot-distance": MetricTable("crossing", "energy"),
    "acrobot-lost": MetricTable("crossing", "lost", 2),
    "planning": MetricTable("planning", "return", 1), "planning-right": MetricTable("planning", "right", 2),
    "planning-score": MetricTable("planning", "log_score", 2),
    "planning-search": MetricTable("planning", "search_calls", 0),
    "planning-time": MetricTable("planning", "return_equal_time", 1),
}  # fmt: skip


def _of_task(task: str, metric: str, digits: int) -> MetricTable:
    return MetricTable("values", metric, digits, lambda line: line.config.partition("-")[0] == task)


GRIDS |= {
    "values-walk": _of_task("walk", "distance", 2), "values-chase": _of_task("chase", "caught", 2),
    "values-error-walk": _of_task("walk", "value_error", 3),
    "values-error-chase": _of_task("chase", "value_error", 3),
    "values-search": MetricTable("values", "search_return", 2),
    "values-calls": MetricTable("values", "search_calls", 0),
}  # fmt: skip


def zoo_summary(book: Book, table: Printed) -> Answer:
    """Log scores, and two columns that follow from them."""
    answer = Answer()
    filters = [(column, head) for column, head in table.columns("Problem", *PLAIN) if head not in ("gain", "network")]
    shown: dict[tuple[int, int], list[Line]] = {}
    for row, cells in enumerate(table.rows):
        name = cells[0]
        for column, head in filters:
            shown[row, column] = book.group("zoo", key_of(CEILING.get(head, head), "zoo"), name, "log_score")
        for head, word in PLAIN.items():
            answer.cells[row, table.heads.index(head)] = Derived(word(name) if name in ZOO else MISSING)
        values = {head: [line.value for line in shown[row, column]] for column, head in filters}
        for head, cell in zip(("gain", "network"), _network(values), strict=True):
            answer.cells[row, table.heads.index(head)] = cell
    mixed = is_mixed(list(shown.values()))
    answer.cells |= {place: mean_cell(lines, 2, mixed=mixed) for place, lines in shown.items()}
    recorded = {line.config for line in book.lines("zoo") if line.metric == "log_score"}
    answer.complaints += missing(recorded, (cells[0] for cells in table.rows), "row")
    return answer


def _network(values: dict[str, list[float]]) -> tuple[Derived, Derived]:
    """The gain of NBF (32) over the prior, and how much of it no filter of 32 calls has without a trained network."""
    means = {head: statistics.fmean(found) for head, found in values.items() if found}
    rest = [mean for head, mean in means.items() if "(32)" in head and head != OURS]
    if "Prior" not in means or OURS not in means or not rest:
        return Derived(MISSING), Derived(MISSING)
    gain = means[OURS] - means["Prior"]
    own = max(0.0, min(gain, means[OURS] - max(rest)))
    first = Derived("{}", ((gain, "+.2f"),), "NBF (32) less the prior")
    if gain <= 0:
        return first, Derived(MISSING, formula="there is no gain")
    return first, Derived(
        "{}%", ((100 * own / gain, ".0f"),), "what no filter of 32 calls without a network has / gain"
    )


LEAD = re.compile(r"(NBF \(\d+\), fitted), over (no network|PF \(1024\)|the prior|its ceiling)")
AGAINST = {
    "no network": "equal_calls", "PF (1024)": "pf1024", "the prior": "prior", "its ceiling": "ceiling"
}  # fmt: skip
"""How a head names a filter, and how its metric does."""


def zoo_leads(book: Book, table: Printed) -> Answer:
    """Differences of log scores, whose errors are recorded with them."""
    answer = _leads(book, table, "zoo")
    for row, cells in enumerate(table.rows):
        for head, word in PLAIN.items():
            answer.cells[row, table.heads.index(head)] = Derived(word(cells[0]) if cells[0] in ZOO else MISSING)
    return answer


def plaza_leads(book: Book, table: Printed) -> Answer:
    """The same of the sites."""
    return _leads(book, table, "plaza")


def touch_leads(book: Book, table: Printed) -> Answer:
    """The same of the object that is found by touch."""
    return _leads(book, table, "touch")


def acrobot_leads(book: Book, table: Printed) -> Answer:
    """The same of the acrobot."""
    return _leads(book, table, "crossing")


def _leads(book: Book, table: Printed, experiment: str) -> Answer:
    answer = Answer()
    shown: dict[tuple[int, int], list[Line]] = {}
    for row, cells in enumerate(table.rows):
        for column, head in table.columns(table.heads[0], *PLAIN):
            named = LEAD.fullmatch(head)
            if named is None:
                answer.complaints.append(f"the column {head!r} names no lead")
                continue
            key = key_of(named[1], experiment)
            shown[row, column] = book.group(experiment, key, cells[0], f"lead_over_{AGAINST[named[2]]}")
    mixed = is_mixed(list(shown.values()))
    answer.cells |= {place: mean_cell(lines, 2, mixed=mixed) for place, lines in shown.items()}
    recorded = {line.config for line in book.lines(experiment) if line.metric.startswith("lead_")}
    answer.complaints += missing(recorded, (cells[0] for cells in table.rows), "row")
    return answer


def cards_worth(book: Book, table: Printed) -> Answer:
    """Ratios of calls, whose errors are recorded with them."""
    answer, shown = Answer(), dict[tuple[int, int], list[Line]]()
    names = {head: name for name, head in BASELINES_OF_CARDS.items()}
    later = {head: key for head, *key in INTERPOLATED_BASELINES_OF_CARDS.values()}
    for row, cells in enumerate(table.rows):
        ours = key_of(cells[1], "cards")
        for column, head in table.columns("Opponents", "Filter"):
            if head in later:  # filed under the baseline, with as many particles as NBF has
                filter, arm = later[head]
                shown[row, column] = book.group("cards", (filter, arm, ours[2]), cells[0], "worth")
            else:
                shown[row, column] = book.group("cards", ours, cells[0], f"worth_{names[head]}")
    mixed = is_mixed(list(shown.values()))
    answer.cells |= {place: mean_cell(lines, 1, mixed=mixed) for place, lines in shown.items()}
    recorded = {line.config for line in book.lines("cards") if line.metric.startswith("worth_")}
    answer.complaints += missing(recorded, (cells[0] for cells in table.rows), "row")
    return answer


def cards_reliability(book: Book, table: Printed) -> Answer:
    """By how much more came true than was foretold, by bins of probabilities."""
    answer, metrics = Answer(), {head: metric for metric, head in GAPS.items()}
    keys = [key_of(cells[0], "cards") for cells in table.rows]
    shown = {
        (row, column): book.group("cards", key, FORECASTS, metrics[head])
        for row, key in enumerate(keys)
        for column, head in table.columns("Filter")
    }
    mixed = is_mixed(list(shown.values()))
    answer.cells |= {place: mean_cell(lines, 3, mixed=mixed) for place, lines in shown.items()}
    recorded = {line.key for line in book.lines("cards") if line.metric in GAPS}
    answer.complaints += missing(recorded, keys, "row")
    return answer


TABLES = {
    "cards-reliability": cards_reliability, "cards-worth": cards_worth,
    "zoo-summary": zoo_summary, "zoo-leads": zoo_leads, "plaza-leads": plaza_leads,
    "touch-leads": touch_leads, "acrobot-leads": acrobot_leads,
}  # fmt: skip
"""What derives each table."""
