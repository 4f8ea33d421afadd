"""Wall-clock times: what is kept of measurements, in whose turn they are taken, and what the tables say of them."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from tolerances import EXACT, SEED

from nbf.errors import InputError
from nbf_paper.config import GridworldConfig
from nbf_paper.experiments import wall_clock
from nbf_paper.experiments.choices import Amount, WallClock
from nbf_paper.experiments.wall_clock import WallClockJob, interleaved, records_of, within_fences
from nbf_paper.records import ALL, Record, RecordError, read_records, write_records
from nbf_paper.report.wall_clock import GRIDS, PAPER, PAPER_GRADIENT, page

BASE = Record("wall-clock", "5-2D-fixed", "pf", "", 32, 32, 0, ALL, "us", 0.0, None, 10)


def test_fences_are_the_quartiles_and_a_half_range_more():
    """Against the quartiles of the standard library, for values with a long tail."""
    values = np.random.default_rng(SEED).exponential(size=999)
    low, _, high = statistics.quantiles(values.tolist(), n=4, method="inclusive")
    kept = [value for value in values if low - 1.5 * (high - low) <= value <= high + 1.5 * (high - low)]
    assert 0 < len(kept) < len(values)
    np.testing.assert_array_equal(within_fences(values), kept)


def test_a_record_has_mean_error_and_spread_of_what_is_kept():
    kept = np.asarray([10.0, 11.0, 12.0, 13.0])
    mean, deviation = records_of(BASE, "us_per_update", np.append(kept, 1e6))
    assert (mean.metric, deviation.metric) == ("us_per_update", "us_per_update_std")
    np.testing.assert_allclose(mean.value, 11.5, **EXACT)
    np.testing.assert_allclose(deviation.value, float(f"{kept.std():.7g}"), **EXACT)
    assert mean.se is not None
    np.testing.assert_allclose(mean.se, float(f"{kept.std() / 2:.7g}"), **EXACT)


def test_clocks_take_turns_in_blocks_and_the_first_two_calls_do_not_count():
    ticks, calls, advanced = itertools.count(), [], []

    def clock(name):
        def one():
            calls.append(name)
            return float(next(ticks))

        return one

    times = interleaved({"a": clock("a"), "b": clock("b")}, 5, advanced.append, block=2)
    assert "".join(calls) == "aabb" + "aabb" + "aabb" + "ab"
    assert advanced == [2, 2, 1]
    np.testing.assert_allclose(times["a"], 1e6 * np.asarray([4.0, 5.0, 8.0, 9.0, 12.0]), **EXACT)
    np.testing.assert_allclose(times["b"], 1e6 * np.asarray([6.0, 7.0, 10.0, 11.0, 13.0]), **EXACT)


def test_jobs_are_the_papers_grids_and_too_few_measurements_are_refused():
    jobs = [job for job in WallClock().jobs(Amount()) if isinstance(job, WallClockJob)]
    assert [job.config.name for job in jobs] == [f"{grid}-fixed" for grid in GRIDS]
    assert {job.measurements for job in jobs} == {10_000}
    assert len({job.key for job in (*jobs, *WallClock().jobs(Amount(episodes=200)))}) == 2 * len(GRIDS)
    with pytest.raises(InputError, match="at least 2 measurements; got 1"):
        WallClockJob(GridworldConfig.parse("5-2D-fixed"), measurements=1)


class Silent:
    def describe(self, text):
        pass

    def advance(self, done):
        pass


@pytest.mark.slow
def test_a_measurement_gives_every_row_of_both_tables(monkeypatch, tmp_path):
    """Of a grid of nine cells, with one filter of each kind that is quick to compile."""
    chosen = wall_clock.filter_rows
    small = lambda config, seed: [row for row in chosen(config, seed) if row.label in ("recurrent", "pf(32)")]  # noqa: E731
    monkeypatch.setattr(wall_clock, "filter_rows", small)
    job = WallClockJob(GridworldConfig.parse("3-2D-fixed"), measurements=3)
    assert job.run(tmp_path, tmp_path, command="test", bar=Silent())
    assert not job.run(tmp_path, tmp_path, command="test", bar=Silent())
    records = read_records(tmp_path)
    found = {(record.filter, record.arm, record.metric) for record in records}
    updates = {("recurrent", ""), ("pf", "")}
    assert found == {
        *((*row, f"us_per_update{end}") for row in updates for end in ("", "_std")),
        *(("recurrent", "gradient", f"us_per_gradient{end}") for end in ("", "_std")),
    }
    assert all(record.value > 0 for record in records if not record.metric.endswith("_std"))


@pytest.fixture
def papers_own(tmp_path):
    """A record whose numbers are the paper's."""

    def row(filter, arm, particles, grid, metric, milliseconds):
        return Record(
            "wall-clock",
            f"{grid}-fixed",
            filter,
            arm,
            particles,
            particles,
            0,
            ALL,
            metric,
            milliseconds * 1e3,
            None,
            9,
        )

    records = []
    for column, grid in enumerate(GRIDS):
        for name, times in PAPER.items():
            records += [row(*name, grid, "us_per_update", times[column]), row(*name, grid, "us_per_update_std", 0.004)]
        records += [
            row("recurrent", "gradient", 0, grid, "us_per_gradient", PAPER_GRADIENT[column]),
            row("recurrent", "gradient", 0, grid, "us_per_gradient_std", 0.02),
        ]
    write_records(tmp_path / "records.csv", records)
    return tmp_path


def test_the_papers_own_numbers_give_the_papers_own_ratios(papers_own):
    tables = page(papers_own).tables
    (line,) = [line for line in tables["wall-clock-ratios"].splitlines() if "NBF (16)" in line]
    cells = [cell.split() for cell in line.split("|")[2:-1]]
    assert all(here == paper.strip("()") for here, paper in cells)
    assert cells[0][0] == f"{0.5939 / 0.2931:.2f}"
    (line,) = [line for line in tables["wall-clock"].splitlines() if "PF (32)" in line]
    assert line.split("|")[2].strip() == "0.293 ± 0.004"
    assert "2.306 ± 0.020" in tables["wall-clock-gradient"]
    assert "–" in next(line for line in tables["wall-clock"].splitlines() if "Fine-tuned" in line)


def test_no_times_are_an_error(tmp_path):
    write_records(tmp_path / "records.csv", [])
    with pytest.raises(RecordError, match="nbf-paper reproduce wall-clock"):
        page(tmp_path)
