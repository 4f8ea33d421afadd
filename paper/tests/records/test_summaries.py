"""Laws of summaries: means over seeds, with errors that cover seeds and episodes."""

from __future__ import annotations

import dataclasses
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from example_records import EXAMPLE, TABLES, series
from hypothesis import given
from paths import RESULTS
from tolerances import EXACT, SEED, monte_carlo

from nbf_paper.records import ALL, Record, read_records, summary
from nbf_paper.records.summaries import standard_error


def test_summary_over_seeds_and_over_episodes() -> None:
    values = [0.11, 0.17, 0.4]
    records = [dataclasses.replace(EXAMPLE, seed=seed, value=value) for seed, value in enumerate(values)]
    records += [dataclasses.replace(EXAMPLE, filter="pf", arm="", value=0.3, se=0.02, episodes=200)]
    by_filter = {entry.filter: entry for entry in summary(records)}
    nbf, pf = by_filter["nbf"], by_filter["pf"]
    np.testing.assert_allclose(nbf.value, np.mean(values), **EXACT)
    assert nbf.se is not None
    np.testing.assert_allclose(nbf.se, np.std(values, ddof=1) / np.sqrt(3), **EXACT)
    assert (nbf.seeds, nbf.episodes, nbf.over) == (3, 500, "seeds and episodes")
    assert (pf.value, pf.se, pf.seeds, pf.episodes, pf.over) == (0.3, 0.02, 1, 200, "episodes")


@given(table=TABLES)
def test_summary_does_not_depend_on_the_order(table: list[tuple]) -> None:
    records = [Record(*cells) for cells in table]
    assert summary(records[::-1]) == summary(records)


def test_summary_keeps_steps_metrics_and_arms_apart() -> None:
    records = [*series(), *series(arm="enumerated"), *series(metric="nll"), *series(particles=32)]
    found = summary(records)
    assert len(found) == len(records)
    assert {entry.seeds for entry in found} == {1}
    assert [entry.step for entry in found[:5]] == [0, 1, 2, 3, ALL]


# --- the error of a mean -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "errors", "wanted", "over"),
    [
        ([1.0], [0.5], 0.5, "episodes"),
        ([1.0], [None], None, ""),
        ([1.0, 1.0], [0.3, 0.4], 0.25, "seeds and episodes"),
        ([1.0, 3.0], [0.3, 0.4], 1.0, "seeds and episodes"),
        ([1.0, 3.0], [None, None], 1.0, "seeds"),
        ([1.0, 1.0, 1.0], [0.0, None, 0.6], 0.2, "seeds and episodes"),
    ],
)
def test_an_error_by_hand(values: list[float], errors: list[float | None], wanted: float | None, over: str) -> None:
    found, covered = standard_error(values, errors)
    assert covered == over
    assert found is wanted is None or math.isclose(found or 0.0, wanted or 0.0, rel_tol=1e-12)


NUMBERS = st.floats(-1e6, 1e6)


@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS.map(abs)), min_size=1, max_size=6))
def test_an_error_is_never_below_that_of_the_episodes_or_of_the_seeds(pairs: list[tuple[float, float]]) -> None:
    values, errors = zip(*pairs, strict=True)
    found, _ = standard_error(values, errors)
    assert found is not None
    slack = 1 + 1e-9
    assert found * slack >= np.sqrt(np.sum(np.square(errors))) / len(errors)
    if len(values) > 1:
        assert found * slack >= np.std(values, ddof=1) / np.sqrt(len(values)) - 1e-9


@pytest.mark.usefixtures("unchecked")  # it parses tens of thousands of records
def test_no_recorded_cell_is_told_with_less_than_the_error_of_its_episodes() -> None:
    """It was, in many by more than a factor of two, when the spread of the seeds alone was told."""
    for folder in sorted(path.parent for path in RESULTS.glob("*/records.csv")):
        records = read_records(folder)
        errors: dict[tuple, list[float]] = {}
        for record in records:
            if record.se is not None:
                errors.setdefault((*record.group[:-1], record.step, record.metric), []).append(record.se)
        for entry in summary(records):
            place = (entry.experiment, entry.config, *entry.row, entry.step, entry.metric)
            if place in errors:
                least = sum(error**2 for error in errors[place]) ** 0.5 / entry.seeds
                assert entry.se is not None
                assert entry.se >= least * (1 - 1e-9), place


DRAWS = 5_000


def coverage(seeds: int, between: float, episodes: int = 50, spread: float = 1.0) -> float:
    """How often the truth lies within two errors of a mean: seeds differ by `between` standard errors of the mean over
    episodes, and every error over episodes is estimated from as many."""
    rng = np.random.default_rng(SEED)
    within = spread / np.sqrt(episodes)
    means = rng.normal(0.0, between * within, (DRAWS, seeds)) + rng.normal(0.0, within, (DRAWS, seeds))
    errors = within * np.sqrt(rng.chisquare(episodes - 1, (DRAWS, seeds)) / (episodes - 1))
    found = [standard_error(some, own)[0] or 0.0 for some, own in zip(means.tolist(), errors.tolist(), strict=True)]
    return float(np.mean(np.abs(means.mean(axis=1)) <= 2 * np.array(found)))


@pytest.mark.parametrize(("seeds", "between"), [(1, 0.0), (2, 0.0), (3, 0.0), (3, 0.5), (3, 1.0), (5, 1.0)])
def test_two_errors_cover_the_truth_in_nine_cases_of_ten(seeds: int, between: float) -> None:
    """As long as seeds differ by no more than the episodes of one leave open."""
    assert coverage(seeds, between) >= 0.9 - monte_carlo(0.3, DRAWS)


@pytest.mark.parametrize(("seeds", "degrees"), [(2, 0.7048), (3, 0.8165), (5, 0.8839)])
def test_where_seeds_differ_much_more_two_errors_cover_what_students_t_says(seeds: int, degrees: float) -> None:
    """P(|t| < 2) with S - 1 degrees of freedom: the documentation says so."""
    assert abs(coverage(seeds, 100.0) - degrees) < monte_carlo(0.5, DRAWS)
