"""The crossing: what others need by hand, a problem that keeps the contract, and jobs that are recorded once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from extras import extra
from jobs import Bar, run_twice
from tolerances import EXACT

import nbf.testing
from nbf.errors import InputError
from nbf_paper.audit.check import audit
from nbf_paper.experiments.choices import Amount, Crossing
from nbf_paper.experiments.crossing import episode_times
from nbf_paper.names import ACROBOT
from nbf_paper.records import ALL, Record, Run, add, read_runs
from nbf_paper.report import crossing
from nbf_paper.report.crossing import (
    Timed,
    call_cost,
    equal_time,
    lead,
    others_need,
    significant,
    wins_from,
)
from nbf_paper.report.tables import insert_table


def timed(filter: str, calls: int, microseconds: float, level: float) -> Timed:
    return Timed((filter, "", calls), "crossing", calls, microseconds, level, 0.5, "")


NBF = timed("nbf", 32, 100.0, 2.0)
PARTICLES = [timed("pf", 100, 20.0, 3.0), timed("pf", 1600, 320.0, 1.0)]
"""Half way between their levels is half way between the logarithms of their times."""


def test_others_need_the_time_in_which_they_reach_the_level():
    ratio, sign, kind = others_need(NBF, [NBF, *PARTICLES])
    np.testing.assert_allclose(ratio, np.sqrt(20.0 * 320.0) / 100.0, **EXACT)
    assert (sign, kind) == ("", "PF")
    ratio, _, _ = others_need(NBF, PARTICLES, more=1.0)
    np.testing.assert_allclose(ratio, np.sqrt(120.0 * 1920.0) / 132.0, **EXACT)


@pytest.mark.parametrize(("level", "expected", "bound"), [(0.0, 3.2, "≥ "), (5.0, 0.2, "≤ ")])
def test_bounds_are_told(level, expected, bound):
    ratio, sign, _ = others_need(replace(NBF, level=level), PARTICLES)
    np.testing.assert_allclose(ratio, expected, **EXACT)
    assert sign == bound


def test_a_baseline_that_reaches_the_level_counts_before_a_faster_one_that_does_not():
    ratio, sign, kind = others_need(
        replace(NBF, level=0.5), [*PARTICLES, timed("pf-regularized", 500, 4000.0, 0.5)]
    )  # fmt: skip
    np.testing.assert_allclose(ratio, 40.0, **EXACT)
    assert (sign, kind) == ("", "Regularized PF")


def test_a_call_costs_what_more_particles_cost_and_a_filter_wins_from_there():
    np.testing.assert_allclose(call_cost(PARTICLES), 0.2, **EXACT)
    assert wins_from(replace(NBF, level=0.0), PARTICLES) == "here"
    assert wins_from(replace(NBF, level=5.0, calls=200), PARTICLES) == "never"
    cost = 0.2 + next(c for c in np.geomspace(1e-3, 1e6, 400) if others_need(NBF, PARTICLES, c)[0] >= 1)
    assert wins_from(NBF, PARTICLES) == f"{significant(cost)} µs"


def test_the_best_baseline_of_equal_time_is_the_one_that_scores_best_until_then():
    # NBF takes 100 µs; half way between the logarithms of 20 and 500 µs is half way between the levels.
    slow = timed("pf-regularized", 10, 20.0, 2.0), timed("pf-regularized", 40, 500.0, 1.0)
    found = equal_time(NBF, [NBF, *PARTICLES, *slow])
    np.testing.assert_allclose(found[:2], (1.5, 0.5), **EXACT)
    assert found[2:] == ("Regularized PF", False)
    # If calls cost 10 µs more, NBF takes 420 µs and those 120 and 900.
    share = np.log(420 / 120) / np.log(900 / 120)
    np.testing.assert_allclose(equal_time(NBF, [*PARTICLES, *slow], 10.0).level, 2.0 - share, **EXACT)


def test_a_lead_has_the_error_of_both_and_says_when_the_baseline_ends():
    error = np.hypot(0.5, 0.5)
    level = replace(NBF, microseconds=80.0, level=1.5)
    assert lead(level, PARTICLES, "log_score", 0.0) == f"+0.50 ± {error:.2f}, PF"
    worse = replace(NBF, level=3.0, microseconds=400.0)
    ratios = [f"{np.exp(-2.0 + shift):.2f}" for shift in (0.0, -error, error)]
    assert lead(worse, PARTICLES, "energy", 0.0) == "≤ {} ({}–{}), PF".format(*ratios)
    near = replace(worse, microseconds=330.0)
    assert lead(near, PARTICLES, "energy", 0.0) == "{} ({}–{}), PF".format(*ratios)


def test_a_factor_is_a_bound_where_a_better_baseline_ends_on_record():
    """The regularized filter is ahead of the particle filter until its largest size, and not quite as good as NBF."""
    short = timed("pf-regularized", 32, 30.0, 2.5), timed("pf-regularized", 64, 60.0, 2.1)
    ratio, sign, kind = others_need(NBF, [*PARTICLES, *short])
    np.testing.assert_allclose(ratio, 0.8, **EXACT)
    assert (sign, kind) == ("≤ ", "PF")


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.12"), (0.996, "1.0"), (9.94, "9.9"), (9.96, "10"), (123.4, "123")]
)
def test_numbers_have_two_significant_digits_or_all_before_the_point(value, text):
    assert significant(value) == text


def test_a_time_is_the_mean_over_the_steps_of_the_median_over_passes():
    def walk(*passes):
        times = itertools.chain([99.0, 99.0], *passes)
        return lambda: next(times)

    seldom = walk([1.0, 50.0], [1.0, 50.0], [1.0, 50.0])  # one step in two is long: a median of all would be 1
    loaded = walk([1.0, 2.0], [700.0, 2.0], [1.0, 2.0])  # something else ran meanwhile
    bar: Any = Bar()
    found = episode_times({"seldom": seldom, "loaded": loaded}, 2, 3, bar)
    np.testing.assert_allclose(found, [25.5, 1.5], **EXACT)
    assert bar.done == 3


SCORED = [("nbf", 32, 2.0), ("pf", 32, 0.0), ("pf", 4096, 3.0), ("approx", 0, 2.0)]


def record_scores(folder):
    metrics = ("log_score", "energy", "lost", "lead_over_equal_calls")
    records = [
        Record("crossing", ACROBOT, name, "", n, n, 0, ALL, metric, 4 - score if metric == "energy" else score, 0.1, 4)
        for name, n, score in SCORED for metric in metrics if name == "nbf" or not metric.startswith("lead")
    ]  # fmt: skip
    add(folder, records, Run("scores", 0, "nbf-paper reproduce crossing", 1.0, {}))


def record_times(folder):
    times = {("nbf", 32): 1000.0, ("pf", 32): 500.0, ("pf", 4096): 64000.0}
    records = [
        Record("crossing", f"{ACROBOT}-times", name, "", n, n, 0, ALL, "us_per_update", time, None, 3)
        for (name, n), time in times.items()
    ]
    add(folder, records, Run("times", 0, "nbf-paper reproduce crossing", 1.0, {}))


def test_the_page_sets_scores_beside_times_and_the_audit_agrees(tmp_path):
    folder = tmp_path / "crossing"
    record_scores(folder)
    record_times(folder)
    runs = {run.key: run.made for run in read_runs(folder)}
    assert (len(runs["scores"]), len(runs["times"])) == (len(SCORED), 3), "times take no score from its run"
    page = crossing.page(folder)
    # Log scores of 0, 2 and 3: two thirds of the way.
    needed = np.exp(np.interp(2.0, [0.0, 3.0], np.log([500.0, 64000.0]))) / 1000.0
    factors = " ".join(page.tables["crossing-factors"].split())
    assert f"| Acrobot, Gymnasium | NBF (32), fitted | log score | {significant(needed)}, PF |" in factors
    assert set(page.captions) >= {*page.tables, *page.figures}
    for draw in page.figures.values():
        draw()
    document = tmp_path / "page.md"
    document.write_text("".join(f"<!-- nbf:table {name} -->\n<!-- /nbf:table -->\n" for name in page.tables))
    for name, table in page.tables.items():
        insert_table(document, name, table)
    audited = audit(tmp_path, [document])
    assert len(audited.cells) > 40
    assert audited.mismatches == []


def test_the_page_needs_no_times(tmp_path):
    record_scores(tmp_path / "crossing")
    page = crossing.page(tmp_path / "crossing")
    assert "acrobot" in page.tables
    assert "crossing" not in page.tables


def test_jobs_are_scores_then_times_and_unknown_simulators_are_refused():
    extra("gymnasium", "gymnasium")
    extra("mujoco", "mujoco")
    jobs = Crossing().jobs(Amount(seeds=(0, 1)))
    assert [job.timed for job in jobs] == [False] * 2 + [True] * 4
    assert len({job.key for job in jobs}) == len(jobs)
    assert [job.timed for job in Crossing(times=False).jobs(Amount())] == [False]
    with pytest.raises(InputError, match="acrobot, touch; got 'box'"):
        Crossing(simulators=("box",)).jobs(Amount())


def test_torques_are_kept_and_starts_are_near_hanging_still(key):
    extra("gymnasium", "gymnasium")
    from nbf_paper.zoo import acrobot

    family = acrobot.Torques(acrobot.world())
    environment, torques = family.schedule(key, 6)
    found: Any = np.asarray(torques)
    assert found.shape == (6,)
    assert len(set(found[:4])) == len(set(found[4:])) == 1
    states = jax.vmap(environment.init)(jax.random.split(key, 64))
    assert np.all(np.abs(np.asarray(states)) <= acrobot.START)


@pytest.mark.slow
def test_the_acrobot_keeps_the_contract(key):
    extra("gymnasium", "gymnasium")
    from nbf_paper.zoo import acrobot

    nbf.testing.check_environment(*acrobot.Torques(acrobot.world()).sample(key)).raise_if_failed()


@pytest.mark.slow
def test_jobs_are_recorded_once(tmp_path):
    extra("gymnasium", "gymnasium")
    for job in Crossing(simulators=(ACROBOT,)).jobs(Crossing.quick):
        _, records = run_twice("crossing", job, tmp_path)
        assert all(np.isfinite(record.value) for record in records)
