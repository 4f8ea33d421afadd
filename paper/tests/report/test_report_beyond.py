"""Laws of the page of the default filter: what is exact without the model says so, and is decided by the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbf_paper.records import ALL, Record, Run, add, summary
from nbf_paper.report.beyond import exact_cells, page
from nbf_paper.report.html import read_markdown

LEGEND = "‡ *exact: the model is not used*; an untrained one gives the same."
BLIND = "untrained, default"


def record(config: str, arm: str, particles: int, value: float, seed: int = 0, **changes: object) -> Record:
    fields = {
        "experiment": "beyond", "config": config, "filter": "nbf", "arm": arm, "particles": particles,
        "calls": particles, "seed": seed, "step": ALL, "metric": "js", "value": value, "se": value / 10,
        "episodes": 200,
    }  # fmt: skip
    return Record(**{**fields, **changes})


def shown(folder: Path, records: list[Record], table: str) -> tuple[dict[str, list[str]], str]:
    """The rows of a table by their labels, and its legend."""
    add(folder, records, Run("a", 0, "a test", 0.0, {}))
    rows, _, legend = read_markdown(page(folder).tables[table])
    return {name: cells for name, *cells in rows}, legend


RECORDS = [
    record("8-2D-random", "default", 128, 0.0001),
    record("8-2D-random", BLIND, 128, 0.0002),
    record("8-2D-random", "not consistent", 128, 0.0001),
    record("8-2D-random", "default", 32, 0.0001),  # as good, but by its model
    record("8-2D-random", BLIND, 32, 0.3),
    record("8-3D-random", "default", 128, 0.052),
    record("8-3D-random", BLIND, 128, 0.0001),  # the model hurts; it is used
    record("5-2D-fixed", "default", 128, 0.0001),  # not recorded without training
]


@pytest.mark.parametrize("table", ["beyond", "beyond-gridworld"])
def test_a_cell_is_exact_if_an_untrained_model_is(tmp_path: Path, table: str) -> None:
    rows, legend = shown(tmp_path, RECORDS, table)
    columns = rows["Filter"]

    def cell(name: str, config: str) -> str:
        return rows[name][columns.index(config)]

    trained, blind = "wide softmax, default update", "untrained wide softmax, default update"
    assert cell(f"NBF (128), {trained}", "8-2D-random") == "0.000 ± 0.000 ‡"
    assert cell(f"NBF (128), {blind}", "8-2D-random") == "0.000 ± 0.000 ‡"
    assert cell(f"NBF (32), {trained}", "8-2D-random") == "0.000 ± 0.000"
    assert cell(f"NBF (32), {blind}", "8-2D-random") == "0.300 ± 0.030"
    assert cell(f"NBF (128), {trained}", "8-3D-random") == "0.052 ± 0.005"
    assert cell(f"NBF (128), {blind}", "8-3D-random") == "0.000 ± 0.000"
    assert legend.endswith(LEGEND)
    if table == "beyond-gridworld":
        assert cell(f"NBF (128), {trained}", "5-2D-fixed") == "0.000 ± 0.000"
        assert cell("NBF (128), wide softmax, no moment matching", "8-2D-random") == "0.000 ± 0.000"


def test_without_untrained_records_nothing_is_called_exact(tmp_path: Path) -> None:
    rows, legend = shown(tmp_path, [r for r in RECORDS if r.arm != BLIND], "beyond")
    assert "‡" not in legend
    assert not any("‡" in cell for cells in rows.values() for cell in cells)


def test_the_mean_over_seeds_decides_and_only_of_the_divergence_over_all_steps() -> None:
    pair = [record("k=5", "default", 64, 0.0), record("k=5", BLIND, 64, 0.0)]
    assert exact_cells(summary(pair)) == {(("nbf", arm, 64), "k=5") for arm in ("default", BLIND)}
    assert exact_cells(summary([*pair, record("k=5", BLIND, 64, 0.0011, seed=1)])) == set()
    assert exact_cells(summary([pair[0], record("k=5", BLIND, 64, 0.0, step=3)])) == set()
    assert exact_cells(summary([pair[0], record("k=5", BLIND, 64, 0.0, metric="ess")])) == set()
    assert exact_cells(summary([pair[0], record("k=5", BLIND, 64, 0.0, calls=65)])) == set()
