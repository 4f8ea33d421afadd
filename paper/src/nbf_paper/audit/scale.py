"""Tables of what the records took, and of what the paper's protocol would take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from nbf_paper.audit.arithmetic import MISSING, Derived
from nbf_paper.audit.documents import Printed
from nbf_paper.audit.grids import Answer, missing
from nbf_paper.audit.sources import Book

ALL, LIKE = "*all*", " §"
ARMS = {
    "paper's flow": "faithful", "paper's flow to the letter": "paper", "flow-paper": "flow-paper",
    "recurrent": "recurrent", "cfm-independent-paper": "cfm-independent-paper", "cfm-ot-paper": "cfm-ot-paper",
}  # fmt: skip
AMOUNTS: Mapping[tuple[str, str], tuple[int, int, int]] = {
    ("gridworld", "faithful"): (100, 100_000, 500), ("gridworld", "recurrent"): (100, 100_000, 500),
    ("goofspiel", "paper"): (5, 150_000, 5000), ("goofspiel", "recurrent"): (5, 16_000, 5000),
    ("triangulation", "faithful"): (20, 30_000, 100), ("donuts", "flow-paper"): (1, 30_000, 500),
    ("donuts", "cfm-independent-paper"): (1, 30_000, 500), ("donuts", "cfm-ot-paper"): (1, 30_000, 500),
}  # fmt: skip
"""Seeds, gradient steps and episodes, said again here on purpose."""


def scale_here(book: Book, table: Printed) -> Answer:
    """Hours of each experiment, added up from its runs."""
    answer = Answer()
    names = [cells[0] for cells in table.rows if cells[0] != ALL]
    spent = {name: _hours(book.runs(name)) for name in names}
    for row, cells in enumerate(table.rows):
        mine = spent.values() if cells[0] == ALL else [spent[cells[0]]]
        runs, training, total = (sum(amounts) for amounts in zip(*mine, strict=True))
        derived = {
            "runs": Derived(str(runs)),
            "training, h": Derived("{}", ((training, ".1f"),), "seconds of training / 3600"),
            "evaluation, h": Derived("{}", ((total - training, ".1f"),), "the other seconds / 3600"),
            "all, h": Derived("{}", ((total, ".1f"),), "seconds / 3600"),
        }
        for column, head in table.columns("Experiment"):
            answer.cells[row, column] = derived[head]
    folders = {file.parent.name for file in book.results.glob("*/runs.json")} - {"peers"}
    answer.complaints += missing(folders, names, "row")
    return answer


def _hours(runs: list[dict[str, Any]]) -> tuple[int, float, float]:
    split = [run["config"]["seconds"] for run in runs if isinstance(run["config"].get("seconds"), dict)]
    training = sum(seconds["training"] for seconds in split)
    return len(runs), training / 3600, sum(run["seconds"] for run in runs) / 3600


def scale_paper(book: Book, table: Printed) -> Answer:
    """What each model takes, and all of them."""
    answer = Answer()
    models = [_model(book, cells[0]) for cells in table.rows if cells[0] != ALL]
    timed, jobs, hours = (sum(amounts) for amounts in zip(*(amounts for amounts, _ in models), strict=True))
    last = [Derived(str(timed)), *[Derived(MISSING)] * 3, Derived(str(jobs)), Derived("{}", ((hours, ".0f"),), "sum")]
    for row, derived in enumerate([*(derived for _, derived in models), last]):
        for column, cell in enumerate(derived, start=1):
            answer.cells[row, column] = cell
    shown = [(experiment_of(config), arm) for config, arm, _ in (named(cells[0]) for cells in table.rows[:-1])]
    answer.complaints += missing(AMOUNTS, shown, "row")
    return answer


def named(label: str) -> tuple[str, str, bool]:
    """The configuration and the arm of a row, and whether it is timed with the arm `faithful`."""
    config, _, model = label.removesuffix(LIKE).partition(", ")
    return config, ARMS[model], label.endswith(LIKE)


def experiment_of(config: str) -> str:
    """The experiment of a configuration."""
    if config.startswith("k="):
        return "goofspiel"
    return config if config in ("triangulation", "donuts") else "gridworld"


def _model(book: Book, label: str) -> tuple[tuple[int, int, float], list[Derived]]:
    """The runs, the seeds and the hours of a row; and its cells."""
    config, arm, like = named(label)
    experiment = experiment_of(config)
    seeds, steps, episodes = AMOUNTS[experiment, arm]
    found = (run for run in book.runs(experiment) if isinstance(run["config"].get("seconds"), dict))
    runs = [run["config"] for run in found if run["key"].split("/")[:2] == [config, "faithful" if like else arm]]
    if not runs:
        return (0, seeds, 0.0), [Derived("0"), *[Derived(MISSING)] * 3, Derived(str(seeds)), Derived(MISSING)]
    amounts = [run["evaluation"].get("episodes", run["evaluation"].get("beliefs")) for run in runs]
    step = statistics.fmean(run["seconds"]["training"] / run["training"]["steps"] for run in runs)
    episode = statistics.fmean(run["seconds"]["evaluation"] / many for run, many in zip(runs, amounts, strict=True))
    hours = (step * steps + episode * episodes) / 3600
    return (len(runs), seeds, hours * seeds), [
        Derived(str(len(runs))),
        Derived("{}", ((1000 * step, ".1f"),), "mean over the runs"),
        Derived("{}", ((100 * episode, ".1f"),), "mean over the runs"),
        Derived("{}", ((hours, ".2f"),), "with the steps and the episodes of the paper"),
        Derived(str(seeds)),
        Derived("{}", ((hours * seeds, ".0f"),), "times the seeds"),
    ]


TABLES = {"scale-here": scale_here, "scale-paper": scale_paper}
"""What derives each table."""
