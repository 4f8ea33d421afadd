"""Laws of labels: a row says which model and which update it is of, and no label stands for two of them."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from paths import RESULTS

from nbf_paper.names import GRIDWORLDS, domain_of
from nbf_paper.records import ALL, Record, read_runs, summary
from nbf_paper.report.html import read_markdown
from nbf_paper.report.labels import label, row_labels

TABLE = re.compile(r"<!-- nbf:table \S+ -->\n(.*?)<!-- /nbf:table -->", re.DOTALL)
GRIDS, GAME, PLANE = "8-2D-random", "k=6", "triangulation"


@pytest.mark.parametrize(
    ("experiment", "row", "configs", "text"),
    [
        ("gridworld", ("nbf", "faithful", 32), [GRIDS], "NBF (32), paper's flow"),
        ("gridworld", ("nbf", "wide", 32), [GRIDS], "NBF (32), wide softmax"),
        ("goofspiel", ("nbf", "autoregressive", 64), [GAME], "NBF (64), autoregressive"),
        ("goofspiel", ("nbf", "paper-default", 64), [GAME], "NBF (64), paper's flow to the letter, default update"),
        ("beyond", ("nbf", "faithful", 32), [PLANE], "NBF (32), mixture, paper's update"),
        ("beyond", ("nbf", "default", 32), [GRIDS, PLANE], "NBF (32), wide softmax / mixture, default update"),
        ("beyond", ("nbf", "default", 64), [GAME, "k=5"], "NBF (64), autoregressive, default update"),
        ("beyond", ("nbf", "not consistent", 64), [GAME], "NBF (64), autoregressive, no moment matching"),
        ("beyond", ("nbf", "untrained, default", 64), [GAME], "NBF (64), untrained autoregressive, default update"),
        ("beyond", ("approx", "default", 0), [GRIDS], "Approx Beliefs, wide softmax"),
        ("beyond", ("branching", "branches chosen", 8), [GRIDS], "Fearnhead–Clifford (8), branches chosen"),
        ("simulation-cost", ("nbf", "faithful", 32), [PLANE], "NBF (32), paper's flow"),
        ("simulation-cost", ("nbf", "mixture", 32), [PLANE], "NBF (32), mixture, paper's update"),
        ("simulation-cost", ("nbf", "default", 32), [PLANE], "NBF (32), mixture, default update"),
        ("wall-clock", ("nbf", "wide", 32), list(GRIDWORLDS), "NBF (32), wide softmax, paper's update"),
        ("wall-clock", ("recurrent", "", 0), list(GRIDWORLDS), "Recurrent"),
    ],
)
def test_labels(experiment: str, row: tuple[str, str, int], configs: list[str], text: str) -> None:
    assert label(*row, experiment, configs) == text


def test_a_row_is_named_by_the_columns_in_which_it_has_numbers() -> None:
    def record(config: str, particles: int) -> Record:
        return Record("beyond", config, "nbf", "default", particles, particles, 0, ALL, "js", 0.1, 0.01, 10)

    names = row_labels(summary([record(GRIDS, 32), record(PLANE, 32), record(PLANE, 16)]))
    assert names["nbf", "default", 32] == "NBF (32), wide softmax / mixture, default update"
    assert names["nbf", "default", 16] == "NBF (16), mixture, default update"


def meanings() -> dict[tuple[str, str], set[tuple[str, str]]]:
    """By domain and label, the models and updates of the committed records that stand behind it. The model of a row of
    `beyond` is the one that its run says it has trained."""
    trained = {}
    for run in read_runs(RESULTS / "beyond"):
        trained[run.config["config"]] = run.config["trained"]["arm"]
    updates = {"faithful": "paper", "default": "default"}
    found: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for experiment in ("gridworld", "goofspiel", "triangulation", "fine-tuned", "beyond", "simulation-cost"):
        for run in read_runs(RESULTS / experiment):
            for made in run.made:
                config, filter, arm, particles, _ = made.split("/")
                if filter == "nbf":
                    of_update = experiment == "beyond" or arm == "default"
                    meant = (trained[config], updates.get(arm, arm)) if of_update else (arm, "paper")
                    name = label(filter, arm, int(particles), experiment, [config])
                    found[domain_of(config), name].add(meant)
    return found


def test_no_label_stands_for_two_models_or_two_updates() -> None:
    """NBF (64) in Goofspiel was 0.057 in one table and 0.236 in another."""
    found = meanings()
    assert len(found) > 50
    assert {place: meant for place, meant in found.items() if len(meant) > 1} == {}


def test_every_neural_row_of_every_table_names_its_model() -> None:
    root = RESULTS.parent
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted((root / "paper" / "docs").glob("*.md"))]
    tables = [table for page in pages for table in TABLE.findall(page.read_text())]
    lines = [line for table in tables for line in read_markdown(table)[0]]
    shown = {cell for line in lines for cell in line if cell.startswith(("NBF", "Approx Beliefs"))}
    assert len(shown) > 30
    assert {name for name in shown if ", " not in name} == set()
