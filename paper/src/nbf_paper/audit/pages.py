"""Tables of several metrics: Triangulation, donuts, classical filters, convergence, and the halves of Goofspiel."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from nbf_paper.audit import paper_numbers
from nbf_paper.audit.arithmetic import MISSING, Derived, is_mixed, mean_cell
from nbf_paper.audit.documents import Printed
from nbf_paper.audit.grids import AMOUNT, Answer, missing
from nbf_paper.audit.meaning import MODEL_ARMS, key_of
from nbf_paper.audit.sources import Book, Key, Line, only
from nbf_paper.names import EXAMPLE

TRIANGULATION = {
    "JS to PF(1024), ours": ("js_pf1024", 3), "JS to the truth, ours": ("js", 3), "final distance": ("distance", 2),
}  # fmt: skip
DONUTS = {
    "NLL": ("nll", 3), "entropy": ("entropy", 3), "NLL − entropy": ("nll_gap", 3), "energy": ("energy_distance", 4),
    "coverage gap": ("coverage_gap", 3), "training (s)": ("training_seconds", 0),
    "16 samples (µs)": ("us_sample_16", 0), "64 densities (µs)": ("us_density_64", 0),
}  # fmt: skip
CLASSICAL = {
    "error of the mean": ("mean_error", 4), "error of the covariance": ("covariance_error", 4),
    "error of the log evidence": ("log_evidence_error", 4),
}  # fmt: skip
FAMILIES = {
    "NBF, paper's flow": ("nbf", "faithful"), "NBF, perfect model": ("nbf", "tabular"),
    "NBF, perfect model, default update": ("nbf", "tabular-default"), "PF": ("pf", ""),
}  # fmt: skip
"""The rows of the table of convergence."""


def triangulation(book: Book, table: Printed) -> Answer:
    """The paper's numbers, and three metrics of ours."""
    answer = Answer()
    rows = {place: key_of(row[0], "triangulation") for place, row in enumerate(table.rows) if row[0] != AMOUNT}
    places = {
        (row, table.heads.index(head)): (book.group("triangulation", key, "triangulation", metric), digits)
        for row, key in rows.items()
        for head, (metric, digits) in TRIANGULATION.items()
    }
    mixed = is_mixed([lines for lines, _ in places.values()])
    answer.cells |= {place: mean_cell(lines, digits, mixed=mixed) for place, (lines, digits) in places.items()}
    told = table.heads.index("JS to PF(1024), paper")
    for row, key in rows.items():
        paper = paper_numbers.TRIANGULATION.get(key)
        numbers = tuple((number, ".3f") for number in paper or ())
        answer.cells[row, told] = Derived("{} ± {}" if paper else MISSING, numbers, "the paper's table")
    js = [book.group("triangulation", key, "triangulation", "js") for key in rows.values()]
    amount = f"{max(map(len, js))} × {max(min(line.episodes for line in lines) for lines in js)}"
    last = next(place for place, row in enumerate(table.rows) if row[0] == AMOUNT)
    for column, head in table.columns("Filter"):
        answer.cells[last, column] = Derived("20 × 100" if head.endswith("paper") else amount)
    recorded = {line.key for line in book.lines("triangulation") if line.metric == "js"}
    answer.complaints += missing(recorded, rows.values(), "row")
    return answer


def donuts(book: Book, table: Printed) -> Answer:
    """A decoder in each row."""
    lines = book.lines("donuts")
    found = {(line.arm, line.metric): [each for each in lines if (each.arm, each.metric) == (line.arm, line.metric)]
             for line in lines}  # fmt: skip
    answer = Answer()
    for row, cells in enumerate(table.rows):
        for column, head in table.columns("Decoder"):
            metric, digits = DONUTS[head]
            answer.cells[row, column] = mean_cell(found.get((cells[0], metric), []), digits)
    answer.complaints += missing({line.arm for line in lines}, (cells[0] for cells in table.rows), "row")
    return answer


def classical(book: Book, table: Printed) -> Answer:
    """A filter in each row."""
    answer = Answer()
    lines = book.lines("classical")
    (config,) = {line.config for line in lines}
    rows = {place: key_of(row[0], "classical") for place, row in enumerate(table.rows)}
    for row, key in rows.items():
        for column, head in table.columns("Filter"):
            metric, digits = CLASSICAL[head]
            answer.cells[row, column] = mean_cell(book.group("classical", key, config, metric), digits)
    answer.complaints += missing({line.key for line in lines}, rows.values(), "row")
    return answer


# --- Goofspiel -----------------------------------------------------------------------------------


def entropy_halves(book: Book, table: Printed) -> Answer:
    """Divergences in both halves of the games, and the entropy of a bid in the last row."""
    answer = Answer()
    heads = {column: head.split(", ") for column, head in table.columns("Filter")}
    rows = {place: key_of(row[0], "goofspiel") for place, row in enumerate(table.rows) if not row[0].startswith("*")}
    shown = {
        (row, column): book.group("goofspiel", key, config, f"js_{half}")
        for row, key in rows.items()
        for column, (config, half) in heads.items()
    }
    mixed = is_mixed(list(shown.values()))
    answer.cells |= {place: mean_cell(lines, 3, mixed=mixed) for place, lines in shown.items()}
    for column, (config, half) in heads.items():
        lines = [e for e in book.lines("goofspiel") if (e.config, e.metric) == (config, f"entropy_{half}")]
        mean = ((statistics.fmean(line.value for line in lines), ".2f"),) if lines else ()
        text = "{}" if lines else MISSING
        answer.cells[len(table.rows) - 1, column] = Derived(text, mean, "mean over seeds", tuple(lines))
    configs = {config for config, _ in heads.values()}
    recorded = {e.key for e in book.lines("goofspiel") if e.metric == "js_sharp" and e.config in configs}
    answer.complaints += missing(recorded, rows.values(), "row")
    return answer


