"""The table of docs/zero-likelihood.md is its record, and our own row is what happens today."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tolerances import monte_carlo

from benchmarks.peers import nbf as ours
from benchmarks.peers.scenario import facts
from benchmarks.zero_likelihood import PAGE, PINS, PLACE, RECORD, scenario, table


@pytest.fixture(scope="module")
def record():
    return json.loads(RECORD.read_text())


def test_the_page_shows_the_record(record):
    assert PLACE.findall(PAGE.read_text()) == [table(record)]


def test_the_record_is_of_this_bad_day_and_these_versions(record):
    assert record["scenario"] == scenario()
    versions = {f"{name}=={version}" for row in record["rows"] for name, version in row["versions"].items()}
    assert {pin for pins in PINS.values() for pin in pins} <= versions
    assert {row["package"] for row in record["rows"]} == {"neural-bayesian-filtering", *PINS}


def test_ours_goes_on_and_says_so(record):
    (row,) = (row for row in record["rows"] if row["package"] == "neural-bayesian-filtering")
    (run,) = ours.WAYS.values()
    now = facts(run)
    truth, numbers = record["scenario"], ("error", "spread")
    # Two sets of runs whose roundings differ may resample differently: these two are means over particles and seeds.
    within = monte_carlo(truth["exact"]["spread"], truth["particles"])
    for name in numbers:
        np.testing.assert_allclose(now.pop(name), row["facts"].pop(name), rtol=0, atol=within)
    assert now == row["facts"]
    assert (now["ess"], now["log_evidence"], now["signs"]) == ([0.0], ["-inf"], ["recovered"])
    assert now["right"] == truth["seeds"]
