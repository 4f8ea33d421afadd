"""Laws of Goofspiel's page: its tables and figures show the records' numbers, and only what is recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tolerances import EXACT

from nbf_paper.records import ALL, Record, Run, add
from nbf_paper.report.goofspiel import page
from nbf_paper.report.html import read_markdown

ROWS = (("nbf", "faithful", 64), ("nbf", "autoregressive", 64), ("pf", "", 512))
ROUNDS = (1, 2, 3)


def value(config: str, row: tuple[str, str, int], step: int | str = ALL) -> float:
    """A number that tells where it comes from."""
    return ROWS.index(row) / 10 + int(config[2]) / 100 + (0 if step == ALL else int(step) / 1000)


def record(
    folder: Path, config: str, metrics: tuple[str, ...], curve: list[float] | None = None, seed: int = 0
) -> None:
    """Some metrics of every filter, by one run."""
    found = [
        Record("goofspiel", config, *row, row[2], seed, step, metric, value(config, row, step), 0.01, 500)
        for row in ROWS
        for metric in metrics
        for step in ((ALL, *ROUNDS) if metric == "js" else (ALL,))
    ]
    if "js_sharp" in metrics:
        head = ("goofspiel", config, "emp", "", 64, 6, seed)
        found += [Record(*head, ALL, f"entropy_{half}", number, None, 500) for half, number in (("sharp", 0.25),)]
    settings = {
        "arm": "faithful", "environment": {"cards": int(config[2])}, "pool": [3000, 128], "loss_curve": curve,
        "training": {"steps": 100}, "seconds": {"training": 90.0 + 60.0 * seed},
    }  # fmt: skip
    run = Run(
        f"{config}/{'-'.join(metrics)}/{seed}", seed, "nbf-paper reproduce goofspiel", 30.0, settings if curve else {}
    )
    add(folder, found, run)


def cells(table: str) -> dict[str, list[str]]:
    """The rows of a table by their first cell."""
    lines, _, _ = read_markdown(table)
    return {name.strip(): [cell.strip() for cell in rest] for name, *rest in lines}


def test_only_what_is_recorded_is_shown(tmp_path: Path) -> None:
    record(tmp_path, "k=4", ("js",))
    found = page(tmp_path)
    assert set(found.tables) == {"goofspiel"}
    assert set(found.figures) == {"goofspiel.png"}
    record(tmp_path, "k=4-run", ("js", "js_sharp", "js_diffuse", "legality"), [2.0, 1.0])
    found = page(tmp_path)
    tables = {"goofspiel", "goofspiel-run", "goofspiel-entropy-run", "goofspiel-legality", "goofspiel-training"}
    assert set(found.tables) == tables
    assert set(found.figures) == {"goofspiel.png", "goofspiel-run.png", "goofspiel-loss.png"}
    assert {*found.tables, *found.figures} <= found.captions.keys()


def test_splits_stand_apart_and_other_metrics_side_by_side(tmp_path: Path) -> None:
    for config in ("k=5-run", "k=5", "k=4"):
        record(tmp_path, config, ("js", "zero_weight", "us_per_update"))
    tables = page(tmp_path).tables
    assert cells(tables["goofspiel"])["Filter"] == ["k=4", "k=5"]
    assert cells(tables["goofspiel-run"])["Filter"] == ["k=5-run"]
    assert cells(tables["goofspiel"])["NBF (64), autoregressive"] == ["0.140 ± 0.010", "0.150 ± 0.010"]
    assert cells(tables["goofspiel-zero-weight"])["Filter"] == ["k=4", "k=5", "k=5-run"]
    assert cells(tables["goofspiel-time"])["PF (512)"] == ["0 ± 0"] * 3


def test_halves_by_entropy_say_how_random_the_bids_were(tmp_path: Path) -> None:
    record(tmp_path, "k=6", ("js", "js_sharp", "js_diffuse"))
    table = cells(page(tmp_path).tables["goofspiel-entropy"])
    assert table["Filter"] == ["k=6, sharp", "k=6, diffuse"]
    assert table["NBF (64), paper's flow"] == ["0.060 ± 0.010"] * 2
    assert table["*entropy of a bid*"] == ["0.25", "–"]
    assert "Exact samples (64)" not in table, "its divergence is not recorded"


def test_trainings_are_shown_as_they_were(tmp_path: Path) -> None:
    record(tmp_path, "k=4", ("js",), [3.0, 2.0, 1.0, 0.5])
    record(tmp_path, "k=4", ("js",), [2.0, 1.0, 1.0, 1.5], seed=1)
    record(tmp_path, "k=7", ("js",), [9.0, 8.0])
    found = page(tmp_path)
    table = cells(found.tables["goofspiel-training"])
    assert table["k=4, paper's flow"] == ["100", "3000", "2", "2.0", "2.50", "1.00"]
    assert table["k=7, paper's flow"] == ["100", "3000", "1", "1.5", "9.00", "8.00"]
    first, second = found.figures["goofspiel-loss.png"]().axes
    assert [axis.get_title() for axis in (first, second)] == ["k=4", "k=7"]
    points = np.asarray(first.lines[0].get_xydata(), float)
    np.testing.assert_allclose(points, [[12.5, 3], [37.5, 2], [62.5, 1], [87.5, 0.5]], **EXACT)
    assert [len(axis.lines) for axis in (first, second)] == [2, 1]
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["paper's flow"]


def test_the_figure_is_by_round_and_claims_quote_the_records(tmp_path: Path) -> None:
    record(tmp_path, "k=4", ("js",))
    found = page(tmp_path)
    (axis,) = found.figures["goofspiel.png"]().axes
    assert axis.get_xlabel() == "round"
    drawn = {line.get_label(): line.get_ydata() for line in axis.lines}
    assert set(drawn) == {"NBF (64), paper's flow", "NBF (64), autoregressive", "PF (512)"}
    wanted = [value("k=4", ROWS[2], step) for step in ROUNDS]
    np.testing.assert_allclose(np.asarray(drawn["PF (512)"], float), wanted, **EXACT)
    claims = dict(found.claims)
    (better,) = (numbers for claim, numbers in claims.items() if claim.startswith("NBF outperforms"))
    assert better == "k=4: NBF (64), paper's flow 0.040, NBF (64), autoregressive 0.140, PF (512) 0.240"
    (later,) = (numbers for claim, numbers in claims.items() if "later rounds" in claim)
    assert later == "k=4: PF (512) 0.241, 0.242, 0.243"