def trainings(book: Book, table: Printed) -> Answer:
    """How long each model of Goofspiel was trained, from the runs."""
    answer = Answer()
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in book.runs("goofspiel"):
        config = run["config"]
        if "loss_curve" in config:
            found.setdefault((f"k={config['environment']['cards']}", config["arm"]), []).append(config)
    shown = [_training(cells[0]) for cells in table.rows]
    for row, cells in enumerate(table.rows):
        mine = found.get(shown[row], [])
        if not mine:
            answer.complaints.append(f"no run trained {cells[0]!r}")
            continue
        pools = sorted({str(config["pool"][0]) if config.get("pool") else "new ones" for config in mine})
        texts = {
            "steps": ", ".join(sorted({str(config["training"]["steps"]) for config in mine})),
            "games": ", ".join(pools),
            "seeds": str(len(mine)),
        }
        numbers = {
            "minutes": (statistics.fmean(config["seconds"]["training"] / 60 for config in mine), ".1f"),
            "loss, first": (statistics.fmean(config["loss_curve"][0] for config in mine), ".2f"),
            "loss, last": (statistics.fmean(config["loss_curve"][-1] for config in mine), ".2f"),
        }
        for column, head in table.columns("Model"):
            plain = Derived(texts[head], formula="of all seeds") if head in texts else None
            answer.cells[row, column] = plain or Derived("{}", (numbers[head],), "mean over the runs")
    answer.complaints += missing(found, shown, "row")
    return answer


def _training(label: str) -> tuple[str, str]:
    """The number of cards and the arm of a row of trainings: `k=4, paper's flow`."""
    cards, _, model = label.partition(", ")
    return cards, MODEL_ARMS.get(model, model)


# --- convergence ---------------------------------------------------------------------------------


def convergence(book: Book, table: Printed) -> Answer:
    """The errors with the fewest and the most particles, the slopes, and the equivalent of a perfect model."""
    answer, config = Answer(), EXAMPLE
    perfect = _curve(book, ("nbf", "tabular"))
    for row, cells in enumerate(table.rows):
        filter, arm = family = FAMILIES[cells[0]]
        curve = _curve(book, family)
        derived = []
        for end in (curve[0], curve[-1]) if curve else ():
            cell = mean_cell([end], 3)
            derived.append(Derived(f"{cell.template} (n = {end.particles})", cell.numbers, cell.formula, cell.lines))
        derived = derived or [Derived(MISSING)] * 2
        for metric in ("slope", "slope_tv"):
            key: Key = (filter, arm, 0)
            rates = {name: book.group("convergence", key, config, f"{metric}{name}") for name in ("", "_low", "_high")}
            derived.append(mean_cell(rates[""], 3))
            derived.append(_interval(only(rates["_low"]), only(rates["_high"])))
        derived.append(_equivalent(perfect, curve) if family != ("nbf", "tabular") else Derived(MISSING))
        for column, cell in enumerate(derived, start=1):
            answer.cells[row, column] = cell
    recorded = {(line.filter, line.arm) for line in book.lines("convergence")}
    answer.complaints += missing(recorded, (FAMILIES[cells[0]] for cells in table.rows), "row")
    return answer


def _curve(book: Book, family: tuple[str, str]) -> list[Line]:
    lines = book.lines("convergence")
    mine = (line for line in lines if (line.filter, line.arm, line.metric) == (*family, "sup_error"))
    return sorted(mine, key=lambda line: line.particles)


def _interval(low: Line | None, high: Line | None) -> Derived:
    if low is None or high is None:
        return Derived(MISSING)
    return Derived("{} to {}", ((low.value, ".3f"), (high.value, ".3f")), "as recorded", (low, high))


def _equivalent(perfect: list[Line], curve: list[Line]) -> Derived:
    """The particles with which a perfect model has the last error of a curve."""
    if not perfect or not curve:
        return Derived(MISSING)
    level, errors = curve[-1].value, {line.particles: line.value for line in perfect}
    if level <= min(errors.values()):
        return Derived(f"more than {max(errors)}", formula="below all errors of the perfect model")
    if level >= max(errors.values()):
        return Derived(f"fewer than {min(errors)}", formula="above all errors of the perfect model")
    ordered: Mapping[float, int] = {errors[count]: count for count in sorted(errors, key=lambda count: errors[count])}
    below = max(error for error in ordered if error <= level)
    above = min(error for error in ordered if error >= level)
    share = 0.0 if above == below else math.log(level / below) / math.log(above / below)
    count = ordered[below] * (ordered[above] / ordered[below]) ** share
    formula = "interpolated on logarithmic scales between the perfect model's errors"
    return Derived("{}", ((count, ".0f"),), formula, (curve[-1], *perfect))


TABLES = {
    "triangulation": triangulation, "donuts": donuts, "classical": classical, "convergence": convergence,
    "goofspiel-entropy": entropy_halves, "goofspiel-entropy-run": entropy_halves, "goofspiel-training": trainings,
}  # fmt: skip
"""What derives each table."""
